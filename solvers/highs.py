"""HiGHS: the LP relaxation for prices, then branch and cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import highspy
import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers.lp import (
    LIMITS,
    ScaledModel,
    Status,
    has_point,
    loaded,
    relaxation,
    run,
    scaled,
    status_name,
)
from wattsched.solvers.points import Answer, announce_point, feasible, feasible_point, solve_as_written
from wattsched.solvers.solution import (
    UNBOUNDED,
    Limits,
    Solution,
    Start,
    announce,
    conclude,
    has_listener,
    infeasible,
    unsupported,
    with_listener,
)

# What is little of what a point lacks.
_LITTLE = 0.1


def solve(
    program: Program,
    limits: Limits,
    start: Start | None = None,
    target: float | None = None,
    *,
    part: bool = False,
) -> Solution:
    """Solve by branch and cut; see `wattsched.solvers.solution`.

    The bound is the better of branch and cut's and the one that the prices prove.

    Parameters
    ----------
    target : float, optional
        Stop at the first point that costs no more than this.
    part : bool
        What is proven of the program is of no use: where it has no such point, stop when there is little to
        gain of what points lack.
    """
    timer = Timer(limits.time_s)
    model = scaled(program)
    relaxed = relaxation(program, model, limits, timer)
    if relaxed.termination.reason in ("infeasible", "error"):
        return relaxed
    x = relaxed.x
    if x is not None and np.max(np.abs(x - np.round(x))[program.integer], initial=0.0) <= VIOLATION:
        whole = feasible_point(program, x)
        if whole is not None:
            return conclude(program, limits, whole, relaxed.bound, relaxed.prices)
    announce(relaxed.bound, relaxed.prices)
    start = start or Start()
    known = [start.x]
    if start.rule is not None and relaxed.prices is not None:
        known.append(start.rule(program, relaxed.prices))
    points = [x for x in known if x is not None and feasible(program, x)]
    best = min(points, key=program.objective, default=None)

    def branch(current: Program) -> Answer:
        """Branch and cut from the best point; improvements are announced as points of the program itself."""
        scaling = model if current is program else scaled(current)
        solver = loaded(scaling, limits, timer)
        if best is not None or target is not None:
            # It looks for a first point, which is of no use, and takes a fifth of the time of small programs.
            solver.setOptionValue("mip_heuristic_run_feasibility_jump", False)
        if target is not None:
            solver.setOptionValue("objective_target", target * scaling.cost_factor)
            if part:
                solver.cbMipInterrupt.subscribe(_not_worth(target * scaling.cost_factor))
        if best is not None:
            columns = np.arange(len(best), dtype=np.int32)
            solver.setSolution(len(best), columns, best / scaling.column_factor)

        def improved(event: Any) -> None:
            data = event.data_out
            point = scaling.point(np.array(data.mip_solution))
            announce_point(program, point, scaling.cost_of(data.mip_dual_bound), {})

        if has_listener():
            solver.cbMipImprovingSolution.subscribe(with_listener(improved))
        return _answer(solver, scaling, program, relaxed)

    return solve_as_written(program, limits, branch, timer, relaxed=relaxed, best=best)


def _not_worth(target: float) -> Callable[[Any], None]:
    """Interrupt branch and cut where the target is missed and most of what can be gained is."""

    def look(event: Any) -> None:
        best, bound = event.data_out.mip_primal_bound, event.data_out.mip_dual_bound
        if np.isfinite(best) and bound > target and best - bound <= _LITTLE * (best - target):
            event.interrupt()

    return look


def _answer(solver: highspy.Highs, model: ScaledModel, program: Program, relaxed: Solution) -> Answer:
    """Run HiGHS and take over what it leaves behind."""
    status = run(solver)
    if status == Status.kInfeasible:
        # Presolve takes some programs whose limits are met exactly for infeasible.
        solver.setOptionValue("presolve", "off")
        status = run(solver)
    if status == Status.kInfeasible:
        return Answer(verdict=infeasible(relaxed.prices, "no integer point satisfies the rows"))
    if status == Status.kUnbounded:
        return Answer(verdict=unsupported(UNBOUNDED))
    done = status in (Status.kOptimal, Status.kObjectiveTarget)
    # Of an LP the last point is no use before it is optimal, and no bound is stated.
    mip = bool(program.integer.any())
    found = has_point(solver) and (mip or status == Status.kOptimal)
    return Answer(
        x=model.point(np.asarray(solver.getSolution().col_value)) if found else None,
        bound=model.cost_of(solver.getInfo().mip_dual_bound) if mip else -np.inf,
        limit=LIMITS.get(status),
        detail="" if done else status_name(solver),
    )
