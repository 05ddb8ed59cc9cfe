"""``wattsched explain``: what it prints, writes and refuses, and what `check` makes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wattsched.cli import main


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Folder of a round in which `b` waits for the only GPU, which `a` has, and of its result."""
    cluster = {
        "gpu_types": {"A100": {"idle_power_w": 50}},
        "nodes": [{"name": "n", "gpu_type": "A100", "gpus": 1}],
    }
    table = {"gpus": [1], "pool": ["A100"], "power_w": [300], "rate": [1.0]}
    jobs = [{"name": "a", "options": table, "weight": 4}, {"name": "b", "options": table}]
    jobs.append({"name": "large", "options": {**table, "gpus": [4]}})
    round_ = {"cluster": cluster, "jobs": jobs, "objective": "goodput"}
    (tmp_path / "round.json").write_text(json.dumps(round_))
    assert _ran("solve", tmp_path / "round.json", "-o", tmp_path / "answer.json") == 0
    return tmp_path


def _ran(*words: Any) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_prints_writes_and_is_checked(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = queue / "round.json", queue / "answer.json"
    capsys.readouterr()
    assert _ran("explain", *files, "b", "-o", queue / "why.json") == 0
    printed = capsys.readouterr().out
    assert printed.startswith("b waits for 1 GPU: 0 of 1 free\n  a (weight 4) goes first\n")
    assert "1 more GPU of A100" in printed
    assert "with weight 4 instead of 1" in printed
    assert _ran("check", *files, queue / "why.json") == 0
    assert "nothing less would do" in capsys.readouterr().out
    why = json.loads((queue / "why.json").read_text())
    why["alternatives"][0]["change"]["gpus"] = {}
    (queue / "why.json").write_text(json.dumps(why))
    assert _ran("check", *files, queue / "why.json") == 1
    assert "not valid" in capsys.readouterr().out


def test_prints_json_alone(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert _ran("explain", queue / "round.json", queue / "answer.json", "a", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["state"] == "runs"
    assert document["sentence"] == "a runs: nothing keeps it waiting"


def test_says_why_a_job_never_runs(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert _ran("explain", queue / "round.json", queue / "answer.json", "large") == 0
    assert capsys.readouterr().out.startswith("large cannot run: it needs at least 4 GPUs")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("round.json", "answer.json", "lorge"), "JOB: 'lorge' is not in the round (did you mean 'large'?)"),
        (("round.json", "round.json", "b"), "is neither a result"),
        (("round.json", "answer.json", "b", "--time-limit", "0"), "--time-limit"),
        (("-", "-", "b"), "only one of ROUND and RESULT can be standard input"),
    ],
)
def test_refuses(queue: Path, words: Any, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    files = [queue / word if str(word).endswith(".json") else word for word in words]
    assert _ran("explain", *files) == 2
    assert told in capsys.readouterr().err


def test_a_hostile_name_is_bounded_and_escaped(queue: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "\u202eb" + "x" * 150
    text = (queue / "round.json").read_text().replace('"name": "a"', f'"name": "{name}"')
    (queue / "round.json").write_text(text)
    assert _ran("solve", queue / "round.json", "-o", queue / "answer.json") == 0
    capsys.readouterr()
    assert _ran("explain", queue / "round.json", queue / "answer.json", "b") == 0
    printed = capsys.readouterr().out
    assert "\u202e" not in printed
    assert "x" * 60 not in printed.split("Without")[0]
