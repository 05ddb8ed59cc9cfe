"""Power caps in replays: held at every moment by the watts of the segments alone, or the policy is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import examples
from tests.strategies.replay import (
    BUSY_W,
    IDLE_W,
    cluster_of,
    traces,
)
from wattsched.replay.jobs.accounts import Sleep, Steps
from wattsched.replay.jobs.caps import CapError, Caps
from wattsched.replay.jobs.outcome import RECORDS, Outcome, summary
from wattsched.replay.jobs.policies import names, policy_of
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.cluster import Cluster, PowerDomain


def standing_w(cluster: Cluster) -> dict[str, float]:
    """Draw of each node when idle."""
    idle_w = {name: kind.idle_power_w for name, kind in cluster.gpu_types.items()}
    free = {node.name: node.gpus - len(node.unavailable) for node in cluster.nodes}
    return {node.name: node.base_power_w + idle_w[node.gpu_type] * free[node.name] for node in cluster.nodes}


def fed(cluster: Cluster, *shares: float) -> Cluster:
    """A cluster whose first nodes have feeds of their own, which leave their GPUs a part of what they draw."""
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
    """Traces under caps of the site, of nodes or of both, which leave some jobs room and others perhaps none."""
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


@pytest.mark.parametrize("name", [*names(), "backfill+zeus"])
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
