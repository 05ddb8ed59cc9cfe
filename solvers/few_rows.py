"""The rows of a program that has few of them, written out, and the prices of these that prove most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import CANCELLATION, OVERDRAFT
from wattsched.solvers.few_prices import few_prices
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import allowance
from wattsched.solvers.solution import Limits
from wattsched.topology.arrays import BoolArray, FloatArray

# Larger coefficients are not looked at for their greatest common divisor.
_LARGEST = 1e9


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

    def prices(self, timer: Timer) -> FloatArray | None:
        """Row prices that prove most, or nearly; None where the LP relaxation has no point."""
        found = few_prices(self.program, self.use, self.binding, timer)
        if found is not None:
            return found
        relaxed = solve_lp(self.program, Limits(time_s=timer.remaining_s()))
        if relaxed.termination.reason != "optimal" or relaxed.prices is None:
            return None
        return np.where(self.binding, relaxed.prices, 0.0)
