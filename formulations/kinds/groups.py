"""Groups that choose among the rows of their kind, or columns of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

PER_GROUP = ("kind", "worth", "work", "surcharge", "lost_s", "credit", "most")
"""Arrays with an entry for every group."""


@dataclass(frozen=True, eq=False)
class KindRows:
    """What the groups of every kind may choose, kind by kind.

    Attributes
    ----------
    start : int array, shape (n_kinds + 1,)
        Rows of kind k are ``start[k]`` to ``start[k + 1]``, the quickest first.
    value : float array, shape (n_kind_rows,)
        Cost per worth of the group.
    pace : float array, shape (n_kind_rows,)
        Seconds per work of the group; ascending within a kind.
    fixed, metered, credited : csr arrays, shape (n_kind_rows, n_rows)
        What is used of the program's rows: at once, per second, and per credit of the group.
    """

    start: IntArray
    value: FloatArray
    pace: FloatArray
    fixed: csr_array
    metered: csr_array
    credited: csr_array

    def __len__(self) -> int:
        return len(self.value)

    @cached_property
    def alike(self) -> IntArray:
        """First rows of runs that differ in what they use at once alone, as racks of one type do.

        At given prices one of them is best for all groups.
        """
        varying = [uses[:, np.unique(uses.indices)].toarray() for uses in (self.metered, self.credited)]
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
    uses : csr array, shape (n_own, n_rows)
    """

    start: IntArray
    cost: FloatArray
    uses: csr_array

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
        columns = np.repeat(self.start[groups] - start[:-1], sizes) + np.arange(start[-1])
        return OwnColumns(start, self.cost[columns], self.uses[columns])


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
        return int(self.kinds.fixed.shape[1])

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

    def costs(self, group: IntArray, code: IntArray) -> FloatArray:
        """Cost of columns."""
        row = code - len(self.own)
        own = np.append(self.own.cost, 0.0)[np.where(row < 0, code, len(self.own))]
        kinds = self.worth[group] * np.append(self.kinds.value, 0.0)[np.where(row < 0, len(self.kinds), row)]
        return np.where(row < 0, own, kinds + self.surcharge[group])

    def _seconds(self, group: IntArray, row: IntArray) -> FloatArray:
        seconds = self.work[group] * self.kinds.pace[row] + self.lost_s[group]
        return np.asarray(np.minimum(seconds, self.horizon_s))

    def uses(self, group: IntArray, code: IntArray) -> csr_array:
        """What columns use of the rows, shape (n, n_rows)."""
        from scipy.sparse import csr_array, vstack

        of_kind = np.flatnonzero(code >= len(self.own))
        own = np.flatnonzero(code < len(self.own))
        row = code[of_kind] - len(self.own)
        metered, credited = self.kinds.metered[row], self.kinds.credited[row]
        for uses, times in (
            (metered, self._seconds(group[of_kind], row)),
            (credited, self.credit[group[of_kind]]),
        ):
            uses.data = uses.data * np.repeat(times, np.diff(uses.indptr))
        of_kinds = self.kinds.fixed[row] + metered + credited
        parts = vstack([of_kinds, self.own.uses[code[own]]], format="csr")
        place = np.empty(len(code), dtype=np.int64)
        place[np.concatenate([of_kind, own])] = np.arange(len(code))
        return csr_array(parts[place])

    def uses_in_all(
        self, group: IntArray, code: IntArray, part: IntArray | None = None, parts: int = 1
    ) -> FloatArray:
        """What columns use of the rows together, shape (n_rows,), or by part, shape (parts, n_rows)."""
        number = np.zeros(len(code), dtype=np.int64) if part is None else part
        kinds, n = self.kinds, len(self.own)
        of_kind, of_own = np.flatnonzero(code >= n), np.flatnonzero(code < n)
        row, once = code[of_kind] - n, np.ones(len(code))
        shape = (parts, self.n_rows)
        use = _used(kinds.fixed, row, once[of_kind], number[of_kind], shape)
        use += _used(kinds.metered, row, self._seconds(group[of_kind], row), number[of_kind], shape)
        if kinds.credited.nnz:
            use += _used(kinds.credited, row, self.credit[group[of_kind]], number[of_kind], shape)
        use += _used(self.own.uses, code[of_own], once[of_own], number[of_own], shape)
        return use[0] if part is None else use

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
    uses: csr_array, which: IntArray, times: FloatArray, part: IntArray, shape: tuple[int, int]
) -> FloatArray:
    """Sums, by part, of some rows of a matrix, each so many times; in their order, whatever is in others."""
    size = np.diff(uses.indptr)[which]
    first = np.cumsum(size) - size
    entry = np.repeat(uses.indptr[which] - first, size) + np.arange(size.sum())
    cell = np.repeat(part * shape[1], size) + uses.indices[entry]
    used = uses.data[entry] * np.repeat(times, size)
    return np.bincount(cell, used, shape[0] * shape[1]).astype(float).reshape(shape)
