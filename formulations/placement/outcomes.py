"""Outcomes: what a node can host of a window's tasks, and what that costs; and the LP over some of them.

Where there are few, all are listed, and those left out that are in no better decision than one already known.
The LP's duals price tasks and nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from wattsched.formulations.master import RestrictedMaster
from wattsched.formulations.placement.data import Hostings, NodeStates, Window
from wattsched.formulations.timer import Timer
from wattsched.instances.placement.decision import PlacedTask, PlacementDecision
from wattsched.topology.arrays import FloatArray, IntArray, Table

Counts = NDArray[np.signedinteger[Any]]

_LARGEST_COST = 1e6


@dataclass(frozen=True)
class Outcomes(Table):
    """Outcomes of node classes: a multiset of profiles, and the cheapest known way to host it.

    Attributes
    ----------
    cls : (K,) int
        Class of the node.
    hosted : (K, P) int
        Tasks of each profile.
    cost : (K,) float
        Change of the window's objective.
    others : (K, M) float
        Change of each objective that is limited; one multiset then has all ways that differ in these.
    profile, slot : (K, L) int
        The way: profiles in the order in which they are hosted, and their slots as of `Hostings`; -1 beyond
        the last.
    """

    cls: IntArray
    hosted: IntArray
    cost: FloatArray
    others: FloatArray
    profile: IntArray
    slot: IntArray

    def __len__(self) -> int:
        return len(self.cls)

    def hashes(self) -> list[Hashable]:
        """Return a key of each outcome by its class, what it hosts, and its cost."""
        rows = [row.tobytes() for row in self.hosted]
        return list(zip(self.cls.tolist(), rows, self.cost.tolist(), strict=True))

    def numbers(self) -> dict[tuple[int, bytes], int]:
        """Position of each outcome by its class and what it hosts."""
        keys = zip(self.cls.tolist(), (row.tobytes() for row in self.hosted), strict=True)
        return {key: k for k, key in enumerate(keys)}


def decide(window: Window, outcomes: Outcomes, times: IntArray) -> PlacementDecision:
    """Decision that uses outcomes so many times, shape (K,).

    Equal nodes, equal GPUs and tasks with the same request are taken in their order.
    """
    waiting = [list(np.flatnonzero(window.profile == p)[::-1]) for p in range(len(window.demand))]
    unused = {cls: list(window.classes.members[cls][::-1]) for cls in set(outcomes.cls[times > 0].tolist())}
    (requests, _), tasks, found = window.tasks.profiles, window.instance.tasks, {}
    for k in np.repeat(np.arange(len(times)), times):
        node = unused[int(outcomes.cls[k])].pop()
        free = window.gpu_free_milli[node].copy()
        for profile, slot in zip(outcomes.profile[k], outcomes.slot[k], strict=True):
            if profile < 0:
                break
            task, count = int(waiting[profile].pop()), int(requests.gpus[profile])
            gpus = np.flatnonzero(free == np.sort(free)[slot])[:count].tolist()
            free[gpus] -= requests.gpu_milli[profile]
            found[task] = PlacedTask(task=tasks[task].name, node=window.nodes.names[node], gpus=gpus)
    return PlacementDecision(
        placed=[found[t] for t in sorted(found)],
        waiting=[task.name for t, task in enumerate(tasks) if t not in found],
    )


def used_by(window: Window, outcomes: Outcomes, decision: PlacementDecision) -> IntArray | None:
    """Count the nodes that use each outcome in a decision, shape (K,); None where one is not there."""
    class_of = {int(node): cls for cls, nodes in enumerate(window.classes.members) for node in nodes}
    position = {name: node for node, name in enumerate(window.nodes.names)}
    profile = dict(zip((task.name for task in window.instance.tasks), window.profile.tolist(), strict=True))
    hosted: dict[int, IntArray] = defaultdict(lambda: np.zeros(len(window.demand), dtype=np.int64))
    for one in decision.placed:
        if one.task not in profile or position.get(one.node) not in class_of:
            return None
        hosted[position[one.node]][profile[one.task]] += 1
    known, times = outcomes.numbers(), np.zeros(len(outcomes), dtype=np.int64)
    for node, tasks in hosted.items():
        if (k := known.get((class_of[node], tasks.tobytes()))) is None:
            return None
        times[k] += 1
    return times


def every_outcome(window: Window, most: float = np.inf, timer: Timer | None = None) -> Outcomes | None:
    """List all outcomes but the empty ones; None when there are too many, or no time for them.

    `most` are the ways to look at.
    """
    states, timer = window.classes.states, timer or Timer()
    size = int(window.demand.sum())
    nothing = np.zeros((len(states), len(window.demand)), dtype=np.int64)
    nowhere = np.full((len(states), size), -1)
    others = np.zeros((len(states), len(window.limited)))
    level = Outcomes(np.arange(len(states)), nothing, np.zeros(len(states)), others, nowhere, nowhere)
    seen, found = 0, [level.take(np.arange(0))]
    for depth in range(size):
        ways = _wanted(window, states, level)
        seen += len(ways.cost)
        if seen > most or timer.over():
            return None
        level, states = _one_more(window, states, level, ways, depth)
        found.append(cheapest_of(level))
    return Outcomes.joined(found)


def _wanted(window: Window, states: NodeStates, level: Outcomes) -> Hostings:
    """Ways to host one task more than those of a level, of no lower profile: no multiset comes twice."""
    ways = window.hosting.ways(states)
    last = np.max(level.profile, axis=1, initial=0)[ways.state]
    wanted = (ways.profile >= last) & (level.hosted[ways.state, ways.profile] < window.demand[ways.profile])
    return Hostings(*(column[wanted] for column in ways))


def _one_more(
    window: Window, states: NodeStates, level: Outcomes, ways: Hostings, depth: int
) -> tuple[Outcomes, NodeStates]:
    """Outcomes and states after each of the ways, by which they host task number `depth`."""
    state, profile, slot, cost = ways
    after = window.hosting.after(states.take(state), profile, slot)
    more = level.take(state)
    more.hosted[np.arange(len(more)), profile] += 1
    more.profile[:, depth], more.slot[:, depth] = profile, slot
    more.cost[:] += cost
    for column, (_, of) in enumerate(window.limited.values()):
        more.others[:, column] += of.hosting.cost(states, state, profile, slot)
    # One multiset may leave the same GPUs in several ways, which then cost the same.
    rows = _numbers(np.concatenate([more.cls[:, None], more.hosted, after.gpu_milli], axis=1))
    _rows, distinct = np.unique(rows, return_index=True)
    return more.take(distinct), after.take(distinct)


def cheapest_of(level: Outcomes) -> Outcomes:
    """Keep the cheapest way to host every multiset on every class, or all that differ in what is limited."""
    if level.others.shape[1]:
        known = [level.cls[:, None], level.hosted, level.cost[:, None], level.others]
        _rows, first = np.unique(np.concatenate(known, axis=1), axis=0, return_index=True)
        return level.take(first)
    order = np.argsort(level.cost, kind="stable")
    rows = _numbers(np.concatenate([level.cls[:, None], level.hosted], axis=1)[order])
    _rows, first = np.unique(rows, return_index=True)
    return level.take(order[first])


def _numbers(rows: IntArray) -> IntArray:
    """A number for each row of entries that are not negative, equal for equal rows only, shape (K,)."""
    number, most = np.zeros(len(rows), dtype=np.int64), 1
    for column in rows.T:
        base = int(column.max(initial=0)) + 1
        if most * base >= 2**62:
            _values, number = np.unique(number, return_inverse=True)
            most = int(number.max(initial=0)) + 1
        number, most = number * base + column, most * base
    return number


class Prices(NamedTuple):
    """Duals of the LP, and its optimum.

    Attributes
    ----------
    task_worth : (P,) float
        What hosting a task of each profile may cost and is still worth it.
    node_cost : (C,) float
        What using a node of each class costs besides, 0 or more.
    nodes : (K,) float
        How many nodes use each outcome so far, at the optimum.
    cost : float
        The optimum.
    """

    task_worth: FloatArray
    node_cost: FloatArray
    nodes: FloatArray
    cost: float

    def reduced(self, cls: IntArray, hosted: Counts, cost: FloatArray) -> FloatArray:
        """Reduced costs of outcomes by their classes, (K,), tasks by profile, (K, P), and costs, (K,)."""
        return np.asarray(cost - hosted @ self.task_worth + self.node_cost[cls])


class OutcomeMaster(RestrictedMaster):
    r"""LP of a window that grows by outcomes.

    .. math::
        \min \sum_k \Bigl(c_k - \sum_p w_p a_{kp}\Bigr) \lambda_k \quad\text{s.t.}\quad
        \sum_k a_{kp} \lambda_k \le d_p\ \forall p,\quad
        \sum_{k\ \text{of class}\ c} \lambda_k \le n_c\ \forall c,\quad \lambda \ge 0

    with :math:`d_p` tasks of a profile, of which each that waits costs :math:`w_p`, and :math:`n_c` nodes.
    """

    def __init__(self, window: Window):
        # HiGHS fails on costs of a billion beside small ones.
        super().__init__("outcomes", unit=max(1.0, float(window.worth.max(initial=0.0)) / _LARGEST_COST))
        self._worth, self._nodes = window.worth, len(window.classes.count)
        self.add_rows(-np.inf, np.concatenate([window.demand, window.classes.count]))

    def add(self, cls: IntArray, hosted: Counts, cost: FloatArray) -> None:
        """Add outcomes: their classes (K,), the tasks of each profile (K, P), their costs (K,)."""
        size = len(cls)
        member = csr_array((np.ones(size), cls, np.arange(size + 1)), shape=(size, self._nodes))
        self.add_columns(hstack([csr_array(hosted.astype(float)), member]).T, cost - hosted @ self._worth)

    def prices(self) -> Prices:
        """Duals of the optimum over the outcomes so far.

        Raises
        ------
        RuntimeError
            If HiGHS does not find it.
        """
        if not self.n_columns:
            return Prices(self._worth, np.zeros(self._nodes), np.zeros(0), 0.0)
        optimum = self.solve()
        of_tasks, of_nodes = np.split(np.minimum(optimum.prices, 0.0), [len(self._worth)])
        return Prices(self._worth + of_tasks, -of_nodes, optimum.x, optimum.cost)


def relaxed_prices(window: Window, outcomes: Outcomes) -> tuple[FloatArray, FloatArray, FloatArray] | None:
    """Duals of profiles, classes and limits on objectives in the LP over outcomes; None where it fails."""
    hosted, n_classes = outcomes.hosted, len(window.classes.count)
    left = [limit - float(window.demand @ of.worth) for limit, of in window.limited.values()]
    worths = np.array([of.worth for _, of in window.limited.values()])
    master = RestrictedMaster("outcomes", unit=max(1.0, float(window.worth.max(initial=0.0)) / _LARGEST_COST))
    master.add_rows(-np.inf, np.concatenate([window.demand, window.classes.count, left]))
    size = len(outcomes)
    member = csr_array((np.ones(size), outcomes.cls, np.arange(size + 1)), shape=(size, n_classes))
    entries = [csr_array(hosted.astype(float)), member, csr_array(outcomes.others - hosted @ worths.T)]
    master.add_columns(hstack(entries).T, outcomes.cost - hosted @ window.worth)
    try:
        prices = np.minimum(master.solve().prices, 0.0)
    except RuntimeError:
        return None
    of_tasks, of_nodes, of_limits = np.split(prices, np.cumsum([len(window.demand), n_classes]))
    return of_tasks, of_nodes, of_limits
