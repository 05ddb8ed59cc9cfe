r"""What prices prove for a shifting instance: a bound, or that it has no decision at all.

Prices :math:`\lambda_r \ge 0` of the rows :math:`a_r x \le U_r` leave jobs that do not interact, and the
objective is at least :math:`\sum_j V_j(\lambda) - \sum_r \lambda_r U_r`, with V the least cost of one job's
schedule, which `least_cost` finds. A bound that lies above what the dearest decision could cost leaves none.

No code of formulations and solvers takes part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.report import ROUNDING, TOLERANCE, Proof, charges
from wattsched.verification.shifting.least_cost import LeastCost, PricedJob, PricedOptions
from wattsched.verification.shifting.outcomes import (
    BUDGETS,
    CRITERIA,
    after_horizon,
    per_joule,
    standing_of,
)

CELLS = 2.5e8
"""Slots by options by levels that all jobs may have together, some seconds' worth."""
CELLS_PER_JOB = 2e7
LEVELS = (64, 4096)
"""Fewest and most levels of a job's work."""


def prove(instance: ShiftingInstance, prices: Mapping[str, object]) -> Proof:
    """Bound on the instance's objective that prices prove, or that there is no decision.

    Parameters
    ----------
    instance : ShiftingInstance
        Free of faults.
    prices : mapping of str to float
        As `report.charges` takes them, of the rows ``gpus:POOL@SLOT`` for the GPUs of a pool in a slot, and
        ``carbon_g``, ``energy_j``, ``money``, ``completion_s`` for budgets.
    """
    standing = standing_of(instance)
    if CRITERIA.get(instance.objective) not in {"completion_s", *standing}:
        told = f"the objective '{instance.objective}' is unknown, or the instance lacks its forecast"
        return Proof([f"certificate: {told}"])
    budgets = {row: getattr(instance.budgets, field) for row, field in BUDGETS.items()}
    limits = {row: limit for row, limit in budgets.items() if limit is not None}
    for name, pool in instance.pools.items():
        limits |= {f"gpus:{name}@{slot}": pool.gpus for slot in range(instance.slots)}
    charged, faults = charges(prices, limits, (), "min")
    if faults:
        return Proof(faults)
    least = _least_costs(instance, charged)
    if math.inf in least:
        late = instance.jobs[least.index(math.inf)].name
        return Proof([f"certificate: job '{late}' has no schedule that ends in time"])
    total = math.fsum(least) + standing.get(CRITERIA[instance.objective], 0.0)
    owed = math.fsum(price * (limits[row] - standing.get(row, 0.0)) for row, price in charged.items())
    bound = total - owed - ROUNDING * (abs(total) + abs(owed))
    # Decisions may exceed a budget by the checker's tolerance, which the bound knows nothing of.
    leeway = math.fsum(price * TOLERANCE * limits[row] for row, price in charged.items() if row in BUDGETS)
    dearest = objective_upper_bound(instance)
    return Proof(bound=bound, excess=bound - leeway - dearest * (1 + ROUNDING))


def _least_costs(instance: ShiftingInstance, charged: Mapping[str, float]) -> list[float]:
    """Least cost of each job's schedules at prices, or less; infinite for none."""
    weight = {row: charged.get(row, 0.0) for row in BUDGETS}
    weight[CRITERIA[instance.objective]] += 1.0
    joule = np.zeros(instance.slots + 1)
    for row, line in per_joule(instance).items():
        joule += weight[row] * line
    gpu = {
        pool: np.array([charged.get(f"gpus:{pool}@{slot}", 0.0) for slot in range(instance.slots)])
        for pool in instance.pools
    }
    weights = sum(job.weight for job in instance.jobs)
    options: dict[int, PricedOptions] = {}
    found = []
    for job in instance.jobs:
        table = instance.table_of(job)
        if id(table) not in options:
            options[id(table)] = PricedOptions.of(instance, table, gpu)
        delay = weight["completion_s"] * job.weight / weights
        found.append(LeastCost(PricedJob(instance, job, options[id(table)], delay, joule)))
    together = sum(one.size for one in found)
    levels = [int(np.clip(min(CELLS / together, CELLS_PER_JOB / one.size), *LEVELS)) for one in found]
    # Completion counts from a job's arrival.
    pairs = zip(found, levels, instance.jobs, strict=True)
    return [one.bound(most) - one.job.delay * job.arrival_s for one, most, job in pairs]


def objective_upper_bound(instance: ShiftingInstance) -> float:
    """Objective that no decision exceeds: every job draws its most throughout, and all work is left over."""
    criterion = CRITERIA[instance.objective]
    tables = {id(table): table for table in map(instance.table_of, instance.jobs)}
    rate = {key: after_horizon(instance, table)[0] for key, table in tables.items()}
    after_s = [(job, job.remaining_work / rate[id(instance.table_of(job))]) for job in instance.jobs]
    if criterion == "completion_s":
        weights = sum(job.weight for job in instance.jobs)
        late = (job.weight * (instance.horizon_s + more_s - job.arrival_s) for job, more_s in after_s)
        return sum(late) / weights if weights else 0.0
    line = per_joule(instance)[criterion]
    each, after = float(line[:-1].max()) * instance.horizon_s, float(line[-1])
    most = (max(instance.table_of(job).power_w) * (each + more_s * after) for job, more_s in after_s)
    return standing_of(instance)[criterion] + sum(most)
