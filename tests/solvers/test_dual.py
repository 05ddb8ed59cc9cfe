"""Cutting planes find the prices that the LP finds."""

import dataclasses

import numpy as np
import pytest

from wattsched.solvers import dual
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.solution import Limits

from .programs import knapsack


@pytest.mark.parametrize(("pools", "seed"), [(1, 0), (4, 1), (12, 2)])
def test_bound_is_that_of_the_relaxation(pools, seed):
    program = knapsack(120, 30, pools=pools, seed=seed)  # too many columns to be left to the LP
    prices, bound = dual.dual_prices(program, tolerance=1e-7)
    best = solve_lp(program, Limits()).objective
    assert program.lagrangian_bound(prices) == bound
    assert best * (1 - 1e-6) <= bound <= best * (1 + 1e-9)


def test_out_of_time_is_still_a_bound():
    program = knapsack(300, 30, pools=3)
    prices, bound = dual.dual_prices(program, time_s=0.0)
    assert np.all(prices == 0)
    assert bound == pytest.approx(np.minimum.reduceat(program.cost, program.group_start[:-1]).sum())


@pytest.mark.parametrize("share", [0.5, 0.99, 0.9999])
def test_prices_prove_that_a_row_is_short(share):
    """Every group has to choose one of its columns that take most of the first row."""
    program = knapsack(120, 30, pools=3, seed=1)
    use = program.matrix[[0], : program.n_choices].toarray().ravel()
    most = np.maximum.reduceat(use, program.group_start[:-1])
    upper = program.row_upper.copy()
    lower = program.row_lower.copy()
    lower[0], upper[0] = most.sum() / share, np.inf
    short = dataclasses.replace(program, row_lower=lower, row_upper=upper)
    prices, bound = dual.dual_prices(short)
    assert bound == np.inf
    assert short.lagrangian_bound(prices) > np.maximum.reduceat(short.cost, short.group_start[:-1]).sum()
