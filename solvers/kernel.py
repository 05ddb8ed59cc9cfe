"""A program with most of its columns fixed: what a small MIP is given to decide."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import Program
from wattsched.solvers import highs
from wattsched.solvers.solution import Limits, Solution, Start, muted
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True)
class Kernel:
    """Restriction of a program to some of its choice columns; groups with one column are decided.

    Attributes
    ----------
    program : Program
        Over the open groups and the free columns of the full program.
    columns : int array, shape (n_columns of `program`,)
        Columns of the full program that its columns stand for.
    fixed : int array
        Columns of the full program that the decided groups take.
    full_size : int
        Columns of the full program.
    """

    program: Program
    columns: IntArray
    fixed: IntArray
    full_size: int

    def lift(self, x: FloatArray) -> FloatArray:
        """Point of the full program from one of the kernel."""
        full = np.zeros(self.full_size)
        full[self.fixed] = 1.0
        full[self.columns] = x
        return full

    def drop(self, x: FloatArray) -> FloatArray | None:
        """Point of the kernel from one of the full program, None when it takes another column."""
        point = x[self.columns]
        inside = (
            np.all(x[self.fixed] == 1.0) and point[: self.program.n_choices].sum() == self.program.n_groups
        )
        return point if inside else None

    def solve(self, limits: Limits, start: FloatArray | None, target: float) -> Solution:
        """Solve the kernel by HiGHS, from a point of the full program, until the target is reached.

        Returns
        -------
        Solution
            Its point is one of the full program; bound and prices are the kernel's.
        """
        point = None if start is None else self.drop(start)
        # What it announces are points of another program.
        with muted():
            answer = highs.solve(self.program, limits, Start(point), target)
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
    decided = np.repeat(counts == 1, np.diff(start))
    fixed = np.flatnonzero(keep & decided)
    columns = np.concatenate([np.flatnonzero(keep & ~decided), np.arange(n, program.n_columns)])
    used = np.asarray(program.matrix[:, fixed].sum(axis=1), dtype=float).ravel()
    small = Program(
        cost=program.cost[columns],
        matrix=csc_array(program.matrix[:, columns]),
        row_lower=program.row_lower - used,
        row_upper=program.row_upper - used,
        lower=program.lower[columns],
        upper=program.upper[columns],
        integer=program.integer[columns],
        group_start=np.concatenate([[0], np.cumsum(counts[counts > 1])]).astype(np.int64),
        rows=program.rows,
        columns=(),
        offset=program.offset + float(program.cost[fixed].sum()),
    )
    return Kernel(small, columns, fixed, program.n_columns)


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
