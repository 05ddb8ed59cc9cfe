"""Bottleneck objectives: what prices prove holds, and the search between thresholds ends at the optimum."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.formulations.timer import Timer
from wattsched.solvers import greedy, price, thresholds
from wattsched.solvers.bottleneck import bottleneck_of, bottleneck_values
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.solution import Limits, Start, proven_bound, relative_gap

from .programs import bottlenecks, knapsack, program_of, truth, worst_of

MANY = settings(max_examples=examples(100), deadline=None)


@MANY
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_whatever_the_prices_are_no_point_beats_their_bound(data, seed):
    program = data.draw(bottlenecks)
    rng = np.random.default_rng(seed)
    prices = rng.normal(size=program.n_rows) * rng.integers(0, 2, program.n_rows)
    prices = np.where((prices > 0) & ~np.isfinite(program.row_lower), 0.0, prices)
    prices = np.where((prices < 0) & ~np.isfinite(program.row_upper), 0.0, prices)
    bottleneck, best = bottleneck_of(program), truth(program)
    bound = bottleneck.surrogate_bound(prices)
    assert bound <= np.inf if best is None else bound <= best + 1e-9 * max(1.0, abs(best))
    # It dominates the Lagrangian bound of the same prices, and knows no scale.
    assert bound >= program.lagrangian_bound(prices) - 1e-6 * max(1.0, abs(program.lagrangian_bound(prices)))
    assert bottleneck.surrogate_bound(bottleneck.scaled(prices)) == bound


@MANY
@given(program=bottlenecks)
def test_prices_prove_what_linear_relaxations_can(program):
    best = truth(program)
    prices, bound = dual_prices(program)
    assert bound == proven_bound(program, prices)
    assert best is None or bound <= best + 1e-9 * max(1.0, abs(best))
    relaxed = solve_lp(program, Limits())
    assert bound == np.inf or bound >= relaxed.bound - 1e-6 * max(1.0, abs(relaxed.bound))
    # What no relaxation refutes is not refuted: at the bound itself the columns reach it, in fractions.
    bottleneck = bottleneck_of(program)
    if bound < np.inf:
        reached, _ = bottleneck.at(bottleneck.place(bound))
        assert solve_lp(reached, Limits()).termination.reason == "optimal"


def test_levels_that_differ_by_last_digits_are_searched_through():
    """Half of the first column and half of the second fit, but neither alone; nor does the third."""
    fits = program_of(np.zeros(4), [[0, 2, 2, 0], [2, 0, 2, 0]], [1.0, 1.0], [0, 4])
    values = 1.0 + np.spacing(1.0) * np.array([0, 0, 2, 4])
    program = worst_of(fits, values, alone=True)
    answer = thresholds.solve(bottleneck_of(program), Limits(gap=0.0))
    assert answer.termination.reason == "optimal"
    assert np.flatnonzero(answer.x[:4]).tolist() == [3]


def almost_equal(program, seed):
    """The program with other last digits: values that were equal are no longer."""
    rng, matrix = np.random.default_rng(seed), program.matrix.copy()
    own = np.isin(matrix.indices, np.flatnonzero(program.matrix[:, [program.bottleneck]].toarray()))
    own[matrix.indptr[program.bottleneck] : matrix.indptr[program.bottleneck + 1]] = False
    matrix.data = np.where(own, matrix.data * (1.0 + 4e-15 * rng.uniform(-1, 1, len(own))), matrix.data)
    upper = program.upper.copy()
    upper[program.bottleneck] += 1e-9 * max(1.0, abs(upper[program.bottleneck]))  # no value is ruled out
    return dataclasses.replace(program, matrix=matrix, upper=upper)


@MANY
@given(data=st.data(), known=st.booleans(), seed=st.none() | st.integers(0, 99))
def test_the_search_ends_at_the_optimum(data, known, seed):
    program = data.draw(bottlenecks)
    program = program if seed is None else almost_equal(program, seed)
    best = truth(program)
    start = Start(greedy.ascend(program, np.zeros(program.n_rows), Timer())) if known else None
    answer = thresholds.solve(bottleneck_of(program), Limits(gap=0.0), start)
    if best is None:
        assert answer.termination.reason == "infeasible"
        return
    assert answer.termination.reason == "optimal"
    assert program.violation(answer.x) <= 1e-9
    assert answer.objective == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert proven_bound(program, answer.prices) <= answer.bound <= answer.objective


@pytest.mark.parametrize("gap", [0.0, 1e-4])
def test_the_search_goes_on_where_no_rule_finds_a_point(gap, monkeypatch):
    """It ended there with the bound alone, as long as some gap was asked for."""
    monkeypatch.setattr(greedy, "ascend", lambda *_: None)
    program = knapsack(20, 10, pools=2, seed=5)
    program = worst_of(program, program.cost, alone=True)
    answer = thresholds.solve(bottleneck_of(program), Limits(gap=gap))
    assert answer.termination.reason == "optimal"
    assert program.violation(answer.x) <= 1e-9


@pytest.mark.parametrize("jobs", [40, 400])
def test_large_rounds_are_proven_by_prices_alone(jobs):
    program = knapsack(jobs, 60, pools=2, seed=3)
    # Speed relative to the best, as `max-min` has it.
    best = np.repeat(np.minimum.reduceat(program.cost, program.group_start[:-1]), 60)
    program = worst_of(program, 1.0 - best / program.cost, alone=True)
    answer = price.solve(program, Limits())
    assert answer.termination.reason == "optimal"
    assert relative_gap(answer.objective, proven_bound(program, answer.prices)) <= 1e-4


def test_a_limit_leaves_the_best_point_and_bound():
    program = knapsack(400, 60, pools=2, seed=4)
    program = worst_of(program, program.cost, alone=True)
    answer = thresholds.solve(bottleneck_of(program), Limits(time_s=1e-6))
    assert answer.termination.limit in ("time", None)
    assert answer.bound >= proven_bound(program, np.zeros(program.n_rows))
    assert answer.objective is None or answer.bound <= answer.objective


def test_columns_that_are_not_in_their_row_are_worth_nothing():
    """A value of 0 leaves no entry in a matrix."""
    program = worst_of(knapsack(3, 2), np.array([-2.0, 0.0, 0.0, -1.0, 0.0, -3.0]), alone=True)
    assert program.matrix.nnz < program.matrix.shape[1] * 4
    assert bottleneck_values(program).tolist() == [-2.0, 0.0, 0.0, -1.0, 0.0, -3.0]


def test_other_objectives_are_no_bottlenecks():
    plain = knapsack(3, 2)
    assert bottleneck_of(plain) is None
    assert bottleneck_of(worst_of(plain, plain.cost)) is None
    worst = worst_of(plain, plain.cost, alone=True)
    assert bottleneck_of(dataclasses.replace(worst, bottleneck=None)) is None
    assert bottleneck_of(dataclasses.replace(worst, cost=-worst.cost)) is None
    # A row that limits it from above, too.
    ends = np.where(worst.matrix.toarray()[:, -1] > 0, 1e9, worst.row_upper)
    assert bottleneck_of(dataclasses.replace(worst, row_upper=ends)) is None
