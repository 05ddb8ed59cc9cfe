"""Declared sets of jobs as options of their jobs: one *offer* for each set and pool that it can run in.

All options of all jobs of a round as arrays: what each is worth and what it uses.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from wattsched.formulations.sizing.configurations import (
    SETTINGS,
    WAIT,
    Columns,
    Configurations,
    configurations_of,
)
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance, Job, JobSet
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.buddy import block_size
from wattsched.topology.pools import Pool, pools_of

NO_OFFER = -1


@dataclass(frozen=True)
class Offer:
    """A set in a pool.

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


def offers_of(instance: Instance, pools: tuple[Pool, ...]) -> tuple[Offer, ...]:
    """Offers in the order of the sets, and of the pools within a set."""
    if not instance.sets:
        return ()
    number = {job.name: j for j, job in enumerate(instance.jobs)}
    return tuple(
        Offer(declared, p, tuple(number[name] for name in declared.rates))
        for declared in instance.sets
        for p in _usable(declared, [instance.jobs[number[name]] for name in declared.rates], pools)
    )


def _usable(declared: JobSet, jobs: list[Job], pools: tuple[Pool, ...]) -> Iterator[int]:
    """Pools in which the set has a block that all its jobs may use."""
    if any(not (job.min_gpus or 1) <= declared.gpus <= (job.max_gpus or declared.gpus) for job in jobs):
        return
    for p, pool in enumerate(pools):
        names = {pool.name, pool.gpu_type}
        allowed = all(job.pools is None or names & set(job.pools) for job in jobs)
        if declared.pool in names and allowed and int(block_size(declared.gpus)) <= pool.largest_block:
            yield p


def rows_of(offers: tuple[Offer, ...]) -> tuple[IntArray, IntArray, Columns]:
    """An option for every job of every offer, by job; offers of a job in their order.

    All jobs of a set have its GPUs, but only the first a block; each draws its part of the set's watts.

    Returns
    -------
    job, offer : int arrays, shape (n_rows,)
    columns : dict of str to array, shape (n_rows,)
        As `Configurations.columns`.
    """
    places = [(j, o, k) for o, offer in enumerate(offers) for k, j in enumerate(offer.members)]
    places.sort(key=lambda place: place[:2])
    job, offer, position = np.array(places, dtype=np.int64).reshape(-1, 3).T
    declared = [offers[o].declared for o in offer]
    gpus = np.array([d.gpus for d in declared], dtype=np.int64)
    names = [list(d.rates)[k] for d, k in zip(declared, position, strict=True)]

    def setting(values: list[float | int | None]) -> FloatArray:
        return np.array([np.nan if v is None else v for v in values], dtype=float)

    columns: Columns = {
        "pool": np.array([offers[o].pool for o in offer], dtype=np.int64),
        "gpus": gpus,
        "block": np.where(position == 0, block_size(gpus), 0),
        "rate": np.array([d.rates[name] for d, name in zip(declared, names, strict=True)], dtype=float),
        "power_w": np.array([d.power_w / len(d.rates) for d in declared], dtype=float),
        "frequency_mhz": setting([d.frequency_mhz for d in declared]),
        "power_limit_w": setting([d.power_limit_w for d in declared]),
        "batch_size": setting([d.batch_sizes.get(name) for d, name in zip(declared, names, strict=True)]),
    }
    return job, offer, columns


WAITING_ROW = {
    "pool": WAIT,
    "gpus": 0,
    "block": 0,
    "rate": 0.0,
    "power_w": 0.0,
    **dict.fromkeys(SETTINGS, np.nan),
}
COMPLETION_RANGE_S = (1e-6, 1e13)


@dataclass(frozen=True)
class Options:
    """Every option of every job, job by job, each job's waiting option last.

    Attributes
    ----------
    instance : Instance
    pools : tuple of Pool
    offers : tuple of Offer
        Sets of jobs that may share GPUs, by pool.
    start : int array, shape (n_jobs + 1,)
        Options of job j are ``start[j]`` to ``start[j + 1]``; there are none when no option is allowed.
    job, pool, gpus, block : int arrays, shape (n_options,)
        `pool` is -1 for waiting; `block` is the GPU count rounded up to a power of two, but 0 for all jobs of
        a set except the first.
    offer : int array, shape (n_options,)
        Number of the offer that an option is a part of, -1 for options of the job alone.
    rate, completion_s, power_w : float arrays, shape (n_options,)
        Work per second, seconds to completion (restart included; for waiting the round plus the best
        completion) and draw of the job's GPUs; in a set an equal part of it.
    frequency_mhz, power_limit_w, batch_size : float arrays, shape (n_options,)
        nan where the option has no such setting.
    pays_restart : bool array, shape (n_options,)
        Whether a running job restarts (or stops) with this option.
    best_s : float array, shape (n_jobs,)
        Best completion of the job alone from a standing start, restart included for running jobs.
    reference_rate : float array, shape (n_jobs,)
        Best rate at the smallest GPU count, to compare rates between jobs.
    least_energy_j : float array, shape (n_jobs,)
        Least energy to completion alone from a standing start.
    """

    instance: Instance
    pools: tuple[Pool, ...]
    offers: tuple[Offer, ...]
    start: IntArray
    job: IntArray
    pool: IntArray
    gpus: IntArray
    block: IntArray
    offer: IntArray
    rate: FloatArray
    completion_s: FloatArray
    power_w: FloatArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    batch_size: FloatArray
    pays_restart: BoolArray
    best_s: FloatArray
    reference_rate: FloatArray
    least_energy_j: FloatArray

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
        """Weight of each option's job."""
        return np.array([job.weight for job in self.instance.jobs], dtype=float)[self.job]

    @cached_property
    def lost_s(self) -> FloatArray:
        """Seconds that each option loses to a restart."""
        restart_s = np.array([job.restart_s for job in self.instance.jobs], dtype=float)[self.job]
        return np.where(self.pays_restart, restart_s, 0.0)

    @cached_property
    def idle_w(self) -> FloatArray:
        """Idle draw of the GPUs that each option would use; in a set an equal part of it."""
        types = self.instance.cluster.gpu_types
        per_gpu = np.array([types[pool.gpu_type].idle_power_w for pool in self.pools] + [0.0])
        idle_w: FloatArray = per_gpu[self.pool] * self.gpus
        if not self.offers:
            return idle_w
        members = np.array([*(len(offer.members) for offer in self.offers), 1.0])
        return np.asarray(idle_w / members[self.offer])

    @cached_property
    def shared(self) -> BoolArray:
        """Which options are parts of sets."""
        return np.asarray(self.offer != NO_OFFER)

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
            same &= np.isin(self.offer[span], self._offers_by_set.get(running.set, []))
        for name in SETTINGS:
            asked = getattr(running, name)
            values = getattr(self, name)[span]
            same &= np.isnan(values) if asked is None else values == asked
        return np.asarray(same)

    @cached_property
    def _offers_by_set(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for o, offer in enumerate(self.offers):
            found.setdefault(offer.declared.name, []).append(o)
        return found

    def jobs_without_options(self) -> list[Job]:
        """Jobs that can neither run nor wait (a deadline that cannot be met)."""
        return [self.instance.jobs[j] for j in np.flatnonzero(np.diff(self.start) == 0)]


def diagnose(options: Options) -> list[str]:
    """Why a round has no decision, as far as a look at each job alone can tell."""
    return [_why_without_options(job) for job in options.jobs_without_options()[:1]]


def _why_without_options(job: Job) -> str:
    if job.deadline_s is not None:
        return (
            f"no option of job '{job.name}' can be used: its deadline of {job.deadline_s:g} s cannot be met"
        )
    if not job.preemptible:
        held = "the GPU count, pool and batch size that it holds and must keep"
        return f"no option of job '{job.name}' has {held}"
    return f"no option of job '{job.name}' can be used: it can neither run nor wait"


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
    return _allowed(_with_times(instance, pools, configurations_of(instance, pools)))


def _laid_out(configurations: Configurations) -> tuple[IntArray, IntArray, Columns]:
    """Write every job's rows behind one another, each job's waiting option last.

    Returns
    -------
    start : int array, shape (n_jobs + 1,)
    job : int array, shape (n_options,)
    columns : dict of str to array, shape (n_options,)
    """
    start, row = configurations.laid_out(configurations.of_job)
    columns: Columns = {
        name: np.append(values, WAITING_ROW[name]).astype(values.dtype, copy=False)[row]
        for name, values in configurations.columns.items()
    }
    return start, np.repeat(np.arange(len(start) - 1), np.diff(start)), columns


def _with_offers(
    offers: tuple[Offer, ...], start: IntArray, job: IntArray, columns: Columns
) -> tuple[IntArray, IntArray, IntArray, Columns]:
    """Add every job's options in sets, before its waiting option."""
    of_option = np.full(len(job), NO_OFFER)
    if not offers:
        return start, job, of_option, columns
    of_row, offer, rows = rows_of(offers)
    place = start[of_row + 1] - 1
    columns = {name: np.insert(values, place, rows[name]) for name, values in columns.items()}
    added = np.cumsum(np.bincount(of_row, minlength=len(start) - 1))
    start = start + np.concatenate([[0], added])
    return start, np.insert(job, place, of_row), np.insert(of_option, place, offer), columns


def _with_times(instance: Instance, pools: tuple[Pool, ...], configurations: Configurations) -> Options:
    jobs = instance.jobs
    start, job, columns = _laid_out(configurations)
    offers = offers_of(instance, pools)
    start, job, offer, columns = _with_offers(offers, start, job, columns)
    work = np.array([j.remaining_work for j in jobs], dtype=float)
    restart = np.array([j.restart_s if j.current is not None else 0.0 for j in jobs], dtype=float)
    with np.errstate(divide="ignore"):
        best_s = work / configurations.best_rate[configurations.of_job] + restart
    pays = _pays_restart(instance, pools, job, columns)
    waiting = columns["pool"] == WAIT
    rate = np.asarray(columns["rate"], dtype=float)
    standing_s = work[job] / np.where(waiting, 1.0, rate)
    completion = np.where(
        waiting, instance.round_s + best_s[job], standing_s + np.where(pays, restart[job], 0.0)
    )
    # Whether others are still there to share with next round is not known: only options alone count.
    alone = ~waiting & (offer == NO_OFFER)
    energy = np.where(alone, columns["power_w"] * (standing_s + restart[job]), np.inf)
    least = np.minimum.reduceat(energy, start[:-1]) if len(jobs) else np.empty(0)
    return Options(
        instance=instance,
        pools=pools,
        offers=offers,
        start=start,
        job=job,
        offer=offer,
        completion_s=completion,
        pays_restart=pays,
        best_s=best_s,
        reference_rate=configurations.reference_rate[configurations.of_job],
        least_energy_j=least,
        **columns,  # type: ignore[arg-type]  # the names are those of the fields
    )


def _pays_restart(instance: Instance, pools: tuple[Pool, ...], job: IntArray, columns: Columns) -> BoolArray:
    """Whether the job runs now and the option differs in GPU count, pool or batch size."""
    number = {pool.name: p for p, pool in enumerate(pools)}
    held = [j.current for j in instance.jobs]
    running = np.array([c is not None for c in held], dtype=bool)
    gpus = np.array([c.gpus if c else 0 for c in held], dtype=np.int64)
    pool = np.array([number.get(c.pool, WAIT) if c else WAIT for c in held], dtype=np.int64)
    batch = np.array([c.batch_size if c and c.batch_size else np.nan for c in held], dtype=float)
    same_batch = (columns["batch_size"] == batch[job]) | (
        np.isnan(columns["batch_size"].astype(float)) & np.isnan(batch[job])
    )
    same = (columns["gpus"] == gpus[job]) & (columns["pool"] == pool[job]) & same_batch
    return np.asarray(running[job] & ~same)


def _allowed(options: Options) -> Options:
    """Drop what a deadline, a job that may not wait or a job that keeps its GPUs rules out."""
    jobs = options.instance.jobs
    deadline = np.array([np.inf if j.deadline_s is None else j.deadline_s for j in jobs])
    # A time equal to the deadline may miss it by a last digit.
    keep = (options.completion_s <= deadline[options.job] * (1 + 1e-12)) & np.isfinite(options.completion_s)
    fixed = np.array([not j.preemptible for j in jobs], dtype=bool)
    # A job with no option alone has none at all, or its time could not be compared.
    keep &= np.isfinite(options.best_s)[options.job]
    must_run = fixed | ~np.array([j.can_wait for j in jobs], dtype=bool)
    keep &= ~(options.waiting & must_run[options.job])
    keep &= ~(options.pays_restart & fixed[options.job])
    if keep.all():
        return options
    counts = np.bincount(options.job[keep], minlength=len(jobs))
    fields = {
        name: getattr(options, name)[keep]
        for name in (
            "job", "pool", "gpus", "block", "offer", "rate", "completion_s", "power_w",
            "frequency_mhz", "power_limit_w", "batch_size", "pays_restart",
        )
    }  # fmt: skip
    return Options(
        instance=options.instance,
        pools=options.pools,
        offers=options.offers,
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        best_s=options.best_s,
        reference_rate=options.reference_rate,
        least_energy_j=options.least_energy_j,
        **fields,
    )
