"""Prices of few rows against those of the LP relaxation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.few_prices import MOST_ROWS, prices_of_few
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.solution import Limits

from .programs import program_of

AMPLE = Timer(None)


def random_program(seed: int, most_groups: int, most_rows: int = 6) -> Program:
    """Groups of 1 to 9 columns under rows of any size that mostly bind; ties, and uses below 0."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 10, int(rng.integers(1, most_groups + 1)))
    start = np.concatenate([[0], np.cumsum(sizes)])
    n, m = int(start[-1]), int(rng.integers(1, most_rows + 1))
    use = rng.integers(0, 9, (m, n)).astype(float) if rng.random() < 0.5 else rng.uniform(0.0, 9.0, (m, n))
    use -= float(rng.choice([0.0, 0.0, 2.0]))
    if rng.random() < 0.7:
        use[:, start[:-1]] = 0.0  # the first column of a group waits
    cost = rng.integers(-5, 5, n).astype(float) if rng.random() < 0.4 else rng.uniform(-100.0, 100.0, n)
    most = np.maximum.reduceat(use, start[:-1], axis=1).sum(axis=1)
    size = 10.0 ** rng.integers(-3, 7, m)
    limit = most * rng.uniform(-0.1, 1.1, m)
    return program_of(cost, use * size[:, None], limit * size, start)


@given(seed=st.integers(0, 2**32), most_groups=st.sampled_from([12, 12, 12, 300]))
def test_prices_prove_what_the_relaxation_does(seed, most_groups):
    compared_with_lp(random_program(seed, most_groups))


def compared_with_lp(program: Program) -> None:
    relaxed, prices = solve_lp(program, Limits()), prices_of_few(program, AMPLE)
    if prices is None:
        assert relaxed.termination.reason == "infeasible"
        return
    assert (prices <= 0.0).all()
    bound = program.lagrangian_bound(prices)
    assert bound == pytest.approx(relaxed.bound, rel=1e-8, abs=1e-8 * float(np.abs(program.cost).sum()))


def test_a_limit_that_is_just_met_has_the_price_of_one_unit_less():
    program = program_of([5.0, 0.0], np.array([[1.0, 2.0]]), np.array([1.0]), np.array([0, 2]))
    assert prices_of_few(program, AMPLE) == pytest.approx([-5.0])


def test_rounding_of_uses_of_very_different_size_is_no_mixture():
    use = 10.0 ** np.random.default_rng(4).uniform(-10.0, 8.0, (1, 12))
    program = program_of(np.linspace(-9e7, 9e7, 12), use, np.array([0.0]), np.arange(0, 13, 3))
    compared_with_lp(program)


def test_others_are_left_alone():
    many = program_of(np.zeros(2), np.ones((MOST_ROWS + 1, 2)), np.ones(MOST_ROWS + 1), np.array([0, 1, 2]))
    assert prices_of_few(many, AMPLE) is None
    lacking = program_of(np.zeros(2), np.ones((1, 2)), np.array([1.0]), np.array([0, 1, 2]))
    assert prices_of_few(lacking, AMPLE) is None
    assert prices_of_few(random_program(5, most_groups=300), Timer(0.0)) is None
