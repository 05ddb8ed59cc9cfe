"""Decisions of a session, in arrays."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from wattsched.instances.digest import digest_of
from wattsched.instances.sizing.decision import AssignmentColumns
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.option_rows import SETTINGS, rows_of_kinds
from wattsched.result import Result
from wattsched.topology.arrays import IntArray, first_equal_row
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
    if len(running):
        job = np.fromiter(map(jobs.place.__getitem__, running.names), np.int64, len(running))
        option[job] = _rows_of(instance, jobs.kinds[1][job], running)
    return SessionDecision(jobs.names, option, running, result.dropped, instance, result)


def _rows_of(instance: Instance, kind: IntArray, running: AssignmentColumns) -> IntArray:
    """Row of its kind's table that each assignment is, `MODELLED` where there is none."""
    rows, pool = rows_of_kinds(instance), running.coded("pool")
    types = {one.name: one.gpu_type for one in pools_of(instance.cluster)}
    # A row names the pool or its GPU type, never both; it is there for every pool that it stands for.
    means = [[name in (own, types[own]) for name in rows.pool.values] for own in pool.values]
    of_pool, row = np.nonzero(np.array(means, dtype=bool).reshape(len(pool.values), -1)[:, rows.pool.codes])
    columns = [rows.table[row], of_pool, rows.gpus[row], *(getattr(rows, name)[row] for name in SETTINGS)]
    stated = [np.where(values > 0.0, values, np.nan) for values in map(running.numbers, SETTINGS)]
    found = first_equal_row(columns, [kind, pool.codes, running.counts("gpus"), *stated])
    return np.where(found >= 0, np.append(row, 0)[found] - rows.start[kind], MODELLED)
