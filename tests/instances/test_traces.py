"""Readers on the public traces, rounds of a moment, and malformed files."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.instances.clusters import homogeneous_cluster, idle_power_w
from wattsched.instances.io import document_text
from wattsched.instances.sizing.decision import Assignment, Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.traces import TraceJob, busiest_s, formats, round_at
from wattsched.perfmodels.profile import find
from wattsched.results.documents import instance_of
from wattsched.topology.cluster import Cluster
from wattsched.verification.sizing.checker import check

READ = {name: form.read for name, form in formats().items()}


def as_it_runs(instance: Instance) -> Decision:
    """Running jobs go on, the others wait."""
    running = [
        Assignment(job=job.name, **job.current.model_dump())
        for job in instance.jobs
        if job.current is not None
    ]
    return Decision(jobs=running, waiting=[job.name for job in instance.jobs if job.current is None])


def reread(instance: Instance) -> Instance:
    """Validate as a file would be."""
    return instance_of(instance.model_dump(mode="json"))


@pytest.fixture(scope="module")
def openb(data_dir: Path) -> Cluster:
    cluster: Cluster = READ["openb"](data_dir / "alibaba-gpu-2023" / "openb_node_list_gpu_node.csv")
    return cluster


def test_openb_nodes_have_the_published_counts_and_watts(openb: Cluster, data_dir: Path) -> None:
    assert (len(openb.nodes), openb.total_gpus) == (1213, 6212)
    gpus = {name: sum(n.gpus for n in openb.nodes if n.gpu_type == name) for name in openb.gpu_types}
    assert gpus == {
        "T4": 842, "P100": 265, "V100M16": 195, "V100M32": 204, "A10": 2, "G2": 4392, "G3": 312
    }  # fmt: skip
    # The empty and the busy cluster of the PWR study.
    assert sum(node.base_power_w for node in openb.nodes) == 55_665
    assert idle_power_w(openb, openb.nodes) == 230_100
    every = data_dir / "alibaba-gpu-2023" / "openb_node_list_all_node.csv"
    busy: Cluster = READ["openb"](every, cpu_load=1.0)
    assert len(busy.nodes) == 1213
    assert sum(node.base_power_w for node in busy.nodes) == 445_320
    full = sum(n.gpus * (busy.gpu_types[n.gpu_type].max_power_w or 0.0) for n in busy.nodes)
    assert full + 445_320 == 1_474_110


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "file"),
    [
        ("itp", "itp-elasticflow-2021/raw/cluster04.csv"),
        ("itp", "itp-elasticflow-2021/raw/cluster10.csv"),
        ("philly", "philly-2017/philly_jobs.csv.gz"),
    ],
)
def test_the_busiest_hour_of_real_traces(form: str, file: str, data_dir: Path, openb: Cluster) -> None:
    trace = READ[form](data_dir / file)
    for cluster in (None, openb):
        instance = round_at(trace, "busiest", cluster)
        assert reread(instance) == instance
        report = check(instance, as_it_runs(instance))
        assert report.faults == []
        assert (report.totals["migrations"], report.totals["restarts"]) == (0, 0)
        used, there = report.totals["gpus_used"], instance.cluster.total_gpus
        asked = sum((job.max_gpus or 0) // 4 for job in instance.jobs)
        assert used >= 0.95 * min(there, asked)
    assert document_text(round_at(trace, "busiest", openb)) == document_text(instance)
    assert document_text(round_at(trace, "busiest", openb, seed=1)) != document_text(instance)


@pytest.mark.slow
def test_published_totals(data_dir: Path) -> None:
    philly = READ["philly"](data_dir / "philly-2017" / "philly_jobs.csv.gz")
    assert len(philly) == 82_247
    assert sum(j.gpus * j.duration_s for j in philly) / 3600 == pytest.approx(978_078, rel=1e-3)
    assert min(j.submitted_s for j in philly) == 0.0
    part = READ["philly"](data_dir / "philly-2017" / "philly_jobs.csv.gz", virtual_cluster="6c71a0")
    assert len(part) == 9953
    assert set(part) <= set(philly)
    itp = READ["itp"](data_dir / "itp-elasticflow-2021" / "raw" / "cluster04.csv")
    assert len(itp) == 15_802
    assert sum(j.gpus * j.duration_s for j in itp) / 3600 == pytest.approx(705_683, rel=1e-3)


# --- rounds of made-up traces -----------------------------------------------------------------------


def test_a_moment_has_the_jobs_between_submission_and_end() -> None:
    trace = [TraceJob("early", 0, 100, 1), TraceJob("late", 100, 50, 2), TraceJob("none", 0, 100, 0)]
    for moment, names in ((0, ["early"]), (99.9, ["early"]), (100, ["late"]), (149.9, ["late"])):
        assert [job.name for job in round_at(trace, moment).jobs] == names
    for moment in (-1, 150):
        with pytest.raises(ValueError, match="no job is in the system"):
            round_at(trace, moment)
    for moment in (float("nan"), float("-inf")):
        with pytest.raises(ValueError, match="at: must be finite"):
            round_at(trace, moment)
    with pytest.raises(ValueError, match="no job that uses a GPU"):
        round_at(trace[2:], 0)


def test_jobs_that_waited_run_from_their_start_within_their_bounds() -> None:
    trace = [
        TraceJob("first", 0, 7200, 4, model="bert", waited_s=0, min_gpus=4, max_gpus=4),
        TraceJob("second", 1800, 3600, 8, model="bert", waited_s=5400, min_gpus=2),
    ]
    assert [(job.started_s, job.ended_s) for job in trace] == [(0, 7200), (7200, 10_800)]
    cluster = homogeneous_cluster(1)
    whole = {job.name: job.remaining_work for job in round_at(trace, 1800, cluster).jobs}
    for moment, left in ((3600, {"first": 2 / 3, "second": 1.0}), (9000, {"second": 0.5})):
        jobs = round_at(trace, moment, cluster).jobs
        running = {job.name for job in jobs if job.current}
        assert running == ({"first"} if moment < 7200 else {"second"})
        for job in jobs:
            assert job.remaining_work == pytest.approx(left[job.name] * whole[job.name], rel=1e-5)
            assert (job.min_gpus, job.max_gpus) == {"first": (4, 4), "second": (2, 8)}[job.name]


times = st.integers(0, 40_000)


@given(st.lists(st.tuples(times, times, st.integers(1, 8)), min_size=1, max_size=12))
def test_the_busiest_hour_is_that_of_counting_every_hour(rows: list[tuple[int, int, int]]) -> None:
    trace = [TraceJob(f"j{i}", start, seconds, gpus) for i, (start, seconds, gpus) in enumerate(rows)]
    hours = range(min(start for start, _, _ in rows) // 3600 * 3600, 90_000, 3600)
    asked = {hour: sum(g for start, s, g in rows if start <= hour < start + s) for hour in hours}
    assert busiest_s(trace) == max(asked, key=lambda hour: asked[hour])


def test_a_job_in_the_far_future_costs_nothing() -> None:
    trace = [TraceJob("a", 0.0, 1.1e12, 1), TraceJob("b", 1e12 - 1800, 1e12, 1)]
    assert busiest_s(trace) == np.ceil((1e12 - 1800) / 3600) * 3600


def test_first_come_first_served_until_nothing_fits() -> None:
    cluster = homogeneous_cluster(2, 8, nodes_per_rack=2)
    sizes = [("a", 8), ("b", 3), ("c", 16), ("d", 4), ("e", 1)]
    trace = [TraceJob(name, second, 1000, gpus) for second, (name, gpus) in enumerate(sizes)]
    instance = round_at(trace, 10, cluster, power_fraction=0.5)
    held = {job.name: job.current for job in instance.jobs}
    # a takes a node, b a block of four; c does not fit, d does, then nothing is left for e.
    assert {name for name, placement in held.items() if placement is not None} == {"a", "b", "d"}
    assert instance.budgets.power_w == 0.5 * 2 * (200 + 8 * 400)
    job = instance.jobs[1]
    assert (job.min_gpus, job.max_gpus, job.restart_s) == (1, 12, 30.0)
    assert job.gpu_counts is not None
    assert 3 in job.gpu_counts
    # The remaining work is what is done in the remaining seconds as the job runs.
    placement = held["b"]
    assert placement is not None
    profile = find(job.model or "", "A100")
    assert profile is not None
    rate = profile.rate(3, placement.batch_size, placement.frequency_mhz, placement.power_limit_w, 8)
    assert job.remaining_work == pytest.approx(991 * float(rate), rel=1e-5)
    keep_b = Decision(
        jobs=[Assignment(job="b", **placement.model_dump())],
        waiting=[name for name, _ in sizes if name != "b"],
    )
    assert check(reread(instance), keep_b).faults == []


@pytest.mark.parametrize("gpus", [5, 12, 48, 100, 128, 1000])
def test_odd_and_huge_requests(gpus: int) -> None:
    for cluster in (homogeneous_cluster(64), homogeneous_cluster(3, 4, "V100")):
        instance = round_at([TraceJob("j", 0, 10, gpus)], 0, cluster)
        report = check(reread(instance), as_it_runs(instance))
        assert report.faults == []
        assert report.totals["gpus_used"] == min(gpus, 64, 8 if cluster.total_gpus == 12 else 512)


def test_the_choice_of_a_model_depends_on_seed_and_name_only() -> None:
    trace = [TraceJob(f"j{i}", i, 1000, 1) for i in range(40)]
    models = {job.name: job.model for job in round_at(trace, 50).jobs}
    assert len(set(models.values())) > 3
    assert {job.name: job.model for job in round_at(trace[20:], 50).jobs}.items() <= models.items()
    assert {job.name: job.model for job in round_at(trace, 50, seed=1).jobs} != models


def test_a_cluster_that_no_profile_describes() -> None:
    cluster = Cluster.model_validate(
        {
            "gpu_types": {"Z": {"idle_power_w": 1.0}},
            "nodes": [{"name": "n", "gpu_type": "Z", "gpus": 1}],
        }
    )
    with pytest.raises(ValueError, match="no profile for any GPU type of the cluster"):
        round_at([TraceJob("j", 0, 10, 1)], 0, cluster)


# --- malformed files --------------------------------------------------------------------------------

ITP = "job_id,submission_time,duration,num_gpu\nx,1,2,3\n\n"
PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
OPENB = "sn,cpu_milli,memory_mib,gpu,model\nn,64000,262144,2,P100\n"


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("itp", ITP + "y,1,2\n", "line 4: 3 cells, the header has 4 columns"),
        ("itp", ITP + "y,1,2,3,4\n", "line 4: 5 cells"),
        ("itp", ITP + "y,later,2,3\n", "line 4, column 'submission_time': 'later' is not a number"),
        ("itp", ITP + "y,1,-2,3\n", "line 4, column 'duration': must be at least 0, got -2"),
        ("itp", ITP + "y,1,nan,3\n", "line 4, column 'duration': must be a finite number, got nan"),
        ("itp", ITP + "y,1,1e400,3\n", "line 4, column 'duration': must be a finite number, got 1e400"),
        ("itp", ITP + "y,1,1_000,3\n", "line 4, column 'duration': '1_000' is not a number in digits 0 to 9"),
        ("itp", ITP + "y,1,2,١٠\n", "line 4, column 'num_gpu': '١٠' is not a number in"),
        ("itp", ITP + "y,1,2,1.5\n", "line 4, column 'num_gpu': '1.5' is not a whole number"),
        ("itp", ITP + ",1,2,3\n", "line 4, column 'job_id': is empty"),
        ("itp", ITP + 'y,"1,2,3\n', "line 4: a quotation mark opens a cell that does not end"),
        ("itp", ITP + 'y,"1\n2,2,3\n', "line 4: a quotation mark opens a cell that does not end"),
        ("itp", "", ": is empty"),
        ("itp", "\n\n", ": is empty"),
        ("itp", PHILLY, "line 1: the columns 'job_id', 'submission_time', 'num_gpu' are missing, found"),
        ("philly", PHILLY + "today,1,1,1,a\n", "line 3, column 'timestamp': 'today' is neither a number"),
        ("philly", PHILLY + "2017-13-09 07:01:55,1,1,1,a\n", "line 3, column 'timestamp'"),
        ("openb", OPENB + "m,1,1,2,Z9\n", "line 3, column 'model': 'Z9' is not known"),
        ("openb", OPENB + "n,1,1,2,P100\n", "line 3, column 'sn': the node 'n' occurs twice"),
        ("openb", OPENB.replace(",2,", ",0,"), "no node has a GPU"),
    ],
)
def test_malformed_rows_name_line_and_column(form: str, text: str, said: str, tmp_path: Path) -> None:
    for name, content in (("trace.csv", text.encode()), ("trace.csv.gz", gzip.compress(text.encode()))):
        path = tmp_path / name
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"trace\.csv") as error:
            READ[form](path)
        assert said in str(error.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_bytes(ITP.encode() + b"y,1,\xff,3\n")
    with pytest.raises(ValueError, match="line 4: is not UTF-8 text"):
        READ["itp"](path)
    path.write_bytes(gzip.compress(ITP.encode())[:-9])
    with pytest.raises(ValueError, match="damaged gzip"):
        READ["itp"](path)
    path.write_text(PHILLY)
    with pytest.raises(ValueError, match="no job is of the virtual cluster 'x', there are 11cb48"):
        READ["philly"](path, virtual_cluster="x")
    with pytest.raises(ValueError, match="cpu_load: must be from 0 to 1"):
        READ["openb"](path, cpu_load=2.0)
