"""Choice groups and rows: groups as explicit rows, and rows that tie choices of several groups together."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import BoolArray, FloatArray, IntArray, Program


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
