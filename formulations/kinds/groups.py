"""Groups that choose among the options of their kind, or columns of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, occurring, offsets, ranges

if TYPE_CHECKING:
    from scipy.sparse import csr_array

PER_GROUP = ("kind", "worth", "work", "surcharge", "lost_s", "credit", "most")
"""Arrays with an entry for every group."""

_FEW_ROWS, _FEW_TIMES = 8, 4
"""With at most so many rows, and entries per column, summing row by row is faster."""


class Uses(NamedTuple):
    """Entries of constraint rows by columns: a fixed part, one per second, and one per credit.

    Columns that refer to the same entry differ in their seconds and credits alone.

    Attributes
    ----------
    fixed, metered, credited : csr arrays, shape (n_entries, n_rows)
    """

    fixed: csr_array
    metered: csr_array
    credited: csr_array

    @property
    def sizes(self) -> IntArray:
        """Number of nonzeros of each entry, over its three parts."""
        return np.asarray(sum(np.diff(uses.indptr) for uses in self))

    @property
    def fractional(self) -> BoolArray:
        """Mask of constraint rows of which some use may be fractional, shape (n_rows,)."""
        fractional = np.zeros(self.fixed.shape[1], dtype=bool)
        fractional[self.fixed.indices[self.fixed.data % 1.0 != 0.0]] = True
        fractional[self.metered.indices] = fractional[self.credited.indices] = True
        return fractional

    def take(self, entries: IntArray) -> Uses:
        """Return some of the entries, in the order given."""
        n, rows = len(entries), self.fixed.shape[1]
        return Uses(*(uses[entries] if uses.nnz else type(uses)((n, rows)) for uses in self))

    def of(self, entry: IntArray, seconds: FloatArray, credit: FloatArray) -> csr_array:
        """Return the uses of columns, given their entries, seconds and credits, shape (n_columns, n_rows)."""
        total = self.fixed[entry]
        for uses, factor in self._varying(seconds, credit):
            part = uses[entry]
            part.data = part.data * np.repeat(factor, np.diff(part.indptr))
            total = total + part
        return total

    def in_all(
        self, entry: IntArray, seconds: FloatArray, credit: FloatArray, part: IntArray, parts: int
    ) -> FloatArray:
        """Return the sum of columns' uses by the `part` of each, shape (parts, n_rows)."""
        shape = parts, self.fixed.shape[1]
        total = _sum_by_part(self.fixed, entry, None, part, shape)
        for uses, factor in self._varying(seconds, credit):
            total += _sum_by_part(uses, entry, factor, part, shape)
        return total

    def priced(
        self, prices: FloatArray, entry: IntArray, seconds: FloatArray, credit: FloatArray
    ) -> FloatArray:
        """Return the cost of each column's uses at row prices, shape (n_columns,)."""
        cost = (self.fixed @ prices)[entry]
        for uses, factor in self._varying(seconds, credit):
            cost += (uses @ prices)[entry] * factor
        return np.asarray(cost)

    def _varying(self, seconds: FloatArray, credit: FloatArray) -> list[tuple[csr_array, FloatArray]]:
        """Return the parts that scale with seconds and credits, and their factors, where not empty."""
        pairs = (self.metered, seconds), (self.credited, credit)
        return [(uses, factor) for uses, factor in pairs if uses.nnz]


@dataclass(frozen=True, eq=False)
class KindRows:
    """Options (called rows) that each kind offers to its groups, kind by kind.

    Attributes
    ----------
    start : int array, shape (n_kinds + 1,)
        Rows of kind k are ``start[k]`` to ``start[k + 1]``, the quickest first.
    value : float array, shape (n_kind_rows,)
        Cost per unit of the group's worth.
    pace : float array, shape (n_kind_rows,)
        Seconds per unit of the group's work; ascending within a kind.
    uses : Uses
        Uses of constraint rows, with an entry for every option.
    """

    start: IntArray
    value: FloatArray
    pace: FloatArray
    uses: Uses

    def __len__(self) -> int:
        return len(self.value)

    @cached_property
    def fractional(self) -> BoolArray:
        """Mask of constraint rows of which some option's use may be fractional, shape (n_rows,)."""
        return self.uses.fractional

    @cached_property
    def alike(self) -> IntArray:
        """First of each run of options that differ in their fixed uses alone, as racks of one type do.

        At given prices one option of a run is best for all groups.
        """
        varying = [uses[:, np.unique(uses.indices)].toarray() for uses in self.uses[1:]]
        differs = np.diff(np.column_stack([self.value, self.pace, *varying]), axis=0).any(axis=1)
        first = np.concatenate([np.ones(min(1, len(self)), dtype=bool), differs])
        first[self.start[:-1][self.start[:-1] < len(self)]] = True
        return np.flatnonzero(first)


@dataclass(frozen=True, eq=False)
class OwnColumns:
    """Columns that belong to one group each, group by group.

    Attributes
    ----------
    start : int array, shape (n_groups + 1,)
    cost : float array, shape (n_own,)
    entry : int array, shape (n_own,)
        Entry of `uses` of each column; several columns may share one.
    seconds, credit : float arrays, shape (n_own,)
    uses : Uses
    """

    start: IntArray
    cost: FloatArray
    entry: IntArray
    seconds: FloatArray
    credit: FloatArray
    uses: Uses

    @classmethod
    def of(cls, *, entry: IntArray, uses: Uses, **columns: Any) -> Self:
        """Build columns, and drop entries that no column has: every pass looks at all entries."""
        kept, entry = occurring(entry, uses.fixed.shape[0])
        return cls(entry=entry, uses=uses.take(kept), **columns)

    def __len__(self) -> int:
        return len(self.cost)

    @cached_property
    def group(self) -> IntArray:
        """Group of every column."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def take(self, groups: IntArray) -> OwnColumns:
        """Return the columns of some of the groups, which are numbered anew."""
        sizes = np.diff(self.start)[groups]
        start = offsets(sizes)
        columns = ranges(self.start[groups], sizes)
        return OwnColumns(start, self.cost[columns], *self.used(columns), self.uses)

    def used(self, column: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return entries, seconds and credits of columns, the arguments of `Uses.of`."""
        return self.entry[column], self.seconds[column], self.credit[column]


@dataclass(frozen=True, eq=False, kw_only=True)
class KindGroups:
    """Groups, each of which chooses one column.

    A column's *code* is the index of an own column, or ``len(own)`` plus the index of an option of its kind
    (a row of `kinds`). A point is the code that each group chooses. `n_rows` counts constraint rows.

    Attributes
    ----------
    kind : int array, shape (n_groups,)
        Kind of each group, -1 for one that has own columns only.
    worth, work : float arrays, shape (n_groups,)
    surcharge, lost_s : float arrays, shape (n_groups,)
        Cost and seconds added to every option of its kind; not to its own columns.
    credit : float array, shape (n_groups,)
        Factor of the credited uses of its kind's options.
    most : int array, shape (n_groups,)
        Number of its kind's options, quickest first, that a group may choose; equally quick ones together.
    kinds : KindRows
    own : OwnColumns
    horizon_s : float
        Seconds beyond which metered uses are not counted.
    threads : int
        Threads of a pass; the answer does not depend on it.
    """

    kind: IntArray
    worth: FloatArray
    work: FloatArray
    surcharge: FloatArray
    lost_s: FloatArray
    credit: FloatArray
    most: IntArray
    kinds: KindRows
    own: OwnColumns
    horizon_s: float = np.inf
    threads: int = 1

    @property
    def n_rows(self) -> int:
        """Number of coupling rows."""
        return int(self.kinds.uses.fixed.shape[1])

    @property
    def n_groups(self) -> int:
        """Number of choice groups."""
        return len(self.kind)

    @cached_property
    def n_columns(self) -> int:
        """Number of columns of the expanded program."""
        return len(self.own) + int(self.most.sum())

    def take(self, groups: IntArray) -> KindGroups:
        """Return some of the groups."""
        return KindGroups(**self.taken(groups))

    def taken(self, groups: IntArray) -> dict[str, Any]:
        """Return the fields of `KindGroups` for some of the groups."""
        fields = {name: getattr(self, name) for name in ("kinds", "horizon_s", "threads")}
        fields |= {name: getattr(self, name)[groups] for name in PER_GROUP}
        return fields | {"own": self.own.take(groups)}

    def columns(self) -> tuple[IntArray, IntArray]:
        """Return group and code of every column, own columns before options of kinds."""
        begin = len(self.own) + np.append(self.kinds.start[:-1], 0)[self.kind]
        group = np.repeat(np.arange(self.n_groups), self.most)
        code = np.concatenate([np.arange(len(self.own)), ranges(begin, self.most)])
        return np.concatenate([self.own.group, group]), code

    def costs(self, group: IntArray, code: IntArray) -> FloatArray:
        """Compute the cost of columns by group and code, shape (n,)."""
        shared, own, option = self._split(code)
        cost, choosing = np.empty(len(code)), group[shared]
        cost[own] = self.own.cost[code[own]]
        cost[shared] = self.worth[choosing] * self.kinds.value[option] + self.surcharge[choosing]
        return cost

    def _seconds(self, group: IntArray, option: IntArray) -> FloatArray:
        """Seconds that groups take in options of their kinds, those beyond the horizon not counted."""
        seconds = self.work[group] * self.kinds.pace[option] + self.lost_s[group]
        return np.asarray(np.minimum(seconds, self.horizon_s))

    def _used_by_options(self, group: IntArray, option: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        return option, self._seconds(group, option), self.credit[group]

    def uses(self, group: IntArray, code: IntArray) -> csr_array:
        """Return the uses of columns by group and code, shape (n, n_rows)."""
        from scipy.sparse import csr_array, vstack

        shared, own, option = self._split(code)
        uses_of_shared = self.kinds.uses.of(*self._used_by_options(group[shared], option))
        stacked = vstack([uses_of_shared, self.own.uses.of(*self.own.used(code[own]))], format="csr")
        position = np.empty(len(code), dtype=np.int64)  # of each column in the stack
        position[np.concatenate([shared, own])] = np.arange(len(code))
        return csr_array(stacked[position])

    def uses_in_all(
        self, group: IntArray, code: IntArray, part: IntArray | None = None, parts: int = 1
    ) -> FloatArray:
        """Return the columns' total use of the rows, shape (n_rows,), or by part, shape (parts, n_rows)."""
        number = np.zeros(len(code), dtype=np.int64) if part is None else part
        shared, own, option = self._split(code)
        use = self.kinds.uses.in_all(*self._used_by_options(group[shared], option), number[shared], parts)
        use += self.own.uses.in_all(*self.own.used(code[own]), number[own], parts)
        return use[0] if part is None else use

    def reduced(self, group: IntArray, code: IntArray, prices: FloatArray) -> FloatArray:
        """Compute the reduced costs of columns by group and code, at row prices, shape (n,)."""
        shared, own, option = self._split(code)
        cost = self.costs(group, code)
        cost[shared] -= self.kinds.uses.priced(prices, *self._used_by_options(group[shared], option))
        cost[own] -= self.own.uses.priced(prices, *self.own.used(code[own]))
        return cost

    def _split(self, code: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Return the positions of codes of options and of own columns, and the options of the former."""
        is_own = code < len(self.own)
        shared = np.flatnonzero(~is_own)
        return shared, np.flatnonzero(is_own), code[shared] - len(self.own)

    def numbered(self, some: KindGroups, groups: IntArray, place: IntArray, code: IntArray) -> IntArray:
        """Translate codes of a subset of the groups into codes of all groups.

        Parameters
        ----------
        some : KindGroups
            The subset, ``take(groups)``.
        place, code : int arrays, shape (n,)
            Position of each column's group in `groups`, and its code in the subset.
        """
        shift = np.append(self.own.start[groups] - some.own.start[:-1], len(self.own) - len(some.own))
        return np.asarray(code + shift[np.where(code < len(some.own), place, -1)])


def _sum_by_part(
    uses: csr_array, entry: IntArray, factor: FloatArray | None, part: IntArray, shape: tuple[int, int]
) -> FloatArray:
    """Sum some rows of a matrix by part, each times a factor; the sums are of shape (parts, n_rows)."""
    if shape[1] <= _FEW_ROWS and uses.shape[0] <= _FEW_TIMES * len(entry):
        by_row = (use[entry] if factor is None else use[entry] * factor for use in uses.toarray().T)
        return np.array([np.bincount(part, use, shape[0]) for use in by_row], dtype=float).T.reshape(shape)
    size = np.diff(uses.indptr)[entry]
    nonzero = ranges(uses.indptr[entry].astype(np.int64), size)
    cell = np.repeat(part * shape[1], size) + uses.indices[nonzero]
    use = uses.data[nonzero] if factor is None else uses.data[nonzero] * np.repeat(factor, size)
    return np.bincount(cell, use, shape[0] * shape[1]).astype(float).reshape(shape)
