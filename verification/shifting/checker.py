"""Checking a decision of a shifting problem; shares no code with formulations and solvers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from wattsched.instances.shifting.decision import Run, Schedule, ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob
from wattsched.instances.sizing.instance import OptionTable
from wattsched.instances.units import J_PER_KWH
from wattsched.verification.report import Report

TOLERANCE = 1e-6
"""By how much a budget may be exceeded, relative to it."""
ROUNDING = 1e-9
"""Work, relative to that of a slot, and times, relative to themselves, that count as rounding."""

OBJECTIVES = {
    "mean-completion": "average_completion_s",
    "carbon": "carbon_g",
    "energy": "energy_j",
    "money": "money",
}


@dataclass
class _Sums:
    """What the jobs add up to."""

    faults: list[str] = field(default_factory=list)
    energy_j: float = 0.0
    carbon_g: float = 0.0
    money: float = 0.0
    weighted_completion_s: float = 0.0
    restarts: int = 0
    unfinished: int = 0
    held: dict[tuple[str, int], int] = field(default_factory=lambda: defaultdict(int))
    busy_gpu_s: dict[tuple[str, int], float] = field(default_factory=lambda: defaultdict(float))

    def draw(self, instance: ShiftingInstance, power_w: float, seconds: float, slot: int | None) -> None:
        """Count energy of a slot, or after the horizon at the forecasts' averages."""
        joules = power_w * seconds
        self.energy_j += joules
        self.carbon_g += joules / J_PER_KWH * _forecast(instance, "carbon_g_per_kwh", slot)
        self.money += joules / J_PER_KWH * _forecast(instance, "price_per_kwh", slot)


def check(instance: ShiftingInstance, decision: ShiftingDecision) -> Report:
    """Check a decision against its instance and recompute what it amounts to.

    Parameters
    ----------
    instance : ShiftingInstance
        Free of faults as `instance.faults_of` finds them.

    Returns
    -------
    Report
        With the totals ``average_completion_s``, ``energy_j``, ``carbon_g`` and ``money`` (with a forecast),
        ``unfinished`` jobs and ``restarts``.
    """
    sums = _Sums()
    schedules = _by_job(instance, decision, sums.faults)
    for job in instance.jobs:
        _follow(instance, job, schedules.get(job.name), sums)
    for (held, slot), gpus in sorted(sums.held.items()):
        if gpus > (most := instance.pools[held].gpus):
            sums.faults.append(f"slot {slot}: {gpus} GPUs of pool '{held}' are used, it has {most}")
    for name, pool in instance.pools.items():
        for slot in range(instance.slots):
            idle_gpu_s = pool.gpus * instance.slot_s - sums.busy_gpu_s.get((name, slot), 0.0)
            sums.draw(instance, pool.idle_power_w, idle_gpu_s, slot)
    weights = sum(job.weight for job in instance.jobs)
    totals = {"average_completion_s": sums.weighted_completion_s / weights if weights else 0.0}
    totals["energy_j"] = sums.energy_j
    if instance.carbon_g_per_kwh is not None:
        totals["carbon_g"] = sums.carbon_g
    if instance.price_per_kwh is not None:
        totals["money"] = sums.money
    totals |= {"unfinished": float(sums.unfinished), "restarts": float(sums.restarts)}
    for name, limit in instance.budgets:
        if limit is not None and totals.get(name, 0.0) > limit * (1 + TOLERANCE):
            sums.faults.append(f"{name}: {totals[name]:.10g} is above the budget of {limit:.10g}")
    return Report(sums.faults, totals.get(OBJECTIVES.get(instance.objective, "")), totals)


def _by_job(
    instance: ShiftingInstance, decision: ShiftingDecision, faults: list[str]
) -> Mapping[str, Schedule]:
    known = {job.name for job in instance.jobs}
    named = Counter([schedule.job for schedule in decision.jobs] + decision.waiting)
    faults += [f"job '{name}' is not in the instance" for name in named if name not in known]
    faults += [f"job '{name}' is named {times} times" for name, times in named.items() if times > 1]
    faults += [f"job '{job.name}' is not decided" for job in instance.jobs if job.name not in named]
    return {schedule.job: schedule for schedule in decision.jobs}


def _follow(instance: ShiftingInstance, job: ShiftingJob, schedule: Schedule | None, sums: _Sums) -> None:
    """Run one job through its slots."""
    table = instance.table_of(job)
    assert table.rate is not None, "instances whose tables give completion times are refused"
    slots = _slots(instance, job, table, schedule, sums.faults)
    kind = None
    if job.current is not None:
        kind = (job.current.gpus, job.current.pool, job.current.batch_size)
    started, left, last, finish_s = job.has_run or job.current is not None, job.remaining_work, -1, None
    for slot, row in sorted(slots.items()):
        gpus, pool, power_w, rate = table.gpus[row], table.pool[row], table.power_w[row], table.rate[row]
        sums.held[pool, slot] += gpus
        if finish_s is not None:
            sums.faults.append(f"job '{job.name}' holds GPUs in slot {slot}, but it ends at {finish_s:.6g} s")
            continue
        new = (gpus, pool, None if table.batch_size is None else table.batch_size[row])
        again = started and (new != kind or slot != last + 1)
        lost_s = job.restart_s if again else 0.0
        sums.restarts += again
        able = rate * (instance.slot_s - lost_s)
        used_s = instance.slot_s
        if left <= able + ROUNDING * rate * instance.slot_s:
            used_s = lost_s + min(left, able) / rate
            finish_s = slot * instance.slot_s + used_s
        left -= able
        sums.draw(instance, power_w, used_s, slot)
        sums.busy_gpu_s[pool, slot] += gpus * used_s
        started, kind, last = True, new, slot
    if finish_s is None:
        finish_s = instance.horizon_s + _after(instance, job, table, left, sums)
    if job.deadline_s is not None and finish_s > job.deadline_s * (1 + ROUNDING):
        sums.faults.append(
            f"job '{job.name}' ends at {finish_s:.10g} s, its deadline is {job.deadline_s:.10g}"
        )
    sums.weighted_completion_s += job.weight * (finish_s - job.arrival_s)


def _after(
    instance: ShiftingInstance, job: ShiftingJob, table: OptionTable, left: float, sums: _Sums
) -> float:
    """Seconds after the horizon that an unfinished job is charged: at its fastest, without a restart."""
    rate = table.rate
    assert rate is not None
    if job.must_finish:
        sums.faults.append(f"job '{job.name}' does not end within the horizon")
    fitting = [row for row, g in enumerate(table.gpus) if g <= instance.pools[table.pool[row]].gpus]
    fastest = min(fitting, key=lambda row: (-rate[row], table.power_w[row], row))
    seconds = left / rate[fastest]
    sums.unfinished += 1
    sums.draw(instance, table.power_w[fastest], seconds, None)
    return seconds


def _slots(
    instance: ShiftingInstance,
    job: ShiftingJob,
    table: OptionTable,
    schedule: Schedule | None,
    faults: list[str],
) -> dict[int, int]:
    """Row of the job's table in every slot in which it runs; runs that make no sense are left out."""
    rows: dict[int, int] = {}
    for run in () if schedule is None else schedule.runs:
        name = f"job '{job.name}': run from slot {run.first_slot}"
        row = _row(table, run)
        end = run.first_slot + run.slots
        if row is None:
            faults.append(f"{name}: no row of its table has these settings")
        elif end > instance.slots:
            faults.append(f"{name}: reaches slot {end - 1}, the horizon has {instance.slots} slots")
        elif run.first_slot * instance.slot_s < job.arrival_s * (1 - ROUNDING):
            faults.append(f"{name}: begins before the job arrives at {job.arrival_s:g} s")
        elif any(slot in rows for slot in range(run.first_slot, end)):
            faults.append(f"{name}: overlaps another run of the job")
        else:
            rows |= dict.fromkeys(range(run.first_slot, end), row)
    return rows


def _row(table: OptionTable, run: Run) -> int | None:
    """Row with the settings of a run."""
    asked = (run.gpus, run.pool, run.frequency_mhz, run.power_limit_w, run.batch_size)
    columns = (table.gpus, table.pool, table.frequency_mhz, table.power_limit_w, table.batch_size)
    for row in range(len(table.gpus)):
        if all(a == (None if c is None else c[row]) for a, c in zip(asked, columns, strict=True)):
            return row
    return None


def _forecast(instance: ShiftingInstance, name: str, slot: int | None) -> float:
    """Forecast of a slot, its average over the horizon for None, 0 without a forecast."""
    values: list[float] | None = getattr(instance, name)
    if values is None:
        return 0.0
    if slot is None:
        return math.fsum(values[: instance.slots]) / instance.slots
    return values[slot]
