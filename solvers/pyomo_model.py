"""A program as a Pyomo model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.core.expr.numeric_expr import LinearExpression
from scipy.sparse import csr_array

from wattsched.formulations.program import BoolArray
from wattsched.solvers.scaling import ScaledModel


def pyomo_model(model: ScaledModel, integer: BoolArray) -> Any:
    """Concrete model with variables ``x[j]``, rows ``row[i]`` and an objective, still scaled.

    Rows without entries cannot be written in Pyomo and are left out.
    """
    m = pyo.ConcreteModel()
    lower, upper = _or_none(model.lower), _or_none(model.upper)
    whole = integer.tolist()
    m.x = pyo.Var(
        range(len(whole)),
        domain=lambda _, j: pyo.Integers if whole[j] else pyo.Reals,
        bounds=lambda _, j: (lower[j], upper[j]),
    )
    x = [m.x[j] for j in range(len(whole))]
    table = csr_array(model.matrix)
    first, column, value = table.indptr.tolist(), table.indices.tolist(), table.data.tolist()
    row_lower, row_upper = _or_none(model.row_lower), _or_none(model.row_upper)

    def row(_: Any, i: int) -> Any:
        entries = slice(first[i], first[i + 1])
        if not column[entries] or (row_lower[i] is None and row_upper[i] is None):
            return pyo.Constraint.Skip
        body = LinearExpression(linear_coefs=value[entries], linear_vars=[x[j] for j in column[entries]])
        if row_lower[i] == row_upper[i]:
            return body == row_lower[i]
        return (row_lower[i], body, row_upper[i])

    m.row = pyo.Constraint(range(table.shape[0]), rule=row)
    cost = model.cost.tolist()
    m.cost = pyo.Objective(expr=LinearExpression(constant=model.offset, linear_coefs=cost, linear_vars=x))
    return m


def _or_none(bounds: np.ndarray) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in bounds.tolist()]
