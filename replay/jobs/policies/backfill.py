"""EASY backfilling, the default of many batch schedulers, Slurm's among them (Lifka 1995).

Jobs start in the order of arrival. When the first that waits does not fit, it is promised the moment at which
enough GPUs of a pool will be free, and later jobs may start as long as they do not break that promise: they
end before, or use GPUs that will be left over. How long jobs take is known exactly here, where a scheduler
has the limits that users state.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.policies.requests import FreeGpus, Ruled
from wattsched.replay.jobs.policy import Decision, State
from wattsched.topology.arrays import FloatArray, IntArray


class Promise(NamedTuple):
    """Pool and time at which the first waiting job will start, and the GPUs of the pool left then."""

    pool: int
    in_s: float
    spare: int


def start_around_promise(state: State) -> Decision:
    """Start what fits until a job does not; then what keeps the promise to that one."""
    of, room, row = state.configurations, FreeGpus.now(state), state.row.copy()
    promise: Promise | None = None
    for job in np.flatnonzero(state.waits).tolist():
        if promise is None:
            row[job] = room.take_row(of, state.request[job])
            if row[job] == WAIT:
                promise = promised(state, row, job)
            continue
        kept = [k for k in state.request[job].tolist() if k != WAIT and _keeps(state, job, k, promise)]
        row[job] = room.take_row(of, np.array(kept, dtype=np.int64))
        beside = row[job] != WAIT and of.pool[row[job]] == promise.pool
        if beside and _ends_s(state, np.array([job]), row[[job]])[0] > promise.in_s:
            promise = promise._replace(spare=promise.spare - int(of.block[row[job]]))
    return Decision(row)


backfill = partial(Ruled, rule=start_around_promise, pods=True)


def promised(state: State, row: IntArray, job: int) -> Promise:
    """Earliest moment at which a pool has as many free GPUs as a job asks for there, the job being first.

    Parameters
    ----------
    row : int array, shape (n,)
        Configurations in which jobs run from now on.
    """
    of, found = state.configurations, Promise(-1, np.inf, 0)
    for k in state.request[job].tolist():
        if k == WAIT:
            continue
        pool, asked = int(of.pool[k]), int(of.block[k])
        runs = np.flatnonzero((row != WAIT) & (of.pool[row] == pool))
        blocks, ends_s = of.block[row[runs]], _ends_s(state, runs, row[runs])
        order = np.argsort(ends_s, kind="stable")
        free = int(state.trace.available[pool] - blocks.sum()) + np.append(0, np.cumsum(blocks[order]))
        enough = np.flatnonzero(free >= asked)
        if not len(enough):
            continue
        in_s = float(np.append(0.0, ends_s[order])[enough[0]])
        if in_s < found.in_s:
            found = Promise(pool, in_s, int(free[enough[0]]) - asked)
    return found


def _keeps(state: State, job: int, k: int, promise: Promise) -> bool:
    """True if a job that starts now in a row leaves the promise as it is."""
    of = state.configurations
    if of.pool[k] != promise.pool or of.block[k] <= promise.spare:
        return True
    return bool(_ends_s(state, np.array([job]), np.array([k]))[0] <= promise.in_s)


def _ends_s(state: State, jobs: IntArray, rows: IntArray) -> FloatArray:
    """Seconds until jobs that run, or start now, end."""
    return np.asarray(state.remaining[jobs] / state.configurations.rate[rows] + state.delay_s(jobs, rows))
