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

from typing import Self, TypeVar, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from wattsched.topology.arrays import BoolArray, IntArray

LevelArray = TypeVar("LevelArray", BoolArray, IntArray)


@overload
def block_size(gpus: int) -> int: ...
@overload
def block_size(gpus: NDArray[np.integer]) -> IntArray: ...
def block_size(gpus: int | NDArray[np.integer]) -> int | IntArray:
    """Size of the buddy block that holds `gpus` GPUs: the next power of two.

    Parameters
    ----------
    gpus : int or int array
        GPU counts, at least 1.

    Raises
    ------
    ValueError
        If a count is below 1.
    """
    if np.any(np.less(gpus, 1)):
        raise ValueError(f"a job needs at least 1 GPU, not {np.min(gpus)}")
    if isinstance(gpus, np.ndarray):
        # frexp(g - 1) gives the e with 2^(e-1) <= g - 1 < 2^e, exactly for all counts below 2^53.
        exponents = np.frexp((gpus - 1).astype(np.float64))[1]
        return np.left_shift(np.int64(1), exponents.astype(np.int64))
    return 1 << (int(gpus) - 1).bit_length()


def _by_level(blocks: IntArray, values: LevelArray, join: np.ufunc) -> list[LevelArray]:
    """Join the values of the GPUs of every aligned block, level by level.

    Entry i of array k is of the block of size ``2**k`` that starts at ``i * 2**k``. Level k covers only the
    structural blocks of at least that size; being sorted, they are a prefix of the line.
    """
    levels = [values]
    for level in range(1, int(blocks[0, 1]).bit_length()):
        covered = int(blocks[blocks[:, 1] >= 1 << level, 1].sum()) >> (level - 1)
        levels.append(join(levels[-1][:covered:2], levels[-1][1:covered:2]))
    return levels


def free_by_level(blocks: IntArray, free: BoolArray) -> IntArray:
    """GPUs in entirely free aligned blocks, by level: the right-hand sides of the buddy rows.

    Parameters
    ----------
    blocks : int array, shape (n_blocks, 2)
        Start and size of the structural blocks as in `Pool.blocks`.
    free : bool array, shape (n_gpus,)
        True where a job may be placed.

    Returns
    -------
    int array, shape (n_levels,)
        F[k], GPUs in free aligned blocks of size ``2**k``; the last level is the largest structural block.
    """
    if len(free) != int(blocks[:, 1].sum()):
        raise ValueError(f"'free' has {len(free)} entries, the pool has {int(blocks[:, 1].sum())} GPUs")
    whole = _by_level(blocks, np.asarray(free, dtype=bool), np.logical_and)
    return np.array([np.count_nonzero(w) << k for k, w in enumerate(whole)], dtype=np.int64)


def fits(sizes: ArrayLike, free_gpus: IntArray) -> bool:
    """Whether jobs of these sizes can be placed together, by the theorem above.

    Parameters
    ----------
    sizes : int array, shape (n_jobs,)
        Powers of two (`block_size`).
    free_gpus : int array, shape (n_levels,)
        F, from `free_by_level`.

    Raises
    ------
    ValueError
        If a size is not a power of two.
    """
    asked = np.asarray(sizes, dtype=np.int64).reshape(-1)
    if len(asked) == 0:
        return True
    levels = np.frexp(asked.astype(np.float64))[1] - 1
    wrong = (asked < 1) | (np.left_shift(np.int64(1), np.maximum(levels, 0).astype(np.int64)) != asked)
    if wrong.any():
        raise ValueError(f"block sizes must be powers of two, not {asked[wrong][0]}")
    return levels.max() < len(free_gpus) and bool(np.all(demand_by_level(asked, len(free_gpus)) <= free_gpus))


def demand_by_level(sizes: ArrayLike, n_levels: int) -> IntArray:
    """GPUs that jobs of these block sizes ask for, in blocks of each level's size or more."""
    asked = np.asarray(sizes, dtype=np.int64)
    levels = np.frexp(asked.astype(np.float64))[1] - 1
    by_level = np.bincount(levels, weights=asked, minlength=n_levels).astype(np.int64)
    return np.cumsum(by_level[::-1])[::-1]


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
    """

    def __init__(self, blocks: IntArray, free: BoolArray) -> None:
        self.taken = _by_level(blocks, (~free).astype(np.int64), np.add)
        # Blocks are taken one by one: of so few numbers those of Python are quicker.
        self._free = [int(np.count_nonzero(count == 0)) << level for level, count in enumerate(self.taken)]

    def copy(self) -> Self:
        """The same, to be changed."""
        other = object.__new__(type(self))
        other.taken, other._free = [count.copy() for count in self.taken], self._free.copy()
        return other

    @property
    def n_levels(self) -> int:
        """Number of levels, the largest structural block included."""
        return len(self.taken)

    @property
    def free_gpus(self) -> IntArray:
        """F of `topology.buddy`: GPUs in entirely free blocks of each level, shape (n_levels,)."""
        return np.array(self._free, dtype=np.int64)

    def is_free(self, start: int, level: int) -> bool:
        """Whether a block exists and is entirely free."""
        count, i = self.taken[level], start >> level
        return i < len(count) and not count[i]

    def are_free(self, starts: IntArray, levels: IntArray) -> BoolArray:
        """Which blocks, each of a level of its own, exist and are entirely free."""
        free = np.zeros(len(starts), dtype=bool)
        for level, count in enumerate(self.taken):
            here = np.flatnonzero((levels == level) & (starts >> level < len(count)))
            free[here] = count[starts[here] >> level] == 0
        return free

    def take(self, start: int, size: int) -> None:
        """Take a free aligned block."""
        self._change(start, size, 1)

    def leaves(self, start: int, size: int, demand: list[int]) -> bool:
        """Whether as much as is asked for in blocks of each level is left when a free block is taken."""
        top, whole = size.bit_length(), True
        for level, asked in enumerate(demand):
            left = self._free[level]
            if level < top:
                left -= size
            elif whole:
                # Of what is not free nothing larger is.
                whole = self.is_free(start, level)
                left -= whole << level
            if asked > left:
                return False
        return True

    def release(self, start: int, size: int) -> None:
        """Give back a block that was taken as one."""
        self._change(start, size, -1)

    def maximal(self) -> list[IntArray]:
        """List the starts of the free blocks that lie in no larger free block, ascending, by level."""
        starts: list[IntArray] = []
        for level, count in enumerate(self.taken):
            free = count == 0
            if level + 1 < self.n_levels:
                parents = np.repeat(self.taken[level + 1] == 0, 2)
                free[: len(parents)] &= ~parents
            starts.append(np.flatnonzero(free) << level)
        return starts

    def _change(self, start: int, size: int, sign: int) -> None:
        top = size.bit_length()
        for level in range(top):
            self.taken[level][start >> level : (start + size) >> level] = (sign > 0) << level
            self._free[level] -= sign * size
        for level in range(top, self.n_levels):
            count, i = self.taken[level], start >> level
            if i >= len(count):
                break
            before = int(count[i])
            count[i] = after = before + sign * size
            if before == 0 or after == 0:
                self._free[level] -= sign << level
