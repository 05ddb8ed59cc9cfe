"""Exact search for bottleneck objectives: bisection on the worst value, between a point and a bound.

Prices bound the optimum from below (`bottleneck`), and a greedy point under these prices is most often there.
Otherwise HiGHS is asked at thresholds between the two whether the columns that reach them have a choice.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.timer import Timer
from wattsched.solvers import greedy, highs
from wattsched.solvers.bottleneck import Bottleneck
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.points import feasible_point
from wattsched.solvers.solution import Limits, Solution, Start, announce, conclude, infeasible, unheard
from wattsched.topology.arrays import FloatArray


def solve(bottleneck: Bottleneck, limits: Limits, start: Start | None = None) -> Solution:
    """Solve a program whose objective is its bottleneck; `price` and `auto` do so.

    The prices prove the surrogate bound; the solution's bound may be better, where HiGHS found no choice.
    """
    program, timer = bottleneck.program, Timer(limits.time_s)
    start = start or Start()
    search = _Search(bottleneck, limits, timer)
    search.offer(start.x)
    if not np.isfinite(search.objective):
        search.offer(greedy.ascend(program, np.zeros(program.n_rows), timer))
    enough = np.inf if search.x is None else search.objective - limits.gap * abs(search.objective)
    prices, bound = dual_prices(program, timer.remaining_s(), start=start.prices, enough=enough)
    if bound == np.inf:
        return infeasible(prices, "the LP relaxation is infeasible")
    search.low = bottleneck.place(bound)
    if not search.done():
        search.offer(greedy.ascend(program, prices, timer))
    announce(bound, prices, search.x, search.objective)
    return search.between(prices)


class _Search:
    """State of the bisection: the incumbent, and the index of the lowest level that the optimum can have."""

    def __init__(self, bottleneck: Bottleneck, limits: Limits, timer: Timer) -> None:
        self._bottleneck, self._limits, self._timer = bottleneck, limits, timer
        self.x: FloatArray | None = None
        self.objective = np.inf
        self.low = 0

    def offer(self, x: FloatArray | None) -> None:
        """Make a point the incumbent if it is feasible and better."""
        program = self._bottleneck.program
        # In a point of an earlier round the bottleneck column may have another value.
        point = None if x is None else feasible_point(program, x)
        if point is not None and program.objective(point) < self.objective:
            self.x, self.objective = point, program.objective(point)

    def done(self) -> bool:
        """True if there is a point, and its gap is closed."""
        bound = self._bottleneck.cost(self.low)
        return self.x is not None and self.objective - bound <= self._limits.gap * abs(self.objective)

    def between(self, prices: FloatArray) -> Solution:
        """Narrow the levels between bound and point until they meet, and conclude."""
        bottleneck, step, stopped = self._bottleneck, 1, None
        while not self.done() and stopped is None:
            high = len(bottleneck.levels) if self.x is None else bottleneck.place(self.objective)
            # The optimum is usually just above the bound; rounding of levels may put `high` below `low`.
            place = max(self.low, min(self.low + step - 1, (self.low + high) // 2))
            solution = self._reach(place)
            self.offer(solution.x)
            if solution.termination.reason == "infeasible":
                self.low, step = place + 1, 2 * step
            elif self.objective > bottleneck.cost(place):
                stopped = solution.termination
            announce(bottleneck.cost(self.low), prices, self.x, self.objective)
            if self.low == len(bottleneck.levels):
                return infeasible(prices, "no decision satisfies the rows")
        limit, detail = (None, "") if stopped is None else (stopped.limit, stopped.detail)
        bound = bottleneck.cost(self.low)
        return conclude(bottleneck.program, self._limits, self.x, bound, prices, limit, detail)

    def _reach(self, place: int) -> Solution:
        """Solve for any point within the level of that index by HiGHS, in the columns of the program."""
        restricted, columns = self._bottleneck.at(place)
        with unheard():
            limits = replace(self._limits, time_s=self._timer.remaining_s())
            answer = highs.solve(restricted, limits, target=np.inf)
        return answer if answer.x is None else replace(answer, x=self._bottleneck.point(columns, answer.x))
