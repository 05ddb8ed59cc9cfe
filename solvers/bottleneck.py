r"""Bottleneck objectives: programs that minimise the worst of their groups' values, and nothing else.

The optimum is one of the values that columns have. Whether it is at most :math:`t` is a question without an
objective: do the columns that reach :math:`t` have a choice under the other rows? Row prices :math:`y` answer
no where the rows together, each times its price, have none. So they prove the *surrogate bound*

.. math::
    S(y) = \min \Big\{ t : \sum_i (y_i^+ r^l_i - y_i^- r^u_i)
                   + \sum_k \min_{j \in G_k,\ v_j \le t} (- A^T y)_j \le 0 \Big\}

(F. Glover, "Surrogate constraints", Operations Research 16, 1968). Bisection on :math:`t`, with an LP for
each, finds prices that prove all that LPs can. The linear relaxation of the program itself proves less, since
it mixes columns on both sides of the threshold.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.program import Block, Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import LAST_DIGITS, ROUNDING
from wattsched.solvers.rows import elastic, group_of_choice
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, offsets

# Of what the rows hold together, the increase over which prices are the mean improvement.
_INCREASE = 0.01


def bottleneck_values(program: Program) -> FloatArray | None:
    """Least value of the bottleneck column that each choice column allows; -inf without a bottleneck.

    Shape (n_choices,). None when a row has several groups, or another free column, beside the bottleneck.
    """
    values = np.full(program.n_choices, -np.inf)
    if program.bottleneck is None:
        return values
    slope = program.matrix[:, [program.bottleneck]].toarray().ravel()
    rows = np.flatnonzero(slope)
    inside = program.matrix.tocsr()[rows]
    others = (inside.indices != program.bottleneck) & (inside.data != 0)
    row = np.repeat(np.arange(len(rows)), np.diff(inside.indptr))[others]
    column, coefficient = inside.indices[others], inside.data[others]
    if np.any(column >= program.n_choices):
        return None
    group = group_of_choice(program)[column]
    of_row = np.full(len(rows), -1)
    of_row[row] = group
    if np.any(of_row[row] != group):
        return None
    # slope t + a >= lower, or <= upper with a negative slope, is a lower limit on t; of columns that are not
    # in the row a is 0.
    end = np.where(slope > 0, program.row_lower, program.row_upper)[rows]
    alone = of_row < 0
    values[:] = np.max((end / slope[rows])[alone], initial=-np.inf)
    start, size = program.group_start[of_row], np.where(alone, 0, np.diff(program.group_start)[of_row])
    # Coefficients by row, written out for all columns of the row's group; those of a row begin at `first`.
    first = np.cumsum(size) - size
    a = np.zeros(int(size.sum()))
    a[first[row] + column - start[row]] = coefficient
    members = np.arange(len(a)) + np.repeat(start - first, size)
    np.maximum.at(values, members, (np.repeat(end, size) - a) / np.repeat(slope[rows], size))
    return values


def bottleneck_of(program: Program) -> Bottleneck | None:
    """Return the bottleneck of a program that has no other objective; None for other programs."""
    z = program.bottleneck
    if z is None or program.n_groups == 0 or program.integer[z] or program.cost[z] <= 0:
        return None
    slope = program.matrix[:, [z]].toarray().ravel()
    limits_above = np.where(slope > 0, program.row_upper, -program.row_lower)[slope != 0] < np.inf
    if np.any(np.delete(program.cost, z) != 0) or limits_above.any() or not np.isfinite(program.lower[z]):
        return None
    values = bottleneck_values(program)
    if values is None:
        return None
    values = np.where(values <= program.upper[z], np.maximum(values, program.lower[z]), np.inf)
    return Bottleneck(program, z, values, slope == 0)


@dataclass(frozen=True)
class Bottleneck:
    """A program whose objective is its bottleneck column.

    Attributes
    ----------
    values : float array, shape (n_choices,)
        What the bottleneck column is at least where a choice column is taken; infinite beyond its bound.
    rows : bool array, shape (n_rows,)
        The other rows, which do not limit that column.
    """

    program: Program
    column: int
    values: FloatArray
    rows: BoolArray

    @cached_property
    def levels(self) -> FloatArray:
        """Values that the optimum can have, ascending: none is below the worst of the groups' best ones."""
        least = float(np.minimum.reduceat(self.values, self.program.group_start[:-1]).max())
        return np.unique(self.values[(self.values >= least) & (self.values < np.inf)])

    def cost(self, place: int) -> float:
        """Cost of the program at the level of that index; infinite behind the last."""
        if place == len(self.levels):
            return np.inf
        return self.program.offset + float(self.program.cost[self.column] * self.levels[place])

    def place(self, cost: float) -> int:
        """Index of the first level that costs at least this, up to rounding."""
        if cost == np.inf:
            return len(self.levels)
        offset, rate = self.program.offset, self.program.cost[self.column]
        level = (cost - offset) / rate
        lost = LAST_DIGITS * (abs(level) + (abs(cost) + abs(offset)) / abs(rate))
        return int(np.searchsorted(self.levels, level - lost))

    def surrogate_bound(self, prices: FloatArray) -> float:
        """Lower bound on the cost that row prices prove; infinite if they leave no point."""
        return self.cost(_first(self.levels, self._missing(prices)))

    def scaled(self, prices: FloatArray) -> FloatArray:
        """Prices of the same bound, in units of the cost; the bottleneck's own rows have none.

        A price is by how much one more unit of its row improves the bound, on average over the next
        hundredth of what the rows hold in all, at these prices.
        """
        y = np.where(self.rows, prices, 0.0)
        missing, place = self._missing(y), _first(self.levels, self._missing(y))
        if place in (0, len(self.levels)):
            return y
        below = _first(self.levels[:place], missing, _INCREASE * float(np.abs(y) @ self._size))
        below = max(0, below - 1)
        gained = self.cost(place) - self.cost(below)
        return y * (gained / missing(float(self.levels[below])))

    @cached_property
    def _size(self) -> FloatArray:
        """Larger of the finite limits of every row, 0 where there is none."""
        ends = np.abs([self.program.row_lower, self.program.row_upper])
        return np.asarray(np.where(np.isfinite(ends), ends, 0.0).max(axis=0))

    def _missing(self, prices: FloatArray) -> Callable[[float], float]:
        """Return the priced shortfall of the rows as a function of a threshold on the bottleneck column.

        Where it is positive, and not rounding alone, no point is within the threshold.
        """
        program, n = self.program, self.program.n_choices
        y = np.where(self.rows, prices, 0.0)
        ends = np.where(y > 0, program.row_lower, np.where(y < 0, program.row_upper, 0.0))
        use = -(program.matrix.T @ y)
        free = use[n:]
        corner = np.where(free > 0, program.lower[n:], program.upper[n:])
        fixed = np.concatenate([(y * ends)[y != 0], (free * np.where(free == 0, 0.0, corner))])
        start = program.group_start[:-1]
        # A limit may be what rounding has left of a difference: a row is never surer than its largest entry.
        unsure = float(np.abs(y) @ program.row_size)

        def missing(threshold: float) -> float:
            least = np.minimum.reduceat(np.where(self.values <= threshold, use[:n], np.inf), start)
            if least.max() == np.inf:
                return np.inf
            terms = np.concatenate([fixed, least])
            return float(terms.sum() - ROUNDING * (np.abs(terms).sum() + unsure))

        return missing

    def at(self, place: int) -> tuple[Program, IntArray]:
        """Program, at no cost, of the columns whose values are within the level of an index; these columns.

        It has the rows that do not limit the bottleneck column.
        """
        program, n = self.program, self.program.n_choices
        keep = self.values <= self.levels[place]
        free = np.delete(np.arange(n, program.n_columns), self.column - n)
        columns = np.concatenate([np.flatnonzero(keep), free])
        counts = np.add.reduceat(keep.astype(np.int64), program.group_start[:-1])
        reached = Program(
            cost=np.zeros(len(columns)),
            matrix=self._matrix[:, columns],
            row_lower=program.row_lower[self.rows],
            row_upper=program.row_upper[self.rows],
            lower=program.lower[columns],
            upper=program.upper[columns],
            integer=program.integer[columns],
            group_start=offsets(counts),
            rows=(Block("row", int(self.rows.sum())),),
            columns=(Block("column", len(columns)),),
        )
        return reached, columns

    @cached_property
    def _matrix(self) -> csc_array:
        return csc_array(self.program.matrix.tocsr()[self.rows])

    def point(self, columns: IntArray, x: FloatArray) -> FloatArray:
        """Point of the whole program from a point `x` of a program of `at` and its columns."""
        full = np.zeros(self.program.n_columns)
        full[columns] = x
        n = self.program.n_choices
        full[self.column] = self.values[full[:n] > 0.5].max()
        return full


def _first(levels: FloatArray, missing: Callable[[float], float], most: float = 0.0) -> int:
    """Index of the first level at which at most `most` is missing; `missing` is as from `_missing`."""
    return bisect_left(range(len(levels)), True, key=lambda i: missing(float(levels[i])) <= most)


Relax = Callable[[Program, float | None], tuple[FloatArray, float]]
"""From a program and a time limit in s to row prices and the Lagrangian bound that they prove."""


def surrogate_prices(
    bottleneck: Bottleneck, relax: Relax, time_s: float | None, start: FloatArray | None, enough: float
) -> tuple[FloatArray, float]:
    """Prices of the best surrogate bound, by bisection over the levels, and that bound, a cost.

    It begins at the prices `start`, and stops at a bound of `enough`; `relax` finds prices for a level.
    """
    timer = Timer(time_s)
    best = np.zeros(bottleneck.program.n_rows) if start is None else start
    low, high = bottleneck.place(bottleneck.surrogate_bound(best)), len(bottleneck.levels)
    # A bound that is good enough is most often the best there is: it is tried first.
    enough_at = min(bottleneck.place(enough), high)
    probe = enough_at - 1
    while low < min(high, enough_at) and not timer.over():
        reached, columns = bottleneck.at(probe)
        # So many sizes of a row are the most that choices lack of it; with other columns that is unknown.
        most = np.inf if len(columns) > reached.n_choices else 1.0 + reached.n_groups
        lacking, _, _ = elastic(reached, np.ones(reached.n_rows, dtype=bool), most)
        prices = np.zeros(len(best))
        prices[bottleneck.rows], _ = relax(lacking, timer.remaining_s())
        found = bottleneck.place(bottleneck.surrogate_bound(prices))
        if found > low:
            best, low = prices, found
        if found <= probe:
            high = probe
        probe = (low + high) // 2
    return bottleneck.scaled(best), bottleneck.cost(low)
