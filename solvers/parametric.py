r"""One-sided derivatives of the LP relaxation's optimum by its rows' limits, and how far they hold.

Let :math:`\varphi(\theta)` be the least cost of the relaxation when its limits are moved by :math:`\theta
d`. It is convex and piecewise linear. Reduced costs do not depend on the limits. So a basis that is optimal
somewhere is optimal wherever its point :math:`x_B + \theta B^{-1} d` is within its bounds, and there the
slope is its prices times :math:`d`. The derivative to the right of 0 is the slope of a basis whose interval
reaches from 0 to the right. At a degenerate optimum the interval of the basis at hand may be the point 0
alone. Then a basis is sought at a small :math:`\theta`, and nearer to 0 as long as its interval does not
reach there: there are finitely many. The derivative holds up to the end of the last interval of the same
slope (Gal, *Postoptimal Analyses, Parametric Programming, and Related Topics*, 1995).

Most columns cost too much at all these prices: the LP holds the others, and takes in those it turns out to
need.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csc_array, csr_array

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers.lp import Status, loaded, run, scaled
from wattsched.solvers.solution import Limits
from wattsched.topology.arrays import FloatArray, IntArray

# The first basis beside a degenerate optimum is sought so many units from it, and the next ones nearer.
_FIRST_STEP, _NEARER = 0.25, 0.25
# A unit within this class, as a part of the smallest limit that is moved.
_UNIT = 1e-2
# What is nearer is the optimum itself: solvers' tolerances are not finer.
_NEAREST = 1e-5
# Slopes that differ by less, relative to the larger or to the price of a typical column, are one.
_SAME_SLOPE = 1e-7
# Steps beyond a piece's end, relative to it, to find the next piece; and the most pieces of one slope.
_BEYOND, _MOST_PIECES = 1e-4, 24
# Columns kept at first, for every row.
_KEPT = 20
# A basis' entry that is smaller does not move.
_STILL = 1e-11


@dataclass(frozen=True)
class Slope:
    """Derivative of the least cost when limits are moved, per unit, and the units for which it holds.

    Both are infinite and 0 where the limits cannot be moved: nothing would be feasible.
    """

    per_unit: float
    until: float


@dataclass(frozen=True)
class _Piece:
    """Interval of a basis, in units of the direction, and the slope of the least cost there."""

    slope: float
    begin: float
    end: float


class ParametricLp:
    """The LP relaxation of a program whose limits are moved.

    Attributes
    ----------
    cost : float
        Its optimum where they are; infinite where it has none, or the time was over.
    limits : bool array, shape (n_rows,)
        Rows that are at a limit at the optimum found; moving another one's changes nothing.
    """

    def __init__(self, program: Program, timer: Timer) -> None:
        self._timer, self._model = timer, scaled(program)
        self._n_rows, self._n_choices = program.n_rows, program.n_choices
        self._lower, self._upper = self._model.program.row_lower, self._model.program.row_upper
        self._solver = loaded(self._model, Limits(time_s=timer.remaining_s()), timer, relaxed=True)
        self.cost, self.limits = np.inf, np.zeros(program.n_rows, dtype=bool)
        if run(self._solver) != Status.kOptimal:
            return
        self.cost = self._model.cost_of(self._solver.getInfo().objective_function_value)
        use = np.asarray(self._solver.getSolution().row_value)
        slack = np.minimum(use - self._lower, self._upper - use)
        self.limits = (slack <= VIOLATION * np.maximum(1.0, np.abs(use)))[: self._n_rows]
        self._keep_cheapest()

    def _keep_cheapest(self) -> None:
        """Go on with the columns of little reduced cost; the others are added when they are worth it."""
        whole = self._model.program
        above = np.abs(np.asarray(self._solver.getSolution().col_dual))
        needed = np.zeros(whole.n_columns, dtype=bool)
        basic = self._solver.getBasicVariables()[1]
        needed[basic[basic >= 0]] = True
        needed |= np.asarray(self._solver.getSolution().col_value) != whole.lower
        needed[self._n_choices :] = True
        most = _KEPT * len(self._upper)
        threshold = np.partition(above, most)[most] if most < len(above) else np.inf
        self._columns = np.flatnonzero(needed | (above <= threshold))
        kept = replace(
            whole,
            cost=whole.cost[self._columns],
            matrix=csc_array(whole.matrix[:, self._columns]),
            lower=whole.lower[self._columns],
            upper=whole.upper[self._columns],
            integer=whole.integer[self._columns],
        )
        self._solver = loaded(replace(self._model, program=kept), Limits(), self._timer, relaxed=True)
        self._solver.setOptionValue("presolve", "off")
        run(self._solver)

    def _run(self) -> Any:
        """Solve what the solver holds, with all columns that are worth it; its status."""
        while (status := run(self._solver)) in (Status.kOptimal, Status.kInfeasible):
            if len(missing := self._missing(status)) == 0:
                break
            self._add(missing)
        return status

    def _missing(self, status: Any) -> IntArray:
        """Columns left out that prices call for; all of them where those at hand are infeasible."""
        whole = self._model.program
        out = np.ones(whole.n_columns, dtype=bool)
        out[self._columns] = False
        if status == Status.kOptimal:
            prices = np.asarray(self._solver.getSolution().row_dual)
            out &= whole.cost - self._by_column @ prices < -VIOLATION
        return np.flatnonzero(out)

    @cached_property
    def _by_column(self) -> csr_array:
        return csr_array(self._model.program.matrix.T)

    def _add(self, columns: IntArray) -> None:
        """Give the solver more columns."""
        whole = self._model.program
        entries = csc_array(whole.matrix[:, columns])
        self._solver.addCols(
            len(columns),
            whole.cost[columns],
            whole.lower[columns],
            whole.upper[columns],
            entries.nnz,
            entries.indptr[:-1].astype(np.int32),
            entries.indices.astype(np.int32),
            entries.data,
        )
        self._columns = np.append(self._columns, columns)

    def slope(self, direction: FloatArray) -> Slope | None:
        """Derivative of the optimum along a direction of the rows' limits, shape (n_rows,).

        None where it is not found in time.
        """
        unit = self._unit(direction)
        shift = np.zeros(len(self._upper))
        shift[: self._n_rows] = unit * direction * self._model.row_factor[: self._n_rows]
        try:
            piece = self._solved_at(0.0, shift)
            if piece is None or piece.end <= _NEAREST:
                piece = self._first_piece(shift)
            if piece is None:
                return None
            if np.isinf(piece.slope):
                return Slope(np.inf, 0.0)
            return Slope(self._model.cost_of(piece.slope) / unit + 0.0, self._last_of(piece, shift) * unit)
        finally:
            self._moved_to(0.0, shift)

    def _unit(self, direction: FloatArray) -> float:
        """Length of a step along a direction that is a small part of the limits it moves."""
        factor, moved = self._model.row_factor[: self._n_rows], np.flatnonzero(direction)
        sizes = [np.abs(limit[moved]) for limit in (self._lower, self._upper)]
        size = np.where(np.isfinite(sizes[1]), sizes[1], sizes[0]) / (factor * np.abs(direction))[moved]
        return float(_UNIT * size.min()) or 1.0

    def _first_piece(self, shift: FloatArray) -> _Piece | None:
        """Piece that begins where the limits are, sought from the right."""
        step, piece = _FIRST_STEP, None
        while step > _NEAREST:
            if (piece := self._solved_at(step, shift)) is None:
                return None
            if not np.isinf(piece.slope) and piece.begin <= _NEAREST:
                return piece
            step = _NEARER * (step if np.isinf(piece.slope) else min(step, piece.begin))
        return piece

    def _last_of(self, piece: _Piece, shift: FloatArray) -> float:
        """Units up to which the slope of a piece holds."""
        end = piece.end
        for _ in range(_MOST_PIECES):
            if np.isinf(end):
                break
            further = self._solved_at(end * (1.0 + _BEYOND) + _NEAREST, shift)
            scale = max(abs(piece.slope), 1.0)
            if further is None or not abs(further.slope - piece.slope) <= _SAME_SLOPE * scale:
                break
            end = max(end, further.end)
        return end

    def _solved_at(self, step: float, shift: FloatArray) -> _Piece | None:
        """Piece of the limits moved by so many units; of an infinite slope where nothing is feasible."""
        if self._timer.over():
            return None
        self._moved_to(step, shift)
        status = self._run()
        if status == Status.kInfeasible:
            return _Piece(np.inf, step, step)
        return self._piece(step, shift) if status == Status.kOptimal else None

    def _moved_to(self, step: float, shift: FloatArray) -> None:
        """Move the limits to so many units."""
        for row in np.flatnonzero(shift).tolist():
            by = step * shift[row]
            self._solver.changeRowBounds(row, self._lower[row] + by, self._upper[row] + by)
        if (left_s := self._timer.remaining_s()) is not None:
            self._solver.setOptionValue("time_limit", self._solver.getRunTime() + left_s)

    def _piece(self, step: float, shift: FloatArray) -> _Piece | None:
        """Slope of the solver's basis at so many units, and the interval of units in which it is optimal."""
        solver, model = self._solver, self._model.program
        found, basic = solver.getBasicVariables()
        found_too, moves = solver.getBasisSolve(self._of_nonbasic(basic, shift))[:2]
        if "kOk" not in str(found) or "kOk" not in str(found_too):
            return None
        solution = solver.getSolution()
        duals = np.asarray(solution.row_dual)
        is_row = basic < 0
        row, column = -1 - basic[is_row], basic[~is_row]
        x, activity = np.asarray(solution.col_value), np.asarray(solution.row_value)
        value = np.concatenate([activity[row], x[column]])
        moved = np.concatenate([-moves[is_row] - shift[row], moves[~is_row]])
        column = self._columns[column]
        low = np.concatenate([self._lower[row] + step * shift[row], model.lower[column]])
        high = np.concatenate([self._upper[row] + step * shift[row], model.upper[column]])
        with np.errstate(divide="ignore", invalid="ignore"):
            up = np.where(
                moved > _STILL,
                (high - value) / moved,
                np.where(moved < -_STILL, (low - value) / moved, np.inf),
            )
            down = np.where(
                moved > _STILL,
                (value - low) / moved,
                np.where(moved < -_STILL, (value - high) / moved, np.inf),
            )
        ahead, behind = max(0.0, float(up.min(initial=np.inf))), max(0.0, float(down.min(initial=np.inf)))
        return _Piece(float(duals @ shift), step - behind, step + ahead)

    def _of_nonbasic(self, basic: Any, shift: FloatArray) -> FloatArray:
        """The part of a shift that is of rows at a limit."""
        held = shift.copy()
        held[-1 - basic[basic < 0]] = 0.0
        return held
