"""From a solver's almost feasible point to one that satisfies the program as written.

Choice groups and rows: groups as explicit rows, and rows that tie choices of several groups together.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import Program
from wattsched.solvers.solution import rounded
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# Largest violation, relative to a row's bound, that counts as rounding.
TOLERANCE = 1e-9


def feasible(program: Program, x: FloatArray) -> bool:
    """Whether the point satisfies everything up to rounding."""
    return bool(np.all(np.isfinite(x))) and program.violation(x) <= TOLERANCE


def tightened(program: Program, x: FloatArray) -> Program | None:
    """Program whose violated rows are tighter by twice the violation, which excludes the point.

    Returns None when no inequality row is violated, so that tightening cannot help.
    """
    activity = program.matrix @ x
    loose = program.row_lower < program.row_upper
    excess = np.where(loose, np.maximum(0.0, activity - program.row_upper), 0.0)
    lack = np.where(loose, np.maximum(0.0, program.row_lower - activity), 0.0)
    if not (excess.any() or lack.any()):
        return None
    upper = program.row_upper - 2.0 * excess
    lower = program.row_lower + 2.0 * lack
    return dataclasses.replace(program, row_lower=np.minimum(lower, upper), row_upper=upper)


def settled(program: Program, x: FloatArray) -> FloatArray | None:
    """Round the integer columns of a point and make its continuous columns optimal for them.

    Solvers return integer columns up to a tolerance, and the continuous columns fit those.

    Returns
    -------
    float array or None
        None when no value of the continuous columns satisfies the rows.
    """
    x = rounded(program, x)
    continuous = np.flatnonzero(~program.integer)
    if len(continuous) == 0:
        return x
    x[continuous] = 0.0
    used = program.matrix @ x
    if len(continuous) == 1:
        return _one_column(program, x, used, int(continuous[0]))
    from wattsched.solvers.highs import solve_columns

    values = solve_columns(program, continuous, used)
    if values is None:
        return None
    x[continuous] = values
    return x


def _one_column(program: Program, x: FloatArray, used: FloatArray, column: int) -> FloatArray | None:
    coefficient = program.matrix[:, [column]].toarray().ravel()
    rows = np.flatnonzero(coefficient)
    a = coefficient[rows]
    ends = np.stack([program.row_lower[rows] - used[rows], program.row_upper[rows] - used[rows]]) / a
    low = float(max(program.lower[column], np.max(ends.min(axis=0), initial=-np.inf)))
    high = float(min(program.upper[column], np.min(ends.max(axis=0), initial=np.inf)))
    if low > high + TOLERANCE * max(1.0, abs(low)):
        return None
    cost = program.cost[column]
    nearest_zero = min(max(0.0, low), high)
    x[column] = nearest_zero if cost == 0 else (low if cost > 0 else high)
    return x if np.isfinite(x[column]) else None


def group_of_choice(program: Program) -> IntArray:
    """Group of every choice column, shape (n_choices,)."""
    return np.repeat(np.arange(program.n_groups), np.diff(program.group_start))


def linking_rows(program: Program) -> BoolArray:
    """Rows ``a x = 0`` over choice columns alone: one choice asks for another.

    Returns
    -------
    bool array, shape (n_rows,)
    """
    linking: BoolArray = (program.row_lower == 0) & (program.row_upper == 0)
    if not linking.any():
        return linking
    entries = program.matrix.tocoo()
    linking[entries.row[entries.col >= program.n_choices]] = False
    return linking


def linked_choices(program: Program) -> BoolArray:
    """Choice columns that cannot be taken without others, such as those of jobs that share GPUs.

    Returns
    -------
    bool array, shape (n_choices,)
    """
    linked = np.zeros(program.n_columns, dtype=bool)
    rows = linking_rows(program)
    if rows.any():
        entries = program.matrix.tocoo()
        linked[entries.col[rows[entries.row]]] = True
    return linked[: program.n_choices]


def with_choice_rows(program: Program) -> tuple[csc_array, FloatArray, FloatArray]:
    """Coupling rows, then one row "exactly one" per choice group.

    Returns
    -------
    matrix : csc_array, shape (n_rows + n_groups, n_columns)
    lower, upper : float arrays, shape (n_rows + n_groups,)
    """
    matrix = program.matrix
    if not matrix.has_sorted_indices:
        matrix = matrix.sorted_indices()
    n = program.n_choices
    # Every choice column grows by one entry, at its end because the group rows come last.
    indptr = matrix.indptr + np.minimum(np.arange(program.n_columns + 1), n)
    added = np.zeros(indptr[-1], dtype=bool)
    added[indptr[1 : n + 1] - 1] = True
    indices = np.empty(len(added), dtype=np.int64)
    data = np.ones(len(added))
    indices[added] = program.n_rows + group_of_choice(program)
    indices[~added] = matrix.indices
    data[~added] = matrix.data
    shape = (program.n_rows + program.n_groups, program.n_columns)
    ones = np.ones(program.n_groups)
    return (
        csc_array((data, indices, indptr), shape=shape),
        np.concatenate([program.row_lower, ones]),
        np.concatenate([program.row_upper, ones]),
    )
