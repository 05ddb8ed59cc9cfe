"""Programs in which rounding is what decides, and bounds must not."""

import math

import numpy as np
import pytest

from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.solvers import greedy, highs, price
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.points import feasible
from wattsched.solvers.rows import restricted
from wattsched.solvers.solution import Limits, Start

from .programs import program_of

SMALL_JOBS = 500


@pytest.mark.parametrize("seed", [22, 57, 131])
def test_a_limit_that_the_best_point_meets_exactly_does_not_exclude_it(seed: int) -> None:
    """What large columns use cancels the limit, but for a digit that is as much as small ones use."""
    rng = np.random.default_rng(seed)
    large = rng.uniform(1e9, 2e9, 6).round(1)
    use = np.concatenate([np.column_stack([large, large / 2]).ravel(), np.tile([1.0, 0.5], SMALL_JOBS)])
    cost = np.concatenate([np.tile([1.0, 100.0], 6), np.tile([1.0, 2.0], SMALL_JOBS)])
    limit_j = math.fsum([*large, *np.ones(SMALL_JOBS)])
    program = program_of(cost, use[None, :], np.array([limit_j]), np.arange(0, len(use) + 1, 2))
    best = np.tile([1.0, 0.0], SMALL_JOBS + 6)
    assert feasible(program, best)
    for solver in (price, highs):
        answer = solver.solve(program, Limits(gap=1e-4))
        assert answer.bound <= program.objective(best)
        assert answer.objective == pytest.approx(program.objective(best))


def test_whole_numbers_lose_nothing() -> None:
    builder = ProgramBuilder()
    columns = builder.columns(Block("option", 4), cost=1.0)
    builder.row("gpus", columns, np.array([3.0, 5.0, 0.5, 7.0]), lower=2.0, upper=9.0)
    program = builder.program(np.array([0, 2, 4]))
    whole = restricted(program, np.array([2, 3]), np.array([0.0, 1.0, 0.0, 0.0]))
    assert (whole.row_lower[0], whole.row_upper[0]) == (-3.0, 4.0)
    broken = restricted(program, np.array([0, 1]), np.array([0.0, 0.0, 1.0, 0.0]))
    assert broken.row_lower[0] <= 1.5
    assert 8.5 <= broken.row_upper[0] <= 8.5 + 1e-13


def tight() -> Program:
    """One row that only the first column of every group keeps."""
    rng = np.random.default_rng(0)
    least = rng.uniform(1.0, 2.0, 700)
    uses = np.column_stack([least, least + 0.5, least + 1.0]).reshape(1, -1)
    cost = rng.uniform(1.0, 2.0, 2100)
    return program_of(cost, uses, np.array([least.sum()]), np.arange(0, 2101, 3))


@pytest.mark.parametrize("solver", [price, greedy])
@pytest.mark.parametrize("size", [1e12, 1e14, 1e16, 1e19])
def test_huge_prices_to_start_from_prove_nothing(solver, size: float) -> None:
    program = tight()
    point = np.tile([1.0, 0.0, 0.0], 700)
    assert feasible(program, point)
    answer = solver.solve(program, Limits(), Start(prices=np.array([-size])))
    assert answer.termination.reason in ("optimal", "feasible", "no_solution")
    assert answer.bound <= program.objective(point) * (1 + 1e-9)


def test_an_offset_does_not_move_a_bottleneck_to_the_next_level() -> None:
    builder = ProgramBuilder()
    columns = builder.columns(Block("option", 3))
    worst = builder.columns(Block("worst", 1), cost=1.0, lower=0.0, upper=1e9, integer=False)
    row = builder.rows(Block("reach", 1), upper=0.0)
    builder.add(row, columns, np.array([0.1, 0.4, 5e8]))
    builder.add(row, worst, -1.0)
    builder.row("not the first", columns[:1], 1.0, upper=0.0)
    program = builder.program(np.array([0, 3]), bottleneck=3, offset=1e10 / 7)
    assert feasible(program, np.array([0.0, 1.0, 0.0, 0.4]))
    assert dual_prices(program)[1] - program.offset <= 0.4 + 1e-5
