"""The benchmarks run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def run(program: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / program), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_sessions_are_timed_beside_highs() -> None:
    printed = run("sessions.py", "--quick")
    assert len(re.findall(r"^\| (20|200) \| .* \|$", printed, flags=re.MULTILINE)) == 7
    assert re.search(r"^\| 2,000 \| .* % \| .* \|$", printed, flags=re.MULTILINE)


def test_the_service_is_asked_killed_and_left_alone() -> None:
    printed = run("service.py", "--quick")
    rows = re.findall(r"^\| (?:decision|change|read) \| . \| . \| .* x 200 \|$", printed, flags=re.MULTILINE)
    assert len(rows) == 11
    assert not re.search(r"^\| 50. \|", printed, flags=re.MULTILINE)
    assert re.search(r"^\| 2 \| \d+ \| 0 \| 0 \| 0 \|$", printed, flags=re.MULTILINE)
    assert re.search(r"^\| 40 \| .* \|$", printed, flags=re.MULTILINE)


def test_building_is_measured_for_every_case() -> None:
    rows = re.findall(r"^\| (uniform|hetero) \| .*$", run("build.py", "--quick"), flags=re.MULTILINE)
    assert rows == ["uniform", "hetero"]


def test_warm_rounds_are_measured() -> None:
    assert re.search(r"^\| 1,000 \| .* \|$", run("warm_rounds.py", "--quick"), flags=re.MULTILINE)


def test_large_rounds_are_measured_over_seeds() -> None:
    printed = run("large_seeds.py", "--quick", "--seeds", "2")
    assert re.search(r"^\| `uniform .*` \| 0.0001 \| .* \|$", printed, flags=re.MULTILINE)


def test_capacities_are_compared() -> None:
    printed = run("capacity.py", "--quick", "--seeds", "1")
    assert len(re.findall(r"^\| `(?:uniform|sia-like)`, 60 jobs \|", printed, flags=re.MULTILINE)) == 12


def test_nodes_that_sleep_save_energy() -> None:
    printed = run("sleeping.py", "--quick", "--seeds", "1")
    lines = [
        line.split("|") for line in printed.splitlines() if line.startswith("| `uniform`, 30 jobs | 50%")
    ]
    awake, sleep = (float(line[4].strip(" %")) for line in lines)
    assert sleep < awake < 100.0


def test_real_rounds_are_imported_solved_and_checked(data_dir: Path) -> None:
    """Both rounds by the quick rule, and the first one by HiGHS for a few seconds."""
    data = str(data_dir)
    printed = run(
        "real_rounds.py", "--solver", "greedy", "--gap", "1e-4", "--time-limit", "10", WATTSCHED_DATA=data
    )
    one = (
        "--round",
        "itp",
        "--formulation",
        "mckp",
        "--solver",
        "highs",
        "--gap",
        "1e-4",
        "--time-limit",
        "10",
    )
    printed += run("real_rounds.py", *one, WATTSCHED_DATA=data)
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| `mckp`")]
    assert len(rows) == 3
    for row in rows:
        objective, bound = (float(cell.replace(",", "")) for cell in row[1:3])
        assert bound <= objective <= bound * 1.001
        assert row[-1] == "valid |"


def test_savings_are_told_with_who_is_served_later(data_dir) -> None:
    printed = run("savings.py", "--quick", WATTSCHED_DATA=str(data_dir))
    rows = re.findall(r"^\| ITP 04, .* \| (powerflow|sizing) \| .* \|$", printed, flags=re.MULTILINE)
    assert rows == ["powerflow", "sizing"] * 4


@pytest.mark.slow
def test_the_first_hour_is_timed_on_a_real_slurm(load_script) -> None:
    if why := load_script("emulated_accounting").missing():
        pytest.skip(why)
    rows = re.findall(
        r"^\| .* 6 jobs.*\| (\S+) \| (\S+) \|$", run("first_hour.py", "--quick"), flags=re.MULTILINE
    )
    assert len(rows) == 2
    for savings_s, whole_s in rows:
        assert 0.0 < float(savings_s) <= float(whole_s)
