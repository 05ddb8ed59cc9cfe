"""Features of programs against scipy's LP, and on programs of which they are known."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from tests.solvers.programs import knapsack
from tests.strategies.effort import examples
from wattsched.cli import main
from wattsched.comparisons.compare import compare
from wattsched.comparisons.features import relaxation_features
from wattsched.comparisons.run import Settings
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.instances.generators import generate
from wattsched.instances.io import write_json


def by_scipy(program: Program) -> tuple[float, int]:
    """Optimum of the LP relaxation, and rows at their limits there; rows have upper limits alone."""
    groups = np.repeat(np.arange(program.n_groups), np.diff(program.group_start))
    one_each = (groups == np.arange(program.n_groups)[:, None]).astype(float)
    found = linprog(
        program.cost, program.matrix.toarray(), program.row_upper, one_each, np.ones(program.n_groups)
    )
    return found.fun + program.offset, int(np.sum(found.slack <= 1e-6 * program.row_upper))


@settings(max_examples=examples(40))
@given(st.integers(2, 12), st.integers(2, 5), st.integers(0, 1000))
def test_of_a_relaxation_with_one_optimum_they_are_those_of_any_other_solver(jobs, options, seed):
    program = knapsack(jobs, options, seed=seed)
    found = relaxation_features(program, -1.0, Timer())
    optimum, binding = by_scipy(program)
    assert -found["lp_objective"] == pytest.approx(optimum, rel=1e-6)
    if found["tied"] == 0.0:
        assert found["binding_rows"] == binding


def test_degenerate_and_tied_relaxations_are_told():
    """Two groups of two options, of which the dear ones need none of the one row."""
    base = knapsack(2, 2)
    matrix = np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]])

    def features(cost: list[float], limit: float) -> dict[str, float]:
        program = Program(**vars(base) | {"cost": np.array(cost), "matrix": type(base.matrix)(matrix)})
        upper = np.array([limit, limit, 1.0])
        return relaxation_features(Program(**vars(program) | {"row_upper": upper}), 1.0, Timer())

    unique = features([1.0, 3.0, 1.0, 4.0], 1.5)
    assert (unique["lp_objective"], unique["binding_rows"], unique["tied"]) == (3.0, 2, 0.0)
    assert unique["degenerate"] == pytest.approx(1 / 5)  # of two equal rows one is basic
    loose = features([1.0, 3.0, 1.0, 4.0], 2.5)
    assert (loose["lp_objective"], loose["binding_rows"], loose["degenerate"], loose["tied"]) == (
        2.0,
        0,
        0.0,
        0.0,
    )
    assert features([1.0, 1.0, 1.0, 4.0], 2.5)["tied"] == 0.5  # one of the two columns that are not basic


def test_compare_tells_them_once_for_every_instance_and_formulation(tmp_path: Path):
    instances = [generate("uniform", jobs=5, seed=1), generate("sia-like", jobs=3, seed=2)]
    options = {"solvers": ["highs", "greedy"], "settings": Settings(time_limit_s=None), "features": True}
    comparison = compare(instances, formulations=["mckp", "assignment"], **options)
    assert len(comparison.features) == 4
    for one in comparison.features:
        run = next(
            r for r in comparison.runs if (r.instance, r.formulation) == (one.instance, one.formulation)
        )
        assert (one.columns, one.rows, one.nonzeros) == (run.columns, run.rows, run.nonzeros)
        sign = -1.0 if run.sense == "max" else 1.0
        assert sign * one.lp_objective <= sign * run.objective + 1e-9 * abs(run.objective)
        assert one.lp_gap == pytest.approx(abs(run.objective - one.lp_objective) / abs(run.objective))
        assert one.binding_rows <= one.rows
        assert one.groups == (5 if run.sense == "min" else 3)
    assert compare(instances, **options | {"features": False}).features == []


def test_features_are_a_table_in_the_folder(tmp_path: Path):
    file, own = tmp_path / "first.json", tmp_path / "own.py"
    write_json(file, generate("uniform", jobs=4, seed=1))
    own.write_text("def broken(round):\n    raise ValueError('no')\n")
    command = ["compare", str(file), "--solvers", "greedy", "--time-limit", "inf", "--features"]
    assert "--features needs -o" in CliRunner().invoke(main, command).output
    command += ["--formulations", f"mckp,{own}:broken", "-o", str(tmp_path / "out")]
    assert "features.csv" in CliRunner().invoke(main, command).output.replace("\n", "")
    good, bad = csv.DictReader((tmp_path / "out" / "features.csv").open())
    assert int(good["columns"]) > 0
    assert "no" in bad["detail"]
    assert bad["lp_objective"] == ""
