"""Rows that jobs of a round by kind have for themselves, beside those of their kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from wattsched.topology.arrays import FloatArray, IntArray, ranges


class OwnPairs(NamedTuple):
    """Jobs with rows that they have for themselves, in the order of the round.

    Attributes
    ----------
    job, row : int arrays, shape (n,)
        `WAIT` for waiting.
    cost : float array, shape (n,)
    seconds : float array, shape (n,), optional
        For which it draws its watts; for waiting the joules that it pays for. None where no row counts them.
    credit : float array, shape (n,), optional
        Goodput at the speed of the smallest configuration. None where no row counts it.
    """

    job: IntArray
    row: IntArray
    cost: FloatArray
    seconds: FloatArray | None
    credit: FloatArray | None


def in_turn(parts: Sequence[OwnPairs], order: IntArray) -> OwnPairs:
    """Pairs of all parts in the order of the jobs that each of them has, of a job by part."""
    many = [np.bincount(part.job, minlength=len(order))[order] for part in parts]
    every = np.sum(many, axis=0)
    places, first = [], np.cumsum(every) - every
    for own in many:
        places.append(ranges(first, own))
        first = first + own

    def joined(columns: Sequence[Any]) -> Any:
        if columns[0] is None:
            return None
        found = np.empty(sum(map(len, columns)), dtype=columns[0].dtype)
        for where, values in zip(places, columns, strict=True):
            found[where] = values
        return found

    return OwnPairs(*map(joined, zip(*parts, strict=True)))


def with_more(values: NDArray[Any], more: NDArray[Any]) -> NDArray[Any]:
    """Values and more of them, which there seldom are."""
    return np.append(values, more) if len(more) else values
