r"""`matching`: at most two jobs per unit of one type, without budgets, as a minimum-cost matching.

A column is a pair, a job alone, or a job that waits; each job is in one of them, and at most N are units:

.. math::
    \min \sum_{i<j} c_{ij} x_{ij} + \sum_i c_i y_i + \sum_i w_i z_i \quad\text{s.t.}\quad
    \sum_j x_{ij} + y_i + z_i = 1\ \forall i,\quad \sum_{i<j} x_{ij} + \sum_i y_i \le N

No solver need be asked, for it is a matching of least cost (Edmonds' blossoms, networkx). Jobs are matched by
what pairs save against both jobs alone. If that takes more units than there are, each of N units has two
places: a pair takes both, a job alone shares its unit with a *blank*. There are :math:`2N - n` blanks for n
jobs, and one more for each job that waits: a job that may wait has a vertex that is matched either with it,
or with a blank that is then used up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.model import Model, UnsuitableError
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.sharing.columns import SetPartitioning, set_partitioning
from wattsched.formulations.sharing.data import Patterns
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import OBJECTIVES, SharingInstance
from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    import networkx as nx

Key = tuple[int, int]
Vertex = tuple[str, int]
WAITS = -1

SCALE = 2**60
"""Costs are whole numbers of this part of the largest: the blossom algorithm is exact on these."""

ROUNDING = 2.0**-50
"""Error of such a cost, relative to the largest, with room to spare."""

MOST_JOBS = 200
"""Above this the blossom algorithm would take many minutes, and nothing can stop it."""


def build(patterns: Patterns, objective: str, timer: Timer | None = None) -> Model[SharingDecision]:
    """Build the program and find its optimum, in time cubic in the number of jobs.

    Raises
    ------
    UnsuitableError
        For instances that are no matching: several unit types, larger sets, budgets; and for too many jobs.
    InfeasibleError
        When the jobs cannot be matched.
    """
    _require_pairs(patterns.instance)
    sets = _Sets(set_partitioning(patterns, objective))
    units = patterns.instance.unit_types[0].count
    chosen = _without_limit(sets)
    if chosen is None or sum(other != WAITS for _, other in chosen) > units:
        chosen = _with_blanks(sets, units)
    if chosen is None:
        raise InfeasibleError(_lacking(sets))
    program, x = _program(sets, units, OBJECTIVES[objective]), sets.point(chosen)
    # The matching is exact for costs rounded to whole numbers, by way of doubles.
    rounding = sets.largest * sets.n_jobs * ROUNDING
    return Model(
        program=program,
        decode=lambda x, starts: sets.decision(x),
        optimum=x,
        bound=program.objective(x) - rounding,
    )


def _require_pairs(instance: SharingInstance) -> None:
    """Raise an UnsuitableError for an instance that is no matching, or too large for one."""
    if len(instance.unit_types) > 1:
        raise UnsuitableError(f"matching takes one unit type, the instance has {len(instance.unit_types)}")
    if instance.limits.jobs_per_set > 2:
        raise UnsuitableError(f"matching takes at most 2 jobs per set, not {instance.limits.jobs_per_set}")
    for name, limit in instance.budgets:
        if limit is not None and limit != {}:
            raise UnsuitableError(f"matching takes no budgets, the instance has budgets.{name}")
    if instance.unit_types[0].pool is not None:
        raise UnsuitableError(f"matching takes no pools, unit type '{instance.unit_types[0].name}' is of one")
    if len(instance.jobs) > MOST_JOBS:
        raise UnsuitableError(
            f"matching takes up to {MOST_JOBS:,} jobs, the instance has {len(instance.jobs):,}"
        )


class _Sets:
    """Choices of jobs and their costs, by *key*: ``(i, j)`` for a pair, ``(i, i)`` alone, ``(i, WAITS)``.

    Costs by job are `alone`, `pair` (by two jobs) and `waiting`, infinite where that may not be; `number` is
    the program's column by key, `cost` that of columns.
    """

    def __init__(self, data: SetPartitioning):
        self.instance, self.offset = data.instance, data.costs.offset
        self.jobs = [job.name for job in data.instance.jobs]
        self.n_jobs = len(self.jobs)
        kind = data.kinds.of_job()
        alone, pair = _costs_of_kinds(data)
        self.alone, self.pair = alone[kind], pair[np.ix_(kind, kind)]
        self.waiting = np.where(data.kinds.may_wait, data.waiting, np.inf)[kind]
        each = [(j, j) for j in np.flatnonzero(np.isfinite(self.alone)).tolist()]
        waits = [(j, WAITS) for j in np.flatnonzero(np.isfinite(self.waiting)).tolist()]
        pairs = [(i, j) for i, j in np.argwhere(np.triu(np.isfinite(self.pair), 1)).tolist()]
        self.number = {key: c for c, key in enumerate([*pairs, *each, *waits])}
        costs = [self.pair[np.triu(np.isfinite(self.pair), 1)], self.alone, self.waiting]
        self.cost = np.concatenate([values[np.isfinite(values)] for values in costs])
        self.largest = float(np.abs(self.cost).max(initial=0.0)) or 1.0

    def point(self, keys: list[Key]) -> FloatArray:
        """Point of the program that takes these keys."""
        x = np.zeros(len(self.cost))
        x[[self.number[key] for key in keys]] = 1.0
        return x

    def decision(self, x: FloatArray) -> SharingDecision:
        """Decision of a point of the program."""
        taken = sorted(key for key, c in self.number.items() if x[c] > 0.5)
        unit_type = self.instance.unit_types[0].name
        sets = [sorted({i, j}) for i, j in taken if j != WAITS]
        return SharingDecision(
            sets=[SharedSet(unit_type=unit_type, jobs=[self.jobs[j] for j in formed]) for formed in sets],
            waiting=[self.jobs[i] for i, j in taken if j == WAITS],
        )


def _costs_of_kinds(data: SetPartitioning) -> tuple[FloatArray, FloatArray]:
    """Costs of a job of each kind alone, (K,), and of pairs, (K, K); infinite where none may be."""
    patterns, kinds = data.patterns, data.kinds
    alone, pair = np.full(len(kinds), np.inf), np.full((len(kinds), len(kinds)), np.inf)

    def part(slot: int) -> tuple[IntArray, FloatArray]:
        """Kinds of the slot's class, and their costs in it."""
        own, _ = data.of_class[patterns.job_class[slot]]
        return own, data.cost_table(own, np.array([slot]))[:, 0]

    for p, (size, cost) in enumerate(zip(patterns.size, data.costs.pattern, strict=True)):
        one, first = part(patterns.start[p])
        if size == 1:
            alone[one] = cost + first
            continue
        # A pattern of two jobs of one class has one slot.
        other, second = part(patterns.start[p + 1] - 1)
        both = cost + first[:, None] + second[None, :]
        pair[np.ix_(one, other)], pair[np.ix_(other, one)] = both, both.T
    return alone, pair


def _lacking(sets: _Sets) -> str:
    """Name the jobs that can do nothing, or else say that one unit is missing at least."""
    able = np.isfinite(sets.alone) | np.isfinite(sets.waiting) | np.isfinite(sets.pair).any(axis=1)
    jobs = [f"job '{sets.jobs[j]}' can neither run now nor wait" for j in np.flatnonzero(~able)]
    return "; ".join(jobs) or f"{sets.instance.unit_types[0].row} is short by at least 1"


def _program(sets: _Sets, units: int, sense: Any) -> Program:
    """Program of the module's text: each job in one set, on so many units."""
    names = [
        f"waits:{sets.jobs[i]}" if j == WAITS else "+".join(sets.jobs[k] for k in sorted({i, j}))
        for i, j in sets.number
    ]
    builder = ProgramBuilder()
    columns = builder.columns(Block.named("set", names), cost=sets.cost)
    rows = builder.rows(Block("job", sets.n_jobs, lambda j: f"job:{sets.jobs[j]}"), lower=1.0, upper=1.0)
    first, second = np.array(list(sets.number), dtype=np.int64).reshape(-1, 2).T
    builder.add(rows[first], columns)
    builder.add(rows[second[second > first]], columns[second > first])
    runs = columns[second != WAITS]
    builder.row(sets.instance.unit_types[0].row, runs, 1.0, upper=units)
    return builder.program(offset=sets.offset, sense=sense)


def _without_limit(sets: _Sets) -> list[Key] | None:
    """Sets of least cost if units were no limit, by what pairs save; None if a job has to be in a pair."""
    import networkx as nx

    single = np.minimum(sets.alone, sets.waiting)
    if not np.all(np.isfinite(single)):
        return None
    saved = single[:, None] + single[None, :] - sets.pair
    graph: nx.Graph[Any] = nx.Graph()
    for i, j in np.argwhere(np.triu(saved > 0, 1)).tolist():
        graph.add_edge(i, j, weight=round(float(saved[i, j]) / sets.largest * SCALE))
    pairs = [(min(edge), max(edge)) for edge in nx.max_weight_matching(graph)]
    rest = set(range(sets.n_jobs)) - {j for edge in pairs for j in edge}
    return pairs + [(j, j if sets.alone[j] <= sets.waiting[j] else WAITS) for j in rest]


def _with_blanks(sets: _Sets, units: int) -> list[Key] | None:
    """Sets of least cost on so many units, None when the jobs do not fit."""
    import networkx as nx

    n = sets.n_jobs
    waiters = np.flatnonzero(np.isfinite(sets.waiting)).tolist()
    blanks = 2 * units - n + len(waiters)
    if blanks < 0:
        return None
    # More than these would only be matched with each other, and the difference is even.
    blanks = min(blanks, n + len(waiters))
    graph: nx.Graph[Any] = nx.Graph()

    def edge(one: Vertex, other: Vertex, cost: float) -> None:
        if np.isfinite(cost):
            graph.add_edge(one, other, weight=-round(float(cost) / sets.largest * SCALE))

    for i in range(n):
        for j in range(i):
            edge(("job", j), ("job", i), sets.pair[i, j])
        for b in range(blanks):
            edge(("job", i), ("blank", b), sets.alone[i])
    for j in waiters:
        edge(("job", j), ("waits", j), sets.waiting[j])
        for b in range(blanks):
            edge(("waits", j), ("blank", b), 0.0)
    for b in range(blanks):
        for c in range(b):
            edge(("blank", c), ("blank", b), 0.0)
    matching = nx.max_weight_matching(graph, maxcardinality=True)
    if 2 * len(matching) < n + len(waiters) + blanks:
        return None
    keys = []
    for vertices in matching:
        jobs = sorted(j for kind, j in vertices if kind == "job")
        if jobs:
            waits = any(kind == "waits" for kind, _ in vertices)
            keys.append((jobs[0], WAITS if waits else jobs[-1]))
    return keys
