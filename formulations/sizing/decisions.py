"""From chosen options to a decision with concrete GPUs."""

from __future__ import annotations

import math
from collections import defaultdict

from wattsched.formulations.sizing.budgets import free_gpus, held_positions
from wattsched.formulations.sizing.configurations import SETTINGS, WAIT
from wattsched.formulations.sizing.data import ALONE, Options
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.topology.allocation import Request, allocate
from wattsched.topology.arrays import IntArray

Positions = dict[int, tuple[int, ...]]
"""Job number to positions on the line of its pool."""


def place_by_buddy(options: Options, chosen: IntArray) -> Decision:
    """Give every running job concrete GPUs with the buddy allocator, with few migrations.

    Parameters
    ----------
    options : Options
    chosen : int array, shape (n_jobs,)
        One option per job.

    Raises
    ------
    ValueError
        If the chosen sizes do not fit.
    """
    free = free_gpus(options.of)
    positions: Positions = {}
    for p, requests in _requests(options, chosen).items():
        allocation = allocate(options.pools[p], free[p], [request for _, request in requests])
        for j, request in requests:
            positions[j] = tuple(allocation.positions[request.job].tolist())
    return decide(options, chosen, positions)


def _requests(options: Options, chosen: IntArray) -> dict[int, list[tuple[int, Request]]]:
    """Jobs to be placed in each pool, without those that keep their GPUs; of a set only the first."""
    requests: dict[int, list[tuple[int, Request]]] = defaultdict(list)
    claimed: set[tuple[int, int]] = set()
    for j, (job, i) in enumerate(zip(options.instance.jobs, chosen, strict=True)):
        p = int(options.pool[i])
        if options.block[i] == 0 or not job.preemptible:
            continue
        held = _held(options, j, int(options.job_set[i]), p)
        # Of jobs that shared their GPUs and now part, the first may stay.
        held = () if claimed & {(p, position) for position in held} else held
        claimed |= {(p, position) for position in held}
        request = Request(job=job.name, size=int(options.block[i]), gpus=int(options.gpus[i]), held=held)
        requests[p].append((j, request))
    return requests


def _held(options: Options, j: int, s: int, p: int) -> tuple[int, ...]:
    """Positions in a pool that a job holds now; for a set, those of the first job that holds some."""
    for member in (j,) if s == ALONE else options.job_sets[s].members:
        current = options.instance.jobs[member].current
        if current is not None and current.pool == options.pools[p].name:
            return tuple(held_positions(options.pools[p], current))
    return ()


def decide(options: Options, chosen: IntArray, positions: Positions) -> Decision:
    """Write chosen options and positions as a decision.

    Jobs that keep their GPUs need no entry in `positions`, nor do jobs of a set but the first. ValueError if
    another has none.
    """
    running, waiting = [], []
    columns = ("pool", "gpus", "job_set", *SETTINGS)
    rows = zip(*(getattr(options, name)[chosen].tolist() for name in columns), strict=True)
    for j, (job, (p, gpus, s, mhz, limit_w, batch)) in enumerate(
        zip(options.instance.jobs, rows, strict=True)
    ):
        if p == WAIT:
            waiting.append(job.name)
            continue
        pool = options.pools[p]
        kept = None if job.preemptible else job.current
        together = None if s == ALONE else options.job_sets[s]
        placed = j if together is None else together.members[0]
        if kept is None and placed not in positions:
            raise ValueError(f"job '{job.name}' runs, but the point has no block for it")
        running.append(
            Assignment(
                job=job.name,
                gpus=gpus,
                pool=pool.name,
                set=None if together is None else together.declared.name,
                frequency_mhz=_whole(mhz),
                power_limit_w=None if math.isnan(limit_w) else limit_w,
                batch_size=_whole(batch),
                nodes=pool.gpus_at(positions[placed]) if kept is None else kept.nodes,
            )
        )
    return Decision(jobs=running, waiting=waiting)


def _whole(value: float) -> int | None:
    return None if math.isnan(value) else round(value)
