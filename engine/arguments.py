"""Arguments of `solve` and `plan`: checked, and refused in words that name them."""

from __future__ import annotations

import os
from numbers import Integral, Real
from pathlib import Path
from types import NoneType

import numpy as np

from wattsched.instances.io import InputError, read_instance, require
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import unknown_pools
from wattsched.solvers.solution import Limits


def require_texts(**names: object) -> None:
    """Refuse names that are not text, as `require` does."""
    for argument, name in names.items():
        require(argument, name, (str,), "a name")


def sound_instance(instance: Instance | str | Path) -> Instance:
    """Read an instance, or look for misspelt pools in one that was made in Python.

    Its other faults have answers: a job that fits nowhere waits, one whose GPUs broke restarts elsewhere.

    Raises
    ------
    TypeError
        For anything else.
    InputError
        With every fault found.
    """
    if not isinstance(instance, Instance):
        require("instance", instance, (str, os.PathLike), "an Instance of sizing or a path")
        return read_instance(Path(instance))
    if faults := unknown_pools(instance):
        raise InputError(faults)
    return instance


def limits_of(gap: float, time_limit: float | None, threads: int, seed: int) -> Limits:
    """Limits of a call, checked.

    Raises
    ------
    ValueError
        That names the value which is out of range.
    TypeError
        That names the value which is no number.
    """
    require("gap", gap, (Real,), "a number")
    require("time_limit", time_limit, (Real, NoneType), "a number of seconds")
    require("threads", threads, (Integral,), "a whole number")
    require("seed", seed, (Integral,), "a whole number")
    if not 0.0 <= gap < 1.0:
        raise ValueError(f"gap must be at least 0 and below 1, got {gap}")
    if time_limit is not None and not time_limit > 0.0:
        raise ValueError(f"time_limit must be positive, got {time_limit}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be between 0 and {2**31 - 1}, got {seed}")
    finite = None if time_limit is None or np.isinf(time_limit) else float(time_limit)
    # More threads than processors only fight each other; counting them takes a while.
    useful = 1 if threads == 1 else min(threads, os.cpu_count() or 1)
    # Numbers of numpy become Python's: not every solver takes them.
    return Limits(gap=float(gap), time_s=finite, threads=int(useful), seed=int(seed))
