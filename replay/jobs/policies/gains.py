"""Growing jobs by the gain of further GPUs, which SideCar, Optimus and ElasticFlow have in common.

Every job gets its smallest configuration, in some order, as long as there is room. Then the job with the
largest gain per GPU grows, again and again, until no growth gains or fits.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from wattsched.replay.jobs.menus import WAITS, Floats, Integers, Selection, fastest
from wattsched.replay.jobs.policy import Setting, View
from wattsched.topology.buddy import free_by_level

Gains = Callable[[int, int, Integers], Floats]
"""Index of a job, its row and rows with more GPUs, to what each of them gains per further GPU."""


def counts(setting: Setting, name: str) -> Selection:
    """GPU counts that a rule chooses from: standard rows, as far as more GPUs are faster.

    Raises
    ------
    ValueError
        When the cluster has several pools, which these rules do not tell apart.
    """
    if len(setting.trace.pools) > 1:
        pools = ", ".join(pool.name for pool in setting.trace.pools)
        raise ValueError(f"policy '{name}' takes clusters with one pool of GPUs, this one has {pools}")
    return fastest(setting.trace.menus, setting.trace.menus.standard)


class _Room:
    """Free GPUs by level; a job counts at every level up to that of its block (`topology.buddy`)."""

    def __init__(self, free: list[int]) -> None:
        self._free = free

    def fits(self, more: int, less: int) -> bool:
        """Whether a block may grow from `less` GPUs, 0 for none, to `more`."""
        if more >> len(self._free):
            return False
        return all(
            free >= more - (less if 1 << level <= less else 0)
            for level, free in enumerate(self._free[: more.bit_length()])
        )

    def take(self, more: int, less: int) -> bool:
        """Let a block grow if it fits."""
        if not self.fits(more, less):
            return False
        for level in range(more.bit_length()):
            self._free[level] -= more - (less if 1 << level <= less else 0)
        return True


def grow(view: View, selection: Selection, admission: Integers, gains: Gains) -> Integers:
    """Choose rows by marginal gain.

    Parameters
    ----------
    selection : Selection
        Rows to choose from.
    admission : int array, shape (n,)
        Order in which jobs get their smallest configuration.
    gains : callable
        A growth that gains nothing is not made.

    Returns
    -------
    int array, shape (n,)
        A row for each job, -1 where it waits.
    """
    menus, pool = view.menus, view.trace.pools[0]
    room = _Room(free_by_level(pool.blocks, pool.available).tolist())
    start, rows = selection.laid_out(view.kind)
    row = np.full(len(view), WAITS, dtype=np.int64)
    for j in admission.tolist():
        mine = rows[start[j] : start[j + 1]]
        smallest = int(mine[np.argmin(menus.block[mine])])
        if room.take(int(menus.block[smallest]), 0):
            row[j] = smallest

    def best(j: int) -> tuple[float, int, int] | None:
        mine = rows[start[j] : start[j + 1]]
        mine = mine[menus.block[mine] > menus.block[row[j]]]
        mine = mine[[room.fits(size, int(menus.block[row[j]])) for size in menus.block[mine].tolist()]]
        if not len(mine):
            return None
        gain = gains(j, int(row[j]), mine)
        top = int(np.argmax(gain))
        return (-float(gain[top]), j, int(mine[top])) if gain[top] > 0 else None

    heap = [entry for j in np.flatnonzero(row != WAITS).tolist() if (entry := best(j)) is not None]
    heapq.heapify(heap)
    while heap:
        _, j, larger = heapq.heappop(heap)
        if room.take(int(menus.block[larger]), int(menus.block[row[j]])):
            row[j] = larger
        if (entry := best(j)) is not None:
            heapq.heappush(heap, entry)
    return row
