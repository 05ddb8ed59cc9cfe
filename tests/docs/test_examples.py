"""Every script in examples/ runs, against the installed package, and draws what it says."""

from __future__ import annotations

import copy
import json
import os
import random
import re
import runpy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import wattsched
from wattsched.instances.io import document_text, write_json
from wattsched.instances.sizing.decision import Decision
from wattsched.library.entries import Entry, entries
from wattsched.library.recipes import Imported
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


@pytest.mark.slow
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

Plain = dict[str, Any]


def _one_gpu_less(decision: Plain, draw: random.Random) -> None:
    one = max(decision["jobs"], key=lambda job: job["gpus"])
    node = draw.choice(list(one["nodes"]))
    one["nodes"][node].pop()
    one["nodes"] = {name: gpus for name, gpus in one["nodes"].items() if gpus}
    one["gpus"] -= draw.randrange(2) * (one["gpus"] > 1)


def _on_another_gpu(decision: Plain, draw: random.Random) -> None:
    one = draw.choice(decision["jobs"])
    node = draw.choice(list(one["nodes"]))
    one["nodes"][node][0] = draw.randrange(9)


def _at_another_clock(decision: Plain, draw: random.Random) -> None:
    one = draw.choice(decision["jobs"])
    for setting in ("frequency_mhz", "power_limit_w", "batch_size"):
        if one.get(setting) is not None:
            others = {job[setting] for job in decision["jobs"] if job.get(setting) is not None}
            one[setting] = draw.choice([*sorted(others), 7])


CHANGES: dict[str, Callable[[Plain, random.Random], object]] = {
    "stops": lambda d, draw: d["waiting"].append(d["jobs"].pop(draw.randrange(len(d["jobs"])))["job"]),
    "twice": lambda d, draw: d["jobs"].append(copy.deepcopy(draw.choice(d["jobs"]))),
    "runs and waits": lambda d, draw: d["waiting"].append(draw.choice(d["jobs"])["job"]),
    "lost": lambda d, draw: d["jobs"].remove(draw.choice(d["jobs"])),
    "in no pool": lambda d, draw: draw.choice(d["jobs"]).update(pool="elsewhere"),
    "in the pool of another": lambda d, draw: draw.choice(d["jobs"]).update(
        pool=draw.choice(d["jobs"])["pool"]
    ),
    "one GPU less": _one_gpu_less,
    "on another GPU": _on_another_gpu,
    "at another clock": _at_another_clock,
}
"""What may be wrong with a decision, or other than it was."""


@pytest.mark.slow
@pytest.mark.parametrize(
    "entry",
    [
        entry
        for entry in entries().values()
        if entry.objective in CHECKED
        and not isinstance(entry.recipe, Imported)
        and entry.card.size.get("jobs", 1000) <= 60
        if entry.problem == "sizing" and "sets" not in entry.card.tags
    ],
    ids=lambda entry: entry.name,
)
def test_the_plain_checker_agrees_with_ours(entry: Entry) -> None:
    check = runpy.run_path(str(ROOT / "examples" / "library_checker.py"))["check"]
    instance, result = entry.instance(), result_of_record(shipped()[entry.name])
    plain, known = json.loads(document_text(instance)), wattsched.check(instance, result)
    decision = json.loads(document_text(result))["decision"]
    value, watts, _ = check(plain, decision)
    assert value == pytest.approx(known.objective, rel=1e-9)
    assert watts == pytest.approx(known.totals["power_w"], rel=1e-9)
    draw = random.Random(entry.name)
    accepted = []
    for change in CHANGES.values():
        other = copy.deepcopy(decision)
        change(other, draw)
        ours = wattsched.check(instance, Decision.model_validate(other))
        if any("block" in fault for fault in ours.faults):
            continue  # that blocks are aligned is not looked at
        accepted.append(not ours.faults)
        if ours.faults:
            with pytest.raises(AssertionError):
                check(plain, other)
        else:
            assert check(plain, other)[0] == pytest.approx(ours.objective, rel=1e-9)
    assert accepted.count(False) > len(CHANGES) // 2


def test_every_script_is_told_of() -> None:
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert set(re.findall(r"examples/(\w+\.py)", page)) == {script.name for script in SCRIPTS}
