r"""Buddy blocks: which sets of block sizes fit into the free GPUs of a pool.

The GPUs of a pool lie on a line of structural blocks (`topology.pools`). An *aligned block* of size
:math:`2^k` starts at a multiple of its size and lies inside one structural block. Let :math:`F_k` be the
number of GPUs in entirely free aligned blocks of size :math:`2^k`.

**Theorem.** Jobs of power-of-two sizes :math:`g_j` can be placed on disjoint free aligned blocks if and only
if, for every k,

.. math:: \sum_{j:\ g_j \ge 2^k} g_j \le F_k .

*Proof.* Necessary: a free aligned block of size :math:`2^k` or more is a union of free aligned blocks of size
:math:`2^k`, so the jobs counted on the left hold GPUs counted on the right, and no GPU twice. Sufficient:
place the jobs by descending size. When a job of size :math:`2^k` comes, all jobs placed before it are at
least as large, so each of them holds whole aligned blocks of size :math:`2^k`. What they leave of :math:`F_k`
is a multiple of :math:`2^k`, and by the condition it is at least :math:`2^k`: a free aligned block is left
for this job. ∎

Sizes beyond the largest structural block never fit. Nothing is assumed about how the occupied GPUs came
about, or about the number of children of a rack: both show only in :math:`F`.

Which aligned blocks of a pool are free, kept up to date while blocks are taken and released.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Self, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wattsched.topology.arrays import BoolArray, IntArray

_NONE = np.empty(0, dtype=np.int64)


@overload
def block_size(gpus: int) -> int: ...
@overload
def block_size(gpus: NDArray[np.integer]) -> IntArray: ...
def block_size(gpus: int | NDArray[np.integer]) -> int | IntArray:
    """Size of the buddy block that holds `gpus` GPUs: the next power of two; a ValueError below 1."""
    if np.any(np.less(gpus, 1)):
        raise ValueError(f"a job needs at least 1 GPU, not {np.min(gpus)}")
    if isinstance(gpus, np.ndarray):
        # frexp(g - 1) gives the e with 2^(e-1) <= g - 1 < 2^e, exactly for all counts below 2^53.
        exponents = np.frexp((gpus - 1).astype(np.float64))[1]
        return np.left_shift(np.int64(1), exponents.astype(np.int64))
    return 1 << (int(gpus) - 1).bit_length()


def fits(sizes: ArrayLike, free_gpus: IntArray) -> bool:
    """True if jobs of these block sizes, powers of two, can be placed together, by the theorem above.

    Its F, the right-hand sides, are `Occupancy.free_gpus`.
    """
    asked = np.asarray(sizes, dtype=np.int64)
    if (wrong := asked[(asked < 1) | (asked & asked - 1 != 0)]).size:
        raise ValueError(f"block sizes must be powers of two, not {wrong[0]}")
    least = 1 << np.arange(len(free_gpus) + 1)
    demand = np.where(asked >= least[:, None], asked, 0).sum(axis=1)
    return bool((demand <= np.append(free_gpus, 0)).all())  # beyond the largest block nothing is free


class Occupancy:
    """Aligned blocks of a pool's line that are entirely free, at every level.

    Parameters
    ----------
    blocks : int array, shape (n_blocks, 2)
        Start and size of the structural blocks as in `Pool.blocks`.
    free : bool array, shape (n_gpus,)
        True where a job may be placed.
    """

    def __init__(self, blocks: IntArray, free: BoolArray) -> None:
        # Level k covers the structural blocks of at least 2^k GPUs; being sorted, they begin the line.
        sizes, above = blocks[:, 1], np.arange(1, int(blocks[0, 1]).bit_length())
        n_blocks = np.searchsorted(-sizes, -(1 << above), side="right")
        halves = np.cumsum(sizes)[n_blocks - 1] >> above - 1
        whole = [free]
        for covered in halves.tolist():
            whole.append(whole[-1][:covered:2] & whole[-1][1:covered:2])
        self._size = [len(level) for level in whole]
        # Level by level, that of 2^k from `_at[k]` on: entry i is of the block that starts at i 2^k.
        self._at = [0, *accumulate(self._size)]
        self._whole = np.concatenate(whole)
        self._free = [int(np.count_nonzero(level)) << k for k, level in enumerate(whole)]

    def copy(self) -> Self:
        """Return the same blocks, free or taken, to be changed."""
        other = object.__new__(type(self))
        other._size, other._at = self._size, self._at
        other._whole, other._free = self._whole.copy(), self._free.copy()
        return other

    @property
    def n_levels(self) -> int:
        """Number of levels, the largest structural block included."""
        return len(self._size)

    @property
    def free(self) -> BoolArray:
        """Mask of the free GPUs, shape (n_gpus,); a view that changes with the blocks."""
        return self._view(0)

    @property
    def free_gpus(self) -> IntArray:
        """F, the right-hand sides of the buddy rows: GPUs in free blocks of each level, shape (n_levels,)."""
        return np.array(self._free, dtype=np.int64)

    def lacks(self, level: int, demand: int) -> int:
        """Return how many blocks a level lacks for a demand in GPUs; negative if some are left."""
        return (demand - self._free[level]) >> level

    def is_free(self, start: int, level: int) -> bool:
        """True if a block exists and is entirely free."""
        i = start >> level
        return i < self._size[level] and bool(self._whole[self._at[level] + i])

    def are_free(self, starts: IntArray, levels: IntArray) -> BoolArray:
        """Return the mask of blocks, each of a level of its own, that exist and are entirely free."""
        i = starts >> levels
        exists = i < np.array(self._size)[levels]
        return exists & self._whole[np.where(exists, np.array(self._at)[levels] + i, 0)]

    def taken_on(self, level: int) -> IntArray:
        """Taken GPUs of each block of a level, a prefix of the line."""
        size = 1 << level
        return np.asarray(size - self.free[: self._size[level] * size].reshape(-1, size).sum(axis=1))

    def take(self, start: int, size: int) -> None:
        """Take a free aligned block."""
        whole, at, level = self._whole, self._at, size.bit_length()
        for below in range(level):
            first, many = at[below] + (start >> below), size >> below
            whole[first : first + many] = False
            self._free[below] -= size
        # The larger blocks around it are not free any more, either.
        while level < len(self._size) and self.is_free(start, level):
            whole[at[level] + (start >> level)] = False
            self._free[level] -= 1 << level
            level += 1

    def release(self, start: int, size: int) -> None:
        """Give back a block that was taken as one."""
        whole, at, level = self._whole, self._at, size.bit_length()
        for below in range(level):
            first, many = at[below] + (start >> below), size >> below
            whole[first : first + many] = True
            self._free[below] += size
        while level < len(self._size) and (start >> level) < self._size[level]:
            if not (whole[first := at[level - 1] + (start >> level << 1)] and whole[first + 1]):
                break
            whole[at[level] + (start >> level)] = True
            self._free[level] += 1 << level
            level += 1

    def spares(self, start: int, level: int, demand: Sequence[int]) -> bool:
        """True if a free block can be given to one of the jobs that demand GPUs, by level, and all still fit.

        At its level and below, supply and demand fall alike; above, it may split a larger free block.
        """
        for above in range(level + 1, len(self._size)):
            if not self.is_free(start, above):
                break
            if demand[above] >= self._free[above]:
                return False
        return True

    def maximal(self) -> list[IntArray]:
        """List the starts of the free blocks that lie in no larger free block, ascending, by level."""
        starts, above = [], [*self._free[1:], 0]
        for level, (free, larger) in enumerate(zip(self._free, above, strict=True)):
            if free == larger:  # what is free of a level is in free blocks of the next one, but for these
                starts.append(_NONE)
                continue
            alone = self._view(level)
            if larger:
                alone = alone.copy()
                parents = self._view(level + 1)
                alone[: 2 * len(parents)] &= ~parents.repeat(2)
            starts.append(alone.nonzero()[0] << level)
        return starts

    def _view(self, level: int) -> BoolArray:
        """Mask of the free blocks of a level."""
        return self._whole[self._at[level] : self._at[level + 1]]
