"""Figures of a replay that can be worked out by hand."""

from __future__ import annotations

import pytest
from strategies.replay import BASE_W, BUSY_W, IDLE_W, cluster_of, trace_by_hand

from wattsched.replay.jobs.accounts import Carbon
from wattsched.replay.jobs.outcome import finish_time_fairness, summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate


def test_two_jobs_one_after_the_other() -> None:
    """Two GPUs; a holds one for 100 s, b waits for both and holds them for 50 s."""
    trace = trace_by_hand(cluster_of(2), (0.0, 100.0, 1, {1: 1.0}), (40.0, 50.0, 2, {2: 1.0}))
    policy = policy_of("fifo", PolicyContext(trace))
    outcome = simulate(trace, policy, name="fifo", carbon=Carbon.constant(360.0))
    found = summary(outcome)
    assert (found.policy, found.jobs, found.rounds, found.restarts, found.migrations) == ("fifo", 2, 3, 0, 0)
    assert found.jct_mean_s == pytest.approx((100 + 110) / 2)
    assert found.queueing_mean_s == pytest.approx(30)
    assert found.makespan_s == pytest.approx(150)
    energy_j = 200 * BUSY_W + 100 * IDLE_W + 150 * BASE_W
    assert found.energy_j == pytest.approx(energy_j)
    assert found.carbon_g == pytest.approx(energy_j / 3.6e6 * 360)
    assert found.gpu_utilisation == pytest.approx(200 / 300)
    assert found.gpu_h == pytest.approx(200 / 3600)
    assert (found.fragmentation, found.preemptions) == (0.5, 0)
    assert found.gap_mean is None
    # Contention is 1.5 from 40 to 100 s: fair times are 100 * 1.3 and 50 * (60 * 1.5 + 50) / 110.
    assert finish_time_fairness(outcome).tolist() == pytest.approx([100 / 130, 110 / (50 * 140 / 110)])
    assert found.unfair_fraction == 0.5
