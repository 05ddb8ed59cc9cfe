"""All options of jobs of a round as arrays: what each is worth and what it uses.

A declared set of jobs that may share GPUs is, in each pool that it can run in, an option of all its jobs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT, Columns, RowColumns
from wattsched.formulations.sizing.jobs import JobSetOption, RoundJobs, jobs_of
from wattsched.formulations.sizing.objectives import goodput
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.pools import Pool
from wattsched.topology.remembered import remembered
from wattsched.topology.room import room_for

ALONE = -1
"""Number of no set."""
WAITING: dict[str, float] = {
    "rate": 0.0,
    "power_w": 0.0,
    "pool": WAIT,
    "gpus": 0,
    "block": 0,
    **dict.fromkeys(SETTINGS, np.nan),
}
"""Values of the option of a job that waits."""
COMPLETION_RANGE_S = (1e-6, 1e13)


@dataclass(frozen=True, kw_only=True)
class Options(RowColumns):
    """Options of jobs, job by job, each job's waiting option last.

    In a set, all jobs but the first take no block, and each has an equal part of the draw.

    Attributes
    ----------
    of : RoundJobs
        The jobs, all of the round.
    start : int array, shape (n_jobs + 1,)
        Options of job j are ``start[j]`` to ``start[j + 1]``; there are none when no option is allowed.
    job : int array, shape (n_options,)
    job_set : int array, shape (n_options,)
        Number in `job_sets` that an option is a part of, -1 for options of the job alone.
    """

    of: RoundJobs
    start: IntArray
    job: IntArray
    job_set: IntArray

    @property
    def instance(self) -> Instance:
        """The round."""
        return self.of.instance

    @property
    def pools(self) -> tuple[Pool, ...]:
        """Pools of the cluster."""
        return self.of.pools

    @property
    def job_sets(self) -> tuple[JobSetOption, ...]:
        """Sets of jobs that may share GPUs, by pool."""
        return self.of.job_sets

    @property
    def round_s(self) -> float:
        """Length of the round."""
        return self.of.round_s

    @property
    def work(self) -> FloatArray:
        """Work left of each job, shape (n_jobs,)."""
        return self.of.work

    @property
    def weight(self) -> FloatArray:
        """Weight of each job, shape (n_jobs,)."""
        return self.of.weight

    @property
    def fixed(self) -> BoolArray:
        """Mask of jobs that keep the GPUs they hold, and so need no room, shape (n_jobs,)."""
        return self.of.jobs.fixed

    @property
    def best_s(self) -> FloatArray:
        """Best completion of each job alone from a standing start, restart included for running jobs."""
        return self.of.best_s

    @property
    def least_s(self) -> FloatArray:
        """Best completion of each job alone from now: going on as a job runs takes no restart."""
        return self.of.least_s

    @property
    def reference_rate(self) -> FloatArray:
        """Best rate of each job at its smallest GPU count, to compare rates between jobs."""
        return self.of.reference_rate

    @cached_property
    def pays_restart(self) -> BoolArray:
        """Mask of options whose job runs now and restarts, or stops: other GPU count, pool or batch size."""
        gpus, pool, batch = (held[self.job] for held in self.of.held)
        same_batch = (self.batch_size == batch) | (np.isnan(self.batch_size) & np.isnan(batch))
        same = (self.gpus == gpus) & (self.pool == pool) & same_batch
        return np.asarray((gpus >= 0) & ~same)

    @cached_property
    def lost_s(self) -> FloatArray:
        """Seconds that each option loses to a restart."""
        return np.where(self.pays_restart, self.of.restart_s[self.job], 0.0)

    @cached_property
    def change_cost(self) -> FloatArray:
        """Cost in the objective of each option because it changes what runs now."""
        if not self.of.change_cost.any():
            return np.zeros(len(self))
        return np.where(self.pays_restart, self.of.change_cost[self.job], 0.0)

    @cached_property
    def completion_s(self) -> FloatArray:
        """Seconds to completion, restart included; for waiting the round plus the best completion."""
        waiting_s = self.round_s + self.best_s[self.job]
        if self.waiting.all():
            return waiting_s
        running_s = self.work[self.job] / np.where(self.waiting, 1.0, self.rate) + self.lost_s
        return np.where(self.waiting, waiting_s, running_s)

    @cached_property
    def energy_j(self) -> FloatArray:
        """Energy of each option to the completion of its job; for waiting the least."""
        least_j = self.of.least_energy_j[self.job]
        return np.where(self.waiting, least_j, self.power_w * self.completion_s)

    @cached_property
    def counted_j(self) -> FloatArray:
        """Energy of each option in the scope of the budgets (see `Budgets`)."""
        if self.instance.budgets.scope == "completion":
            return self.energy_j
        return np.asarray((self.power_w - self.idle_w) * np.minimum(self.completion_s, self.round_s))

    @cached_property
    def drawn_j(self) -> FloatArray:
        """Energy of the GPUs of each option in the scope of the budgets, idle draw included; waiting none."""
        horizon_s = self.round_s if self.of.counts_rounds else np.inf
        seconds = np.where(self.waiting, 0.0, np.minimum(self.completion_s, horizon_s))
        return np.asarray(self.power_w * seconds)

    @property
    def per_joule(self) -> Mapping[str, float]:
        """Amount that a joule adds to each objective that counts energy."""
        return self.of.per_joule

    @cached_property
    def goodput(self) -> FloatArray:
        """Worth of each option by the objective of that name."""
        return goodput(self)

    @cached_property
    def idle_w(self) -> FloatArray:
        """Idle draw of the GPUs that each option would use; in a set an equal part of it."""
        types = self.instance.cluster.gpu_types
        per_gpu = np.array([types[pool.gpu_type].idle_power_w for pool in self.pools] + [0.0])
        return np.asarray(per_gpu[self.pool] * self.gpus / self.members)

    @cached_property
    def members(self) -> FloatArray:
        """Number of jobs that share the GPUs of each option; 1 for options of the job alone."""
        if not self.job_sets:
            return np.ones(len(self))
        members = np.array([*(len(together.members) for together in self.job_sets), 1.0])
        return np.asarray(members[self.job_set])

    @cached_property
    def gpu_share(self) -> FloatArray:
        """GPUs that each option uses; in a set an equal part of them."""
        return np.asarray(self.gpus / self.members)

    @cached_property
    def shared(self) -> BoolArray:
        """Mask of options that are parts of sets."""
        return np.asarray(self.job_set != ALONE)

    @cached_property
    def waiting(self) -> BoolArray:
        """Mask of options that are waiting."""
        return np.asarray(self.pool == WAIT)

    def take(self, index: IntArray) -> Options:
        """Some of the options, in the order of the jobs."""
        columns = {name: values[index] for name, values in self.columns.items()}
        return _of_columns(self.of, self.job[index], self.job_set[index], columns)


def comparable_jobs(instance: Instance) -> RoundJobs:
    """Jobs of an instance, none of whose completion times floating point cannot compare.

    Raises
    ------
    InputError
        Which names the first job with such an option.
    """
    known = jobs_of(instance)
    low, high = COMPLETION_RANGE_S
    with np.errstate(divide="ignore", over="ignore"):
        slowest_s = known.work / known.configurations.slowest_rate[known.kind] + known.restart_s
    longest_s = np.maximum(slowest_s, known.round_s + known.best_s)
    # No option is left of those that end never.
    for j in np.flatnonzero(known.can_run & np.isinf(known.shortest_s)).tolist():
        _refuse(known, j, np.inf)
    odd = np.flatnonzero((longest_s > high) | (known.shortest_s < low) | known.in_sets)
    if len(odd):
        options = options_of(known, odd)
        seconds = options.completion_s
        for o in np.flatnonzero(np.isfinite(seconds) & ((seconds < low) | (seconds > high))).tolist():
            _refuse(known, int(options.job[o]), float(seconds[o]))
    return known


def _refuse(known: RoundJobs, job: int, seconds: float) -> None:
    """Raise an InputError for a job with a completion time that cannot be compared."""
    low, high = COMPLETION_RANGE_S
    rule = f"job '{known.jobs.names[job]}': completion times must be from {low:g} to {high:g} s"
    raise InputError([f"{rule}, remaining_work / rate is {seconds:g} s in one of its options"])


@remembered
def without_options(known: RoundJobs) -> IntArray:
    """Numbers of the jobs that have no option: they can neither run nor wait and meet their deadlines."""
    runs = known.shortest_s <= known.latest_s
    waits = ~known.must_run & (known.round_s + known.best_s <= known.latest_s)
    # One that runs now, or is in a set, may have options that those of its kind have not.
    own = known.jobs.fixed | known.in_sets | ((known.restart_s > 0.0) & np.isfinite(known.latest_s))
    # What a tenant's joules leave may be what a deadline rules out.
    own |= known.beyond_quotas | (np.isfinite(known.most_j) & np.isfinite(known.latest_s))
    unsure = np.flatnonzero(own)
    without = ~own & ~(known.can_run & (runs | waits))
    if len(unsure):
        listed = np.bincount(options_of(known, unsure).job, minlength=len(known))
        without[unsure] = listed[unsure] == 0
    return np.flatnonzero(without)


def expand(instance: Instance) -> Options:
    """Options of all jobs of a validated instance."""
    return options_of(jobs_of(instance))


def options_of(known: RoundJobs, jobs: IntArray | None = None) -> Options:
    """Write out the options of jobs.

    Jobs that share a table or a model share its arrays until the last step, so the work is one
    vectorised pass per kind of job, not per job.

    Numbers of `jobs` ascend; default: all. Of their sets only those with all jobs among them count.
    """
    kind = known.kind if jobs is None else known.kind[jobs]
    start, job, row = known.configurations.laid_out(kind)
    if jobs is not None:
        job = jobs[job]
    columns = _columns_of(known, row)
    job_set = np.full(len(job), ALONE)
    if jobs is None and not known.job_sets:
        return _allowed(_of_columns(known, job, job_set, columns, start))
    if known.job_sets:
        member, member_set, rows = _rows_of_sets(known)
        if jobs is not None:
            inside = np.isin(member, jobs)
            member, member_set = member[inside], member_set[inside]
            rows = {name: values[inside] for name, values in rows.items()}
        # Before each job's waiting option.
        place = np.searchsorted(job, member, side="right") - 1
        columns = {name: np.insert(values, place, rows[name]) for name, values in columns.items()}
        job, job_set = np.insert(job, place, member), np.insert(job_set, place, member_set)
    return _allowed(_of_columns(known, job, job_set, columns))


def options_in(known: RoundJobs, job: IntArray, row: IntArray) -> Options:
    """Options of jobs, ascending, that rows of their kinds stand for, `WAIT` for waiting; none in a set."""
    return _of_columns(known, job, np.full(len(job), ALONE), _columns_of(known, row))


def _columns_of(known: RoundJobs, row: IntArray) -> Columns:
    """Values of rows of the kinds, by name; those of `WAITING` for `WAIT`, which is -1: the last."""
    columns = known.configurations.columns
    if (row == WAIT).all():
        return {name: np.full(len(row), WAITING[name], values.dtype) for name, values in columns.items()}
    return {
        name: np.concatenate([values, np.array([WAITING[name]], dtype=values.dtype)])[row]
        for name, values in columns.items()
    }


def _of_columns(
    known: RoundJobs, job: IntArray, job_set: IntArray, columns: Columns, start: IntArray | None = None
) -> Options:
    start = np.searchsorted(job, np.arange(len(known) + 1)) if start is None else start
    named: dict[str, Any] = columns
    return Options(of=known, start=start, job=job, job_set=job_set, **named)


def _rows_of_sets(known: RoundJobs) -> tuple[IntArray, IntArray, Columns]:
    """Job, set and columns of values of an option for every job of every set, by job and then set.

    All jobs of a set have its GPUs, but only the first a block; each draws its part of the set's watts.
    """
    job_sets = known.job_sets
    places = sorted((j, s, k) for s, together in enumerate(job_sets) for k, j in enumerate(together.members))
    job, job_set, position = np.array(places, dtype=np.int64).T
    declared = [job_sets[s].declared for s in job_set]
    gpus = np.array([d.gpus for d in declared], dtype=np.int64)
    names = [list(d.rates)[k] for d, k in zip(declared, position, strict=True)]
    pool = np.array([job_sets[s].pool for s in job_set], dtype=np.int64)
    batch = [d.batch_sizes.get(name) for d, name in zip(declared, names, strict=True)]
    columns: Columns = {
        "pool": pool,
        "gpus": gpus,
        "block": np.where(position == 0, room_for(known.pools, pool, gpus), 0),
        "rate": np.array([d.rates[name] for d, name in zip(declared, names, strict=True)], dtype=float),
        "power_w": np.array([d.power_w / len(d.rates) for d in declared], dtype=float),
        # None becomes nan.
        "frequency_mhz": np.array([d.frequency_mhz for d in declared], dtype=float),
        "power_limit_w": np.array([d.power_limit_w for d in declared], dtype=float),
        "batch_size": np.array(batch, dtype=float),
    }
    return job, job_set, columns


def _allowed(options: Options) -> Options:
    keep = allowed(options)
    if keep.all():
        return options
    return options.take(np.flatnonzero(keep))


def allowed(options: Options) -> BoolArray:
    """Mask of options that no deadline, no job that may not wait and no job that keeps its GPUs rules out.

    The joules that a job's tenant may use rule out options, too; if no other is left to run as, also waiting.
    What rules out a set for one of its jobs does so for all of them.
    """
    most_j = options.of.most_j
    within = options.drawn_j <= most_j[options.job] if np.isfinite(most_j).any() else None
    keep = options.completion_s <= options.of.latest_s[options.job]
    # A job with no option alone has none at all, or its time could not be compared.
    keep &= np.isfinite(options.completion_s) & np.isfinite(options.best_s)[options.job]
    keep &= ~(options.waiting & options.of.must_run[options.job])
    keep &= ~(options.pays_restart & options.fixed[options.job])
    formed = options.job_set == ALONE  # or of a set that is possible for all its jobs
    if not formed.all():
        possible = keep if within is None else keep & within
        formed |= ~np.isin(options.job_set, options.job_set[~formed & ~possible])
        keep &= formed
    if within is not None:
        able = np.bincount(options.job[within & formed & ~options.waiting], minlength=len(most_j)) > 0
        keep &= within & (able | np.isinf(most_j))[options.job]
    return np.asarray(keep)
