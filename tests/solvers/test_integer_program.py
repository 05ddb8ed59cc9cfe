"""Rounding a program to integers only relaxes it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.solvers import cpsat, highs
from wattsched.solvers.integer_program import UnboundedError, integer_relaxation
from wattsched.solvers.solution import Limits

from .programs import knapsack, program_of, programs, with_column


@settings(max_examples=examples(80))
@given(program=programs)
def test_every_feasible_point_stays_feasible_at_no_higher_cost(program):
    integers = integer_relaxation(program)
    best = highs.solve(program, Limits(gap=0.0))
    if best.x is None:
        return
    z = np.round(best.x / integers.unit).astype(np.int64)
    assert np.all(integers.lower <= z)
    assert np.all(z <= integers.upper)
    activity = integers.matrix @ z
    assert np.all(integers.row_lower <= activity)
    assert np.all(activity <= integers.row_upper)
    cost = sum(int(c) * int(v) for c, v in zip(integers.cost, z, strict=True))
    stated = cost / integers.cost_scale + program.offset - integers.cost_slack
    tolerance = 1e-8 * max(1.0, abs(best.objective))
    assert best.objective - tolerance <= stated <= best.objective + 1e-12 * max(1.0, abs(best.objective))


@settings(max_examples=examples(40))
@given(data=st.data())
def test_columns_that_take_what_integers_leave_are_integers(data):
    """As the GPU share that usual tasks can use: at most what is left, in several sums."""
    n = data.draw(st.integers(1, 4))
    whole = st.integers(1, 9)
    room = data.draw(st.lists(whole, min_size=n, max_size=n))
    price = data.draw(st.lists(whole, min_size=n, max_size=n))
    gain = data.draw(st.lists(st.sampled_from([0.1, 1 / 3, 0.7]), min_size=2, max_size=2))
    factor = data.draw(st.sampled_from([1.0, 1.5]))
    # Of each k: x_k, v_k <= room_k (1 - x_k), v_k <= 5; then u_1, u_2 <= sum of v, u_1 <= 6 x_1.
    rows = np.zeros((2 * n + 3, 2 * n + 2))
    rows[:n, :n], rows[:n, n : 2 * n] = np.diag(room), np.eye(n)
    rows[n : 2 * n, n : 2 * n] = np.eye(n)
    rows[2 * n : 2 * n + 2, n : 2 * n] = -factor
    rows[2 * n, 2 * n] = rows[2 * n + 1, 2 * n + 1] = rows[2 * n + 2, 2 * n] = 1.0
    rows[2 * n + 2, 0] = -6.0
    upper = np.concatenate([room, np.full(n, 5.0), np.zeros(3)])
    cost, most = np.concatenate([price, np.zeros(n), -np.array(gain)]), np.repeat([1.0, 9.0 * n], [n, n + 2])
    program = program_of(cost, rows, upper, [0], upper=most, integer=np.arange(2 * n + 2) < n)
    assert (integer_relaxation(program).unit == 1.0).all() == (factor == 1.0)
    best, found = highs.solve(program, Limits(gap=0.0)), cpsat.solve(program, Limits(gap=0.0))
    assert found.objective == pytest.approx(best.objective, abs=1e-9)
    assert best.objective - 1e-6 <= found.bound <= best.objective + 1e-9


def test_unbounded_column_is_declined():
    wide = with_column(knapsack(2, 2), -1.0, integer=True)
    with pytest.raises(UnboundedError, match="free"):
        integer_relaxation(wide)
    assert "free" in cpsat.solve(wide, Limits()).termination.detail
