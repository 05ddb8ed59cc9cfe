"""Rows, free columns and costs scaled by powers of two, which loses no bit.

HiGHS: the LP relaxation for prices, then branch and cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import highspy
import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.rows import feasible, settled, tightened, with_choice_rows
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Solution,
    Start,
    Termination,
    announce,
    certified,
    conclude,
    infeasible,
    rounded,
    unsupported,
    wanted,
)
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# Solvers' tolerances are absolute and meant for costs of about this size.
_COST_RANGE = (1.0, 2.0**20)
_COST_TARGET = 2.0**10


@dataclass(frozen=True)
class ScaledModel:
    """Rows (choice rows included) whose largest coefficient is about one.

    With row factors R, column factors S and cost factor k: ``matrix = R A S``, ``cost = k S c``,
    a point of the program is ``S x`` and its row prices are ``R y / k``.
    """

    cost: FloatArray
    offset: float
    matrix: csc_array
    row_lower: FloatArray
    row_upper: FloatArray
    lower: FloatArray
    upper: FloatArray
    row_factor: FloatArray
    column_factor: FloatArray
    cost_factor: float

    def point(self, x: FloatArray) -> FloatArray:
        """Point of the program."""
        return x * self.column_factor

    def prices(self, y: FloatArray, n_rows: int) -> FloatArray:
        """Prices of the program's coupling rows."""
        return (y * self.row_factor / self.cost_factor)[:n_rows]

    def cost_of(self, value: float) -> float:
        """Cost in the program's unit."""
        return value / self.cost_factor


def scaled(program: Program) -> ScaledModel:
    """Scale rows by their integer columns, then the continuous columns, then the costs."""
    matrix, row_lower, row_upper = with_choice_rows(program)
    size = np.abs(matrix.data)
    column = np.repeat(np.arange(program.n_columns), np.diff(matrix.indptr))
    whole = program.integer[column]

    row_size = _largest(size[whole], matrix.indices[whole], len(row_lower))
    row_size = np.where(row_size > 0, row_size, _largest(size, matrix.indices, len(row_lower)))
    row_factor = _power_of_two(1.0 / np.where(row_size > 0, row_size, 1.0))

    continuous = ~whole
    column_size = _largest(
        (size * row_factor[matrix.indices])[continuous], column[continuous], program.n_columns
    )
    column_factor = _power_of_two(1.0 / np.where(column_size > 0, column_size, 1.0))

    cost = program.cost * column_factor
    largest = float(np.max(np.abs(cost), initial=0.0))
    inside = largest == 0 or _COST_RANGE[0] <= largest <= _COST_RANGE[1]
    cost_factor = 1.0 if inside else float(_power_of_two(np.array(_COST_TARGET / largest)))
    # The matrix was made for this model, so its values may be replaced.
    matrix.data = matrix.data * row_factor[matrix.indices] * column_factor[column]
    return ScaledModel(
        cost=cost * cost_factor,
        offset=program.offset * cost_factor,
        matrix=matrix,
        row_lower=row_lower * row_factor,
        row_upper=row_upper * row_factor,
        lower=program.lower / column_factor,
        upper=program.upper / column_factor,
        row_factor=row_factor,
        column_factor=column_factor,
        cost_factor=cost_factor,
    )


def _largest(values: FloatArray, index: np.ndarray, length: int) -> FloatArray:
    """Largest value per index, zero where there is none."""
    result = np.zeros(length)
    np.maximum.at(result, index, values)
    return result


def _power_of_two(values: FloatArray) -> FloatArray:
    return np.exp2(np.round(np.log2(values)))


# Rows are scaled so that this is relative to their largest coefficient.
_FEASIBILITY = 1e-9
_ATTEMPTS = 4
# The LP relaxation of a program with few columns is solved before presolve would be done.
_SMALL = 5_000

_Status = highspy.HighsModelStatus


@dataclass(frozen=True)
class _Run:
    """What one run of HiGHS left behind, still scaled."""

    status: Any
    detail: str
    x: FloatArray | None
    duals: FloatArray | None
    bound: float

    @property
    def limit(self) -> Limit | None:
        limits: dict[Any, Limit] = {_Status.kTimeLimit: "time", _Status.kSolutionLimit: "nodes"}
        return limits.get(self.status)


def solve(
    program: Program, limits: Limits, start: Start | None = None, target: float | None = None
) -> Solution:
    """Solve by branch and cut; see `wattsched.solvers.solution`.

    The bound is the better of branch and cut's and the one that the prices prove.

    Parameters
    ----------
    target : float, optional
        Stop at the first point that costs no more than this.
    """
    timer = Timer(limits.time_s)
    model = scaled(program)
    relaxed = _relaxation(program, model, limits, timer)
    if relaxed.termination.reason in ("infeasible", "error"):
        return relaxed
    if relaxed.x is not None and relaxed.termination.reason == "optimal":
        whole = _whole(program, relaxed.x)
        if whole is not None:
            return conclude(program, limits, whole, relaxed.bound, prices=relaxed.prices)
    announce(Solution(Termination("no_solution"), bound=relaxed.bound, prices=relaxed.prices))
    return _branch(program, model, relaxed, limits, timer, _point(program, relaxed, start), target)


def solve_lp(program: Program, limits: Limits) -> Solution:
    """Solve the LP relaxation: x may be fractional, prices are the duals of the coupling rows."""
    return _relaxation(program, scaled(program), limits, Timer(limits.time_s))


def solve_columns(program: Program, columns: IntArray, used: FloatArray) -> FloatArray | None:
    """Optimal values of some continuous columns when the others use `used` of the rows."""
    rest = Program(
        cost=program.cost[columns],
        matrix=csc_array(program.matrix[:, columns]),
        row_lower=program.row_lower - used,
        row_upper=program.row_upper - used,
        lower=program.lower[columns],
        upper=program.upper[columns],
        integer=np.zeros(len(columns), dtype=bool),
        group_start=np.zeros(1, dtype=np.int64),
        rows=program.rows,
        columns=(),
    )
    return solve_lp(rest, Limits()).x


def _relaxation(program: Program, model: ScaledModel, limits: Limits, timer: Timer) -> Solution:
    run = _run(model, np.zeros(program.n_columns, dtype=bool), limits, timer)
    if run.status == _Status.kInfeasible:
        return infeasible(detail="the LP relaxation is infeasible")
    if run.status == _Status.kUnbounded:
        return unsupported("the LP relaxation is unbounded")
    duals = None if run.duals is None else model.prices(run.duals, program.n_rows)
    prices, bound = certified(program, duals)
    if run.status != _Status.kOptimal or run.x is None:
        return Solution(
            Termination("no_solution", run.limit, f"the LP stopped: {run.detail}"), bound=bound, prices=prices
        )
    x = np.clip(model.point(run.x), program.lower, program.upper)
    return Solution(Termination("optimal"), x=x, objective=program.objective(x), bound=bound, prices=prices)


def _whole(program: Program, x: FloatArray) -> FloatArray | None:
    """Return the LP's point if it is integral and feasible."""
    if np.max(np.abs(x - np.round(x))[program.integer], initial=0.0) > 1e-9:
        return None
    point = settled(program, x)
    return point if point is not None and feasible(program, point) else None


def _point(program: Program, relaxed: Solution, start: Start | None) -> FloatArray | None:
    """Feasible point to branch from, if there is one."""
    if start is None:
        return None
    known = start.x if start.x is not None and feasible(program, start.x) else None
    if start.rule is None or relaxed.prices is None:
        return known
    found = start.rule(program, relaxed.prices)
    points = [x for x in (known, found) if x is not None]
    return min(points, key=program.objective, default=None)


def _branch(
    program: Program,
    model: ScaledModel,
    relaxed: Solution,
    limits: Limits,
    timer: Timer,
    best: FloatArray | None,
    target: float | None,
) -> Solution:
    bound = relaxed.bound
    limit: Limit | None = None
    detail = ""
    current = program
    for attempt in range(_ATTEMPTS):
        run = _run(model, program.integer, limits, timer, best, program, target)
        done = run.status in (_Status.kOptimal, _Status.kObjectiveTarget)
        limit, detail = run.limit, "" if done else run.detail
        if attempt == 0:
            if run.status == _Status.kInfeasible:
                return infeasible(relaxed.prices, "no integer point satisfies the rows")
            if run.status == _Status.kUnbounded:
                return unsupported("the program is unbounded")
            bound = max(bound, model.cost_of(run.bound))
        if run.x is None:
            break
        raw = model.point(run.x)
        point = settled(program, raw)
        if point is not None and feasible(program, point):
            if best is None or program.objective(point) < program.objective(best):
                best = point
            break
        # HiGHS used its tolerance; ask again with that much less room.
        smaller = tightened(current, np.where(program.integer, np.round(raw), raw))
        if smaller is None or timer.over():
            break
        current, model = smaller, scaled(smaller)
    return conclude(program, limits, best, bound, prices=relaxed.prices, limit=limit, detail=detail)


def _run(
    model: ScaledModel,
    integer: BoolArray,
    limits: Limits,
    timer: Timer,
    start: FloatArray | None = None,
    program: Program | None = None,
    target: float | None = None,
) -> _Run:
    solver = _loaded(model, integer)
    # The scheduler is global and keeps the thread count of its first use.
    highspy.Highs.resetGlobalScheduler(True)
    solver.setOptionValue("threads", limits.threads)
    solver.setOptionValue("random_seed", limits.seed)
    solver.setOptionValue("mip_rel_gap", limits.gap)
    solver.setOptionValue("mip_abs_gap", 0.0)
    solver.setOptionValue("mip_feasibility_tolerance", _FEASIBILITY)
    solver.setOptionValue("primal_feasibility_tolerance", _FEASIBILITY)
    solver.setOptionValue("dual_feasibility_tolerance", _FEASIBILITY)
    if len(integer) <= _SMALL and not integer.any():
        solver.setOptionValue("presolve", "off")
    if limits.nodes is not None:
        solver.setOptionValue("mip_max_nodes", limits.nodes)
    remaining_s = timer.remaining_s()
    if remaining_s is not None:
        solver.setOptionValue("time_limit", remaining_s)
    if target is not None:
        solver.setOptionValue("objective_target", target * model.cost_factor)
    if start is not None:
        columns = np.arange(len(start), dtype=np.int32)
        solver.setSolution(len(start), columns, start / model.column_factor)
    if program is not None and wanted():
        _announce_improvements(solver, model, program)
    solver.run()
    if solver.getModelStatus() == _Status.kUnboundedOrInfeasible:
        solver.setOptionValue("presolve", "off")
        solver.run()
    return _outcome(solver, bool(integer.any()))


def _loaded(model: ScaledModel, integer: BoolArray) -> highspy.Highs:
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    matrix = model.matrix
    status = solver.passModel(
        matrix.shape[1],
        matrix.shape[0],
        matrix.nnz,
        int(highspy.MatrixFormat.kColwise),
        int(highspy.ObjSense.kMinimize),
        model.offset,
        model.cost,
        model.lower,
        model.upper,
        model.row_lower,
        model.row_upper,
        matrix.indptr.astype(np.int32),
        matrix.indices.astype(np.int32),
        matrix.data,
        integer.astype(np.int32),
    )
    if status == highspy.HighsStatus.kError:
        raise ValueError("HiGHS rejects the program's arrays")
    return solver


def _outcome(solver: highspy.Highs, mip: bool) -> _Run:
    status = solver.getModelStatus()
    info = solver.getInfo()
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    solution = solver.getSolution()
    # An LP's last point is no use before it is optimal, its duals always are.
    x = np.asarray(solution.col_value) if found and (mip or status == _Status.kOptimal) else None
    duals = np.asarray(solution.row_dual) if solution.dual_valid and not mip else None
    bound = info.mip_dual_bound if mip else -np.inf
    return _Run(status, solver.modelStatusToString(status).lower(), x, duals, bound)


def _announce_improvements(solver: highspy.Highs, model: ScaledModel, program: Program) -> None:
    # Settling several columns would run HiGHS inside HiGHS.
    alone = np.count_nonzero(~program.integer) <= 1

    def improved(event: Any) -> None:
        raw = model.point(np.array(event.data_out.mip_solution))
        point = settled(program, raw) if alone else rounded(program, raw)
        if point is not None and feasible(program, point):
            bound = model.cost_of(event.data_out.mip_dual_bound)
            objective = program.objective(point)
            announce(
                Solution(Termination("feasible"), x=point, objective=objective, bound=min(bound, objective))
            )

    solver.cbMipImprovingSolution.subscribe(improved)
