"""Figures of a replay that can be worked out by hand, and records as CSV and as Parquet."""

from __future__ import annotations

import csv
import io

import pytest

from tests.strategies.replay import BASE_W, BUSY_W, IDLE_W, cluster_of, linear, trace_by_hand
from wattsched.instances.clusters import GPU_TYPES, homogeneous_cluster
from wattsched.instances.traces.recorded import TraceJob
from wattsched.perfmodels.profile import Profiles, find
from wattsched.replay.jobs.accounts import Carbon
from wattsched.replay.jobs.outcome import (
    CLOCK_COLUMNS,
    RECORDS,
    Outcome,
    Summary,
    csv_text,
    finish_time_fairness,
    parquet,
    summary,
)
from wattsched.replay.jobs.policies import policy_of
from wattsched.replay.jobs.policy import PolicyContext
from wattsched.replay.jobs.simulation import simulate
from wattsched.replay.jobs.trace import trace_of_durations
from wattsched.topology.cluster import Cluster, Node


@pytest.fixture
def outcome() -> Outcome:
    trace = trace_by_hand(cluster_of(4), *((7.0 * i, 50.0 + i / 3, 2, linear(4)) for i in range(5)))
    return simulate(trace, policy_of("fifo", PolicyContext(trace)), name="fifo")


def test_csv_has_a_line_per_entry(outcome: Outcome) -> None:
    for table in RECORDS.values():
        columns = table(outcome)
        rows = list(csv.DictReader(io.StringIO(csv_text(columns))))
        assert list(rows[0]) == list(columns)
        for name, values in columns.items():
            read = [row[name] for row in rows]
            assert len(read) == len(values)
            if name in ("job", "node"):
                assert read == list(values)
            elif name in ("gap", "frequency_mhz", "batch_size"):
                assert set(read) == {""}
            else:
                assert [float(cell) for cell in read] == pytest.approx(values, rel=1e-8)


def test_the_error_of_the_energy_is_what_other_watts_would_make_of_it() -> None:
    jobs = [TraceJob(f"j{i}", 600.0 * i, 3000.0, 2, model="bert") for i in range(4)]
    cluster = homogeneous_cluster(1, 8, "A100")
    kind = cluster.gpu_types["A100"].model_copy(update={"max_power_w": None})

    def run(power_factor: float) -> Summary:
        types = {"A100": kind.model_copy(update={"power_factor": power_factor})}
        trace = trace_of_durations(cluster.model_copy(update={"gpu_types": types}), jobs)
        return summary(simulate(trace, policy_of("fifo", PolicyContext(trace)), name="fifo"))

    profile = find("bert", "A100")
    assert profile is not None
    assert profile.power_error is not None
    plain, more = run(1.0), run(1.0 + profile.power_error)
    assert plain.energy_error_j == pytest.approx(more.energy_j - plain.energy_j)
    assert plain.energy_error_j == pytest.approx(profile.power_error * plain.jobs_energy_j)
    assert plain.energy_error == pytest.approx(plain.energy_error_j / plain.energy_j)


@pytest.mark.parametrize("known", [(0.1, 0.3), (0.3, 0.1), (None, 0.3), (0.3, None)])
def test_the_error_of_a_model_is_that_of_its_worst_profile(known: tuple[float | None, float | None]) -> None:
    a100, v100 = find("bert", "A100"), find("bert", "V100")
    assert a100 is not None
    assert v100 is not None
    given = tuple(
        one.model_copy(update={"power_uncertainty": error, "fit_error": None})
        for one, error in zip((a100, v100), known, strict=True)
    )
    nodes = [Node(name=kind, gpu_type=kind, gpus=8) for kind in ("A100", "V100")]
    cluster = Cluster(gpu_types={kind: GPU_TYPES[kind] for kind in ("A100", "V100")}, nodes=nodes)
    trace = trace_of_durations(cluster, [TraceJob("j", 0.0, 60.0, 1, model="bert")], profiles=Profiles(given))
    found = summary(simulate(trace, policy_of("fifo", PolicyContext(trace)), name="fifo"))
    if None in known:
        assert found.energy_error_j is None
    else:
        assert found.energy_error_j == pytest.approx(0.3 * found.jobs_energy_j)


@pytest.mark.parametrize("begin_s", [0.0, 1.7e9, 1e12])
def test_times_of_a_late_clock_keep_their_milliseconds(begin_s: float) -> None:
    trace = trace_by_hand(
        cluster_of(4), (begin_s, 50.0 / 3, 2, linear(4)), (begin_s + 1 / 3, 1.0, 2, linear(4))
    )
    outcome = simulate(trace, policy_of("fifo", PolicyContext(trace)), name="fifo")
    for name, columns in ((name, table(outcome)) for name, table in RECORDS.items()):
        rows = list(csv.DictReader(io.StringIO(csv_text(columns))))
        for clock in set(columns) & CLOCK_COLUMNS:
            read = [float(row[clock]) for row in rows]
            assert read == pytest.approx(columns[clock], rel=0, abs=6e-4), name


def test_parquet_keeps_every_digit(outcome: Outcome) -> None:
    pytest.importorskip("pyarrow")
    import pandas as pd

    for table in RECORDS.values():
        columns = table(outcome)
        frame = pd.read_parquet(io.BytesIO(parquet(columns)))
        pd.testing.assert_frame_equal(frame, pd.DataFrame(dict(columns)))


def test_two_jobs_one_after_the_other() -> None:
    """Two GPUs; a holds one for 100 s, b waits for both and holds them for 50 s."""
    trace = trace_by_hand(cluster_of(2), (0.0, 100.0, 1, {1: 1.0}), (40.0, 50.0, 2, {2: 1.0}))
    policy = policy_of("fifo", PolicyContext(trace))
    outcome = simulate(trace, policy, name="fifo", carbon=Carbon.constant(360.0))
    found = summary(outcome)
    assert (found.policy, found.jobs, found.rounds, found.restarts, found.migrations) == ("fifo", 2, 3, 0, 0)
    assert found.jct_mean_s == pytest.approx((100 + 110) / 2)
    assert found.queueing_mean_s == pytest.approx(30)
    assert found.makespan_s == pytest.approx(150)
    energy_j = 200 * BUSY_W + 100 * IDLE_W + 150 * BASE_W
    assert found.energy_j == pytest.approx(energy_j)
    assert found.carbon_g == pytest.approx(energy_j / 3.6e6 * 360)
    assert found.gpu_utilisation == pytest.approx(200 / 300)
    assert found.gpu_h == pytest.approx(200 / 3600)
    assert (found.fragmentation, found.preemptions) == (0.5, 0)
    assert found.gap_mean is None
    assert found.energy_error_j == 0.0, "tables are taken at their word"
    # Contention is 1.5 from 40 to 100 s: fair times are 100 * 1.3 and 50 * (60 * 1.5 + 50) / 110.
    assert finish_time_fairness(outcome).tolist() == pytest.approx([100 / 130, 110 / (50 * 140 / 110)])
    assert found.unfair_fraction == 0.5
