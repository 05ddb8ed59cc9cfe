"""HiGHS on programs scaled by powers of two, which loses no bit; the LP relaxation and its prices."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np

from wattsched.formulations import master
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers.rows import with_choice_rows
from wattsched.solvers.solution import (
    UNBOUNDED,
    Limit,
    Limits,
    Solution,
    Termination,
    certified,
    infeasible,
    log,
    unsupported,
    without_columns,
)
from wattsched.topology.arrays import BoolArray, FloatArray, largest_by, least_by

Status = highspy.HighsModelStatus
LIMITS: dict[Any, Limit] = {
    Status.kTimeLimit: "time",
    Status.kInterrupt: "time",
    Status.kSolutionLimit: "nodes",
}
"""Limits by the statuses that tell of them."""
# Solvers' tolerances are absolute and meant for costs of about this size.
_COST_RANGE = (1.0, 2.0**20)
_COST_TARGET = 2.0**10
# HiGHS takes smaller coefficients for 0, and lets nobody ask for less.
_LEAST_ENTRY = 1e-12
# Tolerances take a column of which all is less for none at all.
_LEAST_RANGE = 1e-6
# The LP relaxation of a program with few columns is solved before presolve would be done.
_SMALL = 5_000
# A rule of HiGHS 1.13.1 that loses the optimum of some programs whose integer columns are not all binary.
_AGGREGATOR = 1 << 12
# With so many columns to a row, HiGHS's presolve may compare pairs of them for minutes, whatever the limit.
_WIDE = 250


def solve_lp(program: Program, limits: Limits) -> Solution:
    """Solve the LP relaxation: x may be fractional, prices are the duals of the coupling rows."""
    return relaxation(program, scaled(program), limits, Timer(limits.time_s))


def relaxation(program: Program, model: ScaledModel, limits: Limits, timer: Timer) -> Solution:
    """Solve the LP relaxation of a program that is scaled already."""
    if program.n_columns == 0:
        return without_columns(program, limits)
    solver = loaded(model, limits, timer, relaxed=True)
    status = run(solver)
    if status == Status.kInfeasible:
        return infeasible(detail="the LP relaxation is infeasible")
    if status == Status.kUnbounded:
        return unsupported(UNBOUNDED)
    # The last point is no use before it is optimal, the duals always are.
    solution = solver.getSolution()
    duals = model.prices(np.asarray(solution.row_dual), program.n_rows) if solution.dual_valid else None
    prices, bound = certified(program, duals)
    if status != Status.kOptimal or not has_point(solver):
        stopped = Termination("no_solution", LIMITS.get(status), f"the LP stopped: {status_name(solver)}")
        return Solution(stopped, bound=bound, prices=prices)
    x = np.clip(model.point(np.asarray(solution.col_value)), program.lower, program.upper)
    return Solution(Termination("optimal"), x=x, objective=program.objective(x), bound=bound, prices=prices)


@dataclass(frozen=True)
class ScaledModel:
    """Rows (choice rows included) whose largest coefficient is about one.

    With row factors R, column factors S and cost factor k, `program` has ``matrix = R A S`` and
    ``cost = k S c``; a point of the program that was scaled is ``S x``, its row prices are ``R y / k``.
    """

    program: Program
    row_factor: FloatArray
    column_factor: FloatArray
    cost_factor: float

    def point(self, x: FloatArray) -> FloatArray:
        """Point of the program that was scaled."""
        return x * self.column_factor

    def prices(self, y: FloatArray, n_rows: int) -> FloatArray:
        """Prices of the coupling rows of the program that was scaled, of which there are `n_rows`."""
        return (y * self.row_factor / self.cost_factor)[:n_rows]

    def cost_of(self, value: float) -> float:
        """Cost in its unit."""
        return value / self.cost_factor


def scaled(program: Program, least: float | None = None) -> ScaledModel:
    """Scale rows by their integer columns, then the continuous columns, then the costs.

    Parameters
    ----------
    least : float, optional
        Smaller coefficients are nothing to the solver; by default what HiGHS takes for nothing, and where
        all columns are continuous, and may be small, what its tolerances do.
    """
    if least is None:
        least = _LEAST_ENTRY if program.integer.any() else VIOLATION
    explicit = with_choice_rows(program)
    matrix, n_rows = explicit.matrix, explicit.n_rows
    size = np.abs(matrix.data)
    column = np.repeat(np.arange(program.n_columns), np.diff(matrix.indptr))
    whole = program.integer[column]

    row_size = largest_by(matrix.indices[whole], size[whole], n_rows)
    row_size = np.where(row_size > 0, row_size, largest_by(matrix.indices, size, n_rows))
    row_factor = _power_of_two(1.0 / np.where(row_size > 0, row_size, 1.0))

    in_rows = (size * row_factor[matrix.indices])[~whole]
    column_size = largest_by(column[~whole], in_rows, program.n_columns)
    column_least = least_by(column[~whole], np.where(in_rows > 0.0, in_rows, np.inf), program.n_columns)
    # Its least entry is to be seen, unless beside integers all that the column may be would then be nothing.
    least_range = _LEAST_RANGE if program.integer.any() else 0.0
    is_seen = program.upper * np.where(np.isfinite(column_least), column_least, 1.0) >= least_range
    hidden = (column_least < 10.0 * least * column_size) & is_seen
    column_size = np.where(hidden, column_least, column_size)
    column_factor = _power_of_two(1.0 / np.where(column_size > 0, column_size, 1.0))
    row_size = largest_by(matrix.indices[~whole], in_rows * column_factor[column[~whole]], n_rows)
    # Of rows without integer columns the limits count, too: tolerances are nothing beside large ones.
    limit = np.maximum(
        *(np.where(np.isfinite(v), np.abs(v), 0.0) for v in (explicit.row_lower, explicit.row_upper))
    )
    continuous = np.bincount(matrix.indices[whole], minlength=n_rows) == 0
    row_size = np.where(continuous, np.maximum(row_size, limit * row_factor), row_size)
    row_factor *= np.where(row_size > 2.0, _power_of_two(1.0 / np.maximum(row_size, 1.0)), 1.0)

    cost = program.cost * column_factor
    largest = float(np.max(np.abs(cost), initial=0.0))
    inside = largest == 0 or _COST_RANGE[0] <= largest <= _COST_RANGE[1]
    cost_factor = 1.0 if inside else float(_power_of_two(np.array(min(_COST_TARGET / largest, 1e300))))
    matrix.data = matrix.data * row_factor[matrix.indices] * column_factor[column]
    model = replace(
        explicit,
        cost=cost * cost_factor,
        offset=program.offset * cost_factor,
        row_lower=explicit.row_lower * row_factor,
        row_upper=explicit.row_upper * row_factor,
        lower=program.lower / column_factor,
        upper=program.upper / column_factor,
    )
    return ScaledModel(model, row_factor, column_factor, cost_factor)


def _power_of_two(values: FloatArray) -> FloatArray:
    return np.exp2(np.round(np.log2(values)))


def loaded(model: ScaledModel, limits: Limits, timer: Timer, *, relaxed: bool = False) -> highspy.Highs:
    """HiGHS with a model, or with its LP relaxation, these limits, and the time that the timer leaves."""
    solver, lp = highspy.Highs(), model.program
    _pass_log_on(solver)
    solver.setOptionValue("small_matrix_value", _LEAST_ENTRY)
    integer = np.zeros(lp.n_columns, dtype=bool) if relaxed else lp.integer
    status = solver.passModel(
        lp.n_columns,
        lp.n_rows,
        lp.matrix.nnz,
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        lp.offset,
        lp.cost,
        lp.lower,
        lp.upper,
        lp.row_lower,
        lp.row_upper,
        lp.matrix.indptr.astype(np.int32),
        lp.matrix.indices.astype(np.int32),
        lp.matrix.data,
        integer.astype(np.int32),
    )
    if status == highspy.HighsStatus.kError:
        raise ValueError("HiGHS rejects the program's arrays")
    options = {
        "threads": limits.threads,
        "random_seed": limits.seed,
        "mip_rel_gap": limits.gap,
        "mip_abs_gap": 0.0,
        "mip_feasibility_tolerance": VIOLATION,
        "primal_feasibility_tolerance": VIOLATION,
        "dual_feasibility_tolerance": VIOLATION,
        "presolve": "off" if _without_presolve(lp, integer) else None,
        "presolve_rule_off": _AGGREGATOR if (lp.upper - lp.lower)[integer].max(initial=0.0) > 1.0 else None,
        "mip_max_nodes": limits.nodes,
        "time_limit": timer.remaining_s(),
    }
    for name, value in options.items():
        if value is not None:
            solver.setOptionValue(name, value)
    return solver


def _pass_log_on(solver: highspy.Highs) -> None:
    """Pass HiGHS's log to this context's reader; without one it prints nothing."""
    take = log()
    solver.setOptionValue("output_flag", take is not None)
    if take is not None:
        # HiGHS passes to callbacks only what it also writes somewhere.
        solver.setOptionValue("log_to_console", False)
        solver.setOptionValue("log_file", os.devnull)
        solver.cbLogging.subscribe(lambda event: take(event.message))


def _without_presolve(lp: Program, integer: BoolArray) -> bool:
    """True if presolve is not worth its time, or not safe.

    With continuous columns that may be negative HiGHS 1.13.1 loses the optimum of some mixed programs.
    """
    if not integer.any():
        return len(integer) <= _SMALL
    if len(integer) > max(_SMALL, _WIDE * lp.n_rows):
        return True
    return bool((lp.lower[~integer] < 0).any())


def run(solver: highspy.Highs) -> Any:
    """Run HiGHS and return the model's status."""
    master.run(solver)
    if solver.getModelStatus() == Status.kUnboundedOrInfeasible:
        solver.setOptionValue("presolve", "off")
        master.run(solver)
    return solver.getModelStatus()


def has_point(solver: highspy.Highs) -> bool:
    """True if HiGHS holds a feasible point."""
    found = solver.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    return bool(found)


def status_name(solver: highspy.Highs) -> str:
    """HiGHS's word for how it ended."""
    return str(solver.modelStatusToString(solver.getModelStatus())).lower()
