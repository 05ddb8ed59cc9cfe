"""GPUs in logs go to their jobs: on several nodes, in several clusters, moved, shared and idle."""

import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perfmodels.logs.logged_files import FORMS, ROWS, logged, repeated, table, written
from tests.perfmodels.logs.writers import (
    BEGIN_S,
    IDLE_W,
    Job,
    Read,
    exporter,
    pod,
    prometheus,
    readings,
    slurm,
    smi,
)
from tests.strategies.effort import examples
from wattsched.perfmodels.logs import read_log
from wattsched.perfmodels.measurements import read_logged
from wattsched.reading.inputs import NoticeWarning


@pytest.mark.parametrize(("write", "of_job"), [(exporter, pod), (prometheus, pod), (exporter, slurm)])
@pytest.mark.parametrize("jobs", [2, 3])
def test_jobs_on_one_gpu_divide_its_watts(tmp_path, write, of_job, jobs):
    reads = [readings(Job(f"job-{n}", 1, 60.0), idle=(0, 0)) for n in range(jobs)]
    log = write([one for moment in zip(*reads, strict=True) for one in moment], of_job)
    rows = "".join(f"job-{n},{8 + n},1\n" for n in range(jobs))
    m, found = logged(tmp_path, log, f"job,batch_size,step_time_s\n{rows}")
    np.testing.assert_allclose(m.power_w, [60 / jobs] * jobs)
    assert found.notes[0].startswith(
        "assumed: the watts of a GPU that several jobs use at a time are divided evenly"
    )


def test_idle_gpus_of_a_node_are_not_those_of_the_job(tmp_path):
    idle = [Read("", gpu, r.time_s, IDLE_W, 0, 210, 400.0) for gpu in (2, 3) for r in readings(Job("", 1, 1))]
    for form in ("nvidia-smi", "nvidia-smi without utilisation", "dcgmi dmon"):
        log = FORMS[form]([*readings(Job("", 2, 300.0)), *idle])
        m, _ = logged(tmp_path, log, "job,batch_size,step_time_s\na,8,0.1\na,16,0.1\n", "a.log")
        assert (m.gpus.tolist(), m.power_w.tolist()) == ([2, 2], [300, 300])


def test_a_job_of_several_files_and_pods(tmp_path):
    def node(n: int) -> list[Read]:
        return readings(Job(f"train-{n}", 2, 200.0 + 100 * n))

    logs = [written(tmp_path, smi(node(n)), f"train-{n}.csv") for n in (0, 1)]
    rows = table(tmp_path, "job,batch_size,step_time_s\ntrain-*,8,0.1\ntrain-0,8,0.2\n")
    m, _ = read_logged(logs, rows)
    assert (m.gpus.tolist(), m.power_w.tolist()) == ([4, 2], [250, 200])
    # Exports of two days name the same GPUs, by their UUIDs.
    days = [written(tmp_path, prometheus(node(0), pod), f"day{n}.json") for n in (0, 1)]
    m, _ = read_logged(days, table(tmp_path, "job,batch_size,step_time_s\nteam/train-0,8,1\ntrain-0,8,2\n"))
    assert m.gpus.tolist() == [2, 2]


def test_gpus_of_a_job_are_those_that_were_busy_at_once(tmp_path):
    first = readings(Job("train-0", 2, 300.0))
    later = readings(Job("train-0", 2, 300.0, begin_s=BEGIN_S + 500))
    moved = [*first, *(replace(read, gpu=read.gpu + 2) for read in later)]
    rows = "job,batch_size,step_time_s\ntrain-0,8,1\ntrain-0,9,1\n"
    m, found = logged(tmp_path, prometheus(moved, pod), rows, "moved.json")
    assert (m.gpus.tolist(), m.power_w.tolist()) == ([2, 2], [300, 300])
    assert found.notes == (repeated(216, "train-0"),)
    timeless, found = logged(tmp_path, exporter(moved, pod), rows, "moved.prom")
    assert timeless.gpus.tolist() == [4, 4]
    told = "samples of 'train-0' count alike, and its 4 GPUs were busy at once: its log tells no times"
    assert f"assumed: {told}" in found.notes
    stated = "job,batch_size,step_time_s,gpus\ntrain-0,8,1,1\ntrain-0,9,1,1\n"
    _, found = logged(tmp_path, prometheus(moved, pod), stated, "moved.json")
    told = "doubtful: the table says that 'train-0' has 1 GPUs, its log shows 2 busy at once"
    assert told in found.notes


def test_a_pod_that_several_namespaces_have_is_to_be_named_with_its_own(tmp_path):
    def of_team(r: Read) -> dict[str, str]:
        return pod(r) | {"namespace": "team" if r.gpu == 0 else "other"}

    log, rows = (
        prometheus(readings(Job("a-0", 2, 300.0)), of_team),
        "job,batch_size,step_time_s\n{},8,1\nteam/a-0,9,1\n",
    )
    with pytest.raises(
        ValueError, match=r"'a-0' is the name of several pods or jobs \('other/a-0', 'team/a-0'\); name one"
    ):
        logged(tmp_path, log, rows.format("a-0"), "a.json")
    m, _ = logged(tmp_path, log, rows.format("other/a-0"), "a.json")
    assert m.gpus.tolist() == [1, 1]


@pytest.mark.parametrize("column", ["hostname", "Host", "cluster"])
def test_gpus_of_several_nodes_in_one_log_are_several(tmp_path, column):
    one, other = (
        smi(readings(Job("17", 1, watts))).replace("NVIDIA", f"{node}, NVIDIA").splitlines()
        for node, watts in (("a1", 300.0), ("a2", 200.0))
    )
    head = one[0].replace("name", f"{column}, name")
    lines = [head, *(line for pair in zip(one[1:], other[1:], strict=True) for line in pair), ""]
    m, found = logged(tmp_path, "\n".join(lines), ROWS.format("", ""))
    assert (m.gpus.tolist(), found.runs[0].power_w, found.runs[0].gpu_s) == ([2, 2], 250.0, 108.0)
    reads = readings(Job("17", 1, 300.0), noise=0.01, busy=900)
    jittered = [replace(one, time_s=one.time_s - 5 * (n > 300)) for n, one in enumerate(reads)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read_log(written(tmp_path, smi(jittered), "17.csv"))
    nameless = "\n".join(lines).replace(column, "rack")
    with pytest.warns(NoticeWarning, match="has several draws at one moment; in a log of several nodes"):
        read_log(written(tmp_path, nameless, "17.csv"))


@pytest.mark.parametrize("write", [exporter, prometheus])
def test_jobs_and_gpus_of_several_clusters_are_several(tmp_path, write):
    def of_cluster(name: str) -> Callable[[Read], dict[str, str]]:
        board = {"rhea": "NVIDIA A100-SXM4-80GB", "titan": "NVIDIA H100 80GB HBM3"}[name]
        return lambda r: {"hpc_job": r.job, "cluster": name, "modelName": board, "UUID": ""}

    parts = [
        write(readings(Job("17", 1, watts)), of_cluster(name))
        for name, watts in (("rhea", 300.0), ("titan", 640.0))
    ]
    if write is exporter:
        text = "".join(_interleaved(parts))
    else:
        series = [one for part in parts for one in json.loads(part)["data"]["result"]]
        text = json.dumps({"data": {"resultType": "matrix", "result": series}})
    rows = "job,batch_size,step_time_s\n{0},8,1\n{0},16,2\n"
    with pytest.raises(ValueError, match=r"several pods or jobs \('rhea/17', 'titan/17'\)"):
        logged(tmp_path, text, rows.format("17"), "log")
    for job, watts in (("rhea/17", 300.0), ("titan/17", 640.0)):
        m, found = logged(tmp_path, text, rows.format(job), "log")
        assert (m.gpus.tolist(), m.power_w.tolist()) == ([1, 1], [watts, watts])
        assert not any("the logs are of" in note for note in found.notes)
    _, found = logged(tmp_path, text, rows.format("*/17"), "log")
    assert "doubtful: the logs are of 'NVIDIA A100-SXM4-80GB', 'NVIDIA H100 80GB HBM3'" in found.notes
    with pytest.warns(NoticeWarning, match="GPU 'node.1/0' has several draws at one moment"):
        read_log(written(tmp_path, text.replace("cluster", "region"), "log"))


def _interleaved(dumps: list[str]) -> Iterator[str]:
    """Scrapes of several exporters, those of one moment as one."""
    for lines in zip(*(dump.splitlines(keepends=True) for dump in dumps), strict=True):
        yield from dict.fromkeys(lines)


def test_jobs_on_whole_boards_are_read_beside_parts_of_others(tmp_path):
    text = exporter([*readings(Job("17", 1, 300.0)), *readings(Job("18", 1, 200.0))])
    parts = text.replace('hpc_job="18"', 'hpc_job="18",GPU_I_ID="7"')
    rows = "job,batch_size,step_time_s\n17,8,1\n17,16,2\n18,8,1\n"
    with pytest.warns(NoticeWarning, match=r"left out: parts of GPUs .* of the jobs '18'"):
        m, found = logged(tmp_path, parts, rows)
    assert m.power_w.tolist() == [300.0, 300.0]
    assert "left out: '18', of which no log has a sample" in found.notes


def with_fewer(reads: list[Read], kept: Callable[[int], bool]) -> list[Read]:
    """Keep some seconds of the second of two GPUs, which draw 350 and 250 W at 98 and 88 %."""
    changed = [
        replace(one, power_w=350.0 - 100 * one.gpu, utilisation=98 - 10 * one.gpu, frequency_mhz=1400)
        for one in reads
    ]
    return [one for n, one in enumerate(changed) if one.gpu == 0 or kept(n // 2)]


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(10))
@given(first=st.integers(13, 95), period=st.integers(1, 4))
def test_gpus_of_a_job_count_alike_however_many_samples_each_has(tmp_path_factory, form, first, period):
    reads = readings(Job("17", 2, 1.0), busy=100, idle=(0, 0))
    kept = with_fewer(reads, lambda second: second <= first and second % period == 0)
    rows = "job,batch_size,step_time_s\n17,8,1\n17,16,1\n"
    m, found = logged(tmp_path_factory.mktemp("log"), FORMS[form](kept), rows)
    assert m.power_w == pytest.approx([300.0, 300.0])
    assert np.isnan(found.runs[0].utilisation) or found.runs[0].utilisation == pytest.approx(0.93)


@pytest.mark.parametrize("form", FORMS)
def test_gpus_of_which_a_log_has_little_are_pointed_at(tmp_path, form):
    reads = readings(Job("17", 2, 1.0), busy=100, idle=(0, 0))
    rows = "job,batch_size,step_time_s\n17,8,1\n17,16,1\n"
    for seconds in (20, 60):
        kept = with_fewer(reads, lambda second, most=seconds: second < most)
        _, found = logged(tmp_path, FORMS[form](kept), rows)
        told = "of '17' only 20 % of the time is in the log; they stand for all of it"
        assert any(note.startswith("assumed: of GPU ") and told in note for note in found.notes) == (
            seconds == 20
        )


def test_gpus_of_a_job_that_moved_count_by_their_time(tmp_path):
    reads = [
        Read("17", int(s >= 100), BEGIN_S + s, 400.0 - 200 * (s >= 100), 97, 1410, 400.0) for s in range(500)
    ]
    m, found = logged(tmp_path, prometheus(reads), "job,batch_size,step_time_s\n17,8,1\n17,16,1\n")
    # The first tenth of either GPU's time is warm-up.
    assert m.power_w == pytest.approx([(400 * 90 + 200 * 360) / 450] * 2)
    assert found.notes == (repeated(450),)


def test_unknown_watts_of_a_gpu_are_the_mean_of_its_own(tmp_path):
    reads = with_fewer(readings(Job("17", 2, 1.0), busy=100, idle=(0, 0)), lambda _: True)
    lines = smi(reads).splitlines()
    lines[80:] = [line.replace("250.00 W", "[N/A]") for line in lines[80:]]
    rows = "job,batch_size,step_time_s\n17,8,1\n17,16,1\n"
    m, found = logged(tmp_path, "\n".join([*lines, ""]), rows)
    assert m.power_w == pytest.approx([300.0, 300.0])
    assert "of 180 samples of '17' have unknown watts" in found.notes[0]
