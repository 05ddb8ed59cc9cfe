"""Times in logs: means over time, starts and ends of rows, and clocks that go back."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.perfmodels.logs.logged_files import ROWS, TIMED, logged, table, written
from tests.perfmodels.logs.writers import (
    BEGIN_S,
    BERLIN,
    IDLE_W,
    Job,
    Read,
    dmon,
    prometheus,
    readings,
    smi,
)
from tests.strategies.effort import examples
from wattsched.perfmodels.measurements import read_logged
from wattsched.reading.inputs import NoticeWarning


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


@settings(max_examples=examples(15))
@given(
    apart_s=st.lists(st.integers(1, 3), max_size=5),
    period_s=st.integers(20, 90),
    bursts=st.integers(20, 40),
    hole=st.integers(5, 15),
    change=st.integers(5, 15),
    form=st.sampled_from(list(TIMED.values())),
)
def test_bursts_of_samples_count_all_their_time_but_not_holes(
    tmp_path_factory, apart_s, period_s, bursts, hole, change, form
):
    within_s = [0, *np.cumsum(apart_s).tolist()]
    moments = [n * period_s + s + 36_000 * (n > hole) for n in range(bursts) for s in within_s]
    reads = [
        Read("17", 0, BEGIN_S + s, 300.0 - 100.0 * (n < change * len(within_s)), 97, 1410, 400.0)
        for n, s in enumerate(moments)
    ]
    _, found = logged(
        tmp_path_factory.mktemp("log"), form(reads), "job,batch_size,step_time_s\n17,8,1\n17,9,1\n"
    )
    # The gap of the hole counts four times; the last burst has no step behind it but that of its samples.
    lasts_s = (bursts + 2) * period_s + within_s[-1] + (apart_s[-1] if apart_s else period_s) - within_s[-1]
    assert found.runs[0].gpu_s == pytest.approx(0.9 * lasts_s, abs=4 * max(within_s[-1], 1) + 1)


def test_two_replicas_count_as_one(tmp_path):
    def reads(offsets_s):
        return [
            Read("17", 0, BEGIN_S + 30 * n + s, 550.0 - 200 * (n > 50), 97, 1410, 700.0)
            for n in range(120)
            for s in offsets_s
        ]

    runs = [
        logged(tmp_path, prometheus(reads(offsets)), "job,batch_size,step_time_s\n17,8,1\n17,9,1\n")[1].runs[
            0
        ]
        for offsets in ((0,), (0, 1.2))
    ]
    assert runs[1].power_w == pytest.approx(runs[0].power_w, rel=2e-3)
    assert runs[1].gpu_s == pytest.approx(runs[0].gpu_s, abs=30)


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


@pytest.mark.parametrize("names", ["start,end", "start_time,end_time", "Start,End", "Begin Time,Finish time"])
@pytest.mark.parametrize("unit", ["", "000"])
def test_times_of_jobs_have_other_names_and_may_be_milliseconds(tmp_path, names, unit):
    small, large = Job("x", 2, 200.0), Job("x", 2, 300.0, begin_s=BEGIN_S + 90)
    log = written(tmp_path, smi([*readings(small), *readings(large)]), "node1.csv")
    middle = f"{BEGIN_S + 90 - 7200}{unit}"
    rows = f"JobID,batch_size,step_time_s,{names},queue\nnode1,8,0.1,,{middle},a\nnode1,16,0.2,{middle},,a\n"
    with pytest.warns(NoticeWarning, match="jobs.csv: not read: the columns 'queue'$"):
        m, _ = read_logged([log], table(tmp_path, rows), time_zone=BERLIN)
    np.testing.assert_allclose(m.power_w, [200, 300])


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
