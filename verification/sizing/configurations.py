"""The checker's own reading of what a job may run as, one configuration at a time."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.sizing.job_columns import JobColumns, JobKind
from wattsched.perfmodels.profile import Profile, find
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.cluster import GpuType
from wattsched.topology.column import NONE
from wattsched.verification.sizing.grouping import alike
from wattsched.verification.sizing.pools import Pool, block_of
from wattsched.verification.sizing.tenants import alone, weights

Setting = tuple[str, int, int | None, float | None, int | None]
"""Pool, GPU count, frequency, power limit, batch size."""


class Configuration(NamedTuple):
    """What a job may run as; ``completion_s`` is of a table that states that and no rate, for a unit of work.

    In a set, `power_w` is that of all its ``members``, of which one ``leads``: it takes the GPUs.
    """

    setting: Setting
    rate: float
    power_w: float
    completion_s: float | None = None
    set: str | None = None
    members: int = 1
    leads: bool = True


@dataclass(frozen=True)
class Configurations:
    """What equal jobs may run as alone, whatever their work, deadline and current placement.

    Attributes
    ----------
    settings : list of Setting
    rate, power_w : float arrays, shape (n,)
        Of each setting.
    completion_s : float array, shape (n,)
        Of tables that state that and no rate, for a unit of work; nan of others.
    """

    settings: list[Setting]
    rate: FloatArray
    power_w: FloatArray
    completion_s: FloatArray

    def __len__(self) -> int:
        """How many there are."""
        return len(self.settings)

    @classmethod
    def joined(cls, parts: Sequence[Configurations]) -> Configurations:
        """Configurations of all parts."""
        if len(parts) == 1:
            return parts[0]
        settings = [setting for part in parts for setting in part.settings]
        arrays = ([getattr(part, name) for part in parts] for name in ("rate", "power_w", "completion_s"))
        return cls(settings, *(np.concatenate([np.zeros(0), *array]) for array in arrays))

    def within(self, fewest: int, most: int) -> Configurations:
        """Those with so many GPUs."""
        return self.take((self.gpus >= fewest) & (self.gpus <= most))

    def take(self, which: BoolArray) -> Configurations:
        """Some of them."""
        if which.all():
            return self
        settings = list(compress(self.settings, which.tolist()))
        return Configurations(settings, self.rate[which], self.power_w[which], self.completion_s[which])

    def renamed(self, pool: str) -> Configurations:
        """The same in a pool."""
        settings = [(pool, *setting[1:]) for setting in self.settings]
        return Configurations(settings, self.rate, self.power_w, self.completion_s)

    @cached_property
    def listed(self) -> list[Configuration]:
        """One by one."""
        times = (None if math.isnan(seconds) else seconds for seconds in self.completion_s.tolist())
        columns = self.settings, self.rate.tolist(), self.power_w.tolist(), times
        return [Configuration(*row) for row in zip(*columns, strict=True)]

    @cached_property
    def gpus(self) -> IntArray:
        """GPU count of each setting."""
        return np.array([setting[1] for setting in self.settings], dtype=np.int64)

    @cached_property
    def place(self) -> dict[Setting, int]:
        """Row of each setting, of repeated ones the first."""
        return dict(zip(reversed(self.settings), range(len(self) - 1, -1, -1), strict=True))

    @cached_property
    def ambiguous(self) -> set[Setting]:
        """Settings that rows of the table repeat with other numbers; a decision cannot tell them apart."""
        if len(self.place) == len(self):
            return set()
        numbers = list(zip(self.rate.tolist(), self.power_w.tolist(), strict=True))
        return {one for row, one in enumerate(self.settings) if numbers[self.place[one]] != numbers[row]}

    @cached_property
    def best_rate(self) -> float:
        """Best rate of all rows, of which there must be one."""
        return float(self.rate.max())

    @cached_property
    def reference_rate(self) -> float:
        """Best rate with the smallest GPU count."""
        return float(self.rate[self.gpus == self.gpus.min()].max())

    @cached_property
    def _thrifty(self) -> tuple[FloatArray, FloatArray]:
        """Energy per work and watts of rows that may need the least energy, whatever work and restart."""
        with np.errstate(over="ignore", divide="ignore"):
            per_work = self.power_w / self.rate
        order = np.lexsort((self.power_w, per_work))
        fewest_w = np.minimum.accumulate(self.power_w[order])
        found = order[np.append(True, fewest_w[1:] < fewest_w[:-1])]
        return per_work[found], self.power_w[found]

    def least_energy_j(self, work: FloatArray, start_s: FloatArray) -> FloatArray:
        """Least energy to completion of jobs that need some seconds to begin; shape (n_jobs,)."""
        least = np.full(len(work), np.inf)
        for per_work, power_w in zip(*(column.tolist() for column in self._thrifty), strict=True):
            least = np.minimum(least, per_work * work + power_w * start_s)
        return least


class JobConfigurations:
    """Configurations of the jobs of an instance; jobs of one kind share theirs.

    Attributes
    ----------
    jobs : JobColumns
    kind : int array, shape (n_jobs,)
        Number of each job's kind.
    alone : list of Configurations, of length n_kinds
        What jobs of a kind may run as outside of sets; nothing where that cannot be told.
    unknown : dict of int to str
        Why it cannot be told of some kinds: a job asks for a setting that its profile does not know.
    """

    def __init__(self, instance: Instance, pools: dict[str, Pool]):
        self.instance, self.pools, self.jobs = instance, pools, instance.by_column()
        self._profiles = {(p.model, p.gpu_type): p for p in reversed(instance.profiles)}
        self._modelled: dict[Hashable, Configurations] = {}
        self._tables: dict[int, dict[str, Configurations]] = {}
        self._in_sets = _set_rows(instance, self.jobs, pools)
        self.unknown: dict[int, str] = {}
        self.alone: list[Configurations] = []
        _, self.kind = self.jobs.kinds
        for number, kind in enumerate(self.jobs.of_kinds):
            try:
                self.alone.append(self._make(kind))
            except ValueError as error:
                self.unknown[number] = str(error)
                self.alone.append(Configurations.joined([]))

    def of(self, j: int) -> Configurations:
        """What a job of that number may run as alone."""
        return self.alone[int(self.kind[j])]

    def in_sets(self, job: str) -> list[Configuration]:
        """What the job of that name may run as in sets, besides alone."""
        return self._in_sets.get(job, [])

    def in_pools(self) -> dict[str, set[int]]:
        """GPU counts that jobs may run on in each pool, alone or in sets."""
        found: dict[str, set[int]] = {name: set() for name in self.pools}
        of_sets = (row.setting for rows in self._in_sets.values() for row in rows)
        for pool, gpus, *_ in chain(self.every.settings, of_sets):
            found[pool].add(gpus)
        return found

    @cached_property
    def settable(self) -> IntArray:
        """Jobs that may run in sets."""
        names = self.jobs.names if self._in_sets else []
        return np.array([j for j, name in enumerate(names) if name in self._in_sets], dtype=np.int64)

    @cached_property
    def every(self) -> Configurations:
        """Configurations of all kinds, one kind after the other."""
        return Configurations.joined(self.alone)

    @cached_property
    def start(self) -> IntArray:
        """Where those of each kind begin, and at last how many there are; shape (n_kinds + 1,)."""
        return np.cumsum([0, *map(len, self.alone)])

    @cached_property
    def start_s(self) -> FloatArray:
        """Seconds that each job needs to begin anew: a running job restarts first."""
        return np.where(self.jobs.current.codes == NONE, 0.0, self.jobs.numbers("restart_s"))

    @cached_property
    def weight(self) -> FloatArray:
        """What each job's objective is multiplied with."""
        return weights(self.instance, self.jobs)

    @cached_property
    def change_cost(self) -> FloatArray:
        """What the objective pays if a job changes that runs now; 0 for others."""
        own = self.jobs.numbers("change_cost")
        stated = np.where(np.isnan(own), self.instance.change_cost, own)
        return np.where(self.jobs.current.codes == NONE, 0.0, stated)

    def best_s(self, jobs: IntArray) -> FloatArray:
        """Best completion of jobs from a standing start; infinite for those that cannot run."""
        rate = np.array([one.best_rate if len(one) else 0.0 for one in self.alone])
        with np.errstate(divide="ignore", over="ignore"):
            seconds = self.jobs.numbers("remaining_work")[jobs] / rate[self.kind[jobs]]
        return np.asarray(seconds + self.start_s[jobs])

    def reference_rates(self, jobs: IntArray) -> FloatArray:
        """Best rates of jobs with their smallest GPU counts."""
        return np.array([one.reference_rate if len(one) else 0.0 for one in self.alone])[self.kind[jobs]]

    def least_energy_j(self, jobs: IntArray) -> FloatArray:
        """Least energy to completion of jobs from a standing start."""
        found = np.full(len(jobs), np.inf)
        work, start_s = self.jobs.numbers("remaining_work")[jobs], self.start_s[jobs]
        for kind, places in alike(self.kind[jobs]):
            found[places] = self.alone[kind].least_energy_j(work[places], start_s[places])
        return found

    def _make(self, job: JobKind) -> Configurations:
        parts: list[Configurations] = []
        for pool in self.pools.values():
            if job.pools is None or not {pool.name, pool.gpu_type}.isdisjoint(job.pools):
                # Blocks are powers of two: a count fits into the largest if it is no larger.
                fewest, most = job.min_gpus or 1, min(pool.most_gpus, job.max_gpus or pool.most_gpus)
                rows = self._table_rows(job, pool) if job.model is None else [self._model_rows(job, pool)]
                parts += [part.within(fewest, most) for part in rows]
        found = Configurations.joined(parts)
        gpus, power_w = alone(self.instance, job.tenant)
        return found.take((found.gpus <= gpus) & (found.power_w <= power_w))

    def _table_rows(self, job: JobKind, pool: Pool) -> list[Configurations]:
        """Rows of a job's table that name the pool or its GPU type."""
        table = self.instance.tables[job.options] if isinstance(job.options, str) else job.options
        assert table is not None
        if id(table) not in self._tables:
            self._tables[id(table)] = _by_pool(table)
        by_pool = self._tables[id(table)]
        rows = [by_pool[pool.name]] if pool.name in by_pool else []
        if pool.gpu_type != pool.name and pool.gpu_type in by_pool:
            rows.append(by_pool[pool.gpu_type].renamed(pool.name))
        return rows

    def _model_rows(self, job: JobKind, pool: Pool) -> Configurations:
        choices = (job.gpu_counts, job.batch_sizes, job.frequencies_mhz, job.power_limits_w)
        key = (job.model, pool.name, *(None if c is None else tuple(c) for c in choices))
        if key not in self._modelled:
            self._modelled[key] = self._from_profile(job, pool)
        return self._modelled[key]

    def _from_profile(self, job: JobKind, pool: Pool) -> Configurations:
        assert job.model is not None
        gpu_type = self.instance.cluster.gpu_types[pool.gpu_type]
        stand_in = gpu_type.profile or pool.gpu_type
        known = self._profiles.get((job.model, pool.gpu_type)) or self._profiles.get((job.model, stand_in))
        profile = known or find(job.model, stand_in)
        settings = [] if profile is None else _settings(job, gpu_type, profile)
        if profile is None or not settings:
            return Configurations.joined([])
        g, b, f, w = (np.array(column, dtype=float) for column in zip(*settings, strict=True))
        rates = profile.rate(g, b, f, w, pool.gpus_per_node) * gpu_type.speed_factor
        watts = profile.power_w(g, b, f, w, pool.gpus_per_node) * gpu_type.power_factor
        named: list[Setting] = [
            (
                pool.name,
                gpus,
                None if mhz is None else round(mhz),
                None if limit_w is None else round(limit_w * gpu_type.power_factor, 6),
                batch,
            )
            for gpus, batch, mhz, limit_w in settings
        ]
        return Configurations(named, rates, watts, np.full(len(named), np.nan))


def _settings(
    job: JobKind, gpu_type: GpuType, profile: Profile
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
        limits = [w / gpu_type.power_factor for w in asked] if asked else [*profile.power_limits.limit_w]
    powers_of_two = [count for count in profile.gpu_counts if block_of(count) == count]
    return [
        (gpus, batch, frequency, limit)
        for gpus in (powers_of_two if job.gpu_counts is None else job.gpu_counts)
        for batch in (profile.batch_sizes if job.batch_sizes is None else job.batch_sizes)
        if gpus <= batch <= gpus * profile.max_local_batch
        for frequency in frequencies
        for limit in limits
    ]


def _set_rows(instance: Instance, jobs: JobColumns, pools: dict[str, Pool]) -> dict[str, list[Configuration]]:
    """Configurations of jobs in sets, in every pool with such a block that all jobs of the set may use."""
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
            settings = declared.frequency_mhz, declared.power_limit_w
            for number, (name, rate) in enumerate(declared.rates.items()):
                row = Configuration(
                    (pool.name, declared.gpus, *settings, declared.batch_sizes.get(name)),
                    rate,
                    declared.power_w,
                    set=declared.name,
                    members=len(members),
                    leads=number == 0,
                )
                found.setdefault(name, []).append(row)
    return found


def _by_pool(table: OptionTable) -> dict[str, Configurations]:
    """Rows of a table by the pool or GPU type that they name, which their settings name too."""
    completion_s = np.full(len(table.pool), np.nan)
    if table.completion_s is not None:
        completion_s = np.array(table.completion_s, dtype=float)
    with np.errstate(over="ignore", divide="ignore"):
        rate = 1.0 / completion_s if table.rate is None else np.array(table.rate, dtype=float)
    absent = [None] * len(rate)
    settings = zip(
        table.pool,
        table.gpus,
        table.frequency_mhz or absent,
        table.power_limit_w or absent,
        table.batch_size or absent,
        strict=True,
    )
    every = Configurations(list(settings), rate, np.array(table.power_w, dtype=float), completion_s)
    named = np.array(table.pool, dtype=object)
    return {name: every.take(named == name) for name in dict.fromkeys(table.pool)}
