"""Fewest moves of running jobs after which waiting jobs, or jobs of a size, fit into a round."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import NoneType

import numpy as np

from wattsched.formulations.sizing.jobs import RoundJobs, jobs_of
from wattsched.formulations.sizing.move_order import in_order
from wattsched.formulations.sizing.moves import Moves, pieces_of
from wattsched.formulations.timer import Timer
from wattsched.instances.errors import require, require_known, require_range
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.rearrangement import Fitted, Rearrangement, Step, Wanted
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import meant
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution
from wattsched.solving.engine import limits_of, sound_instance
from wattsched.topology.room import largest_room, room_for
from wattsched.verification.sizing.moves import least_moves, rearrangement_faults

_WHOLE = (int, np.integer)
# A bound on a whole number that is above it by rounding alone does not exceed it.
_ROUNDING = 1e-6


def defragment(
    instance: Instance | str | Path,
    *,
    jobs: Sequence[str] = (),
    size: int | None = None,
    count: int = 1,
    pools: Sequence[str] = (),
    time_limit: float | None = None,
) -> Rearrangement:
    """Find the fewest moves of running jobs after which others fit, and an order that has room for each.

    Jobs that move keep their pool and their number of GPUs. Jobs that are not preemptible stay, and so do
    those that share GPUs, in pools of nodes those on several nodes, and in pools of blocks those without an
    aligned block of their own. What moves and new jobs cost in watts or joules is not considered.

    Parameters
    ----------
    instance : Instance, str or Path
        A round of `sizing` whose running jobs state their nodes.
    jobs : sequence of str
        Waiting jobs that are to fit, each with the fewest GPUs that it may have in a pool.
    size, count : int, optional
        Beside them, or instead, so many jobs of this number of GPUs.
    pools : sequence of str
        Pools or GPU types that will do for the jobs of that size; all if none is given.
    time_limit : float, optional
        Seconds, for the solver.

    Returns
    -------
    Rearrangement
        With the reason ``infeasible`` where the jobs do not fit however others move.

    Raises
    ------
    ValueError, TypeError, wattsched.InputError
        For a job that is unknown, runs or has no option, a size that no pool has room for, running jobs whose
        GPUs are not known, and as `solve`.
    """
    require_types(defragment, {"jobs": jobs, "pools": pools})
    timer = Timer(limits_of(0.0, time_limit).time_s)
    require("size", size, (*_WHOLE, NoneType), "a whole number")
    require("count", count, _WHOLE, "a whole number")
    sound, kind = sound_instance(instance)
    if kind.name != "sizing":
        raise ValueError(f"problem: must be 'sizing', got '{kind.name}'")
    known = jobs_of(sound)
    wanted = [_job_wanted(known, name) for name in dict.fromkeys(jobs)]
    if size is not None:
        wanted.append(_size_wanted(known, int(size), int(count), pools))
    elif not wanted:
        raise ValueError("give jobs or a size that are to fit")
    _refuse_unplaced(known, wanted)
    return _solved(known, wanted, timer)


def _job_wanted(known: RoundJobs, name: str) -> Wanted:
    """The fewest GPUs that a waiting job may have in each pool."""
    j = known.jobs.place.get(name)
    if j is None:
        raise ValueError(f"jobs: the round has no job '{name}'{meant(name, known.jobs.names)}")
    if known.jobs.held(j) is not None:
        raise ValueError(f"jobs: '{name}' runs already")
    rows, every = slice(*known.configurations.start[known.kind[j] :][:2]), known.configurations
    pairs = sorted(zip(every.gpus[rows].tolist(), every.pool[rows].tolist(), strict=True), reverse=True)
    gpus = {known.pools[p].name: n for n, p in pairs}  # of a pool the last, which is the smallest
    if not gpus:
        raise ValueError(f"jobs: '{name}' has no option that fits on the empty cluster")
    return Wanted(name=name, gpus=gpus)


def _size_wanted(known: RoundJobs, size: int, count: int, pools: Sequence[str]) -> Wanted:
    """Jobs of a size, in the pools that will do and have room for one."""
    require_range(size >= 1, "size", "at least 1", size)
    require_range(count >= 1, "count", "at least 1", count)
    for name in pools:
        require_known("pools", name, {each for pool in known.pools for each in (pool.name, pool.gpu_type)})
    named = [pool for pool in known.pools if not pools or {pool.name, pool.gpu_type} & {*pools}]
    taken = room_for(named, np.arange(len(named)), np.full(len(named), size))
    most = [largest_room(pool) for pool in named]
    gpus = {pool.name: size for pool, n, room in zip(named, taken.tolist(), most, strict=True) if n <= room}
    if not gpus:
        raise ValueError(f"size: no pool has room for {size} GPUs, the largest has it for {max(most)}")
    name = f"{size} GPU{'s' * (size > 1)}"
    return Wanted(name=f"another {name}" if name in known.jobs.place else name, count=count, gpus=gpus)


def _refuse_unplaced(known: RoundJobs, wanted: list[Wanted]) -> None:
    """Refuse rounds in which somebody runs, in a pool that matters, on GPUs that nobody knows."""
    pools = {pool for kind in wanted for pool in kind.gpus}
    for j in known.jobs.running[~known.jobs.placed[known.jobs.running]].tolist():
        if (held := known.jobs.held(j)) is not None and held.pool in pools:
            raise ValueError(f"job '{known.jobs.names[j]}': current.nodes is missing: which GPUs it holds")


def _solved(known: RoundJobs, wanted: list[Wanted], timer: Timer) -> Rearrangement:
    """Solve the program, and check what it says."""
    moves, solver = Moves(known, wanted), find_solver("highs")
    program = moves.program()
    answer = solver(program, Limits(gap=0.0, time_s=timer.remaining_s()))
    reason = answer.termination.reason
    if reason == "error":
        raise RuntimeError(answer.termination.detail)
    found = partial(Rearrangement, instance=known.instance.name, wanted=wanted)
    if reason == "infeasible":
        most = solver(moves.program(most=True), Limits(gap=0.0, time_s=timer.remaining_s()))
        return found(reason=reason, detail=_shortage(moves, most))
    priced = {} if answer.prices is None else program.named_prices(answer.prices)
    prices = {name: price for name, price in priced.items() if name.startswith("piece:")}
    proven = least_moves(known.instance, wanted, prices)
    bound = max(proven, math.ceil(answer.bound - _ROUNDING) if answer.bound > 0.0 else 0)
    found = partial(found, bound=bound, proven_bound=proven, prices=prices)
    if answer.x is None:
        return found(reason=reason, detail="no moves were found in time")
    held, pieces, fitted = moves.decode(answer.x)
    steps, left = in_order(held, pieces)
    rearrangement = found(
        reason="optimal" if len(held) == bound else "feasible",
        moves=len(held),
        steps=[*_steps(known, steps)],
        fitted=[*_fitted(moves, fitted, left)],
    )
    if faults := rearrangement_faults(known.instance, rearrangement):
        raise RuntimeError(f"the answer does not pass the check: {faults[0]}")
    return rearrangement


def _shortage(moves: Moves, most: Solution) -> str:
    """Say how many of the wanted jobs fit however others move, and how many GPUs are short."""
    total = sum(kind.count for kind in moves.wanted)
    told = "" if most.objective is None else f"{round(-most.objective)} of {total} fit however others move; "
    needed, free = sum(kind.count * min(kind.gpus.values()) for kind in moves.wanted), moves.free
    short = f", {needed - free} short" if needed > free else ""
    return f"{told}{free} GPUs are free, {needed} are needed{short}"


def _steps(known: RoundJobs, steps: Sequence[tuple[int, list[int]]]) -> Iterator[Step]:
    """Moves with the names of jobs and nodes; a job uses the first GPUs of its block."""
    number, stopped = {pool.name: pool for pool in known.pools}, set[int]()
    for j, positions in steps:
        held = known.jobs.held(j)
        assert held is not None
        after = number[held.pool].gpus_at(positions[: held.gpus])
        yield Step(job=known.jobs.names[j], before={} if j in stopped else held.nodes, after=after)
        stopped.add(j)


def _fitted(
    moves: Moves, fitted: Sequence[tuple[int, int]], left: Mapping[tuple[int, int], list[list[int]]]
) -> Iterator[Fitted]:
    """Places of the wanted jobs, of the pieces that no other job takes."""
    for t, p in fitted:
        pool, gpus = moves.pools[p], moves.wanted[t].gpus[moves.pools[p].name]
        positions = [i for size in pieces_of(pool, gpus) for i in left[p, size].pop()]
        yield Fitted(name=moves.wanted[t].name, pool=pool.name, nodes=pool.gpus_at(positions[:gpus]))
