"""Derivatives of the LP relaxation by its limits, against the relaxation solved again beside them.

PARAMETRIC_CASES=2000 pytest tests/solvers/test_parametric.py is a campaign.
"""

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.solvers.programs import relaxed_cost, small_programs
from tests.strategies.effort import examples
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.parametric import ParametricLp

CASES = int(os.environ.get("PARAMETRIC_CASES", examples(150)))


@settings(max_examples=CASES)
@given(small_programs(), st.data())
def test_slopes(program: Program, data: st.DataObject) -> None:
    """A slope is what the cost changes by, on all of its range and no further."""
    row = data.draw(st.integers(0, program.n_rows - 1))
    direction = np.zeros(program.n_rows)
    direction[row] = data.draw(st.sampled_from([1.0, -1.0, 2.0]))
    relaxation = ParametricLp(program, Timer())
    here = relaxed_cost(program, np.zeros(program.n_rows))
    if math.isinf(here):
        assert math.isinf(relaxation.cost)
        return
    size = max(1.0, abs(here))
    assert relaxation.cost + 0.0 == pytest.approx(here + program.offset, rel=1e-7, abs=1e-7)
    slope = relaxation.slope(direction)
    assert slope is not None
    if math.isinf(slope.per_unit):
        assert math.isinf(relaxed_cost(program, 1e-3 * direction))
        return
    for share in (0.3, 1.0):
        step = share * min(slope.until, 1000.0)
        there = relaxed_cost(program, step * direction)
        assert there == pytest.approx(here + step * slope.per_unit, rel=1e-6, abs=1e-6 * size)
    if math.isfinite(slope.until):
        step = 1.5 * slope.until + 0.1
        assert relaxed_cost(program, step * direction) > here + step * slope.per_unit + 1e-8 * size
