"""The array types that all parts name, and what numpy lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# Of so few rows those of Python are sooner compared.
_FEW = 200
# Up to so many times as many numbers are sooner counted than sorted.
_FEW_VALUES = 4

# Among so many rows a table finds sooner than a search by halves.
_MANY = 2_000

# A multiplier that spreads bits, of MMIX's generator (Knuth, "The Art of Computer Programming", 3.3.4).
_ODD, _HALF = np.uint64(6364136223846793005), np.uint64(32)


def ranges(start: IntArray, size: IntArray) -> IntArray:
    """All numbers from each start on, as many as its size says, one range after the other."""
    before = size.cumsum() - size
    first = start - before
    if len(first) and (first == first[0]).all():  # they are one range together
        return np.arange(first[0], first[0] + before[-1] + size[-1])
    found = first.repeat(size)
    found += np.arange(len(found))
    return found


def offsets(sizes: IntArray | BoolArray | Sequence[int]) -> IntArray:
    """Sum of the sizes before each, and the total at the end; shape (n + 1,)."""
    found = np.zeros(len(sizes) + 1, dtype=np.int64)
    np.cumsum(sizes, out=found[1:])
    return found


def run_starts(*columns: NDArray[Any]) -> IntArray:
    """Places from which on an entry differs in some column from the one before; the first is one."""
    differs = np.ones(len(columns[0]), dtype=bool)
    differs[1:] = columns[0][1:] != columns[0][:-1]
    for column in columns[1:]:
        differs[1:] |= column[1:] != column[:-1]
    return differs.nonzero()[0]


def least_by(group: NDArray[Any], values: NDArray[Any], n: int, none: float = np.inf) -> NDArray[Any]:
    """Least value of each of n groups, at most `none`, which those without values have."""
    least = np.full(n, none)
    np.minimum.at(least, group, values)
    return least


def largest_by(group: NDArray[Any], values: NDArray[Any], n: int, none: float = 0.0) -> NDArray[Any]:
    """Largest value of each of n groups, at least `none`, which those without values have."""
    largest = np.full(n, none)
    np.maximum.at(largest, group, values)
    return largest


def stable_order(numbers: IntArray) -> IntArray:
    """Order of whole numbers from 0 on, in which equal ones stay as they are.

    Numbers of 16 bits are sorted digit by digit, which takes a tenth of the time.
    """
    small: NDArray[Any] = numbers
    if len(numbers) and numbers.max() < 1 << 16:
        small = numbers.astype(np.uint16)
    return np.argsort(small, kind="stable")


def distinct(numbers: IntArray, n: int) -> bool:
    """True if numbers below n all differ; this is faster than to sort them."""
    there = np.zeros(n, dtype=bool)
    there[numbers] = True
    return int(np.count_nonzero(there)) == len(numbers)


def occurring(numbers: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Return the numbers below n that occur, ascending, and the place of each in them, without sorting."""
    there = np.zeros(n, dtype=bool)
    there[numbers] = True
    if there.all():
        return np.arange(n), numbers
    return np.flatnonzero(there), (np.cumsum(there) - 1)[numbers]


def alike(columns: Sequence[IntArray | FloatArray]) -> tuple[IntArray, IntArray]:
    """First row of each kind of rows that agree in all columns, ascending, and every row's kind by number."""
    if len(columns[0]) <= _FEW:
        seen: dict[tuple[float, ...], int] = {}
        rows = zip(*(column.tolist() for column in columns), strict=True)
        kinds = np.array([seen.setdefault(row, len(seen)) for row in rows], dtype=np.int64)
        # Numbers are in the order in which they come.
        return np.searchsorted(np.maximum.accumulate(kinds), np.arange(len(seen))), kinds
    code, span = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        number, many = _numbered(column)
        code, span = code * many + number, span * many
        if span > _FEW_VALUES * len(code):
            code, span = _numbered(code)
    code, span = _numbered(code)
    first = np.zeros(span, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    return first[order], rank[code]


def _numbered(column: Any) -> tuple[IntArray, int]:
    """Return the number of each entry's value among the different ones, in order, and how many these are."""
    least, most = column.min(initial=0), column.max(initial=0)
    if column.dtype.kind == "i" and most - least <= _FEW_VALUES * len(column):
        values, number = occurring(column - least, int(most - least) + 1)
    else:
        values, number = np.unique(column, return_inverse=True)
    return number, len(values)


@dataclass(frozen=True, eq=False)
class Table:
    """Base of dataclasses whose fields are arrays of one length."""

    def take(self, rows: IntArray | BoolArray) -> Self:
        """Return some of the rows, by their places or a mask."""
        return type(self)(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        """Return the rows of the parts, one after the other."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


class Rows:
    """Rows of numbers, given by column, among which equal ones are looked up; nan equals nan.

    Rows are in the order of codes that are equal for equal rows, and differ for others.
    """

    def __init__(self, columns: Sequence[IntArray | FloatArray]) -> None:
        known, self._salt = _comparable(columns), 0
        number = np.arange(len(known[0]), dtype=np.uint64)
        # In the last bits of a code is the number of its row: codes alone are sorted soonest.
        self._last = np.uint64((1 << len(number).bit_length()) - 1)
        while True:
            code = np.sort(self._codes(known) | number)
            self._order, self._code = (code & self._last).astype(np.int64), code & ~self._last
            self._known = [column[self._order] for column in known]
            again = np.flatnonzero(self._code[1:] == self._code[:-1])
            if all(np.array_equal(column[again], column[again + 1]) for column in self._known):
                break
            self._salt += 1  # rows that differ have the same code
        starts = run_starts(self._code)
        # How many rows are equal from the first one of them on.
        self._many = np.zeros(len(code), dtype=np.int64)
        self._many[starts] = np.diff(np.append(starts, len(code)))
        self._place = self._table(starts)

    def _codes(self, known: list[FloatArray]) -> NDArray[np.uint64]:
        """Return the codes of rows of `_comparable` columns."""
        return _mixed(known, self._salt) & ~self._last

    def equal(self, asked: Sequence[IntArray | FloatArray]) -> tuple[IntArray, IntArray]:
        """Return pairs of a place among those asked for (by column) and a row that equals it, ascending."""
        place, first = self._found(asked)
        size = self._many[first]
        return np.repeat(place, size), self._order[ranges(first, size)]

    def first_equal(self, asked: Sequence[IntArray | FloatArray]) -> IntArray:
        """Return the first row that equals each that is asked for (by column), -1 where there is none."""
        place, first = self._found(asked)
        found = np.full(len(asked[0]), -1)
        found[place] = self._order[first]
        return found

    def _found(self, asked: Sequence[IntArray | FloatArray]) -> tuple[IntArray, IntArray]:
        """Return the places of those asked for that have equal rows, and where these begin in their order."""
        sought = _comparable(asked)
        if not len(self._code):
            return self._order, self._order
        first = np.minimum(self._first(self._codes(sought)), len(self._code) - 1)
        equal = np.ones(len(first), dtype=bool)
        for column, values in zip(self._known, sought, strict=True):
            equal &= column[first] == values
        place = np.flatnonzero(equal)
        return place, first[place]

    def _table(self, starts: IntArray) -> IntArray | None:
        """Return where codes begin, by their first bits, in a table for many codes."""
        if len(self._code) < _MANY:
            return None
        self._shift = np.uint64(64 - len(self._code).bit_length() - 2)
        place = np.zeros(1 << 64 - int(self._shift), dtype=np.int64)
        place[self._code[starts] >> self._shift] = starts
        return place

    def _first(self, wanted: NDArray[np.uint64]) -> IntArray:
        """Return the first place of each code, or where it would be."""
        if self._place is None:
            return np.asarray(np.searchsorted(self._code, wanted))
        first = self._place[wanted >> self._shift]
        others = np.flatnonzero(self._code[first] != wanted)
        first[others] = np.searchsorted(self._code, wanted[others])
        return np.asarray(first)


def _comparable(columns: Sequence[IntArray | FloatArray]) -> list[FloatArray]:
    """Return columns in which equal numbers have equal bits, also nan and -0."""
    return [
        np.where(np.isnan(values), -np.inf, values) + 0.0
        if values.dtype.kind == "f"
        else values.astype(float)
        for values in columns
    ]


def _mixed(columns: list[FloatArray], salt: int) -> NDArray[np.uint64]:
    """A number of each row: the same where all columns are, and hardly ever where they are not."""
    mixed = np.zeros(len(columns[0]), dtype=np.uint64)
    powers = _ODD ** np.arange(1 + salt, len(columns) + 1 + salt, dtype=np.uint64)
    for column, odd in zip(columns, powers, strict=True):
        bits = column.view(np.uint64)
        mixed += (bits ^ bits >> _HALF) * odd
    return (mixed ^ mixed >> _HALF) * _ODD
