"""Conversion of schedules to a decision and back."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import numpy as np

from wattsched.formulations.shifting.columns import Schedules, follow
from wattsched.formulations.shifting.data import PAUSE, Horizon
from wattsched.instances.shifting.decision import Run, Schedule, ShiftingDecision
from wattsched.topology.arrays import IntArray

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
