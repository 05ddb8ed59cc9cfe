"""Profiles with errors drawn by a seed, so that an interval covers what is not known of performance models.

Four factors of each profile are drawn, log-normal and independent: of all watts (`Profile.power_error`), of
the time of synchronisation, of how much a lower setting slows a job down (slowdown less 1), and of the noise
scale.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from wattsched.perfmodels.power import PowerLimitTable
from wattsched.perfmodels.profile import Profile, Profiles, catalogue

LEAST, ASSUMED = 0.1, 0.5
"""Standard deviations of logarithms: of what was measured at least, and of what was taken from elsewhere, as
slowdowns of another GPU type, and noise scales of other data sets. Slowdowns of Zeus' six models on V100 have
1.1 at 150 W, and a profile is nearer to its job than one model to another: 0.5 is a judgement."""


def with_errors(profiles: Profiles, seed: int) -> Profiles:
    """Draw errors of all profiles that jobs of traces may be given, the same for a seed on every machine."""
    given = {(one.model, one.gpu_type) for one in profiles.given}
    trained = [one for one in catalogue() if len(one.gpu_counts) > 1 and one.task == "training"]
    others = [one for one in trained if (one.model, one.gpu_type) not in given]
    return Profiles(tuple(with_error(one, seed) for one in (*profiles.given, *others)))


def with_error(profile: Profile, seed: int) -> Profile:
    """Profile with an error drawn by a seed and its names."""
    measured = max(LEAST, profile.fit_error.time_mean if profile.fit_error else LEAST)
    slowing = measured if profile.power_uncertainty is None else ASSUMED
    spreads = [LEAST if profile.power_error is None else profile.power_error, measured, slowing]
    drawn = _draws(seed, f"{profile.model}:{profile.gpu_type}")
    watts, syncing, slower = np.exp(drawn * spreads).tolist()
    parts: dict[str, Any] = {
        "power": _times(profile.power, watts, "static_w", "dynamic_w", "sync_w"),
        "throughput": _times(profile.throughput, syncing, "alpha_r", "beta_r", "alpha_n", "beta_n"),
    }
    if (clock := profile.frequency) is not None:
        share = max(0.0, 1.0 - slower * (1.0 - clock.memory_bound_share))
        parts["frequency"] = clock.model_copy(update={"memory_bound_share": share})
    if (table := profile.power_limits) is not None:
        parts["power_limits"] = _limits(table, watts, slower)
    if (efficiency := profile.efficiency) is not None:
        (noise, *_) = np.exp(_draws(seed, profile.model) * ASSUMED).tolist()
        parts["efficiency"] = _times(efficiency, noise, "noise_scale")
    return profile.model_copy(update=parts)


def _limits(table: PowerLimitTable, watts: float, slower: float) -> PowerLimitTable:
    """Limits with other draws, which no limit lets rise above it, and other slowdowns."""
    power_w = np.array(table.power_w)
    drawn_w = np.minimum(watts * power_w, np.maximum(power_w, table.limit_w))
    slowdown = 1.0 + slower * (np.array(table.slowdown) - 1.0)
    return table.model_copy(update={"power_w": drawn_w.tolist(), "slowdown": slowdown.tolist()})


def _times(part: Any, factor: float, *fields: str) -> Any:
    return part.model_copy(update={name: factor * getattr(part, name) for name in fields})


def _draws(seed: int, name: str) -> np.ndarray:
    """Standard normal numbers that depend on seed and name alone."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(3)
