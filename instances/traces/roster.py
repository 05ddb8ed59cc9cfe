"""Model of the catalogue that a recorded job trains, and the start that its user gives it."""

from __future__ import annotations

import hashlib
import math
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

from wattsched.instances.clusters import spelt_as_known
from wattsched.instances.traces.recorded import TraceJob
from wattsched.perfmodels.profile import CATALOGUE, Profile, Profiles
from wattsched.reading.inputs import listed, meant
from wattsched.topology.buddy import block_size
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool

MOST_REASONS = 4
"""Number of reasons why jobs cannot start that a message lists."""


@dataclass(frozen=True)
class Start:
    """Start that a user gives a job: the customary batch, or the nearest that fits, and the highest setting.

    Attributes
    ----------
    rate : float
        Effective samples per second on these GPUs.
    customary_batch : int, optional
        The batch size in the trace; None for the profile's default.
    """

    model: str
    gpus: int
    batch_size: int
    frequency_mhz: int | None
    power_limit_w: float | None
    rate: float
    customary_batch: int | None = None


class Roster:
    """Models of the catalogue that run on a cluster, and how their users start them there.

    Durations are those on the GPU type `reference`: the one with most GPUs among those that have profiles, or
    the one that is named. It is a ValueError where that has no profile, or a GPU type's `profile` is unknown.
    `of_type`, `_start` and `_runnable` are `_of_type`, `_make` and `_make_runnable` with a cache; `_largest`
    is the pool of the reference type with the largest block.
    """

    def __init__(
        self,
        cluster: Cluster,
        pools: tuple[Pool, ...],
        reference: str | None = None,
        profiles: Profiles = CATALOGUE,
    ):
        for name, kind in cluster.gpu_types.items():
            if kind.profile is not None and kind.profile not in profiles.gpu_types:
                near = meant(kind.profile, profiles.gpu_types)
                told = f"'{kind.profile}' is not known{near}, profiles are of {', '.join(profiles.gpu_types)}"
                raise ValueError(f"cluster: the profile of GPU type '{name}': {told}")
        self.cluster, self.pools, self.profiles = cluster, pools, profiles
        self.of_type = cache(self._of_type)
        self._start = cache(self._make)
        self._runnable = cache(self._make_runnable)
        gpus: Counter[str] = Counter()
        for pool in pools:
            if any(self.profile(model, pool.gpu_type) for model in profiles.training):
                gpus[pool.gpu_type] += pool.n_gpus
        if not gpus:
            types = ", ".join(cluster.gpu_types)
            raise ValueError(f"the catalogue has no profile for any GPU type of the cluster ({types})")
        if reference is not None and reference not in gpus:
            lacks = "no profile of it" if reference in cluster.gpu_types else "no such GPU"
            where = "the catalogue" if reference in cluster.gpu_types else "the cluster"
            raise ValueError(f"gpu_type: '{reference}': {where} has {lacks}; jobs run on {', '.join(gpus)}")
        self.reference = reference or max(gpus, key=lambda name: gpus[name])
        alike = [pool for pool in pools if pool.gpu_type == self.reference]
        self._largest = max(alike, key=lambda pool: pool.largest_block)

    def _of_type(self, gpu_type: str | None) -> Roster:
        """Roster of jobs whose durations were recorded on a GPU type; where none is named, this one.

        The case of its name does not matter, unless the cluster has both.
        """
        if gpu_type is not None and gpu_type not in self.cluster.gpu_types:
            gpu_type = spelt_as_known(gpu_type, self.cluster.gpu_types)
        if gpu_type in (None, self.reference):
            return self
        return Roster(self.cluster, self.pools, gpu_type, self.profiles)

    def profile(self, model: str, gpu_type: str) -> Profile | None:
        """Profile of a model on a GPU type, or on the one that stands in for it."""
        return self.profiles.find(model, gpu_type, self.cluster.gpu_types[gpu_type].profile)

    def start(self, number: int, asked_gpus: int) -> Start:
        """Start of a job on the reference type; `number` chooses the model. A ValueError if none fits."""
        candidates = self._runnable(self.profiles.training, None, asked_gpus)
        if not candidates:
            raise ValueError(f"no model of the catalogue has a batch that fits on {self.reference}")
        return candidates[number % len(candidates)]

    def start_of(self, model: str, batch_size: int | None, asked_gpus: int) -> Start:
        """Start of a model that the trace names, on the reference type; a ValueError when there is none."""
        for start in self._runnable((model,), batch_size, asked_gpus):
            return start
        raise ValueError(self._why_not(model, asked_gpus))

    def _why_not(self, model: str, asked_gpus: int) -> str:
        """Return the reason why a model does not run on the GPUs requested, and what would help."""
        profile, kind = self.profile(model, self.reference), self.reference
        if profile is None:
            there = [name for name in self.profiles.models if self.profile(name, kind) is not None]
            others = listed(there, quote="", most=len(there))
            told = f"the catalogue has no profile of '{model}' on {kind}, but of {others}"
            return f"{told}; name one of these, or leave the model empty"
        gpus, least = min(asked_gpus, self._largest.largest_block), profile.gpu_counts[0]
        if gpus < least:
            told = f"the profile of '{model}' on {kind} begins at {least} GPUs"
            return f"{told}, and {gpus} are what can be had; measure {gpus}, too"
        told = f"no batch of '{model}' fits on {gpus} {kind}, where {profile.max_local_batch} fit on one GPU"
        most = gpus * profile.max_local_batch
        return f"{told}; measure {gpus} GPUs with batches of {most} or less, or larger ones on one GPU"

    def on(self, pool: Pool, wanted: Start) -> Start | None:
        """Start of the same job in a pool; None when the model does not run there on that many GPUs."""
        return self._start(
            wanted.model, pool.gpu_type, pool.gpus_per_node, wanted.gpus, wanted.customary_batch
        )

    def batches_with(self, start: Start) -> list[int] | None:
        """Batch sizes to offer, the customary one first; None where the profile says it all."""
        profile = self.profile(start.model, self.reference)
        if start.customary_batch is None or profile is None:
            return None
        return list(dict.fromkeys([start.customary_batch, *profile.batch_sizes]))

    def counts_with(self, start: Start) -> list[int]:
        """Powers of two of the model's profile and the count that was asked for."""
        profile = self.profile(start.model, self.reference)
        counts = [] if profile is None else profile.gpu_counts
        return sorted({count for count in counts if block_size(count) == count} | {start.gpus})

    def _make_runnable(self, names: tuple[str, ...], batch_size: int | None, asked_gpus: int) -> list[Start]:
        """Starts of those models that run on the GPUs asked for, cut to what profiles and blocks reach.

        Where no model has a batch for so many, on a half of them, and so on.
        """
        pool = self._largest
        profiles = [p for model in names if (p := self.profile(model, self.reference)) is not None]
        if not profiles:
            return []
        gpus = min(asked_gpus, pool.largest_block, max(p.gpu_counts[-1] for p in profiles))
        while gpus:
            asked = (pool.gpus_per_node, gpus, batch_size)
            starts = [self._start(p.model, self.reference, *asked) for p in profiles]
            if found := [start for start in starts if start is not None]:
                return found
            gpus //= 2
        return []

    def _make(
        self, model: str, gpu_type: str, gpus_per_node: int, gpus: int, customary: int | None
    ) -> Start | None:
        """Start of a model on so many GPUs of a type; `customary` is the trace's batch; None if none fits."""
        profile = self.profile(model, gpu_type)
        if profile is None or not profile.gpu_counts[0] <= gpus <= profile.gpu_counts[-1]:
            return None
        wanted = customary or profile.default_batch
        known = profile.batch_sizes if customary is None else [*profile.batch_sizes, customary]
        batches = [b for b in known if gpus <= b <= gpus * profile.max_local_batch]
        if not batches:
            return None
        batch = min(batches, key=lambda b: (abs(b - wanted), b))
        kind = self.cluster.gpu_types[gpu_type]
        frequency = limit = stand_in_limit = None
        if profile.frequency is not None:
            frequency = max(kind.frequencies_mhz or profile.frequency.choices_mhz)
        elif profile.power_limits is not None:
            highest = max(kind.limits_of_stand_in(None) or profile.power_limits.limit_w)
            stand_in_limit = float(profile.power_limits.within(highest, kind.max_power_of_stand_in_w))
            # In the watts of this type.
            limit = round(stand_in_limit * kind.power_factor, 6)
        most_w = kind.max_power_of_stand_in_w
        rate = float(profile.rate(gpus, batch, frequency, stand_in_limit, gpus_per_node, most_w))
        if math.isnan(rate):
            return None
        rate *= kind.speed_factor
        return Start(model, gpus, batch, frequency, limit, rate, customary)


def starts_of(roster: Roster, jobs: Iterable[TraceJob], seed: int) -> list[Start]:
    """Return the start that its user gives each job.

    Where the trace does not name a model, it is chosen by a hash of the seed and the job's name among those
    that run on the GPU count asked for. A ValueError has all jobs for which there is none on the cluster.
    """
    found, without = list[Start](), defaultdict[str, list[str]](list)
    for job in jobs:
        try:
            there = roster.of_type(job.gpu_type)
            if job.model is None:
                found.append(there.start(model_hash(seed, job.name), job.gpus))
            else:
                found.append(there.start_of(job.model, job.batch_size, job.gpus))
        except ValueError as error:
            without[str(error)].append(job.name)
    if without:
        told = [f"job{'s' * (len(names) > 1)} {listed(names)}: {why}" for why, names in without.items()]
        more = f"; and {len(told) - MOST_REASONS:,} reasons more" if len(told) > MOST_REASONS else ""
        raise ValueError("; ".join(told[:MOST_REASONS]) + more)
    return found


def model_hash(seed: int, job: str) -> int:
    """Number that depends on seed and name alone: the same on every machine, whatever the other jobs."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{job}".encode()).digest()[:8], "big")
