r"""`price`: row prices first, then small MIPs over the columns that the prices leave in question.

1. Prices :math:`y` that nearly maximise the Lagrangian bound :math:`L(y)` (`dual`).
2. A *kernel*: the columns whose reduced cost is least above the least of their group. HiGHS solves it with
   all other columns at zero; a small one is often enough.
3. Otherwise a decision along the efficient frontiers under these prices (`greedy`), and larger kernels.
4. Reduced-cost fixing: with an incumbent of cost :math:`U`, a column whose reduced cost is more than
   :math:`U - L(y)` above its group's least is in no better decision. Once few columns are left, branch and
   bound over the choice groups (`branch`) closes the gap.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import greedy, highs
from wattsched.solvers.branch import Branching, cheapest, kernel
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.points import feasible
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Solution,
    Start,
    announce,
    conclude,
    infeasible,
    relative_gap,
    rounding,
    unsupported,
)
from wattsched.topology.arrays import BoolArray, FloatArray

SMALL = 1_000
"""Up to this many columns HiGHS is done before prices would be."""
KERNELS = (300, 3_000, 10_000, 30_000)
"""Columns besides each group's cheapest in the kernels, one after the other."""
FEW_COLUMNS = 2_000
"""When fixing leaves as few columns, HiGHS solves the rest without branching before."""
# Up to so many columns that fixing leaves, the kernels do not grow any more.
_MOST_COLUMNS = 30_000
# HiGHS's gap on a kernel, as a share of the gap asked for: a kernel's own bound is above the program's,
# so an answer that is good enough for the kernel need not be for the program.
_KERNEL_GAP = 0.1
_NODES = 30
_FIRST_NODES = 10
# The dual may leave this share of the gap asked for, within limits: rough prices mislead the kernels.
_DUAL_SHARE = 0.1
_DUAL_TOLERANCE = (1e-9, 1e-5)


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution:
    """Solve by prices, kernels, reduced-cost fixing and branching; see the module's text.

    The solution's prices prove `Program.lagrangian_bound`; its bound may be better, by branching.
    """
    if program.n_columns <= SMALL:
        return highs.solve(program, limits, start)
    timer = Timer(limits.time_s)
    start = start or Start()
    enough = np.inf
    if start.x is not None and feasible(program, start.x):
        cost = program.objective(start.x)
        enough = cost - limits.gap * abs(cost)
    tolerance = min(max(_DUAL_SHARE * limits.gap, _DUAL_TOLERANCE[0]), _DUAL_TOLERANCE[1])
    prices, bound = dual_prices(program, timer.remaining_s(), tolerance, start.prices, enough)
    if bound == np.inf:
        return infeasible(prices, "the LP relaxation is infeasible")
    search = _Search(program, limits, timer, prices, bound)
    search.offer(start.x)
    search.run()
    return search.conclude()


class _Search:
    """The best point and the best bound while they approach each other."""

    def __init__(
        self, program: Program, limits: Limits, timer: Timer, prices: FloatArray, bound: float
    ) -> None:
        self._program = program
        self._limits = limits
        self._timer = timer
        self._prices = prices
        # What the prices prove, and what is proven by and by.
        self._priced = self._bound = bound
        self._above = program.above_least(prices)
        self._x: FloatArray | None = None
        self._objective = np.inf
        self._failure = ""

    def offer(self, x: FloatArray | None) -> float:
        """Take a point if it is feasible and better; the cost of the best one known."""
        if x is not None and feasible(self._program, x):
            objective = self._program.objective(x)
            if objective < self._objective:
                self._x, self._objective = x, objective
                announce(self._bound, self._prices, x, objective)
        return self._objective

    def run(self) -> None:
        """Improve the best point by kernels until branching can finish."""
        if not self._done():
            # Very few columns are often enough, and cost next to nothing.
            few = max(KERNELS[0], self._program.n_groups // 10)
            self._improve(self._cheapest(few), nodes=_FIRST_NODES)
        if not self._done():
            self.offer(greedy.ascend(self._program, self._prices, self._timer))
        for size in KERNELS:
            if self._done():
                return
            self._improve(self._cheapest(size))
            if self._open_columns() <= _MOST_COLUMNS:
                break
        if not self._done() and self._open_columns() > FEW_COLUMNS:
            self._branch()
        if not self._done():
            self._improve(self._open())

    def conclude(self) -> Solution:
        """Solution as it stands."""
        if self._bound == np.inf:
            return infeasible(self._prices, "no decision satisfies the rows")
        if self._failure and self._x is None:
            return unsupported(self._failure)
        limit: Limit | None = "time" if self._timer.over() else None
        return conclude(self._program, self._limits, self._x, self._bound, self._prices, limit)

    def _done(self) -> bool:
        """Whether the gap is closed or cannot be."""
        closed = self._x is not None and relative_gap(self._objective, self._bound) <= self._limits.gap
        return closed or bool(self._failure) or self._bound == np.inf or self._timer.over()

    def _cheapest(self, size: int) -> BoolArray:
        """Every group's cheapest column, about `size` others, and those of the best point."""
        return self._with_best(cheapest(self._above, self._program.n_groups + size))

    def _open(self) -> BoolArray:
        """Columns that a better decision than the best one may have, and those that it has.

        The reduced costs are those of the prices, so what they alone prove is what counts.
        """
        if self._x is None:
            return np.ones(len(self._above), dtype=bool)
        margin = self._objective - self._priced + rounding(self._program, self._objective)
        return self._with_best(self._above <= margin)

    def _open_columns(self) -> int:
        return int(np.count_nonzero(self._open())) - self._program.n_groups

    def _with_best(self, keep: BoolArray) -> BoolArray:
        return keep if self._x is None else keep | (self._x[: len(keep)] > 0.5)

    def _improve(self, keep: BoolArray, nodes: int | None = None) -> None:
        """Let HiGHS look for a better point among some columns.

        If no other column is open, what it proves holds for the program.
        """
        complete = not np.any(self._open() & ~keep)
        gap = self._limits.gap * (1.0 if complete else _KERNEL_GAP)
        limits = replace(self._limits, gap=gap, time_s=self._timer.remaining_s(), nodes=nodes)
        target = self._bound + self._limits.gap * abs(self._bound)
        answer = kernel(self._program, keep).solve(limits, self._x, target)
        self.offer(answer.x)
        if complete and answer.termination.reason == "error":
            self._failure = answer.termination.detail
        elif complete:
            # An infeasible rest: nothing is better than the best point, or there is nothing at all.
            self._raise_bound(answer.bound)

    def _branch(self) -> None:
        """Branch and bound over the open columns."""
        rest = kernel(self._program, self._open())
        branching = Branching(
            rest.program,
            lambda x: self.offer(rest.lift(x)),
            self._bound,
            self._objective,
            self._limits.gap,
            self._timer,
        )
        branching.run(_NODES)
        self._raise_bound(branching.bound())

    def _raise_bound(self, proven: float) -> None:
        """Take a bound on all points better than the best one."""
        self._bound = max(self._bound, min(self._objective, proven))
