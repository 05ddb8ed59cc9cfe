"""What a user's formulation of `sizing` gets: a round as plain Python values, ready for algebra."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from wattsched.formulations.sizing.columns import Choices
from wattsched.formulations.sizing.mckp import Rows, add_buddy_rows
from wattsched.formulations.sizing.uses import free_gpus
from wattsched.instances.instance import Instance
from wattsched.instances.options import Options
from wattsched.topology.buddy import free_by_level


@dataclass(frozen=True)
class Choice:
    """One thing that a job can do: run in a configuration, or wait.

    Attributes
    ----------
    job : int
        Number of the job.
    pool : int
        Number of the pool, -1 for waiting.
    gpus, block : int
        GPUs, and the power of two that they are rounded up to; 0 for waiting.
    needs_room : bool
        Takes a block of free GPUs: false for waiting, for jobs that keep the GPUs they hold, and in a set for
        all jobs but the first.
    cost : float
        What the objective adds for it, to be minimised (objectives to be maximised come negated).
    completion_s, power_w : float
        Seconds to completion, and watts of the job's GPUs.
    option : int
        Number in `Round.options`, for everything else that is known of it.
    """

    job: int
    pool: int
    gpus: int
    block: int
    needs_room: bool
    cost: float
    completion_s: float
    power_w: float
    option: int


@dataclass(frozen=True)
class Limit:
    """A capacity: the sum of ``use[c]`` over the choices c taken is at most `capacity`."""

    name: str
    use: Mapping[int, float]
    capacity: float


@dataclass(frozen=True)
class Round:
    """A scheduling round as a formulation sees it.

    Choices are numbered from 0, job by job; those that others dominate are left out.

    Attributes
    ----------
    columns : Choices
        The same as arrays.
    """

    columns: Choices

    @property
    def instance(self) -> Instance:
        """Instance as the file has it."""
        return self.columns.options.instance

    @property
    def options(self) -> Options:
        """All options of all jobs as arrays, dominated ones included."""
        return self.columns.options

    @property
    def objective(self) -> str:
        """Name of the objective."""
        return self.columns.objective.name

    @property
    def combine(self) -> Literal["sum", "worst"]:
        """How the costs of the choices taken combine: their sum, or the largest."""
        return self.columns.objective.combine

    @property
    def jobs(self) -> range:
        """Numbers of the jobs."""
        return range(len(self.columns.start) - 1)

    @property
    def pools(self) -> range:
        """Numbers of the pools."""
        return range(len(self.options.pools))

    def of_job(self, job: int) -> range:
        """Numbers of a job's choices."""
        return range(int(self.columns.start[job]), int(self.columns.start[job + 1]))

    @cached_property
    def choices(self) -> tuple[Choice, ...]:
        """All choices, in the order of their numbers."""
        columns, options = self.columns, self.options
        arrays = [
            columns.job.tolist(),
            columns.pool.tolist(),
            options.gpus[columns.index].tolist(),
            columns.block.tolist(),
            columns.needs_room.tolist(),
            columns.cost.tolist(),
            options.completion_s[columns.index].tolist(),
            options.power_w[columns.index].tolist(),
            columns.index.tolist(),
        ]
        return tuple(Choice(*values) for values in zip(*arrays, strict=True))

    @cached_property
    def budgets(self) -> tuple[Limit, ...]:
        """Power caps and budgets of energy and carbon, without those that no choice uses."""
        rows = [(row.name, np.flatnonzero(row.use), row.use, row.capacity) for row in self.columns.budgets]
        return tuple(
            Limit(name, dict(zip(used.tolist(), use[used].tolist(), strict=True)), float(capacity))
            for name, used, use, capacity in rows
            if len(used)
        )

    @cached_property
    def room(self) -> tuple[Limit, ...]:
        """The buddy rows: the choices fit into the free GPUs if and only if these hold."""
        rows = Rows([], [], [], [])
        add_buddy_rows(rows, self.columns)
        return tuple(
            Limit(name, dict(zip(used.tolist(), use.tolist(), strict=True)), capacity)
            for name, used, use, capacity in zip(
                rows.names, rows.columns, rows.values, rows.capacity, strict=True
            )
        )

    @cached_property
    def free_blocks(self) -> tuple[tuple[int, ...], ...]:
        """For each pool and level k, how many free aligned blocks of size 2^k lie in no larger free one."""
        found = []
        for pool, free in zip(self.options.pools, free_gpus(self.options), strict=True):
            gpus = [*free_by_level(pool.blocks, free).tolist(), 0]
            found.append(tuple((gpus[k] - gpus[k + 1]) >> k for k in range(len(gpus) - 1)))
        return tuple(found)
