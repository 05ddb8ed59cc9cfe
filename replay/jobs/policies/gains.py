"""Growing jobs by the gain of further GPUs, which SideCar, Optimus and ElasticFlow have in common.

Every job gets its smallest configuration, in some order, as long as there is room. Then the job with the
largest gain per GPU grows, again and again, until no growth gains or fits.

The published rules know GPUs of one kind. On a cluster with several pools a running job keeps its pool while
there is room in it; any other goes where its smallest configuration is fastest, as far as there is room. It
grows inside its pool.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np

from wattsched.replay.jobs.menus import WAITS, Menus, Selection, fastest
from wattsched.replay.jobs.policy import Setting, View
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.buddy import free_by_level

Gains = Callable[[int, int, IntArray], FloatArray]
"""Index of a job, its row and rows with more GPUs, to what each of them gains per further GPU."""


def counts(setting: Setting) -> Selection:
    """GPU counts that a rule chooses from: standard rows, as far as more GPUs are faster."""
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


def grow(view: View, selection: Selection, admission: IntArray, gains: Gains) -> IntArray:
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
    menus = view.menus
    rooms = [_Room(free_by_level(pool.blocks, pool.available).tolist()) for pool in view.trace.pools]
    start, rows = selection.laid_out(view.kind)
    row = np.full(len(view), WAITS, dtype=np.int64)
    smallest: dict[int, list[tuple[int, int, int]]] = {}
    for j in admission.tolist():
        kind, held = int(view.kind[j]), int(view.row[j])
        if kind not in smallest:
            smallest[kind] = _smallest(menus, rows[start[j] : start[j + 1]])
        choices = smallest[kind]
        if len(choices) > 1 and held != WAITS:
            choices = sorted(choices, key=lambda choice: choice[1] != menus.pool[held])
        for chosen, pool, block in choices:
            if rooms[pool].take(block, 0):
                row[j] = chosen
                break

    def best(j: int) -> tuple[float, int, int] | None:
        mine = rows[start[j] : start[j + 1]]
        room, held = rooms[menus.pool[row[j]]], int(menus.block[row[j]])
        mine = mine[menus.block[mine] > held]
        if len(rooms) > 1:
            mine = mine[menus.pool[mine] == menus.pool[row[j]]]
        mine = mine[[room.fits(size, held) for size in menus.block[mine].tolist()]]
        if not len(mine):
            return None
        gain = gains(j, int(row[j]), mine)
        top = int(np.argmax(gain))
        return (-float(gain[top]), j, int(mine[top])) if gain[top] > 0 else None

    heap = [entry for j in np.flatnonzero(row != WAITS).tolist() if (entry := best(j)) is not None]
    heapq.heapify(heap)
    while heap:
        _, j, larger = heapq.heappop(heap)
        if rooms[menus.pool[larger]].take(int(menus.block[larger]), int(menus.block[row[j]])):
            row[j] = larger
        if (entry := best(j)) is not None:
            heapq.heappush(heap, entry)
    return row


def _smallest(menus: Menus, rows: IntArray) -> list[tuple[int, int, int]]:
    """Row, pool and block of the smallest configuration in each pool, the fastest first."""
    order = rows[np.argsort(menus.block[rows], kind="stable")]
    first = order[np.unique(menus.pool[order], return_index=True)[1]]
    first = first[np.argsort(-menus.rate[first], kind="stable")]
    return list(zip(first.tolist(), menus.pool[first].tolist(), menus.block[first].tolist(), strict=True))
