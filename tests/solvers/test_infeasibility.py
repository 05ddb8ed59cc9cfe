"""Rows are short exactly when a program is infeasible, and granting what is short makes it feasible."""

import dataclasses

import numpy as np
from hypothesis import given, settings

from tests.strategies.effort import examples
from wattsched.formulations.program import Block
from wattsched.solvers.infeasibility import short_rows

from .programs import knapsack, program_of, programs, truth


@settings(max_examples=examples(50))
@given(program=programs)
def test_short_exactly_when_infeasible(program):
    names = [f"row {i}" for i in range(program.n_rows)]
    program = dataclasses.replace(program, rows=(Block("row", program.n_rows, names.__getitem__),))
    short = short_rows(program)
    assert bool(short) == (truth(program) is None)
    for _ in range(6):  # fractions of options, or rows one at a time, may not tell everything at once
        upper, lower = program.row_upper.copy(), program.row_lower.copy()
        for item in short:
            r = names.index(item.row)
            assert item.short_by > 0
            assert np.isclose(item.needed - item.available, item.short_by)
            if item.available == upper[r]:
                upper[r] = item.needed * (1 + np.copysign(1e-6, item.needed)) + 1e-6
            else:
                assert item.needed == lower[r]
                lower[r] = item.available * (1 - np.copysign(1e-6, item.available)) - 1e-6
        program = dataclasses.replace(program, row_upper=upper, row_lower=lower)
        short = short_rows(program)
    assert not short
    assert truth(program) is not None


def test_one_row_is_named_with_its_numbers():
    program = knapsack(4, 3)
    capacity = program.row_upper.copy()
    least = np.minimum.reduceat(program.attributes["energy_j"], program.group_start[:-1]).sum()
    capacity[-1] = 0.5 * least
    (short,) = short_rows(dataclasses.replace(program, row_upper=capacity))
    assert short.alone
    assert np.isclose(short.needed, least)
    assert short.available == capacity[-1]
    assert short.row == "energy_j"


def test_rows_that_only_together_are_short():
    # Two jobs, either of which uses 3 of one row or 3 of the other; 2 of each there are.
    short = short_rows(program_of(np.zeros(4), [[3, 0, 3, 0], [0, 3, 0, 3]], [2.0, 2.0], [0, 2, 4]))
    assert short
    assert not any(item.alone for item in short)
    assert sum(item.short_by for item in short) >= 2.0 - 1e-6
