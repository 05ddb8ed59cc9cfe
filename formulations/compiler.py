"""Compiler of Pyomo models to Programs, so that every solver can run an algebraic formulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from wattsched.formulations.program import Block, Program
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, offsets


def compile_model(model: Any, sense: str | None = None) -> tuple[Program, dict[int, int]]:
    """Compile a linear Pyomo model.

    Equality rows ``sum of binaries = 1`` that share no variable with one another become choice groups; the
    columns are reordered so that the groups come first.

    Parameters
    ----------
    model : pyomo.environ.ConcreteModel
        With one active objective, linear constraints and bounded integer variables.
    sense : {"min", "max"}, optional
        Direction in which the objective reads; default: that of the model's objective.

    Returns
    -------
    program : Program
    column_of : dict
        ``id`` of a Pyomo variable to its column. Variables that appear in no constraint and not in the
        objective have none.

    Raises
    ------
    ValueError
        If the model is not linear or has not exactly one objective.
    """
    import pyomo.environ as pyo
    from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

    objectives = list(model.component_data_objects(pyo.Objective, active=True))
    if len(objectives) != 1:
        raise ValueError(f"the Pyomo model has {len(objectives)} active objectives, it needs exactly one")
    maximise = objectives[0].sense == pyo.maximize
    try:
        form = LinearStandardFormCompiler().write(model, mixed_form=True)
    except Exception as error:  # Pyomo raises many kinds here; the caller needs one sentence
        raise ValueError(f"the Pyomo model is not linear: {error}") from None
    matrix = form.A.tocsr()
    variables = form.columns
    lower = np.array([-np.inf if v.lb is None else v.lb for v in variables], dtype=float)
    upper = np.array([np.inf if v.ub is None else v.ub for v in variables], dtype=float)
    integer = np.array([v.is_integer() or v.is_binary() for v in variables], dtype=bool)
    # Mixed form: bound_type -1, 0, 1 stands for >=, ==, <=; the objective is already to be minimised.
    kinds = np.array([row.bound_type for row in form.rows], dtype=np.int64)
    rhs = np.asarray(form.rhs, dtype=float)
    cost = np.asarray(form.c.todense(), dtype=float).reshape(-1)
    offset = float(np.asarray(form.c_offset).reshape(-1)[0])
    _require_numbers(form, matrix, rhs, cost, offset)
    groups = choice_rows(matrix, rhs, kinds == 0, integer & (lower == 0) & (upper == 1))
    order, group_start = _groups_first(matrix, groups, len(variables))
    keep = np.setdiff1d(np.arange(len(rhs)), groups)
    program = Program(
        cost=cost[order],
        matrix=matrix[keep][:, order].tocsc(),
        row_lower=np.where(kinds[keep] <= 0, rhs[keep], -np.inf),
        row_upper=np.where(kinds[keep] >= 0, rhs[keep], np.inf),
        lower=lower[order],
        upper=upper[order],
        integer=integer[order],
        group_start=group_start,
        rows=(Block.named("row", _row_names([form.rows[i].constraint.name for i in keep])),),
        columns=(Block.named("column", [variables[i].name for i in order]),),
        offset=offset,
        sense="max" if (sense or ("max" if maximise else "min")) == "max" else "min",
    )
    return program, {id(variables[i]): place for place, i in enumerate(order)}


def _require_numbers(form: Any, matrix: Any, rhs: FloatArray, cost: FloatArray, offset: float) -> None:
    """Raise a ValueError for coefficients that are no finite numbers: solvers take them for anything."""
    wrong = ~np.isfinite(rhs)
    wrong[np.repeat(np.arange(len(rhs)), np.diff(matrix.indptr))[~np.isfinite(matrix.data)]] = True
    if wrong.any():
        name = form.rows[int(np.argmax(wrong))].constraint.name
        raise ValueError(
            f"constraint '{name}' of the Pyomo model has a coefficient that is not a finite number"
        )
    if not np.isfinite(cost).all() or not np.isfinite(offset):
        raise ValueError("the objective of the Pyomo model has a coefficient that is not a finite number")


def _row_names(names: list[str]) -> list[str]:
    """Names made unique: Pyomo gives a range constraint two rows of one name."""
    return [
        f"{name}:lower" if i and names[i - 1] == name else name  # the two rows stand next to each other
        for i, name in enumerate(names)
    ]


def choice_rows(matrix: Any, rhs: FloatArray, equality: BoolArray, binary: BoolArray) -> IntArray:
    """Rows that say "exactly one of these binaries", taken greedily so that they share no column."""
    used = np.zeros(matrix.shape[1], dtype=bool)
    chosen = []
    for i in np.flatnonzero(equality & (rhs == 1.0)):
        span = slice(matrix.indptr[i], matrix.indptr[i + 1])
        columns = matrix.indices[span]
        if (
            len(columns)
            and (matrix.data[span] == 1.0).all()
            and binary[columns].all()
            and not used[columns].any()
        ):
            used[columns] = True
            chosen.append(i)
    return np.array(chosen, dtype=np.int64)


def _groups_first(matrix: Any, groups: IntArray, n: int) -> tuple[IntArray, IntArray]:
    """Order of n columns in which those of the rows `groups` come first, and where each group starts."""
    members = [np.sort(matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]) for i in groups]
    start = offsets([len(m) for m in members])
    first = np.concatenate([np.empty(0, dtype=np.int64), *members]).astype(np.int64)
    rest = np.setdiff1d(np.arange(n), first)
    return np.concatenate([first, rest]).astype(np.int64), start
