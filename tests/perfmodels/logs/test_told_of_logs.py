"""Doubts about logs, and what is assumed or left out, are told."""

import re
import warnings

import numpy as np
import pytest

from tests.perfmodels.logs.logged_files import ROWS, at_once, logged, repeated, table, written
from tests.perfmodels.logs.writers import (
    BEGIN_S,
    Job,
    Read,
    dmon,
    exporter,
    readings,
    smi,
)
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.logs import read_log
from wattsched.perfmodels.measurements import read_logged
from wattsched.reading.inputs import NoticeWarning


def test_watts_far_above_the_limit_are_pointed_at(tmp_path):
    log = smi(readings(Job("17", 1, 500.0, power_limit_w=300.0)))
    _, found = logged(tmp_path, log, "job,batch_size,step_time_s\n17,8,1\n17,9,1\n")
    doubtful = "doubtful: '17' draws 500 W on average at a power limit of 300 W"
    assert found.notes == (doubtful, repeated(54))


def test_a_board_in_mig_mode_is_told_to_count_whole(tmp_path):
    log = smi(readings(Job("17", 1, 300.0)))
    lines = log.splitlines()
    mig = "\n".join([f"{lines[0]}, mig.mode.current", *(f"{line}, Enabled" for line in lines[1:]), ""])
    with pytest.warns(NoticeWarning, match="boards in MIG mode count whole"):
        logged(tmp_path, mig, "job,batch_size,step_time_s\n17,8,1\n17,9,1\n")


@pytest.mark.parametrize("write", [dmon, lambda reads: re.sub("(?m)^[^,]*, ", "", smi(reads))])
def test_logs_that_were_joined_without_times_and_nodes_are_pointed_at(tmp_path, write):
    one, other = (write(readings(Job("17", 1, watts))) for watts in (600.0, 200.0))
    line = one.count("\n") + 1
    told = f"17.csv: doubtful: the header comes again on line {line}, as where logs are joined"
    with pytest.warns(NoticeWarning, match=told):
        read_log(written(tmp_path, one + other, "17.csv"))
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "header")
        read_log(written(tmp_path, one, "17.csv"))


def test_power_limits_that_not_all_logs_tell_are_said_not_to_be_used(tmp_path):
    limits = {"a": 200.0, "b": 300.0, "c": None}
    logs = []
    for name, limit_w in limits.items():
        text = smi(readings(Job(name, 1, 180.0, power_limit_w=limit_w or 100.0)))
        text = text if limit_w else re.sub("power.limit", "x", text)
        logs.append(written(tmp_path, text, f"{name}.csv"))
    rows = "".join(f"{name},{8 * n},{n}\n" for n, name in enumerate(limits, start=1))
    _, found = read_logged(logs, table(tmp_path, f"job,batch_size,step_time_s\n{rows}"))
    assert "not used: the power limits 200, 300 W, as no log tells that of 'c'" in found.notes


def test_columns_of_a_log_that_are_not_read_are_named(tmp_path):
    log = re.sub("(?m)^", "node1: ", smi(readings(Job("17", 1, 300.0)))).removesuffix("node1: ")
    with pytest.warns(NoticeWarning, match="not read: the columns 'node1: timestamp'"):
        read_log(written(tmp_path, log, "17.csv"))


@pytest.mark.parametrize("parts", ["GPU-I 0   N/A\n", "GPU-CI 0/0 N/A\n"])
def test_parts_of_a_board_in_a_log_of_dcgm_tell_that_it_is_in_mig_mode(tmp_path, parts):
    lines = dmon(readings(Job("17", 1, 300.0))).splitlines(keepends=True)
    log = "".join(line + parts * line.startswith("GPU 0") for line in lines)
    with pytest.warns(NoticeWarning, match="17.csv: assumed: boards in MIG mode count whole"):
        read_log(written(tmp_path, log, "17.csv"))


def _cut(text: str, line: int) -> str:
    """A log whose writer was ended within a line and started anew behind it."""
    lines = text.splitlines()
    lines[line] = lines[line][: len(lines[line]) * 2 // 3]
    return "\n".join([*lines, ""])


@pytest.mark.parametrize("form", ["smi", "dmon", "exporter"])
def test_a_line_that_a_restart_cut_is_left_out_and_told(tmp_path, form):
    write = {"smi": smi, "dmon": dmon, "exporter": exporter}[form]
    text = write(readings(Job("17", 1, 300.0)))
    whole = [n for n, line in enumerate(text.splitlines()) if line.startswith(("2026", "GPU 0", "DCGM_"))]
    with pytest.warns(NoticeWarning, match=rf"17.csv: left out: line {whole[10] + 1}: "):
        found = read_log(written(tmp_path, _cut(text, whole[10]), "17.csv"))
    kept = read_log(written(tmp_path, text, "18.csv"))
    assert len(kept) - len(found) == (form != "exporter")
    with pytest.raises(ValueError, match=f"17.csv, line {whole[10] + 1}"):
        read_log(written(tmp_path, _cut(_cut(text, whole[11]), whole[10]), "17.csv"))


def test_logs_of_another_gpu_than_the_profile_are_pointed_at(tmp_path):
    log = written(tmp_path, smi(readings(Job("17", 1, 300.0))), "17.csv")
    rows = table(tmp_path, ROWS.format("", ""))
    told = "doubtful: the logs are of 'NVIDIA A100-SXM4-80GB', and not of 'H100'"
    for gpu_type, doubtful in (("H100", True), ("A100", False), ("a100-sxm4-80gb", False), ("GPU", False)):
        assert (told in fit_profile([log], "m", gpu_type, jobs=rows).notes) == doubtful


def test_what_is_left_out_is_said(tmp_path):
    jobs = [("1", 200.0, 60), ("2", 300.0, 3), ("3", 90.0, 60)]
    reads = [
        readings(Job(name, 1, w, begin_s=BEGIN_S + 100 * n), busy=s) for n, (name, w, s) in enumerate(jobs)
    ]
    log = written(tmp_path, exporter([one for of_job in reads for one in of_job]))
    rows = "job,batch_size,step_time_s\n1,8,0.1\n1,16,0.2\n2,8,0.1\n9,8,0.1\n"
    m, found = read_logged([log], table(tmp_path, rows))
    assert len(m) == 2
    assert found.notes == (
        "left out: '9', of which no log has a sample",
        "left out: '2', with fewer than 5 samples of busy GPUs",
        f"not used: '3' of the logs, which {tmp_path / 'jobs.csv'} does not name",
        repeated(54, "1"),
        *at_once("dcgm-exporter", 1, "1"),
    )
    report = fit_profile([log], "m", "G", jobs=table(tmp_path, rows))
    assert report.notes == found.notes
    assert [run.job for run in report.runs] == ["1", "1"]


def test_logs_of_several_nodes_or_without_names_of_gpus_are_pointed_at(tmp_path):
    reads = readings(Job("17", 2, 300.0))
    text = smi(reads)
    log, rows = written(tmp_path, text + text, "17.csv"), table(tmp_path, ROWS.format("", ""))
    told = (
        f"17.csv: doubtful: the clock steps back on line {text.count(chr(10)) + 2}; in a log of several nodes"
    )
    with pytest.warns(NoticeWarning, match=told):
        read_logged([log], rows)
    log = written(tmp_path, text.replace(" index", " number"), "17.csv")
    with pytest.warns(
        NoticeWarning, match="17.csv: assumed: all samples are of one GPU, as the log has neither"
    ):
        read_logged([log], rows)


TAKE_TURNS = "take turns, as in "


def _told(folder, reads, write=smi):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_log(written(folder, write(reads), "17.csv"))
    return [str(one.message) for one in caught if TAKE_TURNS in str(one.message)]


@pytest.mark.parametrize("lag_ms", [20, 500, 900])
@pytest.mark.parametrize("watts", [(400, 60), (300, 240), (400, 60, 60), (90, 300, 90, 90)])
@pytest.mark.parametrize("period_s", [1, 5, 60])
def test_nodes_that_write_one_log_are_pointed_at(tmp_path, lag_ms, watts, period_s):
    noise = np.random.default_rng(1)
    reads = [
        Read("17", gpu, BEGIN_S + period_s * (n + lag_ms / 1000 * k / len(watts)), w, 97, 1410, 400.0)
        for n in range(60)
        for k, mean_w in enumerate(watts)
        for gpu in range(2)
        for w in [mean_w * noise.normal(1.0, 0.01)]
    ]
    assert len(_told(tmp_path, reads)) == 1
    # Of GPUs that are named by their UUIDs each is one, whatever it draws.
    assert not _told(tmp_path, reads, lambda some: smi(some, uuids=True))


@pytest.mark.parametrize("seed", range(5))
def test_draws_of_one_gpu_take_no_turns(tmp_path, seed):
    rng = np.random.default_rng(seed)
    for watts in (
        rng.uniform(60, 400, 300),
        np.where(rng.random(300) < 0.5, 60.0, 400.0),
        np.repeat(np.where(rng.random(150) < 0.5, 60.0, 400.0), 2),
        300 * rng.normal(1.0, 0.05, 300),
        np.repeat(rng.uniform(60, 400, 30), 10),
        230 + 170 * np.sin(np.arange(300) * 2 * np.pi / 7.3),
    ):
        for burst in (1, 2):
            at_s = [60 * (n // burst) + n % burst for n in range(300)]
            reads = [Read("17", 0, BEGIN_S + s, w, 97, 1410, 400.0) for s, w in zip(at_s, watts, strict=True)]
            assert not _told(tmp_path, reads)


def test_a_log_that_may_be_cut_is_pointed_at(tmp_path):
    text = smi(readings(Job("17", 2, 300.0)))
    log = written(tmp_path, text[:-1], "17.csv")
    with pytest.warns(NoticeWarning, match="17.csv: doubtful: the last line does not end"):
        read_log(log)


@pytest.mark.parametrize(
    ("taken", "other"), [("power.draw.average", "power.draw"), ("power.draw", "power.draw.instant")]
)
def test_which_of_several_columns_of_watts_counts_is_told(tmp_path, taken, other):
    lines = smi(readings(Job("17", 1, 300.0))).splitlines()
    added = other if taken == "power.draw" else taken
    lines = [f"{lines[0]}, {added} [W]", *(f"{line}, 250.00 W" for line in lines[1:]), ""]
    told = f"17.log: assumed: the column '{taken} [W]' is taken, not '{other} [W]'"
    with pytest.warns(NoticeWarning, match=re.escape(told)):
        read_log(written(tmp_path, "\n".join(lines)))
