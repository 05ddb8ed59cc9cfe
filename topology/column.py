"""One column of records: what is stored of it, and how it is read from lists, numpy and Arrow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar, overload

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, occurring, offsets

T = TypeVar("T")

NONE = -1
"""Code of a record that has no value."""


class Made(Sequence[T], Generic[T]):
    """Values that are by column themselves, known to be sound, and made when they are looked at."""

    @abstractmethod
    def _made(self, place: int) -> T:
        """Make the value of a place."""

    @overload
    def __getitem__(self, place: int) -> T: ...

    @overload
    def __getitem__(self, place: slice) -> list[T]: ...

    def __getitem__(self, place: int | slice) -> T | list[T]:
        """Make the value of a place, or a list of those of a slice."""
        if isinstance(place, slice):
            return [self._made(i) for i in range(*place.indices(len(self)))]
        if not -len(self) <= place < len(self):
            raise IndexError(f"there is no record {place} of {len(self)}")
        return self._made(int(place) % len(self))

    def __iter__(self) -> Iterator[T]:
        return map(self._made, range(len(self)))


@dataclass(frozen=True, eq=False)
class Coded:
    """A column of few different values.

    Attributes
    ----------
    codes : int array, shape (n_records,)
        Place of each record's value in `values`, `NONE` for none.
    values : sequence
    """

    codes: IntArray
    values: Sequence[Any]

    @classmethod
    def of(cls, column: Iterable[Any]) -> Self:
        """Code a column; equal texts and lists are one value, models only where they are the same object."""
        number: dict[Hashable, int] = {}
        values: list[Any] = []
        codes: list[int] = []
        for value in column:
            if value is None:
                codes.append(NONE)
                continue
            code = number.setdefault(_key_of(value), len(values))
            if code == len(values):
                values.append(value)
            codes.append(code)
        return cls(np.array(codes, dtype=np.int64), values)

    @classmethod
    def joined(cls, parts: Sequence[Coded]) -> Coded:
        """One column after the other, with what they have in common once, and nothing that no record has.

        Columns that share values by column keep them.
        """
        with_values = [part.values for part in parts if len(part.values)]
        made = with_values and isinstance(with_values[0], Made)
        if made and all(values is with_values[0] for values in with_values):
            return cls(np.concatenate([part.codes for part in parts]), with_values[0])
        used = [occurring(part.codes - NONE, len(part.values) + 1) for part in parts]
        known = cls.of(
            part.values[number - 1] if number else None
            for part, (numbers, _) in zip(parts, used, strict=True)
            for number in numbers.tolist()
        )
        first = offsets([len(numbers) for numbers, _ in used])
        places = [place + begin for (_, place), begin in zip(used, first.tolist(), strict=False)]
        return known.take(np.concatenate([np.empty(0, dtype=np.int64), *places]))

    def take(self, places: IntArray) -> Coded:
        """Column of some of the records."""
        return Coded(self.codes[places], self.values)

    def at(self, place: int) -> Any:
        """Value of a record."""
        code = int(self.codes[place])
        return None if code == NONE else self.values[code]

    def tolist(self) -> list[Any]:
        """Value of every record."""
        decoded = [*self.values, None]
        return [decoded[code] for code in self.codes.tolist()]

    def where(self, holds: Callable[[Any], bool]) -> BoolArray:
        """Mask of the records with a value of which something holds."""
        held = np.array([holds(value) for value in self.values], dtype=bool)
        return np.append(held, False)[self.codes]  # the last is of records without a value


def _key_of(value: Any) -> Hashable:
    """Return what is equal for values that `Coded.of` takes for one."""
    if isinstance(value, str):
        return value
    return tuple(value) if isinstance(value, list) else id(value)


Column = FloatArray | IntArray | BoolArray | Coded | list[str]


def length(column: Column) -> int:
    """Return the number of entries of a column."""
    return len(column.codes if isinstance(column, Coded) else column)


def from_arrow(values: Any) -> Any:
    """Arrow's numbers as numpy's, with nan for none; texts as a list, or coded where they are.

    Arrays of numpy that are no plain numbers become lists, too; masked ones where they lack a value.
    """
    if isinstance(values, np.ndarray):
        plain = values.ndim == 1 and values.dtype.kind in "biuf" and not isinstance(values, np.ma.MaskedArray)
        return values if plain else values.tolist()
    if not hasattr(values, "to_pylist"):
        return values
    values = values.combine_chunks() if hasattr(values, "combine_chunks") else values
    if hasattr(values, "dictionary"):
        codes = values.indices.fill_null(NONE).to_numpy(zero_copy_only=False).astype(np.int64)
        return Coded(codes, values.dictionary.to_pylist())
    kind = str(getattr(values, "type", ""))  # whole tables have none
    if kind.startswith(("int", "uint", "float", "double")):
        return values.to_numpy(zero_copy_only=False)
    return values.to_pylist()


def with_codes(field: str, column: Coded) -> Coded:
    """Return the column of a field with codes as an array; an error where one stands for no value."""
    codes = from_arrow(column.codes)
    codes = np.array(codes) if isinstance(codes, list) else codes
    if not isinstance(codes, np.ndarray) or codes.ndim != 1 or (codes.dtype.kind not in "iu" and len(codes)):
        raise TypeError(f"'{field}': codes must be an array of whole numbers")
    values: Any = column.values
    values = values.tolist() if isinstance(values, np.ndarray) else values
    if not isinstance(values, Sequence):
        raise TypeError(f"'{field}': values must be a list, got {type(values).__name__}")
    for place in np.flatnonzero((codes < NONE) | (codes >= len(values)))[:1].tolist():
        neither = f"none of the {len(values)} values, nor {NONE} for none"
        raise ValueError(f"'{field}[{place}]': the code {codes[place]} is {neither}")
    return Coded(codes.astype(np.int64, copy=False), values)


def few_of(values: FloatArray | IntArray | Coded, form: str) -> list[Any]:
    """Return a few values of a column that the type of its form takes if and only if it takes all of them."""
    if isinstance(values, Coded):
        return [*values.values, *([None] if (values.codes == NONE).any() else [])]
    found = values[~np.isnan(values)] if values.dtype.kind == "f" else values
    if form == "optional count":
        found, form = found[found != 0], "count"
    if form == "count" and not (found % 1).any():
        found = found.astype(np.int64)
    ends = [found.min(), found.max()] if len(found) else []
    return [*(end.item() for end in ends), *([None] if len(found) < len(values) else [])]


DTYPES = {"number": np.float64, "count": np.int64, "whole": np.int64, "flag": np.bool_}
"""Form of a column of numbers to the type that it is stored as."""


def stored_array(form: str, values: FloatArray | IntArray | Coded, read: list[Any]) -> Column:
    """Return an array as a column; of what is coded the values as they were `read`, models for objects."""
    if isinstance(values, Coded):
        return Coded(values.codes, read[: len(values.values)])
    found = np.nan_to_num(values) if form == "count" and values.dtype.kind == "f" else values
    return found.astype(DTYPES[form], copy=False)


def as_list(values: Any) -> Any:
    """Every value of a column in a list; None where it has none."""
    if isinstance(values, Coded):
        return values.tolist()
    if isinstance(values, np.ndarray):
        return [None if value != value else value for value in values.tolist()]
    return values
