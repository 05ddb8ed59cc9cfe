"""Jobs that share what dynamic programming needs: a table, a restart time, and nearly their size."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.formulations.program import BoolArray, FloatArray, IntArray
from wattsched.formulations.shifting.horizon import NEVER, Horizon

RAN, NEVER_RAN = -2, -1
"""States of a job that runs nothing: it ran before, or its next start is free. They are the last ones."""


@dataclass(frozen=True)
class JobGroup:
    """Jobs of one table and restart time; those of one *row* also share weight and deadline.

    Attributes
    ----------
    option : int array, shape (n_options,)
        Options of the table, by kind.
    kind : int array, shape (n_options,)
        Kinds numbered within the group, ascending.
    restart_s : float
    job, row, kind_before : int arrays, shape (n_jobs,)
        `kind_before` is `RAN` or `NEVER_RAN` for jobs that hold nothing before their first slot.
    share, deadline_s : float arrays, shape (n_rows,)
    must_finish : bool array, shape (n_rows,)
    """

    option: IntArray
    kind: IntArray
    restart_s: float
    job: IntArray
    row: IntArray
    kind_before: IntArray
    share: FloatArray
    deadline_s: FloatArray
    must_finish: BoolArray

    @property
    def n_kinds(self) -> int:
        """Number of kinds."""
        return int(self.kind[-1]) + 1

    @property
    def n_rows(self) -> int:
        """Number of rows."""
        return len(self.share)

    def only(self, job: int) -> JobGroup:
        """Group of one of the jobs."""
        at = int(np.flatnonzero(self.job == job)[0])
        row = slice(int(self.row[at]), int(self.row[at]) + 1)
        return replace(
            self,
            job=self.job[at : at + 1],
            row=np.zeros(1, dtype=np.int64),
            kind_before=self.kind_before[at : at + 1],
            share=self.share[row],
            deadline_s=self.deadline_s[row],
            must_finish=self.must_finish[row],
        )


def groups_of(horizon: Horizon, sizes: float) -> list[JobGroup]:
    """Put the jobs into groups, in which the work of two jobs has a ratio of at most `sizes`."""
    if not horizon.n_jobs:
        return []
    size = np.floor(np.log(horizon.work) / np.log(sizes))
    keys = np.column_stack([horizon.table, horizon.restart_s, size])
    _, of_job = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(of_job.ravel(), kind="stable")
    cuts = np.flatnonzero(np.diff(of_job.ravel()[order])) + 1
    return [_group(horizon, jobs) for jobs in np.split(order, cuts)]


def _group(horizon: Horizon, jobs: IntArray) -> JobGroup:
    option = horizon.options_of(int(jobs[0]))
    option = option[np.argsort(horizon.kind[option], kind="stable")]
    rows, row = np.unique(
        np.column_stack([horizon.share[jobs], horizon.deadline_s[jobs], horizon.must_finish[jobs]]),
        axis=0,
        return_inverse=True,
    )
    kinds, kind = np.unique(horizon.kind[option], return_inverse=True)
    held = np.searchsorted(kinds, horizon.kind_before[jobs])
    resting = np.where(horizon.ran_before[jobs], RAN, NEVER_RAN)
    return JobGroup(
        option=option,
        kind=kind.ravel().astype(np.int64),
        restart_s=float(horizon.restart_s[jobs[0]]),
        job=jobs,
        row=row.ravel().astype(np.int64),
        kind_before=np.where(horizon.kind_before[jobs] == NEVER, resting, held),
        share=rows[:, 0].copy(),
        deadline_s=rows[:, 1].copy(),
        must_finish=rows[:, 2] > 0,
    )
