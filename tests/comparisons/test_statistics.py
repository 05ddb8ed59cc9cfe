"""Means and profiles against their definitions; plots end up in files."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.comparisons.run import Run, Settings
from wattsched.comparisons.statistics import (
    LEAST_GAP,
    MOST_GAP,
    gaps,
    performance_profile,
    shifted_geometric_mean,
    summaries,
    times,
    virtual_best,
)
from wattsched.comparisons.tables import latex, markdown

TIMES = st.one_of(st.floats(0.001, 1e4), st.just(math.inf))


def run_of(solver: str, instance: str = "p", **known: Any) -> Run:
    settings = {"gap_asked": 1e-4, "time_limit_s": 60.0, "threads": 1, "seed": 0, "version": "1"}
    names = {"key": "k", "content": "c", "formulation": "f", "objective_name": "goodput"}
    known = {"solver_status": known["status"], **known}
    return Run(**names, **settings, **known, instance=instance, solver=solver)


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=20), st.floats(0.1, 10))
def test_mean_is_the_root_of_the_product(values: list[float], shift: float) -> None:
    mean = shifted_geometric_mean(values, shift)
    assert (mean + shift) ** len(values) == pytest.approx(math.prod(v + shift for v in values), rel=1e-6)
    assert min(values) - 1e-6 <= mean <= max(values) * (1 + 1e-9) + 1e-6


def test_mean_of_nothing_is_no_number() -> None:
    assert math.isnan(shifted_geometric_mean([]))


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(TIMES, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    st.floats(1.0, 1e4),
)
def test_profile_counts_the_problems_within_a_factor(table: list[list[float]], tau: float) -> None:
    measures = {f"s{s}": {f"p{p}": t for p, t in enumerate(row)} for s, row in enumerate(table)}
    profile = performance_profile(measures)
    best = [min(column) for column in zip(*table, strict=True)]
    for s, row in enumerate(table):
        within = sum(t / b <= tau for t, b in zip(row, best, strict=True) if math.isfinite(t))
        assert np.count_nonzero(profile[f"s{s}"] <= tau) == within
    solved = [p for p, b in enumerate(best) if math.isfinite(b)]
    assert sum(bool(ratios[0] == 1.0) for ratios in profile.values() if len(ratios)) >= bool(solved)


def test_a_gap_is_none_below_rounding_and_not_beyond_sense() -> None:
    """Next to an objective of 0 every gap is large."""

    def run(solver: str, instance: str, gap: float | None) -> Run:
        known = {"solver_objective": 0.0, "solver_bound": 5.0, "solver_gap": gap}
        return run_of(solver, instance, status="feasible", **known)

    runs = [run("a", "p", 5e9), run("b", "p", 0.5), run("a", "q", LEAST_GAP), run("b", "q", None)]
    assert gaps(runs) == {
        "f a": {"p seed 0": MOST_GAP, "q seed 0": 0.0},
        "f b": {"p seed 0": 0.5, "q seed 0": math.inf},
    }


def test_an_infeasible_instance_is_solved_by_its_proof() -> None:
    runs = [run_of("highs", status="infeasible", solve_s=2.0), run_of("greedy", status="no_solution")]
    proven, without = summaries(runs)
    assert (proven.solved, without.solved) == (1, 0)
    (seconds, _), (gap, open_gap) = (
        [next(iter(of.values())) for of in measures.values()] for measures in (times(runs), gaps(runs))
    )
    assert (seconds, gap, open_gap) == (2.0, 0.0, math.inf)


def test_paired_runs_are_told_apart_from_chance_and_the_best_of_all_is_told() -> None:
    """One that is always twice as slow differs; one that is now quicker and now slower does not."""
    seconds = {
        "quick": lambda k: 1.0 + k,
        "slow": lambda k: 2.0 + 2.0 * k,
        "either": lambda k: (1.0 + k) * (1.3 if k % 2 else 0.85),
    }
    runs = [
        replace(run_of(solver, f"p{k % 6}", status="optimal", solve_s=time_s(k), total_s=9.0), seed=k // 6)
        for solver, time_s in seconds.items()
        for k in range(12)
    ]
    by_solver = {one.solver: one for one in summaries(runs)}
    assert by_solver["quick"].p_of_best is None
    assert by_solver["slow"].p_of_best is not None
    assert by_solver["slow"].p_of_best < 0.05
    assert by_solver["either"].p_of_best is not None
    assert by_solver["either"].p_of_best > 0.1
    best = virtual_best(runs)
    assert best is not None
    assert best.runs == 12
    assert best.solve_s < min(one.solve_s for one in by_solver.values())
    for one in by_solver.values():
        assert one.solve_interval_s is not None
        assert one.solve_interval_s[0] < one.solve_s < one.solve_interval_s[1]
    assert virtual_best(runs[:12]) is None
    assert virtual_best([]) is None


def test_tables_for_papers_escape_what_they_hold() -> None:
    runs = [run_of("a_b|c&d%", name, status="optimal", solve_s=1.0) for name in ("p", "q")]
    (one,) = summaries(runs)
    assert r"f a\_b|c\&d\% & 2 of 2" in latex([one], Settings())
    assert "| f a_b\\|c&d% | 2 of 2 |" in markdown([one], Settings())
