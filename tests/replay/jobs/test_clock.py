"""Dates of a trace beside those of files of carbon and prices over time."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from wattsched.instances.clusters import homogeneous_cluster
from wattsched.instances.errors import NoticeWarning
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replaying.job_sources import JobSource
from wattsched.replaying.replay_settings import ReplaySettings
from wattsched.replaying.replays import replay_jobs

Run = Callable[..., tuple[Outcome, list[str]]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Replay a job of three hours that arrives at a date; the outcome, and what is noticed of files."""

    def replayed(arrival: str, files: dict[str, str], **settings: str) -> tuple[Outcome, list[str]]:
        jobs = tmp_path / "jobs.csv"
        jobs.write_text(f"job,arrival,duration,gpus,model\na,{arrival},3:00:00,8,resnet50\n")
        cluster = homogeneous_cluster(1, 8, "A100")
        paths = {}
        for name, text in files.items():
            paths[name] = tmp_path / f"{name}.csv"
            paths[name].write_text(text)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always", NoticeWarning)
            traces = JobSource(jobs).traces(cluster)
            found = replay_jobs(traces, ["fifo"], settings=ReplaySettings(**paths, **settings))
            ((_, outcome),) = found
        return outcome, [str(one.message) for one in told if "column" in str(one.message)]

    return replayed


def hours(first: int, count: int, day: str = "2026-11-01", zone: str = "Z") -> str:
    """Give each hour of a day its number as grams per kWh."""
    lines = [f"{day}T{hour:02d}:00{zone},{hour}" for hour in range(first, first + count)]
    return "\n".join(["time,g_per_kwh", *lines, ""])


def rate(outcome: Outcome) -> float:
    """Mean grams per kWh."""
    return outcome.meter.carbon_g / outcome.meter.energy_j * 3.6e6


def test_the_dates_of_the_trace_count_where_the_file_has_them(run: Run) -> None:
    outcome, told = run("2026-11-01T05:00Z", {"carbon": hours(0, 24)})
    assert (rate(outcome), told) == (pytest.approx((5 + 6 + 7) / 3, rel=1e-3), [])
    outcome, told = run("2026-11-01 05:00", {"carbon": hours(0, 24)})
    assert rate(outcome) == pytest.approx(6.0, rel=1e-3)
    assert [one.partition(": assumed: ")[2] for one in told] == [
        "'2026-11-01T05:00:00' has no zone and is UTC"
    ]


def test_where_the_file_does_not_have_them_both_dates_are_told(run: Run) -> None:
    outcome, told = run("2026-11-01T05:00Z", {"carbon": hours(0, 24, "2026-06-01")})
    assert rate(outcome) == pytest.approx((0 + 1 + 2) / 3, rel=1e-3)
    moved = "assumed: the first job arrives at 2026-11-01 05:00, counted as 2026-06-01 00:00"
    assert [one.partition("'g_per_kwh': ")[2] for one in told] == [moved]


def test_a_start_that_contradicts_the_date_of_the_trace_is_told(run: Run) -> None:
    carbon = {"carbon": hours(0, 24)}
    outcome, told = run("2026-11-01T05:00Z", carbon, start="2026-11-01T10:00Z")
    assert rate(outcome) == pytest.approx(11.0, rel=1e-3)
    assert "arrives at 2026-11-01 05:00, counted as 2026-11-01 10:00" in told[0]
    for arrival in ("2026-11-01T11:00+01:00", "2026-11-01 05:00", "0"):
        assert run(arrival, carbon, start="2026-11-01T10:00Z")[1] == []


def test_holes_and_the_time_after_the_end_of_a_file_are_told(run: Run) -> None:
    lines = hours(0, 5).splitlines()
    for text, told in (
        (hours(0, 24), []),
        (hours(0, 2), ["1.5 h without one, 2026-11-01 02:00 to 2026-11-01 03:30"]),
        ("\n".join([*lines[:2], *lines[4:]]), ["2 h without one, 2026-11-01 01:00 to 2026-11-01 03:00"]),
    ):
        outcome, _ = run("2026-11-01T00:30Z", {"carbon": text})
        found = outcome.meter.stale(outcome.begin_s)
        assert [one.partition("the last value stands for ")[2] for one in found] == told


def test_a_zone_is_a_column_of_files_of_carbon_and_of_prices(run: Run) -> None:
    prices = "time,DE (EUR/MWh),FR (EUR/MWh)\n2026-11-01T00:00Z,40,50\n"
    outcome, _ = run("2026-11-01T00:00Z", {"tariff": prices}, zone="FR (EUR/MWh)")
    assert outcome.meter.money / outcome.meter.energy_j * 3.6e6 == pytest.approx(0.05)
    both = {"carbon": "time,DE,FR\n2026-11-01T00:00Z,400,60\n", "tariff": "time,EUR/MWh\n2026-11-01,40\n"}
    outcome, _ = run("2026-11-01T00:00Z", both, zone="FR")
    assert (rate(outcome), outcome.meter.money > 0) == (pytest.approx(60.0), True)


def test_that_one_offset_holds_for_all_local_times_is_told(tmp_path: Path) -> None:
    def told(*arrivals: str, start: str = "2025-10-25T22:00+02:00") -> list[str]:
        rows = "".join(f"j{n},{arrival},3600,8,resnet50\n" for n, arrival in enumerate(arrivals))
        (tmp_path / "jobs.csv").write_text(f"job,arrival,duration,gpus,model\n{rows}")
        (tmp_path / "carbon.csv").write_text(hours(0, 24, "2025-10-25"))
        traces = JobSource(tmp_path / "jobs.csv").traces(homogeneous_cluster(1, 8, "A100"))
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", NoticeWarning)
            replay_jobs(
                traces, ["fifo"], settings=ReplaySettings(carbon=tmp_path / "carbon.csv", start=start)
            )
        return [str(one.message) for one in found if "no zone: all" in str(one.message)]

    night = "2025-10-25 22:00", "2025-10-26 05:00"
    assert told(*night) == [
        "assumed: the jobs' dates have no zone: all are as far from UTC as '2025-10-25T22:00+02:00' says"
    ]
    assert len(told("2025-10-25 22:00", "2025-10-28 22:00")) == 1
    assert told("2025-10-25 22:00", "2025-10-25 23:00") == []
    assert told("2025-10-25T22:00+02:00", "2025-10-26T05:00+01:00") == told("0", "90000") == []
    assert told(*night, start="2025-10-25T20:00") == []
