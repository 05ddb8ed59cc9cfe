"""Schedules as columns: one option or a pause per slot, what they cost and use; and as decisions."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from itertools import groupby, product
from typing import Any

import numpy as np

from wattsched.formulations.master import ColumnPool
from wattsched.formulations.program import Entries
from wattsched.formulations.shifting.data import CRITERIA, NO_KIND, PAUSE, Horizon
from wattsched.formulations.tolerances import ROUNDING
from wattsched.instances.shifting.decision import Run, Schedule, ShiftingDecision
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, Table

MOST = 60_000
"""Schedules of all jobs up to which they are listed."""


@dataclass(frozen=True)
class Schedules(Table):
    """Schedules, each of one job; a job may have several.

    Attributes
    ----------
    job : int array, shape (n,)
    option : int array, shape (n, slots)
        By slot; `PAUSE` where the job does not run, and after it has ended.
    criteria : float array, shape (n, 4)
        Share in the mean completion time, and grams, joules and money that come on top of those of idle
        GPUs.
    finish_s : float array, shape (n,)
        End, after the horizon for unfinished jobs; infinite where the schedule breaks a deadline, leaves
        too much work, alone exceeds a cap, or restarts in too short a slot.
    """

    job: IntArray
    option: IntArray
    criteria: FloatArray
    finish_s: FloatArray

    def __len__(self) -> int:
        return len(self.job)

    def hashes(self) -> list[Hashable]:
        """Return a key of each schedule that tells it from the others."""
        rows = [row.tobytes() for row in self.option.astype(np.int32)]
        return list(zip(self.job.tolist(), rows, self.finish_s.tolist(), strict=True))


class SchedulePool(ColumnPool[Schedules]):
    """Keeps schedules that break no deadline."""

    def add(self, columns: Schedules) -> Schedules:
        """Keep those that are new, and return them."""
        return super().add(columns.take(np.flatnonzero(np.isfinite(columns.finish_s))))


def follow(horizon: Horizon, job: IntArray, option: IntArray) -> Schedules:
    """Return schedules with what they cost and when they end, by running jobs through their slots.

    Parameters
    ----------
    job : int array, shape (n,)
        Job of each schedule.
    option : int array, shape (n, slots)
        Option in each slot, or `PAUSE`; what comes after the job's end is dropped.
    """
    option = option.copy()
    left, restart_s = horizon.work[job].copy(), horizon.restart_s[job]
    kind, started = horizon.kind_before[job].copy(), horizon.ran_before[job].copy()
    finish_s, exceeds = np.full(len(job), np.inf), np.zeros(len(job), dtype=bool)
    spent = np.zeros((len(job), 3))
    last = -1
    for slot in np.flatnonzero((option != PAUSE).any(axis=0)).tolist():
        option[np.isfinite(finish_s), slot] = PAUSE
        pauses = option[:, slot] == PAUSE
        kind[pauses if slot == last + 1 else slice(None)] = NO_KIND
        runs, last = np.flatnonzero(~pauses), slot
        chosen, slot_s = option[runs, slot], float(horizon.slot_s[slot])
        lost_s = np.where(started[runs] & (kind[runs] != horizon.kind[chosen]), restart_s[runs], 0.0)
        able, ends, used_s, cannot = run_slot(slot_s, horizon.rate[chosen], lost_s, left[runs])
        exceeds[runs] |= ~horizon.fits[chosen, slot] | cannot
        spent[runs] += (horizon.extra_w[chosen] * used_s)[:, None] * horizon.per_joule[:, slot]
        finish_s[runs[ends]] = horizon.begin_s[slot] + used_s[ends]
        left[runs] -= able
        kind[runs], started[runs] = horizon.kind[chosen], True
    # Unfinished jobs go on at their fastest after the horizon.
    late = np.flatnonzero(~np.isfinite(finish_s))
    fastest = horizon.fastest[horizon.table[job[late]]]
    after_s = left[late] / horizon.rate[fastest]
    spent[late] += (horizon.power_w[fastest] * after_s)[:, None] * horizon.per_joule[:, -1]
    finish_s[late] = horizon.begin_s[-1] + after_s
    completion_s = horizon.share[job] * (finish_s - horizon.arrival_s[job])
    broken = exceeds | (finish_s > horizon.deadline_s[job] * (1 + ROUNDING))
    broken[late] |= horizon.must_finish[job[late]]
    broken[late] |= left[late] > (horizon.most_left + ROUNDING * horizon.work)[job[late]]
    finish_s = np.where(broken, np.inf, finish_s)
    return Schedules(job, option, np.column_stack([completion_s, spent]), finish_s)


def run_slot(
    slot_s: float | FloatArray, rate: FloatArray, lost_s: FloatArray, left: FloatArray
) -> tuple[FloatArray, BoolArray, FloatArray, BoolArray]:
    """Run options for a slot with work `left`, of which a restart loses `lost_s`; arrays are broadcast.

    Returns
    -------
    able : float array
        Work that the slot has time for.
    ends : bool array
        Whether that is all that is left, but for rounding.
    used_s : float array
        Seconds of the slot until the end, or the whole slot.
    cannot : bool array
        True where a restart would take all of the slot, or more.
    """
    cannot, lost_s = lost_s >= slot_s, np.minimum(lost_s, slot_s)
    able = rate * (slot_s - lost_s)
    ends = left <= able + ROUNDING * rate * slot_s
    return able, ends, np.where(ends, lost_s + np.minimum(left, able) / rate, slot_s), cannot


def least_of_jobs(job: IntArray, value: FloatArray) -> IntArray:
    """Position of the least value of each job that has one."""
    order = np.lexsort((value, job))
    _, first = np.unique(job[order], return_index=True)
    return order[first]


def never_run(horizon: Horizon, jobs: IntArray) -> Schedules:
    """Schedules in which jobs do nothing."""
    return follow(horizon, jobs, np.full((len(jobs), horizon.slots), PAUSE, dtype=np.int64))


def all_schedules(horizon: Horizon) -> Schedules | None:
    """Every schedule of every job, some of them more than once; None when there are too many."""
    choices = [[PAUSE, *horizon.options_of(job).tolist()] for job in range(horizon.n_jobs)]
    lengths = (horizon.slots - horizon.first_slot).tolist()
    counts = [len(some) ** length for some, length in zip(choices, lengths, strict=True)]
    if sum(counts) > MOST:
        return None
    option = np.full((sum(counts), horizon.slots), PAUSE, dtype=np.int64)
    ends = np.cumsum(counts)
    for some, length, count, end in zip(choices, lengths, counts, ends, strict=True):
        option[end - count : end, horizon.slots - length :] = list(product(some, repeat=length))
    return follow(horizon, np.repeat(np.arange(horizon.n_jobs), counts), option)


def held(horizon: Horizon, schedules: Schedules) -> tuple[IntArray, IntArray, FloatArray]:
    """Resources that schedules hold: number of the schedule, of the cell (resource by slot), and amount."""
    which, slot = np.nonzero(schedules.option != PAUSE)
    uses = horizon.uses[schedules.option[which, slot]]
    run, resource = np.nonzero(uses)
    return which[run], resource * horizon.slots + slot[run], uses[run, resource]


def use(horizon: Horizon, schedules: Schedules) -> FloatArray:
    """What all schedules together hold of each cell, shape (n_cells,)."""
    _, cell, amount = held(horizon, schedules)
    return np.bincount(cell, amount, horizon.n_cells).astype(float)


def fits(horizon: Horizon, decision: Schedules) -> bool:
    """True if schedules hold no more of any cell than there is."""
    return bool(np.all(use(horizon, decision) <= horizon.room))


def amounts(horizon: Horizon, decision: Schedules) -> FloatArray:
    """Criteria of a decision, those of idle GPUs included, shape (4,)."""
    return np.asarray(decision.criteria.sum(axis=0) + horizon.idle_use)


def is_valid(horizon: Horizon, decision: Schedules) -> bool:
    """True if schedules keep the budgets and end in time."""
    kept = np.all(amounts(horizon, decision) <= horizon.budget + ROUNDING * np.abs(horizon.budget))
    return bool(kept and np.isfinite(decision.finish_s).all())


def row_names(horizon: Horizon) -> list[str]:
    """Name of every cell, by resource and then slot, and of every budget with a limit."""
    cells = [f"{resource}@{slot}" for resource in horizon.resources for slot in range(horizon.slots)]
    return cells + [CRITERIA[which] for which in horizon.limited]


def limits_of(horizon: Horizon) -> dict[str, float]:
    """Budgets with a limit, by the names of their rows."""
    return {CRITERIA[which]: float(horizon.budget[which]) for which in horizon.limited}


def row_limits(horizon: Horizon) -> FloatArray:
    """Capacity of every cell, and what idle GPUs leave of every budget with a limit."""
    return np.concatenate([horizon.free_cells, (horizon.budget - horizon.idle_use)[horizon.limited]])


def add_uses(entries: Entries, horizon: Horizon, schedules: Schedules) -> None:
    """Add the entries of schedules, the first columns, in the rows of `row_names`, the first ones."""
    which, cell, amount = held(horizon, schedules)
    entries.add(cell, which, amount)
    rows = horizon.n_cells + np.arange(len(horizon.limited))
    entries.add(rows, np.arange(len(schedules))[:, None], schedules.criteria[:, horizon.limited])


@dataclass(frozen=True)
class Prices:
    """Prices that schedules are charged, never negative.

    Attributes
    ----------
    criteria : float array, shape (4,)
        Price of each criterion; the objective's is one more than that of its budget.
    cell : float array, shape (n_cells,)
        Price of a GPU or a watt in each cell; infinite where none is to be had.
    """

    criteria: FloatArray
    cell: FloatArray

    def per_joule(self, horizon: Horizon) -> FloatArray:
        """Price of a joule in every slot and, last, after the horizon, shape (slots + 1,)."""
        return np.asarray(self.criteria[1:] @ horizon.per_joule)

    def mixed(self, other: Prices, share: float) -> Prices:
        """Return `share` of these prices and the rest of others."""
        return Prices(
            share * self.criteria + (1 - share) * other.criteria,
            share * self.cell + (1 - share) * other.cell,
        )

    def of_budgets(self, objective: int) -> FloatArray:
        """Prices of the budgets alone, shape (4,)."""
        return np.asarray(self.criteria - (np.arange(len(CRITERIA)) == objective))

    def named(self, horizon: Horizon, objective: int) -> dict[str, float]:
        """Prices as derivatives of the objective, by row."""
        charged = np.concatenate([self.cell, self.of_budgets(objective)[horizon.limited]])
        return named_prices(horizon, -charged)


def prices_of(horizon: Horizon, objective: int, named: Mapping[str, float]) -> Prices:
    """Prices from derivatives of the objective by row, as `Prices.named` gives them."""
    charged = np.array([max(0.0, -named.get(name, 0.0)) for name in row_names(horizon)])
    criteria = np.zeros(len(CRITERIA))
    criteria[horizon.limited] = charged[horizon.n_cells :]
    criteria[objective] += 1.0
    return Prices(criteria, charged[: horizon.n_cells])


def priced_cost(horizon: Horizon, schedules: Schedules, prices: Prices) -> FloatArray:
    """Cost of schedules at prices, shape (n,); infinite for those that break a deadline."""
    which, cell, amount = held(horizon, schedules)
    held_cost = np.bincount(which, weights=amount * prices.cell[cell], minlength=len(schedules))
    cost = schedules.criteria @ prices.criteria + held_cost
    return np.where(np.isfinite(schedules.finish_s), cost, np.inf)


def lagrangian(horizon: Horizon, objective: int, schedules: Schedules, prices: Prices) -> float:
    """Bound that prices prove if each job's schedule here is its cheapest, without what idle GPUs add."""
    of_budgets = prices.of_budgets(objective)
    charged = of_budgets > 0
    charges = of_budgets[charged] @ (horizon.budget - horizon.idle_use)[charged]
    total = priced_cost(horizon, schedules, prices).sum()
    return float(total - charges - prices.cell @ horizon.free_cells)


def named_prices(horizon: Horizon, prices: FloatArray) -> dict[str, float]:
    """Prices of the rows of cells and budgets by their names, without those of the wrong sign."""
    return {name: float(y) for name, y in zip(row_names(horizon), prices, strict=True) if y < 0}


SETTINGS = ("gpus", "pool", "frequency_mhz", "power_limit_w", "batch_size")


def decision_of(horizon: Horizon, schedules: Schedules) -> ShiftingDecision:
    """Decision of one schedule per job."""
    running, waiting = [], []
    names = [job.name for job in horizon.instance.jobs]
    for position in np.argsort(schedules.job, kind="stable"):
        job = int(schedules.job[position])
        runs = _runs(horizon, job, schedules.option[position])
        if runs:
            running.append(Schedule(job=names[job], runs=runs))
        else:
            waiting.append(names[job])
    return ShiftingDecision(jobs=running, waiting=waiting)


def _runs(horizon: Horizon, job: int, option: IntArray) -> list[Run]:
    """Runs of a job's schedule, each of successive slots with the same option; `option` by slot."""
    runs, slot = [], 0
    for chosen, same in groupby(option.tolist()):
        length = len(list(same))
        if chosen != PAUSE:
            settings: dict[str, Any] = dict(zip(SETTINGS, _settings(horizon, job, chosen), strict=True))
            runs.append(Run(first_slot=slot, slots=length, **settings))
        slot += length
    return runs


def _settings(horizon: Horizon, job: int, option: int) -> tuple[object, ...]:
    """Settings of an option of a job, in the order of `SETTINGS`."""
    table, row = horizon.instance.table_of(horizon.instance.jobs[job]), horizon.row[option]
    columns = (getattr(table, name) for name in SETTINGS)
    return tuple(None if column is None else column[row] for column in columns)


def schedules_of(horizon: Horizon, decision: ShiftingDecision) -> Schedules | None:
    """One schedule per job, in the order of the jobs; None where the decision does not fit the instance."""
    number = {job.name: j for j, job in enumerate(horizon.instance.jobs)}
    option = np.full((horizon.n_jobs, horizon.slots), PAUSE, dtype=np.int64)
    for schedule in decision.jobs:
        if (job := number.get(schedule.job)) is None:
            return None
        options = {_settings(horizon, job, o): o for o in horizon.options_of(job).tolist()}
        for run in schedule.runs:
            chosen = options.get(tuple(getattr(run, name) for name in SETTINGS))
            end = run.first_slot + run.slots
            if chosen is None or end > horizon.slots or run.first_slot < horizon.first_slot[job]:
                return None
            option[job, run.first_slot : end] = chosen
    return follow(horizon, np.arange(horizon.n_jobs), option)
