"""Zeus' choice of settings by brute force, and policies on tuned traces."""

from __future__ import annotations

import numpy as np
import pytest

from tests.strategies.replay import IDLE_W, poisson_jobs
from wattsched.formulations.sizing.configurations import WAIT
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.replay.jobs.outcome import finish_time_fairness, summary
from wattsched.replay.jobs.policies import names, policy_of
from wattsched.replay.jobs.policies.wrappers import tuned, zeus_cost
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of, trace_of_durations
from wattsched.topology.cluster import Cluster, GpuType, Node


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


@pytest.mark.parametrize("name", names())
def test_every_policy_takes_tuned_jobs(name: str) -> None:
    trace = trace_of_durations(homogeneous_cluster(2, 4, "V100"), poisson_jobs(8, 1, median_s=600.0))
    outcome = simulate(trace, policy_of(name + "+zeus", PolicyContext(trace)), round_s=60.0)
    assert outcome.jobs.done == pytest.approx(trace.work, rel=1e-9)
    assert outcome.jobs.energy_j.sum() == pytest.approx(outcome.meter.jobs_j, rel=1e-9)
