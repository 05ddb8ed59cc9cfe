"""Rules that give jobs the GPUs that their users asked for: `fifo`, `srtf` and `tiresias-2dlas`.

``fifo``
    The default of Kubernetes: first in, first out; the head of the line blocks, no job is ever stopped or
    moved.
``srtf``
    Shortest remaining time first, with preemption, by the time on the GPUs asked for.
``tiresias-2dlas``
    Least attained service in two dimensions, GPUs and time (Gu et al., NSDI 2019). Discretised: a job whose
    GPU seconds are below the threshold is in the first queue, any other in the second; within a queue the
    order is that of the first start, or of arrival.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from wattsched.formulations.sharing.rules import fifo
from wattsched.formulations.sizing.configurations import WAIT, Configurations
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.topology.arrays import IntArray

THRESHOLD_GPU_S = 3600.0
"""One GPU hour, as in the first author's simulator of Tiresias."""


class FreeGpus:
    """Free GPUs of every pool by the level of the blocks they lie in (`topology.buddy`)."""

    def __init__(self, configurations: Configurations, free: Iterable[IntArray]) -> None:
        self._configurations = configurations
        self._free = [levels.copy() for levels in free]

    @classmethod
    def now(cls, state: State) -> FreeGpus:
        """What the running jobs leave where they are."""
        return cls(state.configurations, (pool.occupancy.free_gpus for pool in state.pools))

    @classmethod
    def whole(cls, state: State) -> FreeGpus:
        """Everything, as if no job ran."""
        return cls(state.configurations, state.trace.free_gpus)

    def take(self, rows: IntArray) -> int:
        """Reserve room for the first of these rows that fits, fastest first; -1 when none does."""
        known = rows[rows != WAIT]
        return self.take_first(known[np.argsort(-self._configurations.rate[known], kind="stable")])

    def take_first(self, rows: IntArray) -> int:
        """Reserve room for the first of these rows that fits; -1 when none does."""
        of = self._configurations
        for row in rows.tolist():
            free, block = self._free[of.pool[row]], int(of.block[row])
            level = block.bit_length() - 1
            if level < len(free) and np.all(free[: level + 1] >= block):
                free[: level + 1] -= block
                return int(row)
        return WAIT


class Fifo:
    """Starts jobs in the order of arrival until one does not fit."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.pod_s

    def decide(self, state: State) -> Decision:
        """Let the head of the line start as long as it finds a free block."""
        room, row = FreeGpus.now(state), state.row.copy()

        def start(job: int) -> bool:
            row[job] = room.take(state.request[job])
            return bool(row[job] != WAIT)

        fifo(np.flatnonzero(state.waits).tolist(), start)
        return Decision(row)


def serve(state: State, order: Iterable[int]) -> IntArray:
    """Rows when jobs get what they asked for in this order, one that does not fit being passed over.

    A job that runs stays in its pool when it is served.
    """
    room = FreeGpus.whole(state)
    row = np.full(len(state), WAIT, dtype=np.int64)
    for j in order:
        row[j] = room.take(state.row[j : j + 1])
        if row[j] == WAIT:
            row[j] = room.take(state.request[j])
    return row


class Srtf:
    """Serves jobs by the time that they would still take."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s

    def decide(self, state: State) -> Decision:
        """Let the shortest jobs run."""
        remaining_s = state.remaining / state.trace.requested_rate[state.jobs]
        return Decision(serve(state, np.argsort(remaining_s, kind="stable").tolist()))


class Tiresias:
    """Serves the queues one after the other, with preemption."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s

    def decide(self, state: State) -> Decision:
        """Serve the first queue, then the second; decide again when a job changes queues."""
        demoted = state.served_gpu_s >= THRESHOLD_GPU_S * (1 - 1e-9)
        row = serve(state, np.argsort(demoted, kind="stable").tolist())
        gpus = np.where(row == WAIT, 0, state.configurations.gpus[row])
        rising = (gpus > 0) & ~demoted
        left_s = (THRESHOLD_GPU_S - state.served_gpu_s[rising]) / gpus[rising]
        return Decision(row, again_s=state.time_s + float(np.min(left_s, initial=np.inf)))
