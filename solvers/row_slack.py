"""What a choice of one column per group leaves of the rows, for rules that build decisions step by step."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, hstack

from wattsched.formulations.program import Program
from wattsched.solvers.rows import group_of_choice
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# Share of a row's limit that counts as rounding; well inside the tolerance of feasible points.
_ROUNDING = 1e-10
# Above this many cells, a table of groups by rows is not worth its memory.
_CELLS = 30_000_000


class Room:
    """Rows as ``uses <= limits`` (lower bounds change sign), and the choices made under them.

    Attributes
    ----------
    uses : csr_array, shape (n_choices, n_limits)
        Use of every choice column.
    limits : float array, shape (n_limits,)
    size : float array, shape (n_limits,)
        Magnitude of a row, to compare rows of different units.
    group : int array, shape (n_choices,)
    chosen : int array, shape (n_groups,)
        Column of every group.
    activity : float array, shape (n_limits,)
        Use of the chosen columns.
    """

    def __init__(self, program: Program, x: FloatArray) -> None:
        """Take the program's rows but those of a bottleneck; `x` has the free columns' values."""
        rows, used = np.flatnonzero(~bottleneck_rows(program)), program.matrix @ x
        by_column = csr_array(program.matrix[:, : program.n_choices].T)
        upper = rows[np.isfinite(program.row_upper[rows])]
        lower = rows[np.isfinite(program.row_lower[rows])]
        self.uses = csr_array(hstack([by_column[:, upper], -by_column[:, lower]], format="csr"))
        self.limits = np.concatenate(
            [program.row_upper[upper] - used[upper], used[lower] - program.row_lower[lower]]
        )
        largest = np.zeros(len(self.limits))
        np.maximum.at(largest, self.uses.indices, np.abs(self.uses.data))
        self.size = np.maximum(np.maximum(np.abs(self.limits), largest), 1e-12)
        self.group_start = program.group_start
        self.group = group_of_choice(program)
        self.rows = np.concatenate([upper, lower])
        self.sign = np.concatenate([np.ones(len(upper)), -np.ones(len(lower))])
        self._reach = self.limits + _ROUNDING * np.maximum(1.0, np.abs(self.limits))
        self.choose(program.group_start[:-1].copy())

    def choose(self, columns: IntArray) -> None:
        """Take one column per group, whether they fit or not."""
        self.chosen = columns
        self.activity = self._sum_of(columns)

    def excess(self) -> FloatArray:
        """How far every row is over its limit, as a share of its size; zero where it is not."""
        return np.asarray(np.where(self.activity > self._reach, self.activity - self.limits, 0.0) / self.size)

    def fits(self) -> bool:
        """Whether the chosen columns keep all limits."""
        return bool(np.all(self.activity <= self._reach))

    def swap_in_order(self, groups: IntArray, targets: IntArray, sources: IntArray | None = None) -> int:
        """Give groups new columns one after the other, as long as each keeps all limits.

        Parameters
        ----------
        sources : int array, optional
            A swap is passed over when its group does not hold this column at that moment.

        Returns
        -------
        int
            Number of swaps made.
        """
        sources = self.chosen[groups] if sources is None else sources
        change = csr_array(self.uses[targets] - self.uses[sources])
        first, rows, changes = change.indptr.tolist(), change.indices.tolist(), change.data.tolist()
        activity, reach, chosen = self.activity.tolist(), self._reach.tolist(), self.chosen.tolist()
        swaps = 0
        for i, (group, source, target) in enumerate(
            zip(groups.tolist(), sources.tolist(), targets.tolist(), strict=True)
        ):
            if chosen[group] != source:
                continue
            entries = range(first[i], first[i + 1])
            if any(changes[e] > 0 and activity[rows[e]] + changes[e] > reach[rows[e]] for e in entries):
                continue
            for e in entries:
                activity[rows[e]] += changes[e]
            chosen[group] = target
            swaps += 1
        self.choose(np.array(chosen, dtype=np.int64))
        return swaps

    def broken_by(self, target: int) -> IntArray:
        """Rows whose limit is broken when its group takes this column."""
        source, uses = int(self.chosen[self.group[target]]), self.uses
        change = np.zeros(len(self.limits))
        for column, sign in ((target, 1.0), (source, -1.0)):
            entries = slice(uses.indptr[column], uses.indptr[column + 1])
            change[uses.indices[entries]] += sign * uses.data[entries]
        return np.flatnonzero((change > 0) & (self.activity + change > self._reach))

    def fitting(self, group: int, rows: BoolArray) -> BoolArray:
        """Which columns of a group keep the limits of these rows."""
        columns = slice(int(self.group_start[group]), int(self.group_start[group + 1]))
        uses = self.uses[columns].toarray()
        after = self.activity + uses - uses[self.chosen[group] - columns.start]
        return np.asarray(np.all((after <= self._reach) | ~rows, axis=1))

    def take(self, target: int) -> None:
        """Give the column's group this column."""
        group, uses = int(self.group[target]), self.uses
        for column, sign in ((target, 1.0), (int(self.chosen[group]), -1.0)):
            entries = slice(uses.indptr[column], uses.indptr[column + 1])
            self.activity[uses.indices[entries]] += sign * uses.data[entries]
        self.chosen[group] = target

    def take_all(self, targets: IntArray) -> bool:
        """Give the columns' groups these columns at once, if that keeps all limits."""
        groups = self.group[targets]
        after = self.activity + (self._sum_of(targets) - self._sum_of(self.chosen[groups]))
        if np.any((after > self.activity) & (after > self._reach)):
            return False
        chosen = self.chosen.copy()
        chosen[groups] = targets
        self.choose(chosen)
        return True

    def swappable(self, columns: IntArray, but: int = -1) -> BoolArray:
        """Which of these columns may replace their group's column without breaking a limit.

        A row that is over its limit already must not get worse; row `but` is not looked at.
        Uses that a group gives back in rows that the new column does not touch are not considered.
        """
        slack = np.maximum(self._reach - self.activity, 0.0)
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

    # Rules ask for the uses of a few columns thousands of times, where slices of sparse matrices are slow.

    def _sum_of(self, columns: IntArray) -> FloatArray:
        """Sum of the uses of these columns."""
        _, entry = self._entries_of(columns)
        rows, uses = self.uses.indices[entry], self.uses.data[entry]
        # Without entries counts are integers.
        return np.bincount(rows, uses, minlength=len(self.limits)).astype(float, copy=False)

    def _entries_of(self, columns: IntArray) -> tuple[IntArray, IntArray]:
        """Place in `columns` and index of every entry of these columns in `uses`."""
        first, after = self.uses.indptr[columns], self.uses.indptr[columns + 1]
        column = np.repeat(np.arange(len(columns)), after - first)
        before = np.concatenate([[0], np.cumsum(after - first)[:-1]])
        return column, np.arange(len(column)) + np.repeat(first - before, after - first)


def without_choices(program: Program) -> FloatArray:
    """Point without choices, its free columns at the bound that costs least, a bottleneck at zero."""
    x = np.zeros(program.n_columns)
    free = slice(program.n_choices, None)
    low, high = program.lower[free], program.upper[free]
    corner = np.where(program.cost[free] < 0, high, low)
    x[free] = np.where(np.isfinite(corner), corner, np.clip(0.0, low, high))
    if program.bottleneck is not None:
        x[program.bottleneck] = 0.0
    return x


def bottleneck_rows(program: Program) -> BoolArray:
    """Which rows hold the bottleneck column above a group's value."""
    mask = np.zeros(program.n_rows, dtype=bool)
    if program.bottleneck is not None:
        mask[program.matrix[:, [program.bottleneck]].tocoo().row] = True
    return mask
