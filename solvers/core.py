r"""Core search: a point within the gap of the bound, by a few changes to the rounded LP relaxation.

With optimal prices :math:`y` a point costs :math:`L(y)` and what its columns' reduced costs are above the
least of their groups, and what it leaves of priced rows. Columns of the *core* are little above (Balas and
Zemel, "An algorithm for large zero-one knapsack problems", 1980). All sets of a few of them are listed in two
halves, and pairs of these that fill the rows are found in order of use (Horowitz and Sahni, "Computing
partitions with applications to the knapsack problem", 1974). Where many columns cost the same, as all do that
use rows in proportion to what they are worth, those that take least room and those that free most are listed:
together they fill rows exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.program import Program
from wattsched.solvers.rows import first_least, group_of_choice
from wattsched.solvers.solution import Solution
from wattsched.topology.arrays import FloatArray, IntArray, run_starts

MOST_ROWS = 40
"""Largest number of rows: with more, all of which have to be filled, sets that do are too rare."""
# Columns, and sets of each half; the same where more columns cost the same, so that rows say which are taken.
_COLUMNS, _SETS = 50, 400
_EQUAL_COLUMNS, _EQUAL_SETS = 100, 2_000
# Differences of cost, as a share of what there is to spare, that are rounding.
_SAME = 1e-6
# Pairs that are looked at together, and at all.
_PAIRS, _MOST_PAIRS = 20_000, 600_000
# Columns that do the same are listed so often.
_ALIKE = 3


def fits(program: Program) -> bool:
    """True if the search is made for a program: choices alone, under few rows, at least one."""
    return program.n_columns == program.n_choices and 0 < program.n_rows <= MOST_ROWS


def search(program: Program, lp: Solution, enough: float) -> FloatArray | None:
    """Look for a point that costs at most `enough`, shape (n_columns,); None where none is found.

    `lp` is the optimum of the LP relaxation, with its prices and the bound that these prove.
    """
    core = _core(program, lp, enough)
    if core.spare < 0.0 or np.any(core.low > core.high) or (chosen := core.search()) is None:
        return None
    point = np.zeros(program.n_columns)
    point[chosen] = 1.0
    return point


class _Sets:
    """The cheapest sets of changes to different groups.

    `above` is what each costs more than the point, `use` what it adds to the rows, shape (n_sets, n_rows),
    and `_number` its number among all sets that there ever were, `_count` of them. Of each of all `_from` is
    the set that it came from, and `_by` the change that it adds. `most` sets are kept: of those that cost the
    same, the nearest to adding `half`, by the `size` of changes.
    """

    def __init__(self, half: FloatArray, size: FloatArray, spare: float, most: int) -> None:
        self.above, self.use = np.zeros(1), np.zeros((1, len(half)))
        self._half, self._size, self._spare, self._most = half, size, spare, most
        self._from, self._by = [np.zeros(1, dtype=np.int64)], [np.zeros(1, dtype=np.int64)]
        self._number, self._count = np.zeros(1, dtype=np.int64), 1

    def extend(self, changes: IntArray, above: FloatArray, use: FloatArray) -> None:
        """Add the sets that are one so far with one of these changes, all of a group; keep the cheapest."""
        origin, change = np.nonzero(self.above[:, None] + above <= self._spare)
        if len(origin) == 0:
            return
        self._from.append(self._number[origin])
        self._by.append(changes[change])
        self._number = np.concatenate([self._number, np.arange(self._count, self._count + len(origin))])
        self._count += len(origin)
        self.use = np.concatenate([self.use, self.use[origin] + use[change]])
        self.above = np.concatenate([self.above, self.above[origin] + above[change]])
        if len(self.above) > self._most:
            far = (((self.use - self._half) / self._size) ** 2).sum(axis=1)
            kept = np.lexsort((far, self.above))[: self._most]
            self.above, self.use, self._number = self.above[kept], self.use[kept], self._number[kept]
            self._spare = min(self._spare, float(self.above.max()))

    def members(self, i: int) -> list[int]:
        """Changes of a set."""
        origin, by = np.concatenate(self._from), np.concatenate(self._by)
        number, changes = int(self._number[i]), []
        while number:
            changes.append(int(by[number]))
            number = int(origin[number])
        return changes


@dataclass(frozen=True)
class _Core:
    """Changes to a point, whose columns are `chosen`, about the cheapest of their groups.

    A change takes one of `columns` in its `group` instead, costs so much `above` the chosen one, and adds its
    `use` to the rows, shape (n_changes, n_rows); groups with the cheapest ones come first. A set of them may
    add from `low` to `high` to the rows, and cost `spare` with what it leaves of rows that have `prices`; of
    each half `most` sets are kept.
    """

    chosen: IntArray
    columns: IntArray
    group: IntArray
    above: FloatArray
    use: FloatArray
    low: FloatArray
    high: FloatArray
    prices: FloatArray
    spare: float
    most: int

    def search(self) -> IntArray | None:
        """Columns of a point that costs at most `spare` more, shape (n_groups,); None where none is found."""
        first, second = self._sets()
        for left, right in self._pairs(first, second):
            if (pair := self._best(first, second, left, right)) is not None:
                of_first, of_second = pair
                changes, columns = [*first.members(of_first), *second.members(of_second)], self.chosen.copy()
                columns[self.group[changes]] = self.columns[changes]
                return columns
        return None

    def _sets(self) -> tuple[_Sets, _Sets]:
        """Sets of the changes of every second group, and of the others."""
        ends = np.where(np.isfinite(self.high), self.high, self.low)
        half, size = 0.5 * np.where(np.isfinite(ends), ends, 0.0), np.abs(self.use).max(axis=0, initial=0.0)
        size[size == 0.0] = np.inf
        halves = (
            _Sets(half, size, self.spare, self.most),
            _Sets(half, size, self.spare, self.most),
        )
        begins = run_starts(self.group)
        for i, changes in enumerate(np.split(np.arange(len(self.group)), begins[1:])):
            halves[i % 2].extend(changes, self.above[changes], self.use[changes])
        return halves

    def _pairs(self, first: _Sets, second: _Sets) -> Iterator[tuple[IntArray, IntArray]]:
        """Yield pairs of sets, by index, that keep the row that fewest keep, the cheapest second first."""
        spread = np.ptp(first.use, axis=0) + np.ptp(second.use, axis=0)
        row = int(np.argmax(spread / np.maximum(self.high - self.low, 1e-12 * np.maximum(spread, 1.0))))
        order, right = np.argsort(first.use[:, row]), np.argsort(second.above)
        # Of each second set, those of the first, in order of use, from which to which the row is kept.
        keys, use = first.use[order, row], second.use[right, row]
        begin, end = (
            np.searchsorted(keys, self.low[row] - use),
            np.searchsorted(keys, self.high[row] - use, "right"),
        )
        n_pairs = np.cumsum(end - begin)
        at = 0
        while at < len(right) and (at == 0 or n_pairs[at - 1] < _MOST_PAIRS):
            before = n_pairs[at - 1] if at else 0
            until = max(at + 1, int(np.searchsorted(n_pairs, before + _PAIRS, "right")))
            count = end[at:until] - begin[at:until]
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            yield order[np.repeat(begin[at:until], count) + within], np.repeat(right[at:until], count)
            at = until

    def _best(self, first: _Sets, second: _Sets, left: IntArray, right: IntArray) -> tuple[int, int] | None:
        """Cheapest pair of sets ``left[i]`` and ``right[i]`` that keeps all rows; None above `spare`."""
        above = first.above[left] + second.above[right]
        for row, price in enumerate(self.prices.tolist()):
            use = first.use[left, row] + second.use[right, row]
            if price:  # what a pair leaves of the row costs, too
                above = above + np.abs(price) * (self.high[row] - use if price < 0 else use - self.low[row])
            kept = (use >= self.low[row]) & (use <= self.high[row]) & (above <= self.spare)
            left, right, above = left[kept], right[kept], above[kept]
        if len(above) == 0:
            return None
        best = int(np.argmin(above))
        return int(left[best]), int(right[best])


def _core(program: Program, lp: Solution, enough: float) -> _Core:
    """Core of a program around the optimum of its LP relaxation, for points that cost at most `enough`."""
    assert lp.x is not None
    assert lp.prices is not None
    prices, group, above = lp.prices, group_of_choice(program), program.above_least(lp.prices)
    chosen = first_least(-lp.x, program.group_start)
    spare = enough - lp.bound - float(above[chosen].sum())
    change = above - above[chosen][group]
    change[np.abs(change) <= _SAME * spare] = 0.0
    columns = np.flatnonzero(change <= spare)
    columns = columns[chosen[group[columns]] != columns]
    most, sets = _COLUMNS, _SETS
    if len(columns) > most:
        columns = columns[change[columns] <= np.partition(change[columns], most)[most]]
        if len(columns) > _EQUAL_COLUMNS:
            most, sets = _EQUAL_COLUMNS, _EQUAL_SETS
    use = (program.matrix[:, columns] - program.matrix[:, chosen[group[columns]]]).T.toarray()
    order = _balanced(change[columns], use @ np.abs(prices))[:most]
    columns, use = columns[order], use[order]
    kept = _few_alike(np.column_stack([change[columns], use]))
    columns, use = columns[kept], use[kept]
    # Groups in the order of their first, each with its own together.
    _, first, number = np.unique(group[columns], return_index=True, return_inverse=True)
    order = np.argsort(first[number], kind="stable")
    columns, use = columns[order], use[order]

    used = np.asarray(program.matrix[:, chosen].sum(axis=1)).ravel()
    low, high = program.row_lower - used, program.row_upper - used
    for row in np.flatnonzero(prices).tolist():
        left = spare / abs(prices[row])  # what may be left of the row at most
        if prices[row] < 0:
            low[row] = max(low[row], high[row] - left)
        else:
            high[row] = min(high[row], low[row] + left)
    return _Core(chosen, columns, group[columns], change[columns], use, low, high, prices, spare, sets)


def _balanced(cost: FloatArray, priced: FloatArray) -> IntArray:
    """Order of changes by cost; of equal ones, those that take least room and that free most in turn.

    Then one can make up for another. `priced` is their use of the rows at the rows' prices.
    """
    rank = np.zeros(len(cost), dtype=np.int64)
    for side in (np.flatnonzero(priced > 0.0), np.flatnonzero(priced <= 0.0)):
        order = side[np.lexsort((priced[side], cost[side]))]
        rank[order] = np.arange(len(order))
    return np.lexsort((rank, cost))


def _few_alike(rows: FloatArray) -> IntArray:
    """Positions of rows, of alike ones the first few."""
    _, number = np.unique(rows, axis=0, return_inverse=True)
    order = np.argsort(number, kind="stable")
    ordered = number[order]
    rank = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return np.sort(order[rank < _ALIKE])
