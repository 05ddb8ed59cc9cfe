"""Parts of a program: kernels, which a small MIP decides, and branch and bound over choice groups.

In branch and bound every node has prices of its own, and decisions under them. A round of many jobs has a
small integrality gap unless a few of its jobs are lumpy: one such job, half running and half waiting,
distorts the price of what it uses for all the others. Deciding the lumpy jobs first, largest difference of
priced use first, leaves nodes whose prices are right.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL
from wattsched.solvers import greedy, highs
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import restricted
from wattsched.solvers.solution import Limits, Solution, Start, listening
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

KERNEL = 300
"""Columns besides each group's cheapest in a node's kernel."""
_KERNEL_NODES = 100


@dataclass(frozen=True)
class Kernel:
    """Restriction of a program to some of its choice columns; groups with one column are decided.

    Attributes
    ----------
    program : Program
        Over the open groups and the free columns of the full program.
    columns : int array, shape (n_columns of `program`,)
        Columns of the full program that its columns stand for.
    decided : float array, shape (n_columns of the full program,)
        Point of the full program with what the decided groups take.
    """

    program: Program
    columns: IntArray
    decided: FloatArray

    def lift(self, x: FloatArray) -> FloatArray:
        """Point of the full program from one of the kernel."""
        full = self.decided.copy()
        full[self.columns] = x
        return full

    def drop(self, x: FloatArray) -> FloatArray | None:
        """Point of the kernel from one of the full program, None when it takes another column."""
        point = x[self.columns]
        taken = point[: self.program.n_choices].sum()
        return point if np.all(x >= self.decided) and taken == self.program.n_groups else None

    def solve(self, limits: Limits, start: FloatArray | None, target: float) -> Solution:
        """Solve the kernel by HiGHS, from a point of the full program, until the target is reached.

        Returns
        -------
        Solution
            Its point is one of the full program; bound and prices are the kernel's.
        """
        point = None if start is None else self.drop(start)
        # What it announces are points of another program.
        with listening(None):
            answer = highs.solve(self.program, limits, Start(point), target)
        return answer if answer.x is None else replace(answer, x=self.lift(answer.x))


def kernel(program: Program, keep: BoolArray) -> Kernel:
    """Restrict a program.

    Parameters
    ----------
    keep : bool array, shape (n_choices,)
        At least one column of every group.
    """
    start, n = program.group_start, program.n_choices
    counts = np.zeros(0, dtype=np.int64)
    if program.n_groups:
        counts = np.add.reduceat(keep.astype(np.int64), start[:-1])
    single = keep & np.repeat(counts == 1, np.diff(start))
    decided = np.zeros(program.n_columns)
    decided[:n] = single
    columns = np.concatenate([np.flatnonzero(keep & ~single), np.arange(n, program.n_columns)])
    group_start = np.concatenate([[0], np.cumsum(counts[counts > 1])]).astype(np.int64)
    return Kernel(restricted(program, columns, decided, group_start), columns, decided)


def cheapest(above: FloatArray, size: int) -> BoolArray:
    """The columns of least reduced cost above their group's least, about `size` of them, with all ties.

    Parameters
    ----------
    above : float array, shape (n_choices,)
        From `Program.above_least`; every group has a column with 0.
    """
    if size >= len(above):
        return np.ones(len(above), dtype=bool)
    return np.asarray(above <= max(0.0, float(np.partition(above, size)[size])))


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
        self._timer = timer
        self._numbers = count()
        self._nodes = [_Node(bound, next(self._numbers), np.ones(program.n_choices, dtype=bool))]
        self._finished = np.inf

    def run(self, most_nodes: int) -> None:
        """Look at nodes until the gap is closed, time is up, or there were this many."""
        for _ in range(most_nodes):
            if not self._nodes or self._timer.over() or not self._worth(self._nodes[0].bound):
                return
            if not self._look(heapq.heappop(self._nodes)):
                return

    def bound(self) -> float:
        """Lower bound on the cost of every point that is better than all known ones; inf when none exists."""
        return min([self._finished, *(node.bound for node in self._nodes)])

    def _worth(self, bound: float) -> bool:
        """Whether a node of that bound may hold a point that is better by more than the gap."""
        return not np.isfinite(self._best) or bound < self._best - self._gap * abs(self._best)

    def _look(self, node: _Node) -> bool:
        """Bound a node, decide under its prices, and split it; False when time ran out before."""
        small = kernel(self._program, node.keep)
        relaxed = solve_lp(small.program, Limits(time_s=self._timer.remaining_s()))
        if relaxed.termination.reason == "infeasible":
            return True
        if relaxed.x is None or relaxed.prices is None:
            heapq.heappush(self._nodes, node)
            return False
        bound = max(node.bound, relaxed.bound)
        if self._worth(bound):
            self._decide(small, relaxed.prices, bound)
        if not self._worth(bound):
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
        x = greedy.ascend(inner, prices, self._timer)
        if x is not None:
            self._best = self._offer(small.lift(x))
        if not self._worth(bound) or inner.n_groups == 0:
            return
        keep = cheapest(inner.above_least(prices), inner.n_groups + KERNEL)
        if x is not None:
            keep |= x[: len(keep)] > 0.5
        limits = Limits(gap=self._gap, time_s=self._timer.remaining_s(), nodes=_KERNEL_NODES)
        answer = kernel(inner, keep).solve(limits, x, bound + self._gap * abs(bound))
        if answer.x is not None:
            self._best = self._offer(small.lift(answer.x))


@dataclass(order=True)
class _Node:
    """Columns that are still allowed, and a bound on their best."""

    bound: float
    number: int
    keep: BoolArray = field(compare=False)


def _halves(
    small: Kernel, keep: BoolArray, x: FloatArray, prices: FloatArray
) -> tuple[BoolArray, BoolArray] | None:
    """Split the fractional group whose columns differ most in priced use, at the use of its mixture.

    Returns None when the point is integral in the groups.
    """
    inner = small.program
    fraction = x[: inner.n_choices]
    split = (fraction > FRACTIONAL) & (fraction < 1 - FRACTIONAL)
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
        # Both halves need a column, even where the last one is the only one that is split.
        below = columns <= min(columns[split[columns]][0], columns[-2])
    first, second = keep.copy(), keep.copy()
    first[small.columns[columns[~below]]] = False
    second[small.columns[columns[below]]] = False
    return first, second
