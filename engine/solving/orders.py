"""Objectives in order: each is optimised among the decisions that give up little of those before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import require_range
from wattsched.results.problems import Problem
from wattsched.results.result import Result
from wattsched.verification.orders import limit_after, tighter

LEAST_S = 1e-3


def in_order(
    problem: Problem[Any, Any, Any],
    instance: Any,
    objectives: Sequence[str],
    tolerance: float,
    solve: Callable[..., Result],
    timer: Timer,
    initial_solution: Any = None,
) -> Result:
    """Solve an instance for one objective after the other.

    Parameters
    ----------
    objectives : sequence of str
        The first counts most.
    tolerance : float
        Share of its value by which each may be worse afterwards.
    solve : callable
        Takes an instance, `objective`, `time_limit` and `initial_solution`.
    timer : Timer
        Stages to come share what is left of it.

    Returns
    -------
    Result
        Of the last objective, with those before as its `stages`; of an earlier one where the next found no
        decision in time.

    Raises
    ------
    ValueError
        For unknown objectives, and one named twice.
    """
    names = require_order(problem, objectives)
    stages, limits, start = list[Result](), dict[str, float](), initial_solution
    for place, name in enumerate(names):
        share = timer.share(1.0 / (len(names) - place))
        limit_s = None if share.limit_s is None else max(LEAST_S, share.remaining_s() or 0.0)
        of = problem.limited(instance, limits) if limits else instance
        result = solve(of, objective=name, time_limit=limit_s, initial_solution=start)
        result = result.model_copy(update={"limits": dict(limits)})
        if result.objective is None:
            break
        stages.append(result)
        sense = problem.objectives[name]
        limits[name] = tighter(limits.get(name), limit_after(result.objective, sense, tolerance), sense)
        start = result
    else:
        return _after(stages.pop(), stages, tolerance)
    if not stages:
        return result
    last = stages.pop()
    told = f"'{name}' was not looked at: {result.termination.detail or result.termination.reason}"
    ended = last.termination.model_copy(update={"detail": told})
    return _after(last.model_copy(update={"termination": ended}), stages, tolerance)


def require_order(problem: Problem[Any, Any, Any], objectives: Sequence[str]) -> list[str]:
    """Return the names of objectives as they are called today; a ValueError where they cannot follow."""
    names = [problem.objective(name) for name in objectives]
    require_range(len(set(names)) == len(names), "objective", "different names", ", ".join(names))
    return names


def _after(result: Result, stages: list[Result], tolerance: float) -> Result:
    return result.model_copy(update={"stages": stages, "tolerance": tolerance}) if stages else result
