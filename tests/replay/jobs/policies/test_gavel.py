"""Gavel's shares against the textbook and brute force, and rounds of Gavel and Sia by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, linear, trace_by_hand, watched
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.replay.jobs.policies.gavel import by_priority, max_min, shares
from wattsched.replay.jobs.trace import trace_of
from wattsched.topology.cluster import Cluster, GpuType, Node


def test_rounds_follow_the_shares_on_two_types() -> None:
    """One job is four times as fast on H, two do not care: 1.6 h = (2 - h) / 2, so h = 1 / 2.1.

    Over the first three hours every job has its share of time, to a round.
    """
    cluster = Cluster(
        gpu_types={name: GpuType(idle_power_w=10.0) for name in "GH"},
        nodes=[Node(name=name, gpu_type=name, gpus=1) for name in "GH"],
    )
    tables = {
        name: OptionTable(gpus=[1, 1], pool=["G", "H"], rate=rates, power_w=[50.0] * 2)
        for name, rates in {"fast": [1.0, 4.0], "same": [1.0, 1.0]}.items()
    }
    kinds = ("fast", "same", "same")
    jobs = [Job(name=str(i), remaining_work=72000.0, options=kind) for i, kind in enumerate(kinds)]
    trace = trace_of(cluster, jobs, [0.0] * 3, [1] * 3, tables)
    _, seen = watched(trace, "gavel-max-min")
    x = shares(seen[0][0])
    assert x[0] == pytest.approx([0.0, 1 / 2.1])
    assert x[1:].sum(axis=1) == pytest.approx([1.6 / 2.1, 1.6 / 2.1])
    assert x[1] == pytest.approx(x[2])
    rounds = seen[:21]
    assert [state.time_s for state, _ in rounds] == pytest.approx([360.0 * i for i in range(21)])
    held = np.zeros((3, 2))
    for _, decision in rounds:
        for j, row in enumerate(decision.row.tolist()):
            held[j, trace.configurations.pool[row]] += row >= 0
    assert held / 21 == pytest.approx(x, abs=0.12)


@settings(max_examples=examples(30))
@given(st.lists(st.tuples(st.floats(0.5, 4.0), st.floats(0.5, 4.0)), min_size=2, max_size=2))
def test_max_min_against_a_grid(value: list[tuple[float, float]]) -> None:
    values = np.array(value)
    x = max_min(values, np.ones((2, 2)), np.array([1.0, 0.6]))
    found = float((values * x).sum(axis=1).min())
    assert np.all(x >= 0)
    assert np.all(x.sum(axis=1) <= 1 + 1e-9)
    assert np.all(x.sum(axis=0) <= np.array([1.0, 0.6]) + 1e-9)
    grid = np.linspace(0.0, 1.0, 11)
    for a, b, c, d in itertools.product(grid, repeat=4):
        if a + b <= 1 and c + d <= 1 and a + c <= 1 and b + d <= 0.6:
            assert min(values[0] @ (a, b), values[1] @ (c, d)) <= found + 1e-7


def test_priorities() -> None:
    target = np.array([[0.5, 0.0], [0.25, 0.5], [0.2, 0.3]])
    received = np.array([[0.5, 0.0], [0.5, 0.1], [0.0, 0.3]])
    assert by_priority(target, received) == [(2, 0), (1, 1), (0, 0), (2, 1), (1, 0)]


def test_sia_shares_rather_than_letting_one_wait() -> None:
    """Two GPUs each cost 2 / sqrt(2); four for one and none for the other 1 / 2 + 1.1."""
    trace = trace_by_hand(cluster_of(4), *[(0, 500, 1, linear(4))] * 2)
    _, seen = watched(trace, "sia")
    gpus = [trace.configurations.gpus[decision.row].tolist() for _, decision in seen[:4]]
    assert gpus == [[1, 1], [2, 2], [2, 2], [2, 2]]
