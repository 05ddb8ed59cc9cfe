"""Checking a decision of `sharing` against its instance, from the file's numbers alone.

Jobs of a set progress and draw as measured, or by the laws.

Nothing is shared with formulations and solvers, nor with the arrays that they read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import fsum

from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import (
    OBJECTIVES,
    Alone,
    Job,
    MeasuredSet,
    SharingInstance,
    UnitType,
)
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.verification.report import ROUNDING, TOLERANCE, Report, budget_faults, exceeds, pairing_faults

SIGNS = {"min": 1.0, "max": -1.0}
"""Factors that turn objectives of each sense into costs."""


@dataclass(frozen=True)
class SetOutcome:
    """Speed of the jobs of one set, and power, utilisation and memory of their unit.

    Attributes
    ----------
    epoch_s : list of float
        Seconds per epoch of each job, in their order.
    power_w, utilisation_pct, memory_pct : float
        Of the unit.
    refused : str
        Reason why no such set may be formed; empty when it may.
    """

    epoch_s: list[float]
    power_w: float
    utilisation_pct: float
    memory_pct: float
    refused: str = ""


@dataclass(frozen=True)
class Rates:
    """Rates that an objective charges for a watt, a joule of jobs, and a second per epoch of each job.

    `throughput` charges none of them: it is the sum of the jobs' throughputs.
    """

    watt: float = 0.0
    joule: float = 0.0
    epoch_s: float = 0.0

    @classmethod
    def of(cls, instance: SharingInstance) -> Rates:
        """Rates of the instance's objective."""
        return cls.of_objective(instance, instance.objective)

    def plus(self, other: Rates, charge: float) -> Rates:
        """Return the rates of both, those of the other times a charge."""
        more = charge * other.watt, charge * other.joule, charge * other.epoch_s
        return Rates(self.watt + more[0], self.joule + more[1], self.epoch_s + more[2])

    @classmethod
    def of_objective(cls, instance: SharingInstance, name: str) -> Rates:
        """Rates of an objective."""
        alpha, epoch_s = instance.alpha, 1.0 / S_PER_H / max(1, len(instance.jobs))
        match name:
            case "power":
                return cls(watt=1.0)
            case "energy":
                return cls(joule=1.0 / J_PER_KWH)
            case "eaco":
                return cls(joule=alpha / J_PER_KWH, epoch_s=(1 - alpha) * epoch_s)
        return cls()


class Outcomes:
    """Outcomes of sets, measured or by the laws, and costs of waiting; `alone` is by class and unit type."""

    def __init__(self, instance: SharingInstance):
        self.instance = instance
        self.rates = Rates.of(instance)
        self.types = {unit_type.name: unit_type for unit_type in instance.unit_types}
        self.alone = {job_class.name: job_class.alone for job_class in instance.classes}
        self._measured = {(m.unit_type, tuple(sorted(m.classes))): m for m in instance.sets}
        self._misfits = [(m.unit_type, Counter(m.classes)) for m in instance.sets if not m.fits]
        self._known: dict[tuple[str, tuple[str, ...]], SetOutcome] = {}

    def of(self, unit_type: str, classes: tuple[str, ...]) -> SetOutcome:
        """Outcome of jobs of these classes on one unit, every class of which can run there."""
        if (unit_type, classes) not in self._known:
            self._known[unit_type, classes] = self._find(unit_type, classes)
        return self._known[unit_type, classes]

    def best_epoch_s(self, job_class: str) -> float:
        """Seconds per epoch of a class that has the fastest unit to itself."""
        return min(alone.epoch_s for alone in self.alone[job_class].values())

    def why_not_wait(self, job: Job) -> Iterator[str]:
        """Reasons why a job may not wait."""
        if not job.can_wait:
            yield f"job '{job.name}' waits and may not"
        if job.deadline_s is None:
            return
        epoch_s = min((alone.epoch_s for _, alone, _ in self._admitted(job)), default=math.inf)
        end_s = self.instance.round_s + job.remaining_epochs * epoch_s
        if exceeds(end_s, job.deadline_s, ROUNDING):
            what = f"waits and then completes after {end_s:.9g} s at best"
            yield f"job '{job.name}' {what}, its deadline is {job.deadline_s:.9g} s"

    def waiting_cost(self, job: Job, rates: Rates | None = None) -> float:
        """Cost of a job that waits: the penalty times the most that it could cost alone on any unit.

        The rates are those of the instance's objective, where no others are given.
        """
        rates = self.rates if rates is None else rates
        costs = (
            rates.watt * max(0.0, outcome.power_w - unit.sleep_power_w)
            + rates.joule * outcome.power_w * job.remaining_epochs * alone.epoch_s
            + rates.epoch_s * alone.epoch_s
            for unit, alone, outcome in self._admitted(job)
        )
        return self.instance.waiting_penalty * max(costs, default=0.0)

    def _admitted(self, job: Job) -> Iterator[tuple[UnitType, Alone, SetOutcome]]:
        """Yield the types of units that admit a job alone, what was measured of it there, and the outcome."""
        for name, alone in self.alone[job.job_class].items():
            outcome = self.of(name, (job.job_class,))
            if not outcome.refused:
                yield self.types[name], alone, outcome

    def _find(self, unit_type: str, classes: tuple[str, ...]) -> SetOutcome:
        """Compute what `of` returns: as measured, or else by the laws of power and slowdown."""
        unit = self.types[unit_type]
        alone = [self.alone[name][unit_type] for name in classes]
        load_pct = fsum(a.utilisation_pct for a in alone)
        memory_pct = fsum(a.memory_pct for a in alone)
        measured = self._measured.get((unit_type, tuple(sorted(classes))))
        if len(classes) == 1:
            (one,) = alone
            power_w = _law_w(unit, load_pct) if one.power_w is None else one.power_w
            outcome = SetOutcome([one.epoch_s], power_w, load_pct, memory_pct)
        elif measured is not None and measured.fits:
            outcome = _as_measured(unit, measured, classes, alone)
        else:
            law, load = self.instance.slowdown, load_pct / 100
            slowdown = max(load, 1 + (len(classes) - 1) * (law.per_job + law.per_load * load**law.exponent))
            epochs = [a.epoch_s * slowdown for a in alone]
            outcome = SetOutcome(epochs, _law_w(unit, load_pct), min(load_pct, 100.0), memory_pct)
        return replace(outcome, refused=self._why_refused(unit_type, classes, measured, outcome))

    def _why_refused(
        self, unit_type: str, classes: tuple[str, ...], measured: MeasuredSet | None, outcome: SetOutcome
    ) -> str:
        """Return the reason why a set with this outcome may not be formed; empty when it may."""
        limits, counts = self.instance.limits, Counter(classes)
        if len(classes) > limits.jobs_per_set:
            return f"has {len(classes)} jobs, limits.jobs_per_set is {limits.jobs_per_set}"
        if len(classes) > 1 and measured is None and self.instance.unmeasured == "refuse":
            return f"was not measured: {', '.join(sorted(classes))}"
        for name, misfit in self._misfits:
            if name == unit_type and misfit <= counts:
                return f"was measured not to fit: {', '.join(sorted(misfit.elements()))}"
        if exceeds(used := outcome.utilisation_pct, limits.utilisation_pct, ROUNDING):
            return f"has a utilisation of {used:.9g} %, limits.utilisation_pct is {limits.utilisation_pct:g}"
        if exceeds(used := outcome.memory_pct, limits.memory_pct, ROUNDING):
            return f"needs {used:.9g} % of the memory, limits.memory_pct is {limits.memory_pct:g}"
        return ""


def _as_measured(
    unit: UnitType, measured: MeasuredSet, classes: tuple[str, ...], alone: list[Alone]
) -> SetOutcome:
    """Return the outcome of a set that was measured, with what was measured of its classes alone."""
    slowdown = dict(zip(measured.classes, measured.slowdown, strict=True))
    utilisation_pct, memory_pct = measured.utilisation_pct, measured.memory_pct
    if utilisation_pct is None:
        utilisation_pct = min(fsum(a.utilisation_pct for a in alone), 100.0)
    return SetOutcome(
        [a.epoch_s * slowdown[name] for a, name in zip(alone, classes, strict=True)],
        _law_w(unit, utilisation_pct) if measured.power_w is None else measured.power_w,
        utilisation_pct,
        fsum(a.memory_pct for a in alone) if memory_pct is None else memory_pct,
    )


def _law_w(unit: UnitType, utilisation_pct: float) -> float:
    """Draw of a unit by the law of power."""
    rise: float = min(utilisation_pct / 100, 1.0) ** unit.power_exponent
    return unit.idle_power_w + (unit.full_power_w - unit.idle_power_w) * rise


@dataclass(frozen=True)
class _Running:
    """A job that runs.

    Attributes
    ----------
    power_w : float
        Its share of its unit's draw.
    slowdown : float
        Epoch time over that alone on the same type of unit.
    throughput : float
        Epochs per second over the most that it could have, alone on any type.
    """

    epoch_s: float
    completion_s: float
    power_w: float
    slowdown: float
    throughput: float


def check(instance: SharingInstance, decision: SharingDecision) -> Report:
    """Check a decision against an instance without faults.

    The totals are ``power_w``, ``energy_j`` (of the jobs that run, to completion), ``carbon_g`` where the
    instance has an intensity, ``active_units``, ``running_jobs``, ``mean_epoch_s``, ``mean_completion_s``,
    ``mean_slowdown`` (of the jobs that run), ``normalised_throughput``, and values of objectives that are
    limited, such as ``objective:power``.
    """
    outcomes = Outcomes(instance)
    jobs = {job.name: job for job in instance.jobs}
    placed = (name for formed in decision.sets for name in formed.jobs)
    faults = list(pairing_faults(jobs, placed, decision.waiting))
    faults += [*_unit_faults(decision, outcomes), *_pool_faults(instance, decision, outcomes)]
    runs: list[_Running] = []
    for number, formed in enumerate(decision.sets):
        members = [jobs[name] for name in formed.jobs if name in jobs]
        if formed.unit_type not in outcomes.types or len(members) < len(formed.jobs):
            continue
        stray = [job for job in members if formed.unit_type not in outcomes.alone[job.job_class]]
        if stray:
            faults.append(f"sets[{number}]: job '{stray[0].name}' cannot run on '{formed.unit_type}'")
            continue
        outcome = outcomes.of(formed.unit_type, tuple(job.job_class for job in members))
        faults += [f"sets[{number}]: {why}" for why in _set_faults(members, outcome)]
        runs += _running(members, formed.unit_type, outcome, outcomes)
    waiting = [jobs[name] for name in decision.waiting if name in jobs]
    faults += [fault for job in waiting for fault in outcomes.why_not_wait(job)]
    totals = _totals(instance, decision, runs)
    faults += budget_faults(instance.budgets, totals, ROUNDING)
    for name, limit in instance.budgets.objectives.items():
        value, sign = _objective(name, runs, waiting, totals, outcomes), SIGNS[OBJECTIVES[name]]
        if exceeds(sign * value, sign * limit, TOLERANCE):
            side = "most" if sign > 0 else "least"
            faults.append(f"budgets.objectives: '{name}' is {value:.9g}, it must be {limit:.9g} at {side}")
        totals[f"objective:{name}"] = value
    objective = None
    if not faults and instance.objective in OBJECTIVES:
        objective = _objective(instance.objective, runs, waiting, totals, outcomes)
    return Report(faults, objective, totals)


def _unit_faults(decision: SharingDecision, outcomes: Outcomes) -> Iterator[str]:
    """Yield the types of units that are unknown, or have fewer units than sets."""
    for name, used in Counter(formed.unit_type for formed in decision.sets).items():
        if name not in outcomes.types:
            yield f"the unit type '{name}' is not in the instance"
        elif used > outcomes.types[name].count:
            yield f"{used} sets on '{name}', it has {outcomes.types[name].count} units"


def _pool_faults(instance: SharingInstance, decision: SharingDecision, outcomes: Outcomes) -> Iterator[str]:
    """Yield the pools that have fewer GPUs than the sets use."""
    used: Counter[str] = Counter()
    for formed in decision.sets:
        unit = outcomes.types.get(formed.unit_type)
        if unit is not None and unit.pool is not None:
            used[unit.pool] += unit.gpus
    for pool in instance.pools:
        if used[pool.name] > pool.gpus:
            yield f"the sets use {used[pool.name]} GPUs of pool '{pool.name}', it has {pool.gpus}"


def _set_faults(members: list[Job], outcome: SetOutcome) -> Iterator[str]:
    """Yield the faults of a set with these jobs: refused, exclusive jobs, missed deadlines."""
    if outcome.refused:
        yield f"the set {outcome.refused}"
    if len(members) > 1:
        yield from (f"job '{job.name}' is exclusive and shares its unit" for job in members if job.exclusive)
    for job, epoch_s in zip(members, outcome.epoch_s, strict=True):
        end_s = job.remaining_epochs * epoch_s
        if job.deadline_s is not None and exceeds(end_s, job.deadline_s, ROUNDING):
            yield f"job '{job.name}' completes after {end_s:.9g} s, its deadline is {job.deadline_s:.9g} s"


def _running(
    members: list[Job], unit_type: str, outcome: SetOutcome, outcomes: Outcomes
) -> Iterator[_Running]:
    """Yield what follows for each job of a set on a unit of this type."""
    for job, epoch_s in zip(members, outcome.epoch_s, strict=True):
        yield _Running(
            epoch_s,
            completion_s=job.remaining_epochs * epoch_s,
            power_w=outcome.power_w / len(members),
            slowdown=epoch_s / outcomes.alone[job.job_class][unit_type].epoch_s,
            throughput=outcomes.best_epoch_s(job.job_class) / epoch_s,
        )


def _totals(instance: SharingInstance, decision: SharingDecision, runs: list[_Running]) -> dict[str, float]:
    """Return the totals that `check` reports."""
    used = Counter(formed.unit_type for formed in decision.sets)
    sleeping_w = fsum(
        max(0, unit.count - used[unit.name]) * unit.sleep_power_w for unit in instance.unit_types
    )
    energy_j = fsum(run.power_w * run.completion_s for run in runs)
    totals = {
        "power_w": sleeping_w + fsum(run.power_w for run in runs),
        "energy_j": energy_j,
        "active_units": len(decision.sets),
        "running_jobs": len(runs),
        "normalised_throughput": fsum(run.throughput for run in runs),
    }
    if instance.carbon_g_per_kwh is not None:
        totals["carbon_g"] = energy_j / J_PER_KWH * instance.carbon_g_per_kwh
    if runs:
        totals["mean_epoch_s"] = fsum(run.epoch_s for run in runs) / len(runs)
        totals["mean_completion_s"] = fsum(run.completion_s for run in runs) / len(runs)
        totals["mean_slowdown"] = fsum(run.slowdown for run in runs) / len(runs)
    return totals


def _objective(
    name: str, runs: list[_Running], waiting: list[Job], totals: dict[str, float], outcomes: Outcomes
) -> float:
    """Value of an objective."""
    if name == "throughput":
        return totals["normalised_throughput"]
    rates = Rates.of_objective(outcomes.instance, name)
    charged = (
        rates.watt * totals["power_w"],
        rates.joule * totals["energy_j"],
        rates.epoch_s * fsum(run.epoch_s for run in runs),
    )
    return fsum([*charged, *(outcomes.waiting_cost(job, rates) for job in waiting)])
