"""All options of all jobs of a round as arrays: what each is worth and what it uses."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from wattsched.instances.decision import Assignment, Decision
from wattsched.instances.instance import Instance, Job, OptionTable
from wattsched.perfmodels.catalogue import find
from wattsched.perfmodels.profile import Profile
from wattsched.topology.buddy import block_size
from wattsched.topology.pools import Pool, pools_of

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

WAIT = -1
COMPLETION_RANGE_S = (1e-6, 1e13)


@dataclass(frozen=True)
class Template:
    """The running configurations that jobs of one kind share, before their remaining work is known.

    All arrays have shape (n,). `rate` is work per second; settings that a row lacks are nan.
    """

    pool: IntArray
    gpus: IntArray
    rate: FloatArray
    power_w: FloatArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    batch_size: FloatArray

    @cached_property
    def best_rate(self) -> float:
        """Highest rate of any row, 0 without rows."""
        return float(self.rate.max(initial=0.0))

    @cached_property
    def reference_rate(self) -> float:
        """Best rate among the rows with the smallest GPU count."""
        if not len(self.gpus):
            return 1.0
        return float(self.rate[self.gpus == self.gpus.min()].max())

    def take(self, keep: BoolArray) -> Template:
        """Rows where `keep` holds."""
        return Template(**{name: getattr(self, name)[keep] for name in self.__dataclass_fields__})


@dataclass(frozen=True)
class Options:
    """Every option of every job, job by job, each job's waiting option last.

    Attributes
    ----------
    instance : Instance
    pools : tuple of Pool
    start : int array, shape (n_jobs + 1,)
        Options of job j are ``start[j]`` to ``start[j + 1]``; there are none when no option is allowed.
    job, pool, gpus, block : int arrays, shape (n_options,)
        `pool` is -1 for waiting; `block` is the GPU count rounded up to a power of two.
    rate, completion_s, power_w : float arrays, shape (n_options,)
        Work per second, seconds to completion (restart included; for waiting the round plus the best
        completion) and draw of the job's GPUs.
    frequency_mhz, power_limit_w, batch_size : float arrays, shape (n_options,)
        nan where the option has no such setting.
    pays_restart : bool array, shape (n_options,)
        Whether a running job restarts (or stops) with this option.
    best_s : float array, shape (n_jobs,)
        Best completion of the job from a standing start, restart included for running jobs.
    reference_rate : float array, shape (n_jobs,)
        Best rate at the smallest GPU count, to compare rates between jobs.
    least_energy_j : float array, shape (n_jobs,)
        Least energy to completion from a standing start.
    """

    instance: Instance
    pools: tuple[Pool, ...]
    start: IntArray
    job: IntArray
    pool: IntArray
    gpus: IntArray
    block: IntArray
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

    @cached_property
    def weight(self) -> FloatArray:
        """Weight of each option's job."""
        return np.array([job.weight for job in self.instance.jobs], dtype=float)[self.job]

    @cached_property
    def idle_w(self) -> FloatArray:
        """Idle draw of the GPUs that each option would use."""
        types = self.instance.cluster.gpu_types
        per_gpu = np.array([types[pool.gpu_type].idle_power_w for pool in self.pools] + [0.0])
        return np.asarray(per_gpu[self.pool] * self.gpus)

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
        for name in ("frequency_mhz", "power_limit_w", "batch_size"):
            asked = getattr(running, name)
            values = getattr(self, name)[span]
            same &= np.isnan(values) if asked is None else values == asked
        return np.asarray(same)

    def jobs_beyond_comparison(self) -> list[str]:
        """Jobs whose completion times are too short or too long for arithmetic in floating point."""
        low, high = COMPLETION_RANGE_S
        off = np.isfinite(self.completion_s) & ((self.completion_s < low) | (self.completion_s > high))
        return [self.instance.jobs[j].name for j in np.unique(self.job[off])]

    def jobs_without_options(self) -> list[str]:
        """Jobs that can neither run nor wait (a deadline that cannot be met)."""
        empty = np.flatnonzero(np.diff(self.start) == 0)
        return [self.instance.jobs[j].name for j in empty]


def expand(instance: Instance) -> Options:
    """Expand the jobs of an instance into their options.

    Jobs that share a table or a model share its arrays until the last step, so the work is one
    vectorised pass per distinct template, not per job.

    Parameters
    ----------
    instance : Instance
        Validated instance.

    Returns
    -------
    Options
    """
    pools = pools_of(instance.cluster)
    templates, template_of = _templates(instance, pools)
    return _allowed(_lay_out(instance, pools, templates, template_of))


def _templates(instance: Instance, pools: tuple[Pool, ...]) -> tuple[list[Template], IntArray]:
    """Distinct templates and the template index of each job."""
    index: dict[Hashable, int] = {}
    templates: list[Template] = []
    chosen = np.empty(len(instance.jobs), dtype=np.int64)
    for j, job in enumerate(instance.jobs):
        key = _template_key(job)
        if key not in index:
            index[key] = len(templates)
            templates.append(_template(instance, pools, job))
        chosen[j] = index[key]
    return templates, chosen


def _template_key(job: Job) -> Hashable:
    source: Hashable = id(job.options) if isinstance(job.options, OptionTable) else (job.options, job.model)
    choices = (job.pools, job.batch_sizes, job.gpu_counts, job.frequencies_mhz, job.power_limits_w)
    return (source, job.min_gpus, job.max_gpus, *(None if c is None else tuple(c) for c in choices))


def _template(instance: Instance, pools: tuple[Pool, ...], job: Job) -> Template:
    allowed = [
        p for p, pool in enumerate(pools) if job.pools is None or {pool.name, pool.gpu_type} & set(job.pools)
    ]
    if job.model is not None:
        rows = _from_model(instance, pools, job, allowed)
    else:
        table = instance.tables[job.options] if isinstance(job.options, str) else job.options
        assert table is not None
        rows = _from_table(table, pools, allowed)
    largest = np.array([pool.largest_block for pool in pools], dtype=np.int64)
    keep = block_size(rows.gpus) <= largest[rows.pool]
    if job.min_gpus is not None:
        keep &= rows.gpus >= job.min_gpus
    if job.max_gpus is not None:
        keep &= rows.gpus <= job.max_gpus
    return rows.take(keep)


def _from_table(table: OptionTable, pools: tuple[Pool, ...], allowed: list[int]) -> Template:
    """Rows of a table, once for each pool that the row's pool or GPU type stands for."""
    named = np.array(table.pool, dtype=object)
    pieces = []
    for p in allowed:
        pieces.append(np.flatnonzero((named == pools[p].name) | (named == pools[p].gpu_type)))
    rows = np.concatenate([np.empty(0, dtype=np.int64), *pieces]).astype(np.int64)

    def column(values: Iterable[float] | None) -> FloatArray:
        full = np.full(len(table.gpus), np.nan) if values is None else np.asarray(values, dtype=float)
        return full[rows]

    rate = column(table.rate) if table.rate is not None else 1.0 / column(table.completion_s)
    return Template(
        pool=np.repeat(np.array(allowed, dtype=np.int64), [len(piece) for piece in pieces]),
        gpus=np.asarray(table.gpus, dtype=np.int64)[rows],
        rate=rate,
        power_w=column(table.power_w),
        frequency_mhz=column(table.frequency_mhz),
        power_limit_w=column(table.power_limit_w),
        batch_size=column(table.batch_size),
    )


def profile_for(instance: Instance, model: str, gpu_type: str) -> Profile | None:
    """Performance profile of a model on a GPU type: from the instance, else from the catalogue.

    The GPU type's own name is tried before the type that stands in for it.
    """
    stand_in = instance.cluster.gpu_types[gpu_type].profile
    names = [gpu_type] if stand_in is None else [gpu_type, stand_in]
    for name in names:
        for profile in instance.profiles:
            if (profile.model, profile.gpu_type) == (model, name):
                return profile
    return find(model, names[-1])


def _from_model(instance: Instance, pools: tuple[Pool, ...], job: Job, allowed: list[int]) -> Template:
    assert job.model is not None
    pieces = []
    for p in allowed:
        gpu_type = instance.cluster.gpu_types[pools[p].gpu_type]
        profile = profile_for(instance, job.model, pools[p].gpu_type)
        if profile is None:
            continue
        rows = profile.configurations(
            pools[p].gpus_per_node,
            gpu_counts=job.gpu_counts,
            batch_sizes=job.batch_sizes,
            frequencies_mhz=job.frequencies_mhz or gpu_type.frequencies_mhz,
            power_limits_w=gpu_type.limits_of_stand_in(job.power_limits_w),
        )
        pieces.append(
            Template(
                pool=np.full(len(rows.gpus), p, dtype=np.int64),
                gpus=rows.gpus,
                rate=rows.rate * gpu_type.speed_factor,
                power_w=rows.power_w * gpu_type.power_factor,
                frequency_mhz=rows.frequency_mhz,
                power_limit_w=np.round(rows.power_limit_w * gpu_type.power_factor, 6),
                batch_size=rows.batch_size.astype(float),
            )
        )
    return _stacked(pieces)


def _stacked(pieces: list[Template]) -> Template:
    columns = {}
    for name in Template.__dataclass_fields__:
        dtype = np.int64 if name in ("pool", "gpus") else np.float64
        columns[name] = np.concatenate([np.empty(0, dtype), *(getattr(piece, name) for piece in pieces)])
    return Template(**columns)


def _lay_out(
    instance: Instance, pools: tuple[Pool, ...], templates: list[Template], template_of: IntArray
) -> Options:
    """Write every template's rows behind one another for each job that has it."""
    jobs = instance.jobs
    sizes = np.array([len(t.gpus) for t in templates], dtype=np.int64)
    start = np.concatenate([[0], np.cumsum(sizes[template_of] + 1)]).astype(np.int64)
    n = int(start[-1])
    columns: dict[str, NDArray[np.generic]] = {
        "pool": np.full(n, WAIT, dtype=np.int64),
        "gpus": np.zeros(n, dtype=np.int64),
        **{name: np.full(n, np.nan) for name in ("frequency_mhz", "power_limit_w", "batch_size")},
        **{name: np.zeros(n) for name in ("rate", "power_w")},
    }
    order = np.argsort(template_of, kind="stable")
    members = np.split(order, np.searchsorted(template_of[order], np.arange(1, len(templates))))
    for template, sharing in zip(templates, members, strict=False):
        cells = start[sharing][:, None] + np.arange(len(template.gpus))
        for name, values in columns.items():
            values[cells] = getattr(template, name)
    job = np.repeat(np.arange(len(jobs), dtype=np.int64), np.diff(start))
    return _with_times(instance, pools, templates, template_of, start, job, columns)


def _with_times(
    instance: Instance,
    pools: tuple[Pool, ...],
    templates: list[Template],
    template_of: IntArray,
    start: IntArray,
    job: IntArray,
    columns: dict[str, NDArray[np.generic]],
) -> Options:
    jobs = instance.jobs
    work = np.array([j.remaining_work for j in jobs], dtype=float)
    restart = np.array([j.restart_s if j.current is not None else 0.0 for j in jobs], dtype=float)
    best_rate = np.array([t.best_rate for t in templates], dtype=float)[template_of]
    with np.errstate(divide="ignore"):
        best_s = work / best_rate + restart
    pays = _pays_restart(instance, pools, job, columns)
    waiting = columns["pool"] == WAIT
    rate = np.asarray(columns["rate"], dtype=float)
    completion = np.where(
        waiting,
        instance.round_s + best_s[job],
        work[job] / np.where(waiting, 1.0, rate) + np.where(pays, restart[job], 0.0),
    )
    energy = np.where(
        waiting, np.inf, columns["power_w"] * (work[job] / np.where(waiting, 1.0, rate) + restart[job])
    )
    least = np.minimum.reduceat(energy, start[:-1]) if len(jobs) else np.empty(0)
    return Options(
        instance=instance,
        pools=pools,
        start=start,
        job=job,
        block=np.where(waiting, 0, block_size(np.maximum(columns["gpus"], 1))),
        completion_s=completion,
        pays_restart=pays,
        best_s=best_s,
        reference_rate=np.array([t.reference_rate for t in templates], dtype=float)[template_of],
        least_energy_j=least,
        **columns,  # type: ignore[arg-type]  # the names are those of the fields
    )


def _pays_restart(
    instance: Instance, pools: tuple[Pool, ...], job: IntArray, columns: dict[str, NDArray[np.generic]]
) -> BoolArray:
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
    must_run = fixed | ~np.array([j.can_wait for j in jobs], dtype=bool)
    keep &= ~(options.waiting & must_run[options.job])
    keep &= ~(options.pays_restart & fixed[options.job])
    if keep.all():
        return options
    counts = np.bincount(options.job[keep], minlength=len(jobs))
    fields = {
        name: getattr(options, name)[keep]
        for name in (
            "job", "pool", "gpus", "block", "rate", "completion_s", "power_w",
            "frequency_mhz", "power_limit_w", "batch_size", "pays_restart",
        )
    }  # fmt: skip
    return Options(
        instance=options.instance,
        pools=options.pools,
        start=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        best_s=options.best_s,
        reference_rate=options.reference_rate,
        least_energy_j=options.least_energy_j,
        **fields,
    )
