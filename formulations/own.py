"""Users' formulations and rules of any problem: functions of an instance, which return decisions as in files.

A formulation returns a linear Pyomo model, and a function without arguments that reads the decision off the
model's variables. One that leaves out decisions says so by an attribute ``restricted``: its bound is then
none. A rule returns a decision.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from wattsched.formulations.external import External, blaming
from wattsched.formulations.model import Model
from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError, validated
from wattsched.topology.arrays import FloatArray


def takes_instance(external: External) -> bool:
    """True if the first argument of a user's function is called ``instance``: it is a rule, and no solver."""
    return next(iter(inspect.signature(external.function).parameters), "") == "instance"


def decision_of(kind: type[Any], made: Any, source: str) -> Any:
    """Decision of a problem that a user's code made: as it is, or of the fields of a file."""
    if isinstance(made, kind) or made is None:
        return made
    try:
        return validated(kind, made)
    except InputError as error:
        raise InputError([f"the decision returned: {fault}" for fault in error.faults], source) from None


def rule(external: External, kind: type[Any], instance: Any) -> Any:
    """Decision that a user's rule makes of an instance, None where it makes none."""
    with blaming(external.source):
        return decision_of(kind, external(instance), external.source)


def adapter(kind: type[Any]) -> Callable[[External], Callable[..., Model[Any]]]:
    """Adapter of users' formulations of a problem with decisions of this kind."""
    return lambda external: partial(_build, kind, external)


def _build(
    kind: type[Any], external: External, data: Any, objective: str, timer: Timer | None = None
) -> Model[Any]:
    """Build the model of a user's formulation; a fault in its code is said to be of its source."""
    from wattsched.formulations.compiler import compile_model

    with blaming(external.source):
        made = external(data.instance)
        if not isinstance(made, tuple) or len(made) != 2 or not callable(made[1]):
            raise TypeError("a formulation must return a Pyomo model, and a function that reads the decision")
        model, read = made
        program, column_of = compile_model(model)

    def decode(x: FloatArray, starts: object) -> Any:
        """Decision that the user's function reads of the variables."""
        import pyomo.environ as pyo

        with blaming(external.source):
            for variable in model.component_data_objects(pyo.Var):
                column = column_of.get(id(variable))
                value = 0.0 if column is None else float(x[column])
                variable.set_value(round(value) if variable.is_integer() else value, skip_validation=True)
            return decision_of(kind, read(), external.source)

    restricted = bool(getattr(external.function, "restricted", False))
    return Model(program, decode, outside=-math.inf if restricted else math.inf)
