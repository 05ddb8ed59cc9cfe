"""Gandiva's pairs and EaCO's sets: by hand, and their limits on random traces."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, trace_by_hand, traces
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.replay.jobs.allocations import Sharing, slowdown
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of

ONE, TWO = {1: 1.0}, {2: 1.0}


def replay(trace: Trace, name: str) -> Outcome:
    return simulate(trace, policy_of(name, PolicyContext(trace, Restarts(5.0, 20.0))), name=name)


def quarters(n: int) -> Trace:
    """Two GPUs that draw 10 to 110 W, and jobs that use a quarter of one."""
    table = OptionTable(gpus=[1], pool=["G"], rate=[1.0], power_w=[35.0], power_limit_w=[110.0])
    jobs = [Job(name=f"{i}", remaining_work=100.0, options=table) for i in range(n)]
    return trace_of(cluster_of(2), jobs, [0.0] * n, [1] * n)


def test_gandiva_pairs_only_while_there_is_more_work_than_room() -> None:
    crowded = trace_by_hand(cluster_of(1), (0, 100, 1, ONE), (0, 50, 1, ONE))
    assert replay(crowded, "gandiva").jobs.end_s.tolist() == pytest.approx([150.0, 100.0])
    roomy = trace_by_hand(cluster_of(2), (0, 100, 1, ONE), (0, 50, 1, ONE))
    assert replay(roomy, "gandiva").jobs.end_s.tolist() == pytest.approx([100.0, 50.0])


def test_gandiva_pairs_equal_counts_only() -> None:
    """The two of one GPU share one; the one of two takes the rest, and the first round is over at 360 s."""
    trace = trace_by_hand(cluster_of(3), (0, 100, 2, TWO), (0, 100, 1, ONE), (0, 100, 1, ONE))
    assert replay(trace, "gandiva").jobs.end_s.tolist() == pytest.approx([100.0, 200.0, 200.0])


def test_eaco_fills_a_gpu_before_it_takes_another() -> None:
    outcome = replay(quarters(5), "eaco")
    assert outcome.jobs.end_s == pytest.approx([100 * float(slowdown(4, 1.0))] * 4 + [100.0])


def test_eaco_takes_over_the_room_of_a_job_that_ended() -> None:
    """Full GPUs are not shared; the third waits for the first of the two to end."""
    trace = trace_by_hand(cluster_of(2), (0, 100, 1, ONE), (0, 50, 1, ONE), (0, 10, 1, ONE))
    assert replay(trace, "eaco").jobs.end_s.tolist() == pytest.approx([100.0, 50.0, 60.0])


class Limited:
    """Checks the sets of every decision."""

    def __init__(self, policy: Policy, trace: Trace, most_jobs: int, most_load: float) -> None:
        self._policy, self._used = policy, Sharing(trace).utilisation
        self._most_jobs, self._most_load = most_jobs, most_load
        self.restart_s = policy.restart_s

    def decide(self, state: State) -> Decision:
        decision = self._policy.decide(state)
        sets = decision.sets(state)
        for number in np.unique(sets[sets >= 0]).tolist():
            rows = decision.row[sets == number]
            assert len(rows) <= self._most_jobs
            assert self._used[rows].sum() <= max(self._most_load, 1.0) + 1e-6
        return decision


@settings(max_examples=examples(25))
@given(traces([(2,), (4, 4), (4, 2)]), st.sampled_from([("gandiva", 2, 2.0), ("eaco", 4, 1.0)]))
def test_limits_of_sets(trace: Trace, rule: tuple[str, int, float]) -> None:
    name, most_jobs, most_load = rule
    policy = policy_of(name, PolicyContext(trace, Restarts(5.0, 20.0)))
    outcome = simulate(trace, Limited(policy, trace, most_jobs, most_load), name=name)
    if name == "eaco":
        assert outcome.jobs.restarts.sum() == 0
