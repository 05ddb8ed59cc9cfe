"""From a user's Pyomo model of a round to a `Model`, as `formulations.external` finds it.

Dominated options are left out unless the formulation has an attribute ``keep_dominated`` that is true.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from wattsched.formulations.compiler import compile_model
from wattsched.formulations.external import External, blaming
from wattsched.formulations.model import Model
from wattsched.formulations.program import IntArray
from wattsched.formulations.sizing.assignment import add_share_constraints
from wattsched.formulations.sizing.columns import Choices, choices
from wattsched.formulations.sizing.decisions import place_by_buddy
from wattsched.formulations.sizing.mckp import bottleneck_range
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.sizing.rounds import Round
from wattsched.instances.files import InputError
from wattsched.instances.options import Options


def adapt(external: External) -> Callable[[Options, str], Model]:
    """Builder that calls a user's formulation."""
    return lambda options, objective: _build(external, options, objective)


def _build(external: External, options: Options, objective: str) -> Model:
    keep = bool(getattr(external.formulate, "keep_dominated", False))
    columns = choices(options, find_objective(objective), keep_dominated=keep)
    with blaming(external.source):
        model, variables = _parts(external.formulate(Round(columns)), len(columns))
        _complete(model, variables, columns)
        program, column_of = compile_model(model, sense=columns.objective.sense)
    places = _places(variables, column_of, external.source)
    return Model(
        program=program,
        dropped=columns.dropped,
        choose=lambda x: columns.chosen(x[places]),
        place=lambda x, starts, chosen: place_by_buddy(options, chosen),
    )


def _parts(made: Any, n: int) -> tuple[Any, list[Any]]:
    """Model and the variable of every choice, from what the user's code returned."""
    try:
        model, variables = made
    except (TypeError, ValueError):
        raise TypeError("a formulation must return the Pyomo model and its choice variables") from None
    if len(variables) != n:
        raise ValueError(f"there are {n} choices, but {len(variables)} choice variables were returned")
    if isinstance(variables, Mapping) or hasattr(variables, "index_set"):
        return model, [variables[c] for c in range(n)]
    return model, list(variables)


def _complete(model: Any, variables: list[Any], columns: Choices) -> None:
    """Add the objective if there is none, what sets demand, and the budgets that idle power alone breaks."""
    import pyomo.environ as pyo

    if next(model.component_data_objects(pyo.Objective, active=True), None) is None:
        _add_objective(model, variables, columns)
    if columns.links:
        add_share_constraints(model, variables, columns)
    broken = [row.capacity for row in columns.budgets if row.capacity < 0 and not row.use.any()]
    if broken:
        model.wattsched_nothing = pyo.Var(bounds=(0, 0))
        model.wattsched_idle = pyo.Constraint(expr=model.wattsched_nothing <= min(broken))


def _add_objective(model: Any, variables: list[Any], columns: Choices) -> None:
    import pyomo.environ as pyo

    costs = [cost * x for cost, x in zip(columns.cost.tolist(), variables, strict=True)]
    if columns.objective.combine == "sum":
        model.wattsched_cost = pyo.Objective(expr=pyo.quicksum(costs))
        return
    model.wattsched_worst = pyo.Var(bounds=bottleneck_range(columns))
    model.wattsched_no_worse = pyo.ConstraintList()
    for begin, end in zip(columns.start[:-1].tolist(), columns.start[1:].tolist(), strict=True):
        model.wattsched_no_worse.add(pyo.quicksum(costs[begin:end]) <= model.wattsched_worst)
    model.wattsched_cost = pyo.Objective(expr=model.wattsched_worst)


def _places(variables: list[Any], column_of: Mapping[int, int], source: str) -> IntArray:
    """Column of every choice variable."""
    for choice, variable in enumerate(variables):
        if id(variable) not in column_of:
            fault = f"variable '{variable}' of choice {choice} is in no constraint and not in the objective"
            raise InputError([fault], source)
    return np.array([column_of[id(variable)] for variable in variables], dtype=np.int64)
