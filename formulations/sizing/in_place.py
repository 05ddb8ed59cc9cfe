r"""Rounds in which jobs that go on as they are also stay where they are.

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
from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.topology.buddy import block_size
from wattsched.topology.pools import Pool
from wattsched.topology.room import KeptRoom, Room


def in_place(known: RoundJobs) -> RoundJobs | None:
    """The same jobs, of which none whose changes have a price is to move; None where that is not tried.

    So it is with sets of jobs, whose members share GPUs, and with nodes that sleep.
    """
    if known.job_sets or not known.change_cost.any() or not known.change_cost[known.held_gpus[0]].any():
        return None
    sleeping = known.instance.cluster.node_columns().flags("sleeps")
    return None if sleeping.any() else replace(known, in_place=True)


def kept_rooms(known: RoundJobs, free: Sequence[BoolArray]) -> list[Room]:
    """Return the free GPUs of each pool, apart from the pieces of jobs that are not to move."""
    job, position = known.held_gpus
    keeps = (known.change_cost[job] > 0.0) & ~known.jobs.fixed[job]
    rooms: list[Room] = []
    for p, (pool, left) in enumerate(zip(known.pools, free, strict=True)):
        here = keeps & (known.held[1][job] == p)
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
        if sum(len(piece) < pool.gpus_per_node for piece in pieces) <= 1:
            yield from pieces
    elif pool.capacity == "blocks":
        size = block_size(len(own))
        begin = int(own[0]) // size * size
        block = pool.blocks[np.searchsorted(pool.blocks[:, 0], own[0], side="right") - 1]
        if block[1] >= size and own[-1] < begin + size:
            yield np.arange(begin, begin + size)
