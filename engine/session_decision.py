"""Decisions of a session, in arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from wattsched.instances.digest import digest_of
from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.instances.sizing.instance import Instance
from wattsched.result import Result
from wattsched.topology.arrays import IntArray
from wattsched.topology.column import NONE
from wattsched.topology.pools import pools_of

WAITS = -1
"""Option of a job that waits."""

MODELLED = -2
"""Option of a running job with a performance model: it has no table in which it would be a row."""

UNDECIDED = -3
"""Option of all jobs where there is no decision."""


@dataclass(frozen=True)
class SessionDecision:
    """What every job of a session is to do, in arrays; it is checked.

    Attributes
    ----------
    ids : list of str
        The jobs, as the other arrays have them.
    option : int array, shape (n_jobs,)
        Row of each job's own or shared table; `WAITS`, or `MODELLED` for a running job with a model. All are
        `UNDECIDED` where there is no decision.
    assignments : AssignmentColumns
        Those that run, with their settings and concrete GPUs; without any where there is no decision.
    reasons : dict of str to str
        Jobs that wait because they have no option, and why.
    instance : Instance
        The round that it is of; that of the session may have changed meanwhile.
    """

    ids: list[str]
    option: IntArray
    assignments: AssignmentColumns
    reasons: dict[str, str]
    instance: Instance = field(repr=False)
    _answer: Result = field(repr=False)

    @cached_property
    def result(self) -> Result:
        """All of it, with the certificate, as `wattsched.solve` gives it."""
        decision = self._answer.decision
        listed = None if decision is None else decision.listed()
        return self._answer.model_copy(update={"digest": digest_of(self.instance), "decision": listed})

    @property
    def solved(self) -> bool:
        """Whether there is a decision."""
        return self._answer.solved

    @property
    def objective(self) -> float | None:
        """What the decision is worth; None where there is none."""
        return self._answer.objective

    @property
    def bound(self) -> float | None:
        """What no decision is better than."""
        return self._answer.bound

    @property
    def gap(self) -> float | None:
        """How far apart these are, relative to the objective."""
        return self._answer.gap

    @property
    def prices(self) -> dict[str, float]:
        """What one more unit of a capacity or budget would improve the objective by."""
        return self._answer.prices

    @property
    def time_s(self) -> dict[str, float]:
        """Seconds by phase."""
        return self._answer.time_s

    @property
    def gpus_on_nodes(self) -> dict[str, int]:
        """How many GPUs are used on each node that has any; jobs of a set use the same ones."""
        node = self.assignments.coded("node")
        places = np.unique(np.stack([node.codes, self.assignments.gpu]), axis=1)[0]
        names, counts = np.unique(places, return_counts=True)
        return {node.values[n]: many for n, many in zip(names.tolist(), counts.tolist(), strict=True)}


def decision_of(instance: Instance, result: Result) -> SessionDecision:
    """The answer in arrays."""
    jobs = instance.by_column()
    running = AssignmentColumns.from_records([] if result.decision is None else result.decision.jobs)
    option = np.full(len(jobs), WAITS if result.solved else UNDECIDED)
    tables, codes = jobs.coded("options"), jobs.coded("options").codes.tolist()
    rows: dict[int, dict[tuple[object, ...], int]] = {}
    types = {pool.name: pool.gpu_type for pool in pools_of(instance.cluster)}
    for name, gpus, pool, *settings in zip(*_settings_of(running), strict=True):
        job = jobs.place[name]
        code = codes[job]
        if code == NONE:
            option[job] = MODELLED
            continue
        if code not in rows:
            table = tables.values[code]
            own = instance.tables[table] if isinstance(table, str) else table
            rows[code] = {row: number for number, row in enumerate(own.settings())}
        stated = [value for value in settings if value]
        # A row names the pool or its GPU type, never both.
        found = (rows[code].get((gpus, at, *stated), WAITS) for at in (pool, types[pool]))
        option[job] = max(found)
    return SessionDecision(jobs.names, option, running, result.dropped, instance, result)


def _settings_of(running: AssignmentColumns) -> list[list[Any]]:
    """Names, GPU counts, pools and settings of assignments, by column; 0 where a job has no such setting."""
    return [
        running.names,
        running.counts("gpus").tolist(),
        running.coded("pool").tolist(),
        running.counts("frequency_mhz").tolist(),
        np.nan_to_num(running.numbers("power_limit_w")).tolist(),
        running.counts("batch_size").tolist(),
    ]
