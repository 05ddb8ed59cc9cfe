"""Rules that give jobs the GPUs that their users asked for: `fifo`, `backfill`, `srtf` and `tiresias-2dlas`.

``fifo``
    The default of Kubernetes: first in, first out; the head of the line blocks, no job is ever stopped or
    moved.
``backfill``
    EASY backfilling, the default of many batch schedulers, Slurm's among them (Lifka 1995). Jobs start in the
    order of arrival. When the first that waits does not fit, it is promised the moment at which enough GPUs
    of a pool will be free, and later jobs may start as long as they do not break that promise: they end
    before, or use GPUs that will be left over. How long jobs take is what the replay tells of it.
``srtf``
    Shortest remaining time first, with preemption, by the time on the GPUs asked for.
``tiresias-2dlas``
    Least attained service in two dimensions, GPUs and time (Gu et al., NSDI 2019). Discretised: a job whose
    GPU seconds are below the threshold is in the first queue, any other in the second; within a queue the
    order is that of the first start, or of arrival.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np

from wattsched.formulations.sharing import rules
from wattsched.formulations.sizing.configurations import WAIT, Configurations
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.topology.arrays import FloatArray, IntArray, offsets

THRESHOLD_GPU_S = 3600.0
"""One GPU hour, as in the first author's simulator of Tiresias."""


class FreeGpus:
    """Free GPUs of every pool by the level of the blocks they lie in (`topology.buddy`), and free watts.

    Plain lists are faster here than arrays: levels are few.

    Parameters
    ----------
    free : iterable of int arrays
        Of each pool.
    state : State
        Its power caps count.
    drawn_w : float or float array
        What running jobs draw under each cap beyond idle GPUs.
    """

    def __init__(self, free: Iterable[IntArray], state: State, drawn_w: float | FloatArray = 0.0) -> None:
        self._free: list[list[int]] = [levels.tolist() for levels in free]
        self._room_w: list[float] = (state.room_w - drawn_w).tolist()
        self._caps_of = [state.caps.of_pool(pool) for pool in range(len(self._free))]
        self._extra_w = state.trace.extra_w

    @classmethod
    def now(cls, state: State) -> FreeGpus:
        """GPUs that the running jobs leave free where they are."""
        return cls((pool.occupancy.free_gpus for pool in state.pools), state, state.drawn_w(state.row))

    @classmethod
    def all(cls, state: State) -> FreeGpus:
        """GPUs of the cluster when no job runs."""
        return cls(state.trace.free_gpus, state)

    def fits(self, pool: int, block: int, held: int = 0, more_w: float = 0.0) -> bool:
        """True if a block may grow from `held` GPUs to `block`, and draw so much more."""
        free = self._free[pool]
        if block >> len(free) or any(self._room_w[cap] < more_w for cap in self._caps_of[pool]):
            return False
        for level in range(block.bit_length()):
            if free[level] < block - (held if 1 << level <= held else 0):
                return False
        return True

    def take(self, pool: int, block: int, held: int = 0, more_w: float = 0.0) -> None:
        """Let a block grow that fits."""
        free = self._free[pool]
        for cap in self._caps_of[pool]:
            self._room_w[cap] -= more_w
        for level in range(block.bit_length()):
            free[level] -= block - (held if 1 << level <= held else 0)

    def take_row(self, of: Configurations, rows: IntArray, *, in_order: bool = False) -> int:
        """Reserve room for the first of these rows that fits, fastest first or as they are; -1 for none."""
        known = rows[rows != WAIT]
        if not in_order:
            known = known[np.argsort(-of.rate[known], kind="stable")]
        for row in known.tolist():
            pool, block, more_w = int(of.pool[row]), int(of.block[row]), float(self._extra_w[row])
            if self.fits(pool, block, more_w=more_w):
                self.take(pool, block, more_w=more_w)
                return int(row)
        return WAIT


class Ruled:
    """A rule without memory as a policy, whose restarts are of processes inside their pods, or of pods."""

    def __init__(
        self, context: PolicyContext, rule: Callable[[State], Decision], *, pods: bool = False
    ) -> None:
        self.restart_s = context.restarts.pod_s if pods else context.restarts.process_s
        self.decide = rule


def start_in_order(state: State) -> Decision:
    """Let the head of the line start as long as it finds a free block."""
    room, row = FreeGpus.now(state), state.row.copy()

    def start(job: int) -> bool:
        row[job] = room.take_row(state.configurations, state.request[job])
        return bool(row[job] != WAIT)

    rules.fifo(np.flatnonzero(state.waits).tolist(), start)
    return Decision(row)


class Promise(NamedTuple):
    """Pool and time at which the first waiting job will start, and the GPUs and watts left then.

    The GPUs are those of the pool, the watts those of the caps over it; of other caps they are infinite.
    """

    pool: int
    in_s: float
    spare: int
    spare_w: FloatArray


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
        if row[job] != WAIT and _ends_s(state, np.array([job]), row[[job]])[0] > promise.in_s:
            gpus = int(of.block[row[job]]) if of.pool[row[job]] == promise.pool else 0
            left_w = promise.spare_w - state.drawn_w(row[[job]])
            promise = promise._replace(spare=promise.spare - gpus, spare_w=left_w)
    return Decision(row)


def promised(state: State, row: IntArray, job: int) -> Promise:
    """Earliest moment at which a pool has the GPUs and watts for a job, if all run in these rows."""
    of, trace, caps = state.configurations, state.trace, state.caps
    found = Promise(-1, np.inf, 0, np.full(len(caps.names), np.inf))
    for k in state.request[job].tolist():
        if k == WAIT:
            continue
        pool, asked = int(of.pool[k]), int(of.block[k])
        under = caps.of_pool(pool)
        runs = np.flatnonzero(row != WAIT)
        ends_s = _ends_s(state, runs, row[runs])
        order = np.argsort(ends_s, kind="stable")
        held = row[runs[order]]
        blocks = np.where(of.pool[held] == pool, of.block[held], 0)
        free = int(trace.available[pool] - blocks.sum()) + offsets(blocks)
        most_w = state.room_w[under] - state.drawn_w(row)[under]
        watts = caps.use_w(of.pool[held], trace.extra_w[held])[:, under]
        free_w = np.vstack([most_w, most_w + np.cumsum(watts, axis=0)])
        enough = np.flatnonzero((free >= asked) & np.all(free_w >= trace.extra_w[k], axis=1))
        if not len(enough):
            continue
        in_s = float(np.append(0.0, ends_s[order])[enough[0]])
        if in_s < found.in_s:
            spare_w = np.full(len(caps.names), np.inf)
            spare_w[under] = free_w[enough[0]] - trace.extra_w[k]
            found = Promise(pool, in_s, int(free[enough[0]]) - asked, spare_w)
    return found


def _keeps(state: State, job: int, k: int, promise: Promise) -> bool:
    """True if a job that starts now in a row leaves the promise as it is."""
    of = state.configurations
    gpus = of.pool[k] != promise.pool or of.block[k] <= promise.spare
    if gpus and np.all(state.drawn_w(np.array([k])) <= promise.spare_w):
        return True
    return bool(_ends_s(state, np.array([job]), np.array([k]))[0] <= promise.in_s)


def _ends_s(state: State, jobs: IntArray, rows: IntArray) -> FloatArray:
    """Seconds until jobs that run, or start now, end."""
    return np.asarray(state.remaining[jobs] / state.configurations.rate[rows] + state.delay_s(jobs, rows))


def serve(state: State, order: Iterable[int]) -> IntArray:
    """Rows when jobs get what they asked for in this order, one that does not fit being passed over.

    A job that runs stays in its pool when it is served.
    """
    room, of = FreeGpus.all(state), state.configurations
    row = np.full(len(state), WAIT, dtype=np.int64)
    for j in order:
        row[j] = room.take_row(of, state.row[j : j + 1])
        if row[j] == WAIT:
            row[j] = room.take_row(of, state.request[j])
    return row


def serve_shortest(state: State) -> Decision:
    """Let those jobs run that would still take least time."""
    remaining_s = state.remaining / state.trace.requested_rate[state.jobs]
    return Decision(serve(state, np.argsort(remaining_s, kind="stable").tolist()))


def serve_queues(state: State) -> Decision:
    """Serve the first queue, then the second; decide again when a job changes queues."""
    demoted = state.served_gpu_s >= THRESHOLD_GPU_S * (1 - 1e-9)
    row = serve(state, np.argsort(demoted, kind="stable").tolist())
    gpus = np.where(row == WAIT, 0, state.configurations.gpus[row])
    rising = (gpus > 0) & ~demoted
    left_s = (THRESHOLD_GPU_S - state.served_gpu_s[rising]) / gpus[rising]
    return Decision(row, again_s=state.time_s + float(np.min(left_s, initial=np.inf)))


fifo = partial(Ruled, rule=start_in_order, pods=True)
backfill = partial(Ruled, rule=start_around_promise, pods=True)
srtf = partial(Ruled, rule=serve_shortest)
tiresias = partial(Ruled, rule=serve_queues)
