r"""The bound that prices prove for a shifting instance; shares no code with formulations and solvers.

Prices :math:`\lambda_r \ge 0` of the rows :math:`a_r x \le U_r` leave jobs that do not interact, and the
objective is at least :math:`\sum_j V_j(\lambda) - \sum_r \lambda_r U_r`, with V the least cost of one job's
schedule, which `least_cost` finds.

Whether prices prove that an instance has no decision at all; shares no code with formulations and solvers.

Prices prove a bound on every decision's objective. One that lies above what the dearest decision could cost
leaves none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob
from wattsched.instances.sizing.instance import OptionTable
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray
from wattsched.verification.report import Proof
from wattsched.verification.shifting.checker import TOLERANCE
from wattsched.verification.shifting.cost_to_go import LeastCost, PricedJob

CRITERIA = {"mean-completion": "completion_s", "carbon": "carbon_g", "energy": "energy_j", "money": "money"}
BUDGETS = {
    "completion_s": "average_completion_s",
    "carbon_g": "carbon_g",
    "energy_j": "energy_j",
    "money": "money",
}
ROUNDING = 1e-9
CELLS = 2.5e8
"""Slots by options by levels that all jobs may have together, some seconds' worth."""
CELLS_PER_JOB = 2e7
LEVELS = (64, 4096)
"""Fewest and most levels of a job's work."""


@dataclass(frozen=True)
class _Charges:
    """What schedules are charged: for average completion, a joule by slot (then after), and a GPU."""

    completion: float
    joule: FloatArray
    gpu: dict[str, FloatArray]


def prove(instance: ShiftingInstance, prices: Mapping[str, float]) -> Proof:
    """Bound on the instance's objective that prices prove, or that there is no decision.

    Parameters
    ----------
    instance : ShiftingInstance
        Free of faults.
    prices : mapping of str to float
        As `lower_bound` takes them.
    """
    try:
        bound = lower_bound(instance, prices)
    except ValueError as error:
        return Proof([str(error)])
    return Proof(bound=bound, excess=_excess(instance, prices, bound))


def lower_bound(instance: ShiftingInstance, prices: Mapping[str, float]) -> float:
    """Lower bound on the instance's objective that prices prove; infinite where a job has no schedule.

    Parameters
    ----------
    instance : ShiftingInstance
        Free of faults.
    prices : mapping of str to float
        Derivative of the objective by the bound of a row, not positive: ``gpus:POOL@SLOT`` for the GPUs of a
        pool in a slot, and ``carbon_g``, ``energy_j``, ``money``, ``completion_s`` for budgets.

    Raises
    ------
    ValueError
        For an unknown row, a budget that the instance does not have, an unknown objective, and a price that
        is not finite or positive.
    """
    if instance.objective not in CRITERIA:
        raise ValueError(f"certificate: the objective '{instance.objective}' is unknown")
    charged = _charged(instance, prices)
    weight = {name: charged.get(name, 0.0) for name in BUDGETS}
    weight[CRITERIA[instance.objective]] += 1.0
    charges = _charges(instance, charged, weight)
    weights = sum(job.weight for job in instance.jobs)
    options: dict[int, _Options] = {}
    total, costs = 0.0, []
    for job in instance.jobs:
        table = instance.table_of(job)
        if id(table) not in options:
            options[id(table)] = _options(instance, table, charges)
        delay = charges.completion * job.weight / weights
        total -= delay * job.arrival_s
        costs.append(LeastCost(_priced(instance, job, options[id(table)], charges, delay)))
    together = sum(cost.size for cost in costs)
    fewest, most = LEVELS
    for cost in costs:
        levels = min(CELLS / together, CELLS_PER_JOB / cost.size)
        total += cost.bound(int(min(max(levels, fewest), most)))
    if math.isinf(total):
        return total
    standing = standing_of(instance)
    total += standing.get(CRITERIA[instance.objective], 0.0)
    owed = 0.0
    for name, price in charged.items():
        if name in BUDGETS:
            owed += price * (getattr(instance.budgets, BUDGETS[name]) - standing.get(name, 0.0))
        else:
            pool = name.removeprefix("gpus:").rpartition("@")[0]
            owed += price * instance.pools[pool].gpus
    return total - owed - ROUNDING * (abs(total) + abs(owed))


def _charged(instance: ShiftingInstance, prices: Mapping[str, float]) -> dict[str, float]:
    """Positive prices, once all are known to make sense."""
    rows = {f"gpus:{pool}@{slot}" for pool in instance.pools for slot in range(instance.slots)}
    rows |= {name for name, field in BUDGETS.items() if getattr(instance.budgets, field) is not None}
    for name, price in prices.items():
        if name not in rows:
            raise ValueError(f"certificate: '{name}' is no row of this instance")
        if isinstance(price, bool) or not isinstance(price, int | float) or not math.isfinite(price):
            raise ValueError(f"certificate: the price {price!r:.40} of row '{name}' is not a finite number")
        if price > 0:
            raise ValueError(f"certificate: the price {price:g} of row '{name}' is positive")
    return {name: -float(price) for name, price in prices.items() if price}


def per_joule(instance: ShiftingInstance) -> dict[str, FloatArray]:
    """Grams, joules and money of a joule by slot, and, last, after the horizon."""
    found = {"energy_j": np.ones(instance.slots)}
    if instance.carbon_g_per_kwh is not None:
        found["carbon_g"] = np.array(instance.carbon_g_per_kwh[: instance.slots]) / J_PER_KWH
    if instance.price_per_kwh is not None:
        found["money"] = np.array(instance.price_per_kwh[: instance.slots]) / J_PER_KWH
    return {name: np.append(line, line.mean()) for name, line in found.items()}


def standing_of(instance: ShiftingInstance) -> dict[str, float]:
    """Draw of all GPUs if they were idle throughout."""
    watts = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values())
    return {
        name: float(line[:-1].sum()) * watts * instance.slot_s for name, line in per_joule(instance).items()
    }


def _charges(
    instance: ShiftingInstance, charged: Mapping[str, float], weight: Mapping[str, float]
) -> _Charges:
    joule = np.zeros(instance.slots + 1)
    for name, line in per_joule(instance).items():
        joule += weight[name] * line
    gpu = {
        pool: np.array([charged.get(f"gpus:{pool}@{slot}", 0.0) for slot in range(instance.slots)])
        for pool in instance.pools
    }
    return _Charges(weight["completion_s"], joule, gpu)


@dataclass(frozen=True)
class _Options:
    """Rows of a table that fit into their pools, by column; ``gpu`` is the charge for their GPUs by slot."""

    kinds: list[tuple[int, str, int | None]]
    rate: FloatArray
    power_w: FloatArray
    extra_w: FloatArray
    gpu: FloatArray


def _options(instance: ShiftingInstance, table: OptionTable, charges: _Charges) -> _Options:
    rows = [r for r, g in enumerate(table.gpus) if g <= instance.pools[table.pool[r]].gpus]
    gpus = np.array(table.gpus, dtype=float)[rows]
    power_w = np.array(table.power_w, dtype=float)[rows]
    idle_w = np.array([instance.pools[table.pool[r]].idle_power_w for r in rows])
    charged = np.array([charges.gpu[table.pool[r]] for r in rows]).T
    batch: list[int | None] = [None] * len(table.gpus) if table.batch_size is None else [*table.batch_size]
    return _Options(
        kinds=[(table.gpus[r], table.pool[r], batch[r]) for r in rows],
        rate=np.array(table.rate, dtype=float)[rows],
        power_w=power_w,
        extra_w=np.maximum(power_w - gpus * idle_w, 0.0),
        gpu=charged * gpus,
    )


def _priced(
    instance: ShiftingInstance, job: ShiftingJob, options: _Options, charges: _Charges, delay: float
) -> PricedJob:
    number = {kind: k for k, kind in enumerate(dict.fromkeys(options.kinds))}
    held = None
    if job.current is not None:
        held = (job.current.gpus, job.current.pool, job.current.batch_size)
    return PricedJob(
        slot_s=instance.slot_s,
        first=math.ceil(job.arrival_s * (1 - ROUNDING) / instance.slot_s),
        slots=instance.slots,
        work=job.remaining_work,
        restart_s=job.restart_s,
        deadline_s=math.inf if job.deadline_s is None else job.deadline_s * (1 + ROUNDING),
        must_finish=job.must_finish,
        ran=job.has_run or job.current is not None,
        held=-1 if held is None else number.get(held, -1),
        rate=options.rate,
        power_w=options.power_w,
        extra_w=options.extra_w,
        kind=np.array([number[kind] for kind in options.kinds], dtype=np.int64),
        delay=delay,
        joule=charges.joule,
        gpu=options.gpu,
    )


ROUNDING = 1e-9


def _excess(instance: ShiftingInstance, prices: Mapping[str, float], bound: float) -> float:
    """By how much a bound lies above the objective of any decision; more than 0 proves that there is none."""
    known = {"completion_s", *per_joule(instance)}
    if not math.isfinite(bound) or CRITERIA[instance.objective] not in known:  # it may have overflowed
        return -math.inf
    # Decisions may exceed a budget by the checker's tolerance, which the bound knows nothing of.
    leeway: float = sum(
        -price * TOLERANCE * getattr(instance.budgets, BUDGETS[name])
        for name, price in prices.items()
        if name in BUDGETS
    )
    return bound - leeway - objective_upper_bound(instance) * (1 + ROUNDING)


def objective_upper_bound(instance: ShiftingInstance) -> float:
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
