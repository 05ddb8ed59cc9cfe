r"""Programs with columns that supply rows, such as ways to cut nodes up: first without them, then these.

The other rows nearly say which choices there are. So the choices :math:`x` are made under them, with all that
solvers have for programs of choices alone. They are the answer where supplying columns can be found for them:
:math:`A_y y \le b - A_x x`, :math:`0 \le y \le u`. Where they cannot even in fractions, prices
:math:`\lambda \ge 0` say so, and the row

.. math:: \lambda^T A_x x \le \lambda^T b - \sum_i \min(0, \lambda^T A_{y,i})\, u_i ,

which every choice keeps that can be supplied, rules the ones made out (Benders, "Partitioning procedures for
solving mixed-variables programming problems", 1962). With it the choices are made again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array, csr_array, vstack

from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FEASIBILITY, VIOLATION
from wattsched.solvers import highs
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import restricted
from wattsched.solvers.solution import Limits, Solution, Start, Termination, listening
from wattsched.topology.arrays import BoolArray, FloatArray

MOST_ROUNDS = 12
"""Times that choices are made again."""

# Of the time that is left so much is for choices, the rest for what supplies them.
_SHARE = 0.8

Solver = Callable[[Program, Limits, Start | None], Solution]


def solve_without(
    program: Program, limits: Limits, start: Start | None, solver: Solver, otherwise: Solver | None
) -> Solution:
    """Solve the program by `solver` without the columns that supply rows, and find these.

    `otherwise` solves the program itself where they cannot be found.
    """
    timer, parts = Timer(limits.time_s), _Parts.of(program)
    # The module's lambda of every row that rules choices out, shape (n_cuts, n_rows).
    priced = parts.known(start)
    begun = None if start is None else parts.start(start, len(priced))
    with listening(None):  # points of smaller programs are none of this one
        while True:
            small, left = parts.under(priced), replace(limits, time_s=timer.share(_SHARE).remaining_s())
            found = solver(small, left, begun)
            prices = None if found.prices is None else parts.prices(found.prices, priced)
            lifted = replace(found, prices=prices)
            if found.x is None:
                return lifted
            lacking = parts.lacking(found.x, timer)
            if lacking is None and (x := parts.supplied(found.x, timer)) is not None:
                return replace(lifted, x=x)
            if lacking is None or len(priced) == MOST_ROUNDS:
                break
            priced = np.vstack([priced, lacking])
            begun = Start(None, None if found.prices is None else np.append(found.prices, 0.0))
    if otherwise is not None:
        return otherwise(program, replace(limits, time_s=timer.remaining_s()), start)
    told = "the choices that were found do not fit together"
    return replace(lifted, x=None, objective=None, termination=Termination("no_solution", detail=told))


@dataclass(frozen=True)
class _Parts:
    """A program, the number of columns before those that supply rows, and the rows without any of these."""

    program: Program
    n: int
    rows: BoolArray

    @classmethod
    def of(cls, program: Program) -> _Parts:
        """Tell them apart."""
        n, rows = program.n_columns - program.supply, np.ones(program.n_rows, dtype=bool)
        rows[program.matrix[:, n:].tocoo().row] = False
        return cls(program, n, rows)

    def known(self, start: Start | None) -> FloatArray:
        """Prices of rows that these columns supply, as an earlier answer has them, shape (0 or 1, n_rows)."""
        if start is None or start.prices is None:
            return np.zeros((0, self.program.n_rows))
        prices = np.where(self.rows, 0.0, np.maximum(-start.prices, 0.0))
        return prices[None, :][: int(prices.any())]

    def start(self, start: Start, known: int) -> Start:
        """Start of `under`, from one of the program; its last rows, `known` in number, are cuts."""
        x = None if start.x is None else start.x[: self.n]
        # A cut is the sum of rows at their prices, so its own price is one, as of an upper limit.
        cuts = np.full(known, -1.0)
        return Start(x, None if start.prices is None else np.append(start.prices[self.rows], cuts))

    def prices(self, prices: FloatArray, priced: FloatArray) -> FloatArray:
        """Prices of the program from those of `under`, whose last rows are the cuts of `priced`."""
        found = np.zeros(self.program.n_rows)
        n = len(prices) - len(priced)
        found[self.rows] = prices[:n]
        return np.asarray(found + prices[n:] @ priced)

    def under(self, priced: FloatArray) -> Program:
        """The program without these columns, under a cut for each vector of prices of its rows."""
        program, n = self.program, self.n
        by_row = program.matrix[:, :n].tocsr()
        supply = np.minimum(priced @ program.matrix[:, n:], 0.0) @ program.upper[n:]
        finite = np.where(self.rows, 0.0, program.row_upper)
        return replace(
            program,
            cost=program.cost[:n],
            matrix=csc_array(vstack([by_row[self.rows], csr_array(priced @ by_row)])),
            row_lower=np.append(program.row_lower[self.rows], np.full(len(priced), -np.inf)),
            row_upper=np.append(program.row_upper[self.rows], priced @ finite - supply),
            lower=program.lower[:n],
            upper=program.upper[:n],
            integer=program.integer[:n],
            attributes={name: values[:n] for name, values in program.attributes.items()},
            rows=(Block("row", int(self.rows.sum()) + len(priced)),),
            columns=(Block("column", n),),
            supply=0,
        )

    def supplied(self, x: FloatArray, timer: Timer) -> FloatArray | None:
        """The point with values of the other columns; None where there are none, or no time is left."""
        program, whole = self.program, np.append(x, np.zeros(self.program.supply))
        columns = np.arange(self.n, program.n_columns)
        answer = highs.solve(restricted(program, columns, whole), Limits(time_s=timer.remaining_s()))
        if answer.x is None:
            return None
        whole[columns] = answer.x
        return whole if program.violation(whole) <= VIOLATION else None

    def lacking(self, x: FloatArray, timer: Timer) -> FloatArray | None:
        """Row prices that prove that nothing supplies `x`, shape (n_rows,); None where fractions do."""
        program, n, own = self.program, self.n, ~self.rows
        left = program.row_upper[own] - (program.matrix[:, :n] @ x)[own]
        supply, builder = program.matrix[:, n:].tocsr()[own].tocoo(), ProgramBuilder()
        rows = builder.rows(Block("row", len(left)), upper=left)
        columns = builder.columns(Block("supply", program.supply), upper=program.upper[n:], integer=False)
        lacks = builder.columns(Block("lack", len(left)), cost=1.0, upper=np.inf, integer=False)
        builder.add(rows[supply.row], columns[supply.col], supply.data)
        builder.add(rows, lacks, -1.0)
        elastic = builder.program()
        found = solve_lp(elastic, Limits(time_s=timer.remaining_s()))
        if found.x is None or found.prices is None or elastic.objective(found.x) <= FEASIBILITY:
            return None
        prices = np.zeros(program.n_rows)
        prices[own] = np.maximum(-found.prices, 0.0)
        return prices
