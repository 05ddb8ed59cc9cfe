"""Buddy allocator that maps block sizes to concrete GPUs with few migrations of running jobs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, distinct, offsets, ranges, run_starts
from wattsched.topology.buddy import Occupancy
from wattsched.topology.pools import Pool

NOWHERE = -1
"""Start of the block of a job that has none yet."""


@dataclass(frozen=True, eq=False)
class Requests:
    """Jobs that are to run in a pool, in the order in which ties are broken.

    Attributes
    ----------
    size : int array, shape (n_jobs,)
        Sizes of their blocks, powers of two.
    gpus : int array, shape (n_jobs,)
        GPUs really used, at most `size`.
    holder, held : int arrays, shape (n_held,)
        Line positions that jobs hold now, and the job that holds each, in ascending order of both.
    price : float array, shape (n_jobs,), optional
        Price of moving each job; all cost the same where it is not given.
    """

    size: IntArray
    gpus: IntArray
    holder: IntArray
    held: IntArray
    price: FloatArray | None = None

    @cached_property
    def prices(self) -> FloatArray:
        """Price of moving each job, shape (n_jobs,)."""
        return np.zeros(len(self)) if self.price is None else self.price

    @classmethod
    def of(cls, size: ArrayLike, gpus: ArrayLike, held: Iterable[Iterable[int]] = ()) -> Self:
        """Requests of jobs that hold these positions, the last ones nothing if there are fewer."""
        pairs = sorted((j, position) for j, positions in enumerate(held) for position in positions)
        holder, positions = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return cls(np.asarray(size, dtype=np.int64), np.asarray(gpus, dtype=np.int64), holder, positions)

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def level(self) -> IntArray:
        """Binary logarithms of the block sizes."""
        return np.asarray(np.frexp(self.size.astype(np.float64))[1] - 1, dtype=np.int64)

    def demand(self, n_levels: int, some: BoolArray | slice = slice(None)) -> list[int]:
        """GPUs that some of the jobs ask for, in blocks of each level's size or more."""
        n_jobs = np.bincount(self.level[some], minlength=n_levels).tolist()
        # Sums from the largest level down.
        return [*accumulate(n << k for k, n in reversed([*enumerate(n_jobs)]))][::-1]

    @cached_property
    def n_held(self) -> IntArray:
        """Number of GPUs that each job holds now, 0 when it is not running."""
        return np.bincount(self.holder, minlength=len(self))


@dataclass(frozen=True, eq=False)
class Allocation:
    """Blocks and GPUs of the jobs after an allocation.

    Attributes
    ----------
    start : int array, shape (n_jobs,)
        Start of each job's block.
    position : int array, shape (n_gpus,)
        Line positions of the jobs, job by job, of each ascending: those it held as far as they are in its
        block, then the first others of the block.
    migrated : int array
        Running jobs that neither keep all GPUs they held nor run on a part of them.
    """

    start: IntArray
    position: IntArray
    migrated: IntArray


def allocate(pool: Pool, empty: Occupancy, requests: Requests) -> Allocation:
    """Place jobs on disjoint aligned blocks, moving few running jobs.

    A running job *stays* if its block contains all GPUs that it held, or if all GPUs that it gets were its
    own. At first all jobs stay that can without overlap. If the others then violate the theorem of
    `topology.buddy`, blocks are cleared of staying jobs: largest missing level first, blocks with the fewest
    jobs first. Jobs that turn out to have been evicted for nothing return. The rest is placed by descending
    size into the smallest free block. Where jobs overlap that could stay, this is done with the small ones
    first and with the large ones first, and the better answer counts. Ties are broken by the order of the
    jobs, or by position.

    An answer is always found if there is one. The number of migrations is the least possible where no job has
    to make room for another, and close to it elsewhere. A ValueError says that the jobs do not fit together,
    or that a request contradicts itself or another one.

    Parameters
    ----------
    empty : Occupancy
        Free where these jobs may be placed, hence also where they run now; it stays as it is.
    """
    _check(pool, requests)
    _check_fit(pool, empty, requests)
    places = _Places(pool, empty, requests)
    by_size = np.argsort(requests.level.astype(np.uint8), kind="stable")
    best = _Attempt(places, by_size)
    if best.evicted:
        # Aligned blocks nest, so keeping small jobs lets most jobs stay; but when they are then evicted for a
        # large one anyway, keeping the large one saves a migration.
        large_first = _Attempt(places, by_size[::-1])
        best = min(best, large_first, key=lambda attempt: (attempt.price, attempt.n_moved))
    rest = np.flatnonzero(best.start == NOWHERE)
    best.start[rest] = place_largest_first(best.occupancy, requests.size[rest])
    return _allocation(pool, requests, best.start)


class _Places:
    """Blocks in which running jobs could stay: they keep all their GPUs there, or get none but their own.

    Attributes
    ----------
    job, start : int arrays, shape (n_places,)
        A job and a free block of its size, by job and by start.
    contested : bool array, shape (n_jobs,)
        Jobs with a place that another job's place overlaps; all others just stay where they fit best.
    """

    def __init__(self, pool: Pool, empty: Occupancy, requests: Requests) -> None:
        self.pool, self.requests, self._empty = pool, requests, empty
        level, n_held, holder = requests.level, requests.n_held, requests.holder
        begin = requests.held >> level[holder] << level[holder]
        # By holder and position, so that what a job has of a block is together.
        first = run_starts(holder, begin)
        job, start, own = holder[first], begin[first], np.diff(np.append(first, len(begin)))
        stays = (own >= np.minimum(requests.gpus, n_held)[job]) & empty.are_free(start, level[job])
        self.job, self.start = job[stays], start[stays]
        self._n = np.bincount(self.job, minlength=len(requests))
        # A job's own places are apart.
        self.contested = np.zeros(len(requests), dtype=bool)
        self.contested[self.job[_overlapping(self.start, requests.size[self.job], pool.n_gpus)]] = True

    def of(self, jobs: IntArray) -> Iterator[tuple[int, int, list[int]]]:
        """Yield jobs, their levels and the starts of their places, those first that fit best."""
        ends, starts = self._listed if len(jobs) else ([], [])
        for j, level in zip(jobs.tolist(), self.requests.level[jobs].tolist(), strict=True):
            yield j, level, starts[ends[j] : ends[j + 1]]

    @cached_property
    def _ends(self) -> IntArray:
        """Offset of each job's first place, then the number of places; shape (n_jobs + 1,)."""
        return offsets(self._n)

    @cached_property
    def _best_first(self) -> IntArray:
        """Starts of the places, of each job those first that fit best."""
        several = np.flatnonzero(self._n[self.job] > 1)
        if not len(several):
            return self.start
        starts = self.start.copy()
        starts[several] = self.start[several[np.lexsort((*self._crowd(several), self.job[several]))]]
        return starts

    @cached_property
    def _listed(self) -> tuple[list[int], list[int]]:
        """Offset of each job's first place, and the starts of all places, as lists."""
        return self._ends.tolist(), self._best_first.tolist()

    def _crowd(self, some: IntArray) -> IntArray:
        """Negated number of GPUs that other jobs use around some places, by block level, the nearest last."""
        requests, n = self.requests, self.pool.n_gpus
        crowd = ~self._empty.free
        crowd[requests.held] = True
        before, held = offsets(crowd), requests.holder * n + requests.held
        job, start = self.job[some], self.start[some]
        # Larger blocks have all places of a job in them.
        n_levels = int((start ^ self.start[self._ends[job]]).max()).bit_length()
        level = np.arange(n_levels)[::-1, None]
        begin = start >> level << level
        end = np.minimum(begin + (1 << level), n)
        own = np.searchsorted(held, job * n + end) - np.searchsorted(held, job * n + begin)
        return np.where(level > requests.level[job], own - (before[end] - before[begin]), 0)

    @cached_property
    def uncontested(self) -> tuple[IntArray, IntArray]:
        """Jobs that just stay, and where."""
        jobs = np.flatnonzero((self._n > 0) & ~self.contested)
        return jobs, self._best_first[self._ends[jobs]]

    @cached_property
    def left(self) -> Occupancy:
        """Occupancy of the pool once the uncontested jobs stay where they are."""
        jobs, start = self.uncontested
        free = self._empty.free.copy()
        free[ranges(start, self.requests.size[jobs])] = False
        return Occupancy(self.pool.blocks, free)


class _Attempt:
    """Choice of the running jobs that stay, and where, such that all other jobs fit, too.

    Attributes
    ----------
    start : int array, shape (n_jobs,)
        `NOWHERE` for jobs that are to be placed.
    occupancy : Occupancy
        Blocks left by those that stay.
    price : float
        Price of the jobs that are to be placed.
    n_moved : int
        Number of these jobs.
    evicted : bool
        True if jobs made room for others.
    """

    def __init__(self, places: _Places, order: IntArray) -> None:
        requests = places.requests
        self.start, self.occupancy = np.full(len(requests), NOWHERE), places.left.copy()
        jobs, where = places.uncontested
        self.start[jobs] = where
        # All stay that can; some make room for others; and those return that did so for nothing.
        self._stay(places.of(order[places.contested[order]]))
        n_left = int(np.count_nonzero(self.start == NOWHERE))
        demand = self._evict(requests)
        movable = np.zeros(len(requests), dtype=bool)
        movable[places.job] = True
        movable &= self.start == NOWHERE
        self._stay(places.of(order[movable[order]]), demand)
        self.price = float(requests.prices[self.start == NOWHERE].sum())
        self.n_moved = int(np.count_nonzero(self.start == NOWHERE))
        self.evicted = self.n_moved > n_left

    def _stay(self, jobs: Iterable[tuple[int, int, list[int]]], demand: list[int] | None = None) -> None:
        """Let jobs of `_Places.of` stay where they do not overlap and, if given, a demand still has room."""
        occupancy = self.occupancy
        for j, level, starts in jobs:
            for place in starts:
                if not occupancy.is_free(place, level):
                    continue
                if demand is not None:
                    if not occupancy.spares(place, level, demand):
                        continue
                    demand[: level + 1] = [gpus - (1 << level) for gpus in demand[: level + 1]]
                self.start[j] = place
                occupancy.take(place, 1 << level)
                break

    def _evict(self, requests: Requests) -> list[int]:
        """Clear the cheapest blocks of staying jobs until the other jobs fit; return the demand of these.

        Clearing a block of one level never makes another level worse: an evicted job asks for no more than it
        frees. Jobs as large as the missing block are left alone, since they would ask for what they free.
        """
        start, occupancy = self.start, self.occupancy
        demand = requests.demand(occupancy.n_levels, start == NOWHERE)
        for level in reversed(range(occupancy.n_levels)):
            missing = occupancy.lacks(level, demand[level])
            if missing <= 0:
                continue
            jobs = np.flatnonzero((start != NOWHERE) & (requests.size < 1 << level))
            n_taken = occupancy.taken_on(level)
            block, n_blocks = start[jobs] >> level, len(n_taken)
            jobs, block = jobs[block < n_blocks], block[block < n_blocks]
            n_jobs = np.bincount(block, minlength=n_blocks)
            n_gpus = np.bincount(block, weights=requests.size[jobs], minlength=n_blocks).astype(np.int64)
            price = np.bincount(block, weights=requests.prices[jobs], minlength=n_blocks)
            clearable = np.flatnonzero((n_jobs > 0) & (n_taken == n_gpus))
            order = np.lexsort((n_gpus[clearable], n_jobs[clearable], price[clearable]))
            cheapest = np.zeros(n_blocks, dtype=bool)
            cheapest[clearable[order[:missing]]] = True
            for j in jobs[cheapest[block]].tolist():
                occupancy.release(int(start[j]), int(requests.size[j]))
                start[j] = NOWHERE
            demand = requests.demand(occupancy.n_levels, start == NOWHERE)
        return demand


def place_largest_first(occupancy: Occupancy, sizes: IntArray) -> IntArray:
    """Starts of blocks for jobs by descending size, each the first of the smallest free blocks.

    The occupancy, which has room for all of them by the theorem of `topology.buddy`, stays as it is.
    """
    free, start = occupancy.maximal(), np.full(len(sizes), NOWHERE)
    for size in sorted({*sizes.tolist()}, reverse=True):
        jobs = np.flatnonzero(sizes == size)
        start[jobs] = _first_blocks(free, size.bit_length() - 1, len(jobs))
    return start


def _first_blocks(free: list[IntArray], level: int, n: int) -> IntArray:
    """Take n blocks of a level from those free, starts by level; what is left of a larger one stays free."""
    found = [free[level][:n]]
    free[level] = free[level][n:]
    n -= len(found[0])
    for above in range(level + 1, len(free)):
        if n == 0:
            break
        parts = 1 << above - level
        needed = -(-n // parts)
        split, free[above] = free[above][:needed], free[above][needed:]
        blocks = (split[:, None] + (np.arange(parts) << level)).ravel()
        found.append(blocks[:n])
        if len(blocks) > n:
            at, end = int(blocks[n]), int(split[-1]) + (1 << above)
            while at < end:  # of the levels between there was nothing left
                half = (at & -at).bit_length() - 1
                free[half] = np.array([at])
                at += 1 << half
        n -= len(found[-1])
    assert n == 0, "there is room"
    return np.concatenate(found)


def _allocation(pool: Pool, requests: Requests, start: IntArray) -> Allocation:
    """GPUs that the jobs use of their blocks: their own ones first, then the first others."""
    holder_of = np.full(pool.n_gpus, NOWHERE)  # by position
    holder_of[requests.held] = requests.holder
    size, gpus = requests.size, requests.gpus
    # All GPUs of the blocks, block by block: their jobs and their positions.
    first, job = np.cumsum(size) - size, np.repeat(np.arange(len(size)), size)
    block = ranges(start, size)
    own = holder_of[block] == job
    own_before = offsets(own)
    earlier_own = own_before[:-1] - own_before[first][job]
    earlier = np.arange(len(block)) - first[job]
    n_own = own_before[first + size] - own_before[first]
    used = np.where(own, earlier_own, n_own[job] + earlier - earlier_own) < gpus[job]
    kept = np.minimum(n_own, gpus)
    stayed = (kept == requests.n_held) | (kept == gpus)
    return Allocation(start, block[used], np.flatnonzero((requests.n_held > 0) & ~stayed))


def _overlapping(start: IntArray, size: IntArray, n: int) -> BoolArray:
    """Mask of ranges of positions below n that share a position with another range."""
    found = np.zeros(len(start), dtype=bool)
    if distinct(ranges(start, size), n):
        return found
    order = start.argsort(kind="stable")
    first, end = start[order], (start + size)[order]
    found[order[1:]] = first[1:] < np.maximum.accumulate(end)[:-1]
    found[order[:-1]] |= first[1:] < end[:-1]
    return found


def _check(pool: Pool, requests: Requests) -> None:
    """Refuse requests that contradict themselves or each other."""
    size, gpus, held, holder = requests.size, requests.gpus, requests.held, requests.holder
    for j in np.flatnonzero((gpus > size) | (size & (size - 1) != 0)).tolist():
        raise ValueError(f"job {j} cannot use {gpus[j]} GPUs of a block of {size[j]}")
    for j in np.flatnonzero(gpus < 1).tolist():
        raise ValueError(f"job {j} needs at least 1 GPU, not {gpus[j]}")
    for i in np.flatnonzero((held < 0) | (held >= pool.n_gpus)).tolist():
        raise ValueError(f"job {holder[i]} holds position {held[i]}, outside pool '{pool.name}'")
    if not distinct(held, pool.n_gpus):
        twice = int(np.flatnonzero(np.bincount(held) > 1)[0])
        one, other = holder[held == twice][:2]
        raise ValueError(f"jobs {one} and {other} both hold position {twice}")


def _check_fit(pool: Pool, empty: Occupancy, requests: Requests) -> None:
    """Refuse requests that do not fit together, by the theorem of `topology.buddy`."""
    largest = int(requests.size.max(initial=1))
    if largest > pool.largest_block:
        raise ValueError(f"pool '{pool.name}' has no block of {largest}, the largest is {pool.largest_block}")
    for level, asked in reversed([*enumerate(requests.demand(empty.n_levels))]):
        if empty.lacks(level, asked) > 0:
            raise ValueError(
                f"pool '{pool.name}': jobs in blocks of {1 << level} GPUs or more ask for {asked} GPUs, "
                f"{empty.free_gpus[level]} are free in such blocks"
            )
