"""Kernels: a program over the choice columns that row prices make likely, and what it tells of the whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import highs
from wattsched.solvers.log import read_by
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.rows import cost_range, elastic, first_least, restricted
from wattsched.solvers.solution import Limits, Solution, Start, listening
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# Columns besides each group's cheapest that the LP relaxation begins with.
_FIRST = 300
# With fewer columns for a row sifting is no faster.
_FEW = 10
# What is left of the LP's optimum, relative to it, when nothing joins any more.
_CLOSE = 1e-10


@dataclass(frozen=True)
class Kernel:
    """Restriction of a program to some of its choice columns; groups with one column are decided.

    Attributes
    ----------
    program : Program
        Over the open groups and the free columns of the full program.
    columns : int array, shape (n_columns of `program`,)
        Columns of the full program that its columns stand for.
    decided : float array, shape (n_columns of the full program,)
        Point of the full program with what the decided groups take.
    """

    program: Program
    columns: IntArray
    decided: FloatArray

    def lift(self, x: FloatArray) -> FloatArray:
        """Point of the full program from one of the kernel."""
        full = self.decided.copy()
        full[self.columns] = x
        return full

    def drop(self, x: FloatArray) -> FloatArray | None:
        """Point of the kernel from one of the full program, None when it takes another column."""
        point = x[self.columns]
        taken = point[: self.program.n_choices].sum()
        return point if np.all(x >= self.decided) and taken == self.program.n_groups else None

    def by_highs(self, limits: Limits, start: FloatArray | None, target: float, *, part: bool) -> Solution:
        """Solve the kernel by HiGHS, from a point of the full program, until the target is reached.

        Parameters
        ----------
        part : bool
            Whether better points may be outside; what is proven is then of no use.

        Returns
        -------
        Solution
            Its point is one of the full program; bound and prices are the kernel's.
        """
        point = None if start is None else self.drop(start)
        # What it announces are points of another program.
        with listening(None), read_by(None):
            answer = highs.solve(self.program, limits, Start(point), target, part=part)
        return answer if answer.x is None else replace(answer, x=self.lift(answer.x))


def kernel(program: Program, keep: BoolArray) -> Kernel:
    """Restrict a program.

    Parameters
    ----------
    keep : bool array, shape (n_choices,)
        At least one column of every group.
    """
    start, n = program.group_start, program.n_choices
    counts = np.zeros(0, dtype=np.int64)
    if program.n_groups:
        counts = np.add.reduceat(keep.astype(np.int64), start[:-1])
    single = keep & np.repeat(counts == 1, np.diff(start))
    decided = np.zeros(program.n_columns)
    decided[:n] = single
    columns = np.concatenate([np.flatnonzero(keep & ~single), np.arange(n, program.n_columns)])
    group_start = np.concatenate([[0], np.cumsum(counts[counts > 1])]).astype(np.int64)
    return Kernel(restricted(program, columns, decided, group_start), columns, decided)


def cheapest(above: FloatArray, size: int) -> BoolArray:
    """The columns of least reduced cost above their group's least, about `size` of them, with all ties.

    Parameters
    ----------
    above : float array, shape (n_choices,)
        From `Program.above_least`; every group has a column with 0.
    """
    if size >= len(above):
        return np.ones(len(above), dtype=bool)
    return np.asarray(above <= max(0.0, float(np.partition(above, size)[size])))


def relaxed(program: Program, prices: FloatArray, timer: Timer) -> Solution:
    """Solve the LP relaxation by sifting: over the kernel of some prices, which what reduces its cost joins.

    Parameters
    ----------
    prices : float array, shape (n_rows,)
        Near those of the optimum; the nearer, the fewer columns are ever looked at.

    Returns
    -------
    Solution
        As of `solve_lp`.
    """
    keep = cheapest(program.above_least(prices), program.n_groups + _FIRST)
    while program.n_columns > _FEW * program.n_rows and not timer.over():
        part = kernel(program, keep)
        answer = solve_lp(part.program, Limits(time_s=timer.remaining_s()))
        lacking = answer.termination.reason == "infeasible"
        if lacking:
            answer = solve_lp(_extensible(part.program), Limits(time_s=timer.remaining_s()))
        if answer.x is None or answer.prices is None:
            break
        joining = _cheaper(program, keep, answer.prices)
        if not lacking:
            x, bound = part.lift(answer.x), program.lagrangian_bound(answer.prices)
            if len(joining) == 0 or program.objective(x) - bound <= _CLOSE * abs(bound):
                return replace(answer, x=x, bound=bound)
        elif len(joining) == 0:
            break
        keep[joining] = True
    return solve_lp(program, Limits(time_s=timer.remaining_s()))


def _extensible(program: Program) -> Program:
    """The program with limits that can be extended, at the price of all that its choices can save."""
    extended, _, _ = elastic(program, np.ones(program.n_rows, dtype=bool))
    dear = np.full(extended.n_columns - program.n_columns, cost_range(program))
    return replace(extended, cost=np.concatenate([program.cost, dear]), offset=program.offset)


def _cheaper(program: Program, keep: BoolArray, prices: FloatArray) -> IntArray:
    """The column of least reduced cost of every group of which it is not kept, nor one that is as cheap."""
    above, start = program.above_least(prices), program.group_start
    least = np.minimum.reduceat(np.where(keep, above, np.inf), start[:-1])
    return first_least(above, start)[least > 0.0]
