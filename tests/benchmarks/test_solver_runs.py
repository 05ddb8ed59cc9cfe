"""Runs of solvers are measured once, wrong answers are found, and ratios are right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csc_array

from benchmarks import peers, seeds, solver_runs, suite
from wattsched.formulations.program import Block, Program
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits


def answer(solver: str, **values: Any) -> dict[str, Any]:
    stated = {"case": "c", "seed": 1, "solver": solver, "gap_asked": 1e-4, "limit_s": 10.0, "columns": 2,
              "rows": 1, "cpu_s": 1.0, "wall_s": 1.0, "ended": "optimal", "objective": 100.0, "bound": 99.999,
              "sense": "min", "faults": []}  # fmt: skip
    return {**stated, **values}


def test_all_runs_are_measured_once_and_sound(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    runs = solver_runs.run_all(suite.QUICK, [1], 20.0, str(file))
    assert {run["solver"] for run in runs} == {"price", "greedy", "highs", "pop:4", "lp"}
    assert solver_runs.faults_of(runs) == []
    assert all(run["cpu_s"] > 0 and run["peak_mib"] > 10 for run in runs)
    assert solver_runs.run_all(suite.QUICK, [1], 20.0, str(file)) == runs
    assert [json.loads(line) for line in file.read_text().splitlines()] == runs
    assert suite.content(runs, 20.0).count("\n| `") >= len(runs)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_wrong_answers_are_found(sign: float) -> None:
    right = answer("highs")
    runs = [right, answer("price"), answer("auto", ended="feasible", bound=None)]
    wrong = {
        "above a point": answer("price", objective=101.0, bound=100.995),
        "above the gap": answer("price", bound=99.0),
        "called infeasible": answer("price", ended="infeasible", objective=None, bound=None),
        "by itself": answer("price", ended="error", objective=None, bound=None),
        "violates": answer("price", faults=["the point violates the program by 1"]),
    }
    for run in (*runs, *wrong.values()):
        signed = {name: run[name] and sign * run[name] for name in ("objective", "bound")}
        run.update(signed, sense="min" if sign > 0 else "max")
    assert solver_runs.faults_of(runs) == []
    for words, run in wrong.items():
        (found,) = solver_runs.faults_of([right, run])
        assert words in found
        assert "c, seed 1, price at 0.0001" in found


def test_a_run_that_was_cut_counts_with_the_limit() -> None:
    """HiGHS and `price` at three gaps, two seeds: ratios by hand."""
    runs = []
    for seed, (highs_s, ours_s) in enumerate([(4.0, 0.5), (None, 2.0)], start=1):
        cut = {"ended": "feasible", "cpu_s": 7.0} if highs_s is None else {"cpu_s": highs_s}
        runs += [answer(solver, seed=seed, **cut) for solver in ("highs", "cpsat", "auto")]
        seconds = dict(zip(seeds.GAPS, (0.5 * ours_s, ours_s, 2 * ours_s), strict=True))
        runs += [answer("price", seed=seed, gap_asked=gap, cpu_s=s) for gap, s in seconds.items()]
    text = seeds.content(runs)
    # Ratios 8 and 5; HiGHS had 4 s, and the limit of 10 s.
    assert f"| c | 0.0001 | 1.000 | 0 | {np.sqrt(40):.3f} | 1 | {np.sqrt(40):.3g} | 5 | 2 |" in text
    assert f"| c | 1e-06 | 2.000 | 0 | {np.sqrt(40):.3f} | 1 | {np.sqrt(10):.3g} | 2.5 | 2 |" in text
    assert "| c | 0.500 | 1.000 | 2.000 | 0.50 | 1 |" in text


def test_strongly_correlated_knapsacks_have_a_known_optimum() -> None:
    """Value is use plus a constant; the best by what it uses is found by dynamic programming."""
    program = seeds.correlated(3, jobs=50, rows=1)
    use, cost = program.matrix.toarray()[0, 1::2], program.cost[1::2]
    assert np.array_equal(-cost, use + 100)
    assert program.row_upper[0] == use.sum() // 2
    best = get("cpsat")(program, Limits(gap=0.0, time_s=20.0))
    value = np.full(int(program.row_upper[0]) + 1, -np.inf)
    value[0] = 0.0
    for weight in use.astype(int):
        value[weight:] = np.maximum(value[weight:], value[:-weight] + weight + 100)
    assert best.objective == -value.max()


def test_any_two_jobs_may_share_a_gpu() -> None:
    program = seeds.pairs(1, jobs=8, nodes=1)
    assert program.n_groups == 8
    assert sum("set" in name for name in program.column_names()) == 2 * 28


@pytest.mark.parametrize("family", ["uniform", "sia-like", "hetero"])
@pytest.mark.parametrize("name", ["linopy", "scip"])
def test_peers_find_the_optimum(name: str, family: str) -> None:
    """Also with an offset that takes most of the cost away, and so makes a gap as much larger."""
    if why := peers.missing(name):
        pytest.skip(why)
    program = solver_runs.generated(family, 8)(1)()
    best = get("highs")(program, Limits(gap=0.0))
    found = peers.solver_of(name)(program, Limits(gap=1e-6, time_s=30.0))
    assert found.objective == pytest.approx(best.objective, rel=1e-5)
    assert found.bound <= best.objective + 1e-5 * abs(best.objective)
    assert program.violation(found.x) <= 1e-6
    if name == "scip" and family == "uniform":
        shifted = replace(program, offset=program.offset - 0.999 * best.objective)
        found = peers.solver_of(name)(shifted, Limits(gap=1e-4, time_s=30.0))
        assert found.termination.reason == "optimal"
        assert found.objective == pytest.approx(0.001 * best.objective, rel=1.1e-4)


def test_partition_gives_every_part_its_share() -> None:
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
        found = peers.pop(k)(program, Limits())
        assert found.objective == pytest.approx(value)
        assert program.violation(found.x) == 0.0
        assert found.bound == -np.inf
