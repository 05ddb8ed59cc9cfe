"""Every script in examples/ runs, against the installed package, and draws what it says."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import wattsched
from wattsched.instances.io import document_text, write_json
from wattsched.library.entries import Entry, entries
from wattsched.library.records import result_of_record, shipped

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
LONG = ("cluster_savings",)
PLAIN = ("own_formulation", "library_checker")
"""They draw nothing."""


def arguments(script: Path, folder: Path) -> list[str]:
    """Files that a script is given."""
    if script.stem != "library_checker":
        return []
    entry = entries()["racks-20-3-energy4"]
    write_json(folder / "round.json", entry.instance())
    write_json(folder / "best.json", result_of_record(shipped()[entry.name]))
    return ["round.json", "best.json"]


@pytest.mark.parametrize(
    "script",
    [pytest.param(s, marks=pytest.mark.slow if s.stem in LONG else (), id=s.stem) for s in SCRIPTS],
)
def test_scripts_run(script: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    asked = [sys.executable, "-W", "error::DeprecationWarning", str(script), *arguments(script, tmp_path)]
    done = subprocess.run(
        asked,
        cwd=tmp_path,
        env={**os.environ, "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    drawn = re.findall(r"Written to (\S+\.png)", done.stdout)
    for name in drawn:
        assert (tmp_path / name).stat().st_size > 10_000
    assert drawn or script.stem in PLAIN


CHECKED = ("total-completion", "progress", "goodput")
"""Objectives that the plain checker knows."""


@pytest.mark.parametrize(
    "entry",
    [
        entry
        for entry in entries().values()
        if entry.objective in CHECKED and not entry.public and entry.card.size.get("jobs", 1000) <= 60
        if entry.problem == "sizing" and "sets" not in entry.card.tags
    ],
    ids=lambda entry: entry.name,
)
def test_the_plain_checker_agrees_with_ours(entry: Entry) -> None:
    check = runpy.run_path(str(ROOT / "examples" / "library_checker.py"))["check"]
    instance, result = entry.instance(), result_of_record(shipped()[entry.name])
    known = wattsched.check(instance, result)
    decision = json.loads(document_text(result))["decision"]
    value, watts, _ = check(json.loads(document_text(instance)), decision)
    assert value == pytest.approx(known.objective, rel=1e-9)
    assert watts == pytest.approx(known.totals["power_w"], rel=1e-9)
    some = next(job for job in decision["jobs"])
    some["nodes"] = {node: gpus[:-1] for node, gpus in some["nodes"].items()}
    with pytest.raises(AssertionError):
        check(json.loads(document_text(instance)), decision)


def test_every_script_is_told_of() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert set(re.findall(r"examples/(\w+\.py)", page)) == {script.name for script in SCRIPTS}
