"""Concrete GPUs of jobs in pools that are no blocks: any GPUs, or GPUs of nodes; few running jobs move."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import IntArray, ranges
from wattsched.topology.room import Room

Slots = tuple[IntArray, IntArray]
"""Nodes and sizes of pieces that nodes are cut up into, the largest first."""

Exact = Callable[[IntArray], Slots | None]
"""Sizes of pieces to slots that hold them; None where none do."""


class NoRoomError(ValueError):
    """Jobs do not fit together into a pool, of that number."""

    def __init__(self, room: Room, gpus: IntArray) -> None:
        free, name = int(np.count_nonzero(room.free)), room.pool.name
        unit = "any GPUs" if room.pool.capacity == "count" else "GPUs of nodes"
        super().__init__(f"pool '{name}': jobs ask for {gpus.sum()} GPUs, {free} are free, as {unit}")
        self.pool = room.number


class Held(NamedTuple):
    """GPUs that jobs hold now, by job, and ascending."""

    job: IntArray
    position: IntArray


def allocate_any(room: Room, gpus: IntArray, held: Held) -> IntArray:
    """Positions on the pool's line of any GPUs, job by job: those that a job holds, and the first others.

    The `gpus` are the number that each job wants; a `NoRoomError` if they do not fit together.
    """
    sound = room.free[held.position]
    job, position = held.job[sound], held.position[sound]
    rank = np.arange(len(job)) - np.searchsorted(job, job)
    kept = rank < gpus[job]
    job, position = job[kept], position[kept]
    left = room.free.copy()
    left[position] = False
    need, free = gpus - np.bincount(job, minlength=len(gpus)), np.flatnonzero(left)
    if need.sum() > len(free):
        raise NoRoomError(room, gpus)
    return _by_job(
        np.append(job, np.repeat(np.arange(len(gpus)), need)), np.append(position, free[: need.sum()])
    )


def allocate_on_nodes(room: Room, gpus: IntArray, held: Held, exact: Exact) -> IntArray:
    """GPUs of a node for each job or, where it has more, whole nodes and at most one part of another.

    Jobs stay where they are, or on a part of it; others that run prefer the node that they are on, if that
    leaves room for all. The rest is placed by descending pieces, each on the node with the least room. Where
    that is too little, the nodes with the fewest GPUs of jobs that stay are cleared of them, more and more;
    at last all are placed anew.

    Parameters
    ----------
    exact : callable
        Finds room for pieces where there is any. The others, what is returned and raised as `allocate_any`.
    """
    node_index = room.pool.node_index
    stay = _staying(room, gpus, held)
    homes, clear = held, 0
    while True:
        used = np.bincount(node_index[stay.position], minlength=len(room.on_nodes))
        pieces = _pieces_of(np.setdiff1d(np.arange(len(gpus)), stay.job), gpus, room.pool.gpus_per_node)
        node = _fitted(room.on_nodes - used, pieces, homes, node_index)
        if node is not None:
            break
        if len(homes.job):
            homes = Held(gpus[:0], gpus[:0])
            continue
        if not len(stay.job):
            node = _by_slots(exact(pieces.size), pieces)
            if node is None:
                raise NoRoomError(room, gpus)
            break
        clear = max(1, 2 * clear)
        full = np.flatnonzero(used)
        cleared = full[np.argsort(used[full], kind="stable")[:clear]]
        leave = np.unique(stay.job[np.isin(node_index[stay.position], cleared)])
        here = ~np.isin(stay.job, leave)
        stay = Held(stay.job[here], stay.position[here])
    left = room.free.copy()
    left[stay.position] = False
    order = np.argsort(node, kind="stable")
    free = np.flatnonzero(left)
    free = free[np.argsort(node_index[free], kind="stable")]
    first = np.searchsorted(node_index[free], node[order])
    size = pieces.size[order]
    before = np.cumsum(size) - size
    # Pieces on a node take its free GPUs one after the other.
    begins = np.searchsorted(node[order], node[order])
    position = free[ranges(first + before - before[begins], size)]
    return _by_job(
        np.append(stay.job, np.repeat(pieces.job[order], size)), np.append(stay.position, position)
    )


class _Pieces(NamedTuple):
    """Pieces of jobs, the largest first."""

    job: IntArray
    size: IntArray


def _pieces_of(jobs: IntArray, gpus: IntArray, whole: int) -> _Pieces:
    """Divide the GPUs of some jobs into whole nodes of so many GPUs, and parts of nodes."""
    nodes, part = np.divmod(gpus[jobs], whole)
    some = np.flatnonzero(part)
    job = np.append(np.repeat(jobs, nodes), jobs[some])
    size = np.append(np.full(nodes.sum(), whole), part[some])
    order = np.argsort(-size, kind="stable")
    return _Pieces(job[order], size[order])


def _staying(room: Room, gpus: IntArray, held: Held) -> Held:
    """Return the GPUs of the jobs that can stay where they are, or on a part of these."""
    whole, n = room.pool.gpus_per_node, len(room.on_nodes)
    sound = np.bincount(held.job[~room.free[held.position]], minlength=len(gpus)) == 0
    pair, count = np.unique(held.job * n + room.pool.node_index[held.position], return_counts=True)
    parts = np.bincount(pair[count < whole] // n, minlength=len(gpus))
    n_held = np.bincount(held.job, minlength=len(gpus))
    all_of_it = sound & (n_held == gpus) & (parts <= 1)
    here = all_of_it[held.job]
    job, position = [held.job[here]], [held.position[here]]
    for j in np.flatnonzero(n_held > gpus).tolist():
        own = held.position[held.job == j]
        part = _part_of(room, own[room.free[own]], int(gpus[j]))
        job.append(np.full(len(part), j))
        position.append(part)
    return Held(np.concatenate(job), np.concatenate(position))


def _part_of(room: Room, own: IntArray, gpus: int) -> IntArray:
    """Some of a job's own GPUs, in whole nodes and at most one part of another; empty where impossible."""
    whole, node = room.pool.gpus_per_node, room.pool.node_index[own]
    nodes, count = np.unique(node, return_counts=True)
    wanted, part = divmod(gpus, whole)
    full = nodes[count == whole][:wanted]
    left = ~np.isin(nodes, full)
    enough = np.flatnonzero(left & (count >= part))
    if len(full) < wanted or (part and not len(enough)):
        return own[:0]
    taken = own[np.isin(node, full)]
    if part:
        best = nodes[enough[np.argmin(count[enough])]]
        taken = np.append(taken, own[node == best][:part])
    return taken


def _fitted(left: IntArray, pieces: _Pieces, homes: Held, node_index: IntArray) -> IntArray | None:
    """Node of each piece, by descending size where the least room is left; None where some do not fit.

    Pieces of jobs that have homes, where they are now, are placed there, if there is room, before all others.
    """
    node, left = np.full(len(pieces.job), -1), left.copy()  # free GPUs by node
    first = np.searchsorted(homes.job, pieces.job)
    for i in np.flatnonzero(np.append(homes.job, -1)[first] == pieces.job).tolist():
        home = int(node_index[homes.position[first[i]]])
        if left[home] >= pieces.size[i]:
            node[i] = home
            left[home] -= pieces.size[i]
    for size in np.unique(pieces.size)[::-1].tolist():
        some = np.flatnonzero((pieces.size == size) & (node < 0))
        able = np.flatnonzero(left >= size)
        able = able[np.argsort(left[able], kind="stable")]
        slots = np.repeat(able, left[able] // size)
        if len(slots) < len(some):
            return None
        node[some] = slots[: len(some)]
        left -= size * np.bincount(node[some], minlength=len(left))
    return node


def _by_slots(slots: Slots | None, pieces: _Pieces) -> IntArray | None:
    """Node of each piece, which takes the first slot of its size that is left."""
    if slots is None:
        return None
    node = np.full(len(pieces.job), -1)
    nodes, sizes = slots
    for size in np.unique(pieces.size).tolist():
        some = np.flatnonzero(pieces.size == size)
        node[some] = nodes[sizes == size][: len(some)]
    return node


def _by_job(job: IntArray, position: IntArray) -> IntArray:
    """Return positions job by job, of each ascending."""
    return np.asarray(position[np.lexsort((position, job))], dtype=np.int64)
