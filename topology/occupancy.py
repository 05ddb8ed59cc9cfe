"""Which aligned blocks of a pool are free, kept up to date while blocks are taken and released."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Occupancy:
    """Taken GPUs of a pool's line, counted in the aligned blocks of every level.

    Parameters
    ----------
    blocks : int array, shape (n_blocks, 2)
        Start and size of the structural blocks as in `Pool.blocks`.
    free : bool array, shape (n_gpus,)

    Attributes
    ----------
    taken : list of int arrays
        ``taken[k][i]`` is the number of taken GPUs in the block of size ``2**k`` that starts at ``i * 2**k``.
        Level k covers the structural blocks of at least that size, a prefix of the line.
    free_gpus : int array, shape (n_levels,)
        F of `topology.buddy`: GPUs in entirely free blocks of each level.
    """

    def __init__(self, blocks: IntArray, free: BoolArray) -> None:
        self.taken: list[IntArray] = [(~free).astype(np.int64)]
        for level in range(1, int(blocks[0, 1]).bit_length()):
            covered = int(blocks[blocks[:, 1] >= 1 << level, 1].sum()) >> (level - 1)
            self.taken.append(self.taken[-1][:covered].reshape(-1, 2).sum(axis=1))
        whole = [np.count_nonzero(count == 0) << level for level, count in enumerate(self.taken)]
        self.free_gpus: IntArray = np.array(whole, dtype=np.int64)

    @property
    def n_levels(self) -> int:
        """Number of levels, the largest structural block included."""
        return len(self.taken)

    def free_among(self, starts: IntArray, size: int) -> IntArray:
        """Those of the blocks of one size that exist and are entirely free."""
        level = size.bit_length() - 1
        if level >= self.n_levels:
            return starts[:0]
        count = self.taken[level]
        existing = starts[starts >> level < len(count)]
        free: IntArray = existing[count[existing >> level] == 0]
        return free

    def take(self, start: int, size: int) -> None:
        """Take a free aligned block."""
        self._fill(start, size, taken=True)
        for level in range(size.bit_length(), self.n_levels):
            i = start >> level
            if i >= len(self.taken[level]):
                break
            if self.taken[level][i] == 0:
                self.free_gpus[level] -= 1 << level
            self.taken[level][i] += size

    def release(self, start: int, size: int) -> None:
        """Give back a block that was taken as one."""
        self._fill(start, size, taken=False)
        for level in range(size.bit_length(), self.n_levels):
            i = start >> level
            if i >= len(self.taken[level]):
                break
            self.taken[level][i] -= size
            if self.taken[level][i] == 0:
                self.free_gpus[level] += 1 << level

    def maximal(self) -> list[list[int]]:
        """List the starts of the free blocks that lie in no larger free block, ascending, by level."""
        starts: list[list[int]] = []
        for level, count in enumerate(self.taken):
            free = count == 0
            if level + 1 < self.n_levels:
                parents = np.repeat(self.taken[level + 1] == 0, 2)
                free[: len(parents)] &= ~parents
            starts.append((np.flatnonzero(free) << level).tolist())
        return starts

    def _fill(self, start: int, size: int, *, taken: bool) -> None:
        top = size.bit_length()
        for level in range(top):
            self.taken[level][start >> level : (start + size) >> level] = taken << level
        self.free_gpus[:top] += -size if taken else size
