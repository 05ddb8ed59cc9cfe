"""The array types that all parts name, and what numpy lacks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Of so few rows those of Python are sooner compared.
_FEW = 200

# A multiplier that spreads bits, of MMIX's generator (Knuth, "The Art of Computer Programming", 3.3.4).
_ODD, _HALF = np.uint64(6364136223846793005), np.uint64(32)


def ranges(start: IntArray, size: IntArray) -> IntArray:
    """All numbers from each start on, as many as its size says, one range after the other."""
    skipped = np.cumsum(size) - size
    return np.asarray(np.arange(int(size.sum())) + np.repeat(start - skipped, size))


def alike(columns: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Kinds of rows that agree in all columns, in the order of their first rows.

    Returns
    -------
    first : int array, shape (n_kinds,)
        First row of each kind.
    kind : int array, shape (n_rows,)
        Kind of each row.
    """
    if len(columns[0]) <= _FEW:
        seen: dict[tuple[int, ...], int] = {}
        rows = zip(*(column.tolist() for column in columns), strict=True)
        kinds = np.array([seen.setdefault(row, len(seen)) for row in rows], dtype=np.int64)
        return np.unique(kinds, return_index=True)[1], kinds
    _, code = np.unique(columns[0], return_inverse=True)
    for column in columns[1:]:
        _, number = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (int(number.max(initial=0)) + 1) + number, return_inverse=True)
    _, first, kind = np.unique(code, return_index=True, return_inverse=True)
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[kind]


def equal_rows(
    columns: Sequence[IntArray | FloatArray], asked: Sequence[IntArray | FloatArray]
) -> tuple[IntArray, IntArray]:
    """Rows that equal those that are asked for in all columns; nan equals nan.

    Parameters
    ----------
    columns : sequence of arrays, shape (n_rows,)
    asked : sequence of arrays, shape (n_asked,)
        The same columns.

    Returns
    -------
    place, row : int arrays, shape (n_found,)
        Of those asked for, ascending, and the rows of each, ascending.
    """
    known, sought = [*map(_comparable, columns)], [*map(_comparable, asked)]
    code, wanted = _mixed(known), _mixed(sought)
    order = np.argsort(code, kind="stable")
    codes, first, many = np.unique(code[order], return_index=True, return_counts=True)
    at = np.searchsorted(codes, wanted)
    size = np.append(many, 0)[at]
    place, row = np.repeat(np.arange(len(wanted)), size), order[ranges(np.append(first, 0)[at], size)]
    equal = np.ones(len(row), dtype=bool)
    for column, values in zip(known, sought, strict=True):
        equal &= column[row] == values[place]
    return place[equal], row[equal]


def first_equal_row(
    columns: Sequence[IntArray | FloatArray], asked: Sequence[IntArray | FloatArray]
) -> IntArray:
    """First of the rows of `equal_rows` for each that is asked for, -1 where there is none."""
    place, row = equal_rows(columns, asked)
    found = np.full(len(asked[0]), -1)
    found[place[::-1]] = row[::-1]
    return found


def _comparable(values: IntArray | FloatArray) -> FloatArray:
    """Numbers of which equal ones have equal bits, also where they are none or 0."""
    return np.where(np.isnan(values), -np.inf, values) + 0.0


def _mixed(columns: Sequence[FloatArray]) -> NDArray[np.uint64]:
    """A number of each row: the same where all columns are, and hardly ever where they are not."""
    code = np.zeros(len(columns[0]), dtype=np.uint64)
    for values in columns:
        code ^= values.view(np.uint64)
        code *= _ODD
        code ^= code >> _HALF
    return code
