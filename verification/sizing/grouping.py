"""Arrays in groups: who is alike, and where the entries of each begin."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from wattsched.topology.arrays import FloatArray, IntArray


def together(columns: Sequence[IntArray | FloatArray]) -> tuple[IntArray, IntArray]:
    """Records that agree in all columns: the first of each group, and the group of every record."""
    code = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        _, number = np.unique(column, return_inverse=True)
        _, code = np.unique(code * (int(number.max(initial=0)) + 1) + number, return_inverse=True)
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    return first, code


def alike(kind: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Kinds, and the places that have each, ascending."""
    order = np.argsort(kind, kind="stable")
    kinds, first = np.unique(kind[order], return_index=True)
    for number, start, end in zip(kinds.tolist(), first, [*first[1:], len(order)], strict=False):
        yield number, order[start:end]


def distinct(numbers: IntArray, n: int) -> bool:
    """True if whole numbers from 0 on, below n, all differ."""
    seen = np.zeros(n, dtype=bool)
    seen[numbers] = True
    return int(np.count_nonzero(seen)) == len(numbers)


def ranges(first: IntArray, length: IntArray) -> IntArray:
    """Whole numbers from each first one on, so many of them, one after the other."""
    apart = first - (np.cumsum(length) - length)
    if len(apart) and (apart == apart[0]).all():
        return np.arange(first[0], first[0] + length.sum())
    numbers = np.repeat(apart, length)
    numbers += np.arange(len(numbers))
    return numbers
