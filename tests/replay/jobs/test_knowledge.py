"""What policies of replays know of how long jobs take."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.replays import poisson_jobs
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.traces import TraceJob
from wattsched.replay.jobs.checkpoint import load, save
from wattsched.replay.jobs.knowledge import KNOWLEDGE, LEAST_S, Learned, known_of
from wattsched.replay.jobs.policies import names, policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import Replay, simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations

BEFORE_S = 40 * 300.0


def trace_with(history: int = 40, factor: float | None = 5.0) -> Trace:
    jobs = poisson_jobs(history + 20, 3)
    if factor is not None:
        jobs = [replace(job, time_limit_s=factor * job.duration_s) for job in jobs]
    before, after = jobs[:history], jobs[history:]
    return trace_of_durations(homogeneous_cluster(2, 8, "A100"), after, seed=3, history=before)


class Seen:
    """A policy that notes what it sees."""

    def __init__(self, trace: Trace, name: str = "srtf") -> None:
        self._policy = policy_of(name, PolicyContext(trace))
        self.restart_s, self.states = self._policy.restart_s, list[State]()

    def decide(self, state: State):
        self.states.append(state)
        return self._policy.decide(state)


def with_other_durations(trace: Trace) -> Trace:
    """The same jobs, each three times as long in truth."""
    records = tuple(replace(job, duration_s=3 * job.duration_s) for job in trace.records)
    return replace(trace, work=3 * trace.work, records=records)


@pytest.mark.parametrize("knows", ["limit", "history", "nothing"])
def test_nothing_is_seen_of_the_truth(knows) -> None:
    # Until the first job ends, nobody can tell these two traces apart.
    trace = trace_with()
    seen = []
    for one in (trace, with_other_durations(trace)):
        policy = Seen(one)
        ends_s = simulate(one, policy, knows=knows).jobs.end_s
        seen.append((policy.states, ends_s.min()))
    until_s = min(first_s for _, first_s in seen)
    for one, other in zip(*(states for states, _ in seen), strict=False):
        if one.time_s >= until_s:
            break
        assert one.remaining.tolist() == pytest.approx(other.remaining.tolist())
    else:
        pytest.fail("no job ended")


def test_a_limit_is_what_is_left_of_it() -> None:
    trace, policy = trace_with(), None
    policy = Seen(trace)
    simulate(trace, policy, knows="limit")
    exact = Seen(trace)
    simulate(trace, exact)
    first, true = policy.states[0], exact.states[0]
    assert first.remaining == pytest.approx(5 * true.remaining)
    for state in policy.states:
        rate = trace.requested_rate[state.jobs]
        assert np.all(state.remaining >= LEAST_S * rate * (1 - 1e-12))
        assert np.all(state.remaining <= 5 * trace.work[state.jobs] * (1 + 1e-12))


def test_jobs_without_a_limit_count_as_the_longest() -> None:
    trace = trace_with()
    records = list(trace.records)
    records[0] = replace(records[0], time_limit_s=None)
    trace = replace(trace, records=tuple(records))
    policy = Seen(trace)
    simulate(trace, policy, knows="limit")
    longest_s = max(job.time_limit_s for job in records[1:])
    assert policy.states[0].remaining[0] == pytest.approx(longest_s * trace.requested_rate[0])


@pytest.mark.parametrize("knows", KNOWLEDGE)
@pytest.mark.parametrize("name", ["sizing", "backfill", "sidecar", "powerflow"])
def test_all_work_is_done_whatever_is_known(name, knows) -> None:
    trace = trace_with()
    outcome = simulate(trace, policy_of(name, PolicyContext(trace)), name=name, knows=knows)
    assert outcome.jobs.done == pytest.approx(trace.work, rel=1e-6)
    assert outcome.knows_durations == knows


def test_who_decides_by_no_durations_is_the_same_whatever_is_known() -> None:
    trace = trace_with()
    same = []
    for name in sorted({*names()} - {"clairvoyant"}):  # which knows them by its name, and takes longest
        exact = simulate(trace, policy_of(name, PolicyContext(trace)), name=name, knows="exact")
        if exact.knows_durations == "no":
            nothing = simulate(trace, policy_of(name, PolicyContext(trace)), name=name, knows="nothing")
            assert exact.jobs.end_s.tolist() == nothing.jobs.end_s.tolist(), name
            assert nothing.knows_durations == "no"
            same.append(name)
    assert len(same) > 3


def test_users_whose_jobs_were_short_are_expected_to_have_short_ones() -> None:
    jobs = [replace(job, user="ab"[k % 2], gpus=1) for k, job in enumerate(poisson_jobs(402, 5, gap_s=10.0))]
    jobs = [replace(job, duration_s=100.0 if job.user == "a" else 50_000.0) for job in jobs]
    last_s = jobs[399].submitted_s + 60_000.0
    new = [replace(job, submitted_s=last_s) for job in jobs[400:]]
    trace = trace_of_durations(homogeneous_cluster(1, 8, "A100"), new, history=jobs[:400])
    left_s = Learned(trace).left_s(np.arange(2), np.zeros(2), last_s)
    assert left_s[0] < 300 < 20_000 < left_s[1]


def test_the_default_is_what_a_scheduler_would_know() -> None:
    assert known_of(trace_with()) == "history"
    assert known_of(trace_with(history=0)) == "limit"
    assert known_of(trace_with(history=0, factor=None)) == "exact"


def test_limits_that_nobody_told_are_refused() -> None:
    trace = trace_with(factor=None)
    with pytest.raises(ValueError, match="knows: 'limit' needs time limits"):
        simulate(trace, policy_of("srtf", PolicyContext(trace)), knows="limit")


def test_a_replay_that_learns_goes_on_as_if_it_had_not_stopped(tmp_path) -> None:
    trace = trace_with()

    def fresh() -> Replay:
        return Replay(trace, policy_of("sizing", PolicyContext(trace)), "sizing", knows="history")

    whole, first, second = fresh(), fresh(), fresh()
    while whole.step():
        pass
    for _ in range(25):
        first.step()
    save(tmp_path / "checkpoint", first)
    load(tmp_path / "checkpoint", second)
    while second.step():
        pass
    assert second.outcome().jobs.end_s.tolist() == whole.outcome().jobs.end_s.tolist()


def test_a_job_that_outlasts_what_was_likely_gives_way_though_nobody_comes_or_ends() -> None:
    # A user's jobs took a minute or hours; another's always the same. Who runs on is of the long ones.
    past = [(f"p{k}", 60.0 if k % 2 else 20_000.0, "a") for k in range(200)]
    past += [(f"q{k}", 3000.0, "b") for k in range(200)]
    history = [TraceJob(name, 0.0, duration_s, 8, model="bert", user=user) for name, duration_s, user in past]
    now_s = 30_000.0
    jobs = [TraceJob(*job, model="bert", user=user) for job, user in zip(
        [("long", now_s, 20_000.0, 8), ("x", now_s, 3000.0, 8), ("y", now_s, 3000.0, 8)], "abb", strict=True,
    )]  # fmt: skip
    trace = trace_of_durations(homogeneous_cluster(1, 8, "A100"), jobs, elasticity=1, history=history)
    policy = policy_of("srtf", PolicyContext(trace, Restarts(0.0, 0.0)))
    outcome = simulate(trace, policy, name="srtf", knows="history")
    assert outcome.jobs.first_start_s[0] == now_s
    assert np.all(outcome.jobs.end_s[1:] < outcome.jobs.end_s[0])


def test_a_limit_bounds_what_is_learned() -> None:
    trace = trace_with(factor=1.5)
    ages = np.zeros(len(trace))
    left_s = Learned(trace).left_s(np.arange(len(trace)), ages, BEFORE_S)
    limits_s = np.array([job.time_limit_s for job in trace.records])
    assert np.all(left_s <= np.maximum(limits_s, LEAST_S) * (1 + 1e-12))
