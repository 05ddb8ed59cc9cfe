"""How the tests of the command line run it, and a small instance that they can spoil."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from wattsched.cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
DEMO = EXAMPLES / "demo.json"
Run = Callable[..., Result]

COMMAND = (sys.executable, "-P", "-m", "wattsched")
"""The command in a process of its own; without -P, Python would take a folder's modules for its own."""

JOBS = (
    "job,arrival_s,work,requested_gpus,model,table,max_gpus\n"
    "a,0,400000,2,resnet50,,8\nb,100,90,1,,mine,\nc,200,300000,4,bert,,\n"
)
TABLES = {"mine": {"gpus": [1, 2], "pool": ["A100", "A100"], "rate": [1.0, 1.5], "power_w": [200.0, 380.0]}}
"""Of a small replay."""


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command in this process, which ends with this code; nothing may look like a traceback."""

    def invoke(*arguments: object, stdin: str | bytes | None = None, code: int | None = None) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in arguments], input=stdin)
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)
        assert code in (None, result.exit_code), result.output
        return result

    return invoke


def wattsched(
    *arguments: object, script: str | None = None, environment: Mapping[str, str] = {}, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a command, or a script, in a process of its own, with these variables besides the usual ones."""
    command = [*(COMMAND if script is None else (sys.executable, "-P", "-c", script)), *map(str, arguments)]
    options = {"env": {**os.environ, **environment}} | options
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **options)


@pytest.fixture
def tiny() -> dict[str, Any]:
    """Two jobs on four GPUs of 10 W when idle; the best decision takes 100 + 200 s and 4 * 50 W."""
    options = [
        {"gpus": 1, "pool": "G", "power_w": 60.0, "completion_s": 300.0},
        {"gpus": 2, "pool": "G", "power_w": 100.0, "completion_s": 100.0},
    ]
    return {
        "format": "wattsched-instance/1",
        "objective": "total-completion",
        "name": "tiny",
        "cluster": {
            "gpu_types": {"G": {"idle_power_w": 10.0, "max_power_w": 60.0}},
            "nodes": [{"name": "n1", "gpu_type": "G", "gpus": 4}],
        },
        "jobs": [
            {"name": "a", "options": options},
            {"name": "b", "options": options, "remaining_work": 2.0},
        ],
    }


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a document, or text, to a file and give its path."""

    def written(content: object, name: str = "instance.json") -> Path:
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    return written


@pytest.fixture
def instance(tiny: dict[str, Any], write: Callable[..., Path]) -> Path:
    """File of the small instance."""
    return write(tiny)


@pytest.fixture
def answer(run: Run, instance: Path) -> dict[str, Any]:
    """Result of the small instance, to be spoilt."""
    return dict(json.loads(run("solve", instance, "--json", code=0).stdout))


@pytest.fixture
def replay(run: Run, tmp_path: Path) -> Run:
    """Replay a small file, which can be replaced."""

    def replayed(
        *options: object, trace: str = JOBS, tables: Any = TABLES, code: int | None = None
    ) -> Result:
        (tmp_path / "trace.csv").write_text(trace)
        (tmp_path / "tables.json").write_text(json.dumps(tables))
        own = () if "--format" in options else ("--tables", tmp_path / "tables.json")
        return run("replay", tmp_path / "trace.csv", *own, *options, code=code)

    return replayed


def refused(result: Result, fault: str = "", lines: int = 1) -> None:
    """Hold that a command has refused its input with this, in so many lines."""
    assert result.exit_code == 2, result.output
    assert fault in result.stderr
    assert len(result.stderr.splitlines()) == lines
    assert result.stdout == ""
