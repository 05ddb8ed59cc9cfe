r"""Free GPUs of a round, also of one in which jobs that go on as they are stay where they are.

Options say nothing of places, so what a program chooses may need room that only a move makes. Where moves
have a price, a second program lets nobody move. It cuts what running jobs hold off from the free room: held
blocks, and what is held of a node, count as pieces of their own size, and no longer as parts of larger ones.

**Theorem.** What jobs choose fits into these pieces and the rest only if it fits with every job in its own
piece that keeps its option.

*Proof.* Let others lie in the piece of a job that stays, and the job elsewhere. They fit into one another's
places, for the piece is just as large as what the job takes. ∎

The reverse loses something: two neighbouring pieces whose jobs both leave could hold a larger one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.topology.arrays import BoolArray, IntArray, ranges
from wattsched.topology.buddy import block_size
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool, pools_of
from wattsched.topology.remembered import remembered
from wattsched.topology.room import KeptRoom, Room


@remembered
def _undisturbed(cluster: Cluster) -> BoolArray:
    """Mask of nodes that may sleep: others use nothing there."""
    nodes = cluster.node_columns()
    sleeps = nodes.flags("sleeps") & (nodes.numbers("reserved_w") == 0.0)
    broken, _ = nodes.broken
    sleeps[broken] = False
    return np.asarray(sleeps)


@remembered
def _sleepers(cluster: Cluster) -> list[IntArray]:
    """Sleeping nodes of each pool where no job keeps its GPUs, by their places in `Pool.nodes`."""
    sleeps = _undisturbed(cluster)
    return [np.flatnonzero(sleeps[pool.members]) for pool in pools_of(cluster)]


@remembered
def _open_rooms(cluster: Cluster) -> list[Room]:
    """Room of each pool where no job keeps its GPUs."""
    every = zip(pools_of(cluster), _sleepers(cluster), strict=True)
    return [_room(cluster, p, pool, pool.available, some) for p, (pool, some) in enumerate(every)]


@remembered
def sleepers_of(known: RoundJobs) -> list[IntArray]:
    """Per pool the nodes that draw nothing as long as no job is there, by their places in `Pool.nodes`.

    A node is awake anyway where others reserve watts, where a GPU is unavailable, as others may use it, and
    where a job keeps its GPUs.
    """
    if not known.jobs.fixed.any():
        return _sleepers(known.instance.cluster)
    sleeps = _undisturbed(known.instance.cluster).copy()
    job, position = known.held_gpus
    _, pool_of, _ = known.held
    for p, pool in enumerate(known.pools):
        kept = position[known.jobs.fixed[job] & (pool_of[job] == p)]
        sleeps[pool.members[pool.node_index[kept]]] = False
    return [np.flatnonzero(sleeps[pool.members]) for pool in known.pools]


def free_gpus(known: RoundJobs) -> list[BoolArray]:
    """Per pool, which positions of its line are free for the jobs that are to be placed."""
    job, position = known.held_gpus
    _, pool_of, _ = known.held
    kept, free = known.jobs.fixed[job], []
    for p, pool in enumerate(known.pools):
        here = np.flatnonzero(kept & (pool_of[job] == p))
        left = pool.available.copy()
        left[position[here]] = False
        if pool.capacity == "blocks":
            left[_reserved(pool, job[here], position[here])] = False
        free.append(left)
    return free


@remembered
def rooms_of(known: RoundJobs) -> list[Room]:
    """Return the free GPUs of each pool, and its sleeping nodes, as jobs can take them."""
    if known.in_place:
        return kept_rooms(known, free_gpus(known))
    if not known.jobs.fixed.any():
        return _open_rooms(known.instance.cluster)
    free = zip(known.pools, free_gpus(known), sleepers_of(known), strict=True)
    return [_room(known.instance.cluster, p, *parts) for p, parts in enumerate(free)]


def _room(cluster: Cluster, number: int, pool: Pool, free: BoolArray, sleepers: IntArray) -> Room:
    """A pool's room, with those of its sleepers all of whose GPUs are free, the thriftiest first."""
    if not len(sleepers):
        return Room(number, pool, free)
    sleeping = np.setdiff1d(sleepers, pool.node_index[~free])
    idle_w = cluster.gpu_types[pool.gpu_type].idle_power_w * pool.gpus_per_node
    awake_w = cluster.node_columns().numbers("base_power_w")[pool.members[sleeping]] + idle_w
    order = np.argsort(awake_w, kind="stable")
    return Room(number, pool, free, sleeping[order], awake_w[order])


def _reserved(pool: Pool, job: IntArray, position: IntArray) -> IntArray:
    """The aligned blocks around jobs' GPUs, which they reserve when their count is no power of two.

    A job that keeps its GPUs may hold some that lie in no common block; it reserves nothing more then.
    """
    _, first, gpus = np.unique(job, return_index=True, return_counts=True)
    size, last = block_size(gpus), position[first + gpus - 1]
    first = position[first]
    begin = first // size * size
    # On the line, small structural blocks lie next to each other without being one.
    structural = pool.blocks[np.searchsorted(pool.blocks[:, 0], first, side="right") - 1, 1]
    together = (structural >= size) & (last < begin + size)
    return ranges(begin[together], size[together])


def in_place(known: RoundJobs) -> RoundJobs | None:
    """The same jobs, of which none whose changes have a price is to move; None where that is not tried.

    So it is with sets of jobs, whose members share GPUs, and with nodes that sleep.
    """
    if known.job_sets or not known.change_cost.any():
        return None
    job, _ = known.held_gpus
    sleeping = known.instance.cluster.node_columns().flags("sleeps")
    return replace(known, in_place=True) if known.change_cost[job].any() and not sleeping.any() else None


def kept_rooms(known: RoundJobs, free: Sequence[BoolArray]) -> list[Room]:
    """Return the free GPUs of each pool, apart from the pieces of jobs that are not to move."""
    job, position = known.held_gpus
    _, pool_of, _ = known.held
    keeps = (known.change_cost[job] > 0.0) & ~known.jobs.fixed[job]
    rooms: list[Room] = []
    for p, (pool, left) in enumerate(zip(known.pools, free, strict=True)):
        here = keeps & (pool_of[job] == p)
        rest, sizes = left.copy(), []
        for own in _by_job(job[here], position[here]):
            for piece in _pieces(pool, own):
                if rest[piece].all():
                    rest[piece] = False
                    sizes.append(len(piece))
        rooms.append(KeptRoom(p, pool, left, rest=rest, kept=np.array(sizes, dtype=np.int64)))
    return rooms


def _by_job(job: IntArray, position: IntArray) -> list[IntArray]:
    """Positions of each job; both arrays are by job."""
    if not len(job):
        return []
    return np.split(position, np.flatnonzero(np.diff(job)) + 1)


def _pieces(pool: Pool, own: IntArray) -> Iterator[IntArray]:
    """Yield what a job holds in one piece: the aligned block around it, or what it has of each node."""
    if pool.capacity == "nodes":
        node = pool.node_index[own]
        pieces = np.split(own, np.flatnonzero(np.diff(node)) + 1)
        # An option takes whole nodes and a part of one; what is held otherwise is no option's.
        if sum(len(piece) < pool.gpus_per_node for piece in pieces) <= 1:
            yield from pieces
    elif pool.capacity == "blocks" and (block := reserved_block(pool, own)) is not None:
        yield block


def reserved_block(pool: Pool, own: IntArray) -> IntArray | None:
    """Positions of the aligned block around a job's GPUs, ascending; None where they lie in no common one."""
    size = int(block_size(len(own)))
    begin = int(own[0]) // size * size
    _, length = pool.blocks[np.searchsorted(pool.blocks[:, 0], own[0], side="right") - 1]
    return np.arange(begin, begin + size) if length >= size and own[-1] < begin + size else None
