"""All options of all jobs of a round as arrays: what each is worth and what it uses.

A declared set of jobs that may share GPUs is, in each pool that it can run in, an option of all its jobs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from wattsched.formulations.sizing.configurations import (
    COLUMNS,
    SETTINGS,
    WAIT,
    Columns,
    Configurations,
    configurations_of,
    usable_pools,
)
from wattsched.formulations.tolerances import LAST_DIGITS
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance, Job, JobSet
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.buddy import block_size
from wattsched.topology.pools import Pool, pools_of

ALONE = -1
"""Number of no set."""
WAITING = {
    "rate": 0.0,
    "power_w": 0.0,
    "pool": WAIT,
    "gpus": 0,
    "block": 0,
    **dict.fromkeys(SETTINGS, np.nan),
}
"""What a job that waits has and takes."""
COMPLETION_RANGE_S = (1e-6, 1e13)


@dataclass(frozen=True)
class JobSetOption:
    """A declared set in a pool.

    Attributes
    ----------
    declared : JobSet
    pool : int
        Number of the pool.
    members : tuple of int
        Numbers of its jobs; the first one *leads*: its option takes the block of GPUs for all of them.
    """

    declared: JobSet
    pool: int
    members: tuple[int, ...]


@dataclass(frozen=True)
class Options:
    """Every option of every job, job by job, each job's waiting option last.

    Attributes
    ----------
    instance : Instance
    pools : tuple of Pool
    configurations : Configurations
        Of every kind of job, whether a job may use them or not.
    job_sets : tuple of JobSetOption
        Sets of jobs that may share GPUs, by pool.
    start : int array, shape (n_jobs + 1,)
        Options of job j are ``start[j]`` to ``start[j + 1]``; there are none when no option is allowed.
    job, pool, gpus, block : int arrays, shape (n_options,)
        `pool` is -1 for waiting; `block` is the GPU count rounded up to a power of two, but 0 for all jobs of
        a set except the first.
    job_set : int array, shape (n_options,)
        Number in `job_sets` that an option is a part of, -1 for options of the job alone.
    rate, power_w : float arrays, shape (n_options,)
        Work per second, and draw of the job's GPUs; in a set an equal part of it.
    frequency_mhz, power_limit_w, batch_size : float arrays, shape (n_options,)
        nan where the option has no such setting.
    """

    instance: Instance
    pools: tuple[Pool, ...]
    configurations: Configurations
    job_sets: tuple[JobSetOption, ...]
    start: IntArray
    job: IntArray
    job_set: IntArray
    pool: IntArray
    gpus: IntArray
    block: IntArray
    rate: FloatArray
    power_w: FloatArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    batch_size: FloatArray

    def __len__(self) -> int:
        return len(self.job)

    @property
    def round_s(self) -> float:
        """Length of the round."""
        return self.instance.round_s

    @cached_property
    def work(self) -> FloatArray:
        """Work left of each job, shape (n_jobs,)."""
        return np.array([job.remaining_work for job in self.instance.jobs], dtype=float)

    @cached_property
    def weight(self) -> FloatArray:
        """Weight of each job, shape (n_jobs,)."""
        return np.array([job.weight for job in self.instance.jobs], dtype=float)

    @cached_property
    def fixed(self) -> BoolArray:
        """Which jobs keep the GPUs they hold, and so need no room, shape (n_jobs,)."""
        return np.array([not job.preemptible for job in self.instance.jobs], dtype=bool)

    @cached_property
    def restart_s(self) -> FloatArray:
        """Seconds that a restart takes of each job, 0 for jobs that do not run now; shape (n_jobs,)."""
        return np.array([job.restart_s if job.current else 0.0 for job in self.instance.jobs], dtype=float)

    @cached_property
    def pays_restart(self) -> BoolArray:
        """Whether the job runs now and restarts, or stops: other GPU count, pool or batch size."""
        number = {pool.name: p for p, pool in enumerate(self.pools)}
        held = [
            (c.gpus, number.get(c.pool, WAIT), c.batch_size or np.nan) if c else (-1, WAIT, np.nan)
            for c in (job.current for job in self.instance.jobs)
        ]
        columns = list(zip(*held, strict=True)) or [()] * 3
        gpus, pool, batch = (np.array(values)[self.job] for values in columns)
        same_batch = (self.batch_size == batch) | (np.isnan(self.batch_size) & np.isnan(batch))
        same = (self.gpus == gpus) & (self.pool == pool) & same_batch
        return np.asarray((gpus >= 0) & ~same)

    @cached_property
    def lost_s(self) -> FloatArray:
        """Seconds that each option loses to a restart."""
        return np.where(self.pays_restart, self.restart_s[self.job], 0.0)

    @cached_property
    def best_s(self) -> FloatArray:
        """Best completion of each job alone from a standing start, restart included for running jobs."""
        with np.errstate(divide="ignore"):
            return self.work / self.configurations.best_rate[self.configurations.of_job] + self.restart_s

    @cached_property
    def completion_s(self) -> FloatArray:
        """Seconds to completion, restart included; for waiting the round plus the best completion."""
        running_s = self.work[self.job] / np.where(self.waiting, 1.0, self.rate) + self.lost_s
        return np.where(self.waiting, self.round_s + self.best_s[self.job], running_s)

    @cached_property
    def reference_rate(self) -> FloatArray:
        """Best rate of each job at its smallest GPU count, to compare rates between jobs."""
        return self.configurations.reference_rate[self.configurations.of_job]

    @cached_property
    def least_energy_j(self) -> FloatArray:
        """Least energy to completion of each job from a standing start, in any of its configurations.

        In sets none: whether others are still there to share with next round is not known.
        """
        known = self.configurations
        start, job, row = known.laid_out(known.of_job)
        rate, power_w = np.append(known.rate, 1.0)[row], np.append(known.power_w, np.inf)[row]
        energy_j = power_w * (self.work[job] / rate + self.restart_s[job])
        return np.minimum.reduceat(energy_j, start[:-1]) if len(job) else np.empty(0)

    @cached_property
    def energy_j(self) -> FloatArray:
        """Energy of each option to the completion of its job; for waiting the least."""
        least_j = self.least_energy_j[self.job]
        return np.where(self.waiting, least_j, self.power_w * self.completion_s)

    @cached_property
    def idle_w(self) -> FloatArray:
        """Idle draw of the GPUs that each option would use; in a set an equal part of it."""
        types = self.instance.cluster.gpu_types
        per_gpu = np.array([types[pool.gpu_type].idle_power_w for pool in self.pools] + [0.0])
        idle_w: FloatArray = per_gpu[self.pool] * self.gpus
        if not self.job_sets:
            return idle_w
        members = np.array([*(len(together.members) for together in self.job_sets), 1.0])
        return np.asarray(idle_w / members[self.job_set])

    @cached_property
    def shared(self) -> BoolArray:
        """Which options are parts of sets."""
        return np.asarray(self.job_set != ALONE)

    @cached_property
    def waiting(self) -> BoolArray:
        """Which options are waiting."""
        return np.asarray(self.pool == WAIT)

    def matching(self, decision: Decision) -> IntArray:
        """Option of each job that a decision stands for; -1 where the job is new or has no such option."""
        numbers = {pool.name: p for p, pool in enumerate(self.pools)}
        running = {assignment.job: assignment for assignment in decision.jobs}
        waiting = set(decision.waiting)
        found = np.full(len(self.start) - 1, -1, dtype=np.int64)
        for j, job in enumerate(self.instance.jobs):
            span = slice(self.start[j], self.start[j + 1])
            if job.name in running:
                same = self._same_settings(span, running[job.name], numbers)
            else:
                same = self.waiting[span] & (job.name in waiting)
            hits = np.flatnonzero(same)
            if len(hits):
                found[j] = span.start + hits[np.argmin(self.completion_s[span][hits])]
        return found

    def _same_settings(self, span: slice, running: Assignment, numbers: dict[str, int]) -> BoolArray:
        same = (self.pool[span] == numbers.get(running.pool, WAIT - 1)) & (self.gpus[span] == running.gpus)
        if running.set is None:
            same &= ~self.shared[span]
        else:
            named = [s for s, one in enumerate(self.job_sets) if one.declared.name == running.set]
            same &= np.isin(self.job_set[span], named)
        for name in SETTINGS:
            asked = getattr(running, name)
            values = getattr(self, name)[span]
            same &= np.isnan(values) if asked is None else values == asked
        return np.asarray(same)

    def jobs_without_options(self) -> list[Job]:
        """Jobs that can neither run nor wait (a deadline that cannot be met)."""
        return [self.instance.jobs[j] for j in np.flatnonzero(np.diff(self.start) == 0)]


def comparable_options(instance: Instance) -> Options:
    """Expand an instance, and refuse completion times that floating point cannot compare.

    Raises
    ------
    InputError
        Which names the first job with such an option.
    """
    options = expand(instance)
    low, high = COMPLETION_RANGE_S
    seconds = options.completion_s
    off = np.flatnonzero(np.isfinite(seconds) & ((seconds < low) | (seconds > high)))
    if len(off):
        told = f"job '{instance.jobs[options.job[off[0]]].name}': completion times must be from"
        found = f"remaining_work / rate is {seconds[off[0]]:g} s in one of its options"
        raise InputError([f"{told} {low:g} to {high:g} s, {found}"])
    return options


def expand(instance: Instance) -> Options:
    """Expand the jobs of an instance into their options.

    Jobs that share a table or a model share its arrays until the last step, so the work is one
    vectorised pass per kind of job, not per job.

    Parameters
    ----------
    instance : Instance
        Validated instance.

    Returns
    -------
    Options
    """
    pools = pools_of(instance.cluster)
    configurations = configurations_of(instance, pools)
    start, job, row = configurations.laid_out(configurations.of_job)
    columns: Columns = {
        name: np.append(values, WAITING[name]).astype(values.dtype, copy=False)[row]
        for name, values in configurations.columns.items()
    }
    job_sets = _job_set_options(instance, pools)
    job_set = np.full(len(job), ALONE)
    if job_sets:
        of_row, number, rows = _rows_of_sets(job_sets)
        # Before each job's waiting option.
        place = start[of_row + 1] - 1
        columns = {name: np.insert(values, place, rows[name]) for name, values in columns.items()}
        job, job_set = np.insert(job, place, of_row), np.insert(job_set, place, number)
        start = np.searchsorted(job, np.arange(len(start)))
    named: dict[str, Any] = columns
    return _allowed(Options(instance, pools, configurations, job_sets, start, job, job_set, **named))


def _job_set_options(instance: Instance, pools: tuple[Pool, ...]) -> tuple[JobSetOption, ...]:
    """Options in the order of the sets, and of the pools within a set."""
    number = {job.name: j for j, job in enumerate(instance.jobs)} if instance.sets else {}
    return tuple(
        JobSetOption(declared, p, tuple(number[name] for name in declared.rates))
        for declared in instance.sets
        for p in _usable(declared, [instance.jobs[number[name]] for name in declared.rates], pools)
    )


def _usable(declared: JobSet, jobs: list[Job], pools: tuple[Pool, ...]) -> list[int]:
    """Pools in which the set has a block that all its jobs may use."""
    if any(not (job.min_gpus or 1) <= declared.gpus <= (job.max_gpus or declared.gpus) for job in jobs):
        return []
    meant = [declared.pool in (pool.name, pool.gpu_type) for pool in pools]
    roomy = [int(block_size(declared.gpus)) <= pool.largest_block for pool in pools]
    usable = np.all([meant, roomy, *(usable_pools(job, pools) for job in jobs)], axis=0)
    return np.flatnonzero(usable).tolist()


def _rows_of_sets(job_sets: tuple[JobSetOption, ...]) -> tuple[IntArray, IntArray, Columns]:
    """An option for every job of every set, by job; sets of a job in their order.

    All jobs of a set have its GPUs, but only the first a block; each draws its part of the set's watts.

    Returns
    -------
    job, job_set : int arrays, shape (n_rows,)
    columns : dict of str to array, shape (n_rows,)
        As `Configurations.columns`.
    """
    places = sorted((j, s, k) for s, together in enumerate(job_sets) for k, j in enumerate(together.members))
    job, job_set, position = np.array(places, dtype=np.int64).T
    declared = [job_sets[s].declared for s in job_set]
    gpus = np.array([d.gpus for d in declared], dtype=np.int64)
    names = [list(d.rates)[k] for d, k in zip(declared, position, strict=True)]
    batch = [d.batch_sizes.get(name) for d, name in zip(declared, names, strict=True)]
    columns: Columns = {
        "pool": np.array([job_sets[s].pool for s in job_set], dtype=np.int64),
        "gpus": gpus,
        "block": np.where(position == 0, block_size(gpus), 0),
        "rate": np.array([d.rates[name] for d, name in zip(declared, names, strict=True)], dtype=float),
        "power_w": np.array([d.power_w / len(d.rates) for d in declared], dtype=float),
        # None becomes nan.
        "frequency_mhz": np.array([d.frequency_mhz for d in declared], dtype=float),
        "power_limit_w": np.array([d.power_limit_w for d in declared], dtype=float),
        "batch_size": np.array(batch, dtype=float),
    }
    return job, job_set, columns


def _allowed(options: Options) -> Options:
    """Drop what a deadline, a job that may not wait or a job that keeps its GPUs rules out."""
    jobs = options.instance.jobs
    deadline = np.array([np.inf if job.deadline_s is None else job.deadline_s for job in jobs])
    # A time equal to the deadline may miss it by a last digit.
    keep = options.completion_s <= deadline[options.job] * (1 + LAST_DIGITS)
    # A job with no option alone has none at all, or its time could not be compared.
    keep &= np.isfinite(options.completion_s) & np.isfinite(options.best_s)[options.job]
    must_run = options.fixed | ~np.array([job.can_wait for job in jobs], dtype=bool)
    keep &= ~(options.waiting & must_run[options.job])
    keep &= ~(options.pays_restart & options.fixed[options.job])
    if keep.all():
        return options
    counts = np.bincount(options.job[keep], minlength=len(jobs))
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    kept: dict[str, Any] = {name: getattr(options, name)[keep] for name in ("job", "job_set", *COLUMNS)}
    return replace(options, start=start, **kept)
