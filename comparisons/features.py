"""Features of instances under a formulation: what may explain why one solver is quicker than another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np

from wattsched.comparisons.run import Case, Settings
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.report.wording import printable
from wattsched.results.problems import problem
from wattsched.solvers.lp import Status, loaded, run, scaled
from wattsched.solvers.solution import Limits
from wattsched.solving.engine import model_of

# At a bound, and without reduced cost, to the tolerances of HiGHS; programs are scaled.
_AT_BOUND, _NO_COST = 1e-7, 1e-7


@dataclass(frozen=True)
class Features:
    """Sizes of a program, and what the optimum of its LP relaxation tells.

    Attributes
    ----------
    columns, rows, nonzeros, groups, integers : int, optional
        Sizes; choice groups are no rows.
    lp_objective : float, optional
        Optimum of the LP relaxation, in the objective's own sense; what follows is known with it.
    lp_gap : float, optional
        ``|best - lp_objective| / max(1e-9, |best|)``, of the best objective of all runs.
    binding_rows : int, optional
        Rows at a limit.
    degenerate : float, optional
        Share of the basic columns and rows that are at a bound: of a degenerate basis above 0.
    tied : float, optional
        Share of the others that cost nothing to bring in: above 0 there may be several optima.
    lp_s : float, optional
        Seconds of the LP.
    detail : str
        Why something is missing.
    """

    instance: str
    formulation: str
    columns: int | None = None
    rows: int | None = None
    nonzeros: int | None = None
    groups: int | None = None
    integers: int | None = None
    lp_objective: float | None = None
    lp_gap: float | None = None
    binding_rows: int | None = None
    degenerate: float | None = None
    tied: float | None = None
    lp_s: float | None = None
    detail: str = ""


def features_of(case: Case, instance: Any, formulation: str, settings: Settings) -> Features:
    """Build the program of an instance and solve its LP relaxation, within the time limit of a run."""
    goal = case.objective if settings.objective is None else settings.objective
    timer = Timer(settings.time_limit_s)
    try:
        model = model_of(instance, formulation=formulation, objective=goal, timer=timer)
        program, rules = model.listed, problem(case.problem)
        sign = -1.0 if rules.objectives[rules.objective(goal)] == "max" else 1.0
        known: dict[str, Any] = {"groups": program.n_groups, "integers": int(program.integer.sum())}
        known |= {"columns": program.n_columns, "rows": program.n_rows, "nonzeros": program.nonzeros}
        return Features(case.label, formulation, **known, **relaxation_features(program, sign, timer))
    # A formulation that cannot take an instance, or fails, has no features there.
    except Exception as error:
        return Features(case.label, formulation, detail=printable(f"{type(error).__name__}: {error}"))


def relaxation_features(program: Program, sign: float, timer: Timer) -> dict[str, Any]:
    """Features of the optimum of the LP relaxation; `sign` turns its cost into an objective."""
    if program.n_columns == 0:
        return {"detail": "there are no columns"}
    upper = program.upper.copy()
    # Implied by the rows of groups: as bounds they would make nearly every basis degenerate.
    upper[: program.n_choices][upper[: program.n_choices] >= 1.0] = np.inf
    begin_s, model = timer.elapsed_s(), scaled(replace(program, upper=upper))
    solver = loaded(model, Limits(), timer, relaxed=True)
    if run(solver) != Status.kOptimal:
        return {"detail": "the LP relaxation was not solved in time, or has no optimum"}
    basis, found, lp = solver.getBasis(), solver.getSolution(), model.program
    basic = np.array([*basis.col_status, *basis.row_status]) == highspy.HighsBasisStatus.kBasic
    value = np.concatenate([found.col_value, found.row_value])
    limits = np.concatenate([[lp.lower, lp.upper], [lp.row_lower, lp.row_upper]], axis=1)
    size = np.where(np.isfinite(limits), np.maximum(1.0, np.abs(limits)), 1.0)
    at_bound = np.any(np.abs(value - limits) <= _AT_BOUND * size, axis=0)
    free = np.abs(np.concatenate([found.col_dual, found.row_dual])) <= _NO_COST
    # What is fixed, such as the rows of groups, cannot be brought in.
    movable = ~basic & (limits[0] < limits[1])
    rows = slice(program.n_columns, program.n_columns + program.n_rows)
    return {
        "lp_objective": sign * model.cost_of(solver.getInfo().objective_function_value),
        "binding_rows": int(at_bound[rows].sum()),
        "degenerate": float(at_bound[basic].mean()),
        "tied": float(free[movable].mean()) if movable.any() else 0.0,
        "lp_s": timer.elapsed_s() - begin_s,
    }
