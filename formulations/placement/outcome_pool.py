"""Outcomes that an LP knows, and whole decisions that lead to more of them."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.placement.outcome_master import OutcomeMaster, Prices
from wattsched.formulations.placement.outcome_tree import OutcomeTree
from wattsched.topology.arrays import FloatArray, IntArray

_ROUNDING = 1e-6


class OutcomePool:
    """Outcomes that are columns of the LP: of each multiset on each class the cheapest state met."""

    def __init__(self, tree: OutcomeTree, master: OutcomeMaster) -> None:
        self._tree, self._master = tree, master
        self.states: list[int] = []
        self._position: dict[tuple[int, int], int] = {}

    def prices(self) -> Prices:
        """Prices that the outcomes so far make."""
        return self._master.prices()

    def add(self, states: IntArray) -> int:
        """Add outcomes; the number of those that are new or cheaper than before."""
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
                    self._master.reprice(position, float(tree.cost[state]))
        new = np.array(self.states[known:], dtype=np.int64)
        if len(new):
            self._master.add(tree.cls[new], tree.hosted[new], tree.cost[new])
        return changes

    def rounded(self, nodes: FloatArray, demand: IntArray, count: IntArray) -> IntArray:
        """States of nodes that use outcomes about as often as an LP's point does, shape (B,)."""
        tree, states = self._tree, np.array(self.states, dtype=np.int64)
        times = np.floor(nodes + _ROUNDING).astype(np.int64)
        tasks_left = demand - times @ tree.hosted[states]
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

    def one_by_one(self, begun: IntArray, arrivals: IntArray, count: IntArray) -> IntArray:
        """Place each task where it costs least at once, and add all outcomes met.

        Parameters
        ----------
        begun : (B,) int
            States of nodes that host some of the tasks already.
        arrivals : (T,) int
            Profiles of all tasks, in order.
        count : (C,) int
            Nodes of each class.

        Returns
        -------
        (U,) int
            States of the nodes in use, in the end.
        """
        tree, roots = self._tree, self._tree.roots
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
            if hosted[profile]:
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
        self.add(np.array(met, dtype=np.int64))
        return state[roots:rows]
