"""Diagnosis of infeasible programs: the rows that are short, and by how much."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.infeasibility import ShortRow
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import highs
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import allowance, elastic, linking_rows
from wattsched.solvers.solution import Limits
from wattsched.topology.arrays import BoolArray, FloatArray

_TIME_S = 10.0
# A sum of relative extensions below this is a solver's tolerance.
_NOTHING = 1e-7
# So many times as many can no limit admit; without any bound rounding of prices would prove nothing.
_MANY = 1e6


def short_rows(
    program: Program, time_s: float = _TIME_S, may_grow: Callable[[str], bool] | None = None
) -> list[ShortRow]:
    """Rows that make a program infeasible, worst first; empty for a feasible one.

    Parameters
    ----------
    time_s : float
        Limit for all searches that are needed when no row is infeasible by itself.
    may_grow : callable, optional
        Whether the limit of a row of that name could be raised, as that of a budget; other rows are named
        only if they are infeasible by themselves. Upper bounds of columns that count, which follow from such
        limits, are lifted then. By default all limits could be raised, but of rows that link choices.

    Returns
    -------
    list of ShortRow
        Empty also when the search found no proof of infeasibility in time.
    """
    if may_grow is not None:
        counts = program.integer & (program.upper > 1) & (np.arange(program.n_columns) >= program.n_choices)
        program = replace(program, upper=np.where(counts, _MANY * program.upper, program.upper))
    found = _single_rows(program)
    fixed = linking_rows(program)
    if may_grow is not None:
        fixed = ~np.array([may_grow(name) for name in program.row_names()], dtype=bool)
    timer = Timer(time_s)
    demands = ~fixed & np.isfinite(program.row_lower) & np.isinf(program.row_upper)
    if may_grow is None and demands.any():
        # What can be had under the limits as they are says more than which limits would do.
        found = found or _extended(program, demands, timer)
    found = found or _extended(program, ~fixed, timer)
    if may_grow is None and fixed.any():
        # What links choices is no limit, unless there is no other way.
        found = found or _extended(program, np.ones_like(fixed), timer)
    return sorted(found, key=lambda short: (-short.short_by / max(1.0, abs(short.available)), short.row))


def _single_rows(program: Program) -> list[ShortRow]:
    """Rows whose limit is beyond what any choice uses."""
    least, most = _range_of_use(program)
    names = program.row_names()
    found = []
    for needed, available, limit in (
        (least, program.row_upper, program.row_upper),
        (program.row_lower, most, program.row_lower),
    ):
        short_by = needed - available
        for r in np.flatnonzero(short_by > allowance(limit)).tolist():
            has, by = float(available[r]), float(short_by[r])
            found.append(ShortRow(names[r], float(needed[r]), has, by, alone=True, at_least=by))
    return found


def _range_of_use(program: Program) -> tuple[FloatArray, FloatArray]:
    """Least and greatest use of every row, over all choices and the bounds of free columns."""
    n = program.n_choices
    free = csc_array(program.matrix[:, n:]).tocoo()
    ends = free.data * np.stack([program.lower[n:][free.col], program.upper[n:][free.col]])
    least = np.bincount(free.row, ends.min(axis=0), program.n_rows).astype(float)
    most = np.bincount(free.row, ends.max(axis=0), program.n_rows).astype(float)
    choices = program.matrix[:, :n].tocsr()
    for r in range(program.n_rows if program.n_groups else 0):
        # Zeros count: only a few rows are dense, and each is looked at once.
        use = choices[[r]].toarray().ravel()
        least[r] += np.minimum.reduceat(use, program.group_start[:-1]).sum()
        most[r] += np.maximum.reduceat(use, program.group_start[:-1]).sum()
    return least, most


def _extended(program: Program, limits: BoolArray, timer: Timer) -> list[ShortRow]:
    """Rows whose limits the least relative increase extends that makes the program feasible.

    Only rows of the mask `limits` may be extended; empty where it is not proven that any has to be.
    """
    relaxed, row, sign = elastic(program, limits)
    # A cheap proof first: rows that are short even for fractions of options.
    answer = solve_lp(relaxed, Limits(time_s=timer.remaining_s()))
    if answer.x is None or answer.bound <= _NOTHING:
        answer = highs.solve(relaxed, Limits(gap=1e-3, time_s=timer.remaining_s()))
    if answer.x is None or answer.objective is None or answer.bound <= _NOTHING:
        return []
    # To extend one limit alone cannot cost less than the least that all together cost.
    proven = min(1.0, answer.bound / answer.objective)
    missing = answer.x[program.n_columns :] * np.abs(relaxed.matrix[:, program.n_columns :].data)
    limit = np.where(sign < 0, program.row_upper[row], program.row_lower[row])
    names = program.row_names()
    found = []
    for i in np.flatnonzero(missing > allowance(limit)).tolist():
        at, by = float(limit[i]), float(missing[i])
        needed, available = (at + by, at) if sign[i] < 0 else (at, at - by)
        found.append(ShortRow(names[row[i]], needed, available, by, alone=False, at_least=proven * by))
    return found
