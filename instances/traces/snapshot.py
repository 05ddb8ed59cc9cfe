"""Scheduling round of one moment of a job trace.

It fills in what a trace does not tell: the model of the catalogue that a job trains, and its settings when
nobody has optimised it yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from wattsched.instances.clusters import capped_power_w, homogeneous_cluster
from wattsched.instances.errors import require_known, require_range
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job import Job, Placement
from wattsched.instances.traces.recorded import TraceJob, busiest_s, using_gpus
from wattsched.instances.traces.roster import Roster, Start, starts_of
from wattsched.topology.allocation import Requests, allocate
from wattsched.topology.buddy import Occupancy, block_size
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool, pools_of

_ELASTICITY = 4
"""Of jobs without bounds: from a part of the GPUs that were asked for to so many times as many."""


def round_at(
    trace: Iterable[TraceJob],
    at: float | Literal["busiest"] = "busiest",
    cluster: Cluster | None = None,
    *,
    seed: int = 0,
    restart_s: float = 30.0,
    power_fraction: float | None = None,
    objective: str = "total-completion",
    round_s: float = 300.0,
    name: str = "trace",
) -> Instance:
    """Scheduling round of the jobs that are in the system at one moment.

    These are the jobs that have arrived and not ended, after their waits where the trace tells them and else
    as if nobody had queued. In the order of their starts, each that still fits runs now, on the GPUs that its
    user asked for; the others wait, and those that had not started. What a trace does not tell is filled in
    as `first_come_round` says.

    Parameters
    ----------
    trace : iterable of TraceJob
    at : float or "busiest"
        Seconds on the trace's clock, or the full hour with the largest demand (`busiest_s`).
    cluster : Cluster, optional
        Default: 64 nodes of 8 A100 GPUs, 4 nodes to a rack.
    seed, restart_s, power_fraction, objective, round_s, name
        As for `first_come_round`.

    Raises
    ------
    ValueError
        When no job is in the system then, or no model of the catalogue runs on the cluster.
    """
    jobs = using_gpus(trace)
    if isinstance(at, str):
        require_known("at", at, ("busiest",))
    moment = busiest_s(jobs) if isinstance(at, str) else float(at)
    require_range(np.isfinite(moment), "at", "finite", at)
    here = [job for job in jobs if job.submitted_s <= moment < job.ended_s]
    if not here:
        raise ValueError(f"no job is in the system {moment:g} s after the start of the trace")
    here.sort(key=lambda job: (job.started_s > moment, job.started_s, job.submitted_s, job.name))
    return first_come_round(
        [replace(job, duration_s=job.ended_s - max(moment, job.started_s)) for job in here],
        homogeneous_cluster() if cluster is None else cluster,
        started=sum(job.started_s <= moment for job in here),
        seed=seed,
        restart_s=restart_s,
        power_fraction=power_fraction,
        objective=objective,
        round_s=round_s,
        name=f"{name}-{moment:.0f}",
    )


def first_come_round(
    queue: Sequence[TraceJob],
    cluster: Cluster,
    *,
    started: int | None = None,
    seed: int = 0,
    restart_s: float = 30.0,
    power_fraction: float | None = None,
    objective: str = "total-completion",
    round_s: float = 300.0,
    name: str = "round",
) -> Instance:
    """Scheduling round of a queue that was served first come, first served so far.

    Each job trains a model of the catalogue (`starts_of`). Its remaining work is its remaining seconds times
    the model's rate on these GPUs, of the cluster's reference type. It may use as many GPUs as its bounds
    allow; without any from a quarter of what was asked for to four times as much, at most 64. A count that
    profiles or blocks do not reach is cut to their largest. If no model of the catalogue runs on the cluster,
    or one that a job names does not, it is a ValueError.

    Parameters
    ----------
    queue : sequence of TraceJob
        In the order of service, with the seconds that remain of each.
    cluster : Cluster
    started : int, optional
        So many of the queue have started, as far as they fit, and the others wait (default: all).
    seed : int
        Of the choice of models.
    restart_s : float
        Time that a running job loses when it changes or stops.
    power_fraction : float, optional
        Caps the site's power at this fraction of the full draw (default: no cap).
    """
    pools = pools_of(cluster)
    roster = Roster(cluster, pools)
    starts = starts_of(roster, queue, seed)
    placed = _serve(pools, roster, [job.name for job in queue[:started]], starts[:started])
    jobs = []
    for job, start in zip(queue, starts, strict=True):
        powers_only = start.gpus & (start.gpus - 1) == 0
        least, most = job.bounds(start.gpus, _ELASTICITY)
        jobs.append(
            Job(
                name=job.name,
                model=start.model,
                remaining_work=float(f"{job.duration_s * start.rate:.6g}"),
                min_gpus=least,
                max_gpus=most,
                gpu_counts=None if powers_only else roster.of_type(job.gpu_type).counts_with(start),
                batch_sizes=roster.of_type(job.gpu_type).batches_with(start),
                restart_s=restart_s,
                current=placed.get(job.name),
            )
        )
    return Instance(
        name=name,
        objective=objective,
        round_s=round_s,
        budgets=Budgets(power_w=None if power_fraction is None else capped_power_w(cluster, power_fraction)),
        cluster=cluster,
        jobs=jobs,
    )


def _serve(
    pools: tuple[Pool, ...], roster: Roster, names: list[str], starts: list[Start]
) -> dict[str, Placement]:
    """Let each job run that still fits, in the pool with most free GPUs, and give it concrete GPUs.

    Returns the placements of those that run, by name.
    """
    # Of each pool F_k, the GPUs in entirely free blocks of size 2^k, by k.
    free = [Occupancy(pool.blocks, pool.available).free_gpus for pool in pools]
    served: list[list[tuple[str, Start]]] = [[] for _ in pools]
    for job, wanted in zip(names, starts, strict=True):
        size = block_size(wanted.gpus)
        # Theorem of `topology.buddy`: the job counts at every level up to its own.
        levels = size.bit_length()
        for p in sorted(range(len(pools)), key=lambda p: -int(free[p][0])):
            fits = levels <= len(free[p]) and (free[p][:levels] >= size).all()
            if fits and (there := roster.on(pools[p], wanted)) is not None:
                free[p][:levels] -= size
                served[p].append((job, there))
                break
    placed = {}
    for pool, here in zip(pools, served, strict=True):
        # Of equals the first by name comes first.
        here.sort(key=lambda item: item[0])
        gpus = np.array([start.gpus for _, start in here], dtype=np.int64)
        empty = Occupancy(pool.blocks, pool.available)
        allocation = allocate(pool, empty, Requests.of(block_size(gpus), gpus))
        positions = np.split(allocation.position, np.cumsum(gpus[:-1]))
        for (job, start), places in zip(here, positions, strict=False):
            placed[job] = Placement(
                gpus=start.gpus,
                pool=pool.name,
                frequency_mhz=start.frequency_mhz,
                power_limit_w=start.power_limit_w,
                batch_size=start.batch_size,
                nodes=pool.gpus_at(places.tolist()),
            )
    return placed
