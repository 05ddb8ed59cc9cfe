r"""`matching`: at most two jobs per unit of one type, without budgets, as a minimum-cost matching.

Jobs are matched by what pairs save against both jobs alone. If that takes more units than there are, each of
N units has two places: a pair takes both, a job alone shares its unit with a *blank*. There are
:math:`2N - n` blanks for n jobs, and one more for each job that waits: a job that may wait has a vertex that
is matched either with it, or with a blank that is then used up. A perfect matching of least cost is the
optimum (Edmonds' blossoms, networkx).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.model import Model, UnsuitableError
from wattsched.formulations.program import Block, Program
from wattsched.formulations.sharing.data import Patterns, fastest_alone_s, may_wait
from wattsched.formulations.sharing.objectives import costs_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import OBJECTIVES, SharingInstance
from wattsched.topology.arrays import FloatArray

if TYPE_CHECKING:
    import networkx as nx

SCALE = 2**60
"""Costs are whole numbers of this part of the largest: the blossom algorithm is exact on these."""

ROUNDING = 2.0**-50
"""Error of such a cost, relative to the largest, with room to spare."""

MOST_JOBS = 200
"""Above this the blossom algorithm would take many minutes, and nothing can stop it."""


def build(patterns: Patterns, objective: str, timer: Timer | None = None) -> Model[SharingDecision]:
    """Find the optimum, in time cubic in the number of jobs; the program has no other point.

    Raises
    ------
    UnsuitableError
        For instances that are no matching: several unit types, larger sets, budgets; and for too many jobs.
    InfeasibleError
        When the jobs cannot be matched.
    """
    instance = patterns.instance
    _require_pairs(instance)
    costs = _PairCosts(patterns, objective)
    matched = _matched(instance, costs)
    if matched is None:
        raise InfeasibleError("no matching has a place for every job that must run")
    sets, waiting = matched
    names = [job.name for job in instance.jobs]
    unit_type = instance.unit_types[0].name
    decision = SharingDecision(
        sets=[SharedSet(unit_type=unit_type, jobs=[names[j] for j in formed]) for formed in sets],
        waiting=[names[j] for j in waiting],
    )
    paid = [costs.of(formed) for formed in sets] + [costs.waiting[j] for j in waiting]
    program = _program(paid, costs.offset, OBJECTIVES[objective])
    # The matching is exact for costs rounded to whole numbers, by way of doubles.
    rounding = costs.largest * len(names) * ROUNDING
    return Model(
        program=program,
        decode=lambda x, starts: decision,
        encode=lambda known: np.ones(len(paid)) if known == decision else None,
        outside=program.objective(np.ones(len(paid))) - rounding,
    )


def _require_pairs(instance: SharingInstance) -> None:
    if len(instance.unit_types) > 1:
        raise UnsuitableError(f"matching takes one unit type, the instance has {len(instance.unit_types)}")
    if instance.limits.jobs_per_set > 2:
        raise UnsuitableError(f"matching takes at most 2 jobs per set, not {instance.limits.jobs_per_set}")
    for name, limit in instance.budgets:
        if limit is not None:
            raise UnsuitableError(f"matching takes no budgets, the instance has budgets.{name}")
    if instance.unit_types[0].pool is not None:
        raise UnsuitableError(f"matching takes no pools, unit type '{instance.unit_types[0].name}' is of one")
    if len(instance.jobs) > MOST_JOBS:
        raise UnsuitableError(
            f"matching takes up to {MOST_JOBS:,} jobs, the instance has {len(instance.jobs):,}"
        )


class _PairCosts:
    """Costs of jobs alone, in pairs, and waiting; infinite where that may not be."""

    def __init__(self, patterns: Patterns, objective: str):
        self._instance = instance = patterns.instance
        costs = costs_of(instance, patterns, objective)
        number = {job_class.name: c for c, job_class in enumerate(instance.classes)}
        classes = [number[job.job_class] for job in instance.jobs]
        fastest_s = fastest_alone_s(instance, patterns)
        self.offset = costs.offset
        self.waiting = [
            costs.of_waiting(c, job.remaining_epochs)
            if may_wait(instance, job, float(fastest_s[c]))
            else np.inf
            for job, c in zip(instance.jobs, classes, strict=True)
        ]
        n = len(classes)
        self.pair = np.full((n, n), np.inf)
        self.alone = np.full(n, np.inf)
        part = _parts(instance, patterns, costs.slot, costs.per_epoch)
        for (_, members), p in patterns.numbers().items():
            begin = int(patterns.start[p])
            if len(members) == 1:
                here = [j for j in range(n) if classes[j] == members[0]]
                self.alone[here] = costs.pattern[p] + part[begin, here]
                continue
            one, other = ([j for j in range(n) if classes[j] == c] for c in members)
            last = begin + (members[0] != members[1])
            value = costs.pattern[p] + part[begin, one][:, None] + part[last, other][None, :]
            self.pair[np.ix_(one, other)] = value
            self.pair[np.ix_(other, one)] = value.T
        exclusive = np.array([job.exclusive for job in instance.jobs], dtype=bool)
        self.pair[exclusive, :] = np.inf
        self.pair[:, exclusive] = np.inf

    @property
    def largest(self) -> float:
        """Largest finite cost."""
        values = np.concatenate([self.pair.ravel(), self.alone, np.array(self.waiting, dtype=float)])
        return float(np.abs(values[np.isfinite(values)]).max(initial=0.0)) or 1.0

    def of(self, formed: list[int]) -> float:
        """Cost of a set."""
        return float(self.alone[formed[0]] if len(formed) == 1 else self.pair[formed[0], formed[1]])


def _parts(
    instance: SharingInstance, patterns: Patterns, slot: FloatArray, per_epoch: FloatArray
) -> FloatArray:
    """Cost of every job in every slot, infinite past its deadline, shape (Q, n)."""
    epochs = np.array([job.remaining_epochs for job in instance.jobs])
    deadline_s = np.array([np.inf if job.deadline_s is None else job.deadline_s for job in instance.jobs])
    late = patterns.epoch_s[:, None] * epochs[None, :] > deadline_s[None, :] * (1 + 1e-12)
    return np.where(late, np.inf, slot[:, None] + per_epoch[:, None] * epochs[None, :])


Sets = tuple[list[list[int]], list[int]]


def _matched(instance: SharingInstance, costs: _PairCosts) -> Sets | None:
    """Sets and waiting jobs of least cost, None when there are none."""
    found = _with_units_for_all(costs)
    if found is not None and len(found[0]) <= instance.unit_types[0].count:
        return found
    return _with_blanks(instance, costs)


def _with_units_for_all(costs: _PairCosts) -> Sets | None:
    """Sets of least cost if units were no limit, by what pairs save; None if a job has to be in a pair."""
    import networkx as nx

    waiting = np.array(costs.waiting, dtype=float)
    single = np.minimum(costs.alone, waiting)
    if not np.all(np.isfinite(single)):
        return None
    saved = single[:, None] + single[None, :] - costs.pair
    graph: nx.Graph[Any] = nx.Graph()
    for i, j in np.argwhere(np.triu(saved > 0, 1)).tolist():
        graph.add_edge(i, j, weight=round(float(saved[i, j]) / costs.largest * SCALE))
    pairs = sorted(sorted(edge) for edge in nx.max_weight_matching(graph))
    rest = sorted(set(range(len(single))) - {j for pair in pairs for j in pair})
    alone = [[j] for j in rest if costs.alone[j] <= waiting[j]]
    return sorted([*pairs, *alone]), [j for j in rest if costs.alone[j] > waiting[j]]


def _with_blanks(instance: SharingInstance, costs: _PairCosts) -> Sets | None:
    """Sets of least cost on the units that there are."""
    import networkx as nx

    n, units = len(instance.jobs), instance.unit_types[0].count
    waiters = [j for j in range(n) if np.isfinite(costs.waiting[j])]
    blanks = 2 * units - n + len(waiters)
    if blanks < 0:
        return None
    # More than these would only be matched with each other, and the difference is even.
    blanks = min(blanks, n + len(waiters))
    graph: nx.Graph[Any] = nx.Graph()
    for i in range(n):
        for j in range(i):
            _edge(graph, ("job", j), ("job", i), costs.pair[i, j], costs.largest)
        for b in range(blanks):
            _edge(graph, ("job", i), ("blank", b), costs.alone[i], costs.largest)
    for j in waiters:
        _edge(graph, ("job", j), ("waits", j), costs.waiting[j], costs.largest)
        for b in range(blanks):
            _edge(graph, ("waits", j), ("blank", b), 0.0, costs.largest)
    for b in range(blanks):
        for c in range(b):
            _edge(graph, ("blank", c), ("blank", b), 0.0, costs.largest)
    matching = nx.max_weight_matching(graph, maxcardinality=True)
    if 2 * len(matching) < n + len(waiters) + blanks:
        return None
    sets, waiting = [], []
    for edge in matching:
        jobs = sorted(j for kind, j in edge if kind == "job")
        if any(kind == "waits" for kind, _ in edge):
            waiting += jobs
        elif jobs:
            sets.append(jobs)
    return sorted(sets), sorted(waiting)


def _edge(
    graph: nx.Graph[Any], one: tuple[str, int], other: tuple[str, int], cost: float, largest: float
) -> None:
    if np.isfinite(cost):
        graph.add_edge(one, other, weight=-round(cost / largest * SCALE))


def _program(paid: list[float], offset: float, sense: Any) -> Program:
    """One fixed column for each set and waiting job."""
    from scipy.sparse import csc_array

    n = len(paid)
    return Program(
        cost=np.array(paid, dtype=float),
        matrix=csc_array((0, n)),
        row_lower=np.zeros(0),
        row_upper=np.zeros(0),
        lower=np.ones(n),
        upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        group_start=np.zeros(1, dtype=np.int64),
        rows=(),
        columns=(Block("matched", n),),
        offset=offset,
        sense=sense,
    )
