"""GPUs that jobs hold, alone or shared: by hand, and on random traces against segments and a count."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.replay import (
    BUSY_W,
    IDLE_W,
    Scripted,
    cluster_of,
    every_policy,
    linear,
    replayed,
    trace_by_hand,
    traces,
)
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.perfmodels.co_location import ALONE, EACO_SLOWDOWN, SHARED
from wattsched.replay.jobs.allocations import Sharing, slowdown
from wattsched.replay.jobs.outcome import RECORDS
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.replay.jobs.pools import PoolState, fragments
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import Trace, trace_of

ONE = {1: 1.0}


class Script:
    """Hosts by the number of the decision; the last ones stay. Everybody runs on what was asked for."""

    restart_s = 5.0

    def __init__(self, *hosts: list[int] | None) -> None:
        self._hosts = list(hosts)

    def decide(self, state: State) -> Decision:
        hosts = self._hosts.pop(0) if len(self._hosts) > 1 else self._hosts[0]
        row = state.request[:, 0].copy()
        host = np.array(hosts[: len(state)]) if hosts is not None else state.shared
        return Decision(row, host=host)


@pytest.mark.parametrize(
    ("gpus", "jobs", "hosts", "ends_s", "restarts"),
    [
        # Two that fill a GPU take turns: half speed until b ends at 100 s; a does the other half alone.
        (1, [(0, 100), (0, 50)], [[-1, 0]], [150, 100], [0, 0]),
        # The others keep the block of a host that ends: a third of the speed until 150 s, then half.
        (2, [(0, 50), (0, 100), (0, 100)], [[-1, 0, 0], None], [150, 250, 250], [0, 0, 0]),
        # Alone on two GPUs until c comes at 10 s; then b goes to a, and restarts for 5 s. From 10 s on a is
        # at half speed, b from 15 s on; a ends at 190 s, when b has done 10 + 87.5.
        (2, [(0, 100), (0, 100), (10, 100)], [[-1, -1], [-1, 0, -1], None], [190, 192.5, 110], [0, 1, 0]),
        # c brings the second decision; b gets a block of its own on the same node, and restarts.
        (4, [(0, 100), (0, 100), (10, 20)], [[-1, 0], [-1, -1, -1]], [105, 110, 30], [0, 1, 0]),
    ],
)
def test_jobs_that_share_by_hand(
    gpus: int, jobs: list, hosts: list, ends_s: list[float], restarts: list[int]
) -> None:
    trace = trace_by_hand(cluster_of(gpus), *((at_s, work, 1, ONE) for at_s, work in jobs))
    outcome = simulate(trace, Script(*hosts))
    assert outcome.jobs.end_s.tolist() == pytest.approx(ends_s)
    assert outcome.jobs.restarts.tolist() == restarts
    if gpus == 1:  # which always draws 100 W
        assert outcome.jobs.energy_j.tolist() == pytest.approx([100 * BUSY_W, 50 * BUSY_W])
        assert outcome.jobs.gpu_s.tolist() == pytest.approx([100.0, 50.0])
        assert outcome.jobs.migrations.sum() == 0


def test_three_that_leave_room_are_little_slower() -> None:
    """Two GPUs that draw 10 to 110 W, and jobs that use a quarter of one."""
    table = OptionTable(gpus=[1], pool=["G"], rate=[1.0], power_w=[35.0], power_limit_w=[110.0])
    jobs = [Job(name=name, remaining_work=100.0, options=table) for name in "abc"]
    trace = trace_of(cluster_of(2), jobs, [0.0, 0.0, 0.0], [1, 1, 1])
    assert Sharing(trace).utilisation.tolist() == pytest.approx([0.25])
    outcome = simulate(trace, Script([-1, 0, 0]))
    longer = float(slowdown(3, 0.75))
    assert longer == pytest.approx(1 + 2 * (EACO_SLOWDOWN.per_job + EACO_SLOWDOWN.per_load * 0.75**4))
    assert outcome.jobs.end_s == pytest.approx(100 * longer)
    assert outcome.meter.jobs_j == pytest.approx((10 + 75) * 100 * longer)
    assert outcome.meter.idle_j == pytest.approx(IDLE_W * 100 * longer)


@given(st.integers(1, 4), st.floats(0.0, 4.0))
def test_sharing_never_speeds_up_and_never_loses_to_more_than_turns(jobs: int, load: float) -> None:
    longer = float(slowdown(jobs, min(load, jobs)))
    assert 1.0 <= longer <= jobs + 1e-12
    assert longer >= min(load, jobs)


def test_measured_sets_within_a_few_points() -> None:
    for members, run in SHARED.items():
        alone = [ALONE[name] for name in members]
        load = sum(job.utilisation_pct for job in alone) / 100
        measured = run.jct_h / np.mean([job.jct_h for job in alone])
        assert float(slowdown(len(members), load)) == pytest.approx(measured, abs=0.01)


def test_guests_of_a_host_that_waits_share_with_one_another() -> None:
    def decide(state: State) -> Decision:
        row = state.request[:, 0].copy()
        row[: len(state) // 3] = -1
        return Decision(row, host=np.array([-1, 0, 0]) if len(state) == 3 else None)

    trace = trace_by_hand(cluster_of(1), *((0, 10, 1, ONE) for _ in range(3)))
    assert simulate(trace, Scripted(decide)).jobs.end_s.tolist() == pytest.approx([30.0, 20.0, 20.0])


@pytest.mark.parametrize(
    ("hosts", "message"),
    [
        ([-1, 0, 1], "lets job 'c' share with 'b', which is no host"),
        ([0, -1, -1], "lets job 'a' share with 'a', which is no host"),
        ([-1, 7, -1], "gives host 7, there are 3 jobs"),
        ([-1, 0], r"gives \(2,\) hosts for 3 jobs"),
        ([-1, -1, 0], "lets job 'c' share GPUs with 'a', which has others"),
    ],
)
def test_hosts_that_are_refused(hosts: list[int], message: str) -> None:
    trace = trace_by_hand(cluster_of(4), (0, 1, 1, ONE), (0, 1, 1, ONE), (0, 1, 2, {2: 1.0}))
    with pytest.raises(ValueError, match=message):
        simulate(trace, Script(hosts))


@pytest.mark.parametrize("name", every_policy())
@settings(max_examples=examples(12))
@given(traces([(2,), (4, 4), (3, 3), (4, 2), (2, 8, 8)]), st.sampled_from([0.0, 60.0]))
def test_segments_are_what_jobs_held(name: str, trace: Trace, round_s: float) -> None:
    outcome = replayed(trace, name, round_s)
    table, nodes = RECORDS["segments"](outcome), {node.name: node for node in trace.cluster.nodes}
    assert list(table) == [
        "job", "start_s", "end_s", "node", "gpus", "frequency_mhz", "batch_size", "first_gpu",
        "works_s", "idle_w", "power_w",
    ]  # fmt: skip
    lines = [dict(zip(table, line, strict=True)) for line in zip(*table.values(), strict=True)]
    assert table["start_s"] == sorted(table["start_s"])
    held, users = defaultdict(float), defaultdict(list)
    for line in lines:
        assert outcome.begin_s <= line["start_s"] < line["end_s"] <= outcome.end_s
        node, gpus = nodes[line["node"]], range(line["first_gpu"], line["first_gpu"] + line["gpus"])
        assert 0 < len(gpus) <= node.gpus - gpus.start
        assert not set(gpus) & set(node.unavailable)
        for gpu in gpus:
            users[node.name, gpu].append((line["start_s"], line["end_s"], line["job"]))
    # Two on one GPU at a time are a set: they come and go together, and their GPU seconds are divided.
    for segments in users.values():
        together = defaultdict(list)
        for start_s, end_s, job in segments:
            together[start_s, end_s].append(job)
        ordered = sorted(together)
        assert all(end_s <= start_s for (_, end_s), (start_s, _) in pairwise(ordered))
        for (start_s, end_s), jobs in together.items():
            assert len(set(jobs)) == len(jobs)
            for job in jobs:
                held[job] += (end_s - start_s) / len(jobs)
    expected = dict(zip(trace.names, outcome.jobs.gpu_s.tolist(), strict=True))
    assert held == pytest.approx({job: seconds for job, seconds in expected.items() if seconds})


def test_two_jobs_of_two_nodes() -> None:
    """Job a has both nodes of two GPUs for 10 s, then b one GPU."""
    trace = trace_by_hand(cluster_of(2, 2), (5.0, 40.0, 4, {4: 4.0}), (6.0, 2.0, 1, {1: 1.0}))
    table = RECORDS["segments"](replayed(trace, "fifo"))
    assert [line[:5] + line[7:8] for line in zip(*table.values(), strict=True)] == [
        ("a", 5.0, 15.0, "n0", 2, 0), ("a", 5.0, 15.0, "n1", 2, 0), ("b", 15.0, 17.0, "n0", 1, 0),
    ]  # fmt: skip
    assert np.isnan(table["frequency_mhz"]).all()


def free_for(pool: PoolState, size: int) -> int:
    """Free GPUs in free aligned blocks of a size, that lie inside one of the pool's blocks."""
    free = pool.pool.available.copy()
    for block in pool.blocks.values():
        free[block.start : block.start + block.size] = False
    return sum(
        size * bool(free[start : start + size].all())
        for first, length in pool.pool.blocks.tolist()
        for start in range(first, first + length - size + 1, size)
    )


@given(traces())
def test_fragments_one_by_one(trace: Trace) -> None:
    class Watching:
        restart_s = 5.0

        def __init__(self) -> None:
            self._policy = policy_of("srtf", PolicyContext(trace))

        def decide(self, state: State) -> Decision:
            found, fragmented = fragments(trace, state.pools)
            free = sum(free_for(pool, 1) for pool in state.pools)
            sizes = [1 << (int(gpus) - 1).bit_length() for gpus in trace.requested_gpus]
            usable = np.mean([sum(free_for(pool, size) for pool in state.pools) for size in sizes])
            assert found == free
            assert fragmented == pytest.approx(free - usable)
            assert 0 <= fragmented <= found
            return self._policy.decide(state)

    outcome = simulate(trace, Watching())
    assert outcome.rounds.fragmentation[-1] <= 1


def test_integral_by_hand() -> None:
    """Of four GPUs, job a leaves one and a block of two for 40 s; then job b holds the block for 20 s."""
    trace = trace_by_hand(cluster_of(4), (0.0, 100.0, 1, {1: 1.0}), (40.0, 40.0, 2, linear(2)))
    outcome = simulate(trace, policy_of("fifo", PolicyContext(trace)))
    assert outcome.jobs.end_s.tolist() == pytest.approx([100.0, 60.0])
    assert outcome.meter.free_gpu_s == pytest.approx(40 * 3 + 20 * 1 + 40 * 3)
    # Half of the jobs need a block of two; one GPU is of no use to them at any time.
    assert outcome.meter.fragment_gpu_s == pytest.approx(100 * 0.5)
    assert outcome.meter.fragmentation == pytest.approx(50 / 260)
    assert outcome.rounds.fragmentation == pytest.approx([0.5 / 3, 0.5, 0.5 / 3])
