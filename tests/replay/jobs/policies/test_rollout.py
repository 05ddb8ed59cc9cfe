"""Roll-outs: the simulation inside is the replay, and without arrivals they are never worse than the rule."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, linear, trace_by_hand, traces
from wattsched.replay.jobs.policies import rollout
from wattsched.replay.jobs.policies.elastic import Elastic, in_time
from wattsched.replay.jobs.policies.growth import Snapshots, seconds_saved, sidecar
from wattsched.replay.jobs.policies.rollout import Rollout, project
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace

CLUSTERS = [(2,), (4,), (4, 4), (8, 8), (3, 3), (4, 2)]


class Beside:
    """SideCar's rule, with what `project` makes of the first state."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        self.expected_s: dict[int, float] = {}
        self._rule: Policy = sidecar(context)
        self._snapshots = Snapshots(context.trace)

    def decide(self, state: State) -> Decision:
        if not self.expected_s:
            self.expected_s = project(self._snapshots.of(state), seconds_saved).end_s
        return self._rule.decide(state)


def at_once(trace: Trace) -> Trace:
    return replace(trace, arrival_s=np.zeros(len(trace)))


@settings(max_examples=examples(60))
@given(traces(CLUSTERS).map(at_once), st.sampled_from([0.0, 5.0]))
def test_a_projection_is_the_replay_that_follows(trace: Trace, restart_s: float) -> None:
    """But for moves, which only the replay knows."""
    policy = Beside(PolicyContext(trace, Restarts(restart_s, restart_s)))
    outcome = simulate(trace, policy)
    if restart_s == 0 or not outcome.jobs.migrations.any():
        expected_s = [policy.expected_s[j] for j in range(len(trace))]
        assert outcome.jobs.end_s == pytest.approx(expected_s, rel=1e-6)


@settings(max_examples=examples(30))
@given(traces(CLUSTERS).map(at_once), st.sampled_from([0.0, 5.0]))
def test_never_worse_than_the_rule_without_arrivals(trace: Trace, restart_s: float) -> None:
    context = PolicyContext(trace, Restarts(restart_s, restart_s))
    base, ours = simulate(trace, sidecar(context)), simulate(trace, Rollout(context))
    if restart_s == 0 or not (base.jobs.migrations.any() or ours.jobs.migrations.any()):
        assert ours.end_s <= base.end_s * (1 + 1e-6)
        assert ours.jobs.end_s.sum() <= base.jobs.end_s.sum() * (1 + 1e-6)


def test_short_jobs_first_where_that_costs_no_time() -> None:
    """With linear speed-up any order has the same makespan."""
    trace = trace_by_hand(cluster_of(4), (0, 100, 1, linear(4)), (0, 10, 1, linear(4)))
    outcome = simulate(trace, Rollout(PolicyContext(trace, Restarts(0.0, 0.0))))
    assert outcome.jobs.end_s.tolist() == pytest.approx([27.5, 2.5])


def test_the_program_decides_about_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [(3.0 * i, 50.0 + 7 * (i % 4), 1, {1: 1.0, 2: 1.7, 4: 2.5}) for i in range(9)]
    trace = trace_by_hand(cluster_of(4), *jobs)
    context = PolicyContext(trace, Restarts(5.0, 20.0))
    monkeypatch.setattr(rollout, "EFFORT", 0)
    programs = simulate(trace, Elastic(context, in_time))
    assert np.array_equal(simulate(trace, Rollout(context)).jobs.end_s, programs.jobs.end_s)
