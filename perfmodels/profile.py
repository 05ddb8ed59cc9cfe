"""The profile of a model on a GPU type: rate and watts of every configuration; the packaged profiles.

Profiles that a user gives come before those of the catalogue (`Profiles`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike
from pydantic import TypeAdapter, model_validator

from wattsched.perfmodels.power import Counts, FrequencyModel, PowerLimitTable, PowerModel
from wattsched.perfmodels.throughput import StatisticalEfficiency, Throughput
from wattsched.topology.arrays import FloatArray, IntArray, Table
from wattsched.topology.fields import Count, Name, NonNegative, Strict


class FitError(Strict):
    """Relative error of a profile against its measurements (0.02 is 2 %); None: not measured."""

    time_mean: NonNegative
    time_max: NonNegative
    power_mean: NonNegative | None = None
    power_max: NonNegative | None = None


class Iteration(NamedTuple):
    """Seconds of the whole iteration, and the average watts of one GPU."""

    time_s: FloatArray
    gpu_power_w: FloatArray


@dataclass(frozen=True)
class Configurations(Table):
    """Configurations of a job, one per index.

    Attributes
    ----------
    gpus, batch_size : ndarray of int64, shape (n,)
        GPU count and global batch.
    frequency_mhz, power_limit_w : ndarray of float64, shape (n,)
        Settings; nan where the profile has no such knob.
    rate : ndarray of float64, shape (n,)
        Effective samples per second: throughput times statistical efficiency.
    power_w : ndarray of float64, shape (n,)
        Draw of all GPUs of the job.
    """

    gpus: IntArray
    batch_size: IntArray
    frequency_mhz: FloatArray
    power_limit_w: FloatArray
    rate: FloatArray
    power_w: FloatArray

    def __len__(self) -> int:
        return len(self.gpus)


class Profile(Strict):
    """Speed of a model on a GPU type, and the watts that it draws.

    Attributes
    ----------
    model, gpu_type : str
        What the profile is of.
    throughput : Throughput
        Iteration time at the highest clock or power limit.
    power : PowerModel
        Watts of a GPU.
    frequency : FrequencyModel, optional
        The clock as a knob.
    power_limits : PowerLimitTable, optional
        The power limit as a knob; a profile has at most one of the two.
    efficiency : StatisticalEfficiency, optional
        Without it every sample counts as one at any batch.
    batch_sizes : list of int
        Global batches to offer, increasing.
    default_batch : int
        The customary global batch.
    max_local_batch : int
        Largest batch that fits on one GPU.
    gpu_counts : list of int
        GPU counts that the profile describes, increasing.
    source : str
        Where the numbers come from, and what was assumed.
    fit_error : FitError, optional
        How far the profile is from its measurements.
    power_uncertainty : float, optional
        Relative standard error of watts that were measured on other GPU types, or in too few configurations;
        see `power_error`.
    task : "training" or "serving"
        Jobs of traces, which train, are not given models that answer requests.
    """

    model: Name
    gpu_type: Name
    throughput: Throughput
    power: PowerModel
    frequency: FrequencyModel | None = None
    power_limits: PowerLimitTable | None = None
    efficiency: StatisticalEfficiency | None = None
    batch_sizes: Counts
    default_batch: Count
    max_local_batch: Count
    gpu_counts: Counts
    source: str = ""
    fit_error: FitError | None = None
    power_uncertainty: NonNegative | None = None
    task: Literal["training", "serving"] = "training"

    @property
    def power_error(self) -> float | None:
        """Relative error to expect of the watts: stated, else the mean error of the fit; None: unknown."""
        if self.power_uncertainty is not None:
            return self.power_uncertainty
        return None if self.fit_error is None else self.fit_error.power_mean

    @model_validator(mode="after")
    def _one_knob(self) -> Self:
        if self.frequency is not None and self.power_limits is not None:
            raise ValueError("give 'frequency' or 'power_limits', not both")
        return self

    def rate(
        self,
        gpus: ArrayLike,
        batch_size: ArrayLike,
        frequency_mhz: ArrayLike | None,
        power_limit_w: ArrayLike | None,
        gpus_per_node: ArrayLike,
        max_power_w: float | None = None,
    ) -> FloatArray:
        """Effective samples per second, over broadcast arrays.

        Parameters
        ----------
        gpus, batch_size : array_like
            GPU count and global batch.
        frequency_mhz, power_limit_w : array_like or None
            Settings; None or nan: the highest, or no such knob.
        gpus_per_node : array_like
            GPUs of a node; the job spans ``ceil(gpus / gpus_per_node)`` nodes.
        max_power_w : float, optional
            The board's limit. A GPU that would draw more while it computes clocks down to it.

        Returns
        -------
        ndarray
            nan where the GPU cannot be held within `max_power_w`.

        Raises
        ------
        ValueError
            For a setting that the profile has no knob for, or one outside its range, and a board's limit
            that is not above 0.
        """
        given = gpus, batch_size, frequency_mhz, power_limit_w, gpus_per_node, max_power_w
        rate, _ = self._rate_and_power_w(*given)
        return rate

    def power_w(
        self,
        gpus: ArrayLike,
        batch_size: ArrayLike,
        frequency_mhz: ArrayLike | None,
        power_limit_w: ArrayLike | None,
        gpus_per_node: ArrayLike,
        max_power_w: float | None = None,
    ) -> FloatArray:
        """Average draw of all GPUs of the job; parameters and errors as for `rate`."""
        given = gpus, batch_size, frequency_mhz, power_limit_w, gpus_per_node, max_power_w
        _, power_w = self._rate_and_power_w(*given)
        return power_w

    def _rate_and_power_w(
        self,
        gpus: ArrayLike,
        batch_size: ArrayLike,
        frequency_mhz: ArrayLike | None,
        power_limit_w: ArrayLike | None,
        gpus_per_node: ArrayLike,
        max_power_w: float | None,
    ) -> tuple[FloatArray, FloatArray]:
        """Effective samples per second, and watts of all GPUs of the job; parameters as for `rate`."""
        k, batch = np.asarray(gpus, dtype=float), np.asarray(batch_size, dtype=float)
        nodes = np.ceil(k / np.asarray(gpus_per_node))
        iteration = self.iteration(k, nodes, batch / k, frequency_mhz, power_limit_w, max_power_w)
        efficiency = 1.0 if self.efficiency is None else self.efficiency.of(batch)
        return np.asarray(batch * efficiency / iteration.time_s), np.asarray(k * iteration.gpu_power_w)

    def iteration(
        self,
        gpus: ArrayLike,
        nodes: ArrayLike,
        local_batch: ArrayLike,
        frequency_mhz: ArrayLike | None,
        power_limit_w: ArrayLike | None,
        max_power_w: float | None = None,
    ) -> Iteration:
        """Return seconds and watts of one iteration on `gpus` GPUs over `nodes` nodes; see `rate`."""
        if max_power_w is not None and not max_power_w > 0:
            raise ValueError(f"max_power_w must be above 0, got {max_power_w:g}")
        frequency = np.asarray(np.nan if frequency_mhz is None else frequency_mhz, dtype=float)
        limit = np.asarray(np.nan if power_limit_w is None else power_limit_w, dtype=float)
        for name, setting, knob in (
            ("frequency_mhz", frequency, self.frequency),
            ("power_limit_w", limit, self.power_limits),
        ):
            if knob is None and (given := setting[~np.isnan(setting)]).size:
                profile = f"the profile of {self.model} on {self.gpu_type}"
                raise ValueError(f"{name} {given.flat[0]:g} given, but {profile} has no such knob")
        if self.power_limits is not None:
            grad_s, computing_w = self._under_limit(self.power_limits, local_batch, limit, max_power_w)
        else:
            grad_s, computing_w = self._at_clock(local_batch, frequency, max_power_w)
        time_s = self.throughput.iteration_time_s(grad_s, gpus, nodes)
        computing = grad_s / time_s
        sync_w = self.power.sync_w if max_power_w is None else min(self.power.sync_w, max_power_w)
        return Iteration(time_s, computing * computing_w + (1.0 - computing) * sync_w)

    def _at_clock(
        self, local_batch: ArrayLike, frequency_mhz: FloatArray, max_power_w: float | None
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds and watts of computing, at a clock at which the board keeps within its limit."""
        highest = 1.0 if max_power_w is None else self.power.highest_clock(max_power_w)
        if self.frequency is None:
            # Nothing is known of a lower clock: all the work counts as slowed by it.
            clock = np.asarray(highest or np.nan)  # nan: at no clock within the limit
            stretch = 1.0 / clock
        else:
            clock = self.frequency.relative(frequency_mhz)
            lowest = self.frequency.choices_mhz[0] / self.frequency.max_mhz
            # Below the lowest clock nothing is known of the draw.
            known = highest >= lowest
            clock = np.minimum(clock, highest) if known else np.where(clock > highest, np.nan, clock)
            stretch = self.frequency.stretch_at(clock)
        return self.throughput.grad_time_s(local_batch, stretch), self.power.computing_w(clock)

    def _under_limit(
        self, table: PowerLimitTable, local_batch: ArrayLike, limit_w: FloatArray, max_power_w: float | None
    ) -> tuple[FloatArray, FloatArray]:
        """Seconds and watts of computing under the lower of a limit and the board's own."""
        most_w = np.inf if max_power_w is None else max_power_w
        limit_w = np.where(np.isnan(limit_w), table.limit_w[-1], limit_w)
        limit_w = table.within(limit_w, max_power_w)
        computing_w = table.computing_w(local_batch, limit_w)
        grad_s = self.throughput.grad_time_s(local_batch) * table.stretch(local_batch, limit_w)
        held = computing_w <= most_w  # boards do not hold their lowest limits to the watt
        return np.where(held, grad_s, np.nan), np.where(held, computing_w, np.nan)

    def configurations(
        self,
        gpus_per_node: int,
        *,
        gpu_counts: Sequence[int] | None = None,
        batch_sizes: Sequence[int] | None = None,
        frequencies_mhz: Sequence[float] | None = None,
        power_limits_w: Sequence[float] | None = None,
        max_power_w: float | None = None,
    ) -> Configurations:
        """Every combination of GPU count, batch and setting that fits into GPU memory.

        Parameters
        ----------
        gpus_per_node : int
            GPUs of a node.
        gpu_counts, batch_sizes, frequencies_mhz, power_limits_w : sequence, optional
            What to combine. Default: the profile's own choices, of the GPU counts the powers of two if it
            has any. Settings of a knob that the profile does not have are left out; those outside its range
            are a ValueError.
        max_power_w : float, optional
            The board's limit, see `rate`.

        Returns
        -------
        Configurations
            Ordered by GPU count, batch and setting, without those that a board cannot hold; maybe none.
        """
        counts, batches, settings = self._choices(
            gpu_counts, batch_sizes, frequencies_mhz, power_limits_w, max_power_w
        )
        fits = (batches >= counts[:, None]) & (batches <= counts[:, None] * self.max_local_batch)
        count, batch_index = np.nonzero(fits)
        gpus = np.repeat(counts[count], len(settings))
        batch = np.repeat(batches[batch_index], len(settings))
        setting = np.tile(settings, len(count))
        absent = np.full(len(gpus), np.nan)
        frequency = setting if self.frequency is not None else absent
        limit = setting if self.power_limits is not None else absent
        rate, power_w = self._rate_and_power_w(gpus, batch, frequency, limit, gpus_per_node, max_power_w)
        return Configurations(gpus, batch, frequency, limit, rate, power_w).take(~np.isnan(rate))

    def count(self, **choices: Any) -> int:
        """Return how many combinations `configurations` makes, those that a board cannot hold included."""
        counts, batches, settings = self._choices(**choices)
        last = np.searchsorted(batches, counts * self.max_local_batch, side="right")
        fitting = last - np.searchsorted(batches, counts, side="left")
        return int(fitting.clip(0).sum()) * len(settings)

    def _choices(
        self,
        gpu_counts: Sequence[int] | None = None,
        batch_sizes: Sequence[int] | None = None,
        frequencies_mhz: Sequence[float] | None = None,
        power_limits_w: Sequence[float] | None = None,
        max_power_w: float | None = None,
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """GPU counts, batches and settings to combine, ascending."""
        if gpu_counts is None:
            powers = [count for count in self.gpu_counts if count & (count - 1) == 0]
            gpu_counts = powers or self.gpu_counts
        counts = np.unique(np.asarray(gpu_counts, dtype=np.int64))
        batches = np.unique(np.asarray(self.batch_sizes if batch_sizes is None else batch_sizes, np.int64))
        choices: Sequence[float] = [np.nan]
        if self.frequency is not None:
            choices = self.frequency.choices_mhz if frequencies_mhz is None else frequencies_mhz
        elif self.power_limits is not None:
            choices = self.power_limits.limit_w if power_limits_w is None else power_limits_w
            choices = self.power_limits.within(choices, max_power_w).tolist()
        return counts, batches, np.unique(np.asarray(choices, dtype=float))


@cache
def catalogue() -> tuple[Profile, ...]:
    """All profiles of the package, ordered by model and GPU type; read on the first call."""
    text = files("wattsched.perfmodels").joinpath("catalogue.json").read_bytes()
    return tuple(TypeAdapter(list[Profile]).validate_json(text))


@cache
def _by_name() -> dict[tuple[str, str], Profile]:
    return {(profile.model, profile.gpu_type): profile for profile in catalogue()}


def find(model: str, gpu_type: str) -> Profile | None:
    """Profile of a model on a GPU type, None if the catalogue has none."""
    return _by_name().get((model, gpu_type))


def models(task: str | None = None) -> tuple[str, ...]:
    """Names of the models in the catalogue, sorted; of one `task` or of all."""
    return tuple(sorted({profile.model for profile in catalogue() if task in (None, profile.task)}))


@dataclass(frozen=True)
class Profiles:
    """Profiles by model and GPU type; those given, of equal ones the first, replace the catalogue's."""

    given: tuple[Profile, ...] = ()

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Profile]:
        return {(profile.model, profile.gpu_type): profile for profile in reversed(self.given)}

    def find(self, model: str, gpu_type: str, stand_in: str | None = None) -> Profile | None:
        """Profile of a model on a GPU type, or on the type that stands in for it; None if there is none."""
        own, name = self._by_name, stand_in or gpu_type
        return own.get((model, gpu_type)) or own.get((model, name)) or find(model, name)

    @cached_property
    def models(self) -> tuple[str, ...]:
        """Names of the models, sorted."""
        return tuple(sorted({*models(), *(profile.model for profile in self.given)}))

    @cached_property
    def gpu_types(self) -> tuple[str, ...]:
        """Names of the GPU types, sorted."""
        return tuple(sorted({profile.gpu_type for profile in (*catalogue(), *self.given)}))

    @cached_property
    def training(self) -> tuple[str, ...]:
        """Return the models that are trained, not served: a job of which nothing is told may run these.

        Not those that the catalogue has on one GPU count alone, which say nothing of other jobs.
        """
        several = (profile for profile in catalogue() if len(profile.gpu_counts) > 1)
        trained = (one.model for one in (*several, *self.given) if one.task == "training")
        return tuple(sorted({*trained}))


CATALOGUE = Profiles()
"""Nothing but the catalogue."""
