"""Every decision of a tiny shifting instance, one by one, with no code of the package."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from wattsched.instances.shifting.decision import Run, Schedule, ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob

WHICH = {"mean-completion": 0, "carbon": 1, "energy": 2, "money": 3}


def optimum(instance: ShiftingInstance) -> float | None:
    """Best objective of any decision, None when there is none."""
    which = WHICH[instance.objective]
    return min((sums[which] for sums in outcomes(instance)), default=None)


def outcomes(instance: ShiftingInstance) -> Iterator[list[float]]:
    """Average completion, grams, joules and money of every decision within the budgets."""
    idle = _idle(instance)
    limits = [
        instance.budgets.average_completion_s,
        instance.budgets.carbon_g,
        instance.budgets.energy_j,
        instance.budgets.money,
    ]
    plans = [_plans(instance, job) for job in instance.jobs]
    for chosen in product(*plans):
        held: dict[tuple[str, int], int] = {}
        for cells, _ in chosen:
            for cell, gpus in cells:
                held[cell] = held.get(cell, 0) + gpus
        if any(gpus > instance.pools[pool].gpus for (pool, _), gpus in held.items()):
            continue
        sums = [idle[i] + sum(values[i] for _, values in chosen) for i in range(4)]
        if not any(limit is not None and sums[i] > limit * (1 + 1e-9) for i, limit in enumerate(limits)):
            yield sums


def lengths(instance: ShiftingInstance) -> list[float]:
    """Seconds of each slot."""
    each = instance.slot_s if isinstance(instance.slot_s, list) else [instance.slot_s] * instance.slots
    return each[: instance.slots]


def _idle(instance: ShiftingInstance) -> list[float]:
    watts = sum(pool.gpus * pool.idle_power_w for pool in instance.pools.values())
    joules = [watts * seconds for seconds in lengths(instance)]
    return [0.0, *_amounts(instance, joules, 0.0)]


def _amounts(instance: ShiftingInstance, joules: list[float], after: float) -> list[float]:
    """Grams, joules and money of joules by slot and after the horizon."""
    result = []
    for forecast in (instance.carbon_g_per_kwh, None, instance.price_per_kwh):
        values = [3.6e6] * instance.slots if forecast is None else forecast
        values = [v / 3.6e6 for v in values[: instance.slots]]
        each = lengths(instance)
        mean = sum(v * seconds for v, seconds in zip(values, each, strict=True)) / sum(each)
        result.append(sum(v * j for v, j in zip(values, joules, strict=True)) + mean * after)
    return result


def _plans(instance: ShiftingInstance, job: ShiftingJob):
    """Outcomes of one job: cells with GPUs, and its four amounts."""
    weights = sum(other.weight for other in instance.jobs)
    return [
        (cells, [job.weight / weights * (finish - job.arrival_s), *amounts])
        for _, cells, finish, amounts in schedules(instance, job)
    ]


def schedules(instance: ShiftingInstance, job: ShiftingJob):
    """Valid schedules of a job: a row or None by slot, cells with GPUs, end, and grams, joules and money."""
    table = instance.table_of(job)
    rows = [r for r in range(len(table.gpus)) if table.gpus[r] <= instance.pools[table.pool[r]].gpus]
    for choice in product([None, *rows], repeat=instance.slots):
        outcome = _outcome(instance, job, table, rows, choice)
        if outcome is not None:
            yield choice, *outcome


def _outcome(instance, job, table, rows, choice):
    each = lengths(instance)
    left, ran, finish = job.remaining_work, job.has_run or job.current is not None, None
    previous = None if job.current is None else (job.current.gpus, job.current.pool, job.current.batch_size)
    joules, cells = [0.0] * instance.slots, []
    for slot, row in enumerate(choice):
        if row is None:
            previous = None
            continue
        slot_s, begin_s = each[slot], sum(each[:slot])
        if finish is not None or begin_s < job.arrival_s:
            return None
        batch = None if table.batch_size is None else table.batch_size[row]
        kind = (table.gpus[row], table.pool[row], batch)
        wasted = job.restart_s if ran and kind != previous else 0.0
        if wasted >= slot_s:
            return None
        needs = wasted + left / table.rate[row]
        used = min(slot_s, needs)
        if needs <= slot_s * (1 + 1e-9):
            finish = begin_s + used
        left = max(0.0, left - (used - wasted) * table.rate[row])
        idle_w = instance.pools[table.pool[row]].idle_power_w
        joules[slot] += used * (table.power_w[row] - table.gpus[row] * idle_w)
        cells.append(((table.pool[row], slot), table.gpus[row]))
        ran, previous = True, kind
    after = 0.0
    if finish is None:
        if job.must_finish:
            return None
        best = max(rows, key=lambda r: (table.rate[r], -table.power_w[r], -r))
        seconds = left / table.rate[best]
        finish, after = sum(each) + seconds, seconds * table.power_w[best]
    if job.deadline_s is not None and finish > job.deadline_s * (1 + 1e-9):
        return None
    return cells, finish, _amounts(instance, joules, after)


def decision_of(instance: ShiftingInstance, choices) -> ShiftingDecision:
    """Decision of a row (or None) per job and slot."""
    jobs, waiting = [], []
    for job, choice in zip(instance.jobs, choices, strict=True):
        table = instance.table_of(job)
        runs = [
            Run(
                first_slot=slot,
                slots=1,
                gpus=table.gpus[row],
                pool=table.pool[row],
                frequency_mhz=None if table.frequency_mhz is None else table.frequency_mhz[row],
                batch_size=None if table.batch_size is None else table.batch_size[row],
            )
            for slot, row in enumerate(choice)
            if row is not None
        ]
        if runs:
            jobs.append(Schedule(job=job.name, runs=runs))
        else:
            waiting.append(job.name)
    return ShiftingDecision(jobs=jobs, waiting=waiting)
