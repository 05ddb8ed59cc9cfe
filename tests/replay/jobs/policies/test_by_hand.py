"""Policies on two or three jobs, worked by hand; restarts cost 5 s (process) or 20 s (pod)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.strategies.replay import cluster_of, linear, trace_by_hand
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.elastic import Elastic, in_time
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of
from wattsched.topology.cluster import Cluster, GpuType, Node

GROW = (
    "sizing",
    "elastic",
    "elastic-makespan",
    "elastic-progress",
    "elastic-completion",
    "sidecar",
    "termination",
    "optimus",
    "elasticflow",
    "powerflow",
    "greenflow",
)
"""Policies that give a job all GPUs at once if nobody else wants them."""
"""Those that give what was asked for, or more only round by round."""

ONE, TWO, FOUR = {1: 1.0}, {2: 1.0}, {4: 1.0}


def replay(trace: Trace, name: str) -> Outcome:
    return simulate(trace, policy_of(name, PolicyContext(trace, Restarts(5.0, 20.0))), name=name)


def ends(trace: Trace, name: str) -> list[float]:
    return replay(trace, name).jobs.end_s.tolist()


def test_fifo_lets_the_head_of_the_line_block() -> None:
    trace = trace_by_hand(cluster_of(4), (0, 100, 2, TWO), (0, 100, 4, FOUR), (0, 10, 1, ONE))
    assert ends(trace, "fifo") == pytest.approx([100, 200, 210])


def test_srtf_passes_over_and_preempts() -> None:
    trace = trace_by_hand(cluster_of(4), (0, 100, 2, TWO), (0, 100, 4, FOUR), (0, 10, 1, ONE))
    assert ends(trace, "srtf") == pytest.approx([100, 200, 10])
    trace = trace_by_hand(cluster_of(4), (0, 100, 4, FOUR), (20, 10, 4, FOUR))
    assert ends(trace, "srtf") == pytest.approx([30 + 5 + 80, 30])


def test_tiresias_demotes_at_the_threshold() -> None:
    trace = trace_by_hand(cluster_of(1), (0, 4000, 1, ONE), (100, 50, 1, ONE))
    assert ends(trace, "tiresias-2dlas") == pytest.approx([3650 + 5 + 400, 3650])


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # Halved at 10 s, works again from 15 s; at 30 s 65 are left, 32.5 + 5 s on both GPUs.
        ("sidecar", [67.5, 30]),
        # Works again from 30 s, when all 80 are left: 40 + 20 s on both GPUs.
        ("termination", [90, 30]),
        ("optimus", [67.5, 30]),
    ],
)
def test_growth_by_seconds_saved(name: str, expected: list[float]) -> None:
    trace = trace_by_hand(cluster_of(2), (0, 100, 1, linear(2)), (10, 20, 1, linear(2)))
    outcome = replay(trace, name)
    assert outcome.jobs.end_s.tolist() == pytest.approx(expected)
    assert outcome.jobs.restarts.tolist() == [2, 0]


def test_only_optimus_is_blind_to_restarts() -> None:
    """At 30 s 8 are left: 8 s as it is, 4 + 5 s on both GPUs."""
    trace = trace_by_hand(cluster_of(2), (0, 43, 1, linear(2)), (10, 20, 1, linear(2)))
    assert ends(trace, "sidecar") == pytest.approx([38, 30])
    assert ends(trace, "optimus") == pytest.approx([39, 30])


def test_elasticflow_prefers_those_that_scale() -> None:
    rates = {1: 1.0, 2: 1.9, 4: 2.0}
    trace = trace_by_hand(cluster_of(4, unavailable=[3]), (0, 190, 1, rates), (0, 100, 1, {1: 1.0, 2: 1.2}))
    assert ends(trace, "elasticflow") == pytest.approx([100, 100])


def test_powerflow_upgrades_both() -> None:
    trace = trace_by_hand(cluster_of(4), (0, 100, 1, linear(4)), (0, 100, 1, linear(4)))
    assert ends(trace, "powerflow") == pytest.approx([50, 50])


@pytest.mark.parametrize("name", ["elastic", "elastic-progress"])
def test_elastic_serves_the_short_job_first_when_speed_up_is_linear(name: str) -> None:
    trace = trace_by_hand(cluster_of(4), (0, 100, 1, linear(4)), (0, 10, 1, linear(4)))
    assert ends(trace, name) == pytest.approx([27.5, 2.5])


def test_elastic_leaves_a_job_that_would_lose_more_by_the_restart() -> None:
    """At 10 s half the GPUs get free; a job with 8 s left would take 4 s, after a restart of 5 s."""
    trace = trace_by_hand(cluster_of(2), (0, 18, 1, {1: 1.0, 2: 1.1}), (0, 10, 1, {1: 1.0, 2: 1.1}))
    assert ends(trace, "elastic") == pytest.approx([18, 10])


def test_the_last_job_keeps_going_when_it_must_not_end_late() -> None:
    flat = {1: 1.0, 2: 1.5, 4: 2.0}
    jobs = [(0.0, 100.0, 1, flat), *((0.0, 40.0, 1, flat) for _ in range(3))]
    trace = trace_by_hand(cluster_of(4), *jobs)
    plain, context = replay(trace, "elastic"), PolicyContext(trace, Restarts(5.0, 20.0))
    punctual = simulate(trace, Elastic(context, partial(in_time, slack=0.1)))
    assert punctual.end_s < plain.end_s
    assert punctual.jobs.first_start_s[0] == 0


@pytest.mark.parametrize("name", GROW)
def test_a_job_alone_takes_the_whole_cluster(name: str) -> None:
    trace = trace_by_hand(cluster_of(4, 4), (7, 100, 1, linear(8)))
    assert ends(trace, name) == pytest.approx([7 + 12.5])


def test_names_and_clusters_that_are_refused() -> None:
    trace = trace_by_hand(cluster_of(2, 4), (0, 1, 1, ONE))
    with pytest.raises(ValueError, match="there is no policy 'best'; there are "):
        policy_of("best", PolicyContext(trace))


def test_growth_in_the_pool_where_a_job_is_fastest() -> None:
    """Pools of two GPUs; on H a job is twice as fast. The first two share H, the third has G to itself."""
    cluster = Cluster(
        gpu_types={name: GpuType(idle_power_w=10.0) for name in ("G", "H")},
        nodes=[Node(name=name, gpu_type=name, gpus=2) for name in ("G", "H")],
    )
    table = OptionTable(
        gpus=[1, 2, 1, 2], pool=["G", "G", "H", "H"], rate=[1.0, 2.0, 2.0, 4.0], power_w=[50.0] * 4
    )
    jobs = [
        Job(name=name, remaining_work=work, options=table)
        for name, work in zip("abc", (80, 40, 100), strict=True)
    ]
    trace = trace_of(cluster, jobs, [0.0] * 3, [1] * 3)
    # a takes over the other GPU of H at 20 s, restarts for 5 s and needs 10 s for the 40 that are left.
    assert ends(trace, "optimus") == pytest.approx([35, 20, 50])
