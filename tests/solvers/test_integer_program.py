"""Rounding a program to integers only relaxes it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array

from wattsched.formulations.program import Block, Program
from wattsched.solvers import cpsat, highs
from wattsched.solvers.integer_program import UnboundedError, integer_relaxation
from wattsched.solvers.solution import Limits


@settings(max_examples=80)
@given(data=st.data())
def test_every_feasible_point_stays_feasible_at_no_higher_cost(programs, data):
    program = data.draw(programs)
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


def test_unbounded_column_is_declined(knapsack):
    program = knapsack(2, 2)
    wide = Program(
        **{
            **vars(program),
            "cost": np.append(program.cost, -1.0),
            "matrix": csc_array(np.hstack([program.matrix.toarray(), np.zeros((program.n_rows, 1))])),
            "lower": np.append(program.lower, 0.0),
            "upper": np.append(program.upper, np.inf),
            "integer": np.append(program.integer, True),
            "columns": (*program.columns, Block("free", 1)),
        }
    )
    with pytest.raises(UnboundedError, match="free"):
        integer_relaxation(wide)
    assert "free" in cpsat.solve(wide, Limits()).termination.detail
