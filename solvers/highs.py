"""HiGHS: the LP relaxation for prices, then branch and cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import highspy
import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers.effort import spend
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

# Share of the distance from the best point to the target below which the remaining gap is not worth closing.
_LEAST_GAIN = 0.1


def solve(
    program: Program,
    limits: Limits,
    start: Start | None = None,
    target: float | None = None,
    *,
    part: bool = False,
) -> Solution:
    """Solve by branch and cut; see `wattsched.solvers.solution`.

    The bound is the better of that of branch and cut and the one that the prices prove.

    Parameters
    ----------
    target : float, optional
        Stop at the first point that costs no more than this.
    part : bool
        The program is a restriction of another, so that its own bound is of no use: once the bound shows that
        no point reaches the target, stop when the best point can improve little towards it.
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
    announce(relaxed.bound, relaxed.prices, at_root=True)
    start = start or Start()
    candidates = [start.x]
    if start.rule is not None and relaxed.prices is not None:
        candidates.append(start.rule(program, relaxed.prices))
    points = [x for x in candidates if x is not None and feasible(program, x)]
    best = min(points, key=program.objective, default=None)

    def branch(current: Program) -> Answer:
        """Branch and cut from the best point; announce improvements, unscaled."""
        scaling = model if current is program else scaled(current)
        solver = loaded(scaling, limits, timer)
        if best is not None or target is not None:
            # A first point is of no use, and takes a fifth of the time of small programs.
            solver.setOptionValue("mip_heuristic_run_feasibility_jump", False)
        if target is not None:
            solver.setOptionValue("objective_target", target * scaling.cost_factor)
            if part:
                solver.cbMipInterrupt.subscribe(_stop_when_out_of_reach(target * scaling.cost_factor))
        if best is not None:
            columns = np.arange(len(best), dtype=np.int32)
            solver.setSolution(len(best), columns, best / scaling.column_factor)

        def improved(event: Any) -> None:
            data = event.data_out
            point = scaling.point(np.array(data.mip_solution))
            announce_point(program, point, scaling.cost_of(data.mip_dual_bound), {})

        if has_listener():
            solver.cbMipImprovingSolution.subscribe(with_listener(improved))
            if current is program:
                solver.cbMipInterrupt.subscribe(_bounds_announced(scaling, relaxed.bound))
        return _answer(solver, scaling, program, relaxed)

    return solve_as_written(program, limits, branch, timer, relaxed=relaxed, best=best)


def _bounds_announced(scaling: ScaledModel, known: float) -> Callable[[Any], None]:
    """Return a callback that announces bounds, each above the one before, of which the first is `known`."""

    def raised(event: Any) -> None:
        nonlocal known
        data = event.data_out
        bound = scaling.cost_of(data.mip_dual_bound)
        if known < bound < np.inf:
            known = bound
            announce(bound, at_root=data.mip_node_count == 0)

    return with_listener(raised)


def _stop_when_out_of_reach(target: float) -> Callable[[Any], None]:
    """Return a callback that interrupts when the target is out of reach and the remaining gap is small."""

    def interrupt(event: Any) -> None:
        best, bound = event.data_out.mip_primal_bound, event.data_out.mip_dual_bound
        if np.isfinite(best) and bound > target and best - bound <= _LEAST_GAIN * (best - target):
            event.interrupt()

    return interrupt


def _answer(solver: highspy.Highs, model: ScaledModel, program: Program, relaxed: Solution) -> Answer:
    """Run HiGHS and collect its point, bound and status."""
    status = run(solver)
    spend(nodes=max(0, solver.getInfo().mip_node_count))
    if status == Status.kInfeasible:
        # Presolve declares some programs infeasible whose points meet limits exactly.
        solver.setOptionValue("presolve", "off")
        status = run(solver)
    if status == Status.kInfeasible:
        return Answer(verdict=infeasible(relaxed.prices, "no integer point satisfies the rows"))
    if status == Status.kUnbounded:
        return Answer(verdict=unsupported(UNBOUNDED))
    done = status in (Status.kOptimal, Status.kObjectiveTarget)
    # An LP has a usable point only when it is optimal, and HiGHS states no bound for it.
    mip = bool(program.integer.any())
    usable = has_point(solver) and (mip or status == Status.kOptimal)
    return Answer(
        x=model.point(np.asarray(solver.getSolution().col_value)) if usable else None,
        bound=model.cost_of(solver.getInfo().mip_dual_bound) if mip else -np.inf,
        limit=LIMITS.get(status),
        detail="" if done else status_name(solver),
    )
