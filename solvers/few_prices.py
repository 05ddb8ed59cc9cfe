r"""Row prices of a program of choices under few rows: the simplex method over whole points.

With prices :math:`y \ge 0` the bound :math:`L(y) = \min_p c_p + y (u_p - b)` is the least of lines, one for
each point :math:`p`, a column of every group: what it costs and uses of the rows (Dantzig and Wolfe,
"Decomposition principle for linear programs", Operations Research 8, 1960). As many points and slacks as
there are rows, and one, are a basis, which names prices. The point that costs least under these takes the
place of another one, until none costs less than the basis says.

A point takes one pass over the columns, and few rows take few points. The LP relaxation of a thousand columns
takes two to three times as long, and cutting planes, which solve an LP for each point, six times.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import LAST_DIGITS
from wattsched.solvers.rows import cost_range, first_least
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

MOST_ROWS = 20
"""More rows are not written out."""
# Under more rows that may bind, or with more columns, others are as quick.
_MOST_BINDING, _MOST_COLUMNS = 6, 20_000
# Points that are looked at; mostly it takes eight for one row, fifteen for two.
_MOST_POINTS = 100
# What prices may charge, in the units below: a bound is the difference.
_MOST_CHARGED = 1e6
# How short of the best bound prices may be, and what is no lack of a row, in these units.
_SHORT, _NO_LACK = 1e-9, 1e-12
# What counts as nothing, of prices and of entries of a column.
_NOTHING = 1e-9


def prices_of_few(program: Program, timer: Timer) -> FloatArray | None:
    """Prices of a program's rows that prove most, at most 0, if it is one of choices under few upper limits.

    None where no mixture of points is within the limits, or it takes too many of them, or too long.
    """
    if not 0 < program.n_choices == program.n_columns <= _MOST_COLUMNS or program.bottleneck is not None:
        return None
    if not 0 < program.n_rows <= MOST_ROWS or np.isfinite(program.row_lower).any():
        return None
    use = program.matrix.toarray()
    most = np.maximum.reduceat(use, program.group_start[:-1], axis=1).sum(axis=1)
    return few_prices(program, use, most > program.row_upper, timer)


def few_prices(program: Program, use: FloatArray, binding: BoolArray, timer: Timer) -> FloatArray | None:
    """Prices as of `prices_of_few`, where `use` is the matrix written out; only `binding` rows have one."""
    rows, prices = np.flatnonzero(binding), np.zeros(program.n_rows)
    if len(rows) == 0:
        return prices
    if len(rows) > _MOST_BINDING:
        return None
    use, limit = use[rows], program.row_upper[rows]
    # In units of about the rows' size, and of what all groups together may save: powers of two, which round
    # nothing.
    _, size_exponent = np.frexp(np.maximum(np.abs(use).max(axis=1, initial=0.0), np.abs(limit)))
    _, worth_exponent = np.frexp(cost_range(program))
    size, worth = np.exp2(size_exponent), float(np.exp2(worth_exponent))
    search = _Search(program.cost / worth, use / size[:, None], limit / size, program.group_start)
    found = search.prices(timer)
    if found is None:
        return None
    prices[rows] = -found * (worth / size)
    return prices + 0.0  # no -0.0


class _Point(NamedTuple):
    """A column of every group: what they cost, and use of the rows."""

    cost: float
    use: FloatArray


@dataclass(frozen=True)
class _Search:
    """Cost of columns and their use of the rows that may have a price, shape (n_rows, n_columns)."""

    cost: FloatArray
    use: FloatArray
    limit: FloatArray
    group_start: IntArray

    def prices(self, timer: Timer) -> FloatArray | None:
        """Prices, at least 0, that prove most; None where they are not found, or not soon enough."""
        nothing = np.zeros(len(self.limit))
        basis = _Basis(self.limit, self._cheapest(nothing))
        if not basis.lacks and not basis.prices()[0].any():
            return nothing
        for _ in range(_MOST_POINTS):
            prices, value = basis.prices()
            if basis.lacks:
                if not basis.enter(self._cheapest(prices, costs=False)):
                    return None
            else:
                point = self._cheapest(prices)
                short = value - point.cost - float(prices @ (point.use - self.limit))
                # A bound is the difference of what the point costs and what rows are charged.
                size = abs(point.cost) + float(prices @ np.abs(self.limit))
                if short <= LAST_DIGITS * size or not basis.enter(point):
                    # Rounding may lead to negative shares.
                    sound = (basis.share >= -_NO_LACK).all() and size < _MOST_CHARGED
                    return prices if sound and short <= _SHORT else None
            if timer.over():
                break
        return None

    def _cheapest(self, prices: FloatArray, *, costs: bool = True) -> _Point:
        """Return the point of least cost and priced use; without `costs` that of least priced use."""
        priced = prices @ self.use
        columns = first_least(self.cost + priced if costs else priced, self.group_start)
        return _Point(float(self.cost[columns].sum()), self.use[:, columns].sum(axis=1))


class _Basis:
    """Points and slacks, the mixture of them that uses the limits, and prices at which they cost the same.

    While the mixture `lacks` something, as it is beyond a limit, that is all that costs anything. `share` is
    how much it takes of each, `_inverse` the inverse of the matrix of their columns.
    """

    def __init__(self, limit: FloatArray, cheapest: _Point) -> None:
        n, (cost, use) = len(limit), cheapest
        over = use > limit
        sign = np.where(over, -1.0, 1.0)
        self._cost = np.append(np.zeros(n), cost)
        self._lack = np.append(over, False).astype(float)
        self.lacks = bool(over.any())
        # Of the slacks, and in the last row of the point: one is taken.
        self._inverse = np.diag(np.append(sign, 1.0))
        self._inverse[:n, n] = -sign * use
        self.share = np.append(sign * (limit - use), 1.0)

    def prices(self) -> tuple[FloatArray, float]:
        """Prices of the basis, none below 0, and what it costs."""
        for _ in range(len(self._cost)):
            prices = -(self._counted() @ self._inverse)[:-1]
            # Below 0: the mixture is cheaper with that row's slack.
            row = int(prices.argmin())
            if prices[row] >= -_NOTHING or not self._exchange(self._inverse[:, row].copy(), cost=0.0):
                break
        return np.maximum(prices, 0.0), float(self._counted() @ self.share)

    def enter(self, point: _Point) -> bool:
        """Let a point into the basis if that makes the mixture cheaper; return whether it does."""
        rate = self._inverse[:, :-1] @ point.use + self._inverse[:, -1]
        cost = 0.0 if self.lacks else point.cost
        return cost < float(self._counted() @ rate) and self._exchange(rate, point.cost)

    def _counted(self) -> FloatArray:
        return self._lack if self.lacks else self._cost

    def _exchange(self, rate: FloatArray, cost: float) -> bool:
        """Put a column in the place of the first of the basis that runs out; False where none does.

        `rate` is how much of each it replaces, per unit; `cost` is the column's own.
        """
        falls = rate > _NOTHING * max(1.0, float(np.abs(rate).max()))
        if not falls.any():
            return False
        until = np.divide(np.maximum(self.share, 0.0), rate, out=np.full(len(rate), np.inf), where=falls)
        leaves = int(until.argmin())
        row, step = self._inverse[leaves] / rate[leaves], self.share[leaves] / rate[leaves]
        self._inverse -= rate[:, None] * row
        self.share -= rate * step
        self._inverse[leaves], self.share[leaves] = row, step
        self._cost[leaves], self._lack[leaves] = cost, 0.0
        if self.lacks and float(self._lack @ np.maximum(self.share, 0.0)) <= _NO_LACK:
            # Nothing is lacking any more: slacks replace the columns that stood for it.
            ended = self._lack > 0.0
            self._inverse[ended] *= -1.0
            self.share[ended] = 0.0
            self._lack[:], self.lacks = 0.0, False
        return True
