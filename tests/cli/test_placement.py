"""A window of placement through every command, from the trace's files to a checked result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .conftest import Run

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,32000,9000,2,T4\nb,96000,9000,8,G2\n"
TASKS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + (
    "1000,10,1,500,\n2000,10,1,1000,\n4000,10,0,0,\n3000,10,2,1000,G2\n1000,10,1,300,T4|G2\n"
)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "nodes.csv", tmp_path / "tasks.csv"]
    for path, text in zip(paths, (NODES, TASKS), strict=True):
        path.write_text(text)
    return paths


@pytest.fixture
def window(run: Run, tmp_path: Path, files: list[Path]) -> Path:
    path = tmp_path / "window.json"
    run("import", "openb", *files, "--window", 4, "--arrived", 0.5, "--seed", 3, "-o", path, code=0)
    return path


def test_a_window_of_the_trace_is_an_instance(run: Run, files: list[Path], window: Path) -> None:
    document = json.loads(window.read_text())
    assert (document["problem"], len(document["nodes"]), len(document["tasks"])) == ("placement", 2, 4)
    used = sum(sum(node.get("used_gpu_milli", [])) for node in document["nodes"])
    assert 4000 <= used <= 7000
    assert [kind["count"] for kind in document["workload"]] == [1] * 5
    options = ("--window", 4, "--arrived", 0.5, "--seed", 3)
    again = run("import", "openb", *files, *options)
    assert json.loads(again.stdout) == document
    empty = json.loads(run("import", "openb", *files, "--window", 4, "--arrived", 0).stdout)
    assert not any("used_gpu_milli" in node for node in empty["nodes"])


def test_every_command_takes_it(run: Run, tmp_path: Path, window: Path) -> None:
    shown = run("show", window)
    assert (shown.exit_code, "placement, 4 tasks on 2 nodes with 10 GPUs" in shown.stdout) == (0, True)
    result = tmp_path / "result.json"
    assert "Added power and fragmentation" in run("solve", window, "-o", result, code=0).stdout
    run("check", window, result, "--require-gap", 0.5, code=0)
    assert "Decision  4 tasks on" in run("show", result).stdout
    run("solve", window, "--warm", result, "--solver", "pwr+fgd", code=0)
    decision = tmp_path / "decision.json"
    decision.write_text(json.dumps(json.loads(result.read_text())["decision"]))
    run("check", window, decision, code=0)
    assert "Decision  4 tasks on" in run("show", decision).stdout
    program = tmp_path / "program.lp"
    run("export", window, "-o", program, code=0)
    assert "Minimize" in program.read_text()
    compared = run(
        "compare", window, "--formulations", "patterns,assignment", "--solvers", "highs,fgd", code=0
    )
    assert "All answers agree" in compared.stdout


@pytest.mark.slow
def test_a_window_with_many_outcomes_has_a_bound(run: Run, tmp_path: Path) -> None:
    window, result = tmp_path / "window.json", tmp_path / "result.json"
    run("generate", "placement", "--jobs", 60, "--gpus", 400, "--seed", 2, "-o", window, code=0)
    run("solve", window, "-o", result, code=0)
    told = json.loads(result.read_text())
    assert told["termination"]["reason"] == "optimal"
    assert told["proven_gap"] <= 1e-2
    assert "valid" in run("check", window, result).stdout


def test_what_was_changed_is_found_out(run: Run, tmp_path: Path, window: Path) -> None:
    result, changed = tmp_path / "result.json", tmp_path / "changed.json"
    run("solve", window, "-o", result, code=0)

    def told(**changes: Any) -> str:
        changed.write_text(json.dumps(json.loads(result.read_text()) | changes))
        answer = run("check", window, changed, code=1)
        return answer.output

    assert "objective: the result claims 1, recomputed" in told(objective=1.0)
    decision = json.loads(result.read_text())["decision"]
    assert "is neither placed nor waits" in told(decision=decision | {"placed": decision["placed"][1:]})


def test_decisions_are_tables(run: Run, window: Path) -> None:
    from wattsched import solve

    result = solve(window)
    frame = result.to_frame()
    assert frame.index.name == "task"
    assert list(frame.index) == [one.task for one in result.decision.placed] + result.decision.waiting
    assert "Added power" in str(result)
    assert "Added power" in result._repr_html_()
