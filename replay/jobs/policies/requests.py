"""Room for jobs that run on the GPUs that their users asked for, in the order of some priority."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wattsched.replay.jobs.menus import WAITS, Menus
from wattsched.replay.jobs.policy import View
from wattsched.topology.arrays import IntArray
from wattsched.topology.buddy import free_by_level


class Room:
    """Free GPUs of every pool by the level of the blocks they lie in (`topology.buddy`)."""

    def __init__(self, menus: Menus, free: list[IntArray]) -> None:
        self._menus = menus
        self._free = free

    @classmethod
    def free(cls, view: View) -> Room:
        """What the running jobs leave where they are."""
        return cls(view.menus, [ground.occupancy.free_gpus.copy() for ground in view.grounds])

    @classmethod
    def whole(cls, view: View) -> Room:
        """Everything, as if no job ran."""
        pools = view.trace.pools
        return cls(view.menus, [free_by_level(pool.blocks, pool.available) for pool in pools])

    def take(self, rows: IntArray) -> int:
        """Reserve room for the first of these rows that fits, fastest first; -1 when none does."""
        known = rows[rows != WAITS]
        for row in known[np.argsort(-self._menus.rate[known], kind="stable")].tolist():
            free, block = self._free[self._menus.pool[row]], int(self._menus.block[row])
            level = block.bit_length() - 1
            if level < len(free) and np.all(free[: level + 1] >= block):
                free[: level + 1] -= block
                return int(row)
        return WAITS


def serve(view: View, order: Iterable[int]) -> IntArray:
    """Rows when jobs get what they asked for in this order, one that does not fit being passed over.

    A job that runs stays in its pool when it is served.
    """
    room = Room.whole(view)
    row = np.full(len(view), WAITS, dtype=np.int64)
    for j in order:
        if view.row[j] != WAITS:
            row[j] = room.take(view.row[j : j + 1])
        if row[j] == WAITS:
            row[j] = room.take(view.request[j])
    return row
