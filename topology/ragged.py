"""Byte strings of many records in two arrays, to be put together without an object for each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, ranges

Bytes = NDArray[np.uint8]


@dataclass(frozen=True, eq=False)
class Ragged:
    """A byte string for each record.

    Attributes
    ----------
    start : int array, shape (n + 1,)
        That of record i is from ``start[i]`` to ``start[i + 1]``.
    content : uint8 array
    """

    start: IntArray
    content: Bytes

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def size(self) -> IntArray:
        """Bytes of every record."""
        return np.diff(self.start)

    @classmethod
    def of(cls, strings: Sequence[bytes]) -> Ragged:
        """Some byte strings."""
        return cls(_starts(map(len, strings)), np.frombuffer(b"".join(strings), np.uint8))

    @classmethod
    def texts(cls, texts: Sequence[str]) -> Ragged:
        """Texts in UTF-8."""
        joined = "".join(texts)
        if joined.isascii():
            return cls(_starts(map(len, texts)), np.frombuffer(joined.encode(), np.uint8))
        return cls.of([text.encode() for text in texts])

    @classmethod
    def doubles(cls, values: FloatArray | IntArray | BoolArray) -> Ragged:
        """Numbers as doubles, the lowest byte first."""
        content = np.frombuffer(np.ascontiguousarray(values, dtype="<f8").tobytes(), np.uint8)
        return cls(np.arange(len(values) + 1) * 8, content)

    def take(self, places: IntArray) -> Ragged:
        """Those of some records, some of them again."""
        size = self.size[places]
        return Ragged(_starts(size), self.content[ranges(self.start[places], size)])

    def where(self, keep: BoolArray) -> Ragged:
        """Those of some records, nothing for the others."""
        if keep.all():
            return self
        return Ragged(_starts(np.where(keep, self.size, 0)), self.content[np.repeat(keep, self.size)])

    def merged(self, counts: IntArray) -> Ragged:
        """One for so many that follow one another."""
        return Ragged(self.start[_starts(counts)], self.content)

    @staticmethod
    def joined(n: int, parts: Iterable[Ragged | bytes]) -> Ragged:
        """Parts of each of n records behind one another; bytes are a part of all."""
        known = [_repeated(n, part) if isinstance(part, bytes) else part for part in parts]
        start = _starts(np.sum([part.size for part in known], axis=0))
        content, place = np.empty(int(start[-1]), dtype=np.uint8), start[:-1]
        for part in known:
            content[ranges(place, part.size)] = part.content
            place = place + part.size
        return Ragged(start, content)


def _starts(sizes: Iterable[int] | IntArray) -> IntArray:
    found = sizes if isinstance(sizes, np.ndarray) else np.fromiter(sizes, np.int64)
    return np.concatenate([[0], np.cumsum(found)]).astype(np.int64)


def _repeated(n: int, part: bytes) -> Ragged:
    return Ragged(np.arange(n + 1) * len(part), np.tile(np.frombuffer(part, np.uint8), n))
