"""Replays: energy and work are conserved, no job is lost, no GPU used twice, under every policy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import (
    BASE_W,
    BUSY_W,
    IDLE_W,
    Scripted,
    cluster_of,
    every_policy,
    linear,
    trace_by_hand,
    traces,
)
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.accounts import Carbon, Sleep
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.requests import FreeGpus
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace

A_LIST: Any = [0, -1]
NO_NUMBER: Any = None
CARBON = Carbon(np.array([0.0, 300.0, 900.0]), np.array([200.0, 50.0, 400.0]))


class Watched:
    """A policy whose surroundings are checked whenever it is asked."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.restart_s = policy.restart_s

    def decide(self, state: State) -> Decision:
        """Check that blocks are disjoint, aligned, available, and those of the running jobs."""
        known = state.configurations
        guest = np.zeros(len(state), dtype=bool) if state.shared is None else state.shared >= 0
        for i in np.flatnonzero(guest).tolist():
            rows = state.row[[i, state.shared[i]]]
            assert not guest[state.shared[i]]
            assert rows[0] >= 0
            assert known.pool[rows[0]] == known.pool[rows[1]]
            assert known.gpus[rows[0]] == known.gpus[rows[1]]
        for p, pool in enumerate(state.pools):
            inside = (state.row >= 0) & (known.pool[state.row] == p) & ~guest
            assert set(pool.blocks) == set(state.jobs[inside].tolist())
            taken = ~pool.pool.available
            for job, row in zip(state.jobs[inside].tolist(), state.row[inside].tolist(), strict=True):
                block = pool.blocks[job]
                assert (block.gpus, block.size) == (known.gpus[row], known.block[row])
                assert block.start % block.size == 0
                where = slice(block.start, block.start + block.size)
                assert not taken[where].any()
                taken[where] = True
        assert np.all(state.remaining > 0)
        return self._policy.decide(state)


def replay(trace: Trace, name: str, round_s: float = 0.0, sleep: Sleep | None = None) -> Outcome:
    policy = policy_of(name, PolicyContext(trace, Restarts(5.0, 20.0), round_s))
    return simulate(trace, Watched(policy), name=name, round_s=round_s, carbon=CARBON, sleep=sleep)


@pytest.mark.parametrize("name", every_policy())
@pytest.mark.parametrize("nodes", [[(2,), (4,), (4, 4), (8, 8), (3, 3)], [(4, 2), (2, 8, 8)]])
@settings(max_examples=examples(10))
@given(st.data(), st.sampled_from([0.0, 60.0]), st.sampled_from([None, Sleep(30.0, 5.0, 7.0)]))
def test_nothing_is_lost(
    name: str, nodes: list[tuple[int, ...]], data: st.DataObject, round_s: float, sleep: Sleep | None
) -> None:
    """In one pool and in two."""
    check_sums(replay(data.draw(traces(nodes)), name, round_s, sleep))


class AtRandom:
    """Jobs in random rows, stopped and started, alone or in random sets; after a while all in their turn."""

    restart_s = 5.0

    def __init__(self, seed: int) -> None:
        self._draw = np.random.default_rng(seed)
        self._left = 40

    def decide(self, state: State) -> Decision:
        """Draw rows, and hosts among those that run on as many GPUs."""
        known, room = state.configurations, FreeGpus.all(state)
        row, host = np.full((2, len(state)), WAIT)
        self._left -= 1
        first = np.arange(1) if self._left < 0 else self._draw.permutation(len(state))
        for j in first.tolist():
            mine = int(self._draw.integers(known.start[state.kind[j]], known.start[state.kind[j] + 1]))
            if self._left < 0:
                mine = int(state.request[j].max())
            alike = (known.pool[row] == known.pool[mine]) & (known.gpus[row] == known.gpus[mine])
            others = np.flatnonzero((row != WAIT) & (host == -1) & alike)
            if len(others) and self._draw.random() < 0.6:
                row[j], host[j] = mine, self._draw.choice(others)
            elif self._left < 0 or self._draw.random() < 0.8:
                row[j] = room.take_row(known, np.array([mine]))
        # Any of a set may be called its host.
        for j in np.flatnonzero(host >= 0).tolist():
            if self._draw.random() < 0.3 and host[j] >= 0:
                old = host[j]
                host[host == old], host[old], host[j] = j, j, -1
        return Decision(row, again_s=state.time_s + self._draw.uniform(1.0, 60.0), host=host)


@settings(max_examples=examples(60))
@given(
    traces([(2,), (4, 4), (4, 2), (2, 8, 8)]),
    st.sampled_from([0.0, 60.0]),
    st.sampled_from([None, Sleep(30.0, 5.0, 7.0)]),
    st.integers(0, 1000),
)
def test_nothing_is_lost_when_sets_form_and_part(
    trace: Trace, round_s: float, sleep: Sleep | None, seed: int
) -> None:
    policy = Watched(AtRandom(seed))
    check_sums(simulate(trace, policy, round_s=round_s, carbon=CARBON, sleep=sleep))


def check_sums(outcome: Outcome) -> None:
    trace = outcome.trace
    jobs, meter = outcome.jobs, outcome.meter
    assert np.all(np.isfinite(jobs.end_s))
    assert jobs.done == pytest.approx(trace.work, rel=1e-9)
    best = trace.configurations.best_rate[trace.configurations.of_job]
    assert np.all(jobs.end_s >= (trace.arrival_s + trace.work / best) * (1 - 1e-12))
    assert np.all(jobs.first_start_s >= trace.arrival_s)
    assert np.all(jobs.held_s <= (jobs.end_s - jobs.first_start_s) * (1 + 1e-12) + 1e-9)
    times = np.append(outcome.meter.power.time_s, outcome.end_s)
    integral_j = float(np.diff(times) @ np.array(outcome.meter.power.values))
    assert jobs.energy_j.sum() + meter.idle_j + meter.base_j == pytest.approx(integral_j, rel=1e-9)
    assert meter.energy_j == pytest.approx(integral_j, rel=1e-9)
    assert jobs.energy_j.sum() == pytest.approx(meter.jobs_j, rel=1e-9)
    assert jobs.gpu_s.sum() == pytest.approx(meter.busy_gpu_s, rel=1e-9)
    busy_gpu_s = np.diff(np.append(outcome.meter.busy.time_s, outcome.end_s)) @ np.array(
        outcome.meter.busy.values
    )
    assert meter.busy_gpu_s == pytest.approx(float(busy_gpu_s), rel=1e-9)
    assert max(outcome.meter.busy.values) <= sum(int(pool.available.sum()) for pool in trace.pools)
    grams = CARBON.per_watt(times[:-1], times[1:]) @ np.array(outcome.meter.power.values)
    assert meter.carbon_g == pytest.approx(float(grams), rel=1e-9)
    assert min(meter.idle_j, meter.base_j) >= -1e-9 * meter.energy_j


@pytest.mark.slow
@pytest.mark.parametrize("name", every_policy())
def test_the_same_replay_twice(name: str) -> None:
    trace = trace_by_hand(
        cluster_of(4, 4),
        *((10.0 * i, 100.0 + 37.0 * (i % 5), 1 << i % 3, linear(4)) for i in range(12)),
    )
    one, other = replay(trace, name), replay(trace, name)
    assert np.array_equal(one.jobs.end_s, other.jobs.end_s)
    assert one.meter == other.meter
    assert one.rounds.time_s == other.rounds.time_s


def test_energy_by_hand() -> None:
    """Two GPUs: job a runs from 0 to 100 s on one, b from 50 to 150 s on the other."""
    trace = trace_by_hand(cluster_of(2), (0.0, 100.0, 1, {1: 1.0}), (50.0, 100.0, 1, {1: 1.0}))
    outcome = replay(trace, "fifo")
    assert outcome.jobs.end_s.tolist() == pytest.approx([100.0, 150.0])
    assert outcome.meter.jobs_j == pytest.approx(200 * BUSY_W)
    assert outcome.meter.idle_j == pytest.approx(100 * IDLE_W)
    assert outcome.meter.base_j == pytest.approx(150 * BASE_W)
    assert outcome.meter.power.time_s == pytest.approx([0.0, 50.0, 100.0, 150.0])


def test_decisions_wait_for_the_round() -> None:
    trace = trace_by_hand(cluster_of(1), (10.0, 100.0, 1, {1: 1.0}), (20.0, 30.0, 1, {1: 1.0}))
    outcome = replay(trace, "fifo", round_s=60.0)
    assert outcome.jobs.first_start_s.tolist() == pytest.approx([60.0, 180.0])
    assert outcome.jobs.end_s.tolist() == pytest.approx([160.0, 210.0])
    assert outcome.rounds.time_s == pytest.approx([60.0, 180.0])


def test_nodes_sleep_and_wake() -> None:
    """The second node sleeps from 30 s on, and is woken in 7 s for the job that comes at 100 s."""
    trace = trace_by_hand(cluster_of(1, 1), (0.0, 200.0, 1, {1: 1.0}), (100.0, 50.0, 1, {1: 1.0}))
    outcome = replay(trace, "fifo", sleep=Sleep(30.0, 5.0, 7.0))
    assert outcome.jobs.end_s.tolist() == pytest.approx([200.0, 157.0])
    # Awake until 30 s, waking and working from 100 to 157 s, awake until 187 s, asleep until the end.
    awake_s, asleep_s = 30 + 57 + 30, 70 + 13
    assert outcome.meter.base_j == pytest.approx((200 + awake_s) * BASE_W + asleep_s * 5.0)
    assert outcome.meter.idle_j == pytest.approx((30 + 30) * IDLE_W)
    assert outcome.meter.jobs_j == pytest.approx(250 * BUSY_W + 7 * IDLE_W)


def test_a_job_that_must_make_room_pays_a_restart() -> None:
    """Two jobs of one GPU end up in different halves of the node; one moves for a job of two GPUs."""

    one = {1: 1.0}
    trace = trace_by_hand(
        cluster_of(4), (0.0, 40.0, 2, {2: 1.0}), (0.0, 100.0, 1, one), (0.0, 60.0, 1, one),
        (50.0, 10.0, 1, one), (60.0, 10.0, 2, {2: 1.0}),
    )  # fmt: skip
    outcome = simulate(trace, Scripted(lambda state: Decision(state.request[:, 0].copy()), 10.0))
    assert outcome.jobs.migrations.sum() + outcome.jobs.restarts.sum() == 0

    trace = trace_by_hand(
        cluster_of(4), (0.0, 100.0, 1, one), (0.0, 20.0, 1, one), (0.0, 100.0, 1, one), (0.0, 20.0, 1, one),
        (50.0, 10.0, 2, {2: 1.0}),
    )  # fmt: skip
    outcome = simulate(trace, Scripted(lambda state: Decision(state.request[:, 0].copy()), 10.0))
    assert outcome.jobs.migrations.sum() == 1
    assert sorted(outcome.jobs.end_s.tolist()) == pytest.approx([20.0, 20.0, 60.0, 100.0, 110.0])


@pytest.mark.parametrize(
    ("decided", "message"),
    [
        (Decision(np.array([-1, -1])), "leaves job 'a' waiting for ever"),
        (Decision(np.array([-1, 0])), "gives job 'b' a row of another kind"),
        (Decision(np.array([0, 0, 0])), r"gives \(3,\) rows for 2 jobs"),
        (Decision(np.array([1, 2])), "at 0 s: pool 'G': .* 2 are free"),
        (None, "decides NoneType, not a Decision"),
        (Decision(A_LIST), "row must be an array of whole numbers"),
        (Decision(np.array([0.0, np.nan])), "row must be an array of whole numbers"),
        (Decision(np.array([0, -1]), host=np.zeros(2, dtype=bool)), "host must be an array of whole numbers"),
        (Decision(np.array([0, -1]), gap=NO_NUMBER), "gap must be a number"),
        (Decision(np.array([0, -1]), again_s=np.nan), "again_s must be a time"),
    ],
)
def test_decisions_that_are_none_are_named(decided: Decision, message: str) -> None:
    trace = trace_by_hand(cluster_of(2), (0.0, 1.0, 1, linear(2)), (0.0, 1.0, 1, {1: 3.0}))
    with pytest.raises(ValueError, match=f"policy 'odd'.*{message}"):
        simulate(trace, Scripted(lambda state: decided), name="odd")


@pytest.mark.parametrize("seconds", [-1.0, np.nan, np.inf])
def test_restarts_and_rounds_take_some_seconds(seconds: float) -> None:
    trace = trace_by_hand(cluster_of(2), (0.0, 1.0, 1, linear(2)))
    idle = Scripted(lambda state: Decision(state.row), seconds)
    with pytest.raises(ValueError, match="policy 'idle': restart_s must be at least 0"):
        simulate(trace, idle, name="idle")
    with pytest.raises(ValueError, match="round_s must be at least 0"):
        simulate(trace, idle, round_s=seconds)
