r"""Programs by kind: row prices from passes over the kinds, then small programs over the columns in question.

1. Prices :math:`y` that nearly maximise the Lagrangian bound (`dual`); a pass writes no column down.
2. The columns whose reduced cost is little above the least of their group are written down as a program of
   their own, in which most groups are decided; `price` solves it. A few thousand of a million groups are
   often enough, as rounding takes a few groups for each row.
3. More of them, until the gap is closed. With an incumbent of cost :math:`U`, a column that is more than
   :math:`U - L(y)` above its group's least is in no better point: once all others are written down, what is
   proven of them is proven of the program.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.kinds import KindProgram, Part
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers import greedy, price
from wattsched.solvers.dual import Dual, clusters_of, dual_of_kinds, dual_prices
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Solution,
    Start,
    announce,
    announcing_under,
    certified,
    conclude,
    infeasible,
    rounding,
)
from wattsched.topology.arrays import FloatArray, IntArray

SIZES = (1_000, 10_000, 100_000, 1_000_000)
"""Columns besides each group's least that are written down, one after the other."""

_GREEDY_SIZE = 0.1
"""The same for `greedy_point`, for each group."""

# A part's own bound is above the program's, so what is good enough for the part need not be for the program.
_PART_GAP = 0.5
_PART_SHARE = 0.6
# The dual may leave this share of the gap asked for, within limits.
_DUAL_SHARE, _DUAL_TOLERANCE = 0.05, (1e-9, 1e-6)


def solve(program: KindProgram, limits: Limits, start: Start | None = None) -> Solution:
    """Solve by prices and parts; see the module's text."""
    start, timer = start or Start(), Timer(limits.time_s)
    program = replace(program, threads=limits.threads)
    search = _Search(program, limits, timer)
    search.offer(start.x)
    tolerance = min(max(_DUAL_SHARE * limits.gap, _DUAL_TOLERANCE[0]), _DUAL_TOLERANCE[1])
    dual = dual_of_kinds(program, timer.remaining_s(), tolerance, start.prices, search.enough())
    if dual.bound == np.inf:
        return infeasible(dual.prices, "the LP relaxation is infeasible")
    search.take_prices(dual.prices, dual.bound)
    search.mix(dual)
    return search.run()


class _Search:
    """The best point and the best bound while they approach each other."""

    def __init__(self, program: KindProgram, limits: Limits, timer: Timer) -> None:
        self._program, self._limits, self._timer = program, limits, timer
        self._point: IntArray | None = None
        self._objective = np.inf
        self._prices = np.zeros(program.n_rows)
        # What the prices prove, and what is proven by and by.
        self._priced = self._bound = -np.inf
        self._base: IntArray | None = None
        self._points: list[IntArray] = []

    def offer(self, point: IntArray | None) -> None:
        """Take a point if it is feasible and better."""
        if point is None or self._program.violation(point) > VIOLATION:
            return
        objective = self._program.objective(point)
        if objective < self._objective:
            self._point, self._objective = point, objective
            announce(self._bound, self._prices, point, objective)

    def enough(self) -> float:
        """Bound that closes the gap of the best point."""
        if self._point is None:
            return np.inf
        return self._objective - self._limits.gap * abs(self._objective)

    def take_prices(self, prices: FloatArray, bound: float) -> None:
        """Take prices that prove more."""
        if bound > self._priced:
            self._prices, self._priced = prices, bound
            self._bound = max(self._bound, bound)

    def mix(self, dual: Dual) -> None:
        """Take the points that a nearly optimal point of the LP relaxation mixes.

        Each cluster of groups begins with the one it takes most of, and others are in question where it takes
        some of them. So the parts' LP relaxations are feasible.
        """
        weight, n = dual.weight, self._program.n_groups
        cluster = clusters_of(n, weight.shape[1])
        most = np.argmax(weight, axis=0)[cluster]
        self._base = np.array(dual.chosen)[most, np.arange(n)].astype(np.int64)
        self._points = [
            np.where(taken[cluster] > 0.0, chosen, self._base)
            for taken, chosen in zip(weight, dual.chosen, strict=True)
        ]

    def run(self) -> Solution:
        """Write more and more columns down until the gap is closed."""
        for size in SIZES:
            if self._done() or self._look(size):
                break
        limit: Limit | None = "time" if self._timer.over() else None
        if self._bound == np.inf:
            return infeasible(self._prices, "no decision satisfies the rows")
        return conclude(self._program, self._limits, self._point, self._bound, self._prices, limit)

    def _done(self) -> bool:
        closed = self._point is not None and self._bound >= self.enough()
        return closed or self._bound == np.inf or self._timer.over()

    def _look(self, size: int) -> bool:
        """Solve the part with about so many columns besides the groups' least; whether all was in it."""
        program = self._program
        margin = self._objective - self._priced + rounding(program, self._objective)
        threshold = program.threshold(self._prices, size)
        complete = not threshold < margin
        part = program.part(self._prices, min(threshold, margin), self._base, self._points)
        gap = self._limits.gap * (1.0 if complete else _PART_GAP)
        timer = self._timer if complete else self._timer.share(_PART_SHARE)
        limits = replace(self._limits, gap=gap, time_s=timer.remaining_s())
        begun = Start(None if self._point is None else part.lower(self._point), self._prices)
        with announcing_under(self._bound):
            answer = _solved(part, limits, begun)
        self.offer(None if answer.x is None else part.lift(answer.x))
        if answer.prices is not None and not self._done():
            self.take_prices(*certified(program, answer.prices))
        if complete:
            self._bound = max(self._bound, min(self._objective, answer.bound))
        return complete


def _solved(part: Part, limits: Limits, start: Start) -> Solution:
    """Answer to a part, which may have no open group at all."""
    program = part.program
    if program.n_columns:
        return price.solve(program, limits, start)
    nothing = np.zeros(0)
    x = nothing if program.violation(nothing) <= VIOLATION else None
    if x is None:
        return infeasible(detail="the decided columns violate a row")
    return conclude(program, limits, x, program.offset, np.zeros(program.n_rows))


def greedy_point(program: KindProgram, limits: Limits, start: Start | None = None) -> Solution:
    """Build a point greedily among the columns that prices leave in question."""
    timer = Timer(limits.time_s)
    share_s = timer.share(0.5).remaining_s()
    prices, bound = dual_prices(program, share_s, start=None if start is None else start.prices)
    if bound == np.inf:
        return infeasible(prices, "the LP relaxation is infeasible")
    size = max(SIZES[0], int(_GREEDY_SIZE * program.n_groups))
    part = program.part(prices, program.threshold(prices, size))
    with announcing_under(bound):
        if part.program.n_columns:
            found = greedy.ascend(part.program, prices, timer)
        else:
            found = _solved(part, limits, Start()).x
    point = None if found is None else part.lift(found)
    detail = "" if point is not None else "no choice that satisfies all rows was found greedily"
    limit: Limit | None = "time" if point is None and timer.over() else None
    return conclude(program, limits, point, bound, prices, limit, detail)
