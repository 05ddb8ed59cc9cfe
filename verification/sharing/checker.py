"""Checking a decision of `sharing` against its instance, from the file's numbers alone.

Nothing is shared with formulations and solvers, nor with the arrays that they read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import Alone, Job, SharingInstance
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.verification.report import Report
from wattsched.verification.sharing.outcomes import TOLERANCE, Outcomes, SetOutcome


def check(instance: SharingInstance, decision: SharingDecision) -> Report:
    """Check a decision.

    Parameters
    ----------
    instance : SharingInstance
        Validated, free of faults as `instance.faults_of` finds them.
    decision : SharingDecision

    Returns
    -------
    Report
        With the totals ``power_w``, ``energy_j`` (of the jobs that run, to completion), ``carbon_g`` where
        the instance has an intensity, ``active_units``, ``running_jobs``, ``mean_epoch_s``,
        ``mean_completion_s``, ``mean_slowdown`` (of the jobs that run) and ``normalised_throughput``.
    """
    outcomes = Outcomes(instance)
    jobs = {job.name: job for job in instance.jobs}
    faults = list(_pairing(instance, decision))
    faults += [*_units(decision, outcomes), *_pools(instance, decision, outcomes)]
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
        runs += [
            _Running(
                job, outcomes.alone[job.job_class], formed.unit_type, epoch_s, outcome.power_w / len(members)
            )
            for job, epoch_s in zip(members, outcome.epoch_s, strict=True)
        ]
    waiting = [jobs[name] for name in decision.waiting if name in jobs]
    faults += [fault for job in waiting for fault in why_not_wait(instance, job, outcomes)]
    totals = _totals(instance, decision, runs, outcomes)
    faults += _over_budget(instance, totals)
    objective = None if faults else _objective(instance, runs, waiting, totals, outcomes)
    return Report(faults, objective, totals)


@dataclass(frozen=True)
class _Running:
    """A job that runs; ``power_w`` is its share of its unit's draw."""

    job: Job
    alone: dict[str, Alone]
    unit_type: str
    epoch_s: float
    power_w: float

    @property
    def completion_s(self) -> float:
        return self.job.remaining_epochs * self.epoch_s

    @property
    def throughput(self) -> float:
        """Epochs per second over the most that it could have, alone on any type."""
        return min(a.epoch_s for a in self.alone.values()) / self.epoch_s


def _pairing(instance: SharingInstance, decision: SharingDecision) -> Iterator[str]:
    known = {job.name for job in instance.jobs}
    placed = Counter(name for formed in decision.sets for name in formed.jobs)
    waiting = Counter(decision.waiting)
    for name in (placed | waiting).keys() - known:
        yield f"job '{name}' is not in the instance"
    for job in instance.jobs:
        sets, waits = placed[job.name], waiting[job.name]
        if sets > 1:
            yield f"job '{job.name}' is in {sets} sets"
        if waits > 1:
            yield f"job '{job.name}' waits {waits} times"
        if sets and waits:
            yield f"job '{job.name}' runs and waits"
        if not sets and not waits:
            yield f"job '{job.name}' neither runs nor waits"


def _units(decision: SharingDecision, outcomes: Outcomes) -> Iterator[str]:
    for name, used in Counter(formed.unit_type for formed in decision.sets).items():
        if name not in outcomes.types:
            yield f"the unit type '{name}' is not in the instance"
        elif used > outcomes.types[name].count:
            yield f"{used} sets on '{name}', it has {outcomes.types[name].count} units"


def _pools(instance: SharingInstance, decision: SharingDecision, outcomes: Outcomes) -> Iterator[str]:
    used: Counter[str] = Counter()
    for formed in decision.sets:
        unit = outcomes.types.get(formed.unit_type)
        if unit is not None and unit.pool is not None:
            used[unit.pool] += unit.gpus
    for pool in instance.pools:
        if used[pool.name] > pool.gpus:
            yield f"the sets use {used[pool.name]} GPUs of pool '{pool.name}', it has {pool.gpus}"


def _set_faults(members: list[Job], outcome: SetOutcome) -> Iterator[str]:
    if outcome.refused:
        yield f"the set {outcome.refused}"
    if len(members) > 1:
        yield from (f"job '{job.name}' is exclusive and shares its unit" for job in members if job.exclusive)
    for job, epoch_s in zip(members, outcome.epoch_s, strict=True):
        end_s = job.remaining_epochs * epoch_s
        if job.deadline_s is not None and not end_s <= job.deadline_s * (1 + TOLERANCE):
            yield f"job '{job.name}' completes after {end_s:.9g} s, its deadline is {job.deadline_s:.9g} s"


def why_not_wait(instance: SharingInstance, job: Job, outcomes: Outcomes) -> Iterator[str]:
    """Reasons why a job may not wait."""
    if not job.can_wait:
        yield f"job '{job.name}' waits and may not"
    if job.deadline_s is None:
        return
    epochs = [
        alone.epoch_s
        for name, alone in outcomes.alone[job.job_class].items()
        if not outcomes.of(name, (job.job_class,)).refused
    ]
    end_s = instance.round_s + job.remaining_epochs * min(epochs, default=math.inf)
    if end_s > job.deadline_s * (1 + TOLERANCE):
        yield (
            f"job '{job.name}' waits and then completes after {end_s:.9g} s at best, its deadline is "
            f"{job.deadline_s:.9g} s"
        )


def _totals(
    instance: SharingInstance, decision: SharingDecision, runs: list[_Running], outcomes: Outcomes
) -> dict[str, float]:
    used = Counter(formed.unit_type for formed in decision.sets)
    sleeping_w = fsum(
        max(0, unit.count - used[unit.name]) * unit.sleep_power_w for unit in instance.unit_types
    )
    energy_j = fsum(run.power_w * run.completion_s for run in runs)
    totals = {
        "power_w": sleeping_w + fsum(run.power_w for run in runs),
        "energy_j": energy_j,
        "active_units": float(len(decision.sets)),
        "running_jobs": float(len(runs)),
        "normalised_throughput": fsum(run.throughput for run in runs),
    }
    if instance.carbon_g_per_kwh is not None:
        totals["carbon_g"] = energy_j / J_PER_KWH * instance.carbon_g_per_kwh
    if runs:
        totals["mean_epoch_s"] = fsum(run.epoch_s for run in runs) / len(runs)
        totals["mean_completion_s"] = fsum(run.completion_s for run in runs) / len(runs)
        slowdowns = [run.epoch_s / run.alone[run.unit_type].epoch_s for run in runs]
        totals["mean_slowdown"] = fsum(slowdowns) / len(runs)
    return totals


def _over_budget(instance: SharingInstance, totals: dict[str, float]) -> Iterator[str]:
    for name, limit in instance.budgets:
        value = totals.get(name)
        if limit is not None and value is not None and not value <= limit * (1 + TOLERANCE):
            yield f"budgets.{name}: the decision needs {value:.9g}, the budget is {limit:.9g}"


def _objective(
    instance: SharingInstance,
    runs: list[_Running],
    waiting: list[Job],
    totals: dict[str, float],
    outcomes: Outcomes,
) -> float | None:
    """Value of the instance's objective, None for an unknown one."""
    value = {
        "throughput": totals["normalised_throughput"],
        "power": totals["power_w"],
        "energy": totals["energy_j"] / J_PER_KWH,
        "eaco": instance.alpha * totals["energy_j"] / J_PER_KWH
        + (1 - instance.alpha) * fsum(run.epoch_s for run in runs) / S_PER_H / max(1, len(instance.jobs)),
    }.get(instance.objective)
    if value is None or instance.objective == "throughput":
        return value
    return value + fsum(instance.waiting_penalty * dearest_alone(instance, job, outcomes) for job in waiting)


def dearest_alone(instance: SharingInstance, job: Job, outcomes: Outcomes) -> float:
    """Most that a job could add to the objective alone on a unit of any type that admits it."""
    costs = []
    for name, alone in outcomes.alone[job.job_class].items():
        outcome = outcomes.of(name, (job.job_class,))
        if outcome.refused:
            continue
        kwh = outcome.power_w * job.remaining_epochs * alone.epoch_s / J_PER_KWH
        epoch_h = alone.epoch_s / S_PER_H / len(instance.jobs)
        costs.append(
            {
                "power": max(0.0, outcome.power_w - outcomes.types[name].sleep_power_w),
                "energy": kwh,
                "eaco": instance.alpha * kwh + (1 - instance.alpha) * epoch_h,
            }[instance.objective]
        )
    return max(costs, default=0.0)
