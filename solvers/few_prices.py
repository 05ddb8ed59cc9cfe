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
# The second prices that are tried are so much higher or lower than those known.
_BESIDE = 0.05
# What a row lacks costs so many times what all groups together may save.
_LACK = 1e6
# What counts as nothing, of prices and of entries of a column.
_NOTHING = 1e-9


def prices_of_few(program: Program, known: FloatArray | None, timer: Timer) -> FloatArray | None:
    """Prices of a program's rows that prove most, if it is one of choices under few upper limits.

    Parameters
    ----------
    known : float array, shape (n_rows,), optional
        Prices that may be about right.
    timer : Timer

    Returns
    -------
    float array, shape (n_rows,), or None
        At most 0.
    """
    if not 0 < program.n_choices == program.n_columns <= _MOST_COLUMNS or program.bottleneck is not None:
        return None
    if not 0 < program.n_rows <= MOST_ROWS or np.isfinite(program.row_lower).any():
        return None
    use = program.matrix.toarray()
    most = np.maximum.reduceat(use, program.group_start[:-1], axis=1).sum(axis=1)
    return few_prices(program, use, most > program.row_upper, known, timer)


def few_prices(
    program: Program, use: FloatArray, binding: BoolArray, known: FloatArray | None, timer: Timer
) -> FloatArray | None:
    """Prices of a program's rows as they are written out.

    Parameters
    ----------
    use : float array, shape (n_rows, n_columns)
    binding : bool array, shape (n_rows,)
        Rows that may have a price.
    known : float array, shape (n_rows,), optional
        Prices that may be about right.
    timer : Timer

    Returns
    -------
    float array, shape (n_rows,), or None
        At most 0; None where no mixture of points is within the limits, or it takes too many of them, or too
        long.
    """
    rows = np.flatnonzero(binding)
    if len(rows) > _MOST_BINDING:
        return None
    use, limit = use[rows], program.row_upper[rows]
    # In units of about the rows' size, and of what all groups together may save: powers of two, which round
    # nothing.
    size = np.exp2(np.frexp(np.maximum(np.abs(use).max(axis=1, initial=0.0), np.abs(limit)))[1])
    worth = float(np.exp2(np.frexp(cost_range(program))[1]))
    search = _Search(program.cost / worth, use / size[:, None], limit / size, program.group_start)
    found = search.prices(np.zeros(len(rows)) if known is None else -known[rows] * size / worth, timer)
    if found is None:
        return None
    prices = np.zeros(program.n_rows)
    prices[rows] = -found * worth / size
    return prices + 0.0  # no -0.0


class _Point(NamedTuple):
    """A column of every group: what they cost, and use of the rows."""

    cost: float
    use: FloatArray


@dataclass(frozen=True)
class _Search:
    """Rows that may have a price, written out, and the groups."""

    cost: FloatArray
    use: FloatArray
    limit: FloatArray
    group_start: IntArray

    def prices(self, known: FloatArray, timer: Timer) -> FloatArray | None:
        """Prices, at least 0, that prove most."""
        nothing = np.zeros(len(self.limit))
        basis = _Basis(self.limit, self._cheapest(nothing))
        if basis.fits():
            return nothing
        tried = np.maximum(known, 0.0) if np.isfinite(known).all() and (known > 0.0).any() else None
        best, best_prices = -np.inf, nothing
        for number in range(_MOST_POINTS):
            prices, value = basis.priced()
            at = prices if tried is None else tried
            point = self._cheapest(at)
            proven = point.cost + float(at @ (point.use - self.limit))
            if proven > best:
                best, best_prices = proven, at
            size = abs(point.cost) + float(at @ (np.abs(point.use) + np.abs(self.limit)))
            lacks = (value - best) / (size or 1.0)
            if lacks <= LAST_DIGITS or (not basis.enter(point) and tried is None):
                return best_prices if lacks <= _NOTHING and basis.fits() else None
            if tried is not None and number == 0:
                # Most likely on the other side of the best prices.
                tried = tried * np.where(point.use > self.limit, 1.0 + _BESIDE, 1.0 - _BESIDE)
            else:
                tried = None
            if timer.over():
                break
        return None

    def _cheapest(self, prices: FloatArray) -> _Point:
        """What costs least under prices."""
        columns = first_least(self.cost + prices @ self.use, self.group_start)
        return _Point(float(self.cost[columns].sum()), self.use[:, columns].sum(axis=1))


class _Basis:
    """Points and slacks, the mixture of them that uses the limits, and prices at which they cost the same.

    Until there is such a mixture, what rows lack is dear.

    Parameters
    ----------
    limit : float array, shape (n_rows,)
    cheapest : _Point
    """

    def __init__(self, limit: FloatArray, cheapest: _Point) -> None:
        n, (cost, use) = len(limit), cheapest
        over = use > limit
        sign = np.where(over, -1.0, 1.0)
        self._cost = np.append(np.where(over, _LACK, 0.0), cost)
        self._is_lack = np.append(over, False)
        # Of the slacks, and in the last row of the point: one is taken.
        self._inverse = np.diag(np.append(sign, 1.0))
        self._inverse[:n, n] = -sign * use
        self._share = np.append(sign * (limit - use), 1.0)

    def priced(self) -> tuple[FloatArray, float]:
        """Prices of the basis, none below 0, and what it costs."""
        prices = -(self._cost @ self._inverse)[:-1]
        for _ in range(len(self._cost)):
            if prices.min() >= -_NOTHING:
                break
            if not self._exchange(self._inverse[:, prices.argmin()].copy(), 0.0):
                break
            prices = -(self._cost @ self._inverse)[:-1]
        return np.maximum(prices, 0.0), float(self._cost @ self._share)

    def enter(self, point: _Point) -> bool:
        """Let a point in if that makes the mixture cheaper; whether it does."""
        rate = self._inverse[:, :-1] @ point.use + self._inverse[:, -1]
        return point.cost < float(self._cost @ rate) and self._exchange(rate, point.cost)

    def fits(self) -> bool:
        """Whether the mixture is within all limits."""
        return not (self._share[self._is_lack] > 0.0).any()

    def _exchange(self, rate: FloatArray, cost: float) -> bool:
        """Put a column in the place of the first that runs out; whether one does.

        Parameters
        ----------
        rate : float array, shape (n_rows + 1,)
            What of each column of the basis one of the new column is.
        """
        falls = rate > _NOTHING * max(1.0, float(np.abs(rate).max()))
        if not falls.any():
            return False
        until = np.divide(np.maximum(self._share, 0.0), rate, out=np.full(len(rate), np.inf), where=falls)
        leaves = int(until.argmin())
        row, step = self._inverse[leaves] / rate[leaves], self._share[leaves] / rate[leaves]
        self._inverse -= rate[:, None] * row
        self._share -= rate * step
        self._inverse[leaves], self._share[leaves] = row, step
        self._cost[leaves], self._is_lack[leaves] = cost, False
        return True
