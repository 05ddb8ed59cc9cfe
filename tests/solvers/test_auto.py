"""`auto` picks by structure, races where threads allow, and merges what the rivals know."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy.sparse import csc_array

from wattsched.formulations.program import Block, Intervals, Line
from wattsched.solvers import auto, highs
from wattsched.solvers.solution import Limits, Solution, Termination


def test_portfolio_follows_size_structure_and_threads(knapsack):
    small, large = knapsack(20, 10), knapsack(600, 10)
    assert auto.portfolio(small, 4) == ["price"]
    assert auto.portfolio(large, 1) == ["price"]
    assert auto.portfolio(large, 2) == ["price", "highs"]
    assert auto.portfolio(large, 4) == ["price", "highs", "cpsat"]
    rows = 500
    many = dataclasses.replace(
        large,
        matrix=csc_array((rows, large.n_columns)),
        row_lower=np.full(rows, -np.inf),
        row_upper=np.ones(rows),
        rows=(Block("row", rows),),
    )
    assert auto.portfolio(many, 1) == ["highs"]
    line = Line("pool", np.array([[0, 8]]), np.empty(0, dtype=np.int64))
    nowhere = np.full(small.n_columns, -1)
    placed = dataclasses.replace(small, intervals=Intervals((line,), nowhere, nowhere))
    assert auto.portfolio(placed, 4) == ["cpsat"]


def test_a_race_closes_the_gap(knapsack):
    program = knapsack(600, 10, pools=2, seed=3)
    raced = auto.solve(program, Limits(gap=1e-4, time_s=60.0, threads=2))
    alone = highs.solve(program, Limits(gap=1e-4, time_s=60.0))
    assert raced.termination.reason == "optimal"
    assert program.violation(raced.x) <= 1e-9
    assert abs(raced.objective - alone.objective) <= 2e-4 * alone.objective
    assert raced.bound <= alone.objective * (1 + 1e-9)


def test_merging_takes_the_best_point_and_the_best_bound(knapsack):
    program = knapsack(5, 4)
    best = highs.solve(program, Limits(gap=0.0))
    waiting = np.zeros(program.n_columns)
    waiting[program.group_start[:-1]] = 1.0
    worse = Solution(
        Termination("feasible", "time"), x=waiting, objective=program.objective(waiting), bound=best.bound
    )
    weak = dataclasses.replace(best, termination=Termination("feasible", "time"), bound=-1e9)
    failed = Solution(Termination("error", detail="broken"))
    merged = auto._merged(program, Limits(gap=1e-9), [failed, worse, weak])
    assert merged.objective == best.objective
    assert merged.bound == pytest.approx(best.bound)
    assert merged.termination.reason == "optimal"
    assert auto._merged(program, Limits(), [failed]).termination.detail == "broken"
