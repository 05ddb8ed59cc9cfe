"""The checker's own reading of what a job may run as, one configuration at a time."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from wattsched.instances.checker_site import Place
from wattsched.instances.instance import Instance, Job, OptionTable
from wattsched.perfmodels.catalogue import find
from wattsched.perfmodels.profile import Profile

Setting = tuple[str, int, int | None, float | None, int | None]
"""Pool, GPU count, frequency, power limit, batch size."""


class Configuration(NamedTuple):
    """What a job may run as; ``unit_s`` is the table's `completion_s`, where it states that and no rate."""

    setting: Setting
    rate: float
    power_w: float
    unit_s: float | None = None


@dataclass
class Menu:
    """Configurations that equal jobs share, whatever their work, deadline and current placement.

    Attributes
    ----------
    listed : list of Configuration
        All of them.
    rows : dict of Setting to (rate, power_w)
    ambiguous : set of Setting
        Settings that rows of the table repeat with other numbers; a decision cannot tell them apart.
    best_rate, reference_rate : float
        Best rate of all, and best with the smallest GPU count; 0 without rows.
    thrifty : list of (energy per work, power_w)
        Rows that may need the least energy, whatever the work and the time to restart.
    """

    listed: list[Configuration] = field(default_factory=list)
    rows: dict[Setting, tuple[float, float]] = field(default_factory=dict)
    ambiguous: set[Setting] = field(default_factory=set)
    best_rate: float = 0.0
    reference_rate: float = 0.0
    thrifty: list[tuple[float, float]] = field(default_factory=list)

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

    def _make(self, job: Job) -> Menu:
        menu = Menu()
        for place in self.places.values():
            if job.pools is not None and place.name not in job.pools and place.gpu_type not in job.pools:
                continue
            rows = self._table_rows(job, place) if job.model is None else self._model_rows(job, place)
            for row in rows:
                setting, rate, power_w, _ = row
                gpus = setting[1]
                if gpus < (job.min_gpus or 1) or (job.max_gpus is not None and gpus > job.max_gpus):
                    continue
                if block_of(gpus) > place.largest_block:
                    continue
                if menu.rows.setdefault(setting, (rate, power_w)) != (rate, power_w):
                    menu.ambiguous.add(setting)
                menu.listed.append(row)
        if menu.listed:
            _summarise(menu)
        return menu

    def _table_rows(self, job: Job, place: Place) -> list[Configuration]:
        table = self.instance.tables[job.options] if isinstance(job.options, str) else job.options
        assert table is not None
        rows = []
        for i, (gpus, pool) in enumerate(zip(table.gpus, table.pool, strict=True)):
            if pool not in (place.name, place.gpu_type):
                continue
            unit_s = None if table.completion_s is None else table.completion_s[i]
            rate = 1.0 / unit_s if unit_s is not None else (table.rate or [])[i]
            setting = (
                place.name,
                gpus,
                None if table.frequency_mhz is None else table.frequency_mhz[i],
                None if table.power_limit_w is None else table.power_limit_w[i],
                None if table.batch_size is None else table.batch_size[i],
            )
            rows.append(Configuration(setting, rate, table.power_w[i], unit_s))
        return rows

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


def block_of(gpus: int) -> int:
    """GPUs that a job reserves: its count, rounded up to a power of two."""
    size = 1
    while size < gpus:
        size *= 2
    return size


def _key(job: Job) -> Hashable:
    source: Hashable = id(job.options) if isinstance(job.options, OptionTable) else (job.options, job.model)
    choices = (job.pools, job.gpu_counts, job.batch_sizes, job.frequencies_mhz, job.power_limits_w)
    return (source, job.min_gpus, job.max_gpus, *(None if c is None else tuple(c) for c in choices))


def _summarise(menu: Menu) -> None:
    fewest = min(row.setting[1] for row in menu.listed)
    menu.best_rate = max(row.rate for row in menu.listed)
    menu.reference_rate = max(row.rate for row in menu.listed if row.setting[1] == fewest)
    least_power_w = float("inf")
    for per_work, power_w in sorted((row.power_w / row.rate, row.power_w) for row in menu.listed):
        if power_w < least_power_w:
            menu.thrifty.append((per_work, power_w))
            least_power_w = power_w
