"""Checking a decision of `sharing` against its instance, from the file's numbers alone.

Nothing is shared with formulations and solvers, nor with the arrays that they read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from math import fsum

from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import OBJECTIVES, Job, SharingInstance
from wattsched.instances.units import J_PER_KWH
from wattsched.verification.report import ROUNDING, Report, budget_faults, exceeds, pairing_faults
from wattsched.verification.sharing.outcomes import Outcomes, SetOutcome


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
    placed = (name for formed in decision.sets for name in formed.jobs)
    faults = list(pairing_faults(jobs, placed, decision.waiting))
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
        runs += _running(members, formed.unit_type, outcome, outcomes)
    waiting = [jobs[name] for name in decision.waiting if name in jobs]
    faults += [fault for job in waiting for fault in outcomes.why_not_wait(job)]
    totals = _totals(instance, decision, runs)
    faults += budget_faults(instance.budgets, totals, ROUNDING)
    objective = None
    if not faults and instance.objective in OBJECTIVES:
        objective = _objective(runs, waiting, totals, outcomes)
    return Report(faults, objective, totals)


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
        if job.deadline_s is not None and exceeds(end_s, job.deadline_s, ROUNDING):
            yield f"job '{job.name}' completes after {end_s:.9g} s, its deadline is {job.deadline_s:.9g} s"


def _running(
    members: list[Job], unit_type: str, outcome: SetOutcome, outcomes: Outcomes
) -> Iterator[_Running]:
    for job, epoch_s in zip(members, outcome.epoch_s, strict=True):
        yield _Running(
            epoch_s,
            completion_s=job.remaining_epochs * epoch_s,
            power_w=outcome.power_w / len(members),
            slowdown=epoch_s / outcomes.alone[job.job_class][unit_type].epoch_s,
            throughput=outcomes.best_epoch_s(job.job_class) / epoch_s,
        )


def _totals(instance: SharingInstance, decision: SharingDecision, runs: list[_Running]) -> dict[str, float]:
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
    runs: list[_Running], waiting: list[Job], totals: dict[str, float], outcomes: Outcomes
) -> float:
    """Value of the instance's objective."""
    if outcomes.instance.objective == "throughput":
        return totals["normalised_throughput"]
    rates = outcomes.rates
    charged = (
        rates.watt * totals["power_w"],
        rates.joule * totals["energy_j"],
        rates.epoch_s * fsum(run.epoch_s for run in runs),
    )
    return fsum([*charged, *map(outcomes.waiting_cost, waiting)])
