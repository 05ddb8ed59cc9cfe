"""``wattsched kubernetes`` on the saved snapshot, and what it refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import wattsched
from click.testing import Result

SNAPSHOT = Path(__file__).resolve().parents[2] / "examples" / "kubernetes.json"
Run = Callable[..., Result]


def test_a_round_as_json(run: Run, tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    options = ("--shadow", "--snapshot", SNAPSHOT, "--power-w", 12_000, "--journal", journal, "--json")
    report = json.loads(run("kubernetes", *options).stdout)
    assert (report["number"], report["cap_w"], report["power_w"]) == (1, 12_000, 6_250)
    assert report["started"].keys() == {"default/bert", "default/gang:resnet"}
    assert "default/typo" in report["waiting"]
    assert json.loads(run("kubernetes", *options).stdout)["number"] == 2
    assert "2" in run("journal", journal, "--session", "kubernetes").output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ([], "give one of --shadow"),
        (["--shadow", "--apply"], "give one of --shadow"),
        (["--apply", "--snapshot", SNAPSHOT], "--snapshot: a saved snapshot can only be looked at"),
        (["--apply"], "--apply needs --journal FILE"),
        (["--shadow", "--power-w", 0], "--power-w"),
        (["--shadow", "--power-w", 1, "--budget", "cap.json"], "--power-w: cannot be combined with --budget"),
        (["--shadow", "--snapshot", SNAPSHOT, "--budget", "nowhere.json"], "nowhere.json: no such file"),
        (["--shadow", "--options", "nowhere.json"], "nowhere.json: no such file"),
        (["--shadow", "--snapshot", "nowhere.json"], "nowhere.json: no such file"),
        (["--shadow", "--snapshot", SNAPSHOT, "--objective", "money"], "'money'"),
        (["--shadow", "--snapshot", SNAPSHOT, "--config-map", "a/b"], "--config-map cannot be combined"),
        (["--shadow", "--every", "0"], "--every"),
    ],
)
def test_what_makes_no_sense_is_refused(run: Run, options: list[object], told: str) -> None:
    result = run("kubernetes", *options)
    assert (result.exit_code, told in result.output) == (2, True), result.output


def test_where_there_is_no_cluster_it_is_said(tmp_path: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "none"), "HOME": str(tmp_path)}
    done = wattsched("kubernetes", "--shadow", "--once", env=environment)
    assert done.returncode == 4
    assert "no configuration of a cluster" in done.stderr
