"""Gavel's shares and Zeus' settings by brute force, and rounds of Gavel and Sia by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import (
    IDLE_W,
    cluster_of,
    every_policy,
    linear,
    poisson_jobs,
    trace_by_hand,
    watched,
)
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.replay.jobs.outcome import finish_time_fairness, summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.fixed_rounds import by_priority, max_min, shares
from wattsched.replay.jobs.policies.wrappers import tuned, zeus_cost
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of, trace_of_durations
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


def by_hand() -> Trace:
    """One GPU of at most 100 W; at 60 W a job takes 1.25 times as long, at 40 W twice as long."""
    cluster = Cluster(
        gpu_types={"G": GpuType(idle_power_w=IDLE_W, max_power_w=100.0)},
        nodes=[Node(name="n", gpu_type="G", gpus=1)],
    )
    table = OptionTable(
        gpus=[1, 1, 1], pool=["G"] * 3, rate=[1.0, 0.8, 0.5], power_w=[100.0, 60.0, 40.0],
        power_limit_w=[100.0, 60.0, 40.0],
    )  # fmt: skip
    return trace_of(cluster, [Job(name="a", remaining_work=100.0, options=table)], [0.0], [1])


def test_costs_by_hand() -> None:
    """Half the joules plus half of 100 W times the seconds: 100, 100 and 140 at equal weights."""
    trace = by_hand()
    assert zeus_cost(trace) == pytest.approx([100.0, 100.0, 140.0])
    assert tuned(trace).standard.tolist() == [True, False, False]
    assert tuned(trace, eta=0.6).standard.tolist() == [False, True, False]
    assert tuned(trace, eta=0.0).standard.tolist() == [True, False, False]


def test_fairness_is_against_the_untuned_request() -> None:
    trace = by_hand()
    cheap = tuned(trace, eta=0.9)
    assert cheap.request.tolist() == [[1]]
    outcome = simulate(trace, policy_of("fifo+zeus", PolicyContext(trace)))
    assert outcome.jobs.end_s.tolist() == pytest.approx([100.0])
    slow = simulate(cheap, policy_of("fifo", PolicyContext(cheap)))
    assert slow.jobs.end_s.tolist() == pytest.approx([125.0])
    assert slow.jobs.energy_j.tolist() == pytest.approx([7500.0])
    assert finish_time_fairness(outcome).tolist() == pytest.approx([1.0])


@pytest.mark.parametrize("gpu_type", ["A100", "V100"])
def test_every_choice_is_the_cheapest_that_compares(gpu_type: str) -> None:
    cluster = homogeneous_cluster(2, 8, gpu_type)
    models = [m for m in ("gpt2", "resnet50", "bert", "bert-sentiment") if m != "gpt2" or gpu_type == "A100"]
    models = [m for m in models if m != "bert-sentiment" or gpu_type == "V100"]
    jobs = [Job(name=m, model=m, remaining_work=1e6) for m in models]
    trace = trace_of(cluster, jobs, [0.0] * len(jobs), [4] * len(jobs))
    of, cheap, cost = trace.configurations, tuned(trace), zeus_cost(trace)
    assert trace.highest_w[0] >= (of.power_w / of.gpus).max()
    for row in np.flatnonzero(cheap.standard).tolist():
        rivals = (of.kind == of.kind[row]) & (of.gpus == of.gpus[row])
        usual = np.flatnonzero(rivals & trace.standard)
        assert len(usual) == 1
        if not trace.batches_compare[of.kind[row]]:
            rivals &= of.batch_size == of.batch_size[usual[0]]
        assert cost[row] == cost[rivals].min()
    assert cheap.standard.sum() == trace.standard.sum()
    assert trace.batches_compare.tolist() == [m in ("resnet50", "bert") for m in models]
    known = trace.request != WAIT
    assert np.array_equal(of.gpus[trace.request[known]], of.gpus[cheap.request[known]])
    context = PolicyContext(trace)
    plain, better = (summary(simulate(trace, policy_of(p, context))) for p in ("srtf", "srtf+zeus"))
    assert better.jobs_energy_j < plain.jobs_energy_j


@pytest.mark.parametrize("name", every_policy())
def test_every_policy_takes_tuned_jobs(name: str) -> None:
    trace = trace_of_durations(homogeneous_cluster(2, 4, "V100"), poisson_jobs(8, 1, median_s=600.0))
    outcome = simulate(trace, policy_of(name + "+zeus", PolicyContext(trace)), round_s=60.0)
    assert outcome.jobs.done == pytest.approx(trace.work, rel=1e-9)
    assert outcome.jobs.energy_j.sum() == pytest.approx(outcome.meter.jobs_j, rel=1e-9)
