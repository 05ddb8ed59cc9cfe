"""Programs in which one row binds, against all points of small ones and HiGHS on others."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.formulations.program import Program
from wattsched.solvers import highs, knapsack, registry
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.points import feasible
from wattsched.solvers.solution import Limits, Solution, Start

from .test_core import points
from .test_price import program_of

EXACT = Limits(gap=0.0)


def random_program(seed: int, most_groups: int = 6, *, others: float = 1.0) -> Program:
    """Groups of 1 to 5 columns under a row of whole numbers; ties, negative uses, rows that never bind.

    These have this share of what could be used of them, or more.
    """
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 6, int(rng.integers(1, most_groups + 1)))
    start = np.concatenate([[0], np.cumsum(sizes)])
    n, unit = int(start[-1]), float(rng.choice([1.0, 2.0, 3.0]))
    use = unit * rng.integers(int(rng.choice([0, -3])), int(rng.choice([4, 9, 70])), n)
    if rng.random() < 0.7:
        use[start[:-1]] = 0.0  # the first column of a group waits
    cost = rng.uniform(0.0, 100.0, n) if rng.random() < 0.6 else rng.integers(0, 5, n).astype(float)
    uses, capacity = [use], [rng.uniform(0.1, 0.8) * np.abs(use).sum() / 2]
    for _ in range(int(rng.integers(0, 3))):
        more = rng.uniform(0.0, 9.0, n)
        most = np.maximum.reduceat(more, start[:-1]).sum()
        uses.append(more)
        capacity.append(float(rng.choice([most * rng.uniform(others, 1.0), np.inf])))
    order = rng.permutation(len(uses))
    program = program_of(cost, np.array(uses)[order], np.array(capacity)[order], start)
    return dataclasses.replace(program, offset=float(rng.uniform(-50.0, 50.0)))


def proves(program: Program, solution: Solution) -> None:
    """The point is one, and costs what is said; the prices prove what the LP relaxation does."""
    assert solution.x is not None
    assert feasible(program, solution.x)
    assert solution.objective == program.objective(solution.x)
    assert solution.prices is not None
    proven = program.lagrangian_bound(solution.prices)
    assert proven == pytest.approx(solve_lp(program, EXACT).bound, rel=1e-9, abs=1e-9)
    assert proven <= solution.bound + 1e-9 * max(1.0, abs(proven))


@given(seed=st.integers(0, 2**32), known=st.sampled_from([None, 0.0, -0.1, -3.0, -1e6]))
def test_against_all_points(seed, known):
    program = random_program(seed)
    start = None if known is None else Start(prices=np.full(program.n_rows, known))
    solution, costs = knapsack.solve(program, EXACT, start), [program.objective(x) for x in points(program)]
    if not costs:
        assert solution is None
        return
    assert solution is not None
    assert solution.termination.reason == "optimal"
    assert solution.objective == pytest.approx(min(costs), rel=1e-12, abs=1e-9)
    proves(program, solution)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("gap", [0.0, 1e-4, 1e-2])
def test_against_highs(seed, gap):
    program, limits = random_program(1_000 + seed, most_groups=300), Limits(gap=gap, time_s=60.0)
    solution, other = (
        knapsack.solve(program, limits),
        highs.solve(program, dataclasses.replace(limits, gap=1e-9)),
    )
    if solution is None:
        assert other.objective is None
        return
    assert other.objective is not None
    assert solution.termination.reason == "optimal"
    least, size = other.objective, max(1.0, abs(other.objective))
    assert solution.bound - 1e-7 * size <= least
    assert least - 1e-7 * size <= solution.objective <= least + (gap + 1e-7) * size
    proves(program, solution)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: {"matrix": p.matrix * 1.1},
        lambda p: {"row_lower": np.zeros(1)},
        lambda p: {"integer": np.zeros(p.n_columns, dtype=bool)},
        lambda p: {"cost": np.where(np.arange(p.n_columns) == 1, np.inf, p.cost)},
    ],
)
def test_other_programs_are_left_to_others(change):
    program = program_of(np.array([5.0, 1.0, 5.0, 2.0]), np.array([[0, 3, 0, 2]]), np.array([4.0]), [0, 2, 4])
    assert knapsack.solve(program, EXACT) is not None
    assert knapsack.solve(dataclasses.replace(program, **change(program)), EXACT) is None


def test_rows_that_might_bind_and_do_not():
    """Of two rows either may be the one that binds; where both do, others decide."""
    solved = 0
    for seed in range(300):
        program = random_program(seed, others=0.5)
        solution = knapsack.solve(program, EXACT)
        if solution is not None:
            solved += 1
            costs = [program.objective(x) for x in points(program)]
            assert solution.objective == pytest.approx(min(costs), rel=1e-12, abs=1e-9), seed
            assert solution.bound == pytest.approx(min(costs), rel=1e-12, abs=1e-9), seed
            assert feasible(program, solution.x), seed
    assert solved > 100


def test_two_rows_that_bind_are_left_to_others():
    uses = np.array([[0, 3, 0, 1, 0, 1], [0, 1, 0, 3, 0, 1]])
    program = program_of(np.tile([5.0, 0.0], 3), uses, np.array([3.0, 3.0]), [0, 2, 4, 6])
    assert knapsack.solve(program, EXACT) is None


def test_what_is_too_much_work_is_left_to_others(monkeypatch):
    monkeypatch.setattr(knapsack, "MOST_WORK", 0)
    left = 0
    for seed in range(40):
        program = random_program(seed)
        if (expected := highs.solve(program, EXACT)).objective is None:
            continue
        found = knapsack.solve(program, EXACT)
        left += found is None
        assert found is None or found.objective == pytest.approx(expected.objective, rel=1e-9, abs=1e-9)
    assert left > 5


def test_a_row_that_nothing_is_in_and_that_cannot_hold_is_left_to_others():
    assert knapsack.solve(program_of([1.0], np.zeros((1, 1)), np.array([-1.0]), [0, 1]), EXACT) is None


def test_even_numbers_of_gpus_never_fill_an_odd_number():
    n = 4_000
    start, use = np.arange(0, n + 1, 2), np.tile([0.0, 2.0], n // 2)
    cost = np.tile([1.0, 0.0], n // 2)
    solution = knapsack.solve(program_of(cost, use[None, :], np.array([1_001.0]), start), EXACT)
    assert solution is not None
    assert solution.objective == solution.bound == n // 2 - 500


def test_without_time_the_point_is_that_of_the_price():
    rng = np.random.default_rng(0)
    n, start = 400, np.arange(0, 401, 4)
    use = rng.integers(1, 200, n).astype(float)
    use[start[:-1]] = 0.0
    program = program_of(rng.uniform(0.0, 1.0, n) - use, use[None, :], np.array([3_001.0]), start)
    late = knapsack.solve(program, Limits(gap=0.0, time_s=0.0))
    assert late is not None
    assert late.termination.reason == "feasible"
    assert late.termination.limit == "time"
    assert late.prices is not None
    assert late.bound == pytest.approx(program.lagrangian_bound(late.prices), rel=1e-12)
    done = knapsack.solve(program, EXACT)
    assert done is not None
    assert done.objective is not None
    assert late.objective is not None
    assert late.bound <= done.bound <= done.objective < late.objective


@pytest.mark.parametrize(("name", "asked"), [("auto", True), ("price", True), ("highs", False)])
def test_solvers_that_begin_with_it(name, asked):
    program = random_program(2)
    assert (registry.get(name).at_once(program, EXACT) is not None) == asked
    assert (
        registry.get(name).at_once(program_of([1.0], np.array([[0.5]]), np.array([0.1]), [0, 1]), EXACT)
        is None
    )
