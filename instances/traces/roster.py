"""Which models of the catalogue jobs train, and how they run when nobody has optimised them yet."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from wattsched.perfmodels.profile import Profile, find, models
from wattsched.topology.buddy import block_size
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool


@dataclass(frozen=True)
class Start:
    """How a user starts a job: at the customary batch, or the nearest that fits, and the highest setting.

    Attributes
    ----------
    customary_batch : int, optional
        What the trace says; None for the profile's default.
    """

    model: str
    gpus: int
    batch_size: int
    frequency_mhz: int | None
    power_limit_w: float | None
    rate: float
    customary_batch: int | None = None


class Roster:
    """Models of the catalogue that run on a cluster.

    The reference GPU type is the one with most GPUs among those that have profiles.

    Raises
    ------
    ValueError
        When the catalogue has no profile for any GPU type of the cluster.
    """

    def __init__(self, cluster: Cluster, pools: tuple[Pool, ...]):
        self.cluster = cluster
        self._started: dict[Hashable, Start | None] = {}
        self._candidates: dict[int, list[Start]] = {}
        gpus: dict[str, int] = {}
        for pool in pools:
            if any(self.profile(model, pool.gpu_type) for model in models()):
                gpus[pool.gpu_type] = gpus.get(pool.gpu_type, 0) + pool.n_gpus
        if not gpus:
            types = ", ".join(cluster.gpu_types)
            raise ValueError(f"the catalogue has no profile for any GPU type of the cluster ({types})")
        self.reference = max(gpus, key=lambda name: gpus[name])
        alike = [pool for pool in pools if pool.gpu_type == self.reference]
        self._largest = max(alike, key=lambda pool: pool.largest_block)

    def profile(self, model: str, gpu_type: str) -> Profile | None:
        """Profile of a model on a GPU type, or on the one that stands in for it."""
        return find(model, self.cluster.gpu_types[gpu_type].profile or gpu_type)

    def start(self, number: int, asked_gpus: int) -> Start:
        """Start of a job on the reference GPU type; `number` chooses the model."""
        if asked_gpus not in self._candidates:
            self._candidates[asked_gpus] = self._runnable(asked_gpus)
        candidates = self._candidates[asked_gpus]
        return candidates[number % len(candidates)]

    def start_of(self, model: str, batch_size: int | None, asked_gpus: int) -> Start:
        """Start of a model that the trace names, on the reference GPU type.

        Raises
        ------
        ValueError
            When the catalogue has no profile of it there, or no batch of it fits.
        """
        profile = self.profile(model, self.reference)
        if profile is None:
            raise ValueError(f"the catalogue has no profile of '{model}' on {self.reference}")
        gpus = min(asked_gpus, self._largest.largest_block, profile.gpu_counts[-1])
        while gpus:
            found = self._start(model, self.reference, self._largest.gpus_per_node, gpus, batch_size)
            if found is not None:
                return found
            gpus //= 2
        raise ValueError(f"no batch of '{model}' fits on {asked_gpus} {self.reference}")

    def on(self, pool: Pool, wanted: Start) -> Start | None:
        """Start of the same job in a pool; None when the model does not run there on that many GPUs."""
        return self._start(
            wanted.model, pool.gpu_type, pool.gpus_per_node, wanted.gpus, wanted.customary_batch
        )

    def batches_with(self, start: Start) -> list[int] | None:
        """Batch sizes to offer, the customary one first; None where the profile says it all."""
        if start.customary_batch is None:
            return None
        profile = self.profile(start.model, self.reference)
        assert profile is not None
        return list(dict.fromkeys([start.customary_batch, *profile.batch_sizes]))

    def counts_with(self, start: Start) -> list[int]:
        """Powers of two of the model's profile and the count that was asked for."""
        profile = self.profile(start.model, self.reference)
        assert profile is not None
        return sorted({count for count in profile.gpu_counts if block_size(count) == count} | {start.gpus})

    def _runnable(self, asked_gpus: int) -> list[Start]:
        """Every model on the GPUs asked for, cut to what profiles and blocks reach."""
        pool = self._largest
        profiles = [p for model in models() if (p := self.profile(model, self.reference)) is not None]
        gpus = min(asked_gpus, pool.largest_block, max(p.gpu_counts[-1] for p in profiles))
        while gpus:
            starts = [self._start(p.model, self.reference, pool.gpus_per_node, gpus) for p in profiles]
            if found := [start for start in starts if start is not None]:
                return found
            gpus //= 2
        raise ValueError(f"no model of the catalogue has a batch that fits on {self.reference}")

    def _start(
        self, model: str, gpu_type: str, gpus_per_node: int, gpus: int, batch_size: int | None = None
    ) -> Start | None:
        key = (model, gpu_type, gpus_per_node, gpus, batch_size)
        if key not in self._started:
            self._started[key] = self._make(*key)
        return self._started[key]

    def _make(
        self, model: str, gpu_type: str, gpus_per_node: int, gpus: int, customary: int | None
    ) -> Start | None:
        profile = self.profile(model, gpu_type)
        if profile is None or gpus > profile.gpu_counts[-1]:
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
            stand_in_limit = float(max(kind.limits_of_stand_in(None) or profile.power_limits.limit_w))
            # As `instances.options` states it, in the watts of this type.
            limit = round(stand_in_limit * kind.power_factor, 6)
        rate = float(profile.rate(gpus, batch, frequency, stand_in_limit, gpus_per_node)) * kind.speed_factor
        return Start(model, gpus, batch, frequency, limit, rate, customary)
