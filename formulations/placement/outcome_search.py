"""Few outcomes that matter: column generation over a tree of outcomes.

An LP over the outcomes known so far says what hosting a task of each profile is worth and what using a node
of each class costs. A beam search then looks, on all classes at once, for outcomes that are better than these
prices; they join, until none is found. The first outcomes are those of placing the tasks one by one.

Decisions in whole nodes need more than what an LP likes to mix. So the LP's optimum is rounded and completed
one by one, and outcomes met on the way are taken too that could be in a better decision than this one.

The search is no proof: outcomes that it does not meet could be better still.
"""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np

from wattsched.formulations.placement.data import NodeStates, Window
from wattsched.formulations.placement.outcomes import (
    Found,
    OutcomeMaster,
    Outcomes,
    Prices,
    cheapest_of_each,
    first_of_class,
)
from wattsched.formulations.timer import Timer
from wattsched.topology.arrays import FloatArray, IntArray

WIDTH = 8
"""Outcomes of a class that the beam follows at once; it begins with one."""
NEARBY = 1_000
"""Outcomes to take at most besides those that were better at some prices."""
ROUNDS = 60
MOST_STATES = 100_000

_PATIENCE = 4
"""Tasks that the beam goes on without finding a better outcome: the first on a CPU package pays for all."""
_TOLERANCE = 1e-6
"""Share of the dearest price by which an outcome must be better."""
_ROUNDING = 1e-6


def search_outcomes(window: Window, timer: Timer) -> Found:
    """Search the outcomes of a window; where the timer is over, the search stops with what it has."""
    tree = OutcomeTree(window, MOST_STATES)
    pool = _Pool(window, tree)
    decisions = [pool.one_by_one(np.arange(0))]
    beam, prices = 1, pool.prices()
    for _ in range(ROUNDS):
        new = pool.meet(_better_states(tree, prices, beam, timer))
        # Out of time too, the point that is rounded below has to be one of all columns.
        prices = pool.prices()
        if (new == 0 and beam >= WIDTH) or timer.over():
            break
        beam = beam if new else min(2 * beam, WIDTH)
    decisions.append(pool.one_by_one(pool.rounded(prices.nodes)))
    prices = pool.prices()
    costs = [float((tree.cost[states] - tree.hosted[states] @ window.worth).sum()) for states in decisions]
    best = int(np.argmin(costs))
    near = _near(tree, prices, costs[best] - prices.cost)
    all_of = np.concatenate([decisions[best], np.array(pool.states, dtype=np.int64), near])
    states, outcome = tree.distinct(all_of)
    nodes = np.bincount(outcome[: len(decisions[best])], minlength=len(states))
    return Found(tree.outcomes(states), nodes)


def place_one_by_one(window: Window) -> Found:
    """Place each task where it costs least at once, in the order of their arrival."""
    tree = OutcomeTree(window, 0)
    states, _met = one_by_one(window, tree, np.arange(0))
    return Found(tree.outcomes(states), np.ones(len(states), dtype=np.int64))


def _near(tree: OutcomeTree, prices: Prices, room: float) -> IntArray:
    """States met that cost at most `room` more than their prices, the `NEARBY` that cost least of them."""
    met = np.arange(tree.roots, len(tree))
    reduced = prices.reduced(tree.cls[met], tree.hosted[met], tree.cost[met])
    least = np.argsort(reduced, kind="stable")[:NEARBY]
    return met[least[reduced[least] <= room]]


class OutcomeTree:
    """Tree of node states, whose roots are the classes as they are now.

    A state hosts a task in the way that costs least at once, so that the task's profile names the child.

    Parameters
    ----------
    window : Window
        No state hosts more tasks than it has.
    most : int
        States besides the roots that `room` leaves room for; for some more there is.

    Attributes
    ----------
    cls, cost : (S,) arrays
        Class and cost of the states, the roots first; entries beyond `len` mean nothing.
    key : (S,) int
        Equal for equal multisets of tasks.
    hosted : (S, P) int
        Tasks of each profile.
    next_cost : (S, P) float
        Cost of one more task of each profile, infinite where there is none.
    """

    def __init__(self, window: Window, most: int):
        self._hosting, self._demand, states = window.hosting, window.demand, window.classes.states
        self.roots, self._size = len(states), 0
        # Memory that is not written to is not used either.
        self._most = self.roots + most
        rows, gpus = self._most + 2 * len(window.tasks), states.gpu_milli.shape[1]
        profiles = len(self._demand)
        self.cls, self.key, self._parent, self._profile, self._slot = np.zeros((5, rows), dtype=np.int64)
        gpu_milli = np.zeros((rows, gpus), dtype=np.int64)
        node, cpu_milli, memory_mib = np.zeros((3, rows), dtype=np.int64)
        self._states = NodeStates(node, cpu_milli, memory_mib, gpu_milli)
        self.cost = np.zeros(rows)
        self.hosted = np.zeros((rows, profiles), dtype=np.int16)
        self.next_cost = np.zeros((rows, profiles))
        self._next_slot = np.zeros((rows, profiles), dtype=np.int8)
        self._child = np.zeros((rows, profiles), dtype=np.int32)
        # A sum of random numbers tells multisets apart, but for accidents, which cost a search an outcome.
        self.mark = np.random.default_rng(0).integers(2**62, size=profiles)
        self._append(states, np.arange(self.roots))

    def __len__(self) -> int:
        return self._size

    def room(self) -> int:
        """States that a search may still visit. Two decisions that place the tasks one by one fit besides."""
        return max(0, self._most - self._size)

    def hosting_one_more(self, index: IntArray, profile: IntArray) -> IntArray:
        """States after those at `index` have hosted one more task of a profile, (S,); no pair twice."""
        child = self._child[index, profile].astype(np.int64)
        new = np.flatnonzero(child == 0)
        if len(new):
            child[new] = self._grow(index[new], profile[new])
            self._child[index[new], profile[new]] = child[new]
        return child

    def distinct(self, states: IntArray) -> tuple[IntArray, IntArray]:
        """Return the cheapest state of each outcome, and the number of each state's outcome, shape (S,)."""
        cheapest, which = cheapest_of_each(self.cls[states], self.key[states], self.cost[states])
        return states[cheapest], which

    def outcomes(self, index: IntArray) -> Outcomes:
        """Outcomes that states are, with the tasks on the way to them from the root."""
        steps = []
        at = index
        while np.any(at >= self.roots):
            inner = at >= self.roots
            steps.append(np.where(inner, [self._profile[at], self._slot[at]], -1))
            at = np.where(inner, self._parent[at], at)
        # From the root: the last steps of a path are known first, and paths differ in length.
        way = np.array(steps[::-1]).reshape(len(steps), 2, len(index)).transpose(1, 2, 0)
        order = np.argsort(way[0] < 0, axis=1, kind="stable")
        profile, slot = np.take_along_axis(way, order[None], axis=2)
        hosted, others = self.hosted[index].astype(np.int64), np.zeros((len(index), 0))
        return Outcomes(self.cls[index], hosted, self.cost[index], others, profile, slot)

    def _grow(self, parent: IntArray, profile: IntArray) -> IntArray:
        """Add the states after `parent` have hosted a task of a profile each; return their numbers."""
        slot = self._next_slot[parent, profile].astype(np.int64)
        states = self._states.take(parent)
        index = np.arange(self._size, self._size + len(parent))
        self._parent[index], self._profile[index], self._slot[index] = parent, profile, slot
        self.key[index] = self.key[parent] + self.mark[profile]
        self.cost[index] = self.cost[parent] + self.next_cost[parent, profile]
        self.hosted[index] = self.hosted[parent]
        self.hosted[index, profile] += 1
        self._append(self._hosting.after(states, profile, slot), self.cls[parent])
        return index

    def _append(self, states: NodeStates, cls: IntArray) -> None:
        """Add states of these classes, and what one more task costs them."""
        index = slice(self._size, self._size + len(states))
        self._size += len(states)
        self.cls[index] = cls
        for field in fields(states):
            getattr(self._states, field.name)[index] = getattr(states, field.name)
        cost, slot = self._hosting.best(states)
        cost[self.hosted[index] >= self._demand] = np.inf
        self.next_cost[index], self._next_slot[index] = cost, slot


class _Pool(OutcomeMaster):
    """Outcomes that are columns of the LP: of each multiset on each class the cheapest state met."""

    def __init__(self, window: Window, tree: OutcomeTree) -> None:
        super().__init__(window)
        self._window, self._tree = window, tree
        self.states: list[int] = []
        self._position: dict[tuple[int, int], int] = {}

    def meet(self, states: IntArray) -> int:
        """Add the outcomes of states; return the number of those that are new or cheaper than before."""
        tree, known, changes = self._tree, len(self.states), 0
        keys = zip(tree.cls[states].tolist(), tree.key[states].tolist(), strict=True)
        for state, key in zip(states.tolist(), keys, strict=True):
            position = self._position.setdefault(key, len(self.states))
            if position == len(self.states):
                self.states.append(state)
                changes += 1
            elif tree.cost[state] < tree.cost[self.states[position]]:
                self.states[position] = state
                changes += 1
                if position < known:
                    saved = tree.hosted[state] @ self._window.worth
                    self.change_costs([position], tree.cost[state] - saved)
        new = np.array(self.states[known:], dtype=np.int64)
        if len(new):
            self.add(tree.cls[new], tree.hosted[new], tree.cost[new])
        return changes

    def one_by_one(self, begun: IntArray) -> IntArray:
        """States of nodes in use when each task was placed where it cost least; what was met is added."""
        states, met = one_by_one(self._window, self._tree, begun)
        self.meet(met)
        return states

    def rounded(self, nodes: FloatArray) -> IntArray:
        """States of nodes that use outcomes about as often as an LP's point does, shape (B,)."""
        tree, states, count = self._tree, np.array(self.states, dtype=np.int64), self._window.classes.count
        times = np.floor(nodes + _ROUNDING).astype(np.int64)
        tasks_left = self._window.demand - times @ tree.hosted[states]
        nodes_left = count - np.bincount(tree.cls[states], times, len(count)).astype(np.int64)
        # What is left of the nodes, largest parts first, as far as there are tasks.
        part = nodes - times
        order = np.argsort(-part, kind="stable")
        for k in order[part[order] > _ROUNDING]:
            hosted, cls = tree.hosted[states[k]], tree.cls[states[k]]
            if nodes_left[cls] and np.all(hosted <= tasks_left):
                nodes_left[cls] -= 1
                tasks_left -= hosted
                times[k] += 1
        return np.repeat(states, times)


def one_by_one(window: Window, tree: OutcomeTree, begun: IntArray) -> tuple[IntArray, IntArray]:
    """Place each task where it costs least at once.

    Parameters
    ----------
    begun : (B,) int
        States of nodes that host some of the tasks already.

    Returns
    -------
    states : (U,) int
        Of the nodes in use, in the end.
    met : (V,) int
        All that were met, in order.
    """
    roots, arrivals, count = tree.roots, window.profile, window.classes.count
    if roots == 0:
        return begun, begun
    hosted = tree.hosted[begun].sum(axis=0)
    unused = count - np.bincount(tree.cls[begun], minlength=roots)
    # Rows: the classes, as long as they have unused nodes, then the nodes in use.
    rows, most = roots + len(begun), roots + len(begun) + len(arrivals)
    state = np.concatenate([np.arange(roots), begun, np.zeros(len(arrivals), dtype=np.int64)])
    cost = np.full((most, len(hosted)), np.inf)
    cost[:rows] = tree.next_cost[state[:rows]]
    cost[:roots][unused == 0] = np.inf
    met = []
    for profile in arrivals.tolist():
        if hosted[profile]:  # by the nodes begun
            hosted[profile] -= 1
            continue
        row = int(np.argmin(cost[:rows, profile]))
        if np.isinf(cost[row, profile]):
            continue
        after = int(tree.hosting_one_more(state[[row]], np.array([profile]))[0])
        if row < roots:
            unused[row] -= 1
            if unused[row] == 0:
                cost[row] = np.inf
            row, rows = rows, rows + 1
        state[row], cost[row] = after, tree.next_cost[after]
        met.append(after)
    return state[roots:rows], np.array(met, dtype=np.int64)


class _Beam(NamedTuple):
    """States that a beam holds, and their costs at given prices."""

    state: IntArray
    value: FloatArray


def _better_states(tree: OutcomeTree, prices: Prices, width: int, timer: Timer) -> IntArray:
    """States that cost less than their price, up to `width` of each class, by beam search."""
    least = -_TOLERANCE * max(float(prices.task_worth.max(initial=0.0)), 1e-12)
    beam = _Beam(np.arange(tree.roots), prices.node_cost)
    best, idle = np.full(tree.roots, least), np.zeros(tree.roots, dtype=np.int64)
    seen = [_Beam(np.zeros(0, dtype=np.int64), np.zeros(0))]
    while len(beam.state) and not timer.over():
        beam = _longer(tree, prices, beam, width)
        seen.append(beam)
        cls = tree.cls[beam.state]
        now = best.copy()
        np.minimum.at(now, cls, beam.value)
        idle = np.where(now < best, 0, idle + 1)
        best = now
        going = (idle < _PATIENCE)[cls]
        beam = _Beam(beam.state[going], beam.value[going])
    state = np.concatenate([part.state for part in seen])
    value = np.concatenate([part.value for part in seen])
    good = value < least
    state, value = state[good], value[good]
    return state[first_of_class(tree.cls[state], value, width)]


def _longer(tree: OutcomeTree, prices: Prices, beam: _Beam, width: int) -> _Beam:
    """The best states with one task more than those of the beam, up to `width` of each class."""
    value = beam.value[:, None] + tree.next_cost[beam.state] - prices.task_worth
    few = min(width + 1, value.shape[1])
    profile = np.argpartition(value, few - 1, axis=1)[:, :few]
    parent = np.repeat(np.arange(len(value)), few)
    profile = profile.ravel()
    value = value[parent, profile]
    possible = np.flatnonzero(np.isfinite(value))
    parent, profile, value = parent[possible], profile[possible], value[possible]
    if len(value) > tree.room():
        return _Beam(np.zeros(0, dtype=np.int64), np.zeros(0))
    state = beam.state[parent]
    kept, _which = cheapest_of_each(tree.cls[state], tree.key[state] + tree.mark[profile], value)
    kept = kept[first_of_class(tree.cls[state[kept]], value[kept], width)]
    return _Beam(tree.hosting_one_more(state[kept], profile[kept]), value[kept])
