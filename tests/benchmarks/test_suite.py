"""The benchmark suite runs, and its figures are sound: every decision is above every bound."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from wattsched.formulations.program import Block, Program
from wattsched.formulations.sizing.jobs import jobs_of
from wattsched.formulations.sizing.mckp import written_out
from wattsched.instances.generators import generate
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("suite")
    command = [sys.executable, str(BENCHMARKS / "suite.py"), "--quick", "--limit", "20"]
    done = subprocess.run(
        [*command, "--folder", str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return {**found, "printed": done.stdout, "messages": done.stderr, "plot": folder / "suite.svg"}


def test_every_decision_is_above_every_bound(results: dict[str, Any]) -> None:
    for case in results["cases"]:
        sign = -1.0 if case["sense"] == "max" else 1.0
        objectives = [sign * run["objective"] for run in case["runs"] if run["objective"] is not None]
        bounds = [sign * run["bound"] for run in case["runs"] if run["bound"] is not None]
        assert max(bounds) <= min(objectives) + 1e-6 * abs(min(objectives))
        for run in case["runs"]:
            if run["solver"] in ("price", "highs"):
                assert run["gap"] <= run["gap_asked"]
                assert run["solve_s"] > 0
                assert run["peak_mib"] >= run["loaded_mib"] > 10


def test_tables_have_every_run_and_unknown_solvers_are_left_out(results: dict[str, Any]) -> None:
    assert "nonsense: left out, unknown solver 'nonsense'" in results["messages"]
    for case in results["cases"]:
        _, _, part = results["printed"].partition(f"## {case['name']}\n")
        assert part.split("##")[0].count("\n| `") == len(case["runs"])
    assert results["plot"].stat().st_size > 1000


def test_whole_solves_and_the_whole_command_are_timed(results: dict[str, Any]) -> None:
    small = {run["solver"]: run for run in results["small"]}
    assert 0 < small["price"]["least_s"] <= small["price"]["median_s"]
    command = results["command"]
    assert command["wall_s"] >= command["time_s"]["total"]
    assert command["peak_mib"] > 50
    assert command["gap"] <= 1e-5


def test_workers_of_a_cluster_measure_the_same(results: dict[str, Any], tmp_path: Path) -> None:
    options = [
        "--quick",
        "--case",
        "sia-like",
        "--limit",
        "20",
        "--dask",
        "local:2",
        "--folder",
        str(tmp_path),
    ]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "suite.py"), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    assert list(found) == [name for name in results if name not in ("printed", "messages", "plot")]
    [case] = found["cases"]
    [known] = [one for one in results["cases"] if one["name"] == case["name"]]
    for run, same in zip(case["runs"], known["runs"], strict=True):
        assert (run["solver"], run["objective"]) == (same["solver"], same["objective"])


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return pytest.importorskip("peers")


def program_of(family: str) -> Program:
    instance = generate(family, jobs=8, seed=1)
    return written_out(jobs_of(instance), instance.objective).listed


@pytest.mark.parametrize("family", ["uniform", "sia-like", "hetero"])
@pytest.mark.parametrize("name", ["linopy", "mathopt", "scip"])
def test_peers_find_the_optimum(peers: Any, name: str, family: str) -> None:
    if why := peers.missing(name):
        pytest.skip(why)
    program = program_of(family)
    best = get("highs")(program, Limits(gap=0.0))
    answer, seconds = peers.timed(name, program, Limits(gap=1e-6, time_s=30.0))
    assert answer.objective == pytest.approx(best.objective, rel=1e-5)
    assert answer.bound <= best.objective + 1e-5 * abs(best.objective)
    assert program.violation(answer.x) <= 1e-6
    assert seconds > 0


@pytest.mark.parametrize("name", ["mathopt", "scip"])
def test_peers_count_the_gap_with_the_offset(peers: Any, name: str) -> None:
    """With an offset that takes all but a thousandth of the cost away, a gap is a thousand times as large."""
    if why := peers.missing(name):
        pytest.skip(why)
    program = program_of("uniform")
    best = get("highs")(program, Limits(gap=0.0)).objective
    shifted = replace(program, offset=program.offset - 0.999 * best)
    answer, _ = peers.timed(name, shifted, Limits(gap=1e-4, time_s=30.0))
    assert answer.termination.reason == "optimal"
    assert answer.objective == pytest.approx(0.001 * best, rel=1.1e-4)


def test_partition_gives_every_part_its_share(peers: Any) -> None:
    """Eight equal groups with room for one more expensive choice in every two: the merged value is known."""
    groups, n = 8, 16
    program = Program(
        cost=np.tile([0.0, -1.0], groups),
        matrix=csc_array(np.tile([[0.0, 1.0]], groups)),
        row_lower=np.array([-np.inf]),
        row_upper=np.array([4.0]),
        lower=np.zeros(n),
        upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        group_start=np.arange(0, n + 1, 2),
        rows=(Block("room", 1),),
        columns=(Block("choice", n),),
    )
    for k, value in ((1, -4.0), (4, -4.0), (8, 0.0)):
        answer = peers.pop(k)(program, Limits())
        assert answer.objective == pytest.approx(value)
        assert program.violation(answer.x) == 0.0
        assert answer.bound == -np.inf
