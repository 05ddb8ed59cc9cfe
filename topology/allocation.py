"""From block sizes to concrete GPUs: the buddy allocator, with few migrations of running jobs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from wattsched.topology.arrays import BoolArray, IntArray, ranges
from wattsched.topology.buddy import Occupancy, demand_by_level
from wattsched.topology.pools import Pool

NOWHERE = -1
"""Start of the block of a job that has none yet."""

# Up to so many blocks are taken sooner one by one than with all that there are.
_FEW = 10


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
    """

    size: IntArray
    gpus: IntArray
    holder: IntArray
    held: IntArray

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

    @cached_property
    def n_held(self) -> IntArray:
        """How many GPUs each job holds now, 0 when it is not running."""
        return np.bincount(self.holder, minlength=len(self))

    @cached_property
    def _held_before(self) -> IntArray:
        return _before(self.n_held)

    def held_by(self, j: int) -> IntArray:
        """Positions that one job holds now."""
        return self.held[self._held_before[j] : self._held_before[j + 1]]


@dataclass(frozen=True, eq=False)
class Allocation:
    """Where the jobs run.

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


def allocate(pool: Pool, free: BoolArray, requests: Requests) -> Allocation:
    """Place jobs on disjoint aligned blocks, moving few running jobs.

    A running job *stays* if its block contains all GPUs that it held, or if all GPUs that it gets were its
    own. At first all jobs stay that can without overlap. If the others then violate the theorem of
    `topology.buddy`, blocks are cleared of staying jobs: largest missing level first, blocks with the fewest
    jobs first. Jobs that turn out to have been evicted for nothing return. The rest is placed by descending
    size into the smallest free block. Where jobs overlap that could stay, this is done with the small ones
    first and with the large ones first, and the better answer counts. Ties are broken by the order of the
    jobs, or by position.

    An answer is always found if there is one. The number of migrations is the least possible where no job has
    to make room for another, and close to it elsewhere.

    Parameters
    ----------
    pool : Pool
    free : bool array, shape (n_gpus,)
        True where these jobs may be placed, hence also where they run now. Unavailable GPUs are left out.
    requests : Requests

    Raises
    ------
    ValueError
        If the jobs do not fit together, or a request contradicts itself or another one.
    """
    _check(pool, requests)
    usable = np.asarray(free, dtype=bool) & pool.available
    empty = Occupancy(pool.blocks, usable)
    _check_fit(pool, empty, requests)
    places = _Places(pool, usable, empty, requests)
    small_first = _attempt(places, np.argsort(requests.size, kind="stable"))
    if not len(small_first.migrated):
        return small_first
    # Aligned blocks nest, so keeping small jobs lets most jobs stay; but when they are then evicted for a
    # large one anyway, keeping the large one saves a migration.
    large_first = _attempt(places, np.argsort(requests.size, kind="stable")[::-1])
    return min(small_first, large_first, key=lambda allocation: len(allocation.migrated))


class _Places:
    """Blocks in which running jobs could stay: they keep all their GPUs there, or get none but their own.

    Attributes
    ----------
    job, start : int arrays, shape (n_places,)
        A job and a free block of its size, by job and by start.
    alone : bool array, shape (n_places,)
        Places of jobs that have no other, and that no other job's place overlaps: these jobs just stay.
    """

    def __init__(self, pool: Pool, usable: BoolArray, empty: Occupancy, requests: Requests) -> None:
        self.pool, self.requests = pool, requests
        level, n_held, holder = requests.level, requests.n_held, requests.holder
        begin = requests.held >> level[holder] << level[holder]
        block, own = np.unique(holder * pool.n_gpus + begin, return_counts=True)
        job, start = block // pool.n_gpus, block % pool.n_gpus
        enough = own >= np.minimum(requests.gpus, n_held)[job]
        self.job, self.start = job[enough], start[enough]
        exists = empty.are_free(self.start, level[self.job])
        self.job, self.start = self.job[exists], self.start[exists]
        only = np.bincount(self.job, minlength=len(requests))[self.job] == 1
        self.alone = only & ~_overlapping(self.start, self.start + requests.size[self.job])
        self._free, self._empty = usable, empty
        self._starts: list[int] = self.start.tolist()
        self._before = _before(np.bincount(self.job, minlength=len(requests))).tolist()

    @cached_property
    def _crowd_before(self) -> IntArray:
        """How many GPUs before each position are held, or not free."""
        crowd = ~self._free
        crowd[self.requests.held] = True
        return _before(crowd)

    def occupied(self, start: IntArray, size: IntArray) -> Occupancy:
        """What is taken when these blocks are."""
        if len(start) <= _FEW:
            occupancy = self._empty.copy()
            for one, gpus in zip(start.tolist(), size.tolist(), strict=True):
                occupancy.take(one, gpus)
            return occupancy
        free = self._free.copy()
        free[ranges(start, size)] = False
        return Occupancy(self.pool.blocks, free)

    def of(self, j: int) -> list[int]:
        """Starts of one job's places."""
        return self._starts[self._before[j] : self._before[j + 1]]

    def best(self, j: int, starts: list[int]) -> int:
        """Best fit of some places of a job, ascending.

        For one that shrinks: the place whose surroundings others use most, nearest level first.
        """
        n, level = self.pool.n_gpus, int(self.requests.level[j]) + 1
        held = self.requests.held_by(j).tolist() if len(starts) > 1 else []
        while starts[0] >> level != starts[-1] >> level:
            others = []
            for start in starts:
                begin = start >> level << level
                end = min(begin + (1 << level), n)
                own = bisect_left(held, end) - bisect_left(held, begin)
                others.append(int(self._crowd_before[end] - self._crowd_before[begin]) - own)
            most = max(others)
            starts = [start for start, crowd in zip(starts, others, strict=True) if crowd == most]
            level += 1
        return starts[0]


def _attempt(places: _Places, order: IntArray) -> Allocation:
    """Place the jobs, those that run now in this order."""
    requests = places.requests
    start = np.full(len(requests), NOWHERE)
    occupancy = _stay(places, order, start)
    _evict(occupancy, requests, start)
    _return(occupancy, places, order, start)
    rest = np.flatnonzero(start == NOWHERE)
    start[rest] = place_largest_first(occupancy, requests.size[rest])
    return _allocation(places.pool, requests, start)


def _stay(places: _Places, order: IntArray, start: IntArray) -> Occupancy:
    """Let running jobs stay, in this order, as long as they do not overlap; what is then taken."""
    requests = places.requests
    alone = places.job[places.alone]
    start[alone] = places.start[places.alone]
    occupancy = places.occupied(start[alone], requests.size[alone])
    contested = np.zeros(len(requests), dtype=bool)
    contested[places.job[~places.alone]] = True
    for j in order[contested[order]].tolist():
        level = int(requests.level[j])
        if found := [place for place in places.of(j) if occupancy.is_free(place, level)]:
            start[j] = best = places.best(j, found)
            occupancy.take(best, 1 << level)
    return occupancy


def _evict(occupancy: Occupancy, requests: Requests, start: IntArray) -> None:
    """Clear the cheapest blocks of staying jobs until the other jobs fit.

    Clearing a block of one level never makes another level worse: an evicted job asks for no more than it
    frees. Jobs as large as the missing block are left alone, since they would ask for what they free.
    """
    if np.all(_demand(occupancy, requests, start) <= occupancy.free_gpus):
        return
    for level in reversed(range(occupancy.n_levels)):
        missing = int((_demand(occupancy, requests, start) - occupancy.free_gpus)[level]) >> level
        if missing <= 0:
            continue
        jobs = np.flatnonzero((start != NOWHERE) & (requests.size < 1 << level))
        block = start[jobs] >> level
        n_blocks = len(occupancy.taken[level])
        jobs, block = jobs[block < n_blocks], block[block < n_blocks]
        n_jobs = np.bincount(block, minlength=n_blocks)
        n_gpus = np.bincount(block, weights=requests.size[jobs], minlength=n_blocks).astype(np.int64)
        clearable = np.flatnonzero((n_jobs > 0) & (occupancy.taken[level] == n_gpus))
        cheapest = clearable[np.lexsort((clearable, n_gpus[clearable], n_jobs[clearable]))[:missing]]
        for j in jobs[np.isin(block, cheapest)].tolist():
            occupancy.release(int(start[j]), int(requests.size[j]))
            start[j] = NOWHERE


def _return(occupancy: Occupancy, places: _Places, order: IntArray, start: IntArray) -> None:
    """Let further running jobs stay where that leaves room for the others."""
    requests = places.requests
    movable = np.zeros(len(requests), dtype=bool)
    movable[places.job] = True
    movable &= start == NOWHERE
    demand = _demand(occupancy, requests, start).tolist()
    for j in order[movable[order]].tolist():
        level = int(requests.level[j])
        size = 1 << level
        without = [asked - size if k <= level else asked for k, asked in enumerate(demand)]
        for place in places.of(j):
            if occupancy.is_free(place, level) and occupancy.leaves(place, size, without):
                occupancy.take(place, size)
                start[j], demand = place, without
                break


def place_largest_first(occupancy: Occupancy, sizes: IntArray) -> IntArray:
    """Blocks for jobs by descending size, each the first of the smallest free ones; these stay as they are.

    Parameters
    ----------
    occupancy : Occupancy
        With room for all of them, by the theorem of `topology.buddy`.
    sizes : int array, shape (n_jobs,)
        Powers of two; of equals the first comes first.

    Returns
    -------
    int array, shape (n_jobs,)
        Starts of the blocks.
    """
    free, start = occupancy.maximal(), np.full(len(sizes), NOWHERE)
    for size in np.unique(sizes)[::-1].tolist():
        jobs = np.flatnonzero(sizes == size)
        start[jobs] = _first_blocks(free, size.bit_length() - 1, len(jobs))
    return start


def _first_blocks(free: list[IntArray], level: int, n: int) -> IntArray:
    """Take so many blocks of a level from the free ones; what is left of a larger one stays free."""
    found = [free[level][:n]]
    free[level] = free[level][n:]
    n -= len(found[0])
    for above in range(level + 1, len(free)):
        if n == 0:
            break
        parts = 1 << above - level
        split, free[above] = np.split(free[above], [-(-n // parts)])
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
    """GPUs that the jobs use of their blocks: their own ones first."""
    holder_of = np.full(pool.n_gpus, NOWHERE)
    holder_of[requests.held] = requests.holder
    first, job = np.cumsum(requests.size) - requests.size, np.repeat(np.arange(len(requests)), requests.size)
    block = ranges(start, requests.size)
    own = holder_of[block] == job
    own_before = _before(own)
    earlier_own = own_before[:-1] - own_before[first][job]
    earlier = np.arange(len(block)) - first[job]
    n_own = own_before[first + requests.size] - own_before[first]
    used = np.where(own, earlier_own, n_own[job] + earlier - earlier_own) < requests.gpus[job]
    kept = np.bincount(job[used & own], minlength=len(requests))
    stayed = (kept == requests.n_held) | (kept == requests.gpus)
    return Allocation(start, block[used], np.flatnonzero((requests.n_held > 0) & ~stayed))


def _overlapping(start: IntArray, end: IntArray) -> BoolArray:
    """Which ranges have a position in common with another."""
    order = np.lexsort((end, start))
    first, last = start[order], np.maximum.accumulate(end[order])
    with_earlier = np.append(False, first[1:] < last[:-1])[: len(order)]
    with_later = np.append(first[1:] < end[order][:-1], False)[: len(order)]
    found = np.empty(len(order), dtype=bool)
    found[order] = with_earlier | with_later
    return found


def _before(holds: BoolArray | IntArray) -> IntArray:
    """How often something holds, or how many there are, before each place; one entry more for the end."""
    return np.concatenate([[0], np.cumsum(holds)])


def _demand(occupancy: Occupancy, requests: Requests, start: IntArray) -> IntArray:
    """GPUs that jobs without a block ask for, in blocks of each level's size or more."""
    return demand_by_level(requests.size[start == NOWHERE], occupancy.n_levels)


def _check(pool: Pool, requests: Requests) -> None:
    size, gpus, held, holder = requests.size, requests.gpus, requests.held, requests.holder
    for j in np.flatnonzero((gpus > size) | (size & (size - 1) != 0)).tolist():
        raise ValueError(f"job {j} cannot use {gpus[j]} GPUs of a block of {size[j]}")
    for j in np.flatnonzero(gpus < 1).tolist():
        raise ValueError(f"job {j} needs at least 1 GPU, not {gpus[j]}")
    for i in np.flatnonzero((held < 0) | (held >= pool.n_gpus)).tolist():
        raise ValueError(f"job {holder[i]} holds position {held[i]}, outside pool '{pool.name}'")
    order = np.argsort(held, kind="stable")
    for i in np.flatnonzero(np.diff(held[order]) == 0).tolist():
        one, other = holder[order[[i, i + 1]]]
        raise ValueError(f"jobs {one} and {other} both hold position {held[order[i]]}")


def _check_fit(pool: Pool, empty: Occupancy, requests: Requests) -> None:
    largest = int(requests.size.max(initial=1))
    if largest > pool.largest_block:
        raise ValueError(f"pool '{pool.name}' has no block of {largest}, the largest is {pool.largest_block}")
    free_gpus = empty.free_gpus
    demand = demand_by_level(requests.size, len(free_gpus))
    for level in np.flatnonzero(demand > free_gpus)[::-1]:
        raise ValueError(
            f"pool '{pool.name}': jobs in blocks of {1 << level} GPUs or more ask for {demand[level]} GPUs, "
            f"{free_gpus[level]} are free in such blocks"
        )
