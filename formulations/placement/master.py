"""An LP that grows by generated columns, held and solved by HiGHS."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from wattsched.formulations.master import solve_growing
from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import sparray


@dataclass(frozen=True)
class LpOptimum:
    """Optimum of an LP: its cost, the duals of its rows, and the values of its columns."""

    cost: float
    prices: FloatArray
    x: FloatArray


class RestrictedMaster:
    r"""Minimise :math:`c^T x` under :math:`r^l \le A x \le r^u,\ l \le x \le u`, over the columns so far.

    Parameters
    ----------
    over : str
        What columns stand for, for messages.
    """

    def __init__(self, over: str):
        import highspy

        self._over, self.n_columns = over, 0
        self._highs: Any = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)

    def add_rows(self, lower: ArrayLike, upper: ArrayLike) -> None:
        """Add rows without entries."""
        low, high = np.broadcast_arrays(np.asarray(lower, float), np.asarray(upper, float))
        start, none = np.zeros(len(low), np.int32), np.zeros(0)
        self._highs.addRows(len(low), low, high, 0, start, none.astype(np.int32), none)

    def add_columns(
        self, matrix: sparray, cost: ArrayLike, *, lower: ArrayLike = 0.0, upper: ArrayLike = np.inf
    ) -> IntArray:
        """Add columns with their entries in all rows, shape (n_rows, n), and return their numbers."""
        from scipy.sparse import csc_array

        entries = csc_array(matrix)
        n = entries.shape[1]
        costs, low, high = (np.broadcast_to(np.asarray(v, float), n) for v in (cost, lower, upper))
        start, index = entries.indptr[:-1].astype(np.int32), entries.indices.astype(np.int32)
        self._highs.addCols(n, costs, low, high, entries.nnz, start, index, entries.data.astype(float))
        self.n_columns += n
        return np.arange(self.n_columns - n, self.n_columns)

    def change_costs(self, columns: Sequence[int] | IntArray, cost: ArrayLike) -> None:
        """Change what columns cost."""
        costs = np.broadcast_to(np.asarray(cost, float), len(columns))
        self._highs.changeColsCost(len(columns), np.asarray(columns, np.int32), costs)

    def solve(self) -> LpOptimum:
        """Solve the LP as it is now.

        Raises
        ------
        RuntimeError
            If HiGHS does not find the optimum.
        """
        solve_growing(self._highs, self._over)
        solution, cost = self._highs.getSolution(), float(self._highs.getInfo().objective_function_value)
        return LpOptimum(cost, np.array(solution.row_dual), np.array(solution.col_value))
