"""Whether prices prove that an instance has no decision at all; shares no code with formulations and solvers.

Prices prove a bound on every decision's objective. One that lies above what the dearest decision could cost
leaves none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from wattsched.instances.shifting.certificate import BUDGETS, CRITERIA, per_joule, standing_of
from wattsched.instances.shifting.checker import TOLERANCE
from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob

ROUNDING = 1e-9


def excess(instance: ShiftingInstance, prices: Mapping[str, float], bound: float) -> float:
    """By how much a bound lies above the objective of any decision: positive, it proves that there is none.

    Parameters
    ----------
    instance : ShiftingInstance
        Free of faults.
    prices, bound
        As `certificate.prove` takes and finds them.
    """
    if not math.isfinite(bound):  # it may have overflowed
        return -math.inf
    # Decisions may exceed a budget by the checker's tolerance, which the bound knows nothing of.
    leeway: float = sum(
        -price * TOLERANCE * getattr(instance.budgets, BUDGETS[name])
        for name, price in prices.items()
        if name in BUDGETS
    )
    return bound - leeway - dearest(instance) * (1 + ROUNDING)


def dearest(instance: ShiftingInstance) -> float:
    """Objective that no decision exceeds: every job draws its most throughout, and all work is left over."""
    criterion = CRITERIA[instance.objective]
    after_s = [(job, job.remaining_work / _fastest(instance, job)) for job in instance.jobs]
    if criterion == "completion_s":
        weights = sum(job.weight for job in instance.jobs)
        late = (job.weight * (instance.horizon_s + more_s - job.arrival_s) for job, more_s in after_s)
        return sum(late) / weights if weights else 0.0
    line = per_joule(instance)[criterion]
    each = float(line[:-1].max()) * instance.horizon_s
    after = float(line[-1])
    most = (max(instance.table_of(job).power_w) * (each + more_s * after) for job, more_s in after_s)
    return standing_of(instance)[criterion] + sum(most)


def _fastest(instance: ShiftingInstance, job: ShiftingJob) -> float:
    table = instance.table_of(job)
    assert table.rate is not None, "instances whose tables give completion times are refused"
    columns = zip(table.rate, table.gpus, table.pool, strict=True)
    return max(rate for rate, gpus, pool in columns if gpus <= instance.pools[pool].gpus)
