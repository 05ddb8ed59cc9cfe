r"""Programs in which one row binds, and is of whole numbers: a multiple-choice knapsack, solved exactly.

Rounds in which GPUs are short and nothing else are such programs. The other rows are left out; where the
optimum without them keeps them, it is the program's. At the price :math:`y` that maximises the
Lagrangian bound :math:`L(y)`, a point costs :math:`L(y)`, what the reduced costs of its columns are above the
least of their groups, and what it leaves of the row, priced. A dynamic program over the use of the row lets
one group after the other choose, that of the cheapest change first. It ends where no group that is left can
change in a better point than the best one known, mostly after a few of them (Pisinger, "A minimal algorithm
for the multiple-choice knapsack problem", European Journal of Operational Research 83, 1995).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.rows import first_least, group_of_choice
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Solution,
    Start,
    conclude,
    relative_gap,
)
from wattsched.topology.arrays import FloatArray, IntArray

MOST_ROWS = 20
"""Programs with more rows are not looked at: it is rare that one of them binds alone."""
MOST_ENTRIES = 2_000_000
"""The same of rows times columns, which are written out."""
MOST_WORK = 30_000_000
"""Additions of the dynamic program, a tenth of a second's worth: with more, others are as quick."""
# Prices that are looked at for the best one; mostly it takes less than ten.
_MOST_PRICES = 100
# Coefficients that are as large are not whole in a useful way.
_LARGEST = 1e9
# What is rounding of a sum of costs, relative to it.
_ROUNDING = 1e-12


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution | None:
    """Solve a program in which at most one row binds; see the module's text.

    Returns
    -------
    Solution or None
        None where the program is another one, has no point, or has too many columns in question.
    """
    timer = Timer(limits.time_s)
    if not _fits(program):
        return None
    uses = program.matrix.toarray()
    for knapsack in _knapsacks(program, uses):
        relaxed = knapsack.relaxed(None if start is None else start.prices)
        if relaxed is None:
            return None
        prices, columns = relaxed
        if not _keeps_rows(program, uses, columns):
            continue
        search = _Search(knapsack, -float(prices[knapsack.row]) * knapsack.unit, columns)
        # The price proves as much of the row whose limit is a whole number of units.
        bound = program.objective(_point(program, columns)) - search.spare
        proven, columns = search.widen(limits.gap, bound, timer), search.columns()
        if proven is not None and _keeps_rows(program, uses, columns):
            limit: Limit | None = "time" if timer.over() else None
            return conclude(program, limits, _point(program, columns), proven, prices, limit)
    return None


def _fits(program: Program) -> bool:
    """Whether a program is of choices alone, under few rows that have upper limits only."""
    if program.intervals is not None or not 0 < program.n_choices == program.n_columns:
        return False
    if not 0 < program.n_rows <= MOST_ROWS or program.n_rows * program.n_columns > MOST_ENTRIES:
        return False
    if np.isfinite(program.row_lower).any() or not program.integer.all():
        return False
    return bool(np.isfinite(program.cost).all())


def _keeps_rows(program: Program, uses: FloatArray, columns: IntArray) -> bool:
    return bool((uses[:, columns].sum(axis=1) <= program.row_upper).all())


def _point(program: Program, columns: IntArray) -> FloatArray:
    x = np.zeros(program.n_columns)
    x[columns] = 1.0
    return x


class _Line(NamedTuple):
    """A column of every group, what they cost, and what they use: a line over the price."""

    columns: IntArray
    cost: float
    use: float


@dataclass(frozen=True)
class _Knapsack:
    """One column of every group, which together use no more than there is room for.

    Attributes
    ----------
    program : Program
    row : int
        The one that may bind.
    unit : float
        Greatest common divisor of its coefficients.
    use : float array, shape (n_choices,)
        These in units, whole numbers where it may bind.
    room : float
        Its limit in units, rounded down, or infinite where it never binds.
    """

    program: Program
    row: int
    unit: float
    use: FloatArray
    room: float

    def relaxed(self, known: FloatArray | None) -> tuple[FloatArray, IntArray] | None:
        """Row prices that prove most, and columns of least reduced cost there that fit.

        The bound is the least of lines over the price, of one choice of columns each. Of two lines on either
        side of the best price, where they meet is the next price to look at.

        Parameters
        ----------
        known : float array, shape (n_rows,), optional
            Prices that may be about right.

        Returns
        -------
        tuple of float array, int array, or None
            None where the program has no point.
        """
        prices = np.zeros(self.program.n_rows)
        above, below = self._cheapest(0.0), self._line(first_least(self.use, self.program.group_start))
        if above.use <= self.room:
            return prices, above.columns
        if below.use > self.room:
            return None
        price = 0.0 if known is None else -float(known[self.row]) * self.unit
        if price > 0.0:
            above, below = self._narrowed(above, below, self._cheapest(price))
        for _ in range(_MOST_PRICES):
            price = (below.cost - above.cost) / (above.use - below.use)
            line = self._cheapest(price)
            met, value = below.cost + price * below.use, line.cost + price * line.use
            if value >= met - _ROUNDING * (abs(below.cost) + price * abs(below.use)):
                break
            above, below = self._narrowed(above, below, line)
        prices[self.row] = -price / self.unit
        return prices, below.columns

    def _narrowed(self, above: _Line, below: _Line, line: _Line) -> tuple[_Line, _Line]:
        """The two lines, one of them replaced by another one on the same side of the room."""
        return (line, below) if line.use > self.room else (above, line)

    def _cheapest(self, price: float) -> _Line:
        """Columns that cost least at a price."""
        return self._line(first_least(self.program.cost + price * self.use, self.program.group_start))

    def _line(self, columns: IntArray) -> _Line:
        return _Line(columns, float(self.program.cost[columns].sum()), float(self.use[columns].sum()))


def _knapsacks(program: Program, uses: FloatArray) -> Iterator[_Knapsack]:
    """Knapsack of every row that may bind and is of whole numbers, or that of no row if none may bind."""
    most = np.maximum.reduceat(uses, program.group_start[:-1], axis=1).sum(axis=1)
    binding = np.flatnonzero(most > program.row_upper)
    if len(binding) == 0:
        yield _Knapsack(program, 0, 1.0, uses[0], np.inf)
    for row in binding.tolist():
        use, limit = uses[row], float(program.row_upper[row])
        if np.abs(use).max() <= _LARGEST and (use == np.rint(use)).all():
            unit = max(1.0, float(np.gcd.reduce(use.astype(np.int64))))
            yield _Knapsack(program, row, unit, use / unit, float(np.floor(limit / unit)))


class _Table(NamedTuple):
    """The least reduced cost of some groups' changes by what they change the use, the lowest first."""

    lowest: int
    above: FloatArray


class _Search:
    """The dynamic program over a core of groups that grows.

    Parameters
    ----------
    knapsack : _Knapsack
    price : float
        Of a unit of the row, at least 0.
    base : int array, shape (n_groups,)
        Columns of least reduced cost, which fit.

    Attributes
    ----------
    spare : float
        What the best point known costs above the bound.
    """

    def __init__(self, knapsack: _Knapsack, price: float, base: IntArray) -> None:
        program, use = knapsack.program, knapsack.use
        self._price, self._base = price, base
        # Without a price everything is as cheap as can be.
        self._room = int(knapsack.room - use[base].sum()) if price > 0.0 else 0
        self.spare = price * self._room
        group = group_of_choice(program)
        reduced = program.cost + price * use
        above = np.maximum(reduced - reduced[base][group], 0.0)
        change = use - use[base][group]
        changes = np.flatnonzero((above < self.spare) & (change != 0.0))
        first = np.full(program.n_groups, np.inf)
        np.minimum.at(first, group[changes], above[changes])
        changes = changes[np.lexsort((group[changes], first[group[changes]]))]
        self._changes, self._above = changes, above[changes]
        self._change = change[changes].astype(np.int64)
        begins = np.flatnonzero(np.diff(group[changes], prepend=-1))
        ends = [*begins[1:].tolist(), len(changes)]
        self._groups = [slice(*ends_of) for ends_of in zip(begins.tolist(), ends, strict=False)]
        self._first, self._of = first[group[changes[begins]]], group[changes[begins]]
        self._tables = [_Table(0, np.zeros(1))]
        # Groups that may change in the best point, and what they change the use.
        self._best = 0, 0

    def widen(self, gap: float, bound: float, timer: Timer) -> float | None:
        """Let groups change until the gap is closed, or no other group changes in a better point.

        Parameters
        ----------
        gap : float
        bound : float
            What the price proves of the knapsack.

        Returns
        -------
        float or None
            What is proven of all points; None where that is too much work.
        """
        work = 0
        for number, changes in enumerate(self._groups):
            if relative_gap(bound + self.spare, bound) <= gap or timer.over():
                return bound
            if self._first[number] >= self.spare:
                break
            table = self._joined(changes)
            self._tables.append(table)
            self._complete(table)
            work += (changes.stop - changes.start) * len(table.above)
            if work > MOST_WORK:
                return None
        return bound + self.spare

    def _joined(self, changes: slice) -> _Table:
        """Table with the changes of one more group."""
        before, step, above = self._tables[-1], self._change[changes], self._above[changes]
        lowest, n = min(0, int(step.min())), len(before.above)
        joined = np.full(n + max(0, int(step.max())) - lowest, np.inf)
        joined[-lowest : n - lowest] = before.above
        for by, dearer in zip((step - lowest).tolist(), above.tolist(), strict=True):
            if dearer < self.spare:
                place = joined[by : by + n]
                np.minimum(place, before.above + dearer, out=place)
        few = np.flatnonzero(joined <= self.spare)
        return _Table(before.lowest + lowest + int(few[0]), joined[few[0] : few[-1] + 1])

    def _complete(self, table: _Table) -> None:
        """Take the best point of a table, if it is better."""
        fits = table.above[: max(0, self._room - table.lowest + 1)]
        spare = fits + self._price * np.arange(self._room - table.lowest, -1, -1)[: len(fits)]
        best = int(np.argmin(spare))
        if spare[best] < self.spare:
            self.spare = float(spare[best])
            self._best = len(self._tables) - 1, table.lowest + best

    def columns(self) -> IntArray:
        """Columns of the best point, shape (n_groups,)."""
        columns = self._base.copy()
        number, change = self._best
        for k in range(number - 1, -1, -1):
            before, changes = self._tables[k], self._groups[k]
            place = change - self._change[changes] - before.lowest
            known = (place >= 0) & (place < len(before.above))
            above = before.above[np.where(known, place, 0)] + self._above[changes]
            above[~known] = np.inf
            best, stay = int(np.argmin(above)), change - before.lowest
            if not 0 <= stay < len(before.above) or above[best] < before.above[stay]:
                columns[self._of[k]] = self._changes[changes][best]
                change -= int(self._change[changes][best])
        return columns
