"""``wattsched slurm`` on the saved snapshot, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from tests.adapters.trust import trusting
from tests.cli.conftest import wattsched

SNAPSHOT = Path(__file__).resolve().parents[2] / "examples" / "slurm.json"
SITE = SNAPSHOT.with_name("slurm-site.json")
Run = Callable[..., Result]


def test_a_round_as_json(run: Run, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    options = ("--shadow", "--snapshot", SNAPSHOT, "--options", SITE, "--power-w", 12_000)
    options = (*options, "--journal", journal, "--json")
    report = json.loads(run("slurm", *options).stdout)
    assert (report["number"], report["cap_w"], report["power_w"]) == (1, 12_000, 9_650)
    assert report["started"].keys() >= {"24", "26"}
    assert not report["stopped"].keys() & {"21", "23"}
    assert "27" in report["waiting"]
    assert json.loads(run("slurm", *options).stdout)["number"] == 2
    assert "2" in run("journal", journal, "--session", "slurm").output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "give one of --shadow"),
        (["--shadow", "--apply"], "give one of --shadow"),
        (["--apply", "--snapshot", SNAPSHOT], "--snapshot: a saved snapshot can only be looked at"),
        (["--apply"], "--apply needs --journal FILE"),
        (["--shadow", "--power-w", 0], "--power-w"),
        (["--shadow", "--objective", "energy"], "objective: 'energy' lets every job wait that may"),
        (["--shadow", "--power-w", 1, "--budget", "cap.json"], "--power-w: cannot be combined with --budget"),
        (["--shadow", "--budget", "nowhere.json"], "nowhere.json: no such file"),
        (["--shadow", "--options", "nowhere.json"], "nowhere.json: no such file"),
        (["--shadow", "--snapshot", "nowhere.json"], "nowhere.json: no such file"),
        (["--shadow", "--snapshot", SNAPSHOT, "--objective", "money"], "'money'"),
        (["--shadow", "--settings", "folder"], "--settings needs --apply"),
        (["--shadow", "--every", "0"], "--every"),
        (["--shadow", "--give-back"], "--give-back: cannot be combined with --shadow"),
        (["--give-back"], "needs --journal FILE"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, options: list[object], told: str) -> None:
    result = run("slurm", *options)
    assert (result.exit_code, told in result.output) == (2, True), result.output


def test_where_there_is_no_slurm_it_is_said(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": str(tmp_path)}
    done = wattsched("slurm", "--shadow", "--once", env=environment)
    assert done.returncode == 4
    assert "'scontrol' is not installed on this machine" in done.stderr


def test_a_comment_that_no_round_can_use_lets_its_own_job_wait(run: Run, tmp_path: Path) -> None:
    snapshot = json.loads(SNAPSHOT.read_text())
    jobs = json.loads(snapshot["jobs"])
    (job,) = (one for one in jobs["jobs"] if one["job_id"] == 25)
    table = {"gpus": [2], "pool": ["A100"], "rate": [1.0], "power_w": [700.0]}
    job["comment"] = json.dumps({"wattsched": {"options": table, "remaining_work": 1e-9}})
    (tmp_path / "seen.json").write_text(json.dumps({**snapshot, "jobs": json.dumps(jobs)}))
    (tmp_path / "site.json").write_text(json.dumps(trusting()))
    options = ("--snapshot", tmp_path / "seen.json", "--options", tmp_path / "site.json")
    report = json.loads(run("slurm", "--shadow", *options, "--json").stdout)
    assert "completion times must be from" in report["waiting"]["25"]
    assert report["started"].keys() >= {"24"}
