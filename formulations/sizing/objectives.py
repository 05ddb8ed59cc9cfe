r"""Objectives of `sizing`: what an option is worth.

To add one:

1. here, a function from `OptionArrays` to the value of every option, and its line in `OBJECTIVES`: name,
   sense, function, and ``"worst"`` where the worst job counts and not the sum;
2. in `verification.sizing.outcomes`, which shares no code with this file, its sense in `OBJECTIVES` and its
   cost in `costs_of`: the checker and certificates go by it.

Formulations, solvers and commands then know it by its name.

`work-value` asks what a second of each job's work is worth where rounds follow one another. For jobs with
speed-up :math:`\sqrt{k}` on k GPUs, weights :math:`w_j` and sizes :math:`T_j`, in the order
:math:`T_1 / w_1 > T_2 / w_2 > \dots`, the least total weighted completion time is linear in the sizes
(heSRPT: Berg, Vesilo, Harchol-Balter, Performance 2020, weighted flow time, with p = 1/2). Up to a factor
that is the same for all, its derivative by :math:`T_k` is

.. math:: v_k = \sqrt{Z_k^2 - Z_{k-1}^2} = \sqrt{w_k (Z_{k-1} + Z_k)}, \qquad Z_k = w_1 + \dots + w_k .
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple, Protocol

import numpy as np

from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.instances.units import S_PER_H
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

HOLD_S = 600.0
"""Seconds that a configuration is expected to be kept, where the round is not longer."""

_BITS = 30
"""Binary digits by which sizes per weight are told apart."""


def work_values(size_s: FloatArray, weight: FloatArray) -> FloatArray:
    """Value of a second of each job's work in its smallest configuration.

    Parameters
    ----------
    size_s : float array, shape (n_jobs,)
        Seconds that each job still takes in its smallest configuration.
    weight : float array, shape (n_jobs,)

    Returns
    -------
    float array, shape (n_jobs,)
        Sizes per weight count to 30 binary digits. Those of equals lie between the same two sums: squares are
        means over the orders that they could be in, and the order of the jobs does not matter.
    """
    mantissa, exponent = np.frexp(size_s / weight)
    rounded = np.ldexp(np.rint(np.ldexp(mantissa, _BITS)), exponent)
    _, place = np.unique(-rounded, return_inverse=True)
    of_equals = np.bincount(place, weight)
    until = np.cumsum(of_equals)
    return np.sqrt(weight * (until - of_equals + until)[place])


class OptionArrays(Protocol):
    """Arrays of a round's options that objectives read, job by job; see `sizing.data.Options`."""

    @property
    def round_s(self) -> float:
        """Length of the round."""

    @property
    def job(self) -> IntArray:
        """Job of each option."""

    @property
    def waiting(self) -> BoolArray:
        """Mask of options that are waiting."""

    @property
    def rate(self) -> FloatArray:
        """Work per second of each option, 0 for waiting."""

    @property
    def completion_s(self) -> FloatArray:
        """Seconds to completion of each option."""

    @property
    def lost_s(self) -> FloatArray:
        """Seconds that each option loses to a restart."""

    @property
    def change_cost(self) -> FloatArray:
        """Cost of each option because it changes what runs now."""

    @property
    def weight(self) -> FloatArray:
        """Weight of each job."""

    @property
    def work(self) -> FloatArray:
        """Work left of each job."""

    @property
    def best_s(self) -> FloatArray:
        """Best completion of each job from a standing start."""

    @property
    def least_s(self) -> FloatArray:
        """Best completion of each job from now; going on as it runs takes no restart."""

    @property
    def reference_rate(self) -> FloatArray:
        """Best rate of each job at its smallest GPU count."""

    @property
    def counted_j(self) -> FloatArray:
        """Energy of each option in the scope of the budgets."""

    @property
    def per_joule(self) -> Mapping[str, float]:
        """Amount that a joule adds to each objective that counts energy."""


class ByKind(NamedTuple):
    """Costs of the jobs that run, where they are products of a job's worth and a value of its row.

    Attributes
    ----------
    worth : float array, shape (n_jobs,)
        At least 0; of a job that does not restart.
    value : float array, shape (n_rows,)
        Of the rows of the kinds.
    restarted : float array, shape (n_jobs,)
        Worth of a job that restarts.
    surcharge : float array, shape (n_jobs,)
        What a restart costs besides.
    scales : bool array, shape (n_jobs,)
        Of which jobs this is so; of all that lose no time to a restart.
    """

    worth: FloatArray
    value: FloatArray
    restarted: FloatArray
    surcharge: FloatArray
    scales: BoolArray


@dataclass(frozen=True)
class Objective:
    """A rule that gives each option a value, and how the values of a decision combine.

    Attributes
    ----------
    name : str
    sense : {"min", "max"}
        Direction in which the user reads it.
    value : callable
        Options to values, shape (n_options,).
    combine : {"sum", "worst"}
        Sum over the jobs, or the worst job (largest for ``min``, smallest for ``max``).
    by_kind : callable, optional
        The same as a cost, where it is a product, of jobs with the configurations of their kinds; `in_kinds`
        also has what changes cost.
    """

    name: str
    sense: Literal["min", "max"]
    value: Callable[[OptionArrays], FloatArray]
    combine: Literal["sum", "worst"] = "sum"
    by_kind: Callable[[RoundJobs], ByKind] | None = None

    def cost(self, options: OptionArrays) -> FloatArray:
        """Values with the sign that makes every objective a minimisation, and what changes cost."""
        value = self.value(options)
        return np.asarray(options.change_cost + (-value if self.sense == "max" else value))

    def in_kinds(self, jobs: RoundJobs) -> ByKind:
        """Costs of jobs by kind, for an objective that has such."""
        assert self.by_kind is not None
        scaled = self.by_kind(jobs)
        return scaled._replace(surcharge=scaled.surcharge + jobs.change_cost)


def _completion(options: OptionArrays) -> FloatArray:
    """Weighted completion time in s; waiting costs the round plus the best completion."""
    return options.weight[options.job] * options.completion_s


def _progress(options: OptionArrays) -> FloatArray:
    """Share of the remaining work done per hour, weighted (shortest remaining first)."""
    weight = options.weight[options.job]
    return np.where(options.waiting, 0.0, weight * S_PER_H / options.completion_s)


def _normalised_progress(options: OptionArrays) -> FloatArray:
    """Progress relative to the job's best completion, divided by its weight."""
    return options.least_s[options.job] / options.completion_s / options.weight[options.job]


def _log_slowdown(options: OptionArrays) -> FloatArray:
    """Weighted logarithm of slowdown (proportional fairness)."""
    slowdown = options.completion_s / options.least_s[options.job]
    return options.weight[options.job] * np.log(slowdown)


def goodput(options: OptionArrays) -> FloatArray:
    """Weighted speed-up over the job's smallest configuration, restarts deducted (Pollux, Sia)."""
    return options.weight[options.job] * _speed(options, options.round_s)


def _energy(name: str, options: OptionArrays) -> FloatArray:
    """Energy in the scope of the budgets, or the carbon or money that it stands for."""
    return options.counted_j * options.per_joule[name]


def _work_value(options: OptionArrays) -> FloatArray:
    """Compute the weighted completion time that the work done saves, for rounds in sequence (heSRPT)."""
    value = work_values(options.work / options.reference_rate, options.weight)
    kept_s = np.minimum(max(HOLD_S, options.round_s), options.completion_s)
    return value[options.job] * _speed(options, kept_s)


def _speed(options: OptionArrays, kept_s: FloatArray | float) -> FloatArray:
    """Speed relative to the job's smallest configuration, with the part that a restart takes deducted."""
    relative = options.rate / options.reference_rate[options.job]
    return np.where(options.waiting, 0.0, relative * useful_share(options, kept_s))


def useful_share(options: OptionArrays, kept_s: FloatArray | float) -> FloatArray:
    """Share of the time that each option is kept in which the job works, restarts deducted."""
    return np.asarray(np.maximum(0.0, 1.0 - options.lost_s / kept_s))


def _completion_by_kind(jobs: RoundJobs) -> ByKind:
    worth = jobs.weight * jobs.work
    surcharge = jobs.weight * jobs.restart_s
    return ByKind(worth, 1.0 / jobs.configurations.rate, worth, surcharge, np.ones(len(worth), dtype=bool))


def _progress_by_kind(jobs: RoundJobs) -> ByKind:
    worth = jobs.weight * S_PER_H / jobs.work
    return _of_beginners(jobs, worth, -jobs.configurations.rate)


def _log_slowdown_by_kind(jobs: RoundJobs) -> ByKind:
    rows = jobs.configurations
    return _of_beginners(jobs, jobs.weight, np.log(rows.best_rate[rows.kind] / rows.rate))


def _of_beginners(jobs: RoundJobs, worth: FloatArray, value: FloatArray) -> ByKind:
    """Costs of jobs that lose no time to a restart: of others it changes more than a factor and a term."""
    return ByKind(worth, value, worth, np.zeros(len(worth)), jobs.restart_s == 0.0)


def _goodput_by_kind(jobs: RoundJobs) -> ByKind:
    rows, useful = jobs.configurations, np.maximum(0.0, 1.0 - jobs.restart_s / jobs.round_s)
    value, none = -rows.rate / rows.reference_rate[rows.kind], np.zeros(len(useful))
    return ByKind(jobs.weight, value, jobs.weight * useful, none, np.ones(len(useful), dtype=bool))


def _energy_by_kind(name: str, jobs: RoundJobs) -> ByKind:
    """Energy, carbon or money: a row's watts, by its rate to completion, times what the job's watt costs."""
    rows, work, per_joule = jobs.configurations, jobs.work, abs(jobs.per_joule[name])
    # A worth is at least 0, so where a joule is paid for the sign is one of the rows' values.
    none, sign = np.zeros(len(work)), np.copysign(1.0, jobs.per_joule[name])
    if not jobs.counts_rounds:
        return _of_beginners(jobs, work * per_joule, sign * rows.power_w / rows.rate)
    # Jobs that are not complete within the round draw as much whether they restart or not.
    with np.errstate(divide="ignore"):
        lasts = jobs.work / rows.best_rate[jobs.kind] >= jobs.round_s
    worth = np.full(len(work), jobs.round_s * per_joule)
    return ByKind(worth, sign * (rows.power_w - jobs.row_idle_w), worth, none, lasts)


def _work_value_by_kind(jobs: RoundJobs) -> ByKind:
    """Value of the job's work times the row's speed over the smallest configuration, negative."""
    worth = work_values(jobs.work / jobs.reference_rate, jobs.weight)
    hold_s, lost_s = max(HOLD_S, jobs.round_s), jobs.restart_s
    # Restarts of jobs that may be complete before are spread over less.
    scales = (lost_s == 0.0) | (jobs.best_s >= hold_s)
    restarted = worth * np.maximum(0.0, 1.0 - lost_s / hold_s)
    return ByKind(worth, _goodput_by_kind(jobs).value, restarted, np.zeros(len(worth)), scales)


OBJECTIVES = {
    objective.name: objective
    for objective in (
        Objective("total-completion", "min", _completion, by_kind=_completion_by_kind),
        Objective("progress", "max", _progress, by_kind=_progress_by_kind),
        Objective("makespan", "min", _completion, "worst"),
        Objective("max-min", "max", _normalised_progress, "worst"),
        Objective("proportional", "min", _log_slowdown, by_kind=_log_slowdown_by_kind),
        Objective("goodput", "max", goodput, by_kind=_goodput_by_kind),
        Objective("work-value", "max", _work_value, by_kind=_work_value_by_kind),
        *(
            Objective(name, "min", partial(_energy, name), by_kind=partial(_energy_by_kind, name))
            for name in ("energy", "carbon", "money")
        ),
    )
}


def objective(name: str) -> Objective:
    """Look up an objective; ValueError if there is none of that name."""
    if name not in OBJECTIVES:
        raise ValueError(f"unknown objective '{name}'; known: {', '.join(OBJECTIVES)}")
    return OBJECTIVES[name]
