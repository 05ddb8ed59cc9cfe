"""Efficient frontiers: per group, the lower convex hull of cost over use."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import BoolArray, FloatArray, IntArray


def convex_frontiers(use: FloatArray, cost: FloatArray, group: IntArray, allowed: BoolArray) -> IntArray:
    """Columns on the efficient frontier of their group, in order of group and use.

    The first of a group has the least use (and the least cost among those), the last the least cost.
    Along a group use rises and cost falls, at a falling rate.
    """
    kept = _below_chord(use, cost, group, np.flatnonzero(allowed))
    kept = kept[np.lexsort((cost[kept], use[kept], group[kept]))]
    while len(kept) > 1:
        u, c, g = use[kept], cost[kept], group[kept]
        after = g[1:] == g[:-1]  # whether a column follows one of its own group
        dominated = np.zeros(len(kept), dtype=bool)
        dominated[1:] = after & (c[1:] >= c[:-1])
        # On or above the line between its neighbours: such a point is never on the hull, so all
        # of them can go at once.
        inner = after[1:] & after[:-1] & (u[2:] > u[1:-1])
        left = (c[1:-1] - c[:-2]) * (u[2:] - u[1:-1])
        right = (c[2:] - c[1:-1]) * (u[1:-1] - u[:-2])
        dominated[1:-1] |= inner & (left >= right)
        if not dominated.any():
            break
        kept = kept[~dominated]
    return kept


def _below_chord(use: FloatArray, cost: FloatArray, group: IntArray, columns: IntArray) -> IntArray:
    """Columns that can be on the hull: not above the line from least use to least cost.

    This leaves few of many columns, which then are sorted.
    """
    if len(columns) == 0:
        return columns
    u, c, g = use[columns], cost[columns], group[columns]
    start = np.flatnonzero(np.concatenate([[True], g[1:] != g[:-1]]))
    sizes = np.diff(np.append(start, len(columns)))
    first_u, first_c = _least(u, c, start, sizes)
    last_c, last_u = _least(c, u, start, sizes)
    inside = (u <= last_u) & (c <= first_c)
    below = (c - first_c) * (last_u - first_u) <= (last_c - first_c) * (u - first_u)
    # The ends, which rounding could put above their own line.
    ends = ((u == first_u) & (c == first_c)) | ((u == last_u) & (c == last_c))
    return np.asarray(columns[(inside & below) | ends])


def _least(
    first: FloatArray, second: FloatArray, start: IntArray, sizes: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Per group the least first value, and the least second value among those; one entry per column."""
    low = np.repeat(np.minimum.reduceat(first, start), sizes)
    tied = np.minimum.reduceat(np.where(first == low, second, np.inf), start)
    return low, np.repeat(tied, sizes)
