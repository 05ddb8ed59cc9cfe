"""Rows, free columns and costs scaled by powers of two, which loses no bit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import FloatArray, Program
from wattsched.solvers.matrix import with_choice_rows

# Solvers' tolerances are absolute and meant for costs of about this size.
_COST_RANGE = (1.0, 2.0**20)
_COST_TARGET = 2.0**10


@dataclass(frozen=True)
class ScaledModel:
    """Rows (choice rows included) whose largest coefficient is about one.

    With row factors R, column factors S and cost factor k: ``matrix = R A S``, ``cost = k S c``,
    a point of the program is ``S x`` and its row prices are ``R y / k``.
    """

    cost: FloatArray
    offset: float
    matrix: csc_array
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    row_factor: FloatArray
    column_factor: FloatArray
    cost_factor: float

    def point(self, x: FloatArray) -> FloatArray:
        """Point of the program."""
        return x * self.column_factor

    def prices(self, y: FloatArray, n_rows: int) -> FloatArray:
        """Prices of the program's coupling rows."""
        return (y * self.row_factor / self.cost_factor)[:n_rows]

    def cost_of(self, value: float) -> float:
        """Cost in the program's unit."""
        return value / self.cost_factor


def scaled(program: Program) -> ScaledModel:
    """Scale rows by their integer columns, then the continuous columns, then the costs."""
    matrix, row_lower, row_upper = with_choice_rows(program)
    size = np.abs(matrix.data)
    column = np.repeat(np.arange(program.n_columns), np.diff(matrix.indptr))
    whole = program.integer[column]

    row_size = _largest(size[whole], matrix.indices[whole], len(row_lower))
    row_size = np.where(row_size > 0, row_size, _largest(size, matrix.indices, len(row_lower)))
    row_factor = _power_of_two(1.0 / np.where(row_size > 0, row_size, 1.0))

    continuous = ~whole
    column_size = _largest(
        (size * row_factor[matrix.indices])[continuous], column[continuous], program.n_columns
    )
    column_factor = _power_of_two(1.0 / np.where(column_size > 0, column_size, 1.0))

    cost = program.cost * column_factor
    largest = float(np.max(np.abs(cost), initial=0.0))
    inside = largest == 0 or _COST_RANGE[0] <= largest <= _COST_RANGE[1]
    cost_factor = 1.0 if inside else float(_power_of_two(np.array(_COST_TARGET / largest)))
    # The matrix was made for this model, so its values may be replaced.
    matrix.data = matrix.data * row_factor[matrix.indices] * column_factor[column]
    return ScaledModel(
        cost=cost * cost_factor,
        offset=program.offset * cost_factor,
        matrix=matrix,
        row_lower=row_lower * row_factor,
        row_upper=row_upper * row_factor,
        lower=program.lower / column_factor,
        upper=program.upper / column_factor,
        row_factor=row_factor,
        column_factor=column_factor,
        cost_factor=cost_factor,
    )


def _largest(values: FloatArray, index: np.ndarray, length: int) -> FloatArray:
    """Largest value per index, zero where there is none."""
    result = np.zeros(length)
    np.maximum.at(result, index, values)
    return result


def _power_of_two(values: FloatArray) -> FloatArray:
    return np.exp2(np.round(np.log2(values)))
