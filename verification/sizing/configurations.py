"""The checker's own reading of what a job may run as, one configuration at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance, JobSet, content_of_kinds
from wattsched.instances.sizing.job import Job
from wattsched.instances.sizing.job_columns import JobColumns, ModelKind
from wattsched.instances.sizing.option_rows import rows_of_kinds
from wattsched.perfmodels.profile import Profile, find
from wattsched.topology.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    Rows,
    Table,
    largest_by,
    least_by,
)
from wattsched.topology.cluster import GpuType
from wattsched.topology.column import NONE
from wattsched.topology.remembered import Last
from wattsched.verification.arithmetic import alike
from wattsched.verification.report import ROUNDING, TOLERANCE
from wattsched.verification.sizing.pools import Pool
from wattsched.verification.sizing.tenants import alone, alone_j, drawn_j, metered, weights

LAST_DIGITS = 1e-12
"""A time that equals its deadline may miss it by so much, relative to it."""

Setting = tuple[str, int, int | None, float | None, int | None]
"""Pool, GPU count, frequency, power limit, batch size."""


class Configuration(NamedTuple):
    """Setting, rate (work per second) and power that a job may run with.

    ``completion_s`` is of a table that states that and no rate, for a unit of work.

    In a set, `power_w` is that of all its ``members``, of which one ``leads``: it takes the GPUs. Where all
    of these keep their deadlines and what their tenants may use to the last digits it is ``in_time``.
    """

    setting: Setting
    rate: float
    power_w: float
    completion_s: float | None = None
    set: str | None = None
    members: int = 1
    leads: bool = True
    in_time: bool = True


@dataclass(frozen=True, eq=False)
class Configurations(Table):
    """Configurations of the kinds of jobs outside of sets, in arrays of shape (n,).

    They depend on no job's work, deadline or current placement.

    Attributes
    ----------
    kind : int array
        Number of the kind of jobs.
    pool, gpus : int arrays
        Number of the pool, and GPU count.
    frequency_mhz, power_limit_w, batch_size : float arrays
        0 for none.
    rate, power_w : float arrays
    completion_s : float array
        Of tables that state that and no rate, for a unit of work; nan of others.
    """

    kind: IntArray
    pool: IntArray
    gpus: IntArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    batch_size: FloatArray
    rate: FloatArray
    power_w: FloatArray
    completion_s: FloatArray

    def __len__(self) -> int:
        """Return the number of configurations."""
        return len(self.kind)

    def in_order(self) -> Configurations:
        """Return the configurations kind by kind."""
        if (self.kind[1:] >= self.kind[:-1]).all():
            return self
        return self.take(np.argsort(self.kind, kind="stable"))

    @property
    def stated(self) -> list[IntArray | FloatArray]:
        """Kind, and the settings that a decision states, in the order of `gpus.SETTINGS`."""
        return [self.kind, self.pool, self.gpus, self.frequency_mhz, self.power_limit_w, self.batch_size]

    @cached_property
    def by_stated(self) -> Rows:
        """Rows to look up what decisions state."""
        return Rows(self.stated)

    @cached_property
    def by_holding(self) -> Rows:
        """Rows to look up what jobs go on with, without a restart: kind, pool, GPU count, batch size."""
        return Rows((self.kind, self.pool, self.gpus, self.batch_size))

    def listed(self, pools: Sequence[str]) -> list[Configuration]:
        """List them one by one, with the names of their pools."""
        times = (None if math.isnan(seconds) else seconds for seconds in self.completion_s.tolist())
        columns = self.settings(pools), self.rate.tolist(), self.power_w.tolist(), times
        return [Configuration(*row) for row in zip(*columns, strict=True)]

    def settings(self, pools: Sequence[str]) -> list[Setting]:
        """Return the settings that identify each configuration, with the names of the pools."""
        return [
            (pools[pool], gpus, int(mhz) or None, limit_w or None, int(batch) or None)
            for pool, gpus, mhz, limit_w, batch in zip(
                self.pool.tolist(),
                self.gpus.tolist(),
                self.frequency_mhz.tolist(),
                self.power_limit_w.tolist(),
                self.batch_size.tolist(),
                strict=True,
            )
        ]


_LAST = Last[tuple[Configurations, IntArray, dict[int, str]]]()
# Jobs of a kind, on average, from which on the kinds of one round are looked for in the next.
_ALIKE = 2


class JobConfigurations:
    """Configurations of the jobs of an instance; jobs of one kind share theirs.

    Attributes
    ----------
    jobs : JobColumns
    kind : int array, shape (n_jobs,)
        Number of each job's kind.
    every : Configurations
        What jobs of each kind may run as outside of sets; nothing where that is unknown.
    start : int array, shape (n_kinds + 1,)
        Where those of each kind begin, and at last how many there are.
    unknown : dict of int to str
        Why it is unknown of some kinds: a job asks for a setting that its profile does not know.
    """

    def __init__(self, instance: Instance, pools: dict[str, Pool]):
        self.instance, self.pools, self.jobs = instance, pools, instance.by_column()
        self._profiles = {(p.model, p.gpu_type): p for p in reversed(instance.profiles)}
        self._in_sets = _set_rows(instance, self.jobs, pools)
        self.unknown: dict[int, str] = {}
        self._first, self.kind = self.jobs.kinds  # the first job of each kind
        if len(self.jobs) < _ALIKE * len(self._first):
            self.every, self.start, self.unknown = self._found()
        else:
            # Those of the round before where the kinds are the same.
            content = content_of_kinds(instance, self.jobs)
            self.every, self.start, self.unknown = _LAST.answer(instance.cluster, content, self._found)

    def _found(self) -> tuple[Configurations, IntArray, dict[int, str]]:
        """Return the configurations of the kinds: `every`, `start` and `unknown`."""
        every = Configurations.joined([*self._from_tables(), *self._from_models()]).in_order()
        may_run = self._may_run(every)
        every = every if may_run.all() else every.take(may_run)
        return every, np.searchsorted(every.kind, np.arange(len(self._first) + 1)), self.unknown

    def of(self, j: int) -> list[Configuration]:
        """Return the configurations that job number `j` may run as alone."""
        kind = int(self.kind[j])
        return self.every.take(np.arange(*self.start[kind : kind + 2])).listed(list(self.pools))

    def stated_as(self, asked: Sequence[IntArray | FloatArray]) -> tuple[IntArray, IntArray]:
        """Pairs of a place in columns as of `Configurations.stated`, and a configuration that equals it."""
        return self.every.by_stated.equal(asked)

    def in_sets(self, job: str) -> list[Configuration]:
        """Return the configurations that the job of that name may run as in sets."""
        return self._in_sets.get(job, [])

    def in_pools(self) -> dict[str, set[int]]:
        """GPU counts that jobs may run on in each pool, alone or in sets."""
        found: dict[str, set[int]] = {name: set() for name in self.pools}
        for number, name in enumerate(self.pools):
            found[name].update(np.unique(self.every.gpus[self.every.pool == number]).tolist())
        for row in chain.from_iterable(self._in_sets.values()):
            pool_name, gpus, *_ = row.setting
            found[pool_name].add(gpus)
        return found

    @cached_property
    def settable(self) -> IntArray:
        """Jobs that may run in sets."""
        names = self.jobs.names if self._in_sets else []
        return np.array([j for j, name in enumerate(names) if name in self._in_sets], dtype=np.int64)

    @cached_property
    def start_s(self) -> FloatArray:
        """Seconds that each job needs to begin anew: a running job restarts first."""
        return np.where(self.jobs.current.codes == NONE, 0.0, self.jobs.numbers("restart_s"))

    @cached_property
    def weight(self) -> FloatArray:
        """Factor that each job's objective is multiplied with."""
        return weights(self.instance, self.jobs)

    @cached_property
    def change_cost(self) -> FloatArray:
        """Cost in the objective of changing a job that runs now; 0 for others."""
        own = self.jobs.numbers("change_cost")
        stated = np.where(np.isnan(own), self.instance.change_cost, own)
        return np.where(self.jobs.current.codes == NONE, 0.0, stated)

    @cached_property
    def reference_rate(self) -> FloatArray:
        """Best rate of each job with its smallest GPU count."""
        rows, n = self.every, len(self._first)
        small = rows.gpus == least_by(rows.kind, rows.gpus, n)[rows.kind]
        return np.asarray(largest_by(rows.kind[small], rows.rate[small], n)[self.kind])

    @cached_property
    def best_s(self) -> FloatArray:
        """Best completion of each job from a standing start; infinite for those that cannot run."""
        best_rate = largest_by(self.every.kind, self.every.rate, len(self._first))[self.kind]
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.jobs.numbers("remaining_work") / best_rate + self.start_s)

    @cached_property
    def least_s(self) -> FloatArray:
        """Best completion of each job from now: going on as it runs takes no restart."""
        least_s, rows, held = self.best_s.copy(), self.every, self.jobs.holdings
        number = {name: n for n, name in enumerate(self.pools)}
        pool = np.array([*(number.get(name, -1) for name in held.pool.values), -1])[held.pool.codes]
        jobs = np.flatnonzero(self.start_s > 0.0)
        code = self.jobs.current.codes[jobs]
        now = (self.kind[jobs], pool[code], held.gpus[code], held.batch_size[code])
        place, row = rows.by_holding.equal(now)
        rate = largest_by(place, rows.rate[row], len(jobs))
        with np.errstate(divide="ignore", over="ignore"):
            least_s[jobs] = np.minimum(least_s[jobs], self.jobs.numbers("remaining_work")[jobs] / rate)
        return least_s

    def least_energy_j(self, jobs: IntArray) -> FloatArray:
        """Least energy to completion of jobs from a standing start."""
        found = np.full(len(jobs), np.inf)
        work, start_s = self.jobs.numbers("remaining_work")[jobs], self.start_s[jobs]
        for kind, places in alike(self.kind[jobs]):
            rows = slice(*self.start[kind : kind + 2].tolist())
            for per_work, power_w in _thrifty(self.every.rate[rows], self.every.power_w[rows]):
                joules = per_work * work[places] + power_w * start_s[places]
                found[places] = np.minimum(found[places], joules)
        return found

    @cached_property
    def _may_use(self) -> BoolArray:
        """Mask of the pools that jobs of each kind may use by their own fields, shape (n_kinds, n_pools)."""
        asked = self.jobs.coded("pools").take(self._first)
        allowed = [
            [not {pool.name, pool.gpu_type}.isdisjoint(names) for pool in self.pools.values()]
            for names in asked.values
        ]
        return np.array([*allowed, [True] * len(self.pools)], dtype=bool)[asked.codes]

    def _may_run(self, rows: Configurations) -> BoolArray:
        """Return the mask of the rows that fit their pool and the GPU and power limits of job and tenant."""
        fewest, most = (self.jobs.counts(name)[self._first] for name in ("min_gpus", "max_gpus"))
        bounded = most[rows.kind] > 0
        # Blocks are powers of two: a count fits into the largest if it is no larger.
        room = np.array([pool.most_gpus for pool in self.pools.values()], dtype=np.int64)
        keep = (rows.gpus >= fewest[rows.kind]) & (rows.gpus <= room[rows.pool])
        keep &= ~bounded | (rows.gpus <= most[rows.kind])
        if self.instance.tenants:
            tenant = self.jobs.coded("tenant").take(self._first)
            limits = [alone(self.instance, name) for name in (*tenant.values, None)]
            gpus, power_w = np.array(limits)[tenant.codes][rows.kind].T
            keep &= (rows.gpus <= gpus) & (rows.power_w <= power_w)
        return np.asarray(keep)

    def _from_tables(self) -> Iterator[Configurations]:
        """Yield the rows of tables that name a pool or its GPU type, pool by pool."""
        known = rows_of_kinds(self.instance)
        kind, named = known.table, known.pool
        with np.errstate(over="ignore", divide="ignore"):
            rate = np.where(np.isnan(known.rate), 1.0 / known.completion_s, known.rate)
        for number, pool in enumerate(self.pools.values()):
            meant = np.array([name in (pool.name, pool.gpu_type) for name in named.values], dtype=bool)
            may_use = meant[named.codes] & self._may_use[kind, number]
            rows: IntArray | slice = slice(None) if may_use.all() else np.flatnonzero(may_use)
            yield Configurations(
                kind=kind[rows],
                pool=np.full(len(kind[rows]), number),
                gpus=known.gpus[rows],
                frequency_mhz=_or_none(known.frequency_mhz[rows]),
                power_limit_w=_or_none(known.power_limit_w[rows]),
                batch_size=_or_none(known.batch_size[rows]),
                rate=rate[rows],
                power_w=known.power_w[rows],
                completion_s=known.completion_s[rows],
            )

    def _from_models(self) -> Iterator[Configurations]:
        """Yield the configurations of kinds with a performance model, by kind and pool."""
        for kind, job in self.jobs.of_models.items():
            try:
                yield from [
                    self._from_profile(kind, job, number, pool)
                    for number, pool in enumerate(self.pools.values())
                    if self._may_use[kind, number]
                ]
            except ValueError as error:
                self.unknown[kind] = str(error)

    def _from_profile(self, kind: int, job: ModelKind, number: int, pool: Pool) -> Configurations:
        """Return what a kind of jobs may run as in the pool of that number, by the profile of its model."""
        gpu_type = self.instance.cluster.gpu_types[pool.gpu_type]
        stand_in = gpu_type.profile or pool.gpu_type
        known = self._profiles.get((job.model, pool.gpu_type)) or self._profiles.get((job.model, stand_in))
        profile = known or find(job.model, stand_in)
        settings = [] if profile is None else _settings(job, gpu_type, profile)
        gpus, batch, mhz, limit_w = np.array(settings, dtype=float).reshape(-1, 4).T
        rate = power_w = np.zeros(0)
        if profile is not None and settings:
            most_w = None if gpu_type.max_power_w is None else gpu_type.max_power_w / gpu_type.power_factor
            asked = gpus, batch, mhz, limit_w, pool.gpus_per_node, most_w
            rate = profile.rate(*asked) * gpu_type.speed_factor
            power_w = profile.power_w(*asked) * gpu_type.power_factor
        # A board that cannot be held within its limit runs no job.
        stated_w = np.array([round(w * gpu_type.power_factor, 6) for w in limit_w.tolist()])
        every = Configurations(
            kind=np.full(len(gpus), kind),
            pool=np.full(len(gpus), number),
            gpus=gpus.astype(np.int64),
            frequency_mhz=np.nan_to_num(np.round(mhz)),
            power_limit_w=np.nan_to_num(stated_w),
            batch_size=batch,
            rate=rate,
            power_w=power_w,
            completion_s=np.full(len(gpus), np.nan),
        )
        # A board that cannot be held within its limit runs no job.
        return every.take(~np.isnan(every.rate))


def _or_none(values: FloatArray) -> FloatArray:
    """0 instead of nan."""
    return np.where(np.isnan(values), 0.0, values)


def _thrifty(rate: FloatArray, power_w: FloatArray) -> Iterator[tuple[float, float]]:
    """Joules per unit of work and watts of rows that need the least energy for some work and some restart."""
    with np.errstate(over="ignore", divide="ignore"):
        per_work = power_w / rate
    order = np.lexsort((power_w, per_work))
    fewest_w = np.minimum.accumulate(power_w[order])
    found = order[np.append(True, fewest_w[1:] < fewest_w[:-1])] if len(order) else order
    return zip(per_work[found].tolist(), power_w[found].tolist(), strict=True)


def _settings(
    job: ModelKind, gpu_type: GpuType, profile: Profile
) -> list[tuple[int, int, float | None, float | None]]:
    """GPU counts, batch sizes, frequencies and power limits that a job with a model may choose."""
    frequencies: list[float | None] = [None]
    limits: list[float | None] = [None]
    if profile.frequency is not None:
        offered = job.frequencies_mhz or gpu_type.frequencies_mhz or profile.frequency.choices_mhz
        frequencies = [float(f) for f in offered]
    elif profile.power_limits is not None:
        asked = job.power_limits_w or gpu_type.power_limits_w
        # A stand-in's limits are those of another board: the power factor is between them.
        known = [w / gpu_type.power_factor for w in asked] if asked else profile.power_limits.limit_w
        most_w = math.inf
        if gpu_type.max_power_w is not None:
            # A board has no limit above its own.
            most_w = max(gpu_type.max_power_w / gpu_type.power_factor, profile.power_limits.limit_w[0])
        limits = [*dict.fromkeys(min(limit_w, most_w) for limit_w in known)]
    powers_of_two = [count for count in profile.gpu_counts if count & (count - 1) == 0]
    return [
        (gpus, batch, frequency, limit)
        for gpus in (powers_of_two if job.gpu_counts is None else job.gpu_counts)
        for batch in (profile.batch_sizes if job.batch_sizes is None else job.batch_sizes)
        if gpus <= batch <= gpus * profile.max_local_batch
        for frequency in frequencies
        for limit in limits
    ]


def lasts_s(job: Job, row: Configuration) -> float:
    """Seconds to completion of a job that runs as this, its restart included."""
    pool, gpus, _, _, batch = row.setting
    held = None if job.current is None else (job.current.pool, job.current.gpus, job.current.batch_size)
    return job.remaining_work / row.rate + (0.0 if held in (None, (pool, gpus, batch)) else job.restart_s)


def _set_rows(instance: Instance, jobs: JobColumns, pools: dict[str, Pool]) -> dict[str, list[Configuration]]:
    """Configurations of jobs in sets, by the job's name, in every pool with room that all of the set may use.

    A set in which one of its jobs would be late, or beyond what its tenant may use, is not formed.
    """
    numbers = {name: j for j, name in enumerate(jobs.names)} if instance.sets else {}
    found: dict[str, list[Configuration]] = {}
    for declared in instance.sets:
        members = [jobs[numbers[name]] for name in declared.rates]
        fewest = max(job.min_gpus or 1 for job in members)
        most = min(job.max_gpus or declared.gpus for job in members)
        for pool in pools.values():
            names = {pool.name, pool.gpu_type}
            if declared.pool not in names or not fewest <= declared.gpus <= min(most, pool.most_gpus):
                continue
            if any(job.pools is not None and names.isdisjoint(job.pools) for job in members):
                continue
            rows = _rows_of_set(declared, pool.name)
            ran = list(zip(members, rows, strict=True))
            if all(_keeps(instance, job, row, late=TOLERANCE, beyond=TOLERANCE) for job, row in ran):
                tolerances = {"late": LAST_DIGITS, "beyond": ROUNDING}
                in_time = all(_keeps(instance, job, row, **tolerances) for job, row in ran)
                for job, row in ran:
                    found.setdefault(job.name, []).append(row._replace(in_time=in_time))
    return found


def _rows_of_set(declared: JobSet, pool: str) -> list[Configuration]:
    """Return the configuration of each job of a set in that set."""
    common = pool, declared.gpus, declared.frequency_mhz, declared.power_limit_w
    return [
        Configuration(
            (*common, declared.batch_sizes.get(name)),
            rate,
            declared.power_w,
            set=declared.name,
            members=len(declared.rates),
            leads=number == 0,
        )
        for number, (name, rate) in enumerate(declared.rates.items())
    ]


def _keeps(instance: Instance, job: Job, row: Configuration, late: float, beyond: float) -> bool:
    """True if a job that runs as `row` keeps its deadline and its tenant's quotas.

    `late` and `beyond` are the relative tolerances of the deadline and of the quotas of energy.
    """
    seconds, power_w = lasts_s(job, row), row.power_w / row.members
    most_gpus, most_w = alone(instance, job.tenant)
    _, gpus, *_ = row.setting
    if gpus / row.members > most_gpus or power_w > most_w:
        return False
    joules = float(drawn_j(instance, power_w, seconds)) if metered(instance) else 0.0
    in_time = job.deadline_s is None or seconds <= job.deadline_s * (1 + late)
    return in_time and joules <= alone_j(instance, job.tenant) * (1 + beyond)
