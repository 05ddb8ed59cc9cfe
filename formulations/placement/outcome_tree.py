"""Outcomes reached task by task: a tree that grows where a search looks, and remembers what it saw."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.placement.hosting import Hosting, NodeStates
from wattsched.formulations.placement.outcomes import Outcomes
from wattsched.topology.arrays import IntArray


class OutcomeTree:
    """Tree of node states, whose roots are the classes as they are now.

    A state hosts a task in the way that costs least at once, so that the task's profile names the child.

    Parameters
    ----------
    hosting : Hosting
    states : NodeStates
        State of each of C classes.
    demand : (P,) int
        Tasks of each profile: no state hosts more.
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

    def __init__(self, hosting: Hosting, states: NodeStates, demand: IntArray, most: int):
        self._hosting, self._demand = hosting, demand
        self.roots, self._size = len(states), 0
        # Memory that is not written to is not used either.
        self._most = self.roots + most
        rows, profiles, gpus = self._most + 2 * int(demand.sum()), len(demand), states.gpu_milli.shape[1]
        self.cls, self.key, self._parent, self._profile, self._slot = np.zeros((5, rows), dtype=np.int64)
        self._node, self._cpu_milli, self._memory_mib = np.zeros((3, rows), dtype=np.int64)
        self._gpu_milli = np.zeros((rows, gpus), dtype=np.int64)
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
        """States after these have hosted one more task each, shape (S,); no pair twice."""
        child = self._child[index, profile].astype(np.int64)
        new = np.flatnonzero(child == 0)
        if len(new):
            child[new] = self._grow(index[new], profile[new])
            self._child[index[new], profile[new]] = child[new]
        return child

    def distinct(self, states: IntArray) -> tuple[IntArray, IntArray]:
        """Of states that are the same outcome the cheapest; and which of these each state is, shape (S,)."""
        cls, key = self.cls[states], self.key[states]
        order = np.lexsort((self.cost[states], key, cls))
        cls, key = cls[order], key[order]
        new = np.ones(len(order), dtype=bool)
        new[1:] = (cls[1:] != cls[:-1]) | (key[1:] != key[:-1])
        which = np.empty(len(order), dtype=np.int64)
        which[order] = np.cumsum(new) - 1
        return states[order[new]], which

    def outcomes(self, index: IntArray) -> Outcomes:
        """Outcomes that these states are."""
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
        return Outcomes(self.cls[index], self.hosted[index].astype(np.int64), self.cost[index], profile, slot)

    def _grow(self, parent: IntArray, profile: IntArray) -> IntArray:
        slot = self._next_slot[parent, profile].astype(np.int64)
        states = NodeStates(
            self._node[parent], self._cpu_milli[parent], self._memory_mib[parent], self._gpu_milli[parent]
        )
        index = np.arange(self._size, self._size + len(parent))
        self._parent[index], self._profile[index], self._slot[index] = parent, profile, slot
        self.key[index] = self.key[parent] + self.mark[profile]
        self.cost[index] = self.cost[parent] + self.next_cost[parent, profile]
        self.hosted[index] = self.hosted[parent]
        self.hosted[index, profile] += 1
        self._append(self._hosting.after(states, profile, slot), self.cls[parent])
        return index

    def _append(self, states: NodeStates, cls: IntArray) -> None:
        index = slice(self._size, self._size + len(states))
        self._size += len(states)
        self.cls[index], self._node[index] = cls, states.node
        self._cpu_milli[index], self._memory_mib[index] = states.cpu_milli, states.memory_mib
        self._gpu_milli[index] = states.gpu_milli
        cost, slot = self._hosting.best(states)
        cost[self.hosted[index] >= self._demand] = np.inf
        self.next_cost[index], self._next_slot[index] = cost, slot
