r"""Integer relaxations of programs, by outward rounding, for CP-SAT, which has no continuous columns.

Every column is :math:`x_j = u_j z_j` with integer :math:`z_j`: the unit :math:`u_j` is 1 for integer columns,
and for continuous ones that are integers in some optimum whatever the others are; of the rest it is a small
power of two. Rows and costs are multiplied by powers of two and rounded such that every point of the program
in which the former are integers stays feasible at no higher cost; the optimum over the integers, less
`IntegerProgram.cost_slack`, therefore is a bound for the program. Rows of integers stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from scipy.sparse import csr_array, vstack

from wattsched.formulations.program import Program
from wattsched.formulations.tolerances import LAST_DIGITS, VIOLATION
from wattsched.solvers.rows import allowance, group_of_choice
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, run_starts

# Limits of sums over columns that can be chosen together, and over all columns, far below the largest 64-bit
# integer.
_LARGEST_SUM = 2.0**54
_LARGEST_TOTAL = 2.0**59
# Largest exponent of a scale; larger ones could overflow.
_LARGEST_EXPONENT = 1000.0
# Largest number of steps of a continuous column, roughly.
_MOST_STEPS = 2.0**40
_DIGITS = 2.0**50
# Coefficients whose mantissa is an integer below this are short.
_SHORT = 2.0**10


class UnboundedError(ValueError):
    """Raised for a column that has no finite bounds, given or implied."""


@dataclass(frozen=True)
class IntegerProgram:
    """Integer relaxation: ``row_lower <= matrix @ z <= row_upper``, and ``lower <= z <= upper``.

    A step of column j is worth ``unit[j]``. Limits are beyond what sums can reach where there are none.
    ``cost @ z / cost_scale + offset - cost_slack`` is at most the program's cost of a point.
    """

    unit: FloatArray
    lower: IntArray
    upper: IntArray
    matrix: csr_array
    row_lower: IntArray
    row_upper: IntArray
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
    lower, upper = _finite_bounds(program)
    # Short steps make coefficients of 50 binary digits, for which CP-SAT has no cuts.
    integer = program.integer | _implied_integers(program, lower, upper)
    program = replace(program, integer=integer)
    # The costs are one more row, the last.
    table = csr_array(vstack([program.matrix, csr_array(program.cost[None, :])]))
    table.sort_indices()
    width = np.maximum(np.abs(lower), np.abs(upper))
    # Columns that are fixed at 0 must not limit scales.
    table.data[width[table.indices] == 0.0] = 0.0
    table.eliminate_zeros()
    scale, exact = _scales(program, table, width)
    unit = _units(program, table, scale, lower, upper)
    low = np.where(integer, np.ceil(lower - VIOLATION), np.floor(lower / unit)).astype(np.int64)
    high = np.where(integer, np.floor(upper + VIOLATION), np.ceil(upper / unit)).astype(np.int64)
    # Rows of integers stay as they are; others become ``a x <= bound``, one per bound. The costs come last.
    exact = exact[:-1]
    above = np.flatnonzero(exact | np.isfinite(program.row_upper))
    below = np.flatnonzero(~exact & np.isfinite(program.row_lower))
    rows = np.concatenate([above, below, [program.n_rows]])
    sign = np.repeat([1.0, -1.0, 1.0], [len(above), len(below), 1])
    bound = np.concatenate([program.row_upper[above], -program.row_lower[below], [0.0]])
    sides = csr_array(table[rows])
    row, column = np.repeat(np.arange(len(rows)), np.diff(sides.indptr)), sides.indices
    a = sign[row] * sides.data
    scaled = a * unit[column] * scale[rows][row]
    sides.data = np.floor(scaled).astype(np.int64)
    # Half a step is the distance to the nearest one; rounding a coefficient down raises what is below zero.
    blurred = np.abs(a) * np.where(integer, 0.0, 0.5 * unit)[column]
    raised = np.where(sides.data == scaled, 0.0, np.maximum(-low, 0)[column])
    blur, raising = (np.bincount(row, v, len(rows)) for v in (blurred, raised))
    slack = blur + raising / scale[rows]
    # A continuous column can take up what rounding the data does.
    tolerance = allowance(bound, np.where(blur == 0.0, VIOLATION, LAST_DIGITS))
    with np.errstate(over="ignore"):  # of rows that nothing can break
        most = (bound + tolerance + slack) * scale[rows]
    whole = np.append(exact[above], np.zeros(len(below) + 1, dtype=bool))
    most = np.where(whole, np.floor(most), np.ceil(most))[:-1]
    demanded = np.where(exact, program.row_lower, -np.inf)[above]
    least = np.append(np.ceil(demanded - allowance(demanded)), np.full(len(below), -np.inf))
    reach = 2.0 * _LARGEST_TOTAL
    return IntegerProgram(
        unit=unit,
        lower=low,
        upper=high,
        matrix=sides[:-1],
        row_lower=np.clip(least, -reach, reach).astype(np.int64),
        row_upper=np.clip(most, -reach, reach).astype(np.int64),
        cost=sides[[-1]].toarray().ravel(),
        cost_scale=float(scale[-1]),
        cost_slack=float(slack[-1]),
    )


def _implied_integers(program: Program, lower: FloatArray, upper: FloatArray) -> BoolArray:
    """Return the mask of continuous columns that are integers in some optimum for any integer columns.

    Their part of rows of integers is totally unimodular: it consists of -1, 0 and 1, and nothing is left of
    it when rows and columns with a single entry, and copies of others or of their negatives, are taken out
    again and again.
    """
    table, continuous = csr_array(program.matrix), ~program.integer
    if not continuous.any():
        return np.zeros(program.n_columns, dtype=bool)
    table.eliminate_zeros()
    row, column = np.repeat(np.arange(program.n_rows), np.diff(table.indptr)), table.indices
    unit = ~continuous[column] | (np.abs(table.data) == 1.0)
    bounds = np.stack([program.row_lower, program.row_upper])
    whole = (np.isinf(bounds) | (bounds == np.round(bounds))).all(axis=0)
    whole &= np.bincount(row, ~unit | (table.data != np.round(table.data)), program.n_rows) == 0

    def connected(implied: BoolArray) -> BoolArray:
        """Return those of the columns whose rows have, besides them, integer columns alone."""
        while True:
            rows = whole & (np.bincount(row, (continuous & ~implied)[column], program.n_rows) == 0)
            fewer = implied & (np.bincount(column, ~rows[row], program.n_columns) == 0)
            if (fewer == implied).all():
                return implied
            implied = fewer

    implied = connected(continuous & (lower == np.round(lower)) & (upper == np.round(upper)))
    remaining = np.flatnonzero(implied)
    rest, entries = csr_array(table[:, remaining]), -1
    while rest.nnz != entries:
        entries = rest.nnz
        rest = rest[_distinct(rest)]
        kept = _distinct(csr_array(rest.T))
        rest, remaining = csr_array(rest[:, kept]), remaining[kept]
    implied[remaining] = False
    return connected(implied)


def _distinct(table: csr_array) -> list[int]:
    """Return the rows with two entries at least; of equal or opposite ones, the first."""
    table.sort_indices()
    first_of: dict[tuple[bytes, bytes], int] = {}
    for r, (first, last) in enumerate(pairwise(table.indptr.tolist())):
        if last - first > 1:
            signs = table.data[first:last] * table.data[first]
            first_of.setdefault((table.indices[first:last].tobytes(), signs.tobytes()), r)
    return list(first_of.values())


def _scales(program: Program, table: csr_array, width: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Return the largest power of two per row that keeps its sums small, and the rows of integers, kept at 1.

    `table` is the program's matrix with the costs as one more row, `width` the size of each column at most.
    """
    row = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    free = program.n_groups + np.arange(program.n_columns - program.n_choices)
    owner = np.concatenate([group_of_choice(program), free])[table.indices]
    largest = np.zeros(table.shape[0])
    if len(row):
        # A group chooses one column, so that only its largest entry counts.
        run = run_starts(row, owner)
        size = np.abs(table.data) * width[table.indices]
        largest += np.bincount(row[run], np.maximum.reduceat(size, run), table.shape[0])
        total = np.bincount(row, size, table.shape[0])
        largest = np.maximum(largest, total * (_LARGEST_SUM / _LARGEST_TOTAL))
    broken = (table.data != np.round(table.data)) | ~program.integer[table.indices]
    whole = np.bincount(row[broken], minlength=table.shape[0]) == 0
    exponent = np.floor(np.log2(_LARGEST_SUM) - np.log2(np.where(largest > 0, largest, 1.0)))
    scale = np.exp2(np.minimum(exponent, _LARGEST_EXPONENT))
    exact = whole & (largest < _LARGEST_SUM)
    return np.where(exact, 1.0, scale), exact


def _units(
    program: Program, table: csr_array, scale: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Return a step for every column: 1 for integers; others' balance rounding of coefficients and of values.

    `table` and `scale`, one factor per row, are as of `_scales`.
    """
    width, size = upper - lower, np.maximum(np.abs(lower), np.abs(upper))
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
    # A double of the column's size cannot resolve shorter steps.
    shortest = np.maximum(np.maximum(width, 1e-9) / _MOST_STEPS, size / _DIGITS)
    step = np.exp2(np.ceil(np.log2(np.maximum(unit, shortest))))
    return np.where(program.integer, 1.0, step)


def _finite_bounds(program: Program) -> tuple[FloatArray, FloatArray]:
    """Return finite bounds of the columns; a missing one is replaced by one that some optimum satisfies.

    A column of nonnegative cost that rows bound only from below has an optimal value no larger than the
    largest such bound; the mirrored case likewise. Raises UnboundedError where no row implies one.
    """
    lower, upper = program.lower.copy(), program.upper.copy()
    for j in np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper))):
        if (implied := _implied(program, int(j), lower, upper)) is not None:
            least, most = implied
            if not np.isfinite(upper[j]) and program.cost[j] >= 0:
                upper[j] = max(most, lower[j] if np.isfinite(lower[j]) else least)
            if not np.isfinite(lower[j]) and program.cost[j] <= 0:
                lower[j] = min(least, upper[j] if np.isfinite(upper[j]) else most)
        if program.integer[j]:
            lower[j], upper[j] = np.floor(lower[j]), np.ceil(upper[j])
        if not (np.isfinite(lower[j]) and np.isfinite(upper[j])):
            raise UnboundedError(f"column {program.column_names()[j]} has no finite bounds")
    return lower, upper


def _implied(program: Program, j: int, lower: FloatArray, upper: FloatArray) -> tuple[float, float] | None:
    """Return the extreme bounds that rows imply for column j on one side; None if they bound both sides."""
    by_row = csr_array(program.matrix)
    by_row.eliminate_zeros()
    from_above = np.isfinite(program.upper[j])  # then the lower bound is missing
    implied = [0.0]
    for r in by_row[:, [j]].tocoo().row:
        entries = slice(by_row.indptr[r], by_row.indptr[r + 1])
        columns, a = by_row.indices[entries], by_row.data[entries]
        coefficient = float(a[columns == j][0])
        others = np.stack([a * lower[columns], a * upper[columns]])[:, columns != j]
        is_covering = (coefficient > 0) != from_above
        bound = program.row_lower[r] if is_covering else program.row_upper[r]
        opposite = program.row_upper[r] if is_covering else program.row_lower[r]
        if np.isfinite(opposite):
            return None
        extreme = others.min(axis=0).sum() if is_covering else others.max(axis=0).sum()
        if np.isfinite(bound):
            implied.append((bound - extreme) / coefficient)
    return float(min(implied)), float(max(implied))
