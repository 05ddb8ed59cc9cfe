"""Rows that no other row is as good as in everything."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from wattsched.topology.arrays import IntArray
from wattsched.verification.arithmetic import Numbers

FIRST_COMPARED, MOST_COMPARED = 64, 1_000
"""Rows that all rows are compared with, and then those that are left."""


def skyline(costs: Sequence[Numbers], most: int = MOST_COMPARED) -> IntArray:
    """Rows that no other row is as good as in all costs; of equal ones the first.

    Parameters
    ----------
    costs : sequence of arrays, shape (n_rows,)
        Of each kind of cost what every row has.
    most : int
        Rows that all others are compared with; where more are needed, some stay that could be left out.
    """
    ranks = np.stack([np.unique(cost, return_inverse=True)[1] for cost in costs])
    # Who is as good in all costs comes first; the first ones are better than most.
    order = np.argsort(ranks.sum(axis=0), kind="stable")
    for compared in (min(FIRST_COMPARED, most), most):
        known = ranks[:, order]
        beats = np.arange(min(compared, len(order)))[:, None] < np.arange(len(order))
        for rank in known:
            beats &= rank[:compared, None] <= rank
        order = order[~beats.any(axis=0)]
    return order
