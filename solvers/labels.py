r"""Programs of choices under few rows, solved exactly by labels: what some groups use, and what they cost.

With row prices :math:`y \le 0` that prove :math:`L(y)`, a point costs :math:`L(y)`, what the reduced costs of
its columns are above the least of their groups, and what it leaves of the rows, priced. The search begins at
the columns of least reduced cost, and lets one group after the other change, that of the cheapest change
first. A *label* is what the changes so far add to the rows and cost. It is dropped where it costs more than
is to be proven, where the groups that are left cannot make it fit, and where another one uses no more, and as
much of all rows but one, at no higher cost. No group that is left changes in a better point once its cheapest
change costs too much; mostly few groups are looked at.

For one row this is the expanding core of Pisinger ("A minimal algorithm for the multiple-choice knapsack
problem", European Journal of Operational Research 83, 1995); labels under several rows are those of resource
constrained shortest paths (Desrochers and Soumis, "A generalized permanent labelling algorithm for the
shortest path problem with time windows", INFOR 26, 1988).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import CANCELLATION, OVERDRAFT
from wattsched.solvers.few_prices import MOST_ROWS, few_prices
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import allowance, first_least, group_of_choice
from wattsched.solvers.solution import Limits, Solution, conclude, relative_gap
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, least_by, run_starts

MOST_COLUMNS = 2_500
"""The same of columns where several rows may bind: in larger programs kernels are as quick."""
MOST_ENTRIES = 2_000_000
"""The same of rows times columns, which are written out."""
MOST_WORK = 1_500_000
"""Labels that are looked at times rows and two: a tenth of a second, after which others are as quick."""
# Under two rows or more of more different coefficients than this labels are hardly ever alike: they are given
# up so many times sooner.
_FEW, _LESS = 32, 10
# A group takes as long as so many labels, whatever there are.
_STAGE = 300
# Of the time that is left others need the rest, where labels are too many.
_SHARE = 0.3
# What is looked for costs this share of the bound above it, and then so many times as much.
_FIRST_GAP, _WIDER = 3e-4, 3.0
# The same where the bound is about 0.
_LEAST = 1e-9
# Larger coefficients are not looked at for their greatest common divisor.
_LARGEST = 1e9


def solve(program: Program, limits: Limits) -> Solution | None:
    """Solve a program of choices under few rows; see the module's text.

    None where the program is another one, has no point, or takes too many labels.
    """
    if not _fits(program):
        return None
    timer = Timer(limits.time_s).share(_SHARE)
    rows = _Rows.of(program)
    if rows is None or (np.count_nonzero(rows.binding) > 1 and program.n_columns > MOST_COLUMNS):
        return None
    prices = rows.prices(timer)
    try:
        found = None if prices is None else _Search(rows, prices, timer).within(limits.gap)
    except _TooManyError:
        return None
    if found is None:
        return None
    columns, bound = found
    x = np.zeros(program.n_columns)
    x[columns] = 1.0
    solution = conclude(program, limits, x, bound, prices)
    # Where numbers of very different size leave only rounding of a proof, others find a better one.
    return solution if solution.termination.reason == "optimal" else None


def _fits(program: Program) -> bool:
    """True if a program is of choices alone, under few rows that have upper limits only."""
    if program.intervals is not None or not 0 < program.n_choices == program.n_columns:
        return False
    if not 0 < program.n_rows <= MOST_ROWS or program.n_rows * program.n_columns > MOST_ENTRIES:
        return False
    if np.isfinite(program.row_lower).any() or not program.integer.all():
        return False
    return bool(np.isfinite(program.cost).all())


@dataclass(frozen=True)
class _Rows:
    """The rows of a program, written out: `use` by the columns, `limit`, and the `slip` allowed beyond it.

    Limits are multiples of the greatest divisor of their row's coefficients where these are whole; `binding`
    are the rows that some choice fills, or breaks.
    """

    program: Program
    use: FloatArray
    limit: FloatArray
    slip: FloatArray
    binding: BoolArray

    @classmethod
    def of(cls, program: Program) -> _Rows | None:
        """Write the rows of a program out; None where differences of what they use are rounding."""
        use, limit = program.matrix.toarray(), program.row_upper.astype(float)
        starts = program.group_start[:-1]
        most = np.maximum.reduceat(use, starts, axis=1).sum(axis=1)
        # Rows that choices just fill may have a price, and rounding must not decide which do.
        slip = allowance(limit, OVERDRAFT)
        binding = most >= limit - slip
        size = np.maximum.reduceat(np.abs(use), starts, axis=1).sum(axis=1)
        if (CANCELLATION * size > allowance(limit))[binding].any():
            return None
        for row in np.flatnonzero(binding).tolist():
            if np.abs(use[row]).max() <= _LARGEST and (use[row] == np.rint(use[row])).all():
                unit = max(1, int(np.gcd.reduce(use[row].astype(np.int64))))
                limit[row] = np.floor((limit[row] + slip[row]) / unit) * unit
        return cls(program, use, limit, slip, binding)

    def prices(self, timer: Timer) -> FloatArray | None:
        """Row prices that prove most, or nearly; None where the LP relaxation has no point."""
        if (found := few_prices(self.program, self.use, self.binding, timer)) is not None:
            return found
        relaxed = solve_lp(self.program, Limits(time_s=timer.remaining_s()))
        if relaxed.termination.reason != "optimal" or relaxed.prices is None:
            return None
        return np.where(self.binding, relaxed.prices, 0.0)


class _Labels(NamedTuple):
    """Changes of the groups so far: what they add to the rows that may bind, and their reduced cost.

    Of the last group a label says what it changes to, -1 where it does not, and the label before.
    """

    use: FloatArray  # shape (n_labels, n_rows)
    above: FloatArray
    parent: IntArray
    column: IntArray

    def take(self, kept: BoolArray | IntArray) -> _Labels:
        """Some of them."""
        return _Labels(self.use[kept], self.above[kept], self.parent[kept], self.column[kept])


class _Open(NamedTuple):
    """Changes that cost less than something, those of a group together, that of the cheapest one first."""

    column: IntArray
    above: FloatArray  # their reduced cost
    use: FloatArray  # what they add to the rows, shape (n, n_rows)
    groups: list[slice]
    first: FloatArray  # the cheapest change of each group
    # What the groups from each one on cost at least for one more, and for one less, of a row.
    rise: FloatArray
    fall: FloatArray


class _TooManyError(Exception):
    """There were too many labels, or no time was left."""


class _Search:
    """Labels from the columns of least reduced cost on, at prices that are at most 0.

    `_base` are these columns, by group, and `_room` what they leave of the rows that may bind. Of these rows
    `_price` is the price without its sign, `_slip` the excess allowed; `_bound` is what the prices prove.
    """

    def __init__(self, rows: _Rows, prices: FloatArray, timer: Timer) -> None:
        program = rows.program
        self._timer, self._work = timer, 0
        self._group = group_of_choice(program)
        self._above = program.above_least(prices)
        self._base = first_least(self._above, program.group_start)
        kept = np.flatnonzero(rows.binding)
        # Labels that are compared may differ in the last row: best in that with most different coefficients.
        different = np.array([len(np.unique(rows.use[row])) for row in kept], dtype=np.int64)
        kept = kept[np.argsort(different, kind="stable")]
        self._most_work = MOST_WORK if np.count_nonzero(different > _FEW) <= 1 else MOST_WORK // _LESS
        self._use, self._price = rows.use[kept].T, -prices[kept]
        self._room = rows.limit[kept] - self._use[self._base].sum(axis=0)
        self._slip = rows.slip[kept]
        cost = float(program.cost[self._base].sum()) + program.offset
        # What the prices prove of limits that are rounded down.
        self._bound = cost - float(self._price @ self._room)

    def within(self, gap: float) -> tuple[IntArray, float] | None:
        """Columns of the best point, or of one within the gap, and the bound proven; None for no point."""
        # `spare` is what the best point so far costs above the bound.
        bound, spare, columns = self._bound, np.inf, self._base
        if (self._room >= -self._slip).all():
            spare = float(self._price @ np.maximum(self._room, 0.0))
        guess = max(gap, _FIRST_GAP) * max(abs(bound), _LEAST)
        while spare == np.inf or relative_gap(bound + spare, bound) > gap:
            better = self._explored(min(guess, spare), gap)
            if better is not None:
                spare, columns, complete = better
                return columns, bound + spare if complete else bound
            if spare <= guess:
                return columns, bound + spare
            if guess > self._dearest():
                return None
            guess *= _WIDER
        return columns, bound

    def _dearest(self) -> float:
        """Return an upper bound on how much any point costs above the bound."""
        change = self._use - self._use[self._base][self._group]
        left = np.maximum(self._room - change.min(axis=0, initial=0.0) * len(self._base), 0.0)
        return float(self._above.max(initial=0.0)) * len(self._base) + float(self._price @ left)

    def _open(self, spare: float) -> _Open:
        """Changes of the groups' columns of least reduced cost that cost less than `spare` above these."""
        cheap = self._above < spare
        cheap[self._base] = False
        column = np.flatnonzero(cheap)
        first = least_by(self._group[column], self._above[column], len(self._base))
        # Groups in the order of their cheapest change, each with its own together.
        column = column[np.lexsort((self._group[column], first[self._group[column]]))]
        group, above = self._group[column], self._above[column]
        use = self._use[column] - self._use[self._base[group]]
        per_use = np.divide(above[:, None], np.abs(use), out=np.zeros(use.shape), where=use != 0.0)
        begins = run_starts(group)
        rise = _least_from_each_on(np.where(use > 0.0, per_use, np.inf), begins)
        fall = _least_from_each_on(np.where(use < 0.0, per_use, np.inf), begins)
        groups = [slice(*ends) for ends in pairwise([*begins.tolist(), len(column)])]
        return _Open(column, above, use, groups, first[group[begins]], rise, fall)

    def _explored(self, spare: float, gap: float) -> tuple[float, IntArray, bool] | None:
        """The best point that costs less than `spare` above the bound, or the first within the relative gap.

        It comes as its cost above the bound, its columns, and whether no other costs less; None for no point.
        """
        left, found = self._open(spare), None
        n_rows = self._use.shape[1]
        parent, column = np.zeros(1, dtype=np.int64), np.full(1, -1)
        stages = [_Labels(np.zeros((1, n_rows)), np.zeros(1), parent, column)]
        for number, first in enumerate(left.first.tolist()):
            if first >= spare:
                break
            labels = self._undominated(self._extended(stages[-1], left, number, spare))
            stages.append(labels)
            if len(labels.above) == 0:
                break
            fits = np.flatnonzero((labels.use <= self._room + self._slip).all(axis=1))
            above = labels.above[fits] + np.maximum(self._room - labels.use[fits], 0.0) @ self._price
            if len(fits) and above.min() < spare:
                best = int(np.argmin(above))
                spare, found = float(above[best]), (number + 1, int(fits[best]))
                if relative_gap(self._bound + spare, self._bound) <= gap:
                    return spare, self._columns(stages, *found), False
        return None if found is None else (spare, self._columns(stages, *found), True)

    def _extended(self, labels: _Labels, left: _Open, number: int, spare: float) -> _Labels:
        """Labels with and without changes of the group `number` that may come to less than `spare`."""
        changes = left.groups[number]
        above = left.above[changes][:, None] + labels.above
        self._work += (above.size + _STAGE) * (2 + labels.use.shape[1])
        if self._work > self._most_work or self._timer.over():
            raise _TooManyError
        change, parent = np.nonzero(above < spare)
        joined = _Labels(
            np.concatenate([labels.use, labels.use[parent] + left.use[changes][change]]),
            np.concatenate([labels.above, above[change, parent]]),
            np.concatenate([np.arange(len(labels.above)), parent]),
            np.concatenate([np.full(len(labels.above), -1), left.column[changes][change]]),
        )
        return joined.take(joined.above + self._completed(joined, left, number + 1) < spare)

    def _completed(self, labels: _Labels, left: _Open, number: int) -> FloatArray:
        """Return, by label, a lower bound on the cost of completing it by the groups from `number` on.

        It is that of the costliest row: what is left is filled or paid at its price, too much needs room.
        """
        room = self._room - labels.use
        # Of a unit: what filling it costs at least, by changes of these groups or paid, and what freeing one.
        fill = np.maximum(room, 0.0) * np.minimum(self._price, left.rise[number])
        excess = np.where(room < -self._slip, -room, 0.0)
        make_room = np.multiply(excess, left.fall[number], out=np.zeros_like(room), where=excess > 0.0)
        return np.asarray((fill + make_room).max(axis=1, initial=0.0))

    def _undominated(self, labels: _Labels) -> _Labels:
        """Labels without those that use no less than another one, and as much of all rows but the last."""
        if len(labels.above) == 0:
            return labels
        # What a label costs with what it leaves of the rows at their prices, up to a constant.
        cost = labels.above - labels.use @ self._price
        order = np.lexsort((cost, *labels.use.T[::-1]))
        use, cost = labels.use[order, :-1], cost[order]
        if use.shape[1]:
            # Sections of alike ones, each below the one before.
            section = np.cumsum(np.append(True, (use[1:] != use[:-1]).any(axis=1)))
            rank = np.empty(len(cost), dtype=np.int64)
            rank[np.argsort(cost, kind="stable")] = np.arange(len(cost))
            cost = rank - section * len(cost)
        kept = np.append(True, cost[1:] < np.minimum.accumulate(cost)[:-1])
        return labels.take(order[kept])

    def _columns(self, stages: list[_Labels], number: int, label: int) -> IntArray:
        """Columns of the groups by a label of the stage of that number, shape (n_groups,)."""
        columns = self._base.copy()
        for labels in stages[number:0:-1]:
            if (column := int(labels.column[label])) >= 0:
                columns[self._group[column]] = column
            label = int(labels.parent[label])
        return columns


def _least_from_each_on(values: FloatArray, begins: IntArray) -> FloatArray:
    """Least value of each column in the sections from each one on, shape (n_sections + 1, n_columns)."""
    least = np.full((len(begins) + 1, values.shape[1]), np.inf)
    sections = np.minimum.reduceat(values, begins, axis=0)
    least[:-1] = np.minimum.accumulate(sections[::-1], axis=0)[::-1]
    return least
