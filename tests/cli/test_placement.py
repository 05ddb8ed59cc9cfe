"""A window of placement through every command, from the trace's files to a checked result."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

NODES = "sn,cpu_milli,memory_mib,gpu,model\na,32000,9000,2,T4\nb,96000,9000,8,G2\n"
TASKS = "cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\n" + (
    "1000,10,1,500,\n2000,10,1,1000,\n4000,10,0,0,\n3000,10,2,1000,G2\n1000,10,1,300,T4|G2\n"
)

Run = Callable[..., Result]


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "nodes.csv", tmp_path / "tasks.csv"]
    for path, text in zip(paths, (NODES, TASKS), strict=True):
        path.write_text(text)
    return paths


@pytest.fixture
def window(run: Run, tmp_path: Path, files: list[Path]) -> Path:
    path = tmp_path / "window.json"
    made = run("import", "openb", *files, "--window", 4, "--arrived", 0.5, "--seed", 3, "-o", path)
    assert made.exit_code == 0, made.output
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
    solved = run("solve", window, "-o", result)
    assert solved.exit_code == 0
    assert "Added power and fragmentation" in solved.stdout
    assert run("check", window, result, "--require-gap", 0.5).exit_code == 0
    assert "Decision  4 tasks on" in run("show", result).stdout
    assert run("solve", window, "--warm", result, "--solver", "pwr+fgd").exit_code == 0
    decision = tmp_path / "decision.json"
    decision.write_text(json.dumps(json.loads(result.read_text())["decision"]))
    assert run("check", window, decision).exit_code == 0
    assert "Decision  4 tasks on" in run("show", decision).stdout
    program = tmp_path / "program.lp"
    assert run("export", window, "-o", program).exit_code == 0
    assert "Minimize" in program.read_text()
    compared = run("compare", window, "--formulations", "patterns,assignment", "--solvers", "highs,fgd")
    assert compared.exit_code == 0, compared.output
    assert "All answers agree" in compared.stdout


def test_a_search_claims_no_bound(run: Run, tmp_path: Path) -> None:
    window = tmp_path / "window.json"
    assert run("generate", "placement", "--jobs", 60, "--gpus", 400, "--seed", 2, "-o", window).exit_code == 0
    result = json.loads(run("solve", window, "--json").stdout)
    assert (result["bound"], result["certificate"], result["termination"]["reason"]) == (
        None,
        None,
        "feasible",
    )
    exported = run("export", window, "-o", tmp_path / "program.mps")
    assert ": the program holds generated columns only" in exported.stderr


def test_what_was_changed_is_found_out(run: Run, tmp_path: Path, window: Path) -> None:
    result, changed = tmp_path / "result.json", tmp_path / "changed.json"
    assert run("solve", window, "-o", result).exit_code == 0

    def told(**changes: Any) -> str:
        changed.write_text(json.dumps(json.loads(result.read_text()) | changes))
        answer = run("check", window, changed)
        assert answer.exit_code == 1
        return answer.output

    assert "objective: the result claims 1, recomputed" in told(objective=1.0)
    decision = json.loads(result.read_text())["decision"]
    assert "is neither placed nor waits" in told(decision=decision | {"placed": decision["placed"][1:]})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--window", 0], "must be at least 1, got 0"),
        (["--window", 2, "--cpu-load", 0.5], "--cpu-load does not go with --window"),
        (["--window", 2, "--placed-by", "nobody"], "there is no policy 'nobody'"),
        (["--window", 2, "--arrived", 3], "must be at most 2, got 3"),
        (["--arrived", 0.5], "--arrived changes nothing without --window"),
    ],
)
def test_options_that_make_no_window_are_told(run: Run, files: list[Path], options: list, told: str) -> None:
    result = run("import", "openb", *files, *options)
    assert result.exit_code == 2
    assert told in result.stderr


def test_a_window_needs_two_files(run: Run, files: list[Path]) -> None:
    result = run("import", "openb", files[0], "--window", 2)
    assert (result.exit_code, "takes two files, nodes and tasks, got 1" in result.stderr) == (2, True)
    assert run("import", "openb", files[1], files[0], "--window", 2).exit_code == 2


def test_decisions_are_tables(run: Run, window: Path) -> None:
    from wattsched import solve

    result = solve(window)
    frame = result.to_frame()
    assert frame.index.name == "task"
    assert list(frame.index) == [one.task for one in result.decision.placed] + result.decision.waiting
    assert "Added power" in str(result)
    assert "Added power" in result._repr_html_()
