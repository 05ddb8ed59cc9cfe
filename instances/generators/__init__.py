"""Families of generated instances, one file each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from wattsched.instances.generators.placement import placement_window
from wattsched.instances.generators.sharing import sharing_round
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.generators.sizing import hetero_round, philly_round, sia_round, uniform_round

_FAMILIES: dict[str, Callable[..., Any]] = {
    "uniform": uniform_round,
    "hetero": hetero_round,
    "philly-like": philly_round,
    "sia-like": sia_round,
    "shifting": shifting_horizon,
    "sharing": sharing_round,
    "placement": placement_window,
}
_COMMON = ("jobs", "gpus", "seed")

MOST_JOBS = 1_000_000
MOST_GPUS = 10_000_000
"""Larger instances would not fit into the memory of most machines, nor be solved in a round."""


def families() -> dict[str, str]:
    """Names of the families with what they are."""
    return {name: (inspect.getdoc(build) or "").split("\n")[0] for name, build in _FAMILIES.items()}


def builder(family: str) -> Callable[..., Any]:
    """Function that generates a family.

    Raises
    ------
    ValueError
        For an unknown family.
    """
    if family not in _FAMILIES:
        raise ValueError(f"family: '{family}' is not known, choose one of {', '.join(_FAMILIES)}")
    return _FAMILIES[family]


def parameters_of(family: str) -> list[inspect.Parameter]:
    """Parameters of a family beyond jobs, gpus and seed.

    Raises
    ------
    ValueError
        For an unknown family.
    """
    return [p for p in inspect.signature(builder(family)).parameters.values() if p.name not in _COMMON]


def options_of(family: str) -> dict[str, Any]:
    """Options of a family beyond jobs, gpus and seed, with their defaults.

    Raises
    ------
    ValueError
        For an unknown family.
    """
    return {parameter.name: parameter.default for parameter in parameters_of(family)}


def generate(family: str, *, jobs: int, gpus: int | None = None, seed: int = 0, **options: Any) -> Any:
    """Generate an instance; equal arguments give equal instances.

    Parameters
    ----------
    family : str
        One of `families`.
    jobs : int
        Number of jobs, from 1 to 1,000,000.
    gpus : int, optional
        GPUs of the cluster, up to 10,000,000, rounded up to whole nodes (default: about half of what the
        jobs ask for).
    seed : int
    **options
        As `options_of` lists.

    Returns
    -------
    Instance, ShiftingInstance, SharingInstance or PlacementInstance
        As the family's problem is.

    Raises
    ------
    ValueError
        For an unknown family or option, or a value out of range.
    """
    known = options_of(family)
    for name in options:
        if name not in known:
            accepted = f"it accepts {', '.join(known)}" if known else "it accepts none"
            raise ValueError(f"{name}: the family '{family}' has no such option, {accepted}")
    for name, count, most in (("jobs", jobs, MOST_JOBS), ("gpus", gpus, MOST_GPUS)):
        if count is not None and count < 1:
            raise ValueError(f"{name}: must be at least 1, got {count}")
        if count is not None and count > most:
            raise ValueError(f"{name}: must be at most {most:,}, got {count:,}")
    if seed < 0:
        raise ValueError(f"seed: must be at least 0, got {seed}")
    return builder(family)(jobs=jobs, gpus=gpus, seed=seed, **options)
