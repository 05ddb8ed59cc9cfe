"""The independent checker: recomputes a decision from the instance alone and trusts nobody.

It shares no code with formulations, solvers, the options' arrays or the topology's pools and allocator. Where
it and they read the rules differently, one of them is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator

from wattsched.instances.errors import require
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.units import J_PER_KWH
from wattsched.verification.report import TOLERANCE, Report, budget_faults, exceeds, pairing_faults
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.outcomes import (
    OBJECTIVES,
    Outcome,
    migrates,
    objective_of,
    outcome_of,
    own_faults,
    set_faults,
    total,
    users_of,
)
from wattsched.verification.sizing.pools import Pool, gpu_faults, pools_of


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
    pools, users = pools_of(instance.cluster), users_of(decision)
    known = {job.name: job for job in instance.jobs}
    faults = list(pairing_faults(known, (a.job for a in decision.jobs), decision.waiting))
    faults += [*set_faults(instance, decision), *gpu_faults(instance, users, pools)]
    outcomes, told = _outcomes(instance, decision, pools)
    faults += told
    standing_w = _standing_w(instance, pools, outcomes)
    draw_w = dict(standing_w)
    for outcome in outcomes:
        if outcome.assignment is not None:
            draw_w[outcome.assignment.pool] += outcome.power_w
    energy_j, intensity = _energy_j(instance, pools, outcomes, standing_w), instance.carbon_g_per_kwh
    totals = {
        "gpus_used": sum(a.gpus for a in users),
        "gpus_available": sum(pool.available for pool in pools.values()),
        "power_w": total(draw_w.values()),
        "energy_j": energy_j,
        **({} if intensity is None else {"carbon_g": energy_j * intensity / J_PER_KWH}),
        "restarts": sum(outcome.restarts for outcome in outcomes),
        "migrations": sum(migrates(outcome) for outcome in outcomes),
    }
    faults += _over_caps(instance, pools, draw_w)
    faults += budget_faults(instance.budgets, totals, TOLERANCE)
    objective = None
    if instance.objective not in OBJECTIVES:
        faults.append(f"objective '{instance.objective}' is not known")
    elif len(outcomes) == len(instance.jobs):
        objective = objective_of(instance, outcomes)
    return Report(faults, objective, totals)


def _outcomes(
    instance: Instance, decision: Decision, pools: dict[str, Pool]
) -> tuple[list[Outcome], list[str]]:
    """What each job of the instance does, by what the decision says of it first; and faults of its own."""
    said: dict[str, Assignment | None] = {}
    for assignment in decision.jobs:
        said.setdefault(assignment.job, assignment)
    for name in decision.waiting:
        said.setdefault(name, None)
    configurations = JobConfigurations(instance, pools)
    outcomes, faults = [], []
    for job in instance.jobs:
        if job.name in said:
            outcome = outcome_of(configurations, job, said[job.name])
            if isinstance(outcome, str):
                faults.append(f"job '{job.name}' {outcome}")
            else:
                outcomes.append(outcome)
                faults += [f"job '{job.name}' {fault}" for fault in own_faults(outcome)]
    return outcomes, faults


# --- watts and joules -------------------------------------------------------------------------------


def _standing_w(instance: Instance, pools: dict[str, Pool], outcomes: list[Outcome]) -> dict[str, float]:
    """Draw of each pool without its jobs: GPUs that no job uses, and servers."""
    unused = {name: pool.available for name, pool in pools.items()}
    for outcome in outcomes:
        if outcome.assignment is not None and outcome.leads:
            unused[outcome.assignment.pool] -= outcome.assignment.gpus
    return {
        name: unused[name] * _idle_w(instance, pool) + sum(node.base_power_w for node in pool.nodes)
        for name, pool in pools.items()
    }


def _idle_w(instance: Instance, pool: Pool) -> float:
    return instance.cluster.gpu_types[pool.gpu_type].idle_power_w


def _over_caps(instance: Instance, pools: dict[str, Pool], draw_w: dict[str, float]) -> Iterator[str]:
    """Power domains above their caps."""
    for domain in instance.cluster.power_domains:
        inside_w = total(draw_w[name] for name, pool in pools.items() if domain.name in pool.domains)
        if exceeds(inside_w, domain.power_cap_w, TOLERANCE):
            cap_w = domain.power_cap_w
            yield f"power domain '{domain.name}' draws {inside_w:.9g} W, its cap is {cap_w:.9g} W"


def _energy_j(
    instance: Instance, pools: dict[str, Pool], outcomes: list[Outcome], standing_w: dict[str, float]
) -> float:
    """Energy in the scope of the budgets."""
    if instance.budgets.scope == "completion":
        return total(
            outcome.configurations.least_energy_j(outcome.job)
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
            idle_w = _idle_w(instance, pools[outcome.assignment.pool]) * gpus
            parts += [outcome.power_w * busy_s, idle_w * (instance.round_s - busy_s)]
    return total(parts)
