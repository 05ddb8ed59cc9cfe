"""Fragments against a count GPU by GPU, and their integral by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from tests.strategies.replay import cluster_of, linear, trace_by_hand, traces
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.pools import PoolState, fragments
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace


def free_for(pool: PoolState, size: int) -> int:
    """Free GPUs in free aligned blocks of a size, that lie inside one of the pool's blocks."""
    free = pool.pool.available.copy()
    for block in pool.blocks.values():
        free[block.start : block.start + block.size] = False
    return sum(
        size * bool(free[start : start + size].all())
        for first, length in pool.pool.blocks.tolist()
        for start in range(first, first + length - size + 1, size)
    )


@given(traces())
def test_fragments_one_by_one(trace: Trace) -> None:
    class Watching:
        restart_s = 5.0

        def __init__(self) -> None:
            self._policy = policy_of("srtf", PolicyContext(trace))

        def decide(self, state: State) -> Decision:
            found, fragmented = fragments(trace, state.pools)
            free = sum(free_for(pool, 1) for pool in state.pools)
            sizes = [1 << (int(gpus) - 1).bit_length() for gpus in trace.requested_gpus]
            usable = np.mean([sum(free_for(pool, size) for pool in state.pools) for size in sizes])
            assert found == free
            assert fragmented == pytest.approx(free - usable)
            assert 0 <= fragmented <= found
            return self._policy.decide(state)

    outcome = simulate(trace, Watching())
    assert outcome.rounds.fragmentation[-1] <= 1


def test_integral_by_hand() -> None:
    """Of four GPUs, job a leaves one and a block of two for 40 s; then job b holds the block for 20 s."""
    trace = trace_by_hand(cluster_of(4), (0.0, 100.0, 1, {1: 1.0}), (40.0, 40.0, 2, linear(2)))
    outcome = simulate(trace, policy_of("fifo", PolicyContext(trace)))
    assert outcome.jobs.end_s.tolist() == pytest.approx([100.0, 60.0])
    assert outcome.meter.free_gpu_s == pytest.approx(40 * 3 + 20 * 1 + 40 * 3)
    # Half of the jobs need a block of two; one GPU is of no use to them at any time.
    assert outcome.meter.fragment_gpu_s == pytest.approx(100 * 0.5)
    assert outcome.meter.fragmentation == pytest.approx(50 / 260)
    assert outcome.rounds.fragmentation == pytest.approx([0.5 / 3, 0.5, 0.5 / 3])
