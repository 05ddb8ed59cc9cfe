"""Conversion of chosen options to a decision with concrete GPUs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Self

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.sizing.cutting import slots_for
from wattsched.formulations.sizing.data import ALONE, Options
from wattsched.formulations.sizing.rooms import rooms_of
from wattsched.formulations.sizing.sleeping import counts_watts, rooms_awake
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.topology.allocation import Requests, allocate
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, distinct, occurring, ranges
from wattsched.topology.column import Coded, Column
from wattsched.topology.node_allocation import Exact, Held, NoRoomError, allocate_any, allocate_on_nodes
from wattsched.topology.pools import gpus_of_lines
from wattsched.topology.room import Room


class Places(Held):
    """GPUs of jobs, each a position on the line of its job's pool, by job."""

    @classmethod
    def first_of(cls, job: IntArray, start: IntArray, gpus: IntArray) -> Self:
        """First GPUs of a block of each of some jobs."""
        return cls(np.repeat(job, gpus), ranges(start, gpus))

    @classmethod
    def joined(cls, parts: list[Places]) -> Self:
        """GPUs of all parts, by job."""
        if len(parts) == 1:
            return cls(parts[0].job, parts[0].position)
        none = np.empty(0, dtype=np.int64)
        job = np.concatenate([none, *(part.job for part in parts)])
        order = np.argsort(job, kind="stable")
        return cls(job[order], np.concatenate([none, *(part.position for part in parts)])[order])

    def only(self, keep: BoolArray) -> Self:
        """Keep the GPUs of a mask."""
        return type(self)(self.job[keep], self.position[keep])

    def of(self, source: IntArray, job: IntArray) -> Self:
        """GPUs of jobs that each have those of their `source`, another job; both are by job."""
        first, end = (np.searchsorted(self.job, source, side=side) for side in ("left", "right"))
        return type(self)(np.repeat(job, end - first), self.position[ranges(first, end - first)])


def place(
    options: Options,
    chosen: IntArray,
    placed: Places | None = None,
    pools: Iterable[int] | None = None,
    slots: Mapping[int, Exact] = {},
) -> Decision:
    """Give every running job concrete GPUs, with few migrations.

    Parameters
    ----------
    options : Options
    chosen : int array, shape (n_jobs,)
        One option per job.
    placed : Places, optional
        Of jobs whose GPUs are known already, those in other pools than `pools`; where moves have a price they
        are found anew, with few moves.
    pools : iterable of int, optional
        Pools in which jobs are to be placed; default: all.
    slots : mapping of int to callable
        Of pools, how their nodes can be cut up for these jobs, where that is known (`cutting.slots_of`).

    Raises
    ------
    ValueError
        If what was chosen does not fit.
    """
    if options.of.change_cost.any():
        placed = pools = None
    chosen_pool = options.pool[chosen]
    # Jobs that keep their GPUs need no others, and of a set only the first takes room.
    needs = (options.block[chosen] > 0) & ~options.fixed
    held, parts = _held(options, chosen, needs), [] if placed is None else [placed]
    if options.of.in_place:
        # Jobs that change anyway, or move for nothing, make room for those whose moves have a price.
        stays = ~options.pays_restart[chosen] & (options.of.change_cost > 0.0)
        held = held.only(stays[held.job])
    # Within a pool, the jobs to place count from 0.
    rooms, number = rooms_of(options.of), np.zeros(len(chosen), dtype=np.int64)
    for room in rooms if pools is None else [rooms[p] for p in pools]:
        jobs = np.flatnonzero(needs & (chosen_pool == room.number))
        here = chosen_pool[held.job] == room.number
        number[jobs] = np.arange(len(jobs))
        own = Held(number[held.job[here]], held.position[here])
        wanted = chosen[jobs]
        taken, gpus = options.block[wanted], options.gpus[wanted]
        if len(room.sleeping):
            position = positions_awake(room, taken, gpus, own, few=counts_watts(options.of))
        else:
            price = np.where(options.pays_restart[wanted], 0.0, options.of.change_cost[jobs])
            position = positions_of(room, taken, gpus, own, slots.get(room.number), price)
        parts.append(Places(np.repeat(jobs, gpus), position))
    return decide(options, chosen, Places.joined(parts))


def positions_awake(room: Room, block: IntArray, gpus: IntArray, held: Held, *, few: bool) -> IntArray:
    """Positions as of `positions_of` where nodes sleep, of which no more than needed wake if `few`."""
    large = np.flatnonzero(block > room.pool.gpus_per_node) if room.pool.capacity == "blocks" else block[:0]
    first = room.sleeping[:0]
    if len(large):
        # Blocks that are larger than a node choose the nodes that are woken first.
        here = np.isin(held.job, large)
        own = Held(np.searchsorted(large, held.job[here]), held.position[here])
        begins = positions_of(room, block[large], gpus[large], own)
        lowest = np.minimum.reduceat(begins, np.cumsum(gpus[large]) - gpus[large])
        # The nodes of the aligned blocks that their GPUs lie in.
        first = np.unique(room.pool.node_index[ranges(lowest // block[large] * block[large], block[large])])
    lacking: ValueError | None = None
    for awake in rooms_awake(room, block, held.position, first, few=few):
        try:
            return positions_of(awake, block, gpus, held)
        except ValueError as error:
            lacking = error
    raise lacking or NoRoomError(room, gpus)


def positions_of(
    room: Room,
    block: IntArray,
    gpus: IntArray,
    held: Held,
    slots: Exact | None = None,
    price: FloatArray | None = None,
) -> IntArray:
    """Positions of jobs on a pool's line, job by job, few of which move.

    Parameters
    ----------
    room : Room
    block, gpus : int arrays, shape (n_jobs,)
        What each job takes for itself, and uses of that.
    held : Held
        What jobs hold now.
    slots : callable, optional
        How nodes can be cut up for the jobs, where that is known.
    price : float array, shape (n_jobs,), optional
        Price of moving each job; blocks of cheap ones are cleared first.

    Raises
    ------
    ValueError
        If the jobs do not fit together.
    """
    if room.pool.capacity == "blocks":
        requests = Requests(size=block, gpus=gpus, holder=held.job, held=held.position, price=price)
        return allocate(room.pool, room.vacant, requests).position
    if room.pool.capacity == "count":
        return allocate_any(room, gpus, held)
    return allocate_on_nodes(room, gpus, held, slots or partial(slots_for, room, gpus))


def _held(options: Options, chosen: IntArray, needs: BoolArray) -> Places:
    """GPUs that jobs hold now in the pools of their chosen options; of a set the first has those of another.

    Of jobs that shared their GPUs and now part, one has them that would pay most for a move: who restarts
    anyway pays nothing more.
    """
    pool, source, held = options.pool[chosen], np.arange(len(chosen)), Places(*options.of.held_gpus)
    _, now, _ = options.of.held
    if not options.job_sets:
        return _unshared(options, chosen, held.only((needs & (now == pool))[held.job]))
    for s in np.unique(options.job_set[chosen]).tolist():
        if s != ALONE:
            first, *others = options.job_sets[s].members
            source[first] = next((j for j in (first, *others) if now[j] == options.job_sets[s].pool), first)
    jobs = np.flatnonzero(needs & (now[source] == pool))
    return _unshared(options, chosen, held.of(source[jobs], jobs))


def _unshared(options: Options, chosen: IntArray, held: Places) -> Places:
    """Leave out jobs one of whose GPUs another job holds, too, that would be dearer to move."""
    width = max(pool.n_gpus for pool in options.pools)
    gpu = options.pool[chosen][held.job] * width + held.position
    if distinct(gpu, len(options.pools) * width):
        return held
    restarts = options.pays_restart[chosen][held.job]
    order = np.lexsort((-options.of.change_cost[held.job], restarts))
    late = np.ones(len(gpu), dtype=bool)
    _, first = np.unique(gpu[order], return_index=True)
    late[order[first]] = False
    return held.only(~np.isin(held.job, held.job[late]))


def decide(options: Options, chosen: IntArray, places: Places) -> Decision:
    """Write chosen options and positions as a decision.

    Jobs that keep their GPUs need no entry in `places`, nor do jobs of a set but the first. ValueError if
    another has none.
    """
    known, names, pools = options.of, options.of.jobs.names, options.pools
    pool, job_set = options.pool[chosen], options.job_set[chosen]
    running, waiting = np.flatnonzero(pool != WAIT), np.flatnonzero(pool == WAIT)
    placed = places
    if options.job_sets or options.fixed.any():
        held = Places(*known.held_gpus)
        leads = np.array([*(together.members[0] for together in options.job_sets), 0])
        source = np.where(job_set == ALONE, np.arange(len(chosen)), leads[job_set])[running]
        placed = Places.joined([places, held.only(options.fixed[held.job])]).of(source, running)
    wanted = chosen[running]
    gpus = options.gpus[wanted]
    for i in np.flatnonzero(np.bincount(placed.job, minlength=len(chosen))[running] != gpus).tolist():
        raise ValueError(f"job '{names[running[i]]}' runs, but the point has no block for it")
    gpus_of = gpus_of_lines(options.instance.cluster)
    line = gpus_of.start[pool][placed.job] + placed.position
    used, node = occurring(gpus_of.node[line], len(gpus_of.nodes))
    named = [*map(gpus_of.nodes.__getitem__, used.tolist())]
    settings = {name: getattr(options, name)[wanted] for name in SETTINGS}
    columns: dict[str, Column] = {
        "job": [*map(names.__getitem__, running.tolist())],
        "gpus": gpus,
        "pool": Coded(pool[running], [pool.name for pool in pools]),
        **{name: _setting(name, values) for name, values in settings.items() if not np.isnan(values).all()},
        "node": Coded(node, named),
        "gpu": gpus_of.gpu[line],
    }
    if options.job_sets and (job_set[running] != ALONE).any():
        # A set that several pools may hold is there for each of them.
        of_pools = Coded(job_set[running], [one.declared.name for one in options.job_sets])
        columns["set"] = Coded.joined([of_pools])
    waits = [*map(names.__getitem__, waiting.tolist()), *known.left_out]
    return Decision.model_construct(jobs=AssignmentColumns(columns), waiting=waits)


def _setting(name: str, values: FloatArray) -> Column:
    if name == "power_limit_w":
        return values
    return np.rint(np.where(np.isnan(values), 0.0, values)).astype(np.int64)
