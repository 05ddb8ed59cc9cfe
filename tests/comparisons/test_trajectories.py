"""Trajectories of runs, and primal integrals and bands of gaps against their definitions."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.comparisons.compare import Comparison, compare, write_report
from wattsched.comparisons.run import Run, Settings
from wattsched.comparisons.trajectories import gap_bands, primal_integral, with_primal_integrals
from wattsched.instances.generators import generate

from .test_statistics import run_of

VALUES = st.none() | st.floats(-1e3, 1e3).map(lambda value: round(value, 3))
MOMENTS = st.lists(st.tuples(st.integers(0, 50), VALUES, VALUES), max_size=6).map(
    lambda told: tuple((second / 10, *known) for second, *known in sorted(told, key=lambda one: one[0]))
)


def at(trajectory, time_s):
    """Objective and bound that a trajectory knows at a time."""
    return next(((z, b) for t, z, b in reversed(trajectory) if t <= time_s), (None, None))


@given(MOMENTS, st.floats(-1e3, 1e3), st.integers(0, 60))
def test_primal_integral_is_the_area_below_the_gap(trajectory, best, tenths):
    area = 0.0
    for tenth in range(tenths):
        z, _ = at(trajectory, tenth / 10)
        if z is None or z * best < 0:
            area += 0.1
        elif max(abs(z), abs(best)) > 0:
            area += 0.1 * abs(z - best) / max(abs(z), abs(best))
    assert primal_integral(trajectory, best, tenths / 10) == pytest.approx(area, abs=1e-9)


@given(st.lists(MOMENTS, min_size=1, max_size=12))
def test_bands_hold_the_runs_that_they_say(trajectories):
    runs = [run_of("s", f"p{i}", status="feasible", trajectory=t) for i, t in enumerate(trajectories)]
    band = gap_bands(runs)["f s"]
    assert band.runs == len(runs)
    for time_s, *quantiles in zip(*band[:4], strict=True):
        known = [at(trajectory, time_s) for trajectory in trajectories]
        gaps = [abs(z - b) / max(1e-9, abs(z)) if None not in (z, b) else math.inf for z, b in known]
        for share, quantile in zip((0.1, 0.5, 0.9), quantiles, strict=True):
            assert sum(gap <= quantile for gap in gaps) >= share * len(gaps) - 1e-9
            assert sum(gap < quantile for gap in gaps) < share * len(gaps) + 1e-9


def test_integrals_are_relative_to_the_best_of_all_and_end_at_the_limit_or_the_longest_run():
    known = {"status": "optimal", "checked": True, "sense": "max"}
    good = run_of("a", objective=10.0, trajectory=((1.0, 10.0, None),), solve_s=1.0, **known)
    poor = run_of("b", objective=5.0, trajectory=((2.0, 5.0, None),), solve_s=4.0, **known)
    skipped = run_of("c", status="skipped")
    wrong = run_of("d", status="feasible", faults=("no",), trajectory=((0.0, 10.0, None),), solve_s=0.1)
    expected = {60.0: [1.0, 2.0 + 29.0, None, 60.0], None: [1.0, 2.0 + 1.0, None, 4.0]}
    for limit_s, integrals in expected.items():
        runs = [Run(**(vars(run) | {"time_limit_s": limit_s})) for run in (good, poor, skipped, wrong)]
        assert [run.primal_integral_s for run in with_primal_integrals(runs)] == integrals
    assert with_primal_integrals([skipped])[0].primal_integral_s is None


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    instances = [generate("hetero", jobs=20, racks=2, seed=1), generate("sia-like", jobs=8, seed=2)]
    solvers = ["highs", "price", "cpsat", "greedy", "pyomo:highs"]
    return compare(instances, solvers=solvers, settings=Settings(time_limit_s=None, gap=0.0))


def test_trajectories_get_better_and_end_with_the_answer(comparison):
    for run in comparison.runs:
        sign = -1.0 if run.sense == "max" else 1.0
        times_s, objectives, bounds = zip(*run.trajectory, strict=True)
        assert list(times_s) == sorted(times_s)
        assert times_s[-1] <= run.build_s + run.solve_s + 1e-9
        for values, direction in ((objectives, -sign), (bounds, sign)):
            seen = [value for value in values if value is not None]
            assert all(direction * (b - a) >= -1e-6 * abs(a) for a, b in itertools.pairwise(seen))
        assert run.trajectory[-1][1:] == (run.solver_objective, run.solver_bound)
        assert run.cpu_s >= 0.0
        assert run.primal_integral_s >= 0.0
        if run.root_bound is not None:
            assert sign * (run.root_bound - run.solver_objective) <= 1e-9 * abs(run.solver_objective)
    by_solver = {run.solver: run for run in comparison.runs if run.sense == "min"}
    assert by_solver["highs"].root_bound is not None
    assert by_solver["highs"].nodes >= 0
    assert by_solver["pyomo:highs"].nodes is None
    assert comparison.summaries[0].primal_integral_s >= 0.0


@pytest.mark.parametrize("form", ["parquet", "csv"])
def test_trajectories_are_a_table_and_a_file(comparison, tmp_path: Path, monkeypatch, form):
    if form == "csv":
        monkeypatch.setattr("wattsched.comparisons.compare.missing", lambda extra: "pyarrow")
    else:
        pytest.importorskip("pyarrow")
    assert f"trajectories.{form}" in write_report(comparison, tmp_path)
    read = {"parquet": pd.read_parquet, "csv": pd.read_csv}[form]
    table = read(tmp_path / f"trajectories.{form}")
    assert len(table) == sum(len(run.trajectory) for run in comparison.runs)
    last = table.groupby(["instance", "formulation", "solver", "seed"]).last()
    for run in comparison.runs:
        row = last.loc[run.instance, run.formulation, run.solver, run.seed]
        told = [run.solver_objective, run.solver_bound]
        assert row[["objective", "bound"]].tolist() == pytest.approx(
            [np.nan if value is None else value for value in told], nan_ok=True
        )
    entry = json.loads((tmp_path / "runs.json").read_text())["runs"][0]
    assert Run.from_json(json.dumps(entry).encode()) == comparison.runs[0]
