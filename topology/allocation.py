"""From block sizes to concrete GPUs: the buddy allocator, with few migrations of running jobs."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.topology.buddy import Occupancy, demand_by_level
from wattsched.topology.pools import Pool


@dataclass(frozen=True)
class Request:
    """A job that is to run in the pool.

    Attributes
    ----------
    job : str
    size : int
        Size of its block, a power of two.
    gpus : int
        GPUs really used, at most `size`.
    held : tuple of int
        Line positions that the job holds now; empty when it is not running.
    """

    job: str
    size: int
    gpus: int
    held: tuple[int, ...] = ()

    @property
    def level(self) -> int:
        """Binary logarithm of the block size."""
        return self.size.bit_length() - 1


@dataclass(frozen=True)
class Allocation:
    """Where the jobs run.

    Attributes
    ----------
    positions : mapping of str to int array, shape (gpus,)
        Line positions of each job, ascending: those it held as far as they are in its block, then the
        first others of the block.
    starts : mapping of str to int
        Start of each job's block.
    migrated : tuple of str
        Running jobs that neither keep all GPUs they held nor run on a part of them; sorted.
    """

    positions: Mapping[str, IntArray]
    starts: Mapping[str, int]
    migrated: tuple[str, ...]


def allocate(pool: Pool, free: BoolArray, requests: Sequence[Request]) -> Allocation:
    """Place jobs on disjoint aligned blocks, moving few running jobs.

    A running job *stays* if its block contains all GPUs that it held, or if all GPUs that it gets were its
    own. At first all jobs stay that can without overlap. If the others then violate the theorem of
    `topology.buddy`, blocks are cleared of staying jobs: largest missing level first, blocks with the fewest
    jobs first. Jobs that turn out to have been evicted for nothing return. The rest is placed by descending
    size into the smallest free block. Where jobs overlap that could stay, this is done with the small ones
    first and with the large ones first, and the better answer counts. Ties are broken by name or position.

    An answer is always found if there is one. The number of migrations is the least possible where no job has
    to make room for another, and close to it elsewhere.

    Parameters
    ----------
    pool : Pool
    free : bool array, shape (n_gpus,)
        True where these jobs may be placed, hence also where they run now. Unavailable GPUs are left out.
    requests : sequence of Request

    Raises
    ------
    ValueError
        If the jobs do not fit together, or a request contradicts itself or another one.
    """
    _check(pool, requests)
    by_size = sorted(requests, key=lambda r: (r.size, r.job))
    usable = np.asarray(free, dtype=bool) & pool.available
    occupancy = Occupancy(pool.blocks, usable)
    _check_fit(pool, occupancy, by_size)
    small_first = _attempt(occupancy, by_size)
    if not small_first.migrated:
        return small_first
    # Aligned blocks nest, so keeping small jobs lets most jobs stay; but when they are then evicted for a
    # large one anyway, keeping the large one saves a migration.
    large_first = _attempt(Occupancy(pool.blocks, usable), by_size[::-1])
    return min(small_first, large_first, key=lambda allocation: len(allocation.migrated))


def _attempt(occupancy: Occupancy, requests: list[Request]) -> Allocation:
    starts = _stay(occupancy, requests)
    _evict(occupancy, requests, starts)
    _return(occupancy, requests, starts)
    _place(occupancy, requests, starts)
    positions = {r.job: _used(r, starts[r.job]) for r in requests}
    migrated = sorted(r.job for r in requests if r.held and not _stayed(r, positions[r.job]))
    return Allocation(positions=positions, starts=starts, migrated=tuple(migrated))


def _stay(occupancy: Occupancy, requests: list[Request]) -> dict[str, int]:
    """Let running jobs stay, in this order, as long as they do not overlap."""
    if not any(request.held for request in requests):
        return {}
    crowd = occupancy.taken[0].copy()
    for request in requests:
        crowd[list(request.held)] = 1
    crowd_before = np.concatenate([[0], np.cumsum(crowd)])
    starts: dict[str, int] = {}
    for request in requests:
        places = _places_to_stay(occupancy, request)
        if len(places):
            start = int(places[0]) if len(places) == 1 else _most_crowded(places, request, crowd_before)
            occupancy.take(start, request.size)
            starts[request.job] = start
    return starts


def _places_to_stay(occupancy: Occupancy, request: Request) -> IntArray:
    """Free blocks in which a running job keeps all its GPUs, or which offer enough of them."""
    if not request.held:
        return np.empty(0, dtype=np.int64)
    blocks, own = np.unique(np.array(request.held, dtype=np.int64) >> request.level, return_counts=True)
    enough = own >= min(request.gpus, len(request.held))
    return occupancy.free_among(blocks[enough] << request.level, request.size)


def _most_crowded(places: IntArray, request: Request, crowd_before: IntArray) -> int:
    """Best fit for a job that shrinks: the place whose surroundings others use most, nearest level first."""
    held = np.sort(np.array(request.held, dtype=np.int64))
    n = len(crowd_before) - 1
    keys = [places]
    for level in reversed(range(request.level + 1, n.bit_length())):
        begin = places >> level << level
        end = np.minimum(begin + (1 << level), n)
        own = np.searchsorted(held, end) - np.searchsorted(held, begin)
        keys.append(own - (crowd_before[end] - crowd_before[begin]))
    return int(places[np.lexsort(keys)[0]])


def _evict(occupancy: Occupancy, requests: list[Request], starts: dict[str, int]) -> None:
    """Clear the cheapest blocks of staying jobs until the other jobs fit.

    Clearing a block of one level never makes another level worse: an evicted job asks for no more than it
    frees. Jobs as large as the missing block are left alone, since they would ask for what they free.
    """
    if np.all(_demand(occupancy, requests, starts) <= occupancy.free_gpus):
        return
    size_of = {r.job: r.size for r in requests}
    for level in reversed(range(occupancy.n_levels)):
        missing = int((_demand(occupancy, requests, starts) - occupancy.free_gpus)[level]) >> level
        if missing <= 0:
            continue
        jobs = [job for job in starts if size_of[job] < 1 << level]
        block = np.array([starts[job] for job in jobs], dtype=np.int64) >> level
        sizes = np.array([size_of[job] for job in jobs], dtype=np.int64)
        n_blocks = len(occupancy.taken[level])
        inside = block < n_blocks
        n_jobs = np.bincount(block[inside], minlength=n_blocks)
        n_gpus = np.bincount(block[inside], weights=sizes[inside], minlength=n_blocks).astype(np.int64)
        clearable = np.flatnonzero((n_jobs > 0) & (occupancy.taken[level] == n_gpus))
        cheapest = clearable[np.lexsort((clearable, n_gpus[clearable], n_jobs[clearable]))[:missing]]
        for i in np.flatnonzero(np.isin(block, cheapest)):
            occupancy.release(starts.pop(jobs[i]), size_of[jobs[i]])


def _return(occupancy: Occupancy, requests: list[Request], starts: dict[str, int]) -> None:
    """Let further running jobs stay where that leaves room for the others."""
    movable = [r for r in requests if r.held and r.job not in starts]
    if not movable:
        return
    demand = _demand(occupancy, requests, starts)
    for request in movable:
        for start in _places_to_stay(occupancy, request).tolist():
            occupancy.take(start, request.size)
            demand[: request.level + 1] -= request.size
            if np.all(demand <= occupancy.free_gpus):
                starts[request.job] = start
                break
            occupancy.release(start, request.size)
            demand[: request.level + 1] += request.size


def _place(occupancy: Occupancy, requests: list[Request], starts: dict[str, int]) -> None:
    """Place the jobs that have no block yet, largest first, each into the smallest free block."""
    free = occupancy.maximal()
    for request in sorted(requests, key=lambda r: (-r.size, r.job)):
        if request.job in starts:
            continue
        level = next(k for k in range(request.level, len(free)) if free[k])
        start = heapq.heappop(free[level])
        for half in range(request.level, level):
            heapq.heappush(free[half], start + (1 << half))
        starts[request.job] = start


def _demand(occupancy: Occupancy, requests: Iterable[Request], starts: Mapping[str, int]) -> IntArray:
    """GPUs that jobs without a block ask for, in blocks of each level's size or more."""
    return demand_by_level([r.size for r in requests if r.job not in starts], occupancy.n_levels)


def _used(request: Request, start: int) -> IntArray:
    """GPUs of the block that the job uses: its own ones first."""
    block = np.arange(start, start + request.size)
    if request.gpus < request.size:
        own_first = np.argsort(~np.isin(block, request.held), kind="stable")
        block = np.sort(block[own_first[: request.gpus]])
    return block


def _stayed(request: Request, positions: IntArray) -> bool:
    now = set(positions.tolist())
    return now.issuperset(request.held) or now.issubset(request.held)


def _check(pool: Pool, requests: Sequence[Request]) -> None:
    holder: dict[int, str] = {}
    seen: set[str] = set()
    for r in requests:
        if r.job in seen:
            raise ValueError(f"job '{r.job}' is requested twice")
        seen.add(r.job)
        if r.gpus > r.size or r.size & (r.size - 1):
            raise ValueError(f"job '{r.job}' cannot use {r.gpus} GPUs of a block of {r.size}")
        if r.gpus < 1:
            raise ValueError(f"job '{r.job}' needs at least 1 GPU, not {r.gpus}")
        for position in r.held:
            if not 0 <= position < pool.n_gpus:
                raise ValueError(f"job '{r.job}' holds position {position}, outside pool '{pool.name}'")
            if position in holder:
                raise ValueError(f"jobs '{holder[position]}' and '{r.job}' both hold position {position}")
            holder[position] = r.job


def _check_fit(pool: Pool, occupancy: Occupancy, requests: list[Request]) -> None:
    largest = max((r.size for r in requests), default=1)
    if largest > pool.largest_block:
        raise ValueError(f"pool '{pool.name}' has no block of {largest}, the largest is {pool.largest_block}")
    demand = _demand(occupancy, requests, {})
    for level in np.flatnonzero(demand > occupancy.free_gpus)[::-1]:
        raise ValueError(
            f"pool '{pool.name}': jobs in blocks of {1 << level} GPUs or more ask for {demand[level]} GPUs, "
            f"{occupancy.free_gpus[level]} are free in such blocks"
        )
