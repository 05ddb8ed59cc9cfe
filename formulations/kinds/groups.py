"""Groups that choose among the rows of their kind, or columns of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, occurring, ranges

if TYPE_CHECKING:
    from scipy.sparse import csr_array

PER_GROUP = ("kind", "worth", "work", "surcharge", "lost_s", "credit", "most")
"""Arrays with an entry for every group."""

# So few rows are sooner added up one by one, of at most so many times as many entries as are asked for.
_FEW_ROWS, _FEW_TIMES = 8, 4


class Uses(NamedTuple):
    """Possible uses of a program's rows by columns: at once, by the second, and by the credit.

    Columns that name the same entry differ in their seconds and credits alone.

    Attributes
    ----------
    fixed, metered, credited : csr arrays, shape (n_entries, n_rows)
    """

    fixed: csr_array
    metered: csr_array
    credited: csr_array

    @property
    def sizes(self) -> IntArray:
        """Number of rows that each entry uses; those that it uses in several ways count for each."""
        return np.asarray(sum(np.diff(uses.indptr) for uses in self))

    @property
    def broken(self) -> BoolArray:
        """Rows of which some entry may use other than whole numbers, shape (n_rows,)."""
        found = np.zeros(self.fixed.shape[1], dtype=bool)
        found[self.fixed.indices[self.fixed.data % 1.0 != 0.0]] = True
        found[self.metered.indices] = found[self.credited.indices] = True
        return found

    def take(self, entries: IntArray) -> Uses:
        """Some of the entries."""
        n, rows = len(entries), self.fixed.shape[1]
        return Uses(*(uses[entries] if uses.nnz else type(uses)((n, rows)) for uses in self))

    def of(self, entry: IntArray, seconds: FloatArray, credit: FloatArray) -> csr_array:
        """Return the uses of each column, shape (n_columns, n_rows)."""
        found = self.fixed[entry]
        for uses, times in self._varying(seconds, credit):
            some = uses[entry]
            some.data = some.data * np.repeat(times, np.diff(some.indptr))
            found = found + some
        return found

    def in_all(
        self, entry: IntArray, seconds: FloatArray, credit: FloatArray, part: IntArray, parts: int
    ) -> FloatArray:
        """Return the total use of columns, by part, shape (parts, n_rows)."""
        shape = parts, self.fixed.shape[1]
        found = _used(self.fixed, entry, None, part, shape)
        for uses, times in self._varying(seconds, credit):
            found += _used(uses, entry, times, part, shape)
        return found

    def priced(
        self, prices: FloatArray, entry: IntArray, seconds: FloatArray, credit: FloatArray
    ) -> FloatArray:
        """Return the cost of each column's uses at row prices, shape (n_columns,)."""
        found = (self.fixed @ prices)[entry]
        for uses, times in self._varying(seconds, credit):
            found += (uses @ prices)[entry] * times
        return np.asarray(found)

    def _varying(self, seconds: FloatArray, credit: FloatArray) -> list[tuple[csr_array, FloatArray]]:
        """Return the uses that are multiplied, and their multipliers, where there are any."""
        pairs = (self.metered, seconds), (self.credited, credit)
        return [(uses, times) for uses, times in pairs if uses.nnz]


@dataclass(frozen=True, eq=False)
class KindRows:
    """Choices of the groups of every kind, kind by kind.

    Attributes
    ----------
    start : int array, shape (n_kinds + 1,)
        Rows of kind k are ``start[k]`` to ``start[k + 1]``, the quickest first.
    value : float array, shape (n_kind_rows,)
        Cost per worth of the group.
    pace : float array, shape (n_kind_rows,)
        Seconds per work of the group; ascending within a kind.
    uses : Uses
        With an entry for every row.
    """

    start: IntArray
    value: FloatArray
    pace: FloatArray
    uses: Uses

    def __len__(self) -> int:
        return len(self.value)

    @cached_property
    def broken(self) -> BoolArray:
        """Mask of a program's rows as `Uses.broken`."""
        return self.uses.broken

    @cached_property
    def alike(self) -> IntArray:
        """First rows of runs that differ in what they use at once alone, as racks of one type do.

        At given prices one of them is best for all groups.
        """
        varying = [uses[:, np.unique(uses.indices)].toarray() for uses in self.uses[1:]]
        differs = np.diff(np.column_stack([self.value, self.pace, *varying]), axis=0).any(axis=1)
        first = np.concatenate([np.ones(min(1, len(self)), dtype=bool), differs])
        first[self.start[:-1][self.start[:-1] < len(self)]] = True
        return np.flatnonzero(first)


@dataclass(frozen=True, eq=False)
class OwnColumns:
    """Columns that groups have for themselves, group by group.

    Attributes
    ----------
    start : int array, shape (n_groups + 1,)
    cost : float array, shape (n_own,)
    entry : int array, shape (n_own,)
        Of `uses`, which several columns may have in common.
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
        """Columns with those entries alone that one of them has: all are looked at in every pass."""
        kept, entry = occurring(entry, uses.fixed.shape[0])
        return cls(entry=entry, uses=uses.take(kept), **columns)

    def __len__(self) -> int:
        return len(self.cost)

    @cached_property
    def group(self) -> IntArray:
        """Group of every column."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def take(self, groups: IntArray) -> OwnColumns:
        """Columns of some of the groups."""
        sizes = np.diff(self.start)[groups]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        columns = ranges(self.start[groups], sizes)
        return OwnColumns(start, self.cost[columns], *self.used(columns), self.uses)

    def used(self, column: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        """Entries, seconds and credits of columns, as `Uses` asks for them."""
        return self.entry[column], self.seconds[column], self.credit[column]


@dataclass(frozen=True, eq=False, kw_only=True)
class KindGroups:
    """Groups, each of which chooses one column.

    A column has a *code*: the number of an own column, or ``n_own`` and the number of a kind's row. A point
    is the code that each group chooses.

    Attributes
    ----------
    kind : int array, shape (n_groups,)
        Kind of each group, -1 for one that has own columns only.
    worth, work : float arrays, shape (n_groups,)
    surcharge, lost_s : float arrays, shape (n_groups,)
        What all of its kind's rows cost and take besides; not its own columns.
    credit : float array, shape (n_groups,)
        How often it counts what its kind's rows use per credit.
    most : int array, shape (n_groups,)
        How many of its kind's rows, from the quickest on, a group may choose: all or none that are as quick.
    kinds : KindRows
    own : OwnColumns
    horizon_s : float
        Seconds after which nothing metered counts.
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
        """Columns that there would be, were they written down."""
        return len(self.own) + int(self.most.sum())

    def take(self, groups: IntArray) -> KindGroups:
        """Some of the groups."""
        return KindGroups(**self.taken(groups))

    def taken(self, groups: IntArray) -> dict[str, Any]:
        """Fields of `KindGroups` for some of the groups."""
        fields = {name: getattr(self, name) for name in ("kinds", "horizon_s", "threads")}
        fields |= {name: getattr(self, name)[groups] for name in PER_GROUP}
        return fields | {"own": self.own.take(groups)}

    def columns(self) -> tuple[IntArray, IntArray]:
        """Group and code of every column, own ones before those of kinds."""
        begin = len(self.own) + np.append(self.kinds.start[:-1], 0)[self.kind]
        of_kinds = np.repeat(np.arange(self.n_groups), self.most)
        code = np.concatenate([np.arange(len(self.own)), ranges(begin, self.most)])
        return np.concatenate([self.own.group, of_kinds]), code

    def costs(self, group: IntArray, code: IntArray) -> FloatArray:
        """Cost of columns."""
        of_kind, own, row = self._divided(code)
        found, choosing = np.empty(len(code)), group[of_kind]
        found[own] = self.own.cost[code[own]]
        found[of_kind] = self.worth[choosing] * self.kinds.value[row] + self.surcharge[choosing]
        return found

    def _seconds(self, group: IntArray, row: IntArray) -> FloatArray:
        seconds = self.work[group] * self.kinds.pace[row] + self.lost_s[group]
        return np.asarray(np.minimum(seconds, self.horizon_s))

    def _used_of_kind(self, group: IntArray, row: IntArray) -> tuple[IntArray, FloatArray, FloatArray]:
        return row, self._seconds(group, row), self.credit[group]

    def uses(self, group: IntArray, code: IntArray) -> csr_array:
        """Return the use of the rows by each column, shape (n, n_rows)."""
        from scipy.sparse import csr_array, vstack

        of_kind, own, row = self._divided(code)
        of_kinds = self.kinds.uses.of(*self._used_of_kind(group[of_kind], row))
        parts = vstack([of_kinds, self.own.uses.of(*self.own.used(code[own]))], format="csr")
        place = np.empty(len(code), dtype=np.int64)
        place[np.concatenate([of_kind, own])] = np.arange(len(code))
        return csr_array(parts[place])

    def uses_in_all(
        self, group: IntArray, code: IntArray, part: IntArray | None = None, parts: int = 1
    ) -> FloatArray:
        """Return the columns' total use of the rows, shape (n_rows,), or by part, shape (parts, n_rows)."""
        number = np.zeros(len(code), dtype=np.int64) if part is None else part
        of_kind, own, row = self._divided(code)
        of_kinds = self._used_of_kind(group[of_kind], row)
        use = self.kinds.uses.in_all(*of_kinds, number[of_kind], parts)
        use += self.own.uses.in_all(*self.own.used(code[own]), number[own], parts)
        return use[0] if part is None else use

    def reduced(self, group: IntArray, code: IntArray, prices: FloatArray) -> FloatArray:
        """Reduced costs of columns at row prices."""
        of_kind, own, row = self._divided(code)
        found = self.costs(group, code)
        found[of_kind] -= self.kinds.uses.priced(prices, *self._used_of_kind(group[of_kind], row))
        found[own] -= self.own.uses.priced(prices, *self.own.used(code[own]))
        return found

    def _divided(self, code: IntArray) -> tuple[IntArray, IntArray, IntArray]:
        """Places of the columns of kinds and of own ones, and the rows of the former."""
        inside = code < len(self.own)
        of_kind = np.flatnonzero(~inside)
        return of_kind, np.flatnonzero(inside), code[of_kind] - len(self.own)

    def numbered(self, some: KindGroups, groups: IntArray, place: IntArray, code: IntArray) -> IntArray:
        """Codes that these have for columns of some of the groups.

        Parameters
        ----------
        some : KindGroups
            ``take(groups)``.
        place, code : int arrays, shape (n,)
            Place of each column's group among `groups`, and its code there.
        """
        shift = np.append(self.own.start[groups] - some.own.start[:-1], len(self.own) - len(some.own))
        return np.asarray(code + shift[np.where(code < len(some.own), place, -1)])


def _used(
    uses: csr_array, which: IntArray, times: FloatArray | None, part: IntArray, shape: tuple[int, int]
) -> FloatArray:
    """Sums, by part, of some rows of a matrix, each so many times; in their order, whatever is in others."""
    if shape[1] <= _FEW_ROWS and uses.shape[0] <= _FEW_TIMES * len(which):
        of_rows = (use[which] if times is None else use[which] * times for use in uses.toarray().T)
        return np.array([np.bincount(part, use, shape[0]) for use in of_rows], dtype=float).T.reshape(shape)
    size = np.diff(uses.indptr)[which]
    entry = ranges(uses.indptr[which].astype(np.int64), size)
    cell = np.repeat(part * shape[1], size) + uses.indices[entry]
    used = uses.data[entry] if times is None else uses.data[entry] * np.repeat(times, size)
    return np.bincount(cell, used, shape[0] * shape[1]).astype(float).reshape(shape)
