"""A trace of jobs as a replay takes it: who arrives when, with how much work, and may run as what.

It is made of jobs of instances, or of recorded jobs of which only duration and GPU count are known.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np
from pydantic import ValidationError

from wattsched.formulations.sizing.configurations import WAIT, Configurations, configurations_of
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.instances.sizing.validity import why_no_option
from wattsched.instances.traces.recorded import TraceJob, using_gpus
from wattsched.instances.traces.roster import Roster, Start, starts_of
from wattsched.perfmodels.profile import CATALOGUE, Profile, Profiles
from wattsched.report.wording import count
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, alike, least_by
from wattsched.topology.buddy import Occupancy, block_size
from wattsched.topology.cluster import Cluster
from wattsched.topology.fields import LARGEST
from wattsched.topology.pools import Pool, pools_of
from wattsched.topology.room import Room

ELASTICITY = 4
"""Factor of a job's default range: from a quarter of the GPUs that it asks for to four times as many."""


@dataclass(frozen=True)
class Trace:
    """Jobs in the order of their arrival, on a cluster.

    Attributes
    ----------
    arrival_s, work : float arrays, shape (n_jobs,)
        Work is in the unit of the configurations' rates.
    requested_gpus : int array, shape (n_jobs,)
        What the user asked for.
    configurations : Configurations
        As far as their blocks fit into the pools.
    standard : bool array, shape (n_rows,)
        The one row of each kind, pool and GPU count that a user gets who tunes nothing.
    batches_compare : bool array, shape (n_kinds,)
        Whether rates at different batch sizes count the same progress.
    request : int array, shape (n_jobs, n_pools)
        The standard row with the GPUs asked for, or the next smaller count; -1 where there is none.
    power_error : float array, shape (n_kinds,)
        Relative error of the watts of each kind's model; 0 for tables, nan where nobody knows.
    users : tuple of str
        Whose each job is, in the order of the jobs; empty where the trace does not tell of any.
    records : tuple of TraceJob
        The jobs as they were recorded, in their order; empty where none was.
    history : tuple of TraceJob
        Jobs that arrived before the first of them, by the same clock.
    clock : datetime, optional
        Time 0, in UTC or, where the trace tells no zone, without one; None where it tells no dates.
    """

    cluster: Cluster
    pools: tuple[Pool, ...]
    names: tuple[str, ...]
    arrival_s: FloatArray
    work: FloatArray
    requested_gpus: IntArray
    configurations: Configurations
    standard: BoolArray
    batches_compare: BoolArray
    request: IntArray
    power_error: FloatArray
    users: tuple[str, ...] = ()
    records: tuple[TraceJob, ...] = ()
    history: tuple[TraceJob, ...] = ()
    clock: datetime | None = None

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def available(self) -> IntArray:
        """Available GPUs of each pool, shape (n_pools,)."""
        return np.array([int(pool.available.sum()) for pool in self.pools], dtype=np.int64)

    @cached_property
    def free_gpus(self) -> tuple[IntArray, ...]:
        """F of `topology.buddy` of each pool when no job runs."""
        return tuple(Occupancy(pool.blocks, pool.available).free_gpus for pool in self.pools)

    @cached_property
    def rooms(self) -> tuple[Room, ...]:
        """Room of each pool when no job runs."""
        return tuple(Room(p, pool, pool.available) for p, pool in enumerate(self.pools))

    @cached_property
    def jobs_by_level(self) -> IntArray:
        """Number of jobs that ask for blocks of 1, 2, 4, ... GPUs, shape (n_levels,)."""
        return np.bincount(np.log2(block_size(self.requested_gpus)).astype(np.int64), minlength=1)

    @cached_property
    def idle_w(self) -> FloatArray:
        """Draw of the GPUs of each row when idle, shape (n_rows,)."""
        kinds, rows = self.cluster.gpu_types, self.configurations
        idle_w = np.array([kinds[pool.gpu_type].idle_power_w for pool in self.pools])
        return np.asarray(rows.gpus * idle_w[rows.pool], dtype=float)

    @cached_property
    def busy_w(self) -> FloatArray:
        """Draw of each row above that of its GPUs when idle, shape (n_rows,)."""
        return self.configurations.power_w - self.idle_w

    @cached_property
    def extra_w(self) -> FloatArray:
        """`busy_w`, at least 0: what a power cap counts of each row, shape (n_rows,)."""
        return np.maximum(self.busy_w, 0.0)

    @cached_property
    def highest_w(self) -> FloatArray:
        """Most that a GPU of each pool draws: its board limit, or a row's draw or limit, shape (n_pools,)."""
        rows = self.configurations
        most = np.array([self.cluster.gpu_types[pool.gpu_type].max_power_w or 0.0 for pool in self.pools])
        np.maximum.at(most, rows.pool, np.fmax(rows.power_limit_w, rows.power_w / rows.gpus))
        return most

    @cached_property
    def requested_rate(self) -> FloatArray:
        """Work per second in the fastest of the configurations that were asked for, shape (n_jobs,)."""
        rates = np.append(self.configurations.rate, 0.0)
        return np.asarray(rates[self.request].max(axis=1))

    @cached_property
    def requested_gpu_s(self) -> FloatArray:
        """GPU seconds of each job's work on the GPUs asked for, shape (n_jobs,)."""
        return np.asarray(self.work / self.requested_rate * self.requested_gpus)

    @cached_property
    def choice(self) -> IntArray:
        """Number of what a row is a setting of: the same for equal kind, pool and GPU count."""
        rows = self.configurations
        return alike([rows.kind, rows.pool, rows.gpus])[1]

    @cached_property
    def usual_batch(self) -> FloatArray:
        """Batch size of the standard row of each choice; nan where its rows have none."""
        usual = np.empty(self.choice.max(initial=-1) + 1)
        usual[self.choice[self.standard]] = self.configurations.batch_size[self.standard]
        return usual

    @cached_property
    def comparable(self) -> BoolArray:
        """Rows whose rates count the same progress as those of the standard ones."""
        batch = self.configurations.batch_size
        same = (batch == self.usual_batch[self.choice]) | np.isnan(batch)
        return np.asarray(same | self.batches_compare[self.configurations.kind])

    def same_gpus(self, held: IntArray, rows: IntArray) -> BoolArray:
        """Return the mask of rows that differ from those held in clock or power limit alone: no restart."""
        of = self.configurations
        same = (of.gpus[held] == of.gpus[rows]) & (of.pool[held] == of.pool[rows])
        batch, other = of.batch_size[held], of.batch_size[rows]
        same &= (batch == other) | (np.isnan(batch) & np.isnan(other))
        return np.asarray(same & (held != WAIT) & (rows != WAIT))


def trace_of(
    cluster: Cluster,
    jobs: Sequence[Job],
    arrival_s: Sequence[float],
    requested_gpus: Sequence[int],
    tables: Mapping[str, OptionTable] | None = None,
    profiles: Profiles = CATALOGUE,
    plain: Sequence[bool] = (),
) -> Trace:
    """Make a trace of jobs of instances; of each, model or table, bounds and work are used.

    Parameters
    ----------
    plain : sequence of bool
        Jobs that keep the customary batch and the highest setting; by default none does.

    Raises
    ------
    ValueError
        For times that are negative or no numbers, and a job that no pool can run or that would never end.
    """
    arrival = np.asarray(arrival_s, dtype=float)
    for bad in np.flatnonzero(~(np.isfinite(arrival) & (arrival >= 0)))[:1]:
        raise ValueError(f"job '{jobs[bad].name}': arrival_s must be at least 0, got {arrival[bad]:g}")
    order = np.argsort(arrival, kind="stable")
    jobs = [jobs[i] for i in order]
    instance = Instance(
        cluster=cluster, jobs=list(jobs), tables=dict(tables or {}), profiles=list(profiles.given)
    )
    pools = pools_of(cluster)
    for pool in pools:
        if pool.capacity != "blocks":
            told = f"pool '{pool.name}' has the capacity '{pool.capacity}'"
            raise ValueError(f"cluster: {told}, but replays place jobs in aligned blocks")
    for node in np.flatnonzero(cluster.node_columns().numbers("reserved_w"))[:1].tolist():
        told = f"node '{cluster.node_columns().names[node]}' has reserved_w"
        raise ValueError(f"cluster: {told}, but in replays all jobs are known")
    for job in jobs:
        if job.tenant:
            raise ValueError(f"job '{job.name}' has a tenant, but the policies of replays know none")
        if job.change_cost:
            raise ValueError(f"job '{job.name}' has change_cost, but the policies of replays ask for none")
    rows = configurations_of(instance, instance.by_column(), pools)
    free = [Occupancy(pool.blocks, pool.available).free_gpus for pool in pools]
    largest = [1 << int(np.flatnonzero(levels)[-1]) if levels.any() else 0 for levels in free]
    rows = rows.only(rows.block <= np.array(largest, dtype=np.int64)[rows.pool])
    firsts = [jobs[j] for j in np.unique(rows.of_job, return_index=True)[1]]
    known = [_profiles(job, cluster, profiles) for job in firsts]
    batches = [_batches(job, found) for job, found in zip(firsts, known, strict=True)]
    standard = standard_rows(rows, np.array([customary for customary, _ in batches], dtype=float)[rows.kind])
    if any(plain):
        of_plain = rows.of_job[np.array(plain)[order]]
        keep = standard | ~np.isin(rows.kind, of_plain)
        rows, standard = rows.only(keep), standard[keep]
    requested = np.asarray(requested_gpus, dtype=np.int64)[order]
    request = requests(rows, standard, requested, len(pools))
    for stuck in np.flatnonzero((request < 0).all(axis=1))[:1]:
        told, _ = why_no_option(instance, pools, jobs[stuck])
        told = told or f"runs in no pool on {count(int(requested[stuck]), 'GPU')} or fewer"
        raise ValueError(f"job '{jobs[stuck].name}' {told}")
    work = np.array([job.remaining_work for job in jobs], dtype=float)
    slowest = least_by(rows.kind, rows.rate, len(batches))
    with np.errstate(over="ignore"):
        longest_s = work / slowest[rows.of_job]
    for late in np.flatnonzero(longest_s > LARGEST)[:1]:
        told = f"takes {longest_s[late]:g} s in its slowest option, at most {LARGEST:g} are replayed"
        raise ValueError(f"job '{jobs[late].name}': {told}")
    return Trace(
        cluster=cluster,
        pools=pools,
        names=tuple(job.name for job in jobs),
        arrival_s=arrival[order],
        work=work,
        requested_gpus=requested,
        configurations=rows,
        standard=standard,
        batches_compare=np.array([compare for _, compare in batches], dtype=bool),
        request=request,
        power_error=np.array([_power_error(found) for found in known], dtype=float),
    )


def trace_of_durations(
    cluster: Cluster,
    recorded: Sequence[TraceJob],
    *,
    seed: int = 0,
    elasticity: int = ELASTICITY,
    profiles: Profiles = CATALOGUE,
    history: Sequence[TraceJob] = (),
    as_deployed: bool = False,
    recorded_on: Cluster | None = None,
) -> Trace:
    """Make a trace of jobs of which only duration and GPU count are known.

    Each trains the model that the trace names, or one of the catalogue that runs on the GPUs asked for,
    chosen by a hash of the seed and its name (`instances.traces.roster.starts_of`). Its work is what that
    model does on these GPUs, of the type that the trace names or the cluster's reference type, at the
    customary batch and the highest setting, in the time recorded.

    Parameters
    ----------
    elasticity : int
        It may use from this part of the GPUs asked for to this multiple of them, at most 64; with 1 also no
        other GPU type than the trace names. Bounds that the trace gives take its place.
    profiles : Profiles
        Models that jobs may train: the catalogue's, or those in their place.
    history : sequence of TraceJob
        Jobs that arrived before them, from which policies may learn.
    as_deployed : bool
        Jobs use other GPU counts only where the trace gives bounds, and other settings only where it gives
        these or names their model. All others are plain requests: one configuration on each GPU type.
    recorded_on : Cluster, optional
        That which the durations are of, where it is another one.

    Raises
    ------
    ValueError
        When no model of the catalogue, or none that a job names, runs on the cluster, or no job uses a GPU.
    """
    recorded = sorted(using_gpus(recorded), key=lambda j: (j.submitted_s, j.name))
    there = recorded_on or cluster
    roster = Roster(there, pools_of(there), profiles=profiles)
    starts, jobs = starts_of(roster, recorded, seed), []
    plain = [as_deployed and is_plain(job) for job in recorded]
    most = 1 if as_deployed else elasticity
    for job, start, one in zip(recorded, starts, plain, strict=True):
        try:
            jobs.append(_job_of(job, start, roster.of_type(job.gpu_type), most, plain=one))
        except ValidationError:
            told = f"a duration of {job.duration_s:g} s is beyond what can be replayed"
            raise ValueError(f"job '{job.name}': {told}") from None
    arrivals, requested = [job.submitted_s for job in recorded], [start.gpus for start in starts]
    trace = trace_of(cluster, jobs, arrivals, requested, profiles=profiles, plain=plain)
    users = tuple(job.user for job in recorded)
    before = tuple(job for job in history if job.gpus > 0 and job.duration_s > 0)
    return replace(trace, users=users if any(users) else (), records=tuple(recorded), history=before)


def is_plain(job: TraceJob) -> bool:
    """True for a job of which a trace says nothing that Slurm or Kubernetes could change."""
    return job.model is None and job.min_gpus is None and job.max_gpus is None


def _job_of(job: TraceJob, start: Start, there: Roster, elasticity: int, *, plain: bool) -> Job:
    """Job that does what a recorded one did, if it begins as that did."""
    powers_only = start.gpus & (start.gpus - 1) == 0
    least, most = job.bounds(start.gpus, elasticity)
    return Job(
        name=job.name,
        model=start.model,
        remaining_work=job.duration_s * start.rate,
        min_gpus=least,
        max_gpus=most,
        pools=[there.reference] if elasticity == 1 and job.gpu_type is not None else None,
        gpu_counts=None if powers_only else there.counts_with(start),
        batch_sizes=[start.batch_size] if plain else there.batches_with(start),
    )


def _profiles(job: Job, cluster: Cluster, known: Profiles) -> list[Profile]:
    """Profiles of a job's model on the GPU types of a cluster, none for a table."""
    kinds = cluster.gpu_types.items() if job.model else ()
    found = [known.find(job.model or "", name, kind.profile) for name, kind in kinds]
    return [profile for profile in found if profile is not None]


def _power_error(profiles: Sequence[Profile]) -> float:
    """Largest relative error of the watts of a model, 0 for a table, nan where it is not known."""
    errors = [profile.power_error for profile in profiles]
    return math.nan if None in errors else max((error for error in errors if error is not None), default=0.0)


def _batches(job: Job, profiles: Sequence[Profile]) -> tuple[float, bool]:
    """Customary batch size of a kind of job, nan where its rows have none, and whether others compare."""
    # A table's unit is its own; a profile without efficiency counts samples, not progress.
    compare = all(profile.efficiency is not None for profile in profiles)
    if job.batch_sizes:
        # As `Roster.batches_with` has them.
        return job.batch_sizes[0], compare
    return profiles[0].default_batch if profiles else np.nan, compare


def standard_rows(rows: Configurations, batches: FloatArray) -> BoolArray:
    """Return the mask of the row of each kind, pool and GPU count with customary batch and highest clock.

    The customary batches are given row by row. Where no row has that batch, the nearest one counts.
    """
    off = np.nan_to_num(np.abs(rows.batch_size - batches))
    clock = np.nan_to_num(rows.frequency_mhz) + np.nan_to_num(rows.power_limit_w)
    order = np.lexsort((-rows.rate, -clock, off, rows.gpus, rows.pool, rows.kind))
    ordered = np.array([rows.kind, rows.pool, rows.gpus])[:, order]
    standard = np.zeros(len(rows), dtype=bool)
    standard[order] = np.any(np.diff(ordered, prepend=-1), axis=0)
    return standard


def requests(rows: Configurations, standard: BoolArray, requested: IntArray, n_pools: int) -> IntArray:
    """Find the standard row of each job and pool with the most GPUs up to those asked for."""
    known, pool = np.flatnonzero(standard), np.arange(n_pools)
    most = 1 + max(requested.max(initial=0), rows.gpus.max(initial=0))
    place = (rows.kind[known] * n_pools + rows.pool[known]) * most + rows.gpus[known]
    order = np.argsort(place)
    asked = (rows.of_job[:, None] * n_pools + pool) * most + requested[:, None]
    found = np.append(known[order], WAIT)[np.searchsorted(place[order], asked, side="right") - 1]
    kind_pool = np.append(rows.kind * n_pools + rows.pool, WAIT)[found]
    return np.where(kind_pool == asked // most, found, WAIT)
