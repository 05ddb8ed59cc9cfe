"""Rules on random traces: growth as a plain reading of it, roll-outs, promises and the limits of sets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, job_of, trace_by_hand, traces, watched
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.replay.jobs.allocations import Sharing
from wattsched.replay.jobs.policies import rollout
from wattsched.replay.jobs.policies.elastic import Elastic, in_time
from wattsched.replay.jobs.policies.fixed_rounds import MOST_GROWTH
from wattsched.replay.jobs.policies.growth import Snapshots, seconds_saved, sidecar
from wattsched.replay.jobs.policies.requests import promised
from wattsched.replay.jobs.policies.rollout import Rollout, project
from wattsched.replay.jobs.policies.rounds import fastest
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.topology.buddy import fits

CLUSTERS = [(2,), (4,), (4, 4), (8, 8), (3, 3), (4, 2)]

Value = Callable[[State, int, int], float]
"""What a row of a job is worth."""


def seconds(state: State, j: int, row: int) -> float:
    return run_time(state, j, row) - float(state.delay_s(np.array([j]), np.array([row]))[0])


def run_time(state: State, j: int, row: int) -> float:
    return -float(state.remaining[j] / state.configurations.rate[row])


def throughput(state: State, j: int, row: int) -> float:
    of, kind = state.configurations, state.kind[j]
    rows = fastest(state.trace, state.trace.standard)
    return float(of.rate[row] / of.rate[rows[of.kind[rows] == kind]].min())


def shortest_first(state: State) -> list[int]:
    alone_s = state.remaining / state.trace.requested_rate[state.jobs]
    return np.argsort(alone_s, kind="stable").tolist()


def in_order(state: State) -> list[int]:
    return list(range(len(state)))


def grown(state: State, value: Value, order: list[int]) -> list[int]:
    """Rows where room is counted anew before every step, and every growth that fits is compared."""
    of, rows = state.configurations, fastest(state.trace, state.trace.standard)
    mine = [rows[of.kind[rows] == kind] for kind in state.kind]
    row = [WAIT] * len(state)

    def fit(j: int, larger: int) -> bool:
        held = [r for i, r in enumerate(row) if r != WAIT and i != j] + [larger]
        free = state.trace.free_gpus
        return all(fits([of.block[r] for r in held if of.pool[r] == p], free[p]) for p in range(len(free)))

    for j in order:
        by_pool = [mine[j][of.pool[mine[j]] == p] for p in np.unique(of.pool[mine[j]])]
        smallest = [inside[np.argmin(of.block[inside])] for inside in by_pool]
        held = state.row[j]
        moves = [held != WAIT and of.pool[r] != of.pool[held] for r in smallest]
        best_first = sorted(zip(moves, [-of.rate[r] for r in smallest], smallest, strict=True))
        row[j] = next((int(r) for _, _, r in best_first if fit(j, r)), WAIT)
    while True:
        steps = [
            (-(value(state, j, r) - value(state, j, now)) / (of.gpus[r] - of.gpus[now]), j, r)
            for j, now in enumerate(row)
            if now != WAIT
            for r in mine[j].tolist()
            if of.pool[r] == of.pool[now] and of.block[r] > of.block[now] and fit(j, r)
        ]
        if not steps or min(steps)[0] >= 0:
            return row
        _, j, r = min(steps)
        row[j] = r


@pytest.mark.parametrize(
    ("name", "value", "order"),
    [
        ("sidecar", seconds, shortest_first),
        ("termination", seconds, shortest_first),
        ("optimus", run_time, in_order),
        ("elasticflow", throughput, in_order),
    ],
)
@settings(max_examples=examples(20))
@given(trace=traces(CLUSTERS))
def test_the_best_growth_comes_first(
    name: str, value: Value, order: Callable[[State], list[int]], trace: Trace
) -> None:
    for state, decision in watched(trace, name)[1]:
        assert grown(state, value, order(state)) == decision.row.tolist()


@settings(max_examples=examples(15))
@given(traces([(4,), (8, 8), (4, 2)]))
def test_sia_grows_at_most_by_the_factor(trace: Trace) -> None:
    last, rows = np.zeros(len(trace), dtype=np.int64), trace.configurations
    least = np.minimum.reduceat(rows.gpus, rows.start[:-1])[rows.of_job]
    for state, decision in watched(trace, "sia")[1]:
        runs = decision.row >= 0
        gpus, jobs = rows.gpus[decision.row[runs]], state.jobs[runs]
        assert np.all(gpus <= np.maximum(MOST_GROWTH * last[jobs], least[jobs]))
        last[jobs] = gpus


@settings(max_examples=examples(25))
@given(traces([(2,), (4, 4), (4, 2)]), st.sampled_from([("gandiva", 2, 2.0), ("eaco", 4, 1.0)]))
def test_sets_keep_their_limits(trace: Trace, rule: tuple[str, int, float]) -> None:
    name, most_jobs, most_load = rule
    outcome, seen = watched(trace, name)
    used = Sharing(trace).utilisation
    for state, decision in seen:
        sets = decision.sets(state)
        for number in np.unique(sets[sets >= 0]).tolist():
            rows = decision.row[sets == number]
            assert len(rows) <= most_jobs
            assert used[rows].sum() <= max(most_load, 1.0) + 1e-6
    assert name == "gandiva" or outcome.jobs.restarts.sum() == 0


@settings(max_examples=examples(60))
@given(st.lists(st.tuples(st.floats(0, 300), st.floats(1, 300), st.booleans()), min_size=2, max_size=10))
def test_backfilling_keeps_its_promise_to_the_first_job_that_waits(drawn) -> None:
    # Jobs of one GPU and of all four, between which no block is lost.
    drawn = sorted(drawn)
    jobs = [job_of(f"j{i}", work, {4 if whole else 1: 1.0}) for i, (_, work, whole) in enumerate(drawn)]
    asked = [4 if whole else 1 for _, _, whole in drawn]
    trace = trace_of(cluster_of(4), jobs, [arrival for arrival, _, _ in drawn], asked)
    outcome, seen = watched(trace, "backfill")
    promises: dict[int, list[float]] = {}
    for state, decision in seen:
        waits = np.flatnonzero(decision.row == WAIT)
        if len(waits):
            at_s = state.time_s + promised(state, decision.row, int(waits[0])).in_s
            promises.setdefault(int(state.jobs[waits[0]]), []).append(at_s)
    for job, times in promises.items():
        assert times[0] == pytest.approx(min(times))
        assert outcome.jobs.first_start_s[job] <= min(times) + 1e-6


# -- roll-outs -------------------------------------------------------------------------------------------


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


@settings(max_examples=examples(40))
@given(traces(CLUSTERS), st.sampled_from([0.0, 5.0]))
def test_without_arrivals_roll_outs_know_the_replay_and_are_no_worse(trace: Trace, restart_s: float) -> None:
    """But for moves, which only the replay knows."""
    trace = replace(trace, arrival_s=np.zeros(len(trace)))
    context = PolicyContext(trace, Restarts(restart_s, restart_s))
    rule = Beside(context)
    base, ours = simulate(trace, rule), simulate(trace, Rollout(context))
    if restart_s == 0 or not base.jobs.migrations.any():
        expected_s = [rule.expected_s[j] for j in range(len(trace))]
        assert base.jobs.end_s == pytest.approx(expected_s, rel=1e-6)
    if restart_s == 0 or not (base.jobs.migrations.any() or ours.jobs.migrations.any()):
        assert ours.end_s <= base.end_s * (1 + 1e-6)
        assert ours.jobs.end_s.sum() <= base.jobs.end_s.sum() * (1 + 1e-6)


def test_the_program_decides_about_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = [(3.0 * i, 50.0 + 7 * (i % 4), 1, {1: 1.0, 2: 1.7, 4: 2.5}) for i in range(9)]
    trace = trace_by_hand(cluster_of(4), *jobs)
    context = PolicyContext(trace, Restarts(5.0, 20.0))
    monkeypatch.setattr(rollout, "EFFORT", 0)
    programs = simulate(trace, Elastic(context, in_time))
    assert np.array_equal(simulate(trace, Rollout(context)).jobs.end_s, programs.jobs.end_s)
