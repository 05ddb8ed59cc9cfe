"""From a solver's almost feasible point to one that satisfies the program as written."""

from __future__ import annotations

import dataclasses

import numpy as np

from wattsched.formulations.program import FloatArray, Program
from wattsched.solvers.conclude import rounded

# Largest violation, relative to a row's bound, that counts as rounding.
TOLERANCE = 1e-9


def feasible(program: Program, x: FloatArray) -> bool:
    """Whether the point satisfies everything up to rounding."""
    return bool(np.all(np.isfinite(x))) and program.violation(x) <= TOLERANCE


def tightened(program: Program, x: FloatArray) -> Program | None:
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
    return dataclasses.replace(program, row_lower=np.minimum(lower, upper), row_upper=upper)


def settled(program: Program, x: FloatArray) -> FloatArray | None:
    """Round the integer columns of a point and make its continuous columns optimal for them.

    Solvers return integer columns up to a tolerance, and the continuous columns fit those.

    Returns
    -------
    float array or None
        None when no value of the continuous columns satisfies the rows.
    """
    x = rounded(program, x)
    continuous = np.flatnonzero(~program.integer)
    if len(continuous) == 0:
        return x
    x[continuous] = 0.0
    used = program.matrix @ x
    if len(continuous) == 1:
        return _one_column(program, x, used, int(continuous[0]))
    from wattsched.solvers.highs import solve_columns

    values = solve_columns(program, continuous, used)
    if values is None:
        return None
    x[continuous] = values
    return x


def _one_column(program: Program, x: FloatArray, used: FloatArray, column: int) -> FloatArray | None:
    coefficient = program.matrix[:, [column]].toarray().ravel()
    rows = np.flatnonzero(coefficient)
    a = coefficient[rows]
    ends = np.stack([program.row_lower[rows] - used[rows], program.row_upper[rows] - used[rows]]) / a
    low = float(max(program.lower[column], np.max(ends.min(axis=0), initial=-np.inf)))
    high = float(min(program.upper[column], np.min(ends.max(axis=0), initial=np.inf)))
    if low > high + TOLERANCE * max(1.0, abs(low)):
        return None
    cost = program.cost[column]
    nearest_zero = min(max(0.0, low), high)
    x[column] = nearest_zero if cost == 0 else (low if cost > 0 else high)
    return x if np.isfinite(x[column]) else None
