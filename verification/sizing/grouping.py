"""Arrays in groups: who is alike."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from wattsched.topology.arrays import IntArray


def alike(kind: IntArray) -> Iterator[tuple[int, IntArray]]:
    """Kinds, and the places that have each, ascending."""
    order = np.argsort(kind, kind="stable")
    kinds, first = np.unique(kind[order], return_index=True)
    for number, start, end in zip(kinds.tolist(), first, [*first[1:], len(order)], strict=False):
        yield number, order[start:end]
