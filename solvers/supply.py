"""Programs with columns that supply rows, such as ways to cut nodes up: first without them, then these alone.

The other rows nearly say which choices there are. So the choices are made under them, with all that solvers
have for programs of choices alone. They are the answer where these columns can be found for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import Block, Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers import highs
from wattsched.solvers.rows import restricted
from wattsched.solvers.solution import Limits, Solution, Start, Termination, listening
from wattsched.topology.arrays import BoolArray, FloatArray

Solver = Callable[[Program, Limits, Start | None], Solution]


def solve_without(
    program: Program, limits: Limits, start: Start | None, solver: Solver, otherwise: Solver | None
) -> Solution:
    """Solve the program without the columns that supply rows, and find these.

    Parameters
    ----------
    program : Program
        With `Program.supply`.
    otherwise : callable, optional
        Solves the program itself where they cannot be found.
    """
    timer = Timer(limits.time_s)
    rows = _rows_left(program)
    small, begun = _small(program, rows), None
    if start is not None:
        x = None if start.x is None else start.x[: small.n_columns]
        begun = Start(x, None if start.prices is None else start.prices[rows])
    with listening(_unheard):  # its points are none of the program
        found = solver(small, limits, begun)
    prices = None
    if found.prices is not None:
        prices = np.zeros(program.n_rows)
        prices[rows] = found.prices
    lifted = replace(found, prices=prices)
    if found.x is None:
        return lifted
    x = _supplied(program, found.x, timer)
    if x is not None:
        return replace(lifted, x=x)
    if otherwise is not None:
        return otherwise(program, replace(limits, time_s=timer.remaining_s()), start)
    told = "the choices that were found do not fit together"
    return replace(lifted, x=None, objective=None, termination=Termination("no_solution", detail=told))


def _unheard(solution: Solution) -> None:
    """Let an announcement pass."""


def _rows_left(program: Program) -> BoolArray:
    """Rows that no such column is in."""
    left = np.ones(program.n_rows, dtype=bool)
    left[program.matrix[:, program.n_columns - program.supply :].tocoo().row] = False
    return left


def _small(program: Program, rows: BoolArray) -> Program:
    n = program.n_columns - program.supply
    return replace(
        program,
        cost=program.cost[:n],
        matrix=csc_array(program.matrix[:, :n].tocsr()[rows]),
        row_lower=program.row_lower[rows],
        row_upper=program.row_upper[rows],
        lower=program.lower[:n],
        upper=program.upper[:n],
        integer=program.integer[:n],
        attributes={name: values[:n] for name, values in program.attributes.items()},
        rows=(Block("row", int(rows.sum())),),
        columns=(Block("column", n),),
        supply=0,
    )


def _supplied(program: Program, x: FloatArray, timer: Timer) -> FloatArray | None:
    """The point with values of the other columns; None where there are none, or no time is left."""
    whole = np.append(x, np.zeros(program.supply))
    columns = np.arange(len(x), program.n_columns)
    answer = highs.solve(restricted(program, columns, whole), Limits(time_s=timer.remaining_s()))
    if answer.x is None:
        return None
    whole[columns] = answer.x
    return whole if program.violation(whole) <= VIOLATION else None
