"""Traces from durations, and the public list of a cluster for a day."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import cluster_of, linear, poisson_jobs, replayed, trace_by_hand
from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.instances.traces.job_lists import read_itp
from wattsched.instances.traces.recorded import TraceJob
from wattsched.perfmodels.profile import find
from wattsched.replay.jobs.outcome import summary
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import trace_of, trace_of_durations
from wattsched.topology.cluster import Node

RECORDED = st.builds(
    TraceJob,
    name=st.text("abc", min_size=1, max_size=3),
    submitted_s=st.just(0.0),
    duration_s=st.floats(1.0, 1e6),
    gpus=st.integers(1, 100),
)


@settings(max_examples=examples(60))
@given(
    RECORDED,
    st.sampled_from(["A100", "V100", "T4", "A40", "P100"]),
    st.sampled_from([4, 8, 16]),
    st.integers(0, 5),
)
def test_profiles_keep_gpus_and_duration(job: TraceJob, gpu_type: str, per_node: int, seed: int) -> None:
    """On the GPUs asked for, at the default configuration, a job takes as long as it was recorded to take."""
    cluster = homogeneous_cluster(64 // per_node, per_node, gpu_type)
    trace = trace_of_durations(cluster, [job], seed=seed)
    asked = min(job.gpus, 64)
    assert trace.requested_gpus.tolist() == [asked]
    (row,) = trace.request[0].tolist()
    assert trace.configurations.gpus[row] == asked
    assert trace.standard[row]
    assert trace.work[0] / trace.configurations.rate[row] == pytest.approx(job.duration_s, rel=1e-12)
    assert simulate(trace, policy_of("fifo", PolicyContext(trace))).end_s == pytest.approx(job.duration_s)


@given(
    st.sampled_from([("bert", 64), ("gpt2", 256), ("resnet50", 128), ("vgg16", 100), ("deepspeech2", 32)]),
    st.integers(1, 64),
)
def test_models_of_the_trace_keep_their_batch(trained: tuple[str, int], gpus: int) -> None:
    model, batch = trained
    jobs = [TraceJob("j", 0.0, 500.0, gpus, model, batch), TraceJob("k", 0.0, 500.0, gpus, model)]
    trace = trace_of_durations(homogeneous_cluster(8, 8), jobs)
    row = trace.request[0, 0]
    assert trace.work / trace.requested_rate == pytest.approx([500.0, 500.0], rel=1e-12)
    profile = find(model, "A100")
    assert profile is not None
    usable = [b for b in (*profile.batch_sizes, batch) if gpus <= b <= gpus * profile.max_local_batch]
    assert trace.configurations.batch_size[row] == min(usable, key=lambda b: abs(b - batch))
    assert trace.configurations.gpus[row] == gpus


def test_elasticity_bounds_the_counts() -> None:
    trace = trace_of_durations(homogeneous_cluster(2, 8), [TraceJob("a", 0.0, 60.0, 4)], elasticity=2)
    assert set(trace.configurations.gpus.tolist()) == {2, 4, 8}


def test_models_depend_on_seed_and_name_alone() -> None:
    cluster, jobs = homogeneous_cluster(2, 8), poisson_jobs(20, seed=1)
    one, other = trace_of_durations(cluster, jobs, seed=1), trace_of_durations(cluster, jobs[5:], seed=1)
    assert one.work[5:].tolist() == other.work.tolist()
    assert one.work.tolist() != trace_of_durations(cluster, jobs, seed=2).work.tolist()


@pytest.mark.parametrize(
    ("told", "fields"),
    [
        ("has the capacity 'nodes', but replays place jobs in aligned blocks", {"capacity": "nodes"}),
        (
            "node 'n0' has reserved_w, but in replays all jobs are known",
            {"nodes": [Node(name="n0", gpu_type="G", gpus=4, reserved_w=5.0)]},
        ),
    ],
)
def test_clusters_that_replays_do_not_know_are_refused(told: str, fields: dict[str, Any]) -> None:
    cluster = cluster_of(4).model_copy(update=fields)
    with pytest.raises(ValueError, match=told):
        trace_by_hand(cluster, (0.0, 1.0, 1, linear(2)))


def test_prices_of_changes_are_refused() -> None:
    jobs = [Job(name="a", change_cost=2.0, options="t")]
    table = OptionTable(gpus=[1], pool=["G"], power_w=[1.0], rate=[1.0])
    with pytest.raises(ValueError, match="job 'a' has change_cost, but the policies of replays ask for none"):
        trace_of(cluster_of(4), jobs, [0.0], [1], {"t": table})


def test_traces_without_jobs_are_refused() -> None:
    with pytest.raises(ValueError, match="has no job that uses a GPU"):
        trace_of_durations(homogeneous_cluster(1, 8), [TraceJob("a", 0.0, 60.0, 0)])
    empty = trace_of(homogeneous_cluster(1, 8), [], [], [])
    assert simulate(empty, policy_of("fifo", PolicyContext(empty))).meter.energy_j == 0


def test_half_a_day_of_a_real_cluster(data_dir: Path) -> None:
    jobs = read_itp(data_dir / "itp-elasticflow-2021" / "raw" / "cluster04.csv")
    first = min(job.submitted_s for job in jobs) + 20 * 86_400
    day = [job for job in jobs if first <= job.submitted_s < first + 43_200]
    trace = trace_of_durations(homogeneous_cluster(16, 8), day, seed=0)
    found = {}
    for name in ("fifo", "elastic"):
        outcome = replayed(trace, name, 60.0)
        found[name] = summary(outcome)
        books_j = outcome.jobs.energy_j.sum() + outcome.meter.idle_j + outcome.meter.base_j
        assert books_j == pytest.approx(outcome.meter.energy_j, rel=1e-9)
    assert found["elastic"].jct_mean_s < 0.7 * found["fifo"].jct_mean_s
    assert found["elastic"].gap_max is not None
    assert found["elastic"].gap_max <= 5e-3


def test_plain_requests_stay_plain_as_deployed() -> None:
    """Only a list's bounds make a job elastic, and only they or a model free its settings; work stays."""
    cluster = homogeneous_cluster(2, 8, "V100")
    jobs = [
        TraceJob("plain", 0.0, 3600.0, 4),
        TraceJob("settings", 1.0, 3600.0, 4, model="bert"),
        TraceJob("elastic", 2.0, 3600.0, 4, min_gpus=2, max_gpus=8),
        TraceJob("narrow", 3.0, 3600.0, 4, model="bert", max_gpus=8),
    ]
    free, kept = (trace_of_durations(cluster, jobs, seed=3, as_deployed=one) for one in (False, True))
    np.testing.assert_array_equal(free.work, kept.work)
    rows, gpus = kept.configurations, {}
    for j, name in enumerate(kept.names):
        own = slice(*rows.start[rows.of_job[j] : rows.of_job[j] + 2])
        gpus[name] = sorted({*rows.gpus[own].tolist()})
        assert (own.stop - own.start > 1) == (name != "plain")
    assert gpus == {"plain": [4], "settings": [4], "elastic": [2, 4, 8], "narrow": [4, 8]}
    (row,) = kept.request[0]
    assert rows.rate[row] == pytest.approx(kept.work[0] / 3600.0)
    # Bounds take the place of the elasticity; jobs without any have a quarter to four times their GPUs.
    own = slice(*free.configurations.start[free.configurations.of_job[3] :][:2])
    assert {*free.configurations.gpus[own].tolist()} == {4, 8}
    assert free.configurations.gpus[: free.configurations.start[1]].max() == 16
