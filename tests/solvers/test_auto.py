"""`auto` picks by structure, races where threads allow, and merges what the rivals know."""

import dataclasses

import numpy as np

from wattsched.formulations.program import Intervals, Line
from wattsched.solvers import auto, highs
from wattsched.solvers.solution import Limits

from .programs import knapsack, program_of


def test_portfolio_follows_size_structure_and_threads():
    small, large = knapsack(20, 10), knapsack(600, 10)
    assert auto.portfolio(small, 4) == ["price"]
    assert auto.portfolio(large, 1) == ["price"]
    assert auto.portfolio(large, 2) == ["price", "highs"]
    assert auto.portfolio(large, 4) == ["price", "highs", "cpsat"]
    many = program_of(large.cost, np.zeros((500, large.n_columns)), np.ones(500), large.group_start)
    assert auto.portfolio(many, 1) == ["highs"]
    line = Line("pool", np.array([[0, 8]]), np.empty(0, dtype=np.int64))
    nowhere = np.full(small.n_columns, -1)
    placed = dataclasses.replace(small, intervals=Intervals((line,), nowhere, nowhere))
    assert auto.portfolio(placed, 4) == ["cpsat"]


def test_a_race_closes_the_gap():
    program = knapsack(600, 10, pools=2, seed=3)
    raced = auto.solve(program, Limits(gap=1e-4, time_s=60.0, threads=2))
    alone = highs.solve(program, Limits(gap=1e-4, time_s=60.0))
    assert raced.termination.reason == "optimal"
    assert program.violation(raced.x) <= 1e-9
    assert abs(raced.objective - alone.objective) <= 2e-4 * alone.objective
    assert raced.bound <= alone.objective * (1 + 1e-9)
