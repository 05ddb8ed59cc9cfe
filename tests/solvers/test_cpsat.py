"""CP-SAT finds what others find; placed intervals are aligned, disjoint and as good as can be."""

import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array

from tests.strategies.effort import examples
from wattsched.formulations.program import Intervals, Line
from wattsched.solvers import cpsat
from wattsched.solvers.cpsat import free_places
from wattsched.solvers.solution import Limits

from .programs import knapsack, program_of, programs, truth, with_column


@pytest.mark.filterwarnings("error")
@settings(max_examples=examples(30))
@given(data=st.data(), exponent=st.integers(-250, 30))
def test_costs_of_any_size_have_the_same_optimum_and_gap(data, exponent):
    """CP-SAT counts costs in integers, and takes gaps for relative to one at least."""
    plain = data.draw(programs)
    plain = dataclasses.replace(plain, cost=np.abs(plain.cost) + 1.0, offset=0.0)  # no optimum near zero
    scaled = dataclasses.replace(plain, cost=plain.cost * 10.0**exponent)
    gap = 1e-5
    before, after = (cpsat.solve(program, Limits(gap=gap)) for program in (plain, scaled))
    assert after.termination.reason == before.termination.reason
    if before.x is not None:
        assert plain.objective(after.x) == pytest.approx(before.objective, rel=2 * gap)
        assert after.bound <= after.objective * (1 + 1e-12)
        assert after.bound * (1 + 2 * gap) >= after.objective


@pytest.mark.filterwarnings("error")
def test_entries_that_cancel_count_as_absent():
    plain = find(programs, lambda program: not program.integer.all() and truth(program) is not None)
    stored = csc_array(np.ones((plain.n_rows, plain.n_columns)))
    stored.data[:] = plain.matrix.toarray().ravel(order="F")
    assert (stored.data == 0).any()
    solution = cpsat.solve(dataclasses.replace(plain, matrix=stored), Limits(gap=1e-6))
    assert solution.objective == pytest.approx(truth(plain), rel=1e-5)


@pytest.mark.filterwarnings("error")
def test_what_is_fixed_at_nothing_may_cost_anything():
    program = knapsack(2, 2)
    fixed = with_column(program, 1e200, 0.0, uses=1e30)
    found = [cpsat.solve(p, Limits(gap=1e-6)) for p in (program, fixed)]
    assert found[0].objective == pytest.approx(found[1].objective, rel=1e-6)


def test_presolve_does_not_lose_the_optimum():
    """OR-Tools 9.15 proves 1 to be optimal for this program unless a part of its presolve is off."""
    matrix = np.zeros((2, 13))
    matrix[0, [8, 12]] = 1.0
    matrix[1, [2, 3, 9, 11, 12]] = [0.1, 0.4, 0.1 * 3, 0.5, 0.1]
    lower = {"row_lower": np.array([-np.inf, 0.5])}
    program = program_of(np.eye(13)[9], matrix, [1.0, np.inf], [0, 4, 8, 10, 13], **lower)
    assert cpsat.solve(program, Limits(gap=0.0)).objective == 0.0


def interval_program(rng, jobs):
    """Jobs of one to three options on two lines with holes, or waiting; no rows."""
    lines = (
        Line("a", np.array([[0, 4], [4, 2], [8, 4]]), np.array([1])),
        Line("b", np.array([[0, 8]]), rng.choice(8, 2, replace=False)),
    )
    sizes = 2 ** rng.integers(0, 3, (jobs, 3))
    line = rng.integers(0, 2, (jobs, 3))
    sizes[:, 0], line[:, 0] = 0, -1
    cost = rng.integers(0, 20, (jobs, 3)) + np.array([30, 0, 0])
    intervals, n = Intervals(lines, line.ravel(), sizes.ravel()), 3 * jobs
    return program_of(cost.ravel(), np.zeros((0, n)), [], np.arange(0, n + 1, 3), intervals=intervals)


def placeable(intervals, columns):
    """Whether the columns' intervals fit, by trying all places, the largest first."""
    columns = sorted((c for c in columns if intervals.line[c] >= 0), key=lambda c: -intervals.size[c])

    def fits(rest, taken):
        if not rest:
            return True
        column, *others = rest
        size, line = int(intervals.size[column]), int(intervals.line[column])
        for place in free_places(intervals.lines[line], size):
            cells = {(line, place * size + i) for i in range(size)}
            if not cells & taken and fits(others, taken | cells):
                return True
        return False

    return fits(columns, frozenset())


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 10_000))
def test_intervals_are_placed_at_least_cost(seed):
    program = interval_program(np.random.default_rng(seed), jobs=5)
    intervals = program.intervals
    best = min(
        sum(program.cost[c] for c in choice)
        for choice in itertools.product(*(range(3 * k, 3 * k + 3) for k in range(5)))
        if placeable(intervals, choice)
    )
    solution = cpsat.solve(program, Limits(gap=0.0))
    assert solution.termination.reason == "optimal"
    assert solution.objective == best
    taken = set()
    for column in np.flatnonzero(solution.x):
        line, size = int(intervals.line[column]), int(intervals.size[column])
        if line < 0:
            assert column not in solution.starts
            continue
        start = solution.starts[int(column)]
        blocks = intervals.lines[line].blocks
        assert start % size == 0
        assert np.any((blocks[:, 0] <= start) & (start + size <= blocks.sum(axis=1)))
        cells = {(line, start + i) for i in range(size)}
        assert not cells & taken
        assert not {c for _, c in cells} & set(intervals.lines[line].busy.tolist())
        taken |= cells


def test_a_limit_before_the_first_point_proves_nothing():
    """CP-SAT then reports a bound of 0, which for negative costs is above every point."""
    program = knapsack(300, 40, pools=3)
    negative = dataclasses.replace(program, cost=program.cost - 2.0 * program.cost.max())
    solution = cpsat.solve(negative, Limits(gap=1e-6, time_s=0.01))
    assert solution.x is None
    assert solution.bound < -1.0
