r"""A relaxation of a program in integers, for solvers that know nothing else.

Every column is :math:`x_j = u_j z_j` with integer :math:`z_j`: the unit :math:`u_j` is 1 for integer columns
and a small power of two for continuous ones. Rows and costs are multiplied by powers of two and rounded such
that every point of the program stays feasible at no higher cost; the optimum over the integers, less
`IntegerProgram.cost_slack`, therefore is a bound for the program. Rows of integers stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csr_array, vstack

from wattsched.formulations.program import Program
from wattsched.solvers.rows import group_of_choice
from wattsched.solvers.solution import FEASIBILITY
from wattsched.topology.arrays import FloatArray, IntArray

# Sums over what can be chosen together stay below this, and sums over all columns below the other, far from
# where 64-bit integers end.
_LARGEST_SUM = 2.0**54
_LARGEST_TOTAL = 2.0**59
# A scale that is no larger than this, whatever the costs, does not overflow.
_LARGEST_EXPONENT = 1000.0
# A continuous column is cut into at most about this many steps.
_MOST_STEPS = 2.0**40
# Coefficients with fewer digits than this many are short.
_SHORT = 2.0**10


class UnboundedError(ValueError):
    """A column has no finite bounds, given or implied."""


@dataclass(frozen=True)
class IntegerRow:
    """``coefficients @ z[columns]`` between two integers; None is no bound."""

    columns: IntArray
    coefficients: IntArray
    lower: int | None
    upper: int | None


@dataclass(frozen=True)
class IntegerProgram:
    """The relaxation.

    Attributes
    ----------
    unit : float array, shape (n_columns,)
        Value of one step of each column.
    lower, upper : int arrays, shape (n_columns,)
    rows : list of IntegerRow
    cost : int array, shape (n_columns,)
    cost_scale : float
        ``cost @ z / cost_scale + offset - cost_slack`` is at most the program's cost of a point.
    cost_slack : float
    """

    unit: FloatArray
    lower: IntArray
    upper: IntArray
    rows: list[IntegerRow]
    cost: IntArray
    cost_scale: float
    cost_slack: float

    def cost_bound(self, bound: float) -> float:
        """Bound on the program's cost from one on ``cost @ z + offset * cost_scale``."""
        return bound / self.cost_scale - self.cost_slack


def integer_relaxation(program: Program) -> IntegerProgram:
    """Round a program to integers, outwards.

    Raises
    ------
    UnboundedError
        When a free column has no finite bounds and no row implies them.
    """
    lower, upper = finite_bounds(program)
    # The costs are one more row, the last.
    table = csr_array(vstack([program.matrix, csr_array(program.cost[None, :])]))
    table.sort_indices()
    table.eliminate_zeros()
    scale = _scales(program, table, np.maximum(np.abs(lower), np.abs(upper)))
    unit = _units(program, table, scale, upper - lower)
    low = np.where(program.integer, np.ceil(lower - FEASIBILITY), np.floor(lower / unit)).astype(np.int64)
    high = np.where(program.integer, np.floor(upper + FEASIBILITY), np.ceil(upper / unit)).astype(np.int64)
    steps = _Steps(unit, np.where(program.integer, 0.0, 0.5 * unit), np.maximum(-low, 0).astype(float))
    rows = []
    for r in range(program.n_rows):
        entries = slice(table.indptr[r], table.indptr[r + 1])
        columns = table.indices[entries].astype(np.int64)
        bounds = (float(program.row_lower[r]), float(program.row_upper[r]))
        rows += _integer_rows(columns, table.data[entries], bounds, float(scale[r]), steps)
    everything = np.arange(program.n_columns)
    cost, slack = _floor(everything, program.cost, float(scale[-1]), steps)
    slack += float(np.abs(program.cost) @ steps.blur)
    return IntegerProgram(unit, low, high, rows, cost, float(scale[-1]), slack)


@dataclass(frozen=True)
class _Steps:
    """Per column: the value of a step, the distance to the nearest one, and how many are below zero."""

    unit: FloatArray
    blur: FloatArray
    below_zero: FloatArray


def _integer_rows(
    columns: IntArray, a: FloatArray, bounds: tuple[float, float], scale: float, steps: _Steps
) -> list[IntegerRow]:
    """One row ``bounds[0] <= a x <= bounds[1]`` as integer rows that every point of it satisfies."""
    lower, upper = bounds
    blur = float(np.abs(a) @ steps.blur[columns])
    if scale == 1.0 and blur == 0.0 and _whole(a):
        least = int(np.ceil(lower - _tolerance(lower))) if np.isfinite(lower) else None
        most = int(np.floor(upper + _tolerance(upper))) if np.isfinite(upper) else None
        return [IntegerRow(columns, a.astype(np.int64), least, most)]
    rows = []
    for sign, bound in ((1.0, upper), (-1.0, -lower)):
        coefficients, given = _floor(columns, sign * a, scale, steps)
        # A continuous column can take up what rounding the data does.
        tolerance = _tolerance(bound, FEASIBILITY if blur == 0.0 else 1e-12)
        capacity = (bound + tolerance + blur + given) * scale
        if capacity < 2.0 * _LARGEST_SUM:  # otherwise it cannot be reached
            most = int(np.ceil(max(capacity, -2.0 * _LARGEST_SUM)))
            rows.append(IntegerRow(columns, coefficients, None, most))
    return rows


def _floor(columns: IntArray, a: FloatArray, scale: float, steps: _Steps) -> tuple[IntArray, float]:
    """Round the coefficients of steps down, and tell by how much that can raise a sum at most.

    It cannot where columns are not negative.
    """
    exact = a * steps.unit[columns] * scale
    floor = np.floor(exact)
    raised = np.where(floor == exact, 0.0, steps.below_zero[columns]).sum()
    return floor.astype(np.int64), float(raised) / scale


def _tolerance(bound: float, share: float = FEASIBILITY) -> float:
    return share * max(1.0, abs(bound)) if np.isfinite(bound) else 0.0


def _whole(values: FloatArray) -> bool:
    return bool(np.all(values == np.round(values)))


def _scales(program: Program, table: csr_array, width: FloatArray) -> FloatArray:
    """Per row the largest power of two that keeps its sums small; 1 for rows of integers that are."""
    row = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    free = program.n_groups + np.arange(program.n_columns - program.n_choices)
    owner = np.concatenate([group_of_choice(program), free])[table.indices]
    largest = np.zeros(table.shape[0])
    if len(row):
        # Of a group only one column counts.
        run = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(owner, prepend=-1))
        size = np.abs(table.data) * width[table.indices]
        largest += np.bincount(row[run], np.maximum.reduceat(size, run), table.shape[0])
        total = np.bincount(row, size, table.shape[0])
        largest = np.maximum(largest, total * (_LARGEST_SUM / _LARGEST_TOTAL))
    broken = (table.data != np.round(table.data)) | ~program.integer[table.indices]
    whole = np.bincount(row[broken], minlength=table.shape[0]) == 0
    exponent = np.floor(np.log2(_LARGEST_SUM) - np.log2(np.where(largest > 0, largest, 1.0)))
    scale = np.exp2(np.minimum(exponent, _LARGEST_EXPONENT))
    return np.where(whole & (largest < _LARGEST_SUM), 1.0, scale)


def _units(program: Program, table: csr_array, scale: FloatArray, width: FloatArray) -> FloatArray:
    """Steps of the continuous columns: as small as rounding their coefficients is harmless."""
    entry = table.tocoo()
    continuous = ~program.integer[entry.col]
    row, column, a = entry.row[continuous], entry.col[continuous], np.abs(entry.data[continuous])
    fraction, exponent = np.frexp(a)
    mantissa = fraction * _SHORT
    # A coefficient of few bits is not rounded at all when its last bit times the step is whole.
    digits = mantissa.astype(np.int64)
    exact = _SHORT / (scale[row] * np.ldexp((digits & -digits).astype(float), exponent))
    # Otherwise it costs a unit per step, and every step costs half its length.
    balanced = np.sqrt(width[column] / (scale[row] * a))
    unit = np.zeros(program.n_columns)
    np.maximum.at(unit, column, np.where(mantissa == digits, np.minimum(exact, balanced), balanced))
    step = np.exp2(np.ceil(np.log2(np.maximum(unit, np.maximum(width, 1e-9) / _MOST_STEPS))))
    return np.where(program.integer, 1.0, step)


def finite_bounds(program: Program) -> tuple[FloatArray, FloatArray]:
    """Bounds of the columns; a missing one is replaced by one that some optimum satisfies.

    A column that costs nothing or more and that rows only push up need not be above what they demand at most;
    the mirrored case likewise.

    Raises
    ------
    UnboundedError
    """
    lower, upper = program.lower.copy(), program.upper.copy()
    for j in np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper))):
        demanded = _demanded(program, int(j), lower, upper)
        if not np.isfinite(upper[j]) and program.cost[j] >= 0 and demanded is not None:
            upper[j] = max(demanded[1], lower[j] if np.isfinite(lower[j]) else demanded[0])
        if not np.isfinite(lower[j]) and program.cost[j] <= 0 and demanded is not None:
            lower[j] = min(demanded[0], upper[j] if np.isfinite(upper[j]) else demanded[1])
        if program.integer[j]:
            lower[j], upper[j] = np.floor(lower[j]), np.ceil(upper[j])
        if not (np.isfinite(lower[j]) and np.isfinite(upper[j])):
            raise UnboundedError(f"column {program.column_names()[j]} has no finite bounds")
    return lower, upper


def _demanded(program: Program, j: int, lower: FloatArray, upper: FloatArray) -> tuple[float, float] | None:
    """Least and greatest value that rows can demand of a column; None when they hold it from both sides."""
    by_row = csr_array(program.matrix)
    from_above = np.isfinite(program.upper[j])  # the lower bound is missing
    values = [0.0]
    for r in program.matrix[:, [j]].tocoo().row:
        entries = slice(by_row.indptr[r], by_row.indptr[r + 1])
        columns, a = by_row.indices[entries], by_row.data[entries]
        own = float(a[columns == j][0])
        ends = np.stack([a * lower[columns], a * upper[columns]])
        ends = np.where(a == 0, 0.0, ends)[:, columns != j]
        at_least = (own > 0) != from_above
        bound = program.row_lower[r] if at_least else program.row_upper[r]
        other = program.row_upper[r] if at_least else program.row_lower[r]
        if np.isfinite(other):
            return None
        worst = ends.min(axis=0).sum() if at_least else ends.max(axis=0).sum()
        if np.isfinite(bound):
            values.append((bound - worst) / own)
    return float(min(values)), float(max(values))
