"""Schedules of jobs, one option or a pause per slot: what they cost, and to decisions and back.

Schedules found so far, each of them once.

All schedules of all jobs, where these are few.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby, product

import numpy as np

from wattsched.formulations.shifting.data import NEVER, PAUSE, Horizon
from wattsched.instances.shifting.decision import Run, Schedule, ShiftingDecision
from wattsched.topology.arrays import FloatArray, IntArray

ROUNDING = 1e-9
"""Work, relative to that of a slot, that counts as rounding."""


@dataclass(frozen=True)
class Schedules:
    """Schedules, each of one job; a job may have several.

    Attributes
    ----------
    job : int array, shape (n,)
    option : int array, shape (n, slots)
        `PAUSE` where the job does not run, and after it has ended.
    criteria : float array, shape (n, 4)
        Share in the average completion time, and grams, joules and money that come on top of those of idle
        GPUs.
    finish_s : float array, shape (n,)
        End, after the horizon for unfinished jobs; infinite where the schedule breaks a deadline or leaves
        a job unfinished that must finish.
    """

    job: IntArray
    option: IntArray
    criteria: FloatArray
    finish_s: FloatArray

    def __len__(self) -> int:
        return len(self.job)

    def take(self, which: IntArray) -> Schedules:
        """Some of them."""
        return Schedules(self.job[which], self.option[which], self.criteria[which], self.finish_s[which])

    @staticmethod
    def joined(parts: list[Schedules]) -> Schedules:
        """All of several."""
        return Schedules(
            *(np.concatenate([getattr(p, name) for p in parts]) for name in Schedules.__dataclass_fields__)
        )


def follow(horizon: Horizon, job: IntArray, option: IntArray) -> Schedules:
    """Run jobs through their slots.

    Parameters
    ----------
    job : int array, shape (n,)
    option : int array, shape (n, slots)

    Returns
    -------
    Schedules
        Without what comes after a job's end.
    """
    option = option.copy()
    left, restart_s = horizon.work[job].copy(), horizon.restart_s[job]
    kind, started = horizon.kind_before[job].copy(), horizon.ran_before[job].copy()
    finish_s = np.full(len(job), np.inf)
    spent = np.zeros((len(job), 3))
    for slot in range(horizon.slots):
        option[np.isfinite(finish_s), slot] = PAUSE
        runs = np.flatnonzero(option[:, slot] != PAUSE)
        kind[option[:, slot] == PAUSE] = NEVER
        chosen = option[runs, slot]
        lost_s = np.where(started[runs] & (kind[runs] != horizon.kind[chosen]), restart_s[runs], 0.0)
        able = horizon.rate[chosen] * (horizon.slot_s - lost_s)
        ends = left[runs] <= able + ROUNDING * horizon.rate[chosen] * horizon.slot_s
        used_s = np.where(ends, lost_s + np.minimum(left[runs], able) / horizon.rate[chosen], horizon.slot_s)
        spent[runs] += (horizon.extra_w[chosen] * used_s)[:, None] * horizon.per_joule[:, slot]
        finish_s[runs[ends]] = slot * horizon.slot_s + used_s[ends]
        left[runs] -= able
        kind[runs], started[runs] = horizon.kind[chosen], True
    late = np.flatnonzero(~np.isfinite(finish_s))
    fastest = horizon.fastest[horizon.table[job[late]]]
    after_s = left[late] / horizon.rate[fastest]
    spent[late] += (horizon.power_w[fastest] * after_s)[:, None] * horizon.per_joule[:, -1]
    finish_s[late] = horizon.slots * horizon.slot_s + after_s
    share = horizon.share[job] * (finish_s - horizon.arrival_s[job])
    broken = finish_s > horizon.deadline_s[job] * (1 + ROUNDING)
    broken[late] |= horizon.must_finish[job[late]]
    finish_s = np.where(broken, np.inf, finish_s)
    return Schedules(job, option, np.column_stack([share, spent]), finish_s)


def held_gpus(horizon: Horizon, schedules: Schedules) -> tuple[IntArray, IntArray, IntArray]:
    """GPUs that schedules hold: number of the schedule, of the cell (pool by slot), and of GPUs."""
    which, slot = np.nonzero(schedules.option != PAUSE)
    chosen = schedules.option[which, slot]
    return which, horizon.pool[chosen] * horizon.slots + slot, horizon.gpus[chosen]


def use(horizon: Horizon, schedules: Schedules) -> IntArray:
    """GPUs that all schedules hold together, shape (n_pools * slots,)."""
    _, cell, gpus = held_gpus(horizon, schedules)
    return np.bincount(cell, weights=gpus, minlength=horizon.n_pools * horizon.slots).astype(np.int64)


def free_cells(horizon: Horizon) -> IntArray:
    """GPUs of every cell, shape (n_pools * slots,)."""
    return np.repeat(horizon.capacity, horizon.slots)


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
    table = horizon.instance.table_of(horizon.instance.jobs[job])
    runs, slot = [], 0
    for chosen, same in groupby(option.tolist()):
        length = len(list(same))
        if chosen != PAUSE:
            row = int(horizon.row[chosen])
            runs.append(
                Run(
                    first_slot=slot,
                    slots=length,
                    gpus=table.gpus[row],
                    pool=table.pool[row],
                    frequency_mhz=None if table.frequency_mhz is None else table.frequency_mhz[row],
                    power_limit_w=None if table.power_limit_w is None else table.power_limit_w[row],
                    batch_size=None if table.batch_size is None else table.batch_size[row],
                )
            )
        slot += length
    return runs


def schedules_of(horizon: Horizon, decision: ShiftingDecision) -> Schedules | None:
    """One schedule per job, in the order of the jobs; None where the decision does not fit the instance."""
    number = {job.name: j for j, job in enumerate(horizon.instance.jobs)}
    option = np.full((horizon.n_jobs, horizon.slots), PAUSE, dtype=np.int64)
    for schedule in decision.jobs:
        if (job := number.get(schedule.job)) is None:
            return None
        settings = _settings(horizon, job)
        for run in schedule.runs:
            key = (run.gpus, run.pool, run.frequency_mhz, run.power_limit_w, run.batch_size)
            end = run.first_slot + run.slots
            if key not in settings or end > horizon.slots or run.first_slot < horizon.first_slot[job]:
                return None
            option[job, run.first_slot : end] = settings[key]
    return follow(horizon, np.arange(horizon.n_jobs), option)


def _settings(horizon: Horizon, job: int) -> dict[tuple[object, ...], int]:
    """Options of a job by their settings."""
    table = horizon.instance.table_of(horizon.instance.jobs[job])
    columns = (table.gpus, table.pool, table.frequency_mhz, table.power_limit_w, table.batch_size)
    options = horizon.options_of(job)
    return {
        tuple(None if c is None else c[horizon.row[option]] for c in columns): int(option)
        for option in options
    }


class SchedulePool:
    """Keeps schedules that break no deadline."""

    def __init__(self) -> None:
        self._number: dict[tuple[int, bytes], int] = {}
        self._parts: list[Schedules] = []

    def __len__(self) -> int:
        return len(self._number)

    def add(self, schedules: Schedules) -> Schedules:
        """Keep those that are new, and return them."""
        new = []
        for position, valid in enumerate(np.isfinite(schedules.finish_s).tolist()):
            key = _key(schedules, position)
            if valid and key not in self._number:
                self._number[key] = len(self._number)
                new.append(position)
        kept = schedules.take(np.array(new, dtype=np.int64))
        self._parts.append(kept)
        return kept

    def numbers(self, schedules: Schedules) -> IntArray | None:
        """Numbers of schedules in `all`, None when one is not there."""
        found = [self._number.get(_key(schedules, i)) for i in range(len(schedules))]
        return None if None in found else np.array(found, dtype=np.int64)

    def all(self) -> Schedules:
        """All of them, the oldest first."""
        self._parts = [Schedules.joined(self._parts)]
        return self._parts[0]


def _key(schedules: Schedules, position: int) -> tuple[int, bytes]:
    return int(schedules.job[position]), schedules.option[position].astype(np.int32).tobytes()


MOST = 60_000


def all_schedules(horizon: Horizon, most: int = MOST) -> Schedules | None:
    """Every schedule of every job, some of them more than once; None when there are too many."""
    counts = [
        float(len(horizon.options_of(job)) + 1) ** float(horizon.slots - horizon.first_slot[job])
        for job in range(horizon.n_jobs)
    ]
    if sum(counts) > most:
        return None
    jobs, options = [np.zeros(0, dtype=np.int64)], [np.zeros((0, horizon.slots), dtype=np.int64)]
    for job, count in enumerate(counts):
        first = int(horizon.first_slot[job])
        choices = [PAUSE, *horizon.options_of(job).tolist()]
        option = np.full((int(count), horizon.slots), PAUSE, dtype=np.int64)
        option[:, first:] = list(product(choices, repeat=horizon.slots - first))
        jobs.append(np.full(int(count), job))
        options.append(option)
    return follow(horizon, np.concatenate(jobs), np.concatenate(options))
