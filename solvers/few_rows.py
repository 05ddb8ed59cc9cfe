"""The rows of a program that has few of them, written out, and the prices of these that prove most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import CANCELLATION, LAST_DIGITS, OVERDRAFT
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import allowance, first_least
from wattsched.solvers.solution import Limits
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# Prices of one row that are looked at; mostly it takes less than ten.
_MOST_PRICES = 100
# Prices that cannot be of use.
_ABSURD = 1e30
# Larger coefficients are not looked at for their greatest common divisor.
_LARGEST = 1e9


class _Line(NamedTuple):
    """A column of every group, what they cost, and what they use of a row: a line over its price."""

    columns: IntArray
    cost: float
    use: float


@dataclass(frozen=True)
class FewRows:
    """The rows of a program, written out.

    Attributes
    ----------
    program : Program
    use : float array, shape (n_rows, n_columns)
    limit : float array, shape (n_rows,)
        A multiple of the row's coefficients, where these are whole.
    slip : float array, shape (n_rows,)
        How far a row may be beyond its limit.
    binding : bool array, shape (n_rows,)
        Rows that some choice fills, or breaks.
    """

    program: Program
    use: FloatArray
    limit: FloatArray
    slip: FloatArray
    binding: BoolArray

    @classmethod
    def of(cls, program: Program) -> FewRows | None:
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

    def prices(self, known: FloatArray | None, timer: Timer) -> FloatArray | None:
        """Row prices that prove most, or nearly; None where the LP relaxation has no point.

        Those of one row, where it is the only one that what costs least breaks, and the LP's otherwise.
        """
        program, prices = self.program, np.zeros(self.program.n_rows)
        cheapest = first_least(program.cost, program.group_start)
        broken = np.flatnonzero(self.use[:, cheapest].sum(axis=1) > self.limit)
        if len(broken) == 0:
            return prices
        if len(broken) == 1:
            [row] = broken.tolist()
            begin = 0.0 if known is None else -float(known[row])
            found = self._price_of(row, cheapest, begin if 0.0 < begin < _ABSURD else 0.0)
            if found is None:
                return None
            prices[row], columns = found
            if (self.use[:, columns].sum(axis=1) <= self.limit).all():
                return prices
        relaxed = solve_lp(program, Limits(time_s=timer.remaining_s()))
        if relaxed.termination.reason != "optimal" or relaxed.prices is None:
            return None
        return np.where(self.binding, relaxed.prices, 0.0)

    def _price_of(self, row: int, cheapest: IntArray, price: float) -> tuple[float, IntArray] | None:
        """Price of a row that proves most if there are no others, and columns that cost least then and fit.

        The bound is the least of lines over the price, of one choice of columns each. Of two lines on either
        side of the best price, where they meet is the next price to look at.

        Parameters
        ----------
        cheapest : int array, shape (n_groups,)
            Columns that cost least, which do not fit.
        price : float
            What may be about right.
        """
        cost, use, limit, starts = self.program.cost, self.use[row], self.limit[row], self.program.group_start

        def of(columns: IntArray) -> _Line:
            return _Line(columns, float(cost[columns].sum()), float(use[columns].sum()))

        def at(price: float) -> _Line:
            return of(first_least(cost + price * use, starts))

        above, below = of(cheapest), of(first_least(use, starts))
        if below.use > limit:
            return None
        now = at(price) if price > 0.0 else above
        for _ in range(_MOST_PRICES):
            above, below = (now, below) if now.use > limit else (above, now)
            price = (below.cost - above.cost) / (above.use - below.use)
            now = at(price)
            met, value = below.cost + price * below.use, now.cost + price * now.use
            size = sum(abs(line.cost) + price * abs(line.use) for line in (above, below))
            if value >= met - LAST_DIGITS * size:
                return -price, below.columns
        return None
