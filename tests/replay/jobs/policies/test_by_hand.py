"""Policies on a few jobs, worked by hand; restarts cost 5 s (process) or 20 s (pod)."""

from __future__ import annotations

from functools import partial

import pytest

from tests.strategies.replay import cluster_of, linear, replayed, trace_by_hand
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.replay.jobs.allocations import slowdown
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policies.elastic import Elastic, in_time
from wattsched.replay.jobs.policy import PolicyContext, Restarts
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import trace_of
from wattsched.topology.cluster import Cluster, GpuType, Node

GROW = (
    *("sizing", "elastic", "elastic-makespan", "elastic-progress", "elastic-completion", "sidecar"),
    *("termination", "optimus", "elasticflow", "powerflow", "greenflow"),
)
"""Policies that give a job all GPUs at once if nobody else wants them."""

ONE, TWO, FOUR = {1: 1.0}, {2: 1.0}, {4: 1.0}
QUEUE = [(0, 100, 2, TWO), (0, 100, 4, FOUR), (0, 10, 1, ONE)]
GROWING = [(0, 100, 1, linear(2)), (10, 20, 1, linear(2))]
LONG_AND_SHORT = [(0, 100, 1, linear(4)), (0, 10, 1, linear(4))]
NEARLY_DONE = [(0, 43, 1, linear(2)), (10, 20, 1, linear(2))]
SCALING = [(0, 190, 1, {1: 1.0, 2: 1.9, 4: 2.0}), (0, 100, 1, {1: 1.0, 2: 1.2})]
PAIR = [(0, 100, 1, ONE), (0, 50, 1, ONE)]
# a runs on 2 of 4 GPUs for 100 s; b asks for all four; c would end in time, d would not.
AROUND = [(0, 100, 2, TWO), (1, 10, 4, FOUR), (2, 50, 1, ONE), (3, 200, 1, ONE)]
# c asks for 4 of 8 GPUs, of which a and b have 6 (an aligned 4 and 2): 4 are left beside it later.
BESIDE = [(0, 100, 4, FOUR), (0, 100, 2, TWO), (1, 10, 4, FOUR), (2, 500, 2, TWO)]


@pytest.mark.parametrize(
    ("name", "gpus", "jobs", "ends_s"),
    [
        # The head of the line blocks.
        ("fifo", 4, QUEUE, [100, 200, 210]),
        # One that does not fit is passed over, and longer ones are stopped.
        ("srtf", 4, QUEUE, [100, 200, 10]),
        ("srtf", 4, [(0, 100, 4, FOUR), (20, 10, 4, FOUR)], [30 + 5 + 80, 30]),
        # Demoted at the threshold of an hour.
        ("tiresias-2dlas", 1, [(0, 4000, 1, ONE), (100, 50, 1, ONE)], [3650 + 5 + 400, 3650]),
        ("backfill", 4, AROUND, [100, 110, 52, 310]),
        ("fifo", 4, AROUND, [100, 110, 160, 310]),
        ("backfill", 8, BESIDE, [100, 100, 110, 502]),
        # Halved at 10 s, works again from 15 s; at 30 s 65 are left, 32.5 + 5 s on both GPUs.
        ("sidecar", 2, GROWING, [67.5, 30]),
        ("optimus", 2, GROWING, [67.5, 30]),
        # Works again from 30 s, when all 80 are left: 40 + 20 s on both GPUs.
        ("termination", 2, GROWING, [90, 30]),
        # At 30 s 8 are left: 8 s as it is, 4 + 5 s on both GPUs, which only optimus does not know.
        ("sidecar", 2, NEARLY_DONE, [38, 30]),
        ("optimus", 2, NEARLY_DONE, [39, 30]),
        ("powerflow", 4, [(0, 100, 1, linear(4)), (0, 100, 1, linear(4))], [50, 50]),
        # The short job first, as the speed-up is linear.
        ("elastic", 4, LONG_AND_SHORT, [27.5, 2.5]),
        ("elastic-progress", 4, LONG_AND_SHORT, [27.5, 2.5]),
        ("elastic-makespan", 4, LONG_AND_SHORT, [27.5, 2.5]),
        # At 10 s half the GPUs get free; a job with 8 s left would take 4 s, after a restart of 5 s.
        ("elastic", 2, [(0, 18, 1, {1: 1.0, 2: 1.1}), (0, 10, 1, {1: 1.0, 2: 1.1})], [18, 10]),
        # 10 s of four GPUs are less work than 1000 s of one, though they serve one job, not four.
        ("sizing", 4, [(0, 10, 4, FOUR), *[(0, 1000, 1, ONE)] * 4], [10, *[1010] * 4]),
        # Pairs only while there is more work than room, and of equal counts: the two of one GPU share one.
        ("gandiva", 1, PAIR, [150, 100]),
        ("gandiva", 2, PAIR, [100, 50]),
        ("gandiva", 3, [(0, 100, 2, TWO), *[(0, 100, 1, ONE)] * 2], [100, 200, 200]),
        # Full GPUs are not shared; the third waits for the first of the two to end.
        ("eaco", 2, [*PAIR, (0, 10, 1, ONE)], [100, 50, 60]),
        # Each has 360 s in turn, and pays a restart of 5 s from its second turn on.
        ("gavel-max-min", 1, [(0, 500, 1, ONE)] * 2, [720 + 5 + 140, 1080 + 5 + 140]),
        # 60 s on one GPU, 55 s on two, the 830 that are left on four; a restart of 5 s each time.
        ("sia", 4, [(0, 1000, 1, linear(4))], [125 + 830 / 4]),
    ],
)
def test_ends_of_jobs(name: str, gpus: int, jobs: list, ends_s: list[float]) -> None:
    outcome = replayed(trace_by_hand(cluster_of(gpus), *jobs), name)
    assert outcome.jobs.end_s.tolist() == pytest.approx(ends_s)
    if jobs is GROWING:
        assert outcome.jobs.restarts.tolist() == [2, 0]


def test_elasticflow_prefers_those_that_scale() -> None:
    outcome = replayed(trace_by_hand(cluster_of(4, unavailable=[3]), *SCALING), "elasticflow")
    assert outcome.jobs.end_s.tolist() == pytest.approx([100, 100])


@pytest.mark.parametrize("name", GROW)
def test_a_job_alone_takes_the_whole_cluster(name: str) -> None:
    outcome = replayed(trace_by_hand(cluster_of(4, 4), (7, 100, 1, linear(8))), name)
    assert outcome.jobs.end_s.tolist() == pytest.approx([7 + 12.5])


def test_a_short_job_stops_a_long_one_that_goes_on_with_a_restart() -> None:
    outcome = replayed(trace_by_hand(cluster_of(1), (0, 100, 1, ONE), (10, 20, 1, ONE)), "srtf")
    assert outcome.jobs.preemptions.tolist() == outcome.jobs.restarts.tolist() == [1, 0]


def test_sizing_stops_no_job_for_little() -> None:
    """90 s are left when one of 85 s arrives, and longer ones wait; of a long one alone many hours are."""
    waiting = [(0.0, size, 1, ONE) for size in (500, 600, 700)]
    kept = replayed(trace_by_hand(cluster_of(1), (0, 100, 1, ONE), *waiting, (10, 85, 1, ONE)), "sizing")
    assert kept.jobs.preemptions.sum() == 0
    assert kept.jobs.end_s[[0, -1]] == pytest.approx([100, 185])
    stopped = replayed(trace_by_hand(cluster_of(1), (0, 50_000, 1, ONE), (10, 85, 1, ONE)), "sizing")
    assert stopped.jobs.preemptions.tolist() == [1, 0]


def test_eaco_fills_a_gpu_before_it_takes_another() -> None:
    """Two GPUs that draw 10 to 110 W, and jobs that use a quarter of one."""
    table = OptionTable(gpus=[1], pool=["G"], rate=[1.0], power_w=[35.0], power_limit_w=[110.0])
    jobs = [Job(name=f"{i}", remaining_work=100.0, options=table) for i in range(5)]
    outcome = replayed(trace_of(cluster_of(2), jobs, [0.0] * 5, [1] * 5), "eaco")
    assert outcome.jobs.end_s == pytest.approx([100 * float(slowdown(4, 1.0))] * 4 + [100.0])


def test_the_last_job_keeps_going_when_it_must_not_end_late() -> None:
    flat = {1: 1.0, 2: 1.5, 4: 2.0}
    jobs = [(0.0, 100.0, 1, flat), *((0.0, 40.0, 1, flat) for _ in range(3))]
    trace = trace_by_hand(cluster_of(4), *jobs)
    plain, context = replayed(trace, "elastic"), PolicyContext(trace, Restarts(5.0, 20.0))
    punctual = simulate(trace, Elastic(context, partial(in_time, slack=0.1)))
    assert punctual.end_s < plain.end_s
    assert punctual.jobs.first_start_s[0] == 0


def test_unknown_policies_are_refused() -> None:
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
    # a takes over the other GPU of H at 20 s, restarts for 5 s and needs 10 s for the 40 that are left.
    outcome = replayed(trace_of(cluster, jobs, [0.0] * 3, [1] * 3), "optimus")
    assert outcome.jobs.end_s.tolist() == pytest.approx([35, 20, 50])
