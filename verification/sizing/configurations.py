"""The checker's own reading of what a job may run as, one configuration at a time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance, Job, OptionTable
from wattsched.perfmodels.profile import Profile, find
from wattsched.verification.sizing.cluster import Place, block_of

Setting = tuple[str, int, int | None, float | None, int | None]
"""Pool, GPU count, frequency, power limit, batch size."""


Row = tuple[str, int, int | None, float | None, int | None, float, float, float | None]
"""Row of a table: the pool or GPU type that it names, the other settings, rate, power, `completion_s`."""


class Configuration(NamedTuple):
    """What a job may run as; ``unit_s`` is the table's `completion_s`, where it states that and no rate.

    In a set, `power_w` is that of all its ``members``, of which one ``leads``: it takes the GPUs.
    """

    setting: Setting
    rate: float
    power_w: float
    unit_s: float | None = None
    set: str | None = None
    members: int = 1
    leads: bool = True


@dataclass(frozen=True)
class Menu:
    """Configurations that equal jobs share, whatever their work, deadline and current placement."""

    listed: list[Configuration]

    @cached_property
    def rows(self) -> dict[Setting, tuple[float, float]]:
        """Rate and watts of each setting."""
        return {row.setting: (row.rate, row.power_w) for row in reversed(self.listed)}

    @cached_property
    def ambiguous(self) -> set[Setting]:
        """Settings that rows of the table repeat with other numbers; a decision cannot tell them apart."""
        if len(self.rows) == len(self.listed):
            return set()
        return {row.setting for row in self.listed if self.rows[row.setting] != (row.rate, row.power_w)}

    @cached_property
    def best_rate(self) -> float:
        """Best rate of all rows, of which there must be one."""
        return max(row.rate for row in self.listed)

    @cached_property
    def reference_rate(self) -> float:
        """Best rate with the smallest GPU count."""
        fewest = min(row.setting[1] for row in self.listed)
        return max(row.rate for row in self.listed if row.setting[1] == fewest)

    @cached_property
    def thrifty(self) -> list[tuple[float, float]]:
        """Energy per work and watts of rows that may need the least energy, whatever work and restart."""
        found: list[tuple[float, float]] = []
        for per_work, power_w in sorted((row.power_w / row.rate, row.power_w) for row in self.listed):
            if not found or power_w < found[-1][1]:
                found.append((per_work, power_w))
        return found

    def best_s(self, job: Job) -> float:
        """Best completion from a standing start; a running job restarts first."""
        restart_s = job.restart_s if job.current is not None else 0.0
        return job.remaining_work / self.best_rate + restart_s

    def least_energy_j(self, job: Job) -> float:
        """Least energy to completion from a standing start."""
        restart_s = job.restart_s if job.current is not None else 0.0
        return min(per_work * job.remaining_work + power_w * restart_s for per_work, power_w in self.thrifty)


class Menus:
    """Menus of the jobs of an instance; equal jobs share one."""

    def __init__(self, instance: Instance, places: dict[str, Place]):
        self.instance = instance
        self.places = places
        self.profiles = {(p.model, p.gpu_type): p for p in reversed(instance.profiles)}
        self._made: dict[Hashable, Menu] = {}
        self._of: dict[str, Menu] = {}
        self._modelled: dict[Hashable, list[Configuration]] = {}
        self._tables: dict[int, dict[str, list[Row]]] = {}
        self._in_sets = _set_rows(instance, places)

    def of(self, job: Job) -> Menu:
        """Menu of a job of the instance.

        Raises
        ------
        ValueError
            If the job asks for a setting that its profile does not know.
        """
        if job.name not in self._of:
            key = _key(job)
            if key not in self._made:
                self._made[key] = self._make(job)
            self._of[job.name] = self._made[key]
        return self._of[job.name]

    def in_sets(self, job: str) -> list[Configuration]:
        """What the job of that name may run as in sets, besides its menu."""
        return self._in_sets.get(job, [])

    def _make(self, job: Job) -> Menu:
        listed: list[Configuration] = []
        for place in self.places.values():
            if job.pools is not None and place.name not in job.pools and place.gpu_type not in job.pools:
                continue
            # Blocks are powers of two: a count fits into the largest if it is no larger.
            fewest, most = job.min_gpus or 1, min(place.largest_block, job.max_gpus or place.largest_block)
            if job.model is None:
                listed += self._table_rows(job, place, fewest, most)
            else:
                rows = self._model_rows(job, place)
                listed += [row for row in rows if fewest <= row.setting[1] <= most]
        return Menu(listed)

    def _table_rows(self, job: Job, place: Place, fewest: int, most: int) -> list[Configuration]:
        table = self.instance.tables[job.options] if isinstance(job.options, str) else job.options
        assert table is not None
        if id(table) not in self._tables:
            self._tables[id(table)] = _by_place(table)
        by_place, name = self._tables[id(table)], place.name
        return [
            Configuration((name, gpus, mhz, limit_w, batch), rate, power_w, unit_s)
            for named in dict.fromkeys((name, place.gpu_type))
            for _, gpus, mhz, limit_w, batch, rate, power_w, unit_s in by_place.get(named, ())
            if fewest <= gpus <= most
        ]

    def _model_rows(self, job: Job, place: Place) -> list[Configuration]:
        choices = (job.gpu_counts, job.batch_sizes, job.frequencies_mhz, job.power_limits_w)
        key = (job.model, place.name, *(None if c is None else tuple(c) for c in choices))
        if key not in self._modelled:
            self._modelled[key] = self._from_profile(job, place)
        return self._modelled[key]

    def _from_profile(self, job: Job, place: Place) -> list[Configuration]:
        assert job.model is not None
        gpu_type = self.instance.cluster.gpu_types[place.gpu_type]
        profile = self._profile(job.model, place.gpu_type, gpu_type.profile or place.gpu_type)
        if profile is None:
            return []
        frequencies: list[float | None] = [None]
        limits: list[float | None] = [None]
        if profile.frequency is not None:
            offered = job.frequencies_mhz or gpu_type.frequencies_mhz or profile.frequency.choices_mhz
            frequencies = [float(f) for f in offered]
        elif profile.power_limits is not None:
            asked = job.power_limits_w or gpu_type.power_limits_w
            # A stand-in's limits are those of another board: the power factor is between them.
            limits = (
                [w / gpu_type.power_factor for w in asked] if asked else list(profile.power_limits.limit_w)
            )
        powers_of_two = [count for count in profile.gpu_counts if block_of(count) == count]
        settings = [
            (gpus, batch, frequency, limit)
            for gpus in (powers_of_two if job.gpu_counts is None else job.gpu_counts)
            for batch in (profile.batch_sizes if job.batch_sizes is None else job.batch_sizes)
            if gpus <= batch <= gpus * profile.max_local_batch
            for frequency in frequencies
            for limit in limits
        ]
        if not settings:
            return []
        gpus, batch, mhz, limit = (np.array(c, dtype=float) for c in zip(*settings, strict=True))
        rates = profile.rate(gpus, batch, mhz, limit, place.gpus_per_node) * gpu_type.speed_factor
        watts = profile.power_w(gpus, batch, mhz, limit, place.gpus_per_node) * gpu_type.power_factor
        return [
            Configuration(
                (
                    place.name,
                    g,
                    None if f is None else round(f),
                    None if w is None else round(w * gpu_type.power_factor, 6),
                    b,
                ),
                rate,
                power_w,
            )
            for (g, b, f, w), rate, power_w in zip(settings, rates.tolist(), watts.tolist(), strict=True)
        ]

    def _profile(self, model: str, gpu_type: str, stand_in: str) -> Profile | None:
        own = self.profiles.get((model, gpu_type)) or self.profiles.get((model, stand_in))
        return own or find(model, stand_in)


def _set_rows(instance: Instance, places: dict[str, Place]) -> dict[str, list[Configuration]]:
    """Configurations of jobs in sets, in every pool with such a block that all jobs of the set may use."""
    jobs = {job.name: job for job in instance.jobs}
    found: dict[str, list[Configuration]] = {}
    for declared in instance.sets:
        members = [jobs[name] for name in declared.rates]
        fewest = max(job.min_gpus or 1 for job in members)
        most = min(job.max_gpus or declared.gpus for job in members)
        for place in places.values():
            names = {place.name, place.gpu_type}
            if declared.pool not in names or not fewest <= declared.gpus <= min(most, place.largest_block):
                continue
            if any(job.pools is not None and names.isdisjoint(job.pools) for job in members):
                continue
            settings = declared.frequency_mhz, declared.power_limit_w
            for number, (name, rate) in enumerate(declared.rates.items()):
                row = Configuration(
                    (place.name, declared.gpus, *settings, declared.batch_sizes.get(name)),
                    rate,
                    declared.power_w,
                    set=declared.name,
                    members=len(members),
                    leads=number == 0,
                )
                found.setdefault(name, []).append(row)
    return found


def _key(job: Job) -> Hashable:
    source: Hashable = id(job.options) if isinstance(job.options, OptionTable) else (job.options, job.model)
    choices = (job.pools, job.gpu_counts, job.batch_sizes, job.frequencies_mhz, job.power_limits_w)
    return (source, job.min_gpus, job.max_gpus, *(None if c is None else tuple(c) for c in choices))


def _by_place(table: OptionTable) -> dict[str, list[Row]]:
    """Rows of a table by the pool or GPU type that they name."""
    unit_s = table.completion_s
    rates = table.rate if unit_s is None else [1.0 / seconds for seconds in unit_s]
    assert rates is not None
    absent = [None] * len(rates)
    found: dict[str, list[Row]] = {}
    for row in zip(
        table.pool,
        table.gpus,
        table.frequency_mhz or absent,
        table.power_limit_w or absent,
        table.batch_size or absent,
        rates,
        table.power_w,
        unit_s or absent,
        strict=True,
    ):
        found.setdefault(row[0], []).append(row)
    return found
