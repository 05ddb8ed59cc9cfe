"""Job lists of PAI and Gavel and those with models: how their units become seconds, GPUs and batches."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.errors import InputError, NoticeWarning
from wattsched.instances.traces import TraceJob, formats, round_at
from wattsched.perfmodels.profile import find

READ = {name: form.read for name, form in formats().items()}
PAI = "arrival_time,length,cpus\n0.5,2,3\n8000,0.25,1\n"
STEPS = "job_type,total_steps,scale_factor,arrival_time_s\nLM,500,2,10\n"
PHILLY = "vc,job_type,total_steps,scale_factor,arrival_time_s\na,LM,500,2,10\nb,LM,250,8,20\n"
RATES = {"v100": {"LM": {"null": 5.0}, "('LM', 2)": {"null": 8.0}, "('LM', 4)": {"null": 0.0}}}
MODELS = "job_id,submission_time,num_iteration,model_name,deadline,batch_size,num_gpu,duration\n"


@pytest.fixture
def gavel(tmp_path: Path) -> Any:
    """Read a list in a folder below its throughputs."""

    def read(text: str, rates: Any = RATES, **options: str) -> list[TraceJob]:
        (tmp_path / "traces").mkdir(exist_ok=True)
        for name in ("oracle_pair_throughputs.json", "simulation_throughputs.json"):
            (tmp_path / name).write_text(json.dumps(rates))
        (tmp_path / "traces" / "list.csv").write_text(text)
        jobs: list[TraceJob] = READ["gavel"](tmp_path / "traces" / "list.csv", **options)
        return jobs

    return read


def test_columns_that_are_not_read_are_named(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("job_id,submission_time,duration,num_gpu,gpu_type,batch_size\na,0,60,1,A100,8\n")
    with pytest.warns(NoticeWarning, match="list.csv: not read: the columns 'gpu_type'$"):
        READ["itp"](path)


def test_pai_times_are_hours_or_seconds(tmp_path: Path) -> None:
    path = tmp_path / "pai.csv"
    path.write_text(PAI)
    with pytest.warns(NoticeWarning, match="pai.csv: the times are taken for hours: in hours, all jobs"):
        found = READ["pai"](path)
    assert found == [TraceJob("row1", 1800, 7200, 4), TraceJob("row2", 8000 * 3600, 900, 1)]
    assert READ["pai"](path, unit="s") == [TraceJob("row1", 0.5, 2, 4), TraceJob("row2", 8000, 0.25, 1)]
    path.write_text(PAI + "9000,1,0\n")
    with pytest.warns(NoticeWarning, match="are taken for seconds: in hours, not all jobs"):
        assert [job.submitted_s for job in READ["pai"](path)] == [0.5, 8000, 9000]
    with pytest.raises(ValueError, match="unit: 'd' is not one of s, h"):
        READ["pai"](path, unit="d")


def test_the_published_pai_list_of_a_week(data_dir: Path) -> None:
    week = READ["pai"](data_dir / "alibaba-pai-2020" / "pai_1k_week.csv")
    assert len(week) == 1000
    assert max(job.submitted_s for job in week) / 86_400 == pytest.approx(7, rel=1e-3)
    assert sum(job.gpus == 1 for job in week) == 859


@pytest.mark.slow
def test_the_published_pai_list_of_a_year(data_dir: Path) -> None:
    year = READ["pai"](data_dir / "alibaba-pai-2020" / "pai_100k_year.csv.gz")
    assert len(year) == 99_998
    assert max(job.submitted_s for job in year) / 86_400 == pytest.approx(365, rel=1e-3)
    assert all(job.gpus & (job.gpus - 1) == 0 for job in year)


def test_gavel_steps_become_seconds(gavel: Any) -> None:
    """Of the testbed on the GPUs of the job; of the list made from Philly on one."""
    assert gavel(STEPS) == [TraceJob("row1", 10, 62.5, 2)]
    assert gavel(PHILLY) == [TraceJob("row1", 10, 100, 2), TraceJob("row2", 20, 50, 8)]
    assert gavel(PHILLY, virtual_cluster="b") == [TraceJob("row2", 20, 50, 8)]


def test_published_gavel_lists_were_whole_seconds(data_dir: Path) -> None:
    """Steps are a whole number of seconds times the rate, rounded down."""
    folder = data_dir / "gavel-2020"
    for file, table, on_one in (
        ("msr_seed0_jobs.csv", "oracle_pair_throughputs.json", True),
        ("physical_minimize_makespan.csv", "simulation_throughputs.json", False),
    ):
        jobs = READ["gavel"](folder / "traces" / file)
        rates = json.loads((folder / table).read_text())["v100"]
        lines = (folder / "traces" / file).read_text().splitlines()
        kind_at, steps_at = (lines[0].split(",").index(name) for name in ("job_type", "total_steps"))
        assert len(jobs) == len(lines) - 1
        for job, line in zip(jobs, lines[1:], strict=True):
            cells = line.split(",")
            kind, steps = cells[kind_at], int(cells[steps_at])
            rate = rates[kind if on_one else f"('{kind}', {job.gpus})"]["null"]
            assert int(math.ceil(job.duration_s - 1e-6) * rate + 1e-6) == steps


def test_lists_with_models_run_them_at_their_batch(data_dir: Path) -> None:
    jobs = READ["itp"](data_dir / "itp-elasticflow-2021" / "elasticflow" / "195job.csv.gz")
    assert len(jobs) == 195
    assert {job.model for job in jobs} == {"bert", "deepspeech2", "gpt2", "inception3", "resnet50", "vgg16"}
    named = {job.name: job for job in jobs}
    moment = jobs[100].submitted_s
    for job in round_at(jobs, moment, homogeneous_cluster(32, 8)).jobs:
        assert job.model == named[job.name].model
        assert job.current is not None
        assert (job.current.gpus, job.current.batch_size) == (
            named[job.name].gpus,
            named[job.name].batch_size,
        )
        assert job.batch_sizes is not None
        profile = find(job.model or "", "A100")
        assert profile is not None
        assert set(job.batch_sizes) == set(profile.batch_sizes)


def test_models_that_do_not_run_on_the_cluster(tmp_path: Path) -> None:
    jobs = [TraceJob("j", 0, 10, 1, "vgg16", 64)]
    with pytest.raises(ValueError, match="job 'j': the catalogue has no profile of 'vgg16' on V100"):
        round_at(jobs, 0, homogeneous_cluster(2, 8, "V100"))
    jobs = [TraceJob("j", 0, 10, 1, "yolov3", 512)]
    assert round_at(jobs, 0, homogeneous_cluster(1, 8, "T4")).jobs[0].batch_sizes == [
        512, 8, 16, 32, 64, 128, 256,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("form", "text", "said"),
    [
        ("pai", "arrival_time,length\n1,2\n", "line 1: the column 'cpus' is missing"),
        ("pai", PAI + "1,1,1.5\n", "line 4, column 'cpus': '1.5' is not a whole number"),
        ("pai", PAI + "1,-1,1\n", "line 4, column 'length': must be at least 0, got -1"),
        ("gavel", STEPS + "LM,1,0,1\n", "line 3, column 'scale_factor': must be at least 1, got 0"),
        ("gavel", STEPS + "LM,1,4,1\n", "line 3, column 'job_type': no throughput of 'LM' on 4 v100"),
        ("gavel", STEPS + "A3C,1,1,1\n", "line 3, column 'job_type': no throughput of 'A3C' on 1 v100"),
        ("gavel", STEPS + ",1,1,1\n", "line 3, column 'job_type': is empty"),
        ("gavel", PHILLY + "c,LM,x,1,1\n", "line 4, column 'total_steps': 'x' is not a number"),
        ("itp", MODELS + "a,0,9,alexnet,1,64,1,10\n", "line 2, column 'model_name': 'alexnet' is not in"),
        ("itp", MODELS + "a,0,9,bert,1,0,1,10\n", "line 2, column 'batch_size': must be at least 1, got 0"),
    ],
)
def test_malformed_lists(form: str, text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text)
    (tmp_path / "oracle_pair_throughputs.json").write_text(json.dumps(RATES))
    (tmp_path / "simulation_throughputs.json").write_text(json.dumps(RATES))
    with pytest.raises(ValueError, match=r"list\.csv") as error:
        READ[form](path)
    assert said in str(error.value)


def test_throughputs_that_are_missing_or_malformed(gavel: Any, tmp_path: Path) -> None:
    path = tmp_path / "alone.csv"
    path.write_text(STEPS)
    with pytest.raises(ValueError, match=r"with 'simulation_throughputs.json', which is not in its folder"):
        READ["gavel"](path)
    with pytest.raises(InputError, match="must be an object with 'v100'"):
        gavel(STEPS, rates={"k80": {}})
    with pytest.raises(ValueError, match="no job is of the virtual cluster 'z', there are a, b"):
        gavel(PHILLY, virtual_cluster="z")
    with pytest.raises(ValueError, match="no job is of the virtual cluster 'z', there are none"):
        gavel(STEPS, virtual_cluster="z")
