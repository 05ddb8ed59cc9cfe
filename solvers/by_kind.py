r"""Programs by kind: row prices from passes over the kinds, then small programs over the columns in question.

0. Where there are prices and a point of an earlier round, the few groups that cost most above their least at
   these prices choose anew; that is often within the gap.
1. Prices :math:`y` that nearly maximise the Lagrangian bound (`dual`); a pass writes no column down. Under
   few rows an ascent among the columns near these prices is often within the gap.
2. The columns whose reduced cost is little above the least of their group are written down as a program of
   their own, in which most groups are decided; `price` solves it. A few thousand of a million groups are
   often enough, as rounding takes a few groups for each row.
3. More of them, until the gap is closed. With an incumbent of cost :math:`U`, a column that is more than
   :math:`U - L(y)` above its group's least is in no better point: once all others are written down, what is
   proven of them is proven of the program.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from wattsched.formulations.kinds import KindProgram, Part, part_around, part_of
from wattsched.formulations.kinds.shards import clusters_of
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL, VIOLATION
from wattsched.solvers import core, greedy, highs, price
from wattsched.solvers.dual import dual_of_kinds
from wattsched.solvers.incumbent import Incumbent
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.solution import (
    Dual,
    Limit,
    Limits,
    Solution,
    Start,
    announce,
    announcing_under,
    certified,
    conclude,
    infeasible,
    signed,
    without_columns,
)
from wattsched.topology.arrays import FloatArray, IntArray

SIZES = (1_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
"""Columns besides each group's least that are written down, one after the other."""

_GREEDY_SIZE, _GREEDY_MOST = 0.1, 50_000
"""The same for `greedy_point`, for each group; and for all where that was too few."""

_ROUNDED = (0, 25, 50, 50, 100, 100, 200, 200)
"""Groups besides those that the LP relaxation splits that are decided together with these, by round."""

# Groups of an earlier point that choose anew: at least so many, at most this share of all, so that what the
# others lose is this part of the gap; and columns for each of them.
_MENDED, _MENDED_SHARE, _MENDED_LEFT, _MENDED_EACH = 300, 0.2, 0.1, 10
# Columns for each of them, and HiGHS's nodes.
_EACH, _NODES = 50, 200
_ROUND_SHARE = 0.3
# What all of a row costs, relative to what choices can save, for those that use least.
_DEAR = 1e3
# Times that columns join the LP relaxation.
_SIFTINGS = 6
# A part's own bound is above the program's, so what is good enough for the part need not be for the program.
_PART_GAP = 0.5
_PART_SHARE = 0.6
# A part is all that can be better where that is at most so many times as much.
_ALL = 3
# The dual may leave this share of the gap asked for, and of what a group costs on average, within limits:
# prices that leave more have the ascent look at very many groups.
_DUAL_SHARE, _DUAL_GROUPS, _DUAL_TOLERANCE = 0.05, 0.2, (1e-9, 1e-5)
# The same where the LP relaxation is solved by sifting, and what that may leave.
_SIFTED_SHARE, _SIFTED_TOLERANCE, _SIFTED_GAP = 1.0, (1e-9, 1e-3), 0.1


def solve(program: KindProgram, limits: Limits, start: Start | None = None) -> Solution:
    """Solve by prices and parts; see the module's text."""
    start, timer = start or Start(), Timer(limits.time_s)
    program = _threaded(program, limits)
    search = _Search(program, limits, timer)
    search.offer(start.x)
    if start.prices is not None and start.dual is None:
        search.mend(signed(program, start.prices))
        if search.done():
            return search.conclude()
    tolerance = _tolerance(program, limits)
    dual = dual_of_kinds(program, timer.remaining_s(), tolerance, start, search.bound_asked())
    if dual.bound == np.inf:
        return infeasible(dual.prices, "the LP relaxation is infeasible")
    search.take_prices(dual.prices, dual.bound)
    announce(dual.bound, dual.prices, at_root=True)
    if start.dual is None and not _sifted(program) and not search.done():
        search.offer(_ascended(program, dual, _near(program), (), timer))
    return search.run(dual)


def _threaded(program: KindProgram, limits: Limits) -> KindProgram:
    """The program, with passes on so many threads."""
    return program if program.threads == limits.threads else replace(program, threads=limits.threads)


def _tolerance(program: KindProgram, limits: Limits) -> float:
    """Relative distance to the best bound at which the dual is good enough: sifting closes the rest."""
    if _sifted(program):
        share, (least, most) = _SIFTED_SHARE, _SIFTED_TOLERANCE
    else:
        share, (least, most) = _DUAL_SHARE, _DUAL_TOLERANCE
        most = min(most, _DUAL_GROUPS / max(1, program.n_groups))
    return min(max(share * limits.gap, least), most)


def _sifted(program: KindProgram) -> bool:
    """True if there are so many rows that the LP relaxation is solved by sifting, and rounded."""
    return program.n_rows > core.MOST_ROWS


class _Search(Incumbent):
    """Writes columns down, first few, then more, and looks for points among them.

    Its `prices` prove the bound `priced`; `x` is the best point, and `bound` the best bound, so far. The
    columns of `_points` are in every part.
    """

    def __init__(self, program: KindProgram, limits: Limits, timer: Timer) -> None:
        super().__init__(program, limits, timer)
        self._program = program
        self._points: list[IntArray] = []

    def take_prices(self, prices: FloatArray, bound: float) -> None:
        """Take prices that prove more."""
        if bound > self.priced:
            super().take_prices(prices, bound)

    def mend(self, prices: FloatArray) -> None:
        """Let the groups of the best point that lose most at these prices choose anew, if they are few."""
        program, point = self._program, self.x
        if point is None or program.n_groups * _MENDED_SHARE < _MENDED:
            return
        loss, bound = program.losses(prices, point)
        self.take_prices(prices, bound)
        order = np.argsort(-loss, kind="stable")
        loss_of_others = loss.sum() - np.cumsum(loss[order])
        small = _MENDED_LEFT * self.limits.gap * abs(bound)
        n_mended = max(_MENDED, int(np.count_nonzero(loss_of_others > small)))
        if self.done() or n_mended > _MENDED_SHARE * program.n_groups:
            return
        groups = np.sort(order[:n_mended])
        around = part_around(program, point, groups, prices, _MENDED_EACH * n_mended)
        x = greedy.ascend(around.program, prices, self.timer) if around.program.n_columns else None
        self.offer(None if x is None else around.lift(x))

    def _mix(self, dual: Dual) -> None:
        """Keep the points that a nearly optimal point of the LP relaxation mixes, by cluster of groups.

        All parts have their columns, so that the parts' LP relaxations are feasible.
        """
        mixed, program = np.flatnonzero((dual.weight > 0.0).any(axis=1)), self._program
        if len(mixed) == 0:  # there was no time for it
            return
        weight, cluster = dual.weight[mixed], clusters_of(program.n_groups)
        chosen = [program.cheapest(dual.cuts[i].prices) for i in mixed.tolist()]
        # In clusters that take nothing of a point it is the point that they take most of.
        base = np.array(chosen)[np.argmax(weight, axis=0)[cluster], np.arange(program.n_groups)]
        self._points = [
            np.where(taken[cluster] > 0.0, point, base) for taken, point in zip(weight, chosen, strict=True)
        ]

    def run(self, dual: Dual) -> Solution:
        """Write more and more columns down until the gap is closed."""
        if self.done():
            return self.conclude()
        self._mix(dual)
        if _sifted(self._program):
            self._round()
        for size in SIZES:
            if self.done() or self._look(size, brief=size == SIZES[0]):
                break
        return self.conclude()

    def _round(self) -> None:
        """Decide the groups that the LP relaxation splits, and more and more of those that are nearly split.

        Under many rows its optimum splits few groups. To round these, others must choose anew that could as
        well choose otherwise: some at a time, while the rest stays as it is.
        """
        relaxed = self._sift()
        if relaxed is None:
            return
        program, (part, x, prices) = self._program, relaxed
        split = np.unique(part.group[(x > FRACTIONAL) & (x < 1.0 - FRACTIONAL)])
        base = part.lift(x)
        near = np.unique(part.group)
        for number, many in enumerate(_ROUNDED):
            if self.done():
                return
            # About `many` of the groups in question, evenly spaced, and others in every round.
            others = near[number :: max(1, len(near) // many)] if many else near[:0]
            groups = np.union1d(split, others)
            around = part_around(program, base, groups, prices, _EACH * len(groups))
            if around.program.n_columns == 0:
                continue
            timer = self.timer.share(_ROUND_SHARE)
            gap = _PART_GAP * self.limits.gap
            limits = replace(self.limits, gap=gap, time_s=timer.remaining_s(), nodes=_NODES)
            begun = Start(None if self.x is None else around.lower(self.x))
            with announcing_under(self.bound, around.lift):
                answer = highs.solve(around.program, limits, begun)
            if answer.x is not None:
                self.offer(around.lift(answer.x))
                base = base if self.x is None else self.x

    def _sift(self) -> tuple[Part, FloatArray, FloatArray] | None:
        """Part, point and prices that solve the LP relaxation: columns that reduce its cost join the part."""
        program, points, found = self._program, list(self._points), None
        threshold = program.threshold(self.prices, SIZES[0])
        for _ in range(_SIFTINGS):
            part = part_of(program, self.prices, threshold, points)
            lp = solve_lp(part.program, Limits(time_s=self.timer.remaining_s()))
            if lp.x is None or lp.prices is None or lp.objective is None:
                break
            found = part, lp.x, lp.prices
            self.take_prices(*certified(program, lp.prices))
            if lp.objective - self.bound <= _SIFTED_GAP * self.limits.gap * abs(self.bound):
                break
            points.append(program.cheapest(lp.prices))
        return found

    def _look(self, size: int, *, brief: bool = False) -> bool:
        """Solve the part with about `size` columns besides each group's least, at first only in `brief`.

        Returns whether it had all columns that a better point may use.
        """
        program, margin = self._program, self.margin(self.priced)
        threshold = program.threshold(self.prices, size)
        complete = not threshold < margin
        if not brief and not complete and program.threshold(self.prices, _ALL * size) >= margin:
            threshold, complete = margin, True  # only a few times as many could be better: take them all
        part = part_of(program, self.prices, min(threshold, margin), self._points)
        gap = self.limits.gap * (1.0 if complete else _PART_GAP)
        timer = self.timer if complete else self.timer.share(_PART_SHARE)
        limits = replace(self.limits, gap=gap, time_s=timer.remaining_s())
        begun = Start(None if self.x is None else part.lower(self.x), self.prices)
        target = np.inf if complete else self.enough(self.bound)
        with announcing_under(self.bound, part.lift):
            if part.program.n_columns:
                answer = price.solve(part.program, limits, begun, target, self._steps(complete, brief))
            else:
                answer = without_columns(part.program, limits)
        self.offer(None if answer.x is None else part.lift(answer.x))
        if answer.prices is not None and not self.done():
            self.take_prices(*certified(program, answer.prices))
        if complete:
            self.raise_bound(answer.bound)
        return complete

    def _steps(self, complete: bool, brief: bool) -> tuple[price.Step, ...]:
        """Return `price.solve`'s steps for a part: with few rows, larger parts replace growing kernels."""
        if _sifted(self._program):
            return "glance", "grow", "finish"
        return ("glance",) if brief and not complete else ("glance", "finish")


def greedy_point(program: KindProgram, limits: Limits, start: Start | None = None) -> Solution:
    """Build a point greedily among the columns that prices leave in question."""
    timer, program = Timer(limits.time_s), _threaded(program, limits)
    share_s = timer.share(0.5).remaining_s()
    dual = dual_of_kinds(program, share_s, _tolerance(program, limits), start)
    prices, bound = dual.prices, dual.bound
    if bound == np.inf:
        return infeasible(prices, "the LP relaxation is infeasible")
    frugal = _frugal(program)
    if timer.over() and frugal is not None:
        return replace(conclude(program, limits, frugal, bound, prices, "time"), dual=dual)
    size = _near(program)
    point = _ascended(program, dual, size, (), timer)
    if point is None and frugal is not None and not timer.over():
        # Under many rows what is near the prices need not fit together; what uses least does.
        point = _ascended(program, dual, max(size, _GREEDY_MOST), (frugal,), timer)
    point = frugal if point is None else point
    detail = "" if point is not None else greedy.NOTHING_FOUND
    limit: Limit | None = "time" if point is None and timer.over() else None
    return replace(conclude(program, limits, point, bound, prices, limit, detail), dual=dual)


def _near(program: KindProgram) -> int:
    """Return the number of columns, besides each group's least, that an ascent considers."""
    return max(SIZES[0], int(_GREEDY_SIZE * program.n_groups))


def _ascended(
    program: KindProgram, dual: Dual, size: int, points: Sequence[IntArray], timer: Timer
) -> IntArray | None:
    """Point that `greedy` finds among about `size` columns besides the groups' least, and the `points`."""
    part = part_of(program, dual.prices, program.threshold(dual.prices, size), points)
    with announcing_under(dual.bound, part.lift):
        if part.program.n_columns:
            found = greedy.ascend(part.program, dual.prices, timer)
        else:
            found = without_columns(part.program, Limits()).x
    return None if found is None else part.lift(found)


def _frugal(program: KindProgram) -> IntArray | None:
    """The point whose groups use least of the rows, relative to their limits; None where it violates one."""
    limits = (
        np.where(np.isfinite(ends), np.maximum(np.abs(ends), 1.0), np.inf)
        for ends in (program.row_lower, program.row_upper)
    )
    at_least, at_most = (_DEAR * program.cost_range() / limit for limit in limits)
    point = program.cheapest(at_least - at_most)
    return point if program.violation(point) <= VIOLATION else None
