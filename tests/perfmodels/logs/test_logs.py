"""Watts, clocks and limits of jobs come back from logs of every kind, which are written and read again."""

import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perfmodels.logs.logged_files import FORMS, ROWS, at_once, logged, repeated, table, written
from tests.perfmodels.logs.writers import (
    BEGIN_S,
    BERLIN,
    Job,
    dmon,
    prometheus,
    readings,
    smi,
)
from tests.strategies import profiles
from tests.strategies.effort import examples
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.measurements import read_logged
from wattsched.perfmodels.profile import Configurations


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=examples(15))
@given(
    gpus=st.integers(1, 4),
    power_w=st.floats(120, 700),
    noise=st.floats(0, 0.03),
    busy=st.integers(10, 80),
    idle=st.tuples(st.integers(0, 60), st.integers(0, 60)),
    seed=st.integers(0, 10**6),
)
def test_watts_come_back_within_the_noise(tmp_path_factory, form, gpus, power_w, noise, busy, idle, seed):
    folder = tmp_path_factory.mktemp("log")
    log = FORMS[form](
        readings(Job("17", gpus, power_w, power_limit_w=700.0), seed, noise=noise, busy=busy, idle=idle)
    )
    m, found = logged(folder, log, "job,batch_size,step_time_s\n17,64,0.5\n17,64,0.5\n")
    run = found.runs[0]
    assert (run.gpus, found.notes) == (gpus, (repeated(run.samples), *at_once(form, gpus)))
    assert run.read == gpus * (busy + sum(idle))
    assert run.samples == gpus * (busy - busy // 10)
    # Five standard deviations of the mean, and the digits that are written.
    assert m.power_w[0] == pytest.approx(power_w, rel=5 * noise / np.sqrt(run.samples) + 1e-4)
    assert (m.power_limit_w, m.frequency_mhz) == (None, None), "nothing was varied"
    assert np.isnan(run.frequency_mhz) or run.frequency_mhz == 1410
    assert np.isnan(run.utilisation) or run.utilisation == pytest.approx(0.97)


@pytest.mark.parametrize("word", ["[N/A]", "[Not Supported]", "[Unknown Error]", "ERR!", "", "NaN", "N/A"])
def test_a_gpu_of_unknown_utilisation_counts_by_its_watts(tmp_path, word):
    text = smi(readings(Job("17", 2, 320.0)))
    lines = [
        line.removesuffix("97 %").removesuffix("0 %") + word if ", 1, NVIDIA" in line else line
        for line in text.splitlines()
    ]
    m, found = logged(tmp_path, "\n".join(lines) + "\n", "job,batch_size,step_time_s\n17,8,1\n17,9,1\n")
    assert (m.gpus.tolist(), m.power_w.tolist()) == ([2, 2], [320, 320])
    assert found.runs[0].utilisation == pytest.approx(0.97), "unknown is not 0"


@pytest.mark.parametrize(("load", "gpus"), [("0 %", 0), ("97 %", 2)])
def test_gpus_that_draw_alike_do_what_the_known_ones_do(tmp_path, load, gpus):
    lines = [
        f"2026/11/03 08:00:{s:02}.000, {g}, {60 + g} W, {'[N/A]' if g else load}"
        for s in range(9)
        for g in (0, 1)
    ]
    log = "\n".join(["timestamp, index, power.draw [W], utilization.gpu [%]", *lines, ""])
    rows = "job,batch_size,step_time_s\n17,8,1\n17,9,1\n"
    if gpus:
        assert logged(tmp_path, log, rows)[0].gpus.tolist() == [gpus, gpus]
    else:
        with pytest.raises(ValueError, match="left out: '17', with fewer than 5 samples of busy GPUs"):
            logged(tmp_path, log, rows)


CASES = (
    ("irregular.csv", "j_irregular.csv", {}, [1, 1], [200, 200]),
    ("mig2.csv", "j_mig2.csv", {}, [2, 2], [320, 320]),
    ("ts.prom", "j_ts.csv", {}, [1, 1], [30, 30]),
    ("tz.csv", "j_tz.csv", {"time_zone": BERLIN}, [1, 1], [150, 150]),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_logs_as_they_were_reported(cases_dir, case):
    log, jobs, options, gpus, power_w = case
    folder = cases_dir / "logs"
    m, _ = read_logged([folder / log], folder / jobs, **options)
    assert (m.gpus.tolist(), m.power_w.tolist()) == (gpus, power_w)


CLOCKED = profiles.CLOCKED.model_copy(update={"gpu_counts": [1, 2, 4]})


LIMITED = profiles.LIMITED


def jobs_of(true: Configurations) -> tuple[list[Job], str]:
    """A job for each configuration, and the table of their batches and step times."""
    jobs, lines = [], ["job,batch_size,step_time_s"]
    for n in range(len(true)):
        clock, limit = true.frequency_mhz[n], true.power_limit_w[n]
        job = Job(
            f"{1000 + n}",
            int(true.gpus[n]),
            float(true.power_w[n] / true.gpus[n]),
            1410 if np.isnan(clock) else int(clock),
            400.0 if np.isnan(limit) else float(limit),
            begin_s=BEGIN_S + 100.0 * n,
        )
        jobs.append(job)
        lines.append(f"{job.name},{true.batch_size[n]},{true.batch_size[n] / true.rate[n]:.9g}")
    return jobs, "\n".join(lines) + "\n"


EXPORTS = ("dcgm-exporter", "Prometheus in Kubernetes")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "profile"),
    [(form, profile) for form in ("nvidia-smi", "dcgmi dmon") for profile in (CLOCKED, LIMITED)]
    # Exporters have no power limits unless they are told to.
    + [(form, CLOCKED) for form in EXPORTS],
    ids=lambda part: part if isinstance(part, str) else "power limit" if part is LIMITED else "clock",
)
def test_a_profile_comes_back_from_logs_of_its_jobs(tmp_path, form, profile):
    true = profile.configurations(8)
    jobs, rows = jobs_of(true)
    reads = {job.name: readings(job, n, noise=0.02) for n, job in enumerate(jobs)}
    if form in EXPORTS:
        # One export of all jobs, which tells them apart.
        logs = [written(tmp_path, FORMS[form]([r for of_job in reads.values() for r in of_job]), "all")]
    else:
        logs = [written(tmp_path, FORMS[form](of_job), f"{name}.log") for name, of_job in reads.items()]
    report = fit_profile(logs, "net", "A", jobs=table(tmp_path, rows))
    found = report.profile.configurations(8)
    np.testing.assert_array_equal(found.gpus, true.gpus)
    np.testing.assert_allclose(found.power_w, true.power_w, rtol=0.05)
    np.testing.assert_allclose(found.rate, true.rate, rtol=0.05)
    for name in ("frequency_mhz", "power_limit_w"):
        np.testing.assert_array_equal(getattr(found, name), getattr(true, name))


def test_a_clock_that_wanders_is_no_setting(tmp_path):
    def log(name: str, clocks: tuple[int, int]) -> Path:
        reads = readings(Job(name, 1, 300.0, clocks[0])), readings(Job(name, 1, 300.0, clocks[1]))
        mixed = [one if n % 2 else other for n, (one, other) in enumerate(zip(*reads, strict=True))]
        return written(tmp_path, smi(mixed), f"{name}.csv")

    rows = table(tmp_path, "job,batch_size,step_time_s\na,8,0.1\nb,16,0.2\n")
    m, _ = read_logged([log("a", (1410, 1410)), log("b", (1100, 1300))], rows)
    assert m.frequency_mhz is None
    m, _ = read_logged([log("a", (1410, 1395)), log("b", (1110, 1110))], rows)
    assert m.frequency_mhz.tolist()[1] == 1110
    told = table(tmp_path, "job,batch_size,step_time_s,frequency_mhz\na,8,0.1,1410\nb,16,0.2,1200\n")
    m, _ = read_logged([log("a", (1410, 1410)), log("b", (1100, 1300))], told)
    assert m.frequency_mhz.tolist() == [1410, 1200]


def test_power_limits_that_changed_need_a_row_each(tmp_path):
    low, high = Job("s", 1, 150.0, power_limit_w=150.0), Job("s", 1, 240.0, power_limit_w=250.0)
    log = smi([*readings(low), *readings(high)])
    with pytest.raises(ValueError, match=r"line 2: 's' ran at the power limits 150, 250 W; give each a row"):
        logged(tmp_path, log, "job,batch_size,step_time_s\ns,8,0.1\n", "s.csv")
    rows = "job,batch_size,step_time_s,power_limit_w\ns,8,0.2,150\ns,8,0.1,250\n"
    m, _ = logged(tmp_path, log, rows, "s.csv")
    np.testing.assert_allclose(m.power_w, [150, 240])


def test_busy_gpus_of_unknown_watts_count_and_the_mean_of_the_others_stands_for_them(tmp_path):
    reads = readings(Job("17", 2, 300.0))
    log = smi(reads).splitlines()
    log[1:] = [
        line.replace("300.00 W", "[N/A]").replace("55.00 W", "[N/A]") if f", {gpu}, NVIDIA" in line else line
        for line, gpu in zip(log[1:], [1] * len(reads), strict=True)
    ]
    rows = "job,batch_size,step_time_s\n17,8,1\n17,16,2\n"
    m, found = logged(tmp_path, "\n".join(log) + "\n", rows)
    assert (found.runs[0].gpus, found.runs[0].gpu_s) == (2, pytest.approx(108.0))
    assert m.power_w == pytest.approx([300.0, 300.0])
    told = "54 of 108 samples of '17' have unknown watts: the mean of the others"
    assert found.notes == (f"assumed: {told}", repeated(108))
    none = smi(readings(Job("18", 1, 300.0))).replace("300.00 W", "[N/A]")
    with pytest.raises(ValueError, match="line 2: no sample tells the watts of '17'; give power_w"):
        logged(tmp_path, none, rows)
    given, _ = logged(tmp_path, none, "job,batch_size,step_time_s,power_w\n17,8,1,290\n17,16,2,310\n")
    assert given.power_w.tolist() == [290.0, 310.0]


@pytest.mark.parametrize("form", FORMS)
def test_gpu_hours_are_unknown_without_times_and_count_once(tmp_path, form):
    log = FORMS[form](readings(Job("17", 2, 300.0)))
    _, found = logged(tmp_path, log, "job,batch_size,step_time_s\n17,8,1\n17,16,2\n")
    assert found.notes == (repeated(108), *at_once(form, 2))
    seconds, known = sum(run.gpu_s for run in found.runs), form.startswith(("nvidia-smi", "Prometheus"))
    assert seconds == pytest.approx(108.0 if known else np.nan, nan_ok=True)


def test_a_value_counts_before_none_of_another_series(tmp_path):
    answer = json.loads(prometheus(readings(Job("17", 1, 300.0))))
    result = answer["data"]["result"]
    for one in [one for one in result if one["metric"]["__name__"].endswith("POWER_USAGE")]:
        again = {
            "metric": {**one["metric"], "instance": "b"},
            "values": [[t, "NaN"] for t, _ in one["values"]],
        }
        result.append(again)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m, _ = logged(tmp_path, json.dumps(answer), "job,batch_size,step_time_s\n17,8,1\n17,16,1\n")
    assert m.power_w.tolist() == [300, 300]


@given(order=st.permutations(range(7)), at=st.integers(1, 60), units=st.booleans())
@settings(max_examples=examples(15))
def test_a_header_in_the_middle_is_that_of_the_log_that_was_appended(tmp_path_factory, order, at, units):
    reads = readings(Job("17", 2, 320.0))
    lines = smi(reads[: 2 * at]).splitlines()
    for row in smi(reads[2 * at :], units=units).splitlines():
        cells = row.split(", ")
        lines.append(", ".join(cells[k] for k in order))
    m, found = logged(tmp_path_factory.mktemp("log"), "\n".join([*lines, ""]), ROWS.format("", ""))
    assert (m.gpus.tolist(), m.power_w.tolist()) == ([2, 2], [320, 320])
    assert (found.runs[0].read, found.runs[0].utilisation) == (len(reads), pytest.approx(0.97))


@pytest.mark.parametrize("indent", ["", "   "])
@pytest.mark.parametrize(("unit", "factor"), [("W ", 1.0), ("mW", 1000.0), ("  ", 1.0)])
def test_a_unit_of_dcgm_is_that_of_the_column_above_it(tmp_path, indent, unit, factor):
    reads = [replace(one, power_w=factor * one.power_w) for one in readings(Job("17", 1, 20.0))]
    lines = dmon(reads).replace("ID        W ", f"ID        {unit}").splitlines(keepends=True)
    m, _ = logged(tmp_path, "".join(indent + line for line in lines), ROWS.format("", ""))
    assert m.power_w == pytest.approx([20.0, 20.0])


@pytest.mark.parametrize("form", ["nvidia-smi", "dcgmi dmon", "dcgm-exporter", "Prometheus"])
@pytest.mark.parametrize("seconds", [slice(0, 50), slice(40, 60), slice(60, 90)])
@pytest.mark.parametrize("blank", [2**31 - 16, 2**31 - 13, 2**32 - 2, 2**47, 2**47 + 3, 2**63 - 16, 2**64])
def test_gpus_of_unknown_watts_and_utilisation_do_what_they_did_before(tmp_path, form, seconds, blank):
    reads = readings(Job("17", 2, 300.0, power_limit_w=350.0))
    lost = [read for read in reads if read.gpu][seconds]
    told = {"power_w": blank, "utilisation": blank, "power_limit_w": blank}
    odd = [replace(read, **told) if read in lost else read for read in reads]
    rows = "job,batch_size,step_time_s\n17,8,1\n17,16,2\n"
    (_, whole), (m, found) = (logged(tmp_path, FORMS[form](some), rows) for some in (reads, odd))
    # Times tell where the other GPU idles; without them this one is busy before its first or after its last.
    more = 0.9 * {0: 20, 40: 0, 60: 10}[seconds.start] * form.startswith("dcgm")
    for run, of_whole in zip(found.runs, whole.runs, strict=True):
        assert (run.gpus, run.read, run.samples) == (2, 180, of_whole.samples + more)
        assert run.gpu_s == pytest.approx(of_whole.gpu_s, nan_ok=True)
    assert m.power_w == pytest.approx([300.0, 300.0])
    assert found.notes[0].startswith(f"assumed: {len(lost)} of 180 samples, of '17', tell neither watts nor")


def test_a_gpu_of_which_nothing_is_known_is_left_out_and_said(tmp_path):
    log = smi(readings(Job("17", 2, 300.0))).splitlines()
    log[2::2] = [re.sub(r"[\d.]+ (W|MHz|%)", "[Unknown Error]", line) for line in log[2::2]]
    _, found = logged(tmp_path, "\n".join([*log, ""]), "job,batch_size,step_time_s\n17,8,1\n17,16,2\n")
    assert [run.gpus for run in found.runs] == [1, 1]
    assert found.notes[0].startswith(
        "assumed: 90 of 180 samples, of '17', tell neither watts nor utilisation"
    )
    assert found.notes[0].endswith("and without any other they do not count")
