"""From a job trace to the scheduling round of one moment.

What a trace does not tell is filled in: which model of the catalogue a job trains, and how it runs when
nobody has optimised it yet.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import numpy as np

from wattsched.instances.clusters import capped_power_w, homogeneous_cluster
from wattsched.instances.errors import require_known, require_range
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job import Job, Placement
from wattsched.instances.units import S_PER_H
from wattsched.perfmodels.profile import Profile, find, models
from wattsched.topology.allocation import Requests, allocate
from wattsched.topology.buddy import block_size, free_by_level
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool, pools_of

MOST_GPUS = 64
"""No job grows beyond this."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True)
class Start:
    """How a user starts a job: at the customary batch, or the nearest that fits, and the highest setting.

    Attributes
    ----------
    customary_batch : int, optional
        What the trace says; None for the profile's default.
    """

    model: str
    gpus: int
    batch_size: int
    frequency_mhz: int | None
    power_limit_w: float | None
    rate: float
    customary_batch: int | None = None


class Roster:
    """Models of the catalogue that run on a cluster, and how their users start them there.

    The reference GPU type is the one with most GPUs among those that have profiles.

    Raises
    ------
    ValueError
        When the catalogue has no profile for any GPU type of the cluster.
    """

    def __init__(self, cluster: Cluster, pools: tuple[Pool, ...]):
        self.cluster = cluster
        self._start = cache(self._make)
        self._runnable = cache(self._make_runnable)
        gpus: Counter[str] = Counter()
        for pool in pools:
            if any(self.profile(model, pool.gpu_type) for model in models()):
                gpus[pool.gpu_type] += pool.n_gpus
        if not gpus:
            types = ", ".join(cluster.gpu_types)
            raise ValueError(f"the catalogue has no profile for any GPU type of the cluster ({types})")
        self.reference = max(gpus, key=lambda name: gpus[name])
        alike = [pool for pool in pools if pool.gpu_type == self.reference]
        self._largest = max(alike, key=lambda pool: pool.largest_block)

    def profile(self, model: str, gpu_type: str) -> Profile | None:
        """Profile of a model on a GPU type, or on the one that stands in for it."""
        return find(model, self.cluster.gpu_types[gpu_type].profile or gpu_type)

    def start(self, number: int, asked_gpus: int) -> Start:
        """Start of a job on the reference GPU type; `number` chooses the model.

        Raises
        ------
        ValueError
            When no batch of any model fits.
        """
        candidates = self._runnable(models(), None, asked_gpus)
        if not candidates:
            raise ValueError(f"no model of the catalogue has a batch that fits on {self.reference}")
        return candidates[number % len(candidates)]

    def start_of(self, model: str, batch_size: int | None, asked_gpus: int) -> Start:
        """Start of a model that the trace names, on the reference GPU type.

        Raises
        ------
        ValueError
            When the catalogue has no profile of it there, or no batch of it fits.
        """
        if self.profile(model, self.reference) is None:
            raise ValueError(f"the catalogue has no profile of '{model}' on {self.reference}")
        for start in self._runnable((model,), batch_size, asked_gpus):
            return start
        raise ValueError(f"no batch of '{model}' fits on {asked_gpus} {self.reference}")

    def on(self, pool: Pool, wanted: Start) -> Start | None:
        """Start of the same job in a pool; None when the model does not run there on that many GPUs."""
        return self._start(
            wanted.model, pool.gpu_type, pool.gpus_per_node, wanted.gpus, wanted.customary_batch
        )

    def batches_with(self, start: Start) -> list[int] | None:
        """Batch sizes to offer, the customary one first; None where the profile says it all."""
        profile = self.profile(start.model, self.reference)
        if start.customary_batch is None or profile is None:
            return None
        return list(dict.fromkeys([start.customary_batch, *profile.batch_sizes]))

    def counts_with(self, start: Start) -> list[int]:
        """Powers of two of the model's profile and the count that was asked for."""
        profile = self.profile(start.model, self.reference)
        counts = [] if profile is None else profile.gpu_counts
        return sorted({count for count in counts if block_size(count) == count} | {start.gpus})

    def _make_runnable(self, names: tuple[str, ...], batch_size: int | None, asked_gpus: int) -> list[Start]:
        """Those models that run on the GPUs asked for, cut to what profiles and blocks reach."""
        pool = self._largest
        profiles = [p for model in names if (p := self.profile(model, self.reference)) is not None]
        gpus = min(asked_gpus, pool.largest_block, max(p.gpu_counts[-1] for p in profiles))
        while gpus:
            told = (pool.gpus_per_node, gpus, batch_size)
            starts = [self._start(p.model, self.reference, *told) for p in profiles]
            if found := [start for start in starts if start is not None]:
                return found
            gpus //= 2
        return []

    def _make(
        self, model: str, gpu_type: str, gpus_per_node: int, gpus: int, customary: int | None
    ) -> Start | None:
        profile = self.profile(model, gpu_type)
        if profile is None or gpus > profile.gpu_counts[-1]:
            return None
        wanted = customary or profile.default_batch
        known = profile.batch_sizes if customary is None else [*profile.batch_sizes, customary]
        batches = [b for b in known if gpus <= b <= gpus * profile.max_local_batch]
        if not batches:
            return None
        batch = min(batches, key=lambda b: (abs(b - wanted), b))
        kind = self.cluster.gpu_types[gpu_type]
        frequency = limit = stand_in_limit = None
        if profile.frequency is not None:
            frequency = max(kind.frequencies_mhz or profile.frequency.choices_mhz)
        elif profile.power_limits is not None:
            stand_in_limit = float(max(kind.limits_of_stand_in(None) or profile.power_limits.limit_w))
            # In the watts of this type.
            limit = round(stand_in_limit * kind.power_factor, 6)
        rate = float(profile.rate(gpus, batch, frequency, stand_in_limit, gpus_per_node)) * kind.speed_factor
        return Start(model, gpus, batch, frequency, limit, rate, customary)


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

    These are the jobs with submission <= at < submission + duration, as if nobody had queued. In the order of
    submission, each that still fits runs now, on the GPUs that its user asked for; the others wait. What a
    trace does not tell is filled in as `first_come_round` says.

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


def using_gpus(trace: Iterable[TraceJob]) -> list[TraceJob]:
    """Jobs that use a GPU for some time.

    Raises
    ------
    ValueError
        If there is none.
    """
    jobs = list(trace)
    using = [job for job in jobs if job.gpus > 0 and job.duration_s > 0]
    if not using:
        raise ValueError(f"has no job that uses a GPU for longer than 0 s, of {len(jobs):,} in all")
    return using


def busiest_s(jobs: Iterable[TraceJob]) -> float:
    """First full hour of the trace's clock at which most GPUs are asked for, if nobody queued."""
    jobs = list(jobs)
    starts = np.array([job.submitted_s for job in jobs])
    ends = starts + np.array([job.duration_s for job in jobs])
    gpus = np.array([job.gpus for job in jobs])
    # Demand can only have grown at the first full hour after a job's submission.
    grown = np.unique(np.ceil(starts / S_PER_H))
    hours = np.append(np.floor(starts.min() / S_PER_H), grown) * S_PER_H

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
        allocation = allocate(pool, pool.available, Requests.of(block_size(gpus), gpus))
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
