"""Choice columns that the formulations of `sizing` have in common: one for each option worth keeping."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wattsched.formulations.program import Block, BoolArray, FloatArray, IntArray
from wattsched.formulations.sizing.dominance import undominated
from wattsched.formulations.sizing.objectives import Objective
from wattsched.formulations.sizing.uses import BudgetRow, budget_rows, fixed_jobs
from wattsched.instances.offers import NO_OFFER
from wattsched.instances.options import Options


@dataclass(frozen=True)
class Link:
    """Two columns of a set, of its first job and another: both are taken or none is.

    A column is None where its job's deadline rules the set out.
    """

    name: str
    first: int | None
    other: int | None


@dataclass(frozen=True)
class Choices:
    """The columns that stand for options.

    Attributes
    ----------
    options : Options
    objective : Objective
    index : int array, shape (n_choices,)
        Option of each column.
    start : int array, shape (n_jobs + 1,)
        Columns of job j are ``start[j]`` to ``start[j + 1]``.
    cost : float array, shape (n_choices,)
        To be minimised.
    """

    options: Options
    objective: Objective
    index: IntArray
    start: IntArray
    cost: FloatArray

    def __len__(self) -> int:
        return len(self.index)

    @property
    def dropped(self) -> int:
        """Number of dominated options."""
        return len(self.options) - len(self.index)

    @cached_property
    def budgets(self) -> list[BudgetRow]:
        """Budget rows, with uses per column."""
        return [replace(row, use=row.use[self.index]) for row in budget_rows(self.options)]

    @cached_property
    def needs_room(self) -> BoolArray:
        """Which columns need a block of free GPUs."""
        options = self.options
        return ~(options.waiting | fixed_jobs(options))[self.index] & (self.block > 0)

    @cached_property
    def links(self) -> list[Link]:
        """What holds the jobs of each set together, by offer."""
        options, jobs = self.options, self.options.instance.jobs
        columns = np.flatnonzero(options.shared[self.index])
        offer, job = options.offer[self.index[columns]], self.job[columns]
        at = dict(zip(zip(offer.tolist(), job.tolist(), strict=True), columns.tolist(), strict=True))
        return [
            Link(f"share:{offer.declared.name}:{options.pools[offer.pool].name}:{jobs[j].name}", first, other)
            for o, offer in enumerate(options.offers)
            for first in [at.get((o, offer.members[0]))]
            for j in offer.members[1:]
            for other in [at.get((o, j))]
            if first is not None or other is not None
        ]

    @property
    def pool(self) -> IntArray:
        """Pool of each column, -1 for waiting."""
        return self.options.pool[self.index]

    @property
    def block(self) -> IntArray:
        """Block size of each column; 0 for waiting, and in sets for all jobs but the first."""
        return self.options.block[self.index]

    @property
    def job(self) -> IntArray:
        """Job of each column."""
        return self.options.job[self.index]

    def attributes(self) -> dict[str, FloatArray]:
        """Quantities that published rules read."""
        options, index = self.options, self.index
        completion = options.completion_s[index]
        to_completion = np.where(
            options.waiting[index], options.least_energy_j[self.job], options.power_w[index] * completion
        )
        return {
            "gpus": options.gpus[index].astype(float),
            "completion_s": completion,
            "energy_j": to_completion,
        }

    def block_of_names(self) -> Block:
        """Column names such as ``job7:A100:8g:b256:1200MHz``, ``job7:A100:2g:set:pair`` and ``job7:wait``."""
        return Block("option", len(self), self._label)

    def _label(self, column: int) -> str:
        options, i = self.options, int(self.index[column])
        name = options.instance.jobs[options.job[i]].name
        if options.pool[i] < 0:
            return f"{name}:wait"
        parts = [name, options.pools[options.pool[i]].name, f"{options.gpus[i]}g"]
        settings = ((options.batch_size, "b{:.0f}"), (options.frequency_mhz, "{:.0f}MHz"))
        parts += [form.format(values[i]) for values, form in settings if not np.isnan(values[i])]
        if not np.isnan(options.power_limit_w[i]):
            parts.append(f"{options.power_limit_w[i]:g}W")
        if options.offer[i] != NO_OFFER:
            return ":".join([*parts, "set", options.offers[options.offer[i]].declared.name])
        return ":".join(parts) if self._unique else f"{':'.join(parts)}#{i}"

    @property
    def _unique(self) -> bool:
        """Option tables may hold several rows with the same settings."""
        return all(job.model is not None for job in self.options.instance.jobs)

    def chosen(self, x: FloatArray) -> IntArray:
        """Chosen option of each job from a point of the program."""
        if not len(self):
            return np.empty(0, dtype=np.int64)
        picked = np.flatnonzero(x[: len(self)] > 0.5)
        if len(picked) != len(self.start) - 1 or not np.array_equal(self.job[picked], np.arange(len(picked))):
            raise ValueError("the point does not choose exactly one option of every job")
        return self.index[picked]


def choices(options: Options, objective: Objective, *, keep_dominated: bool = False) -> Choices:
    """Columns for the undominated options (or for all of them).

    Raises
    ------
    ValueError
        If a job has no option at all: no program can be built.
    """
    empty = options.jobs_without_options()
    if empty:
        raise ValueError(f"no option meets the deadline of: {', '.join(empty[:5])}")
    cost = objective.cost(options)
    keep = np.ones(len(options), dtype=bool) if keep_dominated else undominated(options, cost)
    index = np.flatnonzero(keep)
    counts = np.bincount(options.job[index], minlength=len(options.start) - 1)
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return Choices(options, objective, index, start, cost[index])
