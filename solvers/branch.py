"""Branch and bound on choice groups: every node has prices of its own, and decisions under them.

A round of many jobs has a small integrality gap unless a few of its jobs are lumpy: one such job, half
running and half waiting, distorts the price of what it uses for all the others. Deciding the lumpy jobs
first, largest difference of priced use first, leaves nodes whose prices are right.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import greedy
from wattsched.solvers.highs import solve_lp
from wattsched.solvers.kernel import Kernel, cheapest, kernel
from wattsched.solvers.solution import Limits
from wattsched.topology.arrays import BoolArray, FloatArray

_FRACTIONAL = 1e-6
# Columns besides each group's cheapest in a node's kernel, and the nodes that HiGHS may spend on it.
_KERNEL = 300
_KERNEL_NODES = 100


@dataclass(order=True)
class _Node:
    """Columns that are still allowed, and a bound on their best."""

    bound: float
    number: int
    keep: BoolArray = field(compare=False)


class Branching:
    """Best-first search of a program.

    Parameters
    ----------
    offer : callable
        Takes a point of the program and returns the cost of the best point known.
    bound, best : float
        Proven already, and known already.
    gap : float
        Relative gap at which a node is not worth looking at.
    """

    def __init__(
        self,
        program: Program,
        offer: Callable[[FloatArray], float],
        bound: float,
        best: float,
        gap: float,
        timer: Timer,
    ) -> None:
        self._program = program
        self._offer = offer
        self._best = best
        self._gap = gap
        self._clock = timer
        self._numbers = count()
        self._nodes = [_Node(bound, next(self._numbers), np.ones(program.n_choices, dtype=bool))]
        self._finished = np.inf

    def run(self, most_nodes: int) -> None:
        """Look at nodes until the gap is closed, time is up, or there were this many."""
        for _ in range(most_nodes):
            if not self._nodes or self._clock.over() or self._nodes[0].bound >= self._worth():
                return
            if not self._look(heapq.heappop(self._nodes)):
                return

    def bound(self) -> float:
        """Lower bound on the cost of every point that is better than all known ones; inf when none exists."""
        return min([self._finished, *(node.bound for node in self._nodes)])

    def _worth(self) -> float:
        """Cost below which a node must reach to be looked at."""
        return self._best - self._gap * abs(self._best) if np.isfinite(self._best) else np.inf

    def _look(self, node: _Node) -> bool:
        """Bound a node, decide under its prices, and split it; False when time ran out before."""
        small = kernel(self._program, node.keep)
        relaxed = solve_lp(small.program, Limits(time_s=self._clock.remaining_s()))
        if relaxed.termination.reason == "infeasible":
            return True
        if relaxed.x is None or relaxed.prices is None:
            heapq.heappush(self._nodes, node)
            return False
        bound = max(node.bound, relaxed.bound)
        if bound < self._worth():
            self._decide(small, relaxed.prices, bound)
        if bound >= self._worth():
            self._finished = min(self._finished, bound)
            return True
        halves = _halves(small, node.keep, relaxed.x, relaxed.prices)
        if halves is None:
            # The relaxation is a decision, and nothing in the node is better.
            self._best = self._offer(small.lift(relaxed.x))
            self._finished = min(self._finished, bound)
            return True
        for keep in halves:
            heapq.heappush(self._nodes, _Node(bound, next(self._numbers), keep))
        return True

    def _decide(self, small: Kernel, prices: FloatArray, bound: float) -> None:
        """Offer a greedy decision, and what a MIP over the columns of least reduced cost makes of it."""
        inner = small.program
        x = greedy.ascend(inner, prices, self._clock)
        if x is not None:
            self._best = self._offer(small.lift(x))
        if bound >= self._worth() or inner.n_groups == 0:
            return
        keep = cheapest(inner.above_least(prices), inner.n_groups + _KERNEL)
        if x is not None:
            keep |= x[: len(keep)] > 0.5
        limits = Limits(gap=self._gap, time_s=self._clock.remaining_s(), nodes=_KERNEL_NODES)
        answer = kernel(inner, keep).solve(limits, x, bound + self._gap * abs(bound))
        if answer.x is not None:
            self._best = self._offer(small.lift(answer.x))


def _halves(
    small: Kernel, keep: BoolArray, x: FloatArray, prices: FloatArray
) -> tuple[BoolArray, BoolArray] | None:
    """Split the fractional group whose columns differ most in priced use, at the use of its mixture.

    Returns None when the point is integral in the groups.
    """
    inner = small.program
    fraction = x[: inner.n_choices]
    split = (fraction > _FRACTIONAL) & (fraction < 1 - _FRACTIONAL)
    if not split.any():
        return None
    use = abs(inner.matrix[:, : inner.n_choices]).T @ np.abs(prices)
    starts = inner.group_start[:-1]
    least = np.minimum.reduceat(np.where(split, use, np.inf), starts)
    most = np.maximum.reduceat(np.where(split, use, -np.inf), starts)
    group = int(np.argmax(most - least))
    columns = np.arange(inner.group_start[group], inner.group_start[group + 1])
    below = use[columns] <= float(use[columns] @ fraction[columns])
    if below.all() or not below.any() or least[group] == most[group]:
        below = columns <= columns[split[columns]][0]
    first, second = keep.copy(), keep.copy()
    first[small.columns[columns[~below]]] = False
    second[small.columns[columns[below]]] = False
    return first, second
