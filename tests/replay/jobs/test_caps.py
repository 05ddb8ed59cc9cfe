"""Power caps in replays, held at every moment by the watts of the segments; power limits of all GPUs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.strategies.replay import (
    BUSY_W,
    IDLE_W,
    Scripted,
    cluster_of,
    every_policy,
    linear,
    poisson_jobs,
    trace_by_hand,
    traces,
)
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.traces.recorded import TraceJob
from wattsched.replay.jobs.accounts import Sleep, Steps
from wattsched.replay.jobs.caps import CapError, Caps, distinct_limits, limited
from wattsched.replay.jobs.outcome import RECORDS, Outcome, summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.requests import FreeGpus
from wattsched.replay.jobs.policy import Decision, Policy, PolicyContext, Restarts, State
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of_durations
from wattsched.topology.cluster import Cluster, PowerDomain


def standing_w(cluster: Cluster) -> dict[str, float]:
    """Draw of each node when idle."""
    idle_w = {name: kind.idle_power_w for name, kind in cluster.gpu_types.items()}
    free = {node.name: node.gpus - len(node.unavailable) for node in cluster.nodes}
    return {node.name: node.base_power_w + idle_w[node.gpu_type] * free[node.name] for node in cluster.nodes}


def fed(cluster: Cluster, *shares: float) -> Cluster:
    """A cluster whose first nodes have feeds of their own, which leave GPUs a part of what they draw."""
    pairs = zip(cluster.nodes, standing_w(cluster).values(), shares, strict=False)
    feeds = [
        PowerDomain(
            name=f"feed-{node.name}",
            members=[node.name],
            power_cap_w=7.0 + idle_w + share * node.gpus * (BUSY_W - IDLE_W),
            reserved_w=7.0,
        )
        for node, idle_w, share in pairs
    ]
    return cluster.model_copy(update={"power_domains": feeds})


def draws(outcome: Outcome) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Times and watts of the site and of each domain by the table of segments, when no node sleeps."""
    cluster, standing = outcome.trace.cluster, standing_w(outcome.trace.cluster)
    table = RECORDS["segments"](outcome)
    members = {"power_w": [*standing]} | {f"power_w:{one.name}": one.members for one in cluster.power_domains}
    beside_w = {f"power_w:{one.name}": one.reserved_w for one in cluster.power_domains}
    found = {}
    for name, nodes in members.items():
        here = np.isin(table["node"], nodes)
        numbers = (table[column] for column in ("works_s", "end_s", "power_w", "idle_w"))
        begin, end, watts, idle_w = (np.array(values)[here] for values in numbers)
        times = np.unique([*begin, *end, outcome.begin_s])
        works = (begin <= times[:, None]) & (times[:, None] < end)
        idle = beside_w.get(name, 0.0) + sum(standing[node] for node in nodes)
        found[name] = times, idle + works @ (watts - idle_w)
    return found


@st.composite
def capped(draw: st.DrawFn) -> tuple[Trace, Caps]:
    """Traces under caps of the site, of nodes or of both, which leave some jobs room, others perhaps none."""
    shares = draw(st.lists(st.floats(0.2, 1.2), max_size=2))
    trace = draw(traces(cluster=lambda *sizes, **more: fed(cluster_of(*sizes, **more), *shares)))
    full_w = int(trace.available.sum()) * (BUSY_W - IDLE_W)
    room_w = draw(st.one_of(st.floats(0.1, 1.1), st.none() if shares else st.just(0.5)))
    idle_w = sum(standing_w(trace.cluster).values())
    return trace, Caps.of(trace, None if room_w is None else idle_w + room_w * full_w)


def run(
    trace: Trace, caps: Caps, name: str, round_s: float = 0.0, sleep: Sleep | None = None, **more
) -> Outcome:
    context = PolicyContext(trace, Restarts(5.0, 20.0), round_s, caps=caps)
    return simulate(
        trace, policy_of(name, context), name=name, round_s=round_s, sleep=sleep, caps=caps, **more
    )


@pytest.mark.parametrize("name", [*every_policy(), "backfill+zeus"])
@settings(max_examples=examples(10))
@given(
    drawn=capped(),
    round_s=st.sampled_from([0.0, 60.0]),
    sleep=st.sampled_from([None, Sleep(30.0, 5.0, 7.0)]),
)
def test_no_moment_is_above_the_cap(name, drawn, round_s, sleep) -> None:
    trace, caps = drawn
    try:
        outcome = run(trace, caps, name, round_s, sleep)
    except CapError:
        return
    assert outcome.jobs.done == pytest.approx(trace.work, rel=1e-9)
    table = RECORDS["power"](outcome)
    for cap, limit in zip(caps.names, caps.limits, strict=True):
        assert max(table[cap]) <= limit.values[0] * (1 + 1e-9)
    figures = summary(outcome)
    assert (figures.above_cap_s, figures.peak_w) == (0.0, max(table["power_w"]))
    if sleep is None:
        for cap, (times, watts) in draws(outcome).items():
            assert watts == pytest.approx(
                Steps(*map(np.array, (table["time_s"], table[cap]))).at(times), rel=1e-7
            )


class AtRandom:
    """Jobs in random rows of theirs, stopped, started, resized and moved; after a while one at a time."""

    restart_s = 5.0

    def __init__(self, seed: int) -> None:
        self._draw, self._left = np.random.default_rng(seed), 40

    def decide(self, state: State) -> Decision:
        self._left -= 1
        start, row = state.configurations.start[state.kind], np.full(len(state), WAIT)
        room = FreeGpus(state.trace.free_gpus, replace(state, caps=Caps()))
        many = self._draw.permutation(len(state)) if self._left >= 0 else [0]
        for j in many:
            rows = np.arange(start[j], state.configurations.start[state.kind[j] + 1])
            row[j] = room.take_row(state.configurations, self._draw.permutation(rows), in_order=True)
        return Decision(row, again_s=state.time_s + 20.0)


@settings(max_examples=examples(50))
@given(drawn=capped(), seed=st.integers(0, 99))
def test_the_gate_holds_a_cap_that_a_policy_knows_nothing_of(drawn, seed) -> None:
    trace, caps = drawn
    try:
        outcome = simulate(trace, AtRandom(seed), caps=caps)
    except CapError:
        return
    assert summary(outcome).above_cap_s == 0.0
    for cap, limit in zip(caps.names, caps.limits, strict=True):
        assert draws(outcome)[cap][1].max() <= limit.values[0] * (1 + 1e-9)


def site(trace: Trace, room_w: float) -> Caps:
    return Caps.of(trace, sum(standing_w(trace.cluster).values()) + room_w)


FIRST_WAITS = [(0.0, 100.0, 2, linear(2)), (0.0, 50.0, 2, linear(2)), (0.0, 10.0, 1, linear(1))]


@pytest.mark.parametrize(
    ("name", "start_s"),
    [
        # 'b' needs 180 W and 90 are left: 'c', which draws 90 W for 10 s, does not pass it in line ...
        ("fifo", [0.0, 50.0, 50.0]),
        # ... but fills the gap until 'b' has its watts at 50 s.
        ("backfill", [0.0, 50.0, 0.0]),
    ],
)
def test_who_goes_first_when_watts_are_short(name, start_s) -> None:
    trace = trace_by_hand(cluster_of(8), *FIRST_WAITS)
    outcome = run(trace, site(trace, 270.0), name)
    assert outcome.jobs.first_start_s == pytest.approx(start_s)
    assert summary(outcome).cap_used_max == pytest.approx(1.0)


def test_a_promise_of_watts_is_kept() -> None:
    """A job that would still draw when the first in line has its turn waits, though there are GPUs."""
    first = (0.0, 50.0, 1, linear(1)), (0.0, 100.0, 2, linear(2))
    for work, start_s in ((10.0, 0.0), (60.0, 100.0)):
        trace = trace_by_hand(cluster_of(8), *first, (0.0, work, 1, linear(1)))
        outcome = run(trace, site(trace, 200.0), "backfill")
        assert outcome.jobs.first_start_s == pytest.approx([0.0, 50.0, start_s])


def test_a_change_that_does_not_pass_leaves_a_job_what_it_has() -> None:
    trace = trace_by_hand(cluster_of(4), (0.0, 100.0, 1, linear(4)), (10.0, 10.0, 1, linear(1)))

    def greedy(state: State) -> Decision:
        row = state.configurations.start[state.kind].copy()
        row[0] += 2 if len(state) > 1 else 0  # The first job would have all four GPUs, not one.
        return Decision(row if len(state) == 1 else np.append(row[:1], WAIT))

    outcome = simulate(trace, Scripted(greedy), caps=site(trace, 100.0))
    assert outcome.jobs.held_s == pytest.approx([100.0, 10.0])
    assert max(outcome.meter.power.values) == pytest.approx(50.0 + 40.0 + 90.0)


@pytest.mark.parametrize(
    ("room_w", "name", "said"),
    [
        (-1.0, "fifo", "power_w: must be at least 130, the watts when idle, got 129"),
        (
            100.0,
            "fifo",
            "power_w: is too low for policy 'fifo': job 'a' alone draws 180 W above idle",
        ),
        (80.0, "sizing", "job 'a' alone draws 90 W above idle GPUs at least"),
    ],
)
def test_caps_that_cannot_be_held_are_refused(room_w, name, said) -> None:
    trace = trace_by_hand(cluster_of(8), (0.0, 100.0, 2, linear(2)))
    with pytest.raises(CapError, match=said):
        run(trace, site(trace, room_w), name)


def test_a_limit_of_a_signal_that_cannot_be_held_is_named_by_it() -> None:
    trace = trace_by_hand(cluster_of(8), (0.0, 100.0, 2, linear(2)))
    limit = Steps(np.array([0.0]), np.array([site(trace, 100.0).limits[0].values[0]]))
    with pytest.raises(CapError, match=r"^signal: power_w: is too low for policy 'fifo'"):
        run(trace, Caps.of(trace, None, {None: limit}), "fifo")


@pytest.mark.parametrize("by_signal", [True, False])
def test_a_job_that_waits_for_ever_names_the_signal_whose_limit_does_not_end(by_signal: bool) -> None:
    trace = trace_by_hand(cluster_of(8), (0.0, 1000.0, 8, linear(8)), (1.0, 1000.0, 8, linear(8)))
    high_w, low_w = (site(trace, room_w).limits[0].values[0] for room_w in (1000.0, 0.0))
    caps = Caps.of(trace, None, {None: Steps(np.array([0.0, 50.0]), np.array([high_w, low_w]))})
    caps = caps if by_signal else replace(caps, told_as=caps.names)
    told = f"{'signal: ' * by_signal}power_w: policy 'fifo' leaves job '.' waiting for ever"
    with pytest.raises(CapError, match=f"^{told}"):
        run(trace, caps, "fifo")


def test_a_cap_is_used_well_by_those_who_choose_configurations() -> None:
    """Under a cap at which fifo must wait, sizing ends no later on average."""
    trace = trace_of_durations(homogeneous_cluster(2, 8, "A100"), poisson_jobs(20, 3, gap_s=60.0), seed=3)
    means = [run(trace, site(trace, 2500.0), name, 60.0).jct_s.mean() for name in ("fifo", "sizing")]
    assert means[1] < means[0]


def wrong(trace: Trace) -> Trace:
    """A trace whose jobs take from a tenth to ten times as long."""
    return replace(trace, work=trace.work * 10.0 ** np.random.default_rng(1).uniform(-1, 1, len(trace)))


class Misled:
    """A policy that sees the jobs of a wrong trace."""

    def __init__(self, policy: Policy, trace: Trace) -> None:
        self._policy, self._factor = policy, wrong(trace).work / trace.work
        self.restart_s = policy.restart_s

    def decide(self, state: State) -> Decision:
        return self._policy.decide(replace(state, remaining=state.remaining * self._factor[state.jobs]))


@pytest.mark.parametrize("name", every_policy("clairvoyant"))
def test_a_policy_knows_durations_if_it_decides_by_them(name) -> None:
    same = []
    for nodes, gap_s in ((1, 30.0), (2, 300.0)):
        jobs = poisson_jobs(20, 3, gap_s=gap_s, median_s=2000.0)
        honest = trace_of_durations(homogeneous_cluster(nodes, 8, "A100"), jobs, seed=3)
        misled = Misled(policy_of(name, PolicyContext(wrong(honest))), honest)
        right = simulate(honest, policy_of(name, PolicyContext(honest)), name=name)
        same.append(right.jobs.end_s.tolist() == simulate(honest, misled, name=name).jobs.end_s.tolist())
    assert summary(right).knows_durations == ("no" if all(same) else "exact")


@pytest.mark.parametrize("gpu_type", ["A100", "V100", "A40", "T4"])
@pytest.mark.parametrize("limit_w", [90.0, 150.0, 225.0, 1000.0])
def test_jobs_run_at_the_highest_setting_within_a_limit(gpu_type: str, limit_w: float) -> None:
    jobs = [TraceJob(f"j{j}", float(j), 600.0, 1 + j % 5) for j in range(12)]
    free = trace_of_durations(homogeneous_cluster(2, 8, gpu_type), jobs, seed=1)
    kept = limited(free, limit_w)
    np.testing.assert_array_equal(kept.work, free.work)
    of, rows = free.configurations, kept.configurations
    for j, (before, now) in enumerate(zip(free.request[:, 0], kept.request[:, 0], strict=True)):
        same = (of.kind == of.of_job[j]) & (of.gpus == of.gpus[before])
        same &= (of.batch_size == of.batch_size[before]) | np.isnan(of.batch_size)
        told_w = np.where(np.isnan(of.power_limit_w), of.power_w / of.gpus, of.power_limit_w)
        within = same & (told_w <= limit_w)
        fastest = of.rate[within].max() if within.any() else of.rate[same][told_w[same].argmin()]
        assert rows.rate[now] == fastest
        assert rows.gpus[now] == of.gpus[before]
        assert rows.batch_size[now] == of.batch_size[before] or np.isnan(of.batch_size[before])


def test_limits_that_change_nothing_are_left_out() -> None:
    jobs = [TraceJob("a", 0.0, 600.0, 4, model="bert")]
    (v100, a100) = (trace_of_durations(homogeneous_cluster(1, 8, kind), jobs) for kind in ("V100", "A100"))
    assert distinct_limits([v100], [100.0, 250.0, 400.0, 125.0, 110.0]) == [125.0, 110.0]
    lowest_w = a100.configurations.power_w.min() / 4
    assert distinct_limits([a100], [lowest_w - 1, lowest_w - 2, 4000.0]) == [lowest_w - 1]
