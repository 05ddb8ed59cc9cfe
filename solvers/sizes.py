"""Branching on how many choices there are of each size, where jobs may share GPUs.

Sets of jobs that share GPUs are many columns of nearly equal cost: to branch on one of them changes little.
How many jobs have eight GPUs, how many pairs share one, is what an LP relaxation has wrong. Once these
numbers are whole, its bound is nearly the optimum, and HiGHS decides the rest among few columns (branching
on sums of columns: Vanderbeck 2000, "On Dantzig-Wolfe decomposition in integer programming").

A choice that asks for others is first one column with them, in every group that they are in.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from itertools import count

import numpy as np
from scipy.sparse import csc_array, csr_array
from scipy.sparse.csgraph import connected_components

from wattsched.formulations.counts import Sums
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers import highs
from wattsched.solvers.branching import ByCounts, Case, Solved
from wattsched.solvers.effort import spend
from wattsched.solvers.incumbent import Incumbent
from wattsched.solvers.lp import relaxation, scaled
from wattsched.solvers.rows import cost_range, linking_rows, restricted, with_choice_rows, with_rows
from wattsched.solvers.solution import Limits, Solution, Start, announce, unheard
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# Rows with more different uses than this say no sizes, nor do more sizes in all.
_MOST_USES, _MOST_SIZES = 16, 200
# Columns, HiGHS's nodes and the share of the time that is left, with which a decision is first looked for.
_FIRST_COLUMNS, _FIRST_NODES, _FIRST_SHARE = 2_000, 20, 0.2


@dataclass(frozen=True)
class Merged:
    """A program in which a choice and those that it asks for are one column.

    Attributes
    ----------
    program : Program
        Without groups, each of which is a row "exactly one" below the others.
    column : int array, shape (n_columns of the program that was merged,)
        Where each of its columns is.
    choice : bool array, shape (n_columns,)
        Mask of the columns that are in groups.
    size : csr_array, shape (n_sizes, n_columns)
        Which columns are of each size: of equal uses of rows with few different whole uses, and in as many
        groups.
    """

    program: Program
    column: IntArray
    choice: BoolArray
    size: csr_array

    @classmethod
    def of(cls, program: Program) -> Merged | None:
        """Merge a program; None where no choice asks for others, or there are no sizes to count."""
        linking = linking_rows(program)
        if not linking.any():
            return None
        rows = csr_array(program.matrix)[linking]
        if not _equal_pairs(rows):
            return None
        ends = rows.indices.reshape(-1, 2)
        links = csr_array((np.ones(len(ends)), ends.T), shape=(program.n_columns,) * 2)
        column = connected_components(links, directed=False)[1].astype(np.int64)
        first = np.unique(column, return_index=True)[1]
        explicit = with_choice_rows(program)
        together = csr_array((np.ones(len(column)), (np.arange(len(column)), column)))
        left = np.append(~linking, np.ones(program.n_groups, dtype=bool))
        matrix = csr_array(explicit.matrix)[left] @ together
        merged = replace(
            explicit,
            cost=np.bincount(column, program.cost).astype(float),
            matrix=csc_array(matrix),
            row_lower=explicit.row_lower[left],
            row_upper=explicit.row_upper[left],
            lower=program.lower[first],
            upper=program.upper[first],
            integer=program.integer[first],
            rows=(),
            columns=(),
            attributes={},
        )
        choice = np.zeros(len(first), dtype=bool)
        choice[column[: program.n_choices]] = True
        size = _sizes(matrix, program.n_groups, np.flatnonzero(choice))
        return None if size is None else cls(merged, column, choice, size)


def _equal_pairs(rows: csr_array) -> bool:
    """True if every row says that two columns are equal."""
    return bool(np.all(np.diff(rows.indptr) == 2) and np.all(rows.data[::2] == -rows.data[1::2]))


def _sizes(matrix: csr_array, n_groups: int, choices: IntArray) -> csr_array | None:
    """Which of the choices are of each size, of those that use a row of few whole uses; None without any.

    The last rows of the matrix are those of the groups.
    """
    uses, n_rows = csc_array(matrix[:, choices]).tocsr(), matrix.shape[0] - n_groups
    few = [_few_whole(uses.data[uses.indptr[row] : uses.indptr[row + 1]]) for row in range(n_rows)]
    if not any(few):
        return None
    sized = uses[:n_rows][np.array(few)].toarray()
    groups = np.asarray(uses[n_rows:].sum(axis=0)).ravel()
    found, size = np.unique(np.vstack([sized, groups]), axis=1, return_inverse=True)
    counted = np.flatnonzero(found[:-1].any(axis=0))
    if len(counted) == 0 or found.shape[1] > _MOST_SIZES:
        return None
    places = np.ravel(size), choices
    of_size = csr_array((np.ones(len(choices)), places), shape=(found.shape[1], matrix.shape[1]))
    return of_size[counted]


def _few_whole(values: FloatArray) -> bool:
    """True if a row's entries are whole numbers, and few different ones."""
    return len(values) > 0 and bool(np.all(values % 1.0 == 0.0)) and len(np.unique(values)) <= _MOST_USES


def solve(program: Program, merged: Merged, limits: Limits, start: Start | None = None) -> Solution:
    """Solve by branching on the numbers of choices by size, and HiGHS where these are whole.

    The prices are those of the LP relaxation.
    """
    timer = Timer(limits.time_s)
    relaxed = relaxation(program, scaled(program), limits, timer)
    if relaxed.termination.reason in ("infeasible", "error") or relaxed.prices is None:
        return relaxed
    search = _Search(program, merged, limits, timer)
    search.take_prices(relaxed.prices, relaxed.bound)
    announce(relaxed.bound, relaxed.prices, at_root=True)
    start = start or Start()
    search.offer(start.x)
    if start.rule is not None:
        search.offer(start.rule(program, relaxed.prices))
    search.run()
    if search.done():
        return search.conclude()
    return highs.solve(program, replace(limits, time_s=timer.remaining_s()), Start(search.x))


@dataclass(order=True)
class _Node:
    """A case to split or to decide: its bound, and True once decisions were looked for in it."""

    bound: float
    number: int
    case: Case = field(compare=False)
    looked: bool = field(default=False, compare=False)


class _Search(Incumbent):
    """Best-first branch and bound over the numbers of choices by size."""

    def __init__(self, program: Program, merged: Merged, limits: Limits, timer: Timer) -> None:
        super().__init__(program, limits, timer)
        self._merged = merged
        levels = np.zeros(merged.size.shape[0], dtype=np.int64)
        self._branching = ByCounts(Sums(merged.program, merged.size, levels))
        # Without a decision this is to be proven of a case that has none.
        self._dearer = cost_range(program)

    def run(self) -> None:
        """Split cases, the one of the least bound first, until the gap is closed or time is up."""
        nodes, number, closed = [_Node(self.bound, 0, self._branching.root())], count(1), np.inf
        while nodes and not self.done():
            node = heapq.heappop(nodes)
            aim = min(self.objective, self.bound + self._dearer)
            solved = self._branching.solve(node.case, aim, self.timer)
            if solved is None:  # time is up
                break
            spend(nodes=1)
            bound = max(node.bound, solved.bound)
            if solved.x is None or bound >= self.bound_asked():
                closed = min(closed, bound)
            elif (split := self._branching.split(node.case, solved, node.number, aim)) is not None:
                for case in split[1:]:
                    heapq.heappush(nodes, _Node(bound, next(number), case))
            elif (decided := self._decided(node, solved)) is None:
                heapq.heappush(nodes, replace(node, bound=bound, looked=True))
            else:
                closed = min(closed, max(bound, decided))
            self.raise_bound(min([closed, *(node.bound for node in nodes[:1])]))

    def _decided(self, node: _Node, solved: Solved) -> float | None:
        """Decide a case among the columns that a better point may take.

        Returns the case's bound, None where only a few of these columns and points were looked at.
        """
        assert solved.x is not None
        program, size = self._branching.program(node.case), self._merged.size
        reduced = program.cost - program.matrix.T @ solved.prices
        keep = reduced <= self.margin(solved.bound)
        if node.looked or np.count_nonzero(keep) <= _FIRST_COLUMNS:
            return self._by_highs(program, keep, solved.x, self.limits, self.timer).bound
        numbers = np.round(size @ solved.x)
        same = with_rows(self._merged.program, size, numbers, numbers)
        keep = reduced <= np.partition(reduced, _FIRST_COLUMNS)[_FIRST_COLUMNS]
        limits = replace(self.limits, nodes=_FIRST_NODES)
        self._by_highs(same, keep, solved.x, limits, self.timer.share(_FIRST_SHARE))
        return None

    def _by_highs(
        self, program: Program, keep: BoolArray, x: FloatArray, limits: Limits, timer: Timer
    ) -> Solution:
        """Let HiGHS decide among the columns of a mask, those of `x` and those that are no choices."""
        columns = np.flatnonzero(keep | (x > 0.0) | ~self._merged.choice)
        part = restricted(program, columns, np.zeros(program.n_columns))
        with unheard():
            answer = highs.solve(part, replace(limits, time_s=timer.remaining_s()))
        if answer.x is not None:
            point = np.zeros(program.n_columns)
            point[columns] = answer.x
            self.offer(point[self._merged.column])
        return answer
