"""Repair of a solver's almost feasible point into one that satisfies the program as written."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from wattsched.formulations.kinds import KindProgram
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import restricted
from wattsched.solvers.solution import Limit, Limits, Solution, announce, announcing_under, conclude
from wattsched.topology.arrays import FloatArray

_ATTEMPTS = 4


def feasible(program: Program | KindProgram, x: Any) -> bool:
    """True if the point satisfies everything up to rounding."""
    return bool(np.all(np.isfinite(x))) and program.violation(x) <= VIOLATION


def feasible_point(program: Program, x: FloatArray) -> FloatArray | None:
    """Round the integer columns of a point and make its continuous columns optimal for them.

    Solvers return integer columns up to a tolerance, and the continuous columns fit those. None when no value
    of the continuous columns satisfies the rows.
    """
    x = program.rounded(x)
    continuous = np.flatnonzero(~program.integer)
    if len(continuous) == 1:
        value = _best_value(program, x, int(continuous[0]))
        if value is None:
            return None
        x[continuous] = value
    elif len(continuous):
        x[continuous] = 0.0
        values = solve_lp(restricted(program, continuous, x), Limits()).x
        if values is None:
            return None
        x[continuous] = values
    return x if feasible(program, x) else None


def _best_value(program: Program, x: FloatArray, column: int) -> float | None:
    """Value of the only continuous column that costs least with the others of `x`; None where none fits."""
    x[column] = 0.0
    used = program.matrix @ x
    coefficient = program.matrix[:, [column]].toarray().ravel()
    rows = np.flatnonzero(coefficient)
    ends = np.stack([program.row_lower[rows] - used[rows], program.row_upper[rows] - used[rows]])
    ends /= coefficient[rows]
    low = float(max(program.lower[column], np.max(ends.min(axis=0), initial=-np.inf)))
    high = float(min(program.upper[column], np.min(ends.max(axis=0), initial=np.inf)))
    if low > high + VIOLATION * max(1.0, abs(low)):
        return None
    cost = program.cost[column]
    value = min(max(0.0, low), high) if cost == 0 else (low if cost > 0 else high)
    return value if np.isfinite(value) else None


def announce_point(program: Program, x: FloatArray, bound: float, starts: dict[int, int]) -> None:
    """Announce a running solver's point, with its lower bound, if it satisfies the program as written."""
    # To settle several continuous columns would run a solver inside the one that calls.
    if np.count_nonzero(~program.integer) <= 1:
        point = feasible_point(program, x)
    else:
        rounded = program.rounded(x)
        point = rounded if feasible(program, rounded) else None
    if point is not None:
        objective = program.objective(point)
        announce(min(bound, objective), x=point, objective=objective, starts=starts)


@dataclass(frozen=True)
class Answer:
    """Outcome of one run of a solver with a tolerance of its own, in the program's units.

    Attributes
    ----------
    x : float array, optional
        A point that satisfies the program up to that tolerance.
    bound : float
        Lower bound on the cost.
    limit, detail
        What stopped the solver, and its words for it; empty where it was done.
    starts : dict of int to int
        Of `x`, as in `Solution`.
    verdict : Solution, optional
        That there is no point at all, or that the solver cannot take the program.
    """

    x: FloatArray | None = None
    bound: float = -np.inf
    limit: Limit | None = None
    detail: str = ""
    starts: dict[int, int] = field(default_factory=dict)
    verdict: Solution | None = None


def solve_as_written(
    program: Program,
    limits: Limits,
    ask: Callable[[Program], Answer],
    timer: Timer,
    *,
    relaxed: Solution,
    best: FloatArray | None = None,
) -> Solution:
    """Ask a solver until its point satisfies the program as written, each time with tighter rows.

    Parameters
    ----------
    ask : callable
        Runs the solver; only the first run is about `program` itself, so only its bound and verdict count.
    relaxed : Solution
        Bound and prices of a relaxation.
    best : float array, optional
        A feasible point that is known.
    """
    bound, starts, current = relaxed.bound, dict[int, int](), program
    for attempt in range(_ATTEMPTS):
        # A bound under tighter rows need not be one of the program.
        with nullcontext() if attempt == 0 else announcing_under(bound):
            answer = ask(current)
        if attempt == 0:
            if answer.verdict is not None:
                return answer.verdict
            bound = max(bound, answer.bound)
        if answer.x is None:
            break
        point = feasible_point(program, answer.x)
        if point is not None:
            if best is None or program.objective(point) < program.objective(best):
                best, starts = point, answer.starts
            break
        # The solver used its tolerance; ask again with twice that much less room.
        tighter = _tightened(current, np.where(program.integer, np.round(answer.x), answer.x))
        if tighter is None or answer.limit == "time" or timer.over():
            break
        current = tighter
    detail = answer.detail
    if best is None:
        detail = detail or "the solver's point satisfies the rows only up to its tolerance"
    return conclude(program, limits, best, bound, relaxed.prices, answer.limit, detail, starts)


def _tightened(program: Program, x: FloatArray) -> Program | None:
    """Program whose violated rows are tighter by twice the violation, which excludes the point.

    Returns None when no inequality row is violated, so that tightening cannot help.
    """
    activity = program.matrix @ x
    loose = program.row_lower < program.row_upper
    excess = np.where(loose, np.maximum(0.0, activity - program.row_upper), 0.0)
    lack = np.where(loose, np.maximum(0.0, program.row_lower - activity), 0.0)
    if not (excess.any() or lack.any()):
        return None
    upper = program.row_upper - 2.0 * excess
    lower = program.row_lower + 2.0 * lack
    return replace(program, row_lower=np.minimum(lower, upper), row_upper=upper)
