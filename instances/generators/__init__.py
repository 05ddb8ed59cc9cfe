"""Families of generated instances, one file each."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from wattsched.instances.generators.hetero import hetero_round
from wattsched.instances.generators.philly import philly_round
from wattsched.instances.generators.sia import sia_round
from wattsched.instances.generators.uniform import uniform_round
from wattsched.instances.instance import Instance

_FAMILIES: dict[str, Callable[..., Instance]] = {
    "uniform": uniform_round,
    "hetero": hetero_round,
    "philly-like": philly_round,
    "sia-like": sia_round,
}
_COMMON = ("jobs", "gpus", "seed")


def families() -> dict[str, str]:
    """Names of the families with what they are."""
    return {name: (inspect.getdoc(build) or "").split("\n")[0] for name, build in _FAMILIES.items()}


def options_of(family: str) -> dict[str, Any]:
    """Options of a family beyond jobs, gpus and seed, with their defaults.

    Raises
    ------
    ValueError
        For an unknown family.
    """
    if family not in _FAMILIES:
        raise ValueError(f"family: '{family}' is not known, choose one of {', '.join(_FAMILIES)}")
    parameters = inspect.signature(_FAMILIES[family]).parameters
    return {name: p.default for name, p in parameters.items() if name not in _COMMON}


def generate(family: str, *, jobs: int, gpus: int | None = None, seed: int = 0, **options: Any) -> Instance:
    """Generate an instance; equal arguments give equal instances.

    Parameters
    ----------
    family : str
        One of `families`.
    jobs : int
        Number of jobs, at least 1.
    gpus : int, optional
        GPUs of the cluster, rounded up to whole nodes (default: about half of what the jobs ask for).
    seed : int
    **options
        As `options_of` lists.

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
    if jobs < 1:
        raise ValueError(f"jobs: must be at least 1, got {jobs}")
    if gpus is not None and gpus < 1:
        raise ValueError(f"gpus: must be at least 1, got {gpus}")
    if seed < 0:
        raise ValueError(f"seed: must be at least 0, got {seed}")
    return _FAMILIES[family](jobs=jobs, gpus=gpus, seed=seed, **options)
