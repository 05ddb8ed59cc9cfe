"""Prices of the LP relaxation prove its optimum."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from scipy.optimize import linprog

from tests.strategies.effort import examples
from wattsched.formulations.program import Block, ProgramBuilder
from wattsched.solvers import highs
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import with_choice_rows
from wattsched.solvers.solution import Limits, Start, Termination, conclude, listening, proven_bound

from .programs import knapsack, program_of, programs


def linear_optimum(program):
    """LP relaxation by another code."""
    explicit = with_choice_rows(program)
    dense, lower, upper = explicit.matrix.toarray(), explicit.row_lower, explicit.row_upper
    finite_up, finite_low = np.isfinite(upper), np.isfinite(lower)
    answer = linprog(
        program.cost,
        A_ub=np.vstack([dense[finite_up], -dense[finite_low]]),
        b_ub=np.concatenate([upper[finite_up], -lower[finite_low]]),
        bounds=np.column_stack([program.lower, program.upper]),
        method="highs-ipm",
    )
    return answer.fun + program.offset if answer.status == 0 else None


@settings(max_examples=examples(60))
@given(program=programs)
def test_row_prices_prove_the_optimum_of_the_relaxation(program):
    solution = solve_lp(program, Limits())
    best = linear_optimum(program)
    if best is None:
        assert solution.termination.reason == "infeasible"
        return
    tolerance = 1e-9 * max(1.0, abs(solution.objective))
    assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-6)
    assert program.lagrangian_bound(solution.prices) == pytest.approx(solution.objective, abs=tolerance)
    assert solution.bound == proven_bound(program, solution.prices)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e7])
def test_units_do_not_matter(unit):
    program = knapsack(30, 6, pools=2, seed=4)
    other = dataclasses.replace(
        program, cost=program.cost * unit, matrix=program.matrix * unit, row_upper=program.row_upper * unit
    )
    plain, scaled = (highs.solve(p, Limits(gap=1e-9)) for p in (program, other))
    assert scaled.objective == pytest.approx(plain.objective * unit, rel=1e-8)
    assert scaled.bound == pytest.approx(plain.bound * unit, rel=1e-8)


def test_improving_points_are_announced_and_start_is_kept():
    program = knapsack(40, 10, seed=2)
    heard = []
    with listening(heard.append):
        final = highs.solve(program, Limits(gap=0.0))
    assert any(one.x is not None for one in heard)
    again = highs.solve(program, Limits(gap=0.0, time_s=1e-3), start=Start(final.x))
    assert again.objective <= final.objective


def test_target_ends_the_search():
    program = knapsack(40, 10, seed=2)
    best = highs.solve(program, Limits(gap=0.0))
    target = best.objective + 0.02 * abs(best.objective)
    early = highs.solve(program, Limits(gap=0.0), target=target)
    assert early.objective <= target
    assert early.bound <= best.objective
    assert early.termination.reason == "feasible"


def test_a_bound_above_a_point_is_not_a_proof():
    program = knapsack(3, 3)
    x = highs.solve(program, Limits(gap=0.0)).x
    late = conclude(program, Limits(), x, program.objective(x), limit="time", detail="time limit reached")
    assert late.termination == Termination("optimal")
    told = conclude(program, Limits(), x, program.objective(x) + 10.0)
    assert told.termination.reason == "feasible"
    assert "contradicts" in told.termination.detail
    assert told.bound == -np.inf


def test_presolve_does_not_lose_the_optimum():
    """HiGHS 1.13.1 calls -5 optimal with presolve on."""
    matrix = np.array([[0.0, -1.0, -2.0, -1.0, 1.0], [-2.0, -2.0, 3.0, 2.0, -2.0]])
    fields = {
        "row_lower": np.array([-6.0, -3.0]),
        "lower": np.array([0.0, 0.0, 0.0, 0.0, -2.0]),
        "upper": np.array([1.0, 1.0, 1.0, 4.0, 3.0]),
        "integer": np.array([True, True, True, True, False]),
    }
    program = program_of([-1.0, 0.0, -3.0, 2.0, 2.0], matrix, [0.0, 3.0], [0, 2], **fields)
    assert highs.solve(program, Limits(gap=0.0)).objective == pytest.approx(-6.0)


def test_coefficients_that_highs_would_take_for_nothing_count():
    # Five jobs under three capacities; the least that one of them is worth is to be largest. HiGHS 1.13.1
    # drops what is below a billionth, and then calls this infeasible.
    gpus = [1.0, 0, 4, 3, 0, 3, 2, 0, 3, 2, 0, 3, 2, 1, 0, -8]
    power = [136.2, 0, 146.9, 758.2, 0, 308.2, 243.4, 0, 848.2, 471.4, 0, 77.2, 123.4, 259.7, 0, 411.3]
    energy = [119, 0, 0.009, 0.03, 0, 16529, 23542, 0, 7.3e5, 4.55e5, 0, 22, 40.5, 109, 0, 8.58e5]
    worth = np.zeros((5, 16))
    worth[0, :2], worth[1, 2:5], worth[2, 5:8] = (1, 4e-4), (0.63, 1, 1.8e-8), (8.7e-5, 4.8e-5, 2.2e-6)
    worth[3, 8:11], worth[4, 11:14] = (1, 0.89, 0.3), (16313, 14697, 10687)
    worth[:, 14] = 1.0
    least = np.arange(16) == 14
    ends = {"lower": np.where(least, -8.7e-5, 0.0), "upper": np.where(least, -1.8e-8, 1.0), "integer": ~least}
    uses, capacity = np.vstack([gpus, power, energy, -worth]), [0, 649, 1631388, 0, 0, 0, 0, 0]
    program = program_of(least, uses, capacity, [0, 2, 5, 8, 11, 14], **ends)
    solution = highs.solve(program, Limits(gap=0.0))
    assert solution.termination.reason == "optimal"
    assert solution.objective == pytest.approx(-2.2e-6)


def test_whole_numbers_that_are_not_binary_keep_their_optimum():
    """Nothing moves, c5 = 0, where c4 = c3 = 0 = c6; HiGHS 1.13.1 says 1 with its aggregator."""
    rows = [
        ({0: 1, 1: -1}, -np.inf, 0),
        ({1: 1, 2: -1}, -np.inf, 0),
        ({2: 1, 3: -1, 4: -1}, -np.inf, 0),
        ({3: 1, 5: -1, 6: -1}, -np.inf, 0),
        ({4: 1, 5: 1}, -np.inf, 2),
        ({6: 1}, -np.inf, 1),
        ({0: 1, 1: 1, 2: 1, 3: 1, 5: -1, 7: -1}, 0, np.inf),
        ({7: 1}, 1, 1),
    ]
    builder = ProgramBuilder()
    cost = np.zeros(8)
    cost[5] = 1.0
    upper = np.append(np.full(7, 12.0), 1.0)
    columns = builder.columns(Block("c", 8), cost=cost, upper=upper, integer=True)
    for number, (entries, least, most) in enumerate(rows):
        builder.row(f"r{number}", columns[list(entries)], [*entries.values()], lower=least, upper=most)
    solution = highs.solve(builder.program(), Limits(gap=0.0))
    assert (solution.objective, solution.termination.reason) == (0.0, "optimal")
