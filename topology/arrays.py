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
