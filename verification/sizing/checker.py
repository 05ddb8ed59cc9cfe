"""The independent checker: recomputes a decision from the instance alone and trusts nobody.

It shares no code with formulations, solvers, the options' arrays or the topology's pools and allocator. Where
it and they read the rules differently, one of them is wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from wattsched.instances.errors import require
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance, Job
from wattsched.instances.units import J_PER_KWH
from wattsched.verification.report import Report
from wattsched.verification.sizing.cluster import Place, gpu_faults, places_of
from wattsched.verification.sizing.configurations import Menus
from wattsched.verification.sizing.outcomes import (
    OBJECTIVES,
    TOLERANCE,
    Outcome,
    migrates,
    objective_of,
    outcome_of,
    own_faults,
    set_faults,
    total,
    users_of,
)


def check(instance: Instance, decision: Decision) -> Report:
    """Check a decision against every rule of its instance, and recompute its objective.

    Parameters
    ----------
    instance : Instance
        Validated, free of faults as `validity.faults_of` finds them.
    decision : Decision

    Returns
    -------
    Report
        With the totals ``power_w`` (running jobs, idle GPUs, node base power), ``energy_j`` and, where the
        carbon intensity is known, ``carbon_g`` in the scope of the budgets, ``gpus_used``,
        ``gpus_available``, ``restarts`` (running jobs that change GPU count, batch size or pool, or stop) and
        ``migrations`` (those that keep their configuration but on other GPUs). The objective is None when
        some job does nothing that it could do.

    Raises
    ------
    TypeError
        For anything else; the decision of a `Result` is its field ``decision``.
    """
    require("instance", instance, (Instance,), "an Instance")
    require("decision", decision, (Decision,), "a Decision, such as a result's field 'decision'")
    menus = Menus(instance, places_of(instance.cluster))
    places = menus.places
    faults = [*_pairing(instance, decision), *set_faults(instance, decision)]
    faults += gpu_faults(instance, users_of(decision), places)
    outcomes = []
    for job, assignment in _known(instance, decision):
        try:
            menu = menus.of(job)
        except ValueError as error:
            faults.append(f"job '{job.name}': {error}")
            continue
        outcome = outcome_of(instance, job, menu, assignment, menus.in_sets(job.name))
        if isinstance(outcome, str):
            faults.append(f"job '{job.name}' {outcome}")
            continue
        outcomes.append(outcome)
        faults += [f"job '{job.name}' {fault}" for fault in own_faults(outcome)]
    standing_w = _standing_w(instance, places, outcomes)
    draw_w = dict(standing_w)
    for outcome in outcomes:
        if outcome.assignment is not None:
            draw_w[outcome.assignment.pool] += outcome.power_w
    power_w = total(draw_w.values())
    energy_j = _energy_j(instance, places, outcomes, standing_w)
    intensity = instance.carbon_g_per_kwh
    carbon_g = None if intensity is None else energy_j * intensity / J_PER_KWH
    faults += _over_caps(instance, places, draw_w)
    faults += _over_budget(instance, power_w, energy_j, carbon_g)
    objective = None
    if instance.objective not in OBJECTIVES:
        faults.append(f"objective '{instance.objective}' is not known")
    elif {outcome.job.name for outcome in outcomes} == {job.name for job in instance.jobs}:
        objective = objective_of(instance, outcomes)
    totals = {
        "gpus_used": sum(a.gpus for a in users_of(decision)),
        "gpus_available": sum(place.available for place in places.values()),
        "power_w": power_w,
        "energy_j": energy_j,
        **({} if carbon_g is None else {"carbon_g": carbon_g}),
        "restarts": sum(outcome.restarts for outcome in outcomes),
        "migrations": sum(migrates(outcome) for outcome in outcomes),
    }
    return Report(faults, objective, totals)


# --- every job once ---------------------------------------------------------------------------------


def _pairing(instance: Instance, decision: Decision) -> Iterator[str]:
    known = {job.name for job in instance.jobs}
    counts = Counter([*(a.job for a in decision.jobs), *decision.waiting])
    for name, count in counts.items():
        if name not in known:
            yield f"job '{name}' is not in the instance"
        elif count > 1:
            yield f"job '{name}' is decided {count} times"
    for job in instance.jobs:
        if job.name not in counts:
            yield f"job '{job.name}' neither runs nor waits"


def _known(instance: Instance, decision: Decision) -> list[tuple[Job, Assignment | None]]:
    """Each job of the instance with what the decision says of it first."""
    said: dict[str, Assignment | None] = {}
    for assignment in decision.jobs:
        said.setdefault(assignment.job, assignment)
    for name in decision.waiting:
        said.setdefault(name, None)
    return [(job, said[job.name]) for job in instance.jobs if job.name in said]


# --- budgets ----------------------------------------------------------------------------------------


def _standing_w(instance: Instance, places: dict[str, Place], outcomes: list[Outcome]) -> dict[str, float]:
    """Draw of each pool without its jobs: GPUs that no job uses, and servers."""
    unused = {name: place.available for name, place in places.items()}
    for outcome in outcomes:
        if outcome.assignment is not None and outcome.leads:
            unused[outcome.assignment.pool] -= outcome.assignment.gpus
    return {
        name: unused[name] * _idle_w(instance, place) + sum(node.base_power_w for node in place.nodes)
        for name, place in places.items()
    }


def _idle_w(instance: Instance, place: Place) -> float:
    return instance.cluster.gpu_types[place.gpu_type].idle_power_w


def _over_caps(instance: Instance, places: dict[str, Place], draw_w: dict[str, float]) -> Iterator[str]:
    """Power domains above their caps."""
    for domain in instance.cluster.power_domains:
        inside_w = total(draw_w[name] for name, place in places.items() if domain.name in place.domains)
        if _above(inside_w, domain.power_cap_w):
            cap_w = domain.power_cap_w
            yield f"power domain '{domain.name}' draws {inside_w:.9g} W, its cap is {cap_w:.9g} W"


def _energy_j(
    instance: Instance, places: dict[str, Place], outcomes: list[Outcome], standing_w: dict[str, float]
) -> float:
    """Energy in the scope of the budgets."""
    if instance.budgets.scope == "completion":
        return total(
            outcome.menu.least_energy_j(outcome.job)
            if outcome.assignment is None
            else outcome.power_w * outcome.completion_s
            for outcome in outcomes
        )
    parts = [watts * instance.round_s for watts in standing_w.values()]
    for outcome in outcomes:
        if outcome.assignment is not None:
            # A job that completes early leaves its GPUs, or its part of a set's, idle for the rest.
            busy_s = min(outcome.completion_s, instance.round_s)
            gpus = outcome.assignment.gpus / outcome.members
            idle_w = _idle_w(instance, places[outcome.assignment.pool]) * gpus
            parts += [outcome.power_w * busy_s, idle_w * (instance.round_s - busy_s)]
    return total(parts)


def _over_budget(
    instance: Instance, power_w: float, energy_j: float, carbon_g: float | None
) -> Iterator[str]:
    budgets = instance.budgets
    for name, value, limit, unit in (
        ("power_w", power_w, budgets.power_w, "W"),
        ("energy_j", energy_j, budgets.energy_j, "J"),
        ("carbon_g", carbon_g, budgets.carbon_g, "g"),
    ):
        if limit is not None and value is not None and _above(value, limit):
            yield f"budgets.{name}: the decision needs {value:.9g} {unit}, the budget is {limit:.9g} {unit}"


def _above(value: float, limit: float) -> bool:
    """Whether a value breaks its limit, with tolerance; not a number does."""
    return not value <= limit * (1 + TOLERANCE)
