"""How a solver states its answer: rounding, clipping, and the reason it stopped."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import FloatArray, Program
from wattsched.solvers.solution import Limit, Limits, Reason, Solution, Termination

# Differences below this share of the objective are rounding, not a gap.
ROUNDING = 1e-9


def declined(detail: str) -> Solution:
    """Answer of a solver that cannot take the program, or failed on it."""
    return Solution(Termination("error", detail=detail))


def infeasible(prices: FloatArray | None = None, detail: str = "") -> Solution:
    """Answer that no point satisfies the program; its optimum is +inf by convention."""
    return Solution(Termination("infeasible", detail=detail), bound=np.inf, prices=prices)


def relative_gap(objective: float, bound: float) -> float:
    """``|objective - bound| / max(1e-9, |objective|)``."""
    return abs(objective - bound) / max(1e-9, abs(objective))


def rounded(program: Program, x: FloatArray) -> FloatArray:
    """Make the integer columns of a point exact integers and keep the others inside their bounds."""
    # Adding zero turns -0.0 into 0.0.
    whole = np.where(program.integer, np.round(x), x) + 0.0
    return np.clip(whole, program.lower, program.upper)


def conclude(
    program: Program,
    limits: Limits,
    x: FloatArray | None,
    bound: float,
    *,
    prices: FloatArray | None = None,
    limit: Limit | None = None,
    detail: str = "",
    starts: dict[int, int] | None = None,
) -> Solution:
    """State an answer from a point, if there is one, and a valid lower bound.

    Parameters
    ----------
    limit : str, optional
        The limit that stopped the solver before it was done.
    """
    if x is None:
        return Solution(Termination("no_solution", limit, detail), bound=bound, prices=prices)
    x = rounded(program, x)
    objective = program.objective(x)
    tolerance = ROUNDING * max(1.0, abs(objective))
    if objective < bound <= objective + tolerance:
        bound = objective
    if bound > objective + tolerance:
        detail = f"a bound of {bound:g} contradicts a point of {objective:g} and is left out"
        bound = -np.inf
    closed = relative_gap(objective, bound) <= limits.gap or objective - bound <= tolerance
    reason: Reason = "optimal" if closed else "feasible"
    return Solution(
        Termination(reason, None if closed else limit, detail),
        x=x,
        objective=objective,
        bound=bound,
        prices=prices,
        starts=starts or {},
    )
