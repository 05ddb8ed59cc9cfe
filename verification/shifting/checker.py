"""Checking a decision of a shifting problem; shares no code with formulations and solvers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from wattsched.instances.shifting.decision import Plan, Run, Schedule
from wattsched.instances.shifting.forecasts import by_slot
from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.verification.report import ROUNDING, TOLERANCE, Report, budget_faults, exceeds, pairing_faults

CRITERIA = {"mean-completion": "completion_s", "carbon": "carbon_g", "energy": "energy_j", "money": "money"}
"""Objective to the row of its budget."""

BUDGETS = {
    "completion_s": "average_completion_s",
    "carbon_g": "carbon_g",
    "energy_j": "energy_j",
    "money": "money",
}
"""Row to the field of its budget, which is the name of its total, too."""

TOTALS = {name: BUDGETS[row] for name, row in CRITERIA.items()}
"""Objective to the name of its budget and total."""


def per_joule(instance: ShiftingInstance) -> dict[str, FloatArray]:
    """Joules, grams and money of a joule: in every slot and, last, after it, on average over time."""
    found = {"energy_j": np.ones(instance.slots)}
    if instance.carbon_g_per_kwh is not None:
        found["carbon_g"] = np.array(instance.carbon_g_per_kwh[: instance.slots]) / J_PER_KWH
    if instance.price_per_kwh is not None:
        found["money"] = np.array(instance.price_per_kwh[: instance.slots]) / J_PER_KWH
    part = instance.lengths_s / instance.horizon_s
    return {name: np.append(line, line @ part) for name, line in found.items()}


def standing_of(instance: ShiftingInstance) -> dict[str, float]:
    """Return the joules, grams and money of all GPUs if they are idle throughout."""
    joules = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values()) * instance.lengths_s
    return {name: float(line[:-1] @ joules) for name, line in per_joule(instance).items()}


def caps_of(instance: ShiftingInstance) -> dict[str, tuple[list[str], FloatArray, float]]:
    """Power caps by name: the pools whose GPUs draw under each, watts by slot, and those of idle GPUs."""
    found = {} if instance.power_w is None else {"power_w": ([*instance.pools], instance.power_w)}
    found |= {
        f"power_w:{name}": ([*dict.fromkeys(one.pools)], one.power_w)
        for name, one in instance.power_domains.items()
    }
    return {
        name: (
            pools,
            by_slot(watts, instance.slots),
            sum(instance.pools[pool].gpus * instance.pools[pool].idle_power_w for pool in pools),
        )
        for name, (pools, watts) in found.items()
    }


def first_slot(job: ShiftingJob, begin_s: Sequence[float] | FloatArray) -> int:
    """First slot that a job may run in, by the begin of every slot."""
    return int(np.searchsorted(begin_s, job.arrival_s * (1 - ROUNDING)))


def most_left(instance: ShiftingInstance, job: ShiftingJob, begin_s: Sequence[float] | FloatArray) -> float:
    """Work that a job may have left at the end of the horizon, by the begin of every slot and that end."""
    if job.must_finish:
        return 0.0
    if job.least_progress == 0:
        return math.inf
    table, held = instance.table_of(job), job.current
    assert table.rate is not None, "instances whose tables give completion times are refused"
    rows = fitting_rows(instance, table)
    batch = [None] * len(table.gpus) if table.batch_size is None else table.batch_size
    same = [
        row
        for row in rows
        if held is not None
        and (table.gpus[row], table.pool[row], batch[row]) == (held.gpus, held.pool, held.batch_size)
    ]
    able_s = float(begin_s[-1] - begin_s[first_slot(job, begin_s)])
    return job.remaining_work - job.least_progress * max(table.rate[row] for row in same or rows) * able_s


def fitting_rows(instance: ShiftingInstance, table: OptionTable) -> list[int]:
    """Rows of a table that fit into their pools."""
    return [row for row, gpus in enumerate(table.gpus) if gpus <= instance.pools[table.pool[row]].gpus]


def after_horizon(instance: ShiftingInstance, table: OptionTable) -> tuple[float, float]:
    """Rate (work per second) and watts of unfinished jobs, which run on at their fastest, then thriftiest."""
    assert table.rate is not None, "instances whose tables give completion times are refused"
    rate, power_w = table.rate, table.power_w
    fastest = min(fitting_rows(instance, table), key=lambda row: (-rate[row], power_w[row], row))
    return rate[fastest], power_w[fastest]


@dataclass
class _Sums:
    """Totals of the jobs: ``joules`` by slot and, last, after the horizon, GPUs by pool and slot.

    `extra_w` is what they draw above idle GPUs, by pool and slot, at its most. Slots begin at `begin_s`, and
    last for `slot_s`.
    """

    slot_s: list[float]
    begin_s: list[float]
    joules: FloatArray
    held: dict[str, IntArray]
    busy_gpu_s: dict[str, FloatArray]  # less than held in slots in which jobs end
    extra_w: dict[str, FloatArray]
    faults: list[str] = field(default_factory=list)
    weighted_completion_s: float = 0.0
    restarts: int = 0
    unfinished: int = 0


def check(instance: ShiftingInstance, decision: Plan) -> Report:
    """Check a decision against an instance without faults.

    The totals are ``average_completion_s``, ``energy_j``, ``carbon_g`` and ``money`` (with a forecast),
    ``unfinished`` jobs and ``restarts``.
    """
    sums = _sums_of(instance, decision)
    for name, (pools, cap_w, idle_w) in caps_of(instance).items():
        drawn_w = idle_w + np.sum([sums.extra_w[pool] for pool in pools], axis=0)
        sums.faults += [
            f"slot {slot}: {drawn_w[slot]:.10g} W are drawn under the cap {name} of {cap_w[slot]:.10g} W"
            for slot in np.flatnonzero(drawn_w > cap_w * (1 + ROUNDING))
        ]
    weights = sum(job.weight for job in instance.jobs)
    totals = {"average_completion_s": sums.weighted_completion_s / weights if weights else 0.0}
    totals |= {name: float(line @ sums.joules) for name, line in per_joule(instance).items()}
    totals |= {"unfinished": sums.unfinished, "restarts": sums.restarts}
    sums.faults += budget_faults(instance.budgets, totals, TOLERANCE)
    criterion = CRITERIA.get(instance.objective, "")
    return Report(sums.faults, totals.get(BUDGETS.get(criterion, "")), totals)


def draw_of(instance: ShiftingInstance, decision: Plan) -> tuple[FloatArray, FloatArray]:
    """Return the most watts that all GPUs draw in each slot, as caps count them, and their joules in it."""
    sums = _sums_of(instance, decision)
    idle_w = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values())
    return idle_w + np.sum([*sums.extra_w.values()], axis=0), sums.joules[:-1]


def _sums_of(instance: ShiftingInstance, decision: Plan) -> _Sums:
    """Follow all jobs through their slots, and find what is wrong with jobs and GPUs."""
    sums = _Sums(
        slot_s=instance.lengths_s.tolist(),
        begin_s=instance.begin_s.tolist(),
        joules=np.zeros(instance.slots + 1),
        held={name: np.zeros(instance.slots, dtype=np.int64) for name in instance.pools},
        busy_gpu_s={name: np.zeros(instance.slots) for name in instance.pools},
        extra_w={name: np.zeros(instance.slots) for name in instance.pools},
    )
    known = {job.name for job in instance.jobs}
    sums.faults += pairing_faults(known, (schedule.job for schedule in decision.jobs), decision.waiting)
    schedules = {schedule.job: schedule for schedule in decision.jobs}
    for job in instance.jobs:
        _follow(instance, job, schedules.get(job.name), sums)
    for name, pool in instance.pools.items():
        for slot in np.flatnonzero(sums.held[name] > pool.gpus):
            held = sums.held[name][slot]
            sums.faults.append(f"slot {slot}: {held} GPUs of pool '{name}' are used, it has {pool.gpus}")
        sums.joules[:-1] += pool.idle_power_w * (pool.gpus * instance.lengths_s - sums.busy_gpu_s[name])
    return sums


def _follow(instance: ShiftingInstance, job: ShiftingJob, schedule: Schedule | None, sums: _Sums) -> None:
    """Run one job through its slots, and add what it draws, holds and does wrong to the sums."""
    table, who = instance.table_of(job), f"job '{job.name}'"
    assert table.rate is not None, "instances whose tables give completion times are refused"
    held = job.current
    kind = None if held is None else (held.gpus, held.pool, held.batch_size)
    started, left, last, finish_s = job.has_run or held is not None, job.remaining_work, -1, None
    row_of_slot, faults = _slots(job, table, schedule, sums.begin_s)
    sums.faults += faults
    for slot, row in sorted(row_of_slot.items()):
        gpus, pool, power_w, rate = table.gpus[row], table.pool[row], table.power_w[row], table.rate[row]
        sums.held[pool][slot] += gpus
        sums.extra_w[pool][slot] += power_w - gpus * instance.pools[pool].idle_power_w
        if finish_s is not None:
            sums.faults.append(f"{who} holds GPUs in slot {slot}, but it ends at {finish_s:.6g} s")
            continue
        new = (gpus, pool, None if table.batch_size is None else table.batch_size[row])
        restarts = started and (new != kind or slot != last + 1)
        lost_s = job.restart_s if restarts else 0.0
        slot_s, begin_s = sums.slot_s[slot], sums.begin_s[slot]
        if lost_s >= slot_s:
            sums.faults.append(f"{who} restarts in slot {slot}, whose {slot_s:.6g} s are too short for it")
        able, used_s = rate * (slot_s - lost_s), slot_s
        if left <= able + ROUNDING * rate * slot_s:
            used_s = lost_s + min(left, able) / rate
            finish_s = begin_s + used_s
        left -= able
        sums.joules[slot] += power_w * used_s
        sums.busy_gpu_s[pool][slot] += gpus * used_s
        sums.restarts += restarts
        started, kind, last = True, new, slot
    if finish_s is None:
        if job.must_finish:
            sums.faults.append(f"{who} does not end within the horizon")
        elif left > (most := most_left(instance, job, sums.begin_s)) + ROUNDING * job.remaining_work:
            told = f"{who} has {left:.10g} of its work left, and may have at most {most:.10g}"
            sums.faults.append(told)
        rate, power_w = after_horizon(instance, table)
        finish_s = sums.begin_s[-1] + left / rate
        sums.unfinished += 1
        sums.joules[-1] += power_w * (left / rate)
    if job.deadline_s is not None and exceeds(finish_s, job.deadline_s, ROUNDING):
        sums.faults.append(f"{who} ends at {finish_s:.10g} s, its deadline is {job.deadline_s:.10g}")
    sums.weighted_completion_s += job.weight * (finish_s - job.arrival_s)


def _slots(
    job: ShiftingJob, table: OptionTable, schedule: Schedule | None, begin_s: Sequence[float]
) -> tuple[dict[int, int], list[str]]:
    """Return the row of the job's table in every slot in which it runs, and the faults of runs left out."""
    rows: dict[int, int] = {}
    faults, slots = [], len(begin_s) - 1
    for run in () if schedule is None else schedule.runs:
        name = f"job '{job.name}': run from slot {run.first_slot}"
        row, end = _row(table, run), run.first_slot + run.slots
        if row is None:
            faults.append(f"{name}: no row of its table has these settings")
        elif end > slots:
            faults.append(f"{name}: reaches slot {end - 1}, the horizon has {slots} slots")
        elif begin_s[run.first_slot] < job.arrival_s * (1 - ROUNDING):
            faults.append(f"{name}: begins before the job arrives at {job.arrival_s:g} s")
        elif any(slot in rows for slot in range(run.first_slot, end)):
            faults.append(f"{name}: overlaps another run of the job")
        else:
            rows |= dict.fromkeys(range(run.first_slot, end), row)
    return rows, faults


def _row(table: OptionTable, run: Run) -> int | None:
    """Row of a table with the settings of a run; None without one."""
    settings = (run.gpus, run.pool, run.frequency_mhz, run.power_limit_w, run.batch_size)
    columns = (table.gpus, table.pool, table.frequency_mhz, table.power_limit_w, table.batch_size)
    for row in range(len(table.gpus)):
        if all(a == (None if c is None else c[row]) for a, c in zip(settings, columns, strict=True)):
            return row
    return None
