"""Decisions of a session in arrays: what they change, and what jobs hold once they are applied."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from wattsched.instances.digest import digest_of
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import AssignmentColumns, Holdings
from wattsched.instances.sizing.explanation import Explanation
from wattsched.instances.sizing.instance import Instance, content_of_kinds
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.instances.sizing.option_rows import SETTINGS, rows_of_kinds
from wattsched.results.result import Result
from wattsched.sessions.session_columns import divided
from wattsched.topology.arrays import IntArray, Rows, alike
from wattsched.topology.pools import pools_of
from wattsched.topology.remembered import Last

WAITS = -1
"""Option of a job that waits."""

MODELLED = -2
"""Option of a running job with a performance model: it has no table in which it would be a row."""

UNDECIDED = -3
"""Option of all jobs where there is no decision."""


Change = Literal["start", "stop", "resize", "move", "setting"]
"""Change of a job; a setting is its clock, power limit or batch, with the same GPUs."""

_SETTINGS = ("frequency_mhz", "batch_size")


@dataclass(frozen=True)
class SessionDecision:
    """Checked decision for every job of a session, in arrays.

    Attributes
    ----------
    ids : list of str
        The jobs, as the other arrays have them.
    assignments : AssignmentColumns
        Those that run, with their settings and concrete GPUs; without any where there is no decision.
    reasons : dict of str to str
        Jobs that wait because they have no option, and why.
    instance : Instance
        The round that it is of; that of the session may have changed meanwhile.
    brief : Result
        As `result`, but without its digest, and with assignments by column: these take time to make.
    """

    ids: list[str]
    assignments: AssignmentColumns
    reasons: dict[str, str]
    instance: Instance = field(repr=False)
    brief: Result = field(repr=False)

    @cached_property
    def option(self) -> IntArray:
        """Row of each job's own or shared table; `WAITS`, or `MODELLED` for a running job with a model.

        All are `UNDECIDED` where there is no decision; shape (n_jobs,).
        """
        jobs, running = self.instance.by_column(), self.assignments
        found = np.full(len(jobs), WAITS if self.solved else UNDECIDED)
        if len(running):
            job = np.fromiter(map(jobs.place.__getitem__, running.names), np.int64, len(running))
            _, kind_of = jobs.kinds
            found[job] = _rows_of(self.instance, kind_of[job], running)
        return found

    @cached_property
    def changes(self) -> dict[str, Change]:
        """Jobs that are to do something else than they do in `instance`, and what; none without a decision.

        Those that ``start`` and ``stop``, and of those that go on the ones that ``resize``, that ``move`` to
        other GPUs, and that have another ``setting`` (clock, power limit or batch size) on the same GPUs.
        """
        return changes_of(self.instance, self.assignments) if self.solved else {}

    @cached_property
    def result(self) -> Result:
        """All of it, with the certificate, as `wattsched.solve` gives it."""
        decision = self.brief.decision
        listed = None if decision is None else decision.listed()
        return self.brief.model_copy(update={"digest": digest_of(self.instance), "decision": listed})

    def explain(
        self, job: str, *, time_limit: float | None = None, durations: tuple[float, float] | None = None
    ) -> Explanation:
        """Explain why a job waits by this decision, and what would make it run; as `wattsched.explain`."""
        from wattsched.explaining.explain import explain

        return explain(self.instance, self.brief, job, time_limit=time_limit, durations=durations)

    @property
    def solved(self) -> bool:
        """True if there is a decision."""
        return self.brief.solved

    @property
    def objective(self) -> float | None:
        """Objective value of the decision; None where there is no decision."""
        return self.brief.objective

    @property
    def bound(self) -> float | None:
        """Bound on the objective that no decision is better than."""
        return self.brief.bound

    @property
    def gap(self) -> float | None:
        """Gap between objective and bound, relative to the objective."""
        return self.brief.gap

    @property
    def prices(self) -> dict[str, float]:
        """Improvement of the objective by one more unit of each capacity or budget."""
        return self.brief.prices

    @property
    def time_s(self) -> dict[str, float]:
        """Seconds by phase."""
        return self.brief.time_s

    @property
    def gpus_on_nodes(self) -> dict[str, int]:
        """Number of GPUs in use on each node that has any; jobs of a set use the same ones."""
        node = self.assignments.coded("node")
        node_of_gpu, _ = np.unique(np.stack([node.codes, self.assignments.gpu]), axis=1)
        nodes, counts = np.unique(node_of_gpu, return_counts=True)
        return {node.values[n]: many for n, many in zip(nodes.tolist(), counts.tolist(), strict=True)}


def decision_of(instance: Instance, result: Result) -> SessionDecision:
    """The answer in arrays."""
    running = AssignmentColumns.from_records([] if result.decision is None else result.decision.jobs)
    return SessionDecision(instance.by_column().names, running, result.dropped, instance, result)


def _rows_of(instance: Instance, kind: IntArray, running: AssignmentColumns) -> IntArray:
    """Row that each assignment is of the table of its job's kind, `MODELLED` where there is none."""
    pool = running.coded("pool")
    # For the kinds of the round before they are known.
    known = _LAST.answer(
        instance.cluster, content_of_kinds(instance, instance.by_column()), lambda: _Tables(instance)
    )
    number = np.array([known.pools.get(name, WAITS) for name in pool.values], dtype=np.int64)[pool.codes]
    stated = [np.where(values > 0.0, values, np.nan) for values in map(running.numbers, SETTINGS)]
    found = known.rows.first_equal([kind, number, running.counts("gpus"), *stated])
    return np.where(found >= 0, known.row[found], MODELLED)


class _Tables:
    """Rows of the tables of the kinds of a round, once for every pool that they stand for.

    Attributes
    ----------
    pools : dict of str to int
    rows : Rows
        By kind, pool, GPUs and settings.
    row : int array
        Which row of its table each is; one entry more.
    """

    def __init__(self, instance: Instance) -> None:
        rows, pools = rows_of_kinds(instance), pools_of(instance.cluster)
        self.pools = {pool.name: p for p, pool in enumerate(pools)}
        # A row names the pool or its GPU type, never both.
        means = [[name in (pool.name, pool.gpu_type) for name in rows.pool.values] for pool in pools]
        pool, row = np.nonzero(np.array(means, dtype=bool).reshape(len(pools), -1)[:, rows.pool.codes])
        kind = rows.table[row]
        self.rows = Rows([kind, pool, rows.gpus[row], *(getattr(rows, name)[row] for name in SETTINGS)])
        self.row = np.append(row - rows.start[kind], 0)


_LAST = Last[_Tables]()


def changes_of(instance: Instance, running: AssignmentColumns) -> dict[str, Change]:
    """Jobs that do something else by these assignments than in the round, and what.

    Jobs that hold the same GPUs with the same settings are left out.
    """
    jobs = instance.by_column()
    now = {} if jobs.assigned is None else _running(jobs.assigned)
    then = _running(running)
    found = {name: _change(now.get(name), then.get(name)) for name in jobs.names}
    return {name: change for name, change in found.items() if change is not None}


class _Running(NamedTuple):
    """GPU count of a job, its GPUs by node and number, and its settings."""

    n_gpus: int
    gpus: frozenset[tuple[str, int]]
    settings: tuple[Any, ...]


def _change(before: _Running | None, after: _Running | None) -> Change | None:
    """Change of a job from what it has to what it is to have, each None where it waits; None for none."""
    if before == after:
        return None
    if before is None:
        return "start"
    if after is None:
        return "stop"
    if before.n_gpus != after.n_gpus:
        return "resize"
    return "move" if before.gpus != after.gpus else "setting"


def _running(assignments: AssignmentColumns) -> dict[str, _Running]:
    """GPUs and settings of each job that runs, by name."""
    node, gpu = assignments.coded("node").tolist(), assignments.gpu.tolist()
    counts, start = assignments.counts("gpus").tolist(), assignments.start.tolist()
    limits = assignments.numbers("power_limit_w")
    settings = zip(*(assignments.counts(name).tolist() for name in _SETTINGS), strict=True)
    limit_w = [None if limit != limit else limit for limit in limits.tolist()]
    rows = zip(assignments.names, counts, start[:-1], start[1:], settings, limit_w, strict=True)
    return {
        name: _Running(count, frozenset(zip(node[first:end], gpu[first:end], strict=True)), (*setting, limit))
        for name, count, first, end, setting, limit in rows
    }


def held_after(
    decision: SessionDecision, jobs: JobColumns, held: AssignmentColumns, reported: Collection[str]
) -> AssignmentColumns:
    """GPUs of all jobs once a decision is done: jobs that it does not know keep what they hold.

    Parameters
    ----------
    jobs, held
        The session's jobs, and what they hold, as they are now.
    reported : collection of str
        Jobs of which the caller has said what they hold, or whether they may stop, since the last decision
        was done.

    Raises
    ------
    InputError
        For jobs that were told to hold others than when the decision began, and than it gives them.
    ValueError
        For a job that may not stop or move now, and the decision has it do so.
    """
    known, given, others = decision.instance.by_column(), decision.assignments, None
    if known.names is not jobs.names:
        given, _ = divided(given, jobs.place)
        held, others = divided(held, known.place)
    moved = set[str]()
    if doubtful := [known.place[name] for name in reported if name in known.place]:
        now = _by_job(known, held)
        moved = _otherwise(known, doubtful, now, _by_job(known, given))
        was = known.running, known.holdings.take(known.current.codes[known.running])
        if later := moved and moved & _otherwise(known, doubtful, now, was):
            about = "what it holds was told after the decision was begun, which says otherwise"
            raise InputError([f"job '{name}': {about}; decide again" for name in sorted(later)])
    stays = [jobs.names[j] for j in np.flatnonzero(jobs.fixed).tolist()]
    for name in sorted(name for name in stays if name in known.place):
        if name not in given.place or name in moved:
            does = "moves it" if name in given.place else "lets it wait"
            raise ValueError(f"job '{name}' is not preemptible, and the decision {does}")
    return AssignmentColumns.joined([given, others]) if others else given


Held = tuple[IntArray, Holdings]
"""Jobs by number, and what each holds."""


def _by_job(jobs: JobColumns, held: AssignmentColumns) -> Held:
    numbers = np.fromiter(map(jobs.place.__getitem__, held.names), np.int64, len(held))
    return numbers, Holdings.of_assignments(held)


def _otherwise(jobs: JobColumns, some: list[int], one: Held, other: Held) -> set[str]:
    """Names of those jobs, of `some` by number, that hold other GPUs by `one` account than by the `other`."""
    node_of, rows = dict[str, int](), []
    for numbers, held in (one, other):
        owner = np.repeat(numbers, np.diff(held.start))
        mine = np.isin(owner, some)
        named = [node_of.setdefault(name, len(node_of)) for name in held.node.values]
        node = np.array(named, dtype=np.int64)[held.node.codes[mine]]
        rows.append((owner[mine], node, held.gpu[mine]))
    owner, node, gpu = (np.concatenate(column) for column in zip(*rows, strict=True))
    _, which = alike([owner, node, gpu])
    # A GPU that only one of them has.
    alone = np.bincount(which, minlength=1)[which] == 1
    return {jobs.names[j] for j in np.unique(owner[alone]).tolist()}
