"""A trace of jobs as a replay takes it: who arrives when, with how much work, and may run as what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattsched.formulations.sizing.configurations import configurations_of
from wattsched.instances.sizing.instance import Instance, Job, OptionTable
from wattsched.instances.traces.roster import Roster
from wattsched.instances.traces.snapshot import MOST_GPUS, TraceJob, start_of
from wattsched.perfmodels.profile import Profile, find
from wattsched.replay.jobs.menus import WAITS, Menus
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.buddy import free_by_level
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool, pools_of

ELASTICITY = 4
"""By default a job may use from a quarter of the GPUs that it asked for to four times as many."""


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of their arrival, on a cluster.

    Attributes
    ----------
    cluster : Cluster
    pools : tuple of Pool
    names : tuple of str
    arrival_s, work : float arrays, shape (n_jobs,)
        Work is in the unit of the rows' rates.
    requested_gpus : int array, shape (n_jobs,)
        What the user asked for.
    menus : Menus
    request : int array, shape (n_jobs, n_pools)
        The standard row with the GPUs asked for, or the next smaller count; -1 where there is none.
    """

    cluster: Cluster
    pools: tuple[Pool, ...]
    names: tuple[str, ...]
    arrival_s: FloatArray
    work: FloatArray
    requested_gpus: IntArray
    menus: Menus
    request: IntArray

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def idle_w(self) -> FloatArray:
        """Draw of the GPUs of each row of the menus when idle, shape (n_rows,)."""
        kinds = self.cluster.gpu_types
        idle_w = np.array([kinds[pool.gpu_type].idle_power_w for pool in self.pools])
        return np.asarray(self.menus.gpus * idle_w[self.menus.pool], dtype=float)

    @cached_property
    def highest_w(self) -> FloatArray:
        """Most that a GPU of each pool draws: its board limit, or a row's draw or limit, shape (n_pools,)."""
        menus = self.menus
        most = np.array([self.cluster.gpu_types[pool.gpu_type].max_power_w or 0.0 for pool in self.pools])
        np.maximum.at(most, menus.pool, np.fmax(menus.power_limit_w, menus.power_w / menus.gpus))
        return most

    @property
    def requested_rate(self) -> FloatArray:
        """Work per second in the fastest of the configurations that were asked for, shape (n_jobs,)."""
        rates = np.append(self.menus.rate, 0.0)
        return np.asarray(rates[self.request].max(axis=1))


def trace_of(
    cluster: Cluster,
    jobs: Sequence[Job],
    arrival_s: Sequence[float],
    requested_gpus: Sequence[int],
    tables: Mapping[str, OptionTable] | None = None,
) -> Trace:
    """Make a trace of jobs of instances; of each, model or table, bounds and work are used.

    Raises
    ------
    ValueError
        For times that are negative or no numbers, and for a job that no pool can run.
    """
    arrival = np.asarray(arrival_s, dtype=float)
    if not np.all(np.isfinite(arrival) & (arrival >= 0)):
        late = int(np.flatnonzero(~(np.isfinite(arrival) & (arrival >= 0)))[0])
        raise ValueError(f"job '{jobs[late].name}': arrival_s must be at least 0, got {arrival[late]:g}")
    order = np.argsort(arrival, kind="stable")
    jobs = [jobs[i] for i in order]
    instance = Instance(cluster=cluster, jobs=list(jobs), tables=dict(tables or {}))
    pools = pools_of(cluster)
    templates = configurations_of(instance, pools)
    _, first = np.unique(templates.of_job, return_index=True)
    free = [free_by_level(pool.blocks, pool.available) for pool in pools]
    largest = [1 << int(np.flatnonzero(levels)[-1]) if levels.any() else 0 for levels in free]
    profiles = [_profiles(jobs[j], cluster) for j in first]
    menus = Menus.of(
        templates,
        [_customary_batch(jobs[j], found) for j, found in zip(first, profiles, strict=True)],
        # A table's unit is its own; a profile without efficiency counts samples, not progress.
        [all(profile.efficiency is not None for profile in found) for found in profiles],
        largest,
    )
    requested = np.asarray(requested_gpus, dtype=np.int64)[order]
    request = _requests(menus, requested, len(pools))
    if len(jobs) and (stuck := np.flatnonzero((request < 0).all(axis=1))).size:
        job = jobs[stuck[0]]
        raise ValueError(f"job '{job.name}': no pool runs it on {requested[stuck[0]]} GPUs or fewer")
    return Trace(
        cluster=cluster,
        pools=pools,
        names=tuple(job.name for job in jobs),
        arrival_s=arrival[order],
        work=np.array([job.remaining_work for job in jobs], dtype=float),
        requested_gpus=requested,
        menus=menus,
        request=request,
    )


def trace_of_durations(
    cluster: Cluster, recorded: Sequence[TraceJob], *, seed: int = 0, elasticity: int = ELASTICITY
) -> Trace:
    """Make a trace of jobs of which only duration and GPU count are known.

    Each trains the model that the trace names, or one of the catalogue that runs on the GPUs asked for,
    chosen by a hash of the seed and its name (`instances.traces.snapshot.start_of`). Its work is what that
    model does on these GPUs, at the customary batch and the highest setting, in the time recorded.

    Parameters
    ----------
    elasticity : int
        It may use from this part of the GPUs asked for to this multiple of them, at most 64.

    Raises
    ------
    ValueError
        When no model of the catalogue, or none that a job names, runs on the cluster, or no job uses a GPU.
    """
    recorded = sorted(
        (job for job in recorded if job.gpus > 0 and job.duration_s > 0),
        key=lambda j: (j.submitted_s, j.name),
    )
    if not recorded:
        raise ValueError("the trace has no job that uses a GPU")
    roster = Roster(cluster, pools_of(cluster))
    jobs, requested = [], []
    for job in recorded:
        start = start_of(roster, job, seed)
        powers_only = start.gpus & (start.gpus - 1) == 0
        requested.append(start.gpus)
        jobs.append(
            Job(
                name=job.name,
                model=start.model,
                remaining_work=job.duration_s * start.rate,
                min_gpus=max(1, start.gpus // elasticity),
                max_gpus=min(elasticity * start.gpus, MOST_GPUS),
                gpu_counts=None if powers_only else roster.counts_with(start),
                batch_sizes=roster.batches_with(start),
            )
        )
    return trace_of(cluster, jobs, [job.submitted_s for job in recorded], requested)


def _profiles(job: Job, cluster: Cluster) -> list[Profile]:
    """Profiles of a job's model on the GPU types of the cluster; none for a job with a table."""
    if job.model is None:
        return []
    names = [kind.profile or name for name, kind in cluster.gpu_types.items()]
    return [profile for name in names if (profile := find(job.model, name)) is not None]


def _customary_batch(job: Job, profiles: Sequence[Profile]) -> int | None:
    if job.batch_sizes:
        # As `Roster.batches_with` has them.
        return job.batch_sizes[0]
    return profiles[0].default_batch if profiles else None


def _requests(menus: Menus, requested: IntArray, n_pools: int) -> IntArray:
    """Find the standard row of each job and pool with the most GPUs up to those asked for."""
    found = np.full((len(requested), n_pools), WAITS, dtype=np.int64)
    known: dict[tuple[int, int], IntArray] = {}
    for j, (kind, gpus) in enumerate(zip(menus.of_job.tolist(), requested.tolist(), strict=True)):
        if (kind, gpus) not in known:
            row = np.full(n_pools, WAITS, dtype=np.int64)
            span = np.arange(menus.start[kind], menus.start[kind + 1])
            fitting = span[menus.standard[span] & (menus.gpus[span] <= gpus)]
            # Ascending counts: the last one written is the largest.
            fitting = fitting[np.argsort(menus.gpus[fitting], kind="stable")]
            row[menus.pool[fitting]] = fitting
            known[kind, gpus] = row
        found[j] = known[kind, gpus]
    return found
