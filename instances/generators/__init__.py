"""Families of generated instances.

To add one: a function in a file of its own, and its line in `FAMILIES`. Its arguments are keywords, ``jobs``,
``gpus`` and ``seed`` among them; the others become options, described by its docstring, whose first line is
what the family is.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Integral
from pkgutil import resolve_name
from typing import Any

from wattsched.instances.errors import require, require_known, require_range
from wattsched.reading.arguments import require_types

FAMILIES = {
    "uniform": "sizing:uniform_round",
    "hetero": "sizing:hetero_round",
    "philly-like": "sizing:philly_round",
    "sia-like": "sizing:sia_round",
    "sets": "whole_numbers:sets_round",
    "adversarial": "whole_numbers:adversarial_round",
    "shifting": "shifting:shifting_horizon",
    "sharing": "sharing:sharing_round",
    "placement": "placement:placement_window",
}
"""Name to file and function, which is imported when it is asked for."""

_COMMON = ("jobs", "gpus", "seed")

MOST_JOBS = 10_000_000
MOST_GPUS = 10_000_000
"""Larger instances would not fit into the memory of most machines, nor be solved in a round."""


def families() -> dict[str, str]:
    """Names of the families with what they are."""
    return {name: (inspect.getdoc(builder(name)) or "").split("\n")[0] for name in FAMILIES}


def builder(family: str) -> Callable[..., Any]:
    """Function that generates a family; a ValueError for an unknown one."""
    require_known("family", family, FAMILIES)
    made: Callable[..., Any] = resolve_name(f"{__name__}.{FAMILIES[family]}")
    return made


def parameters_of(family: str) -> list[inspect.Parameter]:
    """Parameters of a family beyond jobs, gpus and seed.

    Raises
    ------
    ValueError
        For an unknown family.
    """
    return [p for p in inspect.signature(builder(family)).parameters.values() if p.name not in _COMMON]


def options_of(family: str) -> dict[str, Any]:
    """Options of a family beyond jobs, gpus and seed, and defaults; a ValueError for an unknown family."""
    return {parameter.name: parameter.default for parameter in parameters_of(family)}


def generate(
    family: str, *, jobs: int | None = None, gpus: int | None = None, seed: int = 0, **options: Any
) -> Any:
    """Generate an instance; equal arguments give equal instances.

    Parameters
    ----------
    family : str
        One of `families`.
    jobs : int
        Number of jobs, from 1 to 10,000,000; without it unknown families and options are told first.
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
    TypeError
        For a value of another type.
    """
    known = options_of(family)
    for name in options:
        if name not in known:
            accepted = f"it accepts {', '.join(known)}" if known else "it accepts none"
            raise ValueError(f"{name}: the family '{family}' has no such option, {accepted}")
    if jobs is None:
        raise ValueError("jobs: say how many")
    require("jobs", jobs, (Integral,), "a whole number")
    require_types(generate, {"gpus": gpus, "seed": seed})
    require_types(builder(family), options)
    for name, count, most in (("jobs", jobs, MOST_JOBS), ("gpus", gpus, MOST_GPUS)):
        if count is not None:
            require_range(count >= 1, name, "at least 1", count)
            require_range(count <= most, name, f"at most {most:,}", f"{count:,}")
    require_range(seed >= 0, "seed", "at least 0", seed)
    return builder(family)(jobs=jobs, gpus=gpus, seed=seed, **options)
