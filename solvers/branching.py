"""Cases of a program, and how they are split further: by the choices of a group, or by sums of columns.

A case is a program with fewer points. Its LP relaxation is solved from the basis of the last case, and has
prices that bound its points; of an infeasible case a ray of the dual bounds them by any value.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

import highspy
import numpy as np

from wattsched.formulations.counts import Counts, Sums
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import FRACTIONAL
from wattsched.solvers.lp import Status, has_point, loaded, run, scaled
from wattsched.solvers.proof import AtMost, Choices, Split
from wattsched.solvers.rows import with_rows
from wattsched.solvers.solution import Limits, certified
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# How far along a ray of the dual prices are tried, in steps of this factor.
_RAY = 8.0
_RAY_STEPS = 60
# Counts of a level, and groups, whose sides are looked at, and the least that a side counts for, of what
# there is to gain.
_CANDIDATES = 3
_GROUPS = 3
_LEAST_GAIN = 1e-4


Case = Any
"""A part of a program, in the form of its branching rule."""


class Solved(NamedTuple):
    """Optimum of a case's LP relaxation; without a point where a ray proves the value that was asked for."""

    x: FloatArray | None
    prices: FloatArray
    bound: float


class Branching(ABC):
    """Base of branching rules: it solves the cases of a program without a bottleneck, and splits them.

    `whole` is that program, and `_model` the same as `_solver` has it, scaled.
    """

    def __init__(self, program: Program) -> None:
        self.whole, self._model = program, scaled(program)
        self._solver = loaded(self._model, Limits(), Timer(), relaxed=True)
        self._solver.setOptionValue("presolve", "off")

    @abstractmethod
    def root(self) -> Case:
        """Case of all points."""

    @abstractmethod
    def program(self, case: Case) -> Program:
        """Program of a case."""

    @abstractmethod
    def split(self, case: Case, solved: Solved, node: int, value: float) -> tuple[Split, Case, Case] | None:
        """Split of a node's case by its fractional point, inside and outside; None where there is none."""

    def split_prices(self, case: Case, prices: FloatArray) -> dict[int, float]:
        """Prices of rows that splits have added, by the nodes of these splits."""
        return {}

    def inherited(self, prices: FloatArray) -> FloatArray:
        """Prices of a case for those that it was split into."""
        return prices

    def _best(
        self, splits: Iterable[tuple[Split, Case, Case]], bound: float, value: float
    ) -> tuple[Split, Case, Case] | None:
        """Split whose two sides raise `bound`, the case's own, most on the way to `value`, the one to prove.

        Gains are multiplied (Achterberg 2007, "Constraint Integer Programming").
        """
        best, most = None, -np.inf
        for split in splits:
            # Beyond the value a bound is of no more use.
            gains = [min(value, self._optimum(side)) - bound for side in split[1:]]
            score = float(np.prod(np.maximum(gains, _LEAST_GAIN * (value - bound))))
            if score > most:
                best, most = split, score
        return best

    def _optimum(self, case: Case) -> float:
        """Optimum of a case's LP relaxation as the solver says, infinite where there is none."""
        self._restrict(case)
        if run(self._solver) != Status.kOptimal:
            return np.inf
        return self._model.cost_of(self._solver.getInfo().objective_function_value)

    @abstractmethod
    def _restrict(self, case: Case) -> None:
        """Have the solver hold a case."""

    def _prices(self, duals: FloatArray) -> FloatArray:
        """Prices of a case's rows from the solver's duals."""
        return self._model.prices(duals[: self._model.program.n_rows], self.whole.n_rows)

    def solve(self, case: Case, value: float, timer: Timer) -> Solved | None:
        """Optimum of a case's LP relaxation, or prices on a ray that prove `value`; None without time."""
        solver = self._solver
        self._restrict(case)
        program = self.program(case)
        if (left_s := timer.remaining_s()) is not None:
            solver.setOptionValue("time_limit", solver.getRunTime() + left_s)
        status = run(solver)
        if status == Status.kNotset:
            # From the basis of an infeasible case HiGHS does not always begin.
            solver.clearSolver()
            status = run(solver)
        if status in (Status.kInfeasible, Status.kModelEmpty):
            ray = self._ray()
            return None if ray is None else _along(program, ray, value)
        solution = solver.getSolution()
        if status != Status.kOptimal or not has_point(solver) or not solution.dual_valid:
            return None
        prices, bound = certified(program, self._prices(np.asarray(solution.row_dual)))
        return Solved(self._model.point(np.asarray(solution.col_value)), prices, bound)

    def _ray(self) -> FloatArray | None:
        if self.whole.n_columns == 0:  # of which HiGHS has no ray
            return np.asarray((self.whole.row_lower > 0.0) * 1.0 - (self.whole.row_upper < 0.0))
        status, found, ray = self._solver.getDualRay()
        return self._prices(np.asarray(ray)) if found and status == highspy.HighsStatus.kOk else None


def _along(program: Program, ray: FloatArray, value: float) -> Solved | None:
    """Prices so far along a ray of the dual, or against it, that they prove the value; None where none do."""
    ray = ray / max(float(np.abs(ray).max(initial=0.0)), 1e-300)
    for sign in (1.0, -1.0):
        for step in range(_RAY_STEPS):
            prices, bound = certified(program, sign * ray * _RAY**step)
            if bound >= value:
                return Solved(None, prices, bound)
    return None


class ByChoices(Branching):
    """Cases say which choice columns are left; the solver holds one of them."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._held = self.root()

    def root(self) -> BoolArray:
        """All columns are left."""
        return np.ones(self.whole.n_choices, dtype=bool)

    def program(self, case: Case) -> Program:
        """Columns that are not left cost too much."""
        n, cost = self.whole.n_choices, self.whole.cost.copy()
        cost[:n][~case] = np.inf
        return replace(self.whole, cost=cost)

    def _restrict(self, case: Case) -> None:
        changed, of = np.flatnonzero(case != self._held).astype(np.int32), self._model.program
        upper = np.where(case[changed], of.upper[changed], 0.0)
        self._solver.changeColsBounds(len(changed), changed, of.lower[changed], upper)
        self._held = case

    def split(self, case: Case, solved: Solved, node: int, value: float) -> tuple[Split, Case, Case] | None:
        """Split a group between its cheaper columns and others, of some groups the best, to prove `value`."""
        splits = []
        if solved.x is None:
            return None
        for columns, others in islice(halves(self.whole, case, solved.x, solved.prices), _GROUPS):
            inside, outside = case.copy(), case.copy()
            inside[others] = outside[columns] = False
            splits.append((Choices(columns, others), inside, outside))
        return splits[0] if len(splits) == 1 else self._best(splits, solved.bound, value)


def halves(
    program: Program, keep: BoolArray, x: FloatArray, prices: FloatArray
) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield fractional groups in halves: columns whose priced use is at most the mixture's, and others.

    Groups whose columns differ most in priced use come first; the cheaper half comes first.

    Parameters
    ----------
    keep : bool array, shape (n_choices,)
        Columns that are left; the point takes no others.
    """
    fraction = x[: program.n_choices]
    split = (fraction > FRACTIONAL) & (fraction < 1 - FRACTIONAL)
    y = np.abs(prices)
    if not y.any():  # of a point that no row limits: all that there is of every row costs the same
        ends = np.abs([program.row_lower, program.row_upper])
        size = np.where(np.isfinite(ends), ends, 0.0).max(axis=0)
        y = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    use = abs(program.matrix[:, : program.n_choices]).T @ y
    starts = program.group_start[:-1]
    least = np.minimum.reduceat(np.where(split, use, np.inf), starts)
    most = np.maximum.reduceat(np.where(split, use, -np.inf), starts)
    spread = most - least
    fractional = np.flatnonzero(spread > -np.inf)
    for group in fractional[np.argsort(-spread[fractional], kind="stable")].tolist():
        first, end = program.group_start[group], program.group_start[group + 1]
        columns = first + np.flatnonzero(keep[first:end])
        below = use[columns] <= float(use[columns] @ fraction[columns])
        if below.all() or not below.any() or least[group] == most[group]:
            # Both halves need a column, even where the last one is the only one that is split.
            below = columns <= min(columns[split[columns]][0], columns[-2])
        yield columns[below], columns[~below]


@dataclass(frozen=True)
class Limit:
    """Least and most of a count, and the nodes whose splits say so."""

    least: float = -np.inf
    most: float = np.inf
    of_least: int = -1
    of_most: int = -1


class ByCounts(Branching):
    """Cases limit counts; each has a row below those of the program, in the order in which they were met.

    `_place` numbers these rows by count; `_grown` is the program with them.
    """

    def __init__(self, counts: Sums) -> None:
        super().__init__(counts.program)
        self._counts, self._place = counts, dict[int, int]()
        self._grown = counts.program

    def root(self) -> dict[int, Limit]:
        """No count is limited."""
        return {}

    def program(self, case: Case) -> Program:
        """Every count that was met has a row below those of the program."""
        least, most = self._limits(case)
        lower = np.concatenate([self.whole.row_lower, least])
        return replace(self._grown, row_lower=lower, row_upper=np.concatenate([self.whole.row_upper, most]))

    def solve(self, case: Case, value: float, timer: Timer) -> Solved | None:
        """Solve as any rule does; where the counts know that the value is proven, it is."""
        solved, counts = super().solve(case, value, timer), self._counts
        if solved is None or solved.bound >= value:
            return solved
        if not isinstance(counts, Counts) or counts.proven is None:
            return solved
        sides = [(c, limit.most, True, limit.of_most) for c, limit in case.items()]
        sides += [(c, limit.least - 1, False, limit.of_least) for c, limit in case.items()]
        taken = [
            ({**counts.named(count), "at_most": int(most)}, inside, node)
            for count, most, inside, node in sides
            if node >= 0
        ]
        proven = counts.proven(counts.named_prices(solved.prices[: self.whole.n_rows]), taken)
        return solved._replace(bound=proven) if proven >= value else solved

    def inherited(self, prices: FloatArray) -> FloatArray:
        """Counts that were met since then have no price."""
        return np.concatenate([prices, np.zeros(self._grown.n_rows - len(prices))])

    def _limits(self, case: Case) -> tuple[FloatArray, FloatArray]:
        """Limits of all counts that were met."""
        least, most = np.full(len(self._place), -np.inf), np.full(len(self._place), np.inf)
        for count, limit in case.items():
            least[self._place[count]], most[self._place[count]] = limit.least, limit.most
        return least, most

    def _restrict(self, case: Case) -> None:
        """Have the solver hold a case, with rows for counts that it has not met yet."""
        if new := [count for count in case if count not in self._place]:
            self._meet(new)
        least, most = self._limits(case)
        rows = self._model.program.n_rows + np.arange(len(least), dtype=np.int32)
        self._solver.changeRowsBounds(len(rows), rows, least, most)

    def _meet(self, new: list[int]) -> None:
        """Give each of these counts, by their numbers, a row that does not limit it yet."""
        rows, free = self._counts.matrix[new], np.full(len(new), np.inf)
        begins, columns = rows.indptr[:-1].astype(np.int32), rows.indices.astype(np.int32)
        self._solver.addRows(len(new), -free, free, rows.nnz, begins, columns, rows.data)
        self._place |= {count: len(self._place) + i for i, count in enumerate(new)}
        self._grown = with_rows(self._grown, rows, -free, free)

    def _prices(self, duals: FloatArray) -> FloatArray:
        """Prices of the program's rows, then of counts: of integer columns, which are not scaled."""
        of_counts = duals[self._model.program.n_rows :] / self._model.cost_factor
        return np.concatenate([super()._prices(duals), of_counts])

    def split(self, case: Case, solved: Solved, node: int, value: float) -> tuple[Split, Case, Case] | None:
        """Split the fractional count whose sides have the best bounds; `node` is the case's in the tree."""
        splits = []
        for count, most in () if solved.x is None else self._fractional(solved.x):
            now = case.get(count, Limit())
            inside = case | {count: replace(now, most=most, of_most=node)}
            outside = case | {count: replace(now, least=most + 1, of_least=node)}
            splits.append((AtMost(count, most), inside, outside))
        return self._best(splits, solved.bound, value)

    def _fractional(self, x: FloatArray) -> Iterator[tuple[int, int]]:
        """Yield the most fractional counts of each level, by number, with their values rounded down."""
        values = self._counts.matrix @ x
        off = np.abs(values - np.round(values))
        order = np.lexsort((-off, self._counts.level))
        order = order[off[order] > FRACTIONAL]
        levels = self._counts.level[order]
        rank = np.arange(len(order)) - np.searchsorted(levels, levels)
        for count in order[rank < _CANDIDATES].tolist():
            yield count, int(np.floor(values[count]))

    def split_prices(self, case: Case, prices: FloatArray) -> dict[int, float]:
        """Prices of the rows of counts, by the nodes whose splits limit them."""
        of_counts = prices[self.whole.n_rows :]
        priced = [(limit, float(of_counts[self._place[count]])) for count, limit in case.items()]
        return {limit.of_least if y > 0 else limit.of_most: y for limit, y in priced if y != 0.0}
