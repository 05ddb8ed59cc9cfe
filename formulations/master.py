"""Common parts of column generation: a pool of columns, and the restricted master LP."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from wattsched.formulations.timer import Timer, stop_event
from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import sparray


_FEASIBLE = 2
"""HiGHS says by this number that there is a point."""
_WHOLE_GAP = 1e-6
"""Relative gap at which branch and bound ends."""


class _Keyed(Protocol):
    def take(self, which: IntArray) -> Self: ...
    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self: ...
    def hashes(self) -> list[Hashable]: ...


ColumnsT = TypeVar("ColumnsT", bound=_Keyed)


class ColumnPool(Generic[ColumnsT]):
    """Columns found so far, each of them once."""

    def __init__(self) -> None:
        self._number: dict[Hashable, int] = {}
        self._parts: list[ColumnsT] = []

    def __len__(self) -> int:
        return len(self._number)

    def add(self, columns: ColumnsT) -> ColumnsT:
        """Keep the columns that are new, and return these."""
        new = []
        for position, key in enumerate(columns.hashes()):
            if key not in self._number:
                self._number[key] = len(self._number)
                new.append(position)
        kept = columns.take(np.array(new, dtype=np.int64))
        self._parts.append(kept)
        return kept

    def numbers(self, columns: ColumnsT) -> IntArray | None:
        """Numbers of columns in `all`, None when one is not there."""
        found = [self._number.get(key) for key in columns.hashes()]
        return None if None in found else np.array(found, dtype=np.int64)

    def all(self) -> ColumnsT:
        """All columns, the oldest first."""
        self._parts = [type(self._parts[0]).joined(self._parts)]
        return self._parts[0]


@dataclass(frozen=True)
class LpOptimum:
    """Optimum of an LP: its cost, the duals of its rows, and the values of its columns."""

    cost: float
    prices: FloatArray
    x: FloatArray


def run(highs: Any) -> None:
    """Run HiGHS until it is done, or an event stops what runs here."""
    import highspy

    # The scheduler is global and keeps the thread count of its first use.
    highspy.Highs.resetGlobalScheduler(True)
    if (stop := stop_event()) is None:
        highs.run()
        return

    def look(event: Any) -> None:
        if stop.is_set():
            event.interrupt()

    places = (highs.cbSimplexInterrupt, highs.cbIpmInterrupt, highs.cbMipInterrupt)
    for place in places:
        place.subscribe(look)
    highs.run()
    for place in places:
        place.unsubscribe(look)


class RestrictedMaster:
    r"""Minimise :math:`c^T x` under :math:`r^l \le A x \le r^u,\ l \le x \le u`, over the columns so far.

    HiGHS holds it. Its tolerances are made for numbers about 1, so costs may be given in units of a typical
    one, and rows should be scaled.

    Parameters
    ----------
    over : str
        What columns stand for, for messages.
    unit : float
        Cost that counts as 1 within HiGHS; all costs that are given or returned are in their own unit.
    """

    def __init__(self, over: str, unit: float = 1.0):
        import highspy

        self._over, self._unit = over, unit
        self.n_rows = self.n_columns = 0
        self._highs: Any = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)

    def add_rows(self, lower: ArrayLike, upper: ArrayLike) -> IntArray:
        """Add rows without entries, and return their numbers."""
        low, high = (np.array(v, float) for v in np.broadcast_arrays(lower, upper))
        n, none = len(low), np.zeros(0)
        self._highs.addRows(n, low, high, 0, np.zeros(n, np.int32), none.astype(np.int32), none)
        self.n_rows += n
        return np.arange(self.n_rows - n, self.n_rows)

    def add_columns(
        self, matrix: sparray, cost: ArrayLike, *, lower: ArrayLike = 0.0, upper: ArrayLike = np.inf
    ) -> IntArray:
        """Add columns, and return their numbers.

        Parameters
        ----------
        matrix : sparse array, shape (n_rows, n)
            Their entries in all rows so far.
        cost, lower, upper : float arrays, shape (n,), or floats
        """
        from scipy.sparse import csc_array

        entries = csc_array(matrix)
        n = entries.shape[1]
        costs, low, high = (np.array(np.broadcast_to(v, n), float) for v in (cost, lower, upper))
        start, index = entries.indptr[:-1].astype(np.int32), entries.indices.astype(np.int32)
        self._highs.addCols(
            n, costs / self._unit, low, high, entries.nnz, start, index, entries.data.astype(float)
        )
        self.n_columns += n
        return np.arange(self.n_columns - n, self.n_columns)

    def change_costs(self, columns: Sequence[int] | IntArray, cost: ArrayLike) -> None:
        """Change what columns cost."""
        costs = np.array(np.broadcast_to(cost, len(columns)), float) / self._unit
        self._highs.changeColsCost(len(columns), np.asarray(columns, np.int32), costs)

    def change_bounds(self, columns: Sequence[int] | IntArray, lower: ArrayLike, upper: FloatArray) -> None:
        """Change the least and the most that columns may be."""
        n = len(columns)
        least = np.array(np.broadcast_to(lower, n), float)
        self._highs.changeColsBounds(n, np.asarray(columns, np.int32), least, upper)

    def whole(
        self, timer: Timer, nodes: int | None = None, first: int = 0, enough: float = -np.inf
    ) -> FloatArray | None:
        """Best point that branch and bound finds in time and in so many nodes, or one that costs `enough`.

        Columns from the first one on are whole numbers there, and from then on. None without a point.
        """
        highs, left_s = self._highs, timer.remaining_s()
        columns = np.arange(first, self.n_columns, dtype=np.int32)
        highs.changeColsIntegrality(len(columns), columns, np.ones(len(columns), np.uint8))
        highs.setOptionValue("time_limit", np.inf if left_s is None else highs.getRunTime() + left_s)
        highs.setOptionValue("mip_rel_gap", _WHOLE_GAP)
        highs.setOptionValue("objective_target", enough / self._unit)
        if nodes is not None:
            highs.setOptionValue("mip_max_nodes", nodes)
        run(highs)
        found = highs.getInfo().primal_solution_status == _FEASIBLE
        x = np.array(highs.getSolution().col_value)
        x[first:] = np.rint(x[first:])
        return x if found else None

    def solve(self, timer: Timer | None = None) -> LpOptimum:
        """Solve the LP as it is now, from where the last solve ended.

        Raises
        ------
        RuntimeError
            If HiGHS does not find the optimum, or not in time.
        """
        from highspy import HighsModelStatus as Status

        highs, left_s = self._highs, None if timer is None else timer.remaining_s()
        # HiGHS counts the seconds of all its runs.
        highs.setOptionValue("time_limit", np.inf if left_s is None else highs.getRunTime() + left_s)
        run(highs)
        if highs.getModelStatus() in (Status.kUnknown, Status.kSolveError):
            # The basis of the last solve can be a bad one to begin with.
            highs.clearSolver()
            run(highs)
        if (status := highs.getModelStatus()) != Status.kOptimal:
            reason = highs.modelStatusToString(status)
            raise RuntimeError(f"HiGHS did not solve the LP over {self._over}: {reason}")
        solution = highs.getSolution()
        return LpOptimum(
            float(highs.getInfo().objective_function_value) * self._unit,
            np.array(solution.row_dual) * self._unit,
            np.array(solution.col_value),
        )
