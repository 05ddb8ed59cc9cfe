"""Pyomo models compile to programs with the same optimum and the right choice groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyomo.environ as pyo
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyomo.contrib.solver.common.factory import SolverFactory

from tests.strategies.effort import examples
from wattsched.formulations.compiler import compile_model
from wattsched.formulations.program import Program
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits

COEFFICIENT = st.integers(-5, 5)
FEASIBILITY = 1e-6
"""HiGHS keeps rows, bounds and integrality up to this, whichever way it is called."""

EXACT = {"presolve": "off"}
"""With presolve HiGHS 1.13.1 calls 0 optimal where -1 is possible (one of some thousand such models)."""


@st.composite
def models(draw: st.DrawFn) -> Any:
    """A bounded linear model with all kinds of constraints, some of them "exactly one of"."""
    m = pyo.ConcreteModel()
    n = draw(st.integers(2, 6))
    m.x = pyo.Var(range(n), domain=pyo.Binary)
    m.y = pyo.Var(bounds=(-2, 3))
    m.z = pyo.Var(bounds=(0, 4), domain=pyo.Integers)
    m.c = pyo.ConstraintList()
    split = draw(st.integers(1, n - 1))
    m.c.add(sum(m.x[i] for i in range(split)) == 1)
    if draw(st.booleans()):
        m.c.add(sum(m.x[i] for i in range(split, n)) == 1)
    for _ in range(draw(st.integers(1, 3))):
        row = sum(draw(COEFFICIENT) * m.x[i] for i in range(n)) + draw(COEFFICIENT) * m.y + 1 * m.z
        kind = draw(st.sampled_from(["<=", ">=", "range"]))
        low = draw(st.integers(-4, 4))
        m.c.add(
            {"<=": row <= low + 2, ">=": row >= low - 4, "range": pyo.inequality(low - 3, row, low + 4)}[kind]
        )
    cost = (
        sum(draw(COEFFICIENT) * m.x[i] for i in range(n))
        + draw(COEFFICIENT) * m.y
        - 2 * m.z
        + draw(COEFFICIENT)
    )
    m.o = pyo.Objective(expr=cost, sense=draw(st.sampled_from([pyo.minimize, pyo.maximize])))
    return m


def tolerance(program: Program) -> float:
    """What two answers may differ by that keep everything up to `FEASIBILITY`.

    Coefficients are whole: a column that is off by it moves another by its largest coefficient at most.
    """
    largest = float(np.abs(program.matrix.data).max(initial=1.0))
    return 2 * FEASIBILITY * largest * float(np.abs(program.cost).sum())


@settings(max_examples=examples(60), deadline=None)
@given(model=models())
def test_the_program_has_the_optimum_of_the_model(model: Any) -> None:
    program, column_of = compile_model(model)
    solution = get("highs")(program, Limits(gap=0.0))
    truth = SolverFactory("highs").solve(
        model,
        load_solutions=False,
        raise_exception_on_nonoptimal_result=False,
        rel_gap=0.0,
        solver_options=EXACT,
    )
    if solution.x is None:
        assert solution.termination.reason == "infeasible"
        assert truth.incumbent_objective is None
        return
    close = tolerance(program)
    assert program.reported(solution.objective) == pytest.approx(truth.incumbent_objective, abs=close)
    for variable in model.component_data_objects(pyo.Var):
        if id(variable) in column_of:
            variable.set_value(solution.x[column_of[id(variable)]], skip_validation=True)
        else:
            variable.set_value(variable.lb)
    assert pyo.value(model.o) == pytest.approx(program.reported(solution.objective), abs=close)


def test_rows_that_choose_one_become_groups() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(range(5), domain=pyo.Binary)
    m.first = pyo.Constraint(expr=m.x[3] + m.x[1] == 1)
    m.overlapping = pyo.Constraint(expr=m.x[1] + m.x[0] == 1)
    m.weighted = pyo.Constraint(expr=2 * m.x[2] + m.x[4] == 1)
    m.o = pyo.Objective(expr=sum((i + 1) * m.x[i] for i in range(5)))
    program, column_of = compile_model(m)
    assert program.n_groups == 1
    assert {column_of[id(m.x[1])], column_of[id(m.x[3])]} == {0, 1}
    assert program.row_names() == ["overlapping", "weighted"]
    assert program.column_names()[:2] == ["x[1]", "x[3]"]
    assert np.all(program.integer)


def test_what_is_not_linear_is_refused() -> None:
    m = pyo.ConcreteModel()
    m.x = pyo.Var(bounds=(0, 1))
    m.o = pyo.Objective(expr=m.x**2)
    with pytest.raises(ValueError, match="not linear"):
        compile_model(m)
    m.p = pyo.Objective(expr=m.x)
    with pytest.raises(ValueError, match="2 active objectives"):
        compile_model(m)


def test_what_is_not_a_number_is_refused() -> None:
    for bad in (float("nan"), float("inf")):
        m = pyo.ConcreteModel()
        m.x = pyo.Var(range(2), domain=pyo.Binary)
        m.o = pyo.Objective(expr=m.x[0] + m.x[1])
        m.row = pyo.Constraint(expr=bad * m.x[0] + m.x[1] <= 3)
        with pytest.raises(ValueError, match="'row'"):
            compile_model(m)
