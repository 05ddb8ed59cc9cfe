"""Jobs that share what dynamic programming needs: a table, a restart time, and a number of levels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wattsched.formulations.program import BoolArray, FloatArray, IntArray
from wattsched.formulations.shifting.horizon import NEVER, Horizon

RAN, NEVER_RAN = -2, -1
"""States of a job that runs nothing: it ran before, or its next start is free. They are the last ones."""
_LEVELS_PER_SLOT, _MOST_DOUBLINGS = 4, 3
"""Levels that the middle option does in a slot at least, if so many times twice the levels are enough."""


@dataclass(frozen=True)
class JobGroup:
    """Jobs of one table and restart time.

    Attributes
    ----------
    levels : int
        Of the work that is left of each job.
    option : int array, shape (n_options,)
        Options of the table, by kind.
    kind : int array, shape (n_options,)
        Kinds numbered within the group, ascending.
    restart_s : float
    job, first_slot, kind_before : int arrays, shape (n_jobs,)
        `kind_before` is `RAN` or `NEVER_RAN` for jobs that hold nothing before their first slot.
    work, share, deadline_s : float arrays, shape (n_jobs,)
    must_finish : bool array, shape (n_jobs,)
    """

    levels: int
    option: IntArray
    kind: IntArray
    restart_s: float
    job: IntArray
    first_slot: IntArray
    kind_before: IntArray
    work: FloatArray
    share: FloatArray
    deadline_s: FloatArray
    must_finish: BoolArray

    @property
    def n_kinds(self) -> int:
        """Number of kinds."""
        return int(self.kind[-1]) + 1

    @property
    def step(self) -> FloatArray:
        """Work between two levels, shape (n_jobs,)."""
        return self.work / self.levels

    def take(self, which: IntArray) -> JobGroup:
        """Some of the jobs."""
        return JobGroup(
            self.levels,
            self.option,
            self.kind,
            self.restart_s,
            *(getattr(self, name)[which] for name in ("job", "first_slot", "kind_before")),
            *(getattr(self, name)[which] for name in ("work", "share", "deadline_s", "must_finish")),
        )


def groups_of(horizon: Horizon, levels: int) -> list[JobGroup]:
    """Put the jobs into groups.

    Parameters
    ----------
    levels : int
        Of the work of a job that takes a few slots; twice, four or eight times as many where it takes more.
    """
    if not horizon.n_jobs:
        return []
    tables = pairwise(horizon.option_start)
    middle = np.array([np.median(horizon.rate[start:end]) for start, end in tables])
    needed = _LEVELS_PER_SLOT * horizon.work / (middle[horizon.table] * horizon.slot_s) / levels
    doubled = np.clip(np.ceil(np.log2(needed)), 0, _MOST_DOUBLINGS).astype(np.int64)
    keys = np.column_stack([horizon.table, horizon.restart_s, doubled])
    _, of_job = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(of_job.ravel(), kind="stable")
    cuts = np.flatnonzero(np.diff(of_job.ravel()[order])) + 1
    return [_group(horizon, jobs, levels << int(doubled[jobs[0]])) for jobs in np.split(order, cuts)]


def _group(horizon: Horizon, jobs: IntArray, levels: int) -> JobGroup:
    option = horizon.options_of(int(jobs[0]))
    option = option[np.argsort(horizon.kind[option], kind="stable")]
    kinds, kind = np.unique(horizon.kind[option], return_inverse=True)
    held = np.searchsorted(kinds, horizon.kind_before[jobs])
    resting = np.where(horizon.ran_before[jobs], RAN, NEVER_RAN)
    return JobGroup(
        levels=levels,
        option=option,
        kind=kind.ravel().astype(np.int64),
        restart_s=float(horizon.restart_s[jobs[0]]),
        job=jobs,
        first_slot=horizon.first_slot[jobs],
        kind_before=np.where(horizon.kind_before[jobs] == NEVER, resting, held),
        work=horizon.work[jobs],
        share=horizon.share[jobs],
        deadline_s=horizon.deadline_s[jobs],
        must_finish=horizon.must_finish[jobs],
    )
