"""Rows and the choices under them: which choices rows tie together, and what a choice leaves of every row."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from itertools import pairwise

import numpy as np
from scipy.sparse import csc_array, csr_array, hstack, vstack

from wattsched.formulations.program import Block, Program
from wattsched.formulations.tolerances import CANCELLATION, OVERDRAFT, VIOLATION
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, largest_by, ranges

# Above this many cells, a table of groups by rows is not worth its memory.
_CELLS = 30_000_000
# Up to so many are looked at sooner when all of them are written out.
_FEW_CELLS = 1_000_000
_NO_GROUPS = np.zeros(1, dtype=np.int64)


def group_of_choice(program: Program) -> IntArray:
    """Group of every choice column, shape (n_choices,)."""
    return np.repeat(np.arange(program.n_groups), np.diff(program.group_start))


def first_least(values: FloatArray, group_start: IntArray) -> IntArray:
    """Column of the least value in every group, the first on ties, shape (n_groups,)."""
    starts = group_start[:-1]
    if len(starts) == 0:
        return np.zeros(0, dtype=np.int64)
    least = np.repeat(np.minimum.reduceat(values, starts), group_start[1:] - starts)
    hits = np.flatnonzero(values == least)
    return hits[np.searchsorted(hits, starts)]


def allowance(limit: FloatArray, share: FloatArray | float = VIOLATION) -> FloatArray:
    """Return the excess allowed over a row's limit: a share of the limit's size, which is one at least."""
    return np.asarray(share * np.maximum(1.0, np.where(np.isfinite(limit), np.abs(limit), 1.0)))


def linking_rows(program: Program) -> BoolArray:
    """Rows ``a x = 0`` over choice columns alone: one choice asks for another; shape (n_rows,)."""
    linking: BoolArray = (program.row_lower == 0) & (program.row_upper == 0)
    if linking.any():
        entries = program.matrix.tocoo()
        linking[entries.row[entries.col >= program.n_choices]] = False
    return linking


def linked_choices(program: Program) -> BoolArray:
    """Choice columns that cannot be taken without others, as of jobs that share GPUs; shape (n_choices,)."""
    linked = np.zeros(program.n_columns, dtype=bool)
    rows = linking_rows(program)
    if rows.any():
        entries = program.matrix.tocoo()
        linked[entries.col[rows[entries.row]]] = True
    return linked[: program.n_choices]


def with_choice_rows(program: Program) -> Program:
    """The program without groups, each of which is a row "exactly one" below the others, of a new matrix."""
    matrix = program.matrix
    if not matrix.has_sorted_indices:
        matrix = matrix.sorted_indices()
    n, k = program.n_choices, program.n_groups
    # Every choice column grows by one entry, at its end because the group rows come last.
    indptr = matrix.indptr + np.minimum(np.arange(program.n_columns + 1), n)
    added = np.zeros(indptr[-1], dtype=bool)
    added[indptr[1 : n + 1] - 1] = True
    indices = np.empty(len(added), dtype=np.int64)
    data = np.ones(len(added))
    indices[added] = program.n_rows + group_of_choice(program)
    indices[~added] = matrix.indices
    data[~added] = matrix.data
    return replace(
        program,
        matrix=csc_array((data, indices, indptr), shape=(program.n_rows + k, program.n_columns)),
        row_lower=np.concatenate([program.row_lower, np.ones(k)]),
        row_upper=np.concatenate([program.row_upper, np.ones(k)]),
        rows=(*program.rows, Block("choice", k, "choice_{}".format)),
        group_start=_NO_GROUPS,
    )


def restricted(
    program: Program, columns: IntArray, others: FloatArray, group_start: IntArray = _NO_GROUPS
) -> Program:
    """Program over some columns, where the others have the values of a point that is zero at these.

    What rounding may lose where their use cancels limits is left to the rows, so that no point is lost.
    """
    taken = np.flatnonzero(others)
    decided, values = csc_array(program.matrix[:, taken]), others[taken]
    used, room = decided @ values, _lost(program, decided, values)
    return Program(
        cost=program.cost[columns],
        matrix=csc_array(program.matrix[:, columns]),
        row_lower=program.row_lower - used - room,
        row_upper=program.row_upper - used + room,
        lower=program.lower[columns],
        upper=program.upper[columns],
        integer=program.integer[columns],
        group_start=group_start,
        rows=program.rows,
        columns=(),
        offset=program.objective(others),
    )


def _lost(program: Program, decided: csc_array, values: FloatArray) -> FloatArray:
    """Return the error, by row, of its limits less the uses of decided columns; 0 where all are integers."""
    uses = decided.data * np.repeat(values, np.diff(decided.indptr))
    size = np.bincount(decided.indices, np.abs(uses), program.n_rows)
    broken = np.bincount(decided.indices, uses % 1.0 != 0.0, program.n_rows) > 0.0
    for limit in (program.row_lower, program.row_upper):
        broken |= np.where(np.isfinite(limit), limit, 0.0) % 1.0 != 0.0
    return np.where(broken, CANCELLATION * size, 0.0)


def cost_range(program: Program) -> float:
    """Sum of what the groups' dearest columns cost above their cheapest, 1 where that is nothing."""
    start, cost = program.group_start[:-1], program.cost[: program.n_choices]
    spread = np.maximum.reduceat(cost, start) - np.minimum.reduceat(cost, start)
    return float(spread.sum()) or 1.0


def with_row(program: Program, columns: BoolArray, least: float, most: float) -> Program:
    """The program with one more row: of these choice columns, a mask, `least` to `most` are taken."""
    taken = np.zeros((1, program.n_columns))
    taken[0, : program.n_choices] = columns
    grown = with_rows(program, csr_array(taken), np.array([least]), np.array([most]))
    return replace(grown, rows=(*program.rows, Block("taken", 1)))


def with_rows(program: Program, matrix: csr_array, least: FloatArray, most: FloatArray) -> Program:
    """The program with more rows, which have no names."""
    return replace(
        program,
        matrix=csc_array(vstack([program.matrix, matrix])),
        row_lower=np.concatenate([program.row_lower, least]),
        row_upper=np.concatenate([program.row_upper, most]),
    )


def elastic(
    program: Program, limits: BoolArray, most: float = np.inf
) -> tuple[Program, IntArray, FloatArray]:
    """Program with a column per row limit that extends it, at a cost relative to the limit's size.

    Parameters
    ----------
    limits : bool array, shape (n_rows,)
        Rows that can be extended.
    most : float
        Largest extension, in sizes of the limit.

    Returns
    -------
    program : Program
    row, sign : arrays, shape (n_added,)
        Row of every added column, and its sign there: -1 for an upper limit.
    """
    upper = np.flatnonzero(np.isfinite(program.row_upper) & limits)
    lower = np.flatnonzero(np.isfinite(program.row_lower) & limits)
    row = np.concatenate([upper, lower])
    sign = np.concatenate([-np.ones(len(upper)), np.ones(len(lower))])
    limit = np.concatenate([program.row_upper[upper], program.row_lower[lower]])
    largest = largest_by(program.matrix.indices, np.abs(program.matrix.data), program.n_rows)[row]
    size = np.maximum(np.maximum(np.abs(limit), largest), 1e-12)
    k = len(row)
    slack = csc_array((sign * size, (row, np.arange(k))), shape=(program.n_rows, k))
    extended = replace(
        program,
        cost=np.concatenate([np.zeros(program.n_columns), np.ones(k)]),
        matrix=csc_array(hstack([program.matrix, slack])),
        lower=np.concatenate([program.lower, np.zeros(k)]),
        upper=np.concatenate([program.upper, np.full(k, most)]),
        integer=np.concatenate([program.integer, np.zeros(k, dtype=bool)]),
        columns=(),
        offset=0.0,
        bottleneck=None,
        attributes={},
    )
    return extended, row, sign


class RowSlack:
    """Rows as ``uses <= limits`` (lower bounds change sign), and the choices that a rule has made under them.

    Rows of a bottleneck are left out. Free columns are at the bound that costs least, a bottleneck at zero.

    Attributes
    ----------
    uses : csr_array, shape (n_choices, n_limits)
    limits, activity, reach : float arrays, shape (n_limits,)
        Limits, what the chosen columns use, and the most that may be used: rounding is allowed for.
    size : float array, shape (n_limits,)
        Magnitude of a row, to compare rows of different units.
    rows, sign : arrays, shape (n_limits,)
        The program's row of every limit; 1 for its upper bound, -1 for its lower one.
    group : int array, shape (n_choices,)
    chosen : int array, shape (n_groups,)
        Column of every group; at first the first one.
    """

    def __init__(self, program: Program) -> None:
        self._free = _without_choices(program)
        used = program.matrix @ self._free
        counts = np.ones(program.n_rows, dtype=bool)
        if program.bottleneck is not None:
            counts[program.matrix[:, [program.bottleneck]].tocoo().row] = False
        by_column = csr_array(program.matrix[:, : program.n_choices].T)
        upper = np.flatnonzero(counts & np.isfinite(program.row_upper))
        lower = np.flatnonzero(counts & np.isfinite(program.row_lower))
        used_below = by_column[:, upper]
        if len(lower):
            used_below = hstack([used_below, -by_column[:, lower]], format="csr")
        self.uses = csr_array(used_below)
        self.rows = np.concatenate([upper, lower])
        self.sign = np.concatenate([np.ones(len(upper)), -np.ones(len(lower))])
        bound = np.concatenate([program.row_upper[upper], program.row_lower[lower]])
        self.limits = self.sign * (bound - used[self.rows])
        largest = largest_by(self.uses.indices, np.abs(self.uses.data), len(self.limits))
        self.size = np.maximum(np.maximum(np.abs(self.limits), largest), 1e-12)
        self.group_start = program.group_start
        self.group = group_of_choice(program)
        self.reach = self.limits + allowance(self.limits, OVERDRAFT)
        self.choose(program.group_start[:-1].copy())

    def choose(self, columns: IntArray) -> None:
        """Take one column per group, whether they fit or not."""
        self.chosen = columns
        self.activity = self._sum_of(columns)

    def point(self) -> FloatArray:
        """Point of the program with the chosen columns."""
        x = self._free.copy()
        x[self.chosen] = 1.0
        return x

    def excess(self) -> FloatArray:
        """Return the excess of every row over its limit, as a share of its size; zero where there is none."""
        return np.asarray(np.where(self.activity > self.reach, self.activity - self.limits, 0.0) / self.size)

    def fits(self) -> bool:
        """True if the chosen columns keep all limits."""
        return bool(np.all(self.activity <= self.reach))

    def swap_in_order(self, groups: IntArray, targets: IntArray, sources: IntArray | None = None) -> int:
        """Give groups the columns `targets` one by one, where all limits are kept; return how many.

        A swap is passed over when its group does not hold the column of `sources` at that moment.
        """
        sources = self.chosen[groups] if sources is None else sources
        first, rows, changes = self._differences(sources, targets)
        activity, reach, chosen = self.activity.tolist(), self.reach.tolist(), self.chosen.tolist()
        swaps = 0
        each = zip(groups.tolist(), sources.tolist(), targets.tolist(), pairwise(first), strict=True)
        for group, source, target, (begin, end) in each:
            if chosen[group] != source:
                continue
            for e in range(begin, end):
                if changes[e] > 0 and activity[rows[e]] + changes[e] > reach[rows[e]]:
                    break
            else:
                for e in range(begin, end):
                    activity[rows[e]] += changes[e]
                chosen[group] = target
                swaps += 1
        self.choose(np.array(chosen, dtype=np.int64))
        return swaps

    def take_all(self, targets: IntArray) -> bool:
        """Give the columns' groups these columns at once, if that keeps all limits."""
        groups = self.group[targets]
        after = self.activity + (self._sum_of(targets) - self._sum_of(self.chosen[groups]))
        if np.any((after > self.activity) & (after > self.reach)):
            return False
        chosen = self.chosen.copy()
        chosen[groups] = targets
        self.choose(chosen)
        return True

    def swappable(self, columns: IntArray, but: int = -1) -> BoolArray:
        """Return a mask of the columns that may replace their group's column without breaking a limit.

        A row that is over its limit already must not get worse; row `but` is not looked at.
        Uses that a group gives back in rows that the new column does not touch are not considered.
        """
        slack = np.maximum(self.reach - self.activity, 0.0)
        if self._written_out is not None:
            uses = self._written_out[columns]
            beyond = uses > slack
            if beyond.any():  # what the group gives back counts
                beyond &= uses - self._written_out[self.chosen[self.group[columns]]] > slack
            if but >= 0:
                beyond[:, but] = False
            return np.asarray(~beyond.any(axis=1))
        column, entry = self._entries_of(columns)
        row, change = self.uses.indices[entry], self.uses.data[entry]
        over = change > slack[row]
        if over.any() and len(self.chosen) * len(self.limits) <= _CELLS:
            # What the group gives back counts; it matters only where there is too little room without.
            at = np.flatnonzero(over)
            given = self.uses[self.chosen].toarray()[self.group[columns[column[at]]], row[at]]
            over[at] = change[at] - given > slack[row[at]]
        broken = over & (row != but)
        return np.asarray(np.bincount(column[broken], minlength=len(columns)) == 0)

    def _differences(self, sources: IntArray, targets: IntArray) -> tuple[list[int], list[int], list[float]]:
        """Return the changes of each swap in sparse form: where each begins, their rows, and their values."""
        if self._written_out is None:
            change = csr_array(self.uses[targets] - self.uses[sources])
            return change.indptr.tolist(), change.indices.tolist(), change.data.tolist()
        table = self._written_out[targets] - self._written_out[sources]
        place, row = np.nonzero(table)
        first = np.searchsorted(place, np.arange(len(targets) + 1))
        return first.tolist(), row.tolist(), table[place, row].tolist()

    @cached_property
    def _written_out(self) -> FloatArray | None:
        """Uses of all columns, shape (n_choices, n_limits), where these are few."""
        return self.uses.toarray() if self.uses.shape[0] * self.uses.shape[1] <= _FEW_CELLS else None

    def _sum_of(self, columns: IntArray) -> FloatArray:
        """Sum of the uses of these columns."""
        _, entry = self._entries_of(columns)
        rows, uses = self.uses.indices[entry], self.uses.data[entry]
        # Without entries counts are integers.
        return np.bincount(rows, uses, minlength=len(self.limits)).astype(float, copy=False)

    def _entries_of(self, columns: IntArray) -> tuple[IntArray, IntArray]:
        """Place in `columns` and index of every entry of these columns in `uses`."""
        first = self.uses.indptr[columns].astype(np.int64)
        size = self.uses.indptr[columns + 1] - first
        return np.repeat(np.arange(len(columns)), size), ranges(first, size)


def _without_choices(program: Program) -> FloatArray:
    """Point without choices, its free columns at the bound that costs least, a bottleneck at zero."""
    x = np.zeros(program.n_columns)
    free = slice(program.n_choices, None)
    low, high = program.lower[free], program.upper[free]
    corner = np.where(program.cost[free] < 0, high, low)
    x[free] = np.where(np.isfinite(corner), corner, np.clip(0.0, low, high))
    if program.bottleneck is not None:
        x[program.bottleneck] = 0.0
    return x
