"""Solvers that users bring along, ``FILE.py:NAME``: functions of a program, whose prices prove a bound.

The function gets a `Program` and, if it takes a second argument, the `Limits`. It returns a point, a pair
of a point and row prices (either may be None), or a `Solution`. Of the first two nothing is taken on its
word: the decision of the point is checked, and the bound is what the prices prove.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from wattsched.formulations import external
from wattsched.formulations.program import Program
from wattsched.solvers.solution import Limits, Solution, Start, Termination, certified, unsupported


def solve(program: Program, limits: Limits, start: Start | None = None, *, name: str = "") -> Solution:
    """Call a user's solver, and make a `Solution` of what it returns."""
    own = external.find(name)
    if own is None:
        return unsupported(f"'{name}' names no function")
    with external.blaming(own.source):
        takes = len(inspect.signature(own.function).parameters)
        found = own(*(program, limits)[: min(takes, 2)])
        return found if isinstance(found, Solution) else _solution(program, found)


def _solution(program: Program, found: Any) -> Solution:
    """Solution of a point, of a point and prices, or of nothing."""
    point, prices = found if isinstance(found, tuple) and len(found) == 2 else (found, None)
    x = None if point is None else _numbers("point", point, program.n_columns)
    y, bound = certified(program, None if prices is None else _numbers("prices", prices, program.n_rows))
    if x is None:
        return Solution(Termination("no_solution"), bound=bound, prices=y)
    x = program.rounded(x)
    return Solution(Termination("feasible"), x=x, objective=program.objective(x), bound=bound, prices=y)


def _numbers(what: str, values: Any, size: int) -> Any:
    """Array of so many numbers, or a ValueError that says what was returned instead."""
    array = np.asarray(values, dtype=float)
    if array.shape != (size,):
        raise ValueError(f"the {what} must be {size} numbers, got an array of shape {array.shape}")
    return array
