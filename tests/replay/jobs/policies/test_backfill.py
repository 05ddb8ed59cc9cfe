"""EASY backfilling: by hand, and that what is promised to the first job that waits is kept."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, job_of, trace_by_hand
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.requests import backfill, promised
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of

ONE, ALL = {1: 1.0}, {4: 1.0}


def starts(trace: Trace, policy: str = "backfill") -> dict[str, float]:
    outcome = simulate(trace, policy_of(policy, PolicyContext(trace)), name=policy)
    return dict(zip(trace.names, outcome.jobs.first_start_s.tolist(), strict=True))


def test_a_job_that_ends_before_goes_ahead_and_one_that_does_not_waits() -> None:
    # a runs on 2 of 4 GPUs for 100 s; b asks for all four; c would end in time, d would not; e uses two.
    trace = trace_by_hand(
        cluster_of(4),
        (0.0, 100.0, 2, {2: 1.0}),
        (1.0, 10.0, 4, ALL),
        (2.0, 50.0, 1, ONE),
        (3.0, 200.0, 1, ONE),
    )
    assert starts(trace) == {"a": 0.0, "b": 100.0, "c": 2.0, "d": 110.0}
    assert starts(trace, "fifo") == {"a": 0.0, "b": 100.0, "c": 110.0, "d": 110.0}


def test_what_is_left_beside_the_promise_may_be_used_for_as_long_as_one_likes() -> None:
    # b asks for 4 of 8 GPUs, of which a has 6 (an aligned 4 and 2): 4 are left beside it later.
    trace = trace_by_hand(
        cluster_of(8),
        (0.0, 100.0, 4, ALL),
        (0.0, 100.0, 2, {2: 1.0}),
        (1.0, 10.0, 4, ALL),
        (2.0, 500.0, 2, {2: 1.0}),
    )
    found = starts(trace)
    assert found["d"] == 2.0
    assert found["c"] == 100.0


class Watched:
    """Backfilling that notes what it promises."""

    def __init__(self, context: PolicyContext) -> None:
        self._policy = backfill(context)
        self.restart_s = self._policy.restart_s
        self.promises: dict[int, list[float]] = {}

    def decide(self, state: State) -> Decision:
        """Decide, and note when the first job that still waits could start."""
        decision = self._policy.decide(state)
        waits = np.flatnonzero(decision.row == WAIT)
        if len(waits):
            at_s = state.time_s + promised(state, decision.row, int(waits[0])).in_s
            self.promises.setdefault(int(state.jobs[waits[0]]), []).append(at_s)
        return decision


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.floats(0, 300), st.floats(1, 300), st.booleans()), min_size=2, max_size=10))
def test_the_first_job_that_waits_starts_no_later_than_it_was_promised(drawn) -> None:
    # Jobs of one GPU and of all four, between which no block is lost.
    drawn = sorted(drawn)
    jobs = [job_of(f"j{i}", work, ALL if whole else ONE) for i, (_, work, whole) in enumerate(drawn)]
    asked = [4 if whole else 1 for _, _, whole in drawn]
    trace = trace_of(cluster_of(4), jobs, [arrival for arrival, _, _ in drawn], asked)
    policy = Watched(PolicyContext(trace))
    outcome = simulate(trace, policy, name="backfill")
    for job, promises in policy.promises.items():
        assert promises[0] == pytest.approx(min(promises))
        assert outcome.jobs.first_start_s[job] <= min(promises) + 1e-6
