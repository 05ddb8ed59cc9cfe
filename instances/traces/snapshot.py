"""From a job trace to the scheduling round of one moment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wattsched.instances.clusters import capped_power_w, homogeneous_cluster
from wattsched.instances.sizing.instance import Budgets, Instance, Job, Placement
from wattsched.instances.traces.roster import Roster, Start
from wattsched.instances.units import S_PER_H
from wattsched.topology.allocation import Request, allocate
from wattsched.topology.buddy import block_size, free_by_level
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool, pools_of

MOST_GPUS = 64
"""No job grows beyond this."""


@dataclass(frozen=True)
class TraceJob:
    """A job as a trace records it: when it was submitted, how long it ran, on how many GPUs.

    Attributes
    ----------
    model, batch_size : optional
        What it trains, a model of the catalogue, and its global batch, where the trace tells.
    """

    name: str
    submitted_s: float
    duration_s: float
    gpus: int
    model: str | None = None
    batch_size: int | None = None


def round_at(
    trace: Iterable[TraceJob],
    t: float | Literal["busiest"] = "busiest",
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

    These are the jobs with submission <= t < submission + duration, as if nobody had queued. In the order of
    submission, each that still fits runs now, on the GPUs that its user asked for; the others wait. What a
    trace does not tell is filled in as `first_come_round` says.

    Parameters
    ----------
    trace : iterable of TraceJob
    t : float or "busiest"
        Seconds on the trace's clock, or the full hour with the largest demand (`busiest_s`).
    cluster : Cluster, optional
        Default: 64 nodes of 8 A100 GPUs, 4 nodes to a rack.
    seed, restart_s, power_fraction, objective, round_s, name
        As for `first_come_round`.

    Raises
    ------
    ValueError
        When no job is in the system at `t`, or no model of the catalogue runs on the cluster.
    """
    jobs = [job for job in trace if job.gpus > 0 and job.duration_s > 0]
    if not jobs:
        raise ValueError("the trace has no job that uses a GPU")
    moment = busiest_s(jobs) if t == "busiest" else float(t)
    here = [j for j in jobs if j.submitted_s <= moment < j.submitted_s + j.duration_s]
    if not here:
        raise ValueError(f"no job is in the system {moment:g} s after the start of the trace")
    here.sort(key=lambda j: (j.submitted_s, j.name))
    return first_come_round(
        [replace(j, duration_s=j.submitted_s + j.duration_s - moment) for j in here],
        homogeneous_cluster() if cluster is None else cluster,
        seed=seed,
        restart_s=restart_s,
        power_fraction=power_fraction,
        objective=objective,
        round_s=round_s,
        name=f"{name}-{moment:.0f}",
    )


def busiest_s(jobs: Iterable[TraceJob]) -> float:
    """First full hour of the trace's clock at which most GPUs are asked for, if nobody queued."""
    rows = [(j.submitted_s, j.submitted_s + j.duration_s, j.gpus) for j in jobs]
    starts, ends, gpus = (np.array(column) for column in zip(*rows, strict=True))
    hours = np.arange(np.floor(starts.min() / S_PER_H), np.ceil(ends.max() / S_PER_H) + 1) * S_PER_H

    def gpus_until(times: np.ndarray) -> np.ndarray:
        order = np.argsort(times)
        total = np.concatenate([[0], np.cumsum(gpus[order])])
        return np.asarray(total[np.searchsorted(times[order], hours, side="right")])

    return float(hours[np.argmax(gpus_until(starts) - gpus_until(ends))])


def first_come_round(
    queue: Sequence[TraceJob],
    cluster: Cluster,
    *,
    seed: int = 0,
    restart_s: float = 30.0,
    power_fraction: float | None = None,
    objective: str = "total-completion",
    round_s: float = 300.0,
    name: str = "round",
) -> Instance:
    """Scheduling round of a queue that was served first come, first served so far.

    Each job trains a model of the catalogue (`start_of`). Its remaining work is its remaining seconds times
    the model's rate on these GPUs, of the cluster's reference type. It may use from a quarter of what was
    asked for to four times as much, at most 64 GPUs. A count that profiles or blocks do not reach is cut to
    their largest.

    Parameters
    ----------
    queue : sequence of TraceJob
        In the order of arrival, with the seconds that remain of each.
    cluster : Cluster
    seed : int
        Of the choice of models.
    restart_s : float
        Time that a running job loses when it changes or stops.
    power_fraction : float, optional
        Caps the site's power at this fraction of the full draw (default: no cap).

    Raises
    ------
    ValueError
        When no model of the catalogue runs on the cluster, or one that a job names does not.
    """
    pools = pools_of(cluster)
    roster = Roster(cluster, pools)
    starts = [start_of(roster, job, seed) for job in queue]
    placed = _serve(pools, roster, [job.name for job in queue], starts)
    jobs = []
    for job, start in zip(queue, starts, strict=True):
        powers_only = start.gpus & (start.gpus - 1) == 0
        jobs.append(
            Job(
                name=job.name,
                model=start.model,
                remaining_work=float(f"{job.duration_s * start.rate:.6g}"),
                min_gpus=max(1, start.gpus // 4),
                max_gpus=min(4 * start.gpus, MOST_GPUS),
                gpu_counts=None if powers_only else roster.counts_with(start),
                batch_sizes=roster.batches_with(start),
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


def start_of(roster: Roster, job: TraceJob, seed: int) -> Start:
    """How the user of a job starts it.

    Where the trace does not name a model, it is chosen by a hash of the seed and the job's name among those
    that run on the GPU count asked for.

    Raises
    ------
    ValueError
        When a model that the trace names does not run on the cluster.
    """
    if job.model is None:
        return roster.start(model_hash(seed, job.name), job.gpus)
    try:
        return roster.start_of(job.model, job.batch_size, job.gpus)
    except ValueError as error:
        raise ValueError(f"job '{job.name}': {error}") from None


def model_hash(seed: int, job: str) -> int:
    """Number that depends on seed and name alone: the same on every machine, whatever the other jobs."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{job}".encode()).digest()[:8], "big")


def _serve(
    pools: tuple[Pool, ...], roster: Roster, names: list[str], starts: list[Start]
) -> dict[str, Placement]:
    """Let each job run that still fits, in the pool with most free GPUs, and give it concrete GPUs."""
    free = [free_by_level(pool.blocks, pool.available) for pool in pools]
    requests: list[list[Request]] = [[] for _ in pools]
    started: dict[str, Start] = {}
    for job, wanted in zip(names, starts, strict=True):
        size = block_size(wanted.gpus)
        level = size.bit_length() - 1
        for p in sorted(range(len(pools)), key=lambda p: -int(free[p][0])):
            if free[p][0] < size:
                break
            if level >= len(free[p]) or (free[p][: level + 1] < size).any():
                continue
            there = roster.on(pools[p], wanted)
            if there is not None:
                # Theorem of `topology.buddy`: the job counts at every level up to its own.
                free[p][: level + 1] -= size
                requests[p].append(Request(job=job, size=size, gpus=wanted.gpus))
                started[job] = there
                break
    placed = {}
    for pool, wanted_here in zip(pools, requests, strict=True):
        allocation = allocate(pool, pool.available, wanted_here)
        for request in wanted_here:
            start = started[request.job]
            placed[request.job] = Placement(
                gpus=request.gpus,
                pool=pool.name,
                frequency_mhz=start.frequency_mhz,
                power_limit_w=start.power_limit_w,
                batch_size=start.batch_size,
                nodes=pool.gpus_at(allocation.positions[request.job].tolist()),
            )
    return placed
