"""The benchmark over seeds runs, keeps its figures, and finds wrong answers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


def run(file: Path) -> tuple[str, list[dict[str, Any]]]:
    command = [sys.executable, str(BENCHMARKS / "seeds.py"), "--quick", "--seeds", "1", "2", "--limit", "2"]
    done = subprocess.run(
        [*command, "--runs", str(file)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, [json.loads(line) for line in file.read_text().splitlines()]


def test_all_runs_are_measured_once_and_tables_have_every_case(tmp_path: Path) -> None:
    printed, runs = run(tmp_path / "runs.jsonl")
    cases = {run["case"] for run in runs}
    assert {run["solver"] for run in runs} >= {"price", "highs", "cpsat", "auto"}
    assert len(runs) == len({(r["case"], r["seed"], r["solver"], r["gap_asked"]) for r in runs})
    assert all(run["cpu_s"] > 0 and run["wall_s"] > 0 for run in runs)
    for part in printed.split("## ")[1:]:
        assert cases <= {line.split(" | ")[0].removeprefix("| ") for line in part.splitlines()}
    again, kept = run(tmp_path / "runs.jsonl")
    assert kept == runs
    assert again.split("Seeds ")[0] == printed.split("Seeds ")[0]


@pytest.fixture(scope="module")
def script(load_script: Callable[[str], ModuleType]) -> ModuleType:
    return load_script("seeds")


def answer(solver: str, **values: Any) -> dict[str, Any]:
    stated = {"case": "c", "seed": 1, "solver": solver, "gap_asked": 1e-4, "limit_s": 10.0, "columns": 2,
              "rows": 1, "cpu_s": 1.0, "wall_s": 1.0, "ended": "optimal", "objective": 100.0, "bound": 99.999,
              "faults": []}  # fmt: skip
    return {**stated, **values}


def test_wrong_answers_are_found(script: ModuleType) -> None:
    right = answer("highs")
    assert script.faults([right, answer("price"), answer("auto", ended="feasible", bound=None)]) == []
    wrong = {
        "above a point": answer("price", objective=101.0, bound=100.995),
        "above the gap": answer("price", bound=99.0),
        "called infeasible": answer("price", ended="infeasible", objective=None, bound=None),
        "by itself": answer("price", ended="error", objective=None, bound=None),
        "violates": answer("price", faults=["the point violates the program by 1"]),
    }
    for words, run in wrong.items():
        (found,) = script.faults([right, run])
        assert words in found
        assert "c, seed 1, price at 0.0001" in found


def test_a_run_that_was_cut_counts_with_the_limit(
    load_script: Callable[[str], ModuleType], script: ModuleType
) -> None:
    """HiGHS and `price` at three gaps, two seeds: ratios by hand."""
    page = load_script("seed_page")
    runs = []
    for seed, (highs_s, ours_s) in enumerate([(4.0, 0.5), (None, 2.0)], start=1):
        cut = {"ended": "feasible", "cpu_s": 7.0} if highs_s is None else {"cpu_s": highs_s}
        runs += [answer(solver, seed=seed, **cut) for solver in ("highs", "cpsat", "auto")]
        seconds = dict(zip(script.GAPS, (0.5 * ours_s, ours_s, 2 * ours_s), strict=True))
        runs += [answer("price", seed=seed, gap_asked=gap, cpu_s=s) for gap, s in seconds.items()]
    text = page.content(runs, script.GAPS)
    # Ratios 8 and 5; HiGHS had 4 s, and the limit of 10 s.
    assert f"| c | 0.0001 | 1.000 | 0 | {np.sqrt(40):.3f} | 1 | {np.sqrt(40):.3g} | 5 | 2 |" in text
    assert f"| c | 1e-06 | 2.000 | 0 | {np.sqrt(40):.3f} | 1 | {np.sqrt(10):.3g} | 2.5 | 2 |" in text
    assert "| c | 0.500 | 1.000 | 2.000 | 0.50 | 1 |" in text


def test_strongly_correlated_knapsacks_have_a_known_optimum(load_script: Callable[[str], ModuleType]) -> None:
    """Value is use plus a constant: with room for all, everybody runs; with none, nobody does."""
    program = load_script("seed_cases").correlated(50, rows=1)(3)
    use, cost = program.matrix.toarray()[0, 1::2], program.cost[1::2]
    assert np.array_equal(-cost, use + 100)
    assert program.row_upper[0] == use.sum() // 2
    best = get("cpsat")(program, Limits(gap=0.0, time_s=20.0))
    value = np.full(int(program.row_upper[0]) + 1, -np.inf)  # the best by what it uses
    value[0] = 0.0
    for weight in use.astype(int):
        value[weight:] = np.maximum(value[weight:], value[:-weight] + weight + 100)
    assert best.objective == -value.max()


def test_any_two_jobs_may_share_a_gpu(load_script: Callable[[str], ModuleType]) -> None:
    program = load_script("seed_cases").pairs(8, nodes=1)(1)
    assert program.n_groups == 8
    assert sum("set" in name for name in program.column_names()) == 2 * 28
