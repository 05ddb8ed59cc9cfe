r"""Jobs that take turns on the GPUs of a cluster: what is asked for a share of time of each option.

A job j has options o, each on some of the GPUs :math:`g_o` of one type, with a rate :math:`r_o`. It spends
the share :math:`x_o` of its time on option o, so that its *progress* is

.. math:: z_j(x) = \frac{1}{d_j} \sum_{o \in O_j} r_o x_o

in units of what is asked for it, its *demand* :math:`d_j`: a rate that counts as 1, or the work that is left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattsched.instances.errors import refuse, repeated, require_known
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.column import Coded, as_list

OBJECTIVES = {"max-min": "max", "goodput": "max", "makespan": "min"}
"""Objectives and their sense: the least progress, the sum of all progress, the end of the last job."""


@dataclass(frozen=True)
class TimeShareInstance:
    """A round of time shares by column, validated.

    Attributes
    ----------
    objective : {"max-min", "goodput", "makespan"}
    jobs, types : sequences of str
        Names of jobs and of GPU types.
    available : float array, shape (n_types,)
        GPUs of each type.
    start : int array, shape (n_jobs + 1,)
        Options of job j are the entries ``start[j]`` to ``start[j + 1]`` of the arrays that follow.
    type_of : int array, shape (n_options,)
    gpus, rate, power_w : float arrays, shape (n_options,)
        GPUs that an option takes while it runs, its work per second, and its draw.
    demand : float array, shape (n_jobs,)
        Unit of each job's progress.
    power_cap_w : float
        Limit on the average draw; infinite for none.
    """

    objective: str
    jobs: Sequence[str]
    types: Sequence[str]
    available: FloatArray
    start: IntArray
    type_of: IntArray
    gpus: FloatArray
    rate: FloatArray
    power_w: FloatArray
    demand: FloatArray
    power_cap_w: float

    @property
    def n_options(self) -> int:
        """Number of options of all jobs."""
        return len(self.rate)

    @property
    def job(self) -> IntArray:
        """Job of every option."""
        return np.repeat(np.arange(len(self.jobs)), np.diff(self.start))

    @property
    def progress_rate(self) -> FloatArray:
        """Progress of an option that has all of the time."""
        return np.asarray(self.rate / self.demand[self.job])

    def progress(self, share: FloatArray) -> FloatArray:
        """Progress of every job at shares of the options."""
        worth = self.progress_rate * share[: self.n_options]
        return np.asarray(np.bincount(self.job, worth, len(self.jobs)), dtype=float)

    @property
    def usable(self) -> BoolArray:
        """Options that make progress, and fit the cluster and the cap."""
        fits = (self.gpus <= self.available[self.type_of]) & (self.power_w <= self.power_cap_w)
        return np.asarray(fits & (self.rate > 0.0))

    @property
    def served(self) -> BoolArray:
        """Jobs with a usable option; the others have no time, and do not count."""
        return np.bincount(self.job[self.usable], minlength=len(self.jobs)) > 0


def instance_of(
    available: Mapping[str, float],
    jobs: Sequence[str],
    *,
    start: Any,
    pool: Any,
    gpus: Any,
    rate: Any,
    power_w: Any,
    objective: str,
    weight: Any,
    reference: Any,
    remaining_work: Any,
    power_cap_w: float | None,
) -> TimeShareInstance:
    """Validate the columns of `wattsched.time_shares`; errors name the argument."""
    require_known("objective", objective, OBJECTIVES)
    types, names = list(available), list(jobs)
    count = _numbers("available", list(available.values()), len(types), "types", zero=True)
    refuse(f"jobs: {fault}" for fault in repeated("job", names))
    bounds = np.arange(len(names) + 1) if start is None else _whole("start", start)
    if len(bounds) != len(names) + 1 or bounds[0] != 0 or (np.diff(bounds) < 0).any():
        told = f"{len(names) + 1} ascending numbers from 0 on, for {len(names)} jobs"
        raise ValueError(f"start: must be {told}")
    m = int(bounds[-1])
    type_of = _types(pool, types, m)
    columns = {
        "gpus": _numbers("gpus", gpus, m, "options"),
        "rate": _numbers("rate", rate, m, "options", zero=True),
        "power_w": _numbers("power_w", 0.0 if power_w is None else power_w, m, "options", zero=True),
    }
    n = len(names)
    weights = _numbers("weight", 1.0 if weight is None else weight, n, "jobs")
    cap = np.inf if power_cap_w is None else float(_numbers("power_cap_w", power_cap_w, 1, "caps")[0])
    job = np.repeat(np.arange(n), np.diff(bounds))
    if objective == "makespan" and remaining_work is None:
        raise ValueError("remaining_work: must be given for the objective 'makespan'")
    if objective == "makespan" and reference is not None:
        raise ValueError("reference: the objective 'makespan' takes remaining_work instead")
    if power_cap_w is not None and power_w is None:
        raise ValueError("power_cap_w: needs power_w, the watts of the options, which are held against it")
    if objective == "makespan":
        demand = _numbers("remaining_work", remaining_work, n, "jobs")
    elif objective == "goodput":
        demand = _numbers("reference", 1.0 if reference is None else reference, n, "jobs") / weights
    elif reference is None:
        demand = weights * equal_share_rates(count, job, type_of, columns["rate"], n)
    else:
        demand = weights * _numbers("reference", reference, n, "jobs")
    return TimeShareInstance(
        objective, names, types, count, bounds, type_of, **columns, demand=demand, power_cap_w=cap
    )


def equal_share_rates(
    available: FloatArray, job: IntArray, type_of: IntArray, rate: FloatArray, n_jobs: int
) -> FloatArray:
    """Rates of jobs that spend their time on the types in proportion to the GPUs of these.

    On each at the best rate; 1 for a job that has none.
    """
    best = np.zeros((n_jobs, len(available)))
    np.maximum.at(best, (job, type_of), rate)
    found = best @ (available / max(float(available.sum()), 1e-300))
    return np.where(found > 0.0, found, 1.0)


def _types(pool: Any, types: list[str], m: int) -> IntArray:
    """Number of the GPU type of each of m options, from its name, or one for all."""
    listed = [pool] * m if isinstance(pool, str) else as_list(pool)
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise TypeError("pool must be a name, or a sequence of names")
    if len(listed) != m:
        raise ValueError(f"pool: has {len(listed)} values for {m} options")
    refuse(
        f"pool: '{name}' is no type that is available" for name in dict.fromkeys(listed) if name not in types
    )
    coded, number = Coded.of(listed), {name: k for k, name in enumerate(types)}
    return np.array([number[name] for name in coded.values], dtype=np.int64)[coded.codes]


def _whole(name: str, column: Any) -> IntArray:
    """A column of whole numbers."""
    values = np.asarray(as_list(column) if hasattr(column, "to_pylist") else column)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise TypeError(f"{name} must be a sequence of whole numbers")
    return values.astype(np.int64)


def _numbers(name: str, column: Any, n: int, what: str, *, zero: bool = False) -> FloatArray:
    """A column of numbers for n of `what`, or one for all; positive, or 0 where that is allowed, too."""
    values = np.asarray(as_list(column) if hasattr(column, "to_pylist") else column)
    if values.dtype.kind not in "iuf" and values.size:
        raise TypeError(f"{name} must be a number, or a sequence of numbers")
    if values.ndim and values.shape != (n,):
        raise ValueError(f"{name}: has {len(values)} values for {n} {what}")
    found = np.broadcast_to(values.astype(float), (n,))
    wrong = ~(np.isfinite(found) & ((found >= 0.0) if zero else (found > 0.0)))
    if wrong.any():
        least = "at least 0" if zero else "positive"
        raise ValueError(f"{name}: must be {least} and finite, got {found[wrong][0]}")
    return found
