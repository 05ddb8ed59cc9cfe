"""Rows that no other row is as good as in everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattsched.topology.arrays import IntArray
from wattsched.verification.arithmetic import Numbers

MOST_COMPARED = 1_000
"""Rows that all rows are compared with."""


def skyline(costs: Sequence[Numbers]) -> IntArray:
    """Rows that no other row is as good as in all costs; of equal ones the first.

    Of more than a thousand that each could do without, some are left.

    Parameters
    ----------
    costs : sequence of arrays, shape (n_rows,)
        Of each kind of cost what every row has.
    """
    order = np.lexsort(costs[::-1])
    before = min(len(order), MOST_COMPARED)
    beats = np.triu(np.ones((before, len(order)), dtype=bool), 1)
    for cost in costs:
        beats &= (cost[order[:before], None] <= cost[None, order]).astype(bool)
    return np.asarray(order[~beats.any(axis=0)])
