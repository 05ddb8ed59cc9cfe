"""What is written as a log of a known draw is read as that draw, whatever wrote it."""

import json
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perfmodels.logs.logged_files import FORMS, at_once, logged, repeated, table, written
from tests.perfmodels.logs.writers import (
    BEGIN_S,
    IDLE_W,
    Job,
    Read,
    dmon,
    exporter,
    pod,
    prometheus,
    readings,
    slurm,
    smi,
    zeus,
)
from tests.strategies import profiles
from tests.strategies.effort import examples
from wattsched.perfmodels.fit import fit_profile
from wattsched.perfmodels.logs import read_log
from wattsched.perfmodels.measurements import read_logged
from wattsched.perfmodels.profile import Configurations
from wattsched.reading.inputs import NoticeWarning

BERLIN = ZoneInfo("Europe/Berlin")


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


TIMED = {form: FORMS[form] for form in ("nvidia-smi", "nvidia-smi without utilisation", "Prometheus")}


@pytest.mark.parametrize("form", TIMED)
@settings(max_examples=examples(15))
@given(
    phases=st.lists(
        st.tuples(st.integers(1, 90), st.integers(6, 40), st.integers(200, 300)), min_size=1, max_size=4
    )
)
def test_means_are_over_time_and_not_over_samples(tmp_path_factory, form, phases):
    reads, moment, joules = [], 0, np.zeros(0)
    for period_s, samples, power_w in phases:
        for _ in range(samples):
            reads.append(Read("17", 0, BEGIN_S + moment, power_w, 97, 1410, 400.0))
            moment += period_s
            joules = np.append(joules, np.full(period_s, power_w))
    m, _ = logged(
        tmp_path_factory.mktemp("log"), TIMED[form](reads), "job,batch_size,step_time_s\n17,8,1\n17,9,1\n"
    )
    warm_up_s, rest_s = divmod(len(joules), 10)
    after = joules[warm_up_s:].sum() - joules[warm_up_s] * rest_s / 10
    assert m.power_w[0] == pytest.approx(after / (0.9 * len(joules)), rel=1e-6)


def test_a_hole_in_a_log_counts_no_longer_than_four_of_its_gaps(tmp_path):
    reads = [
        Read("17", 0, BEGIN_S + s + 3600 * (s >= 50), 100.0 + 100 * (s < 50), 97, 1410, 400.0)
        for s in range(100)
    ]
    m, found = logged(tmp_path, smi(reads), "job,batch_size,step_time_s\n17,8,1\n17,9,1\n")
    assert m.power_w[0] == pytest.approx((200 * (103 * 0.9 - 50) + 100 * 50) / (103 * 0.9))
    assert found.runs[0].read == 100


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


def test_watts_far_above_the_limit_are_pointed_at(tmp_path):
    log = smi(readings(Job("17", 1, 500.0, power_limit_w=300.0)))
    _, found = logged(tmp_path, log, "job,batch_size,step_time_s\n17,8,1\n17,9,1\n")
    doubtful = "doubtful: '17' draws 500 W on average at a power limit of 300 W"
    assert found.notes == (doubtful, repeated(54))


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


def test_windows_of_zeus_tell_watts_and_step_times_at_every_limit(tmp_path):
    windows = [
        (f"__GlobalPowerLimitOptimizer_{limit}", 40 * 0.5 * (400 - limit) / 100, [limit * 20.0, limit * 22.0])
        for limit in (300, 250, 200)
    ]
    log = zeus([("warm up", 3.0, [1.0, 1.0]), *windows])
    m, found = logged(tmp_path, log, "job,batch_size,steps\n__Global*,64,40\n")
    assert m.power_limit_w.tolist() == [200, 250, 300]
    np.testing.assert_allclose(m.step_time_s, [1.0, 0.75, 0.5])
    np.testing.assert_allclose(m.power_w, [200 * 21 / 40, 250 * 21 / 30, 300 * 21 / 20])
    assert m.gpus.tolist() == [2, 2, 2]
    name = tmp_path / "jobs.csv"
    assert found.notes == (f"not used: 'warm up' of the logs, which {name} does not name",)


def test_the_first_tenth_of_the_windows_of_zeus_is_warm_up(tmp_path):
    steps = [("step", 1.0, [100.0])] * 2 + [("step", 0.5, [100.0])] * 18
    log = zeus([*steps, ("epoch", 11.0, [2000.0])])
    m, _ = logged(tmp_path, log, "job,local_batch,steps\nstep,8,1\nepoch,8,22\n")
    np.testing.assert_allclose(m.step_time_s, [0.5, 0.5])
    np.testing.assert_allclose(m.power_w, [200.0, 2000.0 / 11.0])


def test_a_profile_of_zeus_is_of_all_gpus_together(tmp_path):
    text = '{"measurements": [{"power_limit": 300, "energy": 8000, "time": 10}, '
    text += '{"power_limit": 200, "energy": 7000.0, "time": 12.5}]}'
    m, _ = logged(tmp_path, text, "job,batch_size,steps,gpus\nr50,256,40,4\n", "r50.json")
    np.testing.assert_allclose(m.power_w, [140.0, 200.0])
    np.testing.assert_allclose(m.step_time_s, [12.5 / 40, 10 / 40])
    with pytest.raises(ValueError, match="the energy of all GPUs together; give gpus"):
        logged(tmp_path, text, "job,batch_size,steps\nr50,256,40\n", "r50.json")


def test_public_profiles_of_zeus(data_dir, tmp_path):
    folder = data_dir / "zeus-2023" / "power-limit-profiles"
    # Their batches are not told; a fit wants two.
    rows = "job,local_batch,steps\nV100+resnet50+gpu0,128,40\nV100+resnet50+gpu0,1,2\n"
    log = folder / "V100+resnet50+gpu0.csv"
    m, _ = read_logged([log], table(tmp_path, rows))
    assert sorted(set(m.power_limit_w.tolist())) == [100, 125, 150, 175, 200, 225, 250]
    assert (m.power_w <= 1.03 * m.power_limit_w).all()
    report = fit_profile([log], "resnet50", "V100", jobs=table(tmp_path, rows))
    assert report.profile.power_limits.limit_w[0] == 100
    four = folder / "A40+resnet50+gpu0,1,2,3.csv"
    m, _ = read_logged([four], table(tmp_path, "job,local_batch,steps\nA40*,128,40\n"))
    assert set(m.gpus.tolist()) == {4}


def test_times_tell_the_runs_of_one_log_apart(tmp_path):
    small, large = Job("x", 2, 200.0), Job("x", 2, 300.0, begin_s=BEGIN_S + 90)
    text = smi([*readings(small), *readings(large)])
    rows = "job,batch_size,step_time_s,start,end\nnode1,8,0.1,,{0}\nnode1,16,0.2,{0},\n"
    for moment in ("2026/09/21 14:14:50.000", "2026-09-21T14:14:50"):
        m, _ = logged(tmp_path, text, rows.format(moment), "node1.csv")
        np.testing.assert_allclose(m.power_w, [200, 300])
    for moment in ("2026-09-21T12:14:50Z", "2026-09-21T14:14:50+02:00", f"{BEGIN_S + 90 - 7200}"):
        with pytest.raises(
            ValueError, match=r"line 2, column 'end': .* has a time zone, .* 'node1' have none; give"
        ):
            logged(tmp_path, text, rows.format(moment), "node1.csv")
        log, jobs = written(tmp_path, text, "node1.csv"), table(tmp_path, rows.format(moment))
        m, _ = read_logged([log], jobs, time_zone=BERLIN)
        np.testing.assert_allclose(m.power_w, [200, 300])
    timed = prometheus([*readings(small), *readings(large)]).replace('"x"', '"node1"')
    with pytest.raises(
        ValueError, match=r"'2026-09-21T16:14:50' has no time zone, .* 'node1' have one; give"
    ):
        logged(tmp_path, timed, rows.format("2026-09-21T16:14:50"))
    jobs = table(tmp_path, rows.format("2026-09-21T16:14:50"))
    m, _ = read_logged([written(tmp_path, timed)], jobs, time_zone=BERLIN)
    np.testing.assert_allclose(m.power_w, [200, 300])
    with pytest.raises(ValueError, match=r"line 2, column 'end': the log of 'node1' tells no times"):
        logged(tmp_path, dmon(readings(small)), rows.format(5), "node1")


def night(days_before: int, gpus: int = 1) -> tuple[str, str, list[Read]]:
    """Start and end of a job by the clock, and two hours before it to two hours after.

    It runs from 2:30 on, for an hour with 300 W, then for another with 200 W.
    """
    begin, reads = datetime(2026, 10, 25 - days_before, 2, 30, tzinfo=BERLIN), []
    for k in range(-1440, 2880):
        watts, load = (300.0 - 100.0 * (k >= 720), 97) if 0 <= k < 1440 else (IDLE_W, 0)
        reads += [Read("17", gpu, begin.timestamp() + 5 * k, watts, load, 1410, 400.0) for gpu in range(gpus)]
    end = datetime.fromtimestamp(begin.timestamp() + 7200, BERLIN)
    return f"{begin:%Y-%m-%d %H:%M}", f"{end:%Y-%m-%d %H:%M}", reads


ROWS = "job,batch_size,step_time_s,start,end\n17,8,1,,\n17,16,2,{},{}\n"


@pytest.mark.parametrize(("gpus", "by_gpu"), [(1, False), (3, False), (3, True)])
def test_the_night_in_which_clocks_go_back_is_read_as_the_night_before(tmp_path, gpus, by_gpu):
    found = []
    for days_before in (0, 1):
        start, end, reads = night(days_before, gpus)
        log = written(tmp_path, smi(sorted(reads, key=lambda r: r.gpu * by_gpu), zone=BERLIN))
        _, jobs = read_logged([log], table(tmp_path, ROWS.format(start, end)), time_zone=BERLIN)
        found.append([(run.power_w, run.gpu_s, run.gpus, run.samples) for run in jobs.runs])
    assert found[0] == found[1]
    # A tenth of two hours is warm-up.
    mean_w, gpu_s = (300 * 0.4 + 200 * 0.5) / 0.9, 0.9 * 7200 * gpus
    assert found[0][0] == pytest.approx((mean_w, gpu_s, gpus, 1296 * gpus), rel=1e-9)
    assert found[0][1] == pytest.approx((mean_w, 0.0, gpus, 1296 * gpus), rel=1e-9)


def test_what_the_order_of_a_log_does_not_tell_is_assumed(tmp_path):
    start, end, reads = night(0)
    log, first = written(tmp_path, smi(reads, zone=BERLIN)), "of hours that come twice in autumn the likelier"
    with pytest.warns(NoticeWarning, match=f"jobs.csv, line 3: assumed: {first} one, or else the first"):
        read_logged([log], table(tmp_path, ROWS.format(start, end)), time_zone=BERLIN)
    within = [r for r in reads if r.time_s < reads[0].time_s + 9000][1100:]
    log = written(tmp_path, smi(within, zone=BERLIN), "17.csv")
    with pytest.warns(NoticeWarning, match=f"17.csv: assumed: {first}"):
        read_logged([log], table(tmp_path, ROWS.format("", "")), time_zone=BERLIN)
    told = r"17.csv: doubtful: the clock steps back by 1 h on line 1802; --time-zone reads both hours"
    log = written(tmp_path, smi(reads, zone=BERLIN), "17.csv")
    for zone in (None, ZoneInfo("America/New_York")):
        with pytest.warns(NoticeWarning, match=told):
            read_logged([log], table(tmp_path, ROWS.format("", "")), time_zone=zone)


def test_times_that_clocks_skip_in_spring_are_refused(tmp_path):
    log = written(tmp_path, smi(readings(Job("17", 1, 300.0, begin_s=1_774_749_580.0))), "spring.csv")
    skipped = "the clocks of Europe/Berlin skip 2026-03-29 02:00:00 in spring"
    with pytest.raises(ValueError, match=f"{log}: {skipped}"):
        read_logged([log], table(tmp_path, ROWS.format("", "")), time_zone=BERLIN)
    log = written(tmp_path, smi(readings(Job("17", 1, 300.0))))
    with pytest.raises(ValueError, match=rf"jobs.csv, line 3, column 'end': {skipped}"):
        read_logged([log], table(tmp_path, ROWS.format("", "2026-03-29 02:00")), time_zone=BERLIN)


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
    assert "assumed: 'train-0' had its 4 GPUs at once: its log tells no times" in found.notes
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


def test_a_board_in_mig_mode_is_told_to_count_whole(tmp_path):
    log = smi(readings(Job("17", 1, 300.0)))
    lines = log.splitlines()
    mig = "\n".join([f"{lines[0]}, mig.mode.current", *(f"{line}, Enabled" for line in lines[1:]), ""])
    with pytest.warns(NoticeWarning, match="boards in MIG mode count whole"):
        logged(tmp_path, mig, "job,batch_size,step_time_s\n17,8,1\n17,9,1\n")


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


def test_logs_of_another_gpu_than_the_profile_are_pointed_at(tmp_path):
    log = written(tmp_path, smi(readings(Job("17", 1, 300.0))), "17.csv")
    rows = table(tmp_path, ROWS.format("", ""))
    told = "doubtful: the logs are of 'NVIDIA A100-SXM4-80GB', and not of 'H100'"
    for gpu_type, doubtful in (("H100", True), ("A100", False), ("a100-sxm4-80gb", False), ("GPU", False)):
        assert (told in fit_profile([log], "m", gpu_type, jobs=rows).notes) == doubtful


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


def test_a_log_that_may_be_cut_is_pointed_at(tmp_path):
    text = smi(readings(Job("17", 2, 300.0)))
    log = written(tmp_path, text[:-1], "17.csv")
    with pytest.warns(NoticeWarning, match="17.csv: doubtful: the last line does not end"):
        read_log(log)


@pytest.mark.parametrize("form", TIMED)
def test_a_sample_at_the_end_of_a_row_is_the_next_ones(tmp_path, form):
    reads = [Read("17", 0, BEGIN_S + 60 * k, 600.0 - 400 * (k >= 10), 97, 1410, 700.0) for k in range(20)]
    edges_s = [BEGIN_S, BEGIN_S + 600, BEGIN_S + 1200]
    rows = "".join(f"17,{8 + n},1,{edges_s[n]},{edges_s[n + 1]}\n" for n in (0, 1))
    rows = "job,batch_size,step_time_s,start,end\n" + rows
    log = written(tmp_path, TIMED[form](reads))
    m, found = read_logged([log], table(tmp_path, rows), time_zone=UTC)
    assert m.power_w.tolist() == [600, 200]
    assert [(run.read, run.gpu_s, run.repeated) for run in found.runs] == [(10, 540.0, 0)] * 2


def test_samples_at_the_end_alone_are_the_rows(tmp_path):
    reads = [Read("17", gpu, BEGIN_S, 300.0, 97, 1410, 400.0) for gpu in range(8)]
    rows = "job,batch_size,step_time_s,end\n" + "".join(f"17,{batch},1,{BEGIN_S}\n" for batch in (8, 16))
    m, _ = logged(tmp_path, prometheus(reads), rows)
    assert (m.gpus.tolist(), m.power_w.tolist()) == ([8, 8], [300, 300])


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


@pytest.mark.parametrize("write", [exporter, prometheus])
def test_values_that_are_no_numbers_are_unknown_and_not_several_draws(tmp_path, write):
    reads = readings(Job("17", 1, 300.0))
    some = [replace(one, power_w=np.nan) if n % 7 == 0 else one for n, one in enumerate(reads)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m, _ = logged(tmp_path, write(some), "job,batch_size,step_time_s\n17,8,1\n17,16,1\n")
    assert m.power_w.tolist() == [300, 300]


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
