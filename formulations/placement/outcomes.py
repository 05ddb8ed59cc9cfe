"""Outcomes: what a node can host of a window's tasks, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattsched.formulations.placement.hosting import Hosting, Hostings, NodeStates
from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Outcomes:
    """Outcomes of node classes: a multiset of profiles, and the cheapest known way to host it.

    Attributes
    ----------
    cls : (K,) int
        Class of the node.
    hosted : (K, P) int
        Tasks of each profile.
    cost : (K,) float
        Change of the window's objective.
    profile, slot : (K, L) int
        The way: profiles in the order in which they are hosted, and their slots as of `Hostings`; -1 beyond
        the last.
    """

    cls: IntArray
    hosted: IntArray
    cost: FloatArray
    profile: IntArray
    slot: IntArray

    def __len__(self) -> int:
        return len(self.cls)

    def take(self, index: IntArray) -> Outcomes:
        """Outcomes at these positions."""
        return Outcomes(
            self.cls[index], self.hosted[index], self.cost[index], self.profile[index], self.slot[index]
        )


@dataclass(frozen=True)
class Demand:
    """What a window asks of its nodes.

    Attributes
    ----------
    arrivals : (T,) int
        Profile of each task, in the order of their arrival.
    worth : (P,) float
        What not hosting a task of each profile costs.
    count : (C,) int
        Nodes of each class.
    ties : float
        What ties are broken by at most.
    """

    arrivals: IntArray
    worth: FloatArray
    count: IntArray
    ties: float

    @property
    def tasks(self) -> IntArray:
        """Tasks of each profile, shape (P,)."""
        return np.bincount(self.arrivals, minlength=len(self.worth))


class Found(NamedTuple):
    """What a search found.

    Attributes
    ----------
    outcomes : Outcomes
        K outcomes.
    nodes : (K,) int
        How many nodes use each of them in the best decision met.
    """

    outcomes: Outcomes
    nodes: IntArray


def every_outcome(
    hosting: Hosting, states: NodeStates, demand: IntArray, most: float = np.inf
) -> Outcomes | None:
    """List all outcomes but the empty ones; None when there are too many.

    Parameters
    ----------
    hosting : Hosting
    states : NodeStates
        State of each class.
    demand : (P,) int
        Tasks of each profile in the window.
    most : float
        Ways to look at, at most.
    """
    size = int(demand.sum())
    nothing = np.zeros((len(states), len(demand)), dtype=np.int64)
    nowhere = np.full((len(states), size), -1)
    level = Outcomes(np.arange(len(states)), nothing, np.zeros(len(states)), nowhere, nowhere)
    seen, found = 0, []
    for depth in range(size):
        ways = _wanted(hosting.ways(states), level, demand)
        seen += len(ways.cost)
        if seen > most:
            return None
        level, states = _one_more(hosting, states, level, ways, depth)
        found.append(_cheapest(level))
    return _joined(found, level.take(np.arange(0)))


def _wanted(ways: Hostings, level: Outcomes, demand: IntArray) -> Hostings:
    """Ways by which profiles come in order, so that no multiset is met in two orders."""
    last = np.max(level.profile, axis=1, initial=0)[ways.state]
    wanted = (ways.profile >= last) & (level.hosted[ways.state, ways.profile] < demand[ways.profile])
    return Hostings(*(column[wanted] for column in ways))


def _one_more(
    hosting: Hosting, states: NodeStates, level: Outcomes, ways: Hostings, depth: int
) -> tuple[Outcomes, NodeStates]:
    """Outcomes and states after each of the ways."""
    state, profile, slot, cost = ways
    after = hosting.after(states.take(state), profile, slot)
    more = level.take(state)
    more.hosted[np.arange(len(more)), profile] += 1
    more.profile[:, depth], more.slot[:, depth] = profile, slot
    more.cost[:] += cost
    # One multiset may leave the same GPUs in several ways, which then cost the same.
    rows = _numbers(np.concatenate([more.cls[:, None], more.hosted, after.gpu_milli], axis=1))
    _rows, distinct = np.unique(rows, return_index=True)
    return more.take(distinct), after.take(distinct)


def _cheapest(level: Outcomes) -> Outcomes:
    """Of every multiset on every class the way that costs least."""
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


def _joined(parts: list[Outcomes], empty: Outcomes) -> Outcomes:
    parts = [empty, *parts]
    return Outcomes(
        cls=np.concatenate([part.cls for part in parts]),
        hosted=np.concatenate([part.hosted for part in parts]),
        cost=np.concatenate([part.cost for part in parts]),
        profile=np.concatenate([part.profile for part in parts]),
        slot=np.concatenate([part.slot for part in parts]),
    )
