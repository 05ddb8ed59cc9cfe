"""Plain lists of recorded jobs: what is written is read again, and every bad cell is told."""

from __future__ import annotations

import csv
import re
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import replace
from math import ceil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.instances.clusters import GPU_TYPES, homogeneous_cluster
from wattsched.instances.errors import InputError, NoticeWarning
from wattsched.instances.traces import TraceJob, round_at
from wattsched.instances.traces.job_lists import csv_of, read_plain
from wattsched.perfmodels.profile import models
from wattsched.reading.clocks import clock_s
from wattsched.reading.inputs import printable
from wattsched.reading.tables import comments_of
from wattsched.replay.jobs.trace import trace_of_durations
from wattsched.topology.cluster import Cluster, Node

pytestmark = pytest.mark.filterwarnings("ignore::wattsched.instances.errors.NoticeWarning")

STRANGE = st.text("=@+-\x00\t a", min_size=1, max_size=20).map(lambda text: text * 20)
NAMES = st.text("abcdefgh_.0123456789é", min_size=1, max_size=8)
JOBS = st.lists(
    st.builds(
        TraceJob,
        name=NAMES,
        submitted_s=st.integers(10**9, 2 * 10**9).map(float),
        duration_s=st.floats(0.001, 1e7).map(lambda s: round(s, 3)),
        gpus=st.integers(0, 64),
        model=st.none() | st.sampled_from(models()),
        gpu_type=st.none() | st.sampled_from(list(GPU_TYPES)),
        power_w=st.none() | st.integers(1, 10_000).map(float),
        user=st.just("") | NAMES,
        account=st.just("") | NAMES,
        time_limit_s=st.none() | st.integers(1, 10**7).map(float),
        max_gpus=st.none() | st.integers(64, 128),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda job: job.name,
)
ROW = {"job": "j", "arrival": "2026-11-03 08:30", "duration": "1-02:03:04", "gpus": "4", "watts": "9.5"}
BAD = {"job": "", "arrival": "2026-13-03", "duration": "1:2", "gpus": "4.5", "watts": "-1"}


@pytest.fixture(scope="module")
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "list.csv"


def written(path: Path, rows: list[dict[str, str]]) -> Path:
    lines = [",".join(ROW), *(",".join(row.values()) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


@given(JOBS)
def test_what_is_written_is_read_again(path: Path, jobs: list[TraceJob]) -> None:
    path.write_text(csv_of(jobs))
    first_s = min(job.submitted_s for job in jobs)
    found = {job.name: job for job in read_plain(path)}
    assert set(found) == {job.name for job in jobs}
    for job in jobs:
        again = found[job.name]
        assert again.submitted_s == job.submitted_s - first_s
        assert (again.duration_s, again.gpus, again.model) == (job.duration_s, job.gpus, job.model)
        assert (again.gpu_type, again.power_w) == (job.gpu_type, job.power_w)
        assert (again.time_limit_s, again.max_gpus) == (job.time_limit_s, job.max_gpus)
        assert (again.user, again.account) == (job.user, job.account)


@given(JOBS, st.lists(st.text(max_size=20), min_size=1, max_size=4), st.sampled_from(["", "\ufeff"]))
def test_comments_come_back_and_change_nothing(
    path: Path, jobs: list[TraceJob], comments: list[str], mark: str
) -> None:
    jobs = [replace(job, name=f"{job.name}#2", account="a#b") for job in jobs]
    path.write_text(csv_of(jobs))
    found = read_plain(path)
    path.write_text(mark + csv_of(jobs, comments), encoding="utf-8")
    with pytest.warns(NoticeWarning, match=re.escape(printable(comments[-1]).strip())):
        assert read_plain(path) == found
    assert comments_of(path) == [printable(one).strip() for one in comments]
    again = pd.read_csv(path, comment="#", dtype=str, keep_default_na=False, encoding="utf-8-sig")
    assert again["job"].tolist() == [job.name for job in found]


@given(JOBS)
def test_a_header_that_comes_again_is_no_job(path: Path, jobs: list[TraceJob]) -> None:
    path.write_text(csv_of(jobs))
    found = read_plain(path)
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, lines[0], header, *lines[1:], header, ""]))
    assert read_plain(path) == found


@pytest.mark.parametrize(("zone", "told"), [("", True), ("Z", False), ("+01:00", False)])
def test_arrivals_without_a_zone_are_told_to_be_in_utc(path: Path, zone: str, told: bool) -> None:
    dates = [f"2026-10-25 00:00{zone}", f"2026-10-25 06:00{zone}"]
    written(path, [{**ROW, "job": f"{n}", "arrival": date} for n, date in enumerate(dates)])
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", NoticeWarning)
        assert [job.submitted_s for job in read_plain(path)] == [0.0, 6 * 3600.0]
    assert any("assumed: arrivals have no zone and are UTC" in str(one.message) for one in found) == told


def test_unlimited_is_no_time_limit(path: Path) -> None:
    path.write_text("job,arrival,duration,gpus,time_limit\na,0,60,1,UNLIMITED\nb,0,60,1,2-00:00:00\n")
    assert [job.time_limit_s for job in read_plain(path)] == [None, 172800.0]


def test_lines_are_counted_with_the_comments(path: Path) -> None:
    path.write_text('# one\n#\n# "three\njob,arrival,duration,gpus\na,0,60,1\nb,0,x,1\n')
    with pytest.raises(
        InputError, match="line 6, column 'duration': 'x' is neither a number of seconds nor HH:MM"
    ):
        read_plain(path)


@given(JOBS, st.sampled_from(";\t"), st.sampled_from(["", "\ufeff", "\n"]))
def test_cells_may_be_separated_by_semicolons_or_tabs(
    path: Path, jobs: list[TraceJob], separator: str, begin: str
) -> None:
    # Beside semicolons, points before three digits may separate thousands.
    path.write_text(csv_of([replace(job, duration_s=float(ceil(job.duration_s))) for job in jobs]))
    found = read_plain(path)
    with path.open(newline="") as file:
        rows = list(csv.reader(file))
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(begin)
        csv.writer(file, delimiter=separator).writerows(rows)
    assert read_plain(path) == found


def test_points_that_may_separate_thousands_are_refused_in_columns_of_numbers(path: Path) -> None:
    header, rows = "job;arrival;duration;gpus;note\n", ["1.250;0;3.600;1;1.250\n", "1.251;60;7.200;1;1.250\n"]
    path.write_text("".join([header, *rows]))
    with pytest.raises(ValueError, match=r"list.csv, column 'duration': '7.200' may be thousands"):
        read_plain(path)
    path.write_text("".join([header, *rows, "1.252;60;90.5;1;1.250\n"]))
    assert next((job.name, job.duration_s) for job in read_plain(path)) == ("1.250", 3.6)


# Spaces at the end of a name tell nothing, as in every other cell.
@given(st.lists(STRANGE, min_size=1, unique_by=str.rstrip), STRANGE)
def test_names_of_any_length_are_written_so_that_they_are_read(
    path: Path, names: list[str], user: str
) -> None:
    jobs = [TraceJob(f"j{name}", 0.0, 60.0, 1, gpu_type=user, user=user, account=user) for name in names]
    path.write_text(csv_of(jobs))
    assert len(read_plain(path)) == len(jobs)


@given(st.sets(st.tuples(st.integers(0, 4), st.sampled_from(list(ROW)))))
def test_every_bad_cell_is_told_by_line_column_and_value(path: Path, bad: set[tuple[int, str]]) -> None:
    rows = [{**ROW, "job": f"j{n}"} for n in range(5)]
    for n, column in bad:
        rows[n][column] = BAD[column]
    written(path, rows)
    if not bad:
        assert len(read_plain(path)) == 5
        return
    with pytest.raises(InputError) as error:
        read_plain(path)
    told = "\n".join(error.value.faults[:-1] if len(bad) > 20 else error.value.faults)
    places = {(int(line) - 2, column) for line, column in re.findall(r"line (\d+), column '(\w+)'", told)}
    assert places <= bad
    assert len(places) == min(20, len(bad))
    assert all(BAD[column] in told for _, column in places)


@given(st.integers(0, 99), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_clocks(days: int, hours: int, minutes: int, seconds: int) -> None:
    expected = 86_400 * days + 3600 * hours + 60 * minutes + seconds
    assert clock_s(f"{days}-{hours:02}:{minutes:02}:{seconds:02}") == expected
    assert clock_s(f"{24 * days + hours}:{minutes:02}:{seconds:02}") == expected


def test_dates_count_from_the_first_and_seconds_from_their_zero(path: Path) -> None:
    zones = ["2026-11-03T10:00+01:00", "2026-11-03T08:30:00Z"]
    written(path, [{**ROW, "job": str(n), "arrival": cell} for n, cell in enumerate(zones)])
    assert [job.submitted_s for job in read_plain(path)] == [1800, 0]
    written(path, [{**ROW, "job": str(n), "arrival": cell} for n, cell in enumerate(["50", "10.5"])])
    assert [job.submitted_s for job in read_plain(path)] == [50, 10.5]


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ([ROW, ROW], "line 3, column 'job': the job 'j' occurs twice"),
        ([ROW, {**ROW, "job": "k", "arrival": "7"}], "'7' is seconds, in line 2 there is a date"),
        ([ROW, {**ROW, "job": "k", "arrival": "2026-01-01T00Z"}], "is a date with a time zone, in line 2"),
    ],
)
def test_rows_that_do_not_go_together(path: Path, rows: list[dict[str, str]], fault: str) -> None:
    with pytest.raises(InputError, match=re.escape(fault)):
        read_plain(written(path, rows))


@pytest.mark.parametrize(
    ("column", "cell", "fault"),
    [
        ("time_limit", "2 days", "'2 days' is neither a number of seconds nor HH:MM:SS nor D-HH:MM:SS"),
        ("time_limit", "-5", "must be at least 0, got -5"),
        ("max_gpus", "2", "4 is not within min_gpus 4 to max_gpus 2"),
        ("min_gpus", "x", "'x' is not a number"),
    ],
)
def test_malformed_optional_cells_are_named(path: Path, column: str, cell: str, fault: str) -> None:
    path.write_text(f"job,arrival,duration,gpus,{column}\na,0,60,4,{cell}\n")
    with pytest.raises(InputError, match=re.escape(fault)):
        read_plain(path)


def test_columns_that_are_missing_are_told_together_with_those_that_are_known(path: Path) -> None:
    path.write_text("job,begin,gpus\n")
    with pytest.raises(
        ValueError, match="columns 'arrival', 'duration' are missing, found 'job', 'begin'"
    ) as told:
        read_plain(path)
    assert (
        "read are job, arrival, duration, gpus, gpu_type, watts, wait, user, account, model, time_limit"
        in str(told.value)
    )


@pytest.mark.parametrize("number", [2**31 - 16, 2**32 - 2, 2**47, "9.223372036854776e+18", ""])
def test_watts_that_stand_for_none_are_unknown(tmp_path: Path, number: int | str) -> None:
    file = tmp_path / "jobs.csv"
    file.write_text(f"job,arrival,duration,gpus,watts\na,0,9,1,{number}\nb,0,9,1,2147483600\n")
    assert [job.power_w for job in read_plain(file, {})] == [None, 2147483600.0]


@pytest.mark.filterwarnings("default::wattsched.instances.errors.NoticeWarning")
def test_what_is_assumed_and_not_used_is_said(path: Path) -> None:
    path.write_text(
        "job,arrival,duration,gpus,watts,model,tint\na,0,9,1,5,bert,x\nb,0,9,1,,,x\nc,0,0,1,,,x\n"
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", NoticeWarning)
        read_plain(path)
    said = " ".join(str(one.message) for one in told)
    assert "not read: the columns 'tint'" in said
    assert "left out: 1 without GPUs or duration" in said
    assert "assumed: 1 of 2 jobs name no model" in said
    assert "not used: watts, told of 1 of 2 jobs" in said


def test_a_job_of_more_than_a_century_is_refused(path: Path) -> None:
    path.write_text("job,arrival,duration,gpus\na,0,9,1\nb,0,1e12,1\n")
    with pytest.raises(InputError, match="line 3, column 'duration': '1e12' is longer than a century"):
        read_plain(path)


@given(st.sampled_from(["A100", "V100"]), st.integers(1, 8), st.sampled_from([None, "bert"]))
def test_a_job_alone_takes_as_long_on_its_gpus_as_recorded(kind: str, gpus: int, model: str | None) -> None:
    """Whichever type the cluster has more of."""
    nodes = [Node(name=f"{name}{i}", gpu_type=name, gpus=8) for name in ("A100", "V100") for i in range(2)]
    nodes.append(Node(name="more", gpu_type="A100", gpus=8))
    cluster = Cluster(gpu_types={name: GPU_TYPES[name] for name in ("A100", "V100")}, nodes=nodes)
    trace = trace_of_durations(cluster, [TraceJob("j", 0, 3600, gpus, model, gpu_type=kind)])
    pool = next(p for p, known in enumerate(trace.pools) if known.gpu_type == kind)
    row = trace.request[0, pool]
    assert trace.work[0] / trace.configurations.rate[row] == pytest.approx(3600, rel=1e-9)


@given(st.sampled_from(["A100", "V100"]), st.integers(1, 4), st.sampled_from([1, 2, 4]))
def test_jobs_that_are_not_elastic_stay_on_their_gpus(kind: str, gpus: int, elasticity: int) -> None:
    nodes = [Node(name=f"{name}{i}", gpu_type=name, gpus=8) for name in ("A100", "V100") for i in range(2)]
    cluster = Cluster(gpu_types={name: GPU_TYPES[name] for name in ("A100", "V100")}, nodes=nodes)
    jobs = [TraceJob("j", 0, 3600, gpus, "bert", gpu_type=kind)]
    trace = trace_of_durations(cluster, jobs, elasticity=elasticity)
    rows = trace.configurations
    kinds = {trace.pools[pool].gpu_type for pool in rows.pool}
    assert kinds == ({kind} if elasticity == 1 else {"A100", "V100"})
    least, most = max(1, gpus // elasticity), elasticity * gpus
    assert all(least <= count <= most for count in rows.gpus)
    assert (set(rows.gpus.tolist()) == {gpus}) == (elasticity == 1)


@given(st.sampled_from(["A100", "a100", "My-Gpu"]), st.integers(1, 8), st.sampled_from([1, 4]))
def test_the_case_of_a_gpu_type_does_not_matter(name: str, gpus: int, elasticity: int) -> None:
    kind = GPU_TYPES["A100"].model_copy(update={"profile": "A100"})
    cluster = homogeneous_cluster(2, 8, name, kind=kind)
    found = [
        trace_of_durations(cluster, [TraceJob("j", 0, 60, gpus, gpu_type=spelt)], elasticity=elasticity)
        for spelt in (name, name.lower(), name.upper(), name.swapcase())
    ]
    assert len({(trace.work[0], len(trace.configurations), *trace.request[0]) for trace in found}) == 1


@given(st.integers(1, 30), st.integers(0, 5))
def test_all_jobs_whose_models_do_not_run_are_told_with_the_models_that_do(bad: int, good: int) -> None:
    jobs = [TraceJob(f"b{i}", i, 10, 1 + i % 8, "bert") for i in range(bad)]
    jobs += [TraceJob(f"g{i}", i, 10, 1, "resnet50") for i in range(good)]
    with pytest.raises(
        ValueError, match="the catalogue has no profile of 'bert' on H100, but of "
    ) as refused:
        trace_of_durations(homogeneous_cluster(2, 8, "H100"), jobs)
    told = str(refused.value)
    assert "resnet50, stable-diffusion" in told
    assert "or leave the model empty" in told
    assert "'g" not in told
    named = re.findall("'(b[0-9]+)'", told)
    more = re.search(r"and ([0-9]+) more", told)
    assert len(named) + int(more[1] if more else 0) == bad
    assert len(named) <= 8


def test_a_profile_that_nobody_has_is_named_with_its_gpu_type() -> None:
    kind = GPU_TYPES["H100"].model_copy(update={"profile": "H1000"})
    with pytest.raises(ValueError, match=r"GPU type 'h100': 'H1000' is not known .did you mean 'H100'"):
        trace_of_durations(homogeneous_cluster(1, 8, "h100", kind=kind), [TraceJob("j", 0, 10, 1)])


def test_a_gpu_type_that_the_cluster_lacks_is_refused() -> None:
    jobs = [TraceJob("j", 0, 10, 1, gpu_type="H100")]
    for make in (trace_of_durations, lambda cluster, jobs: round_at(jobs, 0, cluster)):
        with pytest.raises(
            ValueError, match="job 'j': gpu_type: 'H100': the cluster has no such GPU; jobs run on A1"
        ):
            make(homogeneous_cluster(1, 8, "A100"), jobs)


DATES = ("2026-11-03 08:30", "2026-11-04 08:30")
HOURS = r"column 'duration' is read as seconds, at most {} of 'b'; write hours as 1:30:00 and days as 1-06"
DAYS = r"column 'arrival' is read as seconds, as 46319.354166 of 'a'; .* write 2026-10-24 08:30:00"


@pytest.mark.parametrize(
    ("arrivals", "durations", "told"),
    [
        (("46319.354166", "46320"), ("3600", "60"), DAYS),
        (("46319.354166", "46320.5"), ("1:30:00", "0:00:10"), DAYS),
        (DATES, ("0.104166667", "1.25"), HOURS.format("1.25")),
        (DATES, ("1.5", "24"), HOURS.format("24")),
        (("0", "600"), ("1", "0.5"), HOURS.replace("'b'", "'a'").format("1")),
        (("46319.354166", "1000000"), ("3600", "60"), None),
        (("40000", "50000"), ("3600", "60"), None),
        (("100.5", "46319.3"), ("3600", "60"), None),
        (DATES, ("0.5", "3600"), None),
        (DATES, ("0:10:00", "5"), None),
    ],
)
def test_days_and_hours_that_are_read_as_seconds_are_pointed_at(
    path: Path, arrivals: tuple[str, str], durations: tuple[str, str], told: str | None
) -> None:
    rows = [
        {**ROW, "job": name, "arrival": arrival, "duration": duration}
        for name, arrival, duration in zip("ab", arrivals, durations, strict=True)
    ]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read_plain(written(path, rows))
    doubtful = [str(one.message) for one in caught if "is read as seconds" in str(one.message)]
    assert len(doubtful) == (told is not None)
    assert told is None or re.search(f"list.csv: doubtful: {told}", doubtful[0])


def test_a_list_that_may_be_cut_is_pointed_at(path: Path) -> None:
    told = "doubtful: the last line does not end; the file may be cut"
    path.write_text("job,arrival,duration,gpus\na,0,60,8\nb,0,60,1", encoding="utf-8")  # of 16
    with pytest.warns(NoticeWarning, match=told):
        assert [job.gpus for job in read_plain(path)] == [8, 1]
    path.write_text("job,arrival,duration,gpus\na,0,60,8\nb,0,6", encoding="utf-8")
    with pytest.warns(NoticeWarning, match=told), pytest.raises(ValueError, match="line 3: 3 cells"):
        read_plain(path)
    for end in (b"\n", b"\r\n"):
        path.write_bytes(b"job,arrival,duration,gpus\na,0,60,8" + end)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            read_plain(path)
        assert not any(told in str(one.message) for one in found)
