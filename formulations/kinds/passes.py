"""Passes over all groups at row prices, in threads.

What is computed of a group does not depend on the groups beside it: no number of threads changes a digit.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wattsched.formulations.kinds.groups import KindGroups
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, ranges, run_starts, stable_order

_CELLS = 1 << 16
"""Reduced costs computed at once: they stay in the processor's cache."""


class Passes:
    """Passes over groups by threads, which run at once as numpy releases the interpreter's lock."""

    def __init__(self, groups: KindGroups) -> None:
        self._groups, self._by_kind = groups, _ByKind.of(groups)
        self._last: tuple[FloatArray, FloatArray, IntArray] | None = None

    def least(self, prices: FloatArray) -> tuple[FloatArray, IntArray]:
        """Least reduced cost of every group, and the code of the first column that has it."""
        if self._last is not None:  # the same prices are often asked about again
            last_prices, least, code = self._last
            if np.array_equal(last_prices, prices):
                return least, code
        least, code = self._compute_least(prices)
        self._last = prices.copy(), least, code
        return least, code

    def _compute_least(self, prices: FloatArray) -> tuple[FloatArray, IntArray]:
        """Least reduced cost of every group, and the code of its column; of equal ones an own column."""
        least, reduced = self._least_own(prices)
        code = self._first_own(reduced, least)
        by_kind, priced, n = self._by_kind, _Priced(self._groups, self._by_kind, prices), len(least)
        of_kind, run = np.full(n, np.inf), np.zeros(n, dtype=np.int64)

        def look(chunk: _Chunk) -> None:
            """Note the least of each group's runs, and which one has it."""
            cells = priced.reduced(chunk)
            first = cells.argmin(axis=1)
            run[chunk.groups] = first
            run[chunk.groups] += chunk.runs.start
            of_kind[chunk.groups] = cells[np.arange(len(cells)), first]

        self._over_kinds(look)
        better = of_kind < least[by_kind.order]
        groups = by_kind.order[better]
        least[groups], code[groups] = of_kind[better], priced.best[run[better]] + len(self._groups.own)
        return least, code

    def within(self, prices: FloatArray, threshold: float) -> tuple[IntArray, IntArray, FloatArray]:
        """Group, code and reduced cost above the group's least of all columns where that is little.

        Returns
        -------
        group, code : int arrays, shape (n,)
            By group; own columns before those of the kind.
        above : float array, shape (n,)
            At most the threshold.
        """
        groups, codes, above = self._near(prices, threshold)
        order = np.lexsort((codes, groups))
        return groups[order], codes[order], above[order]

    def above(self, prices: FloatArray) -> FloatArray:
        """Reduced costs of all columns, above the least of their group, in no order."""
        _, _, above = self._near(prices, np.inf)
        return above

    def _near(self, prices: FloatArray, threshold: float) -> tuple[IntArray, IntArray, FloatArray]:
        """Return group, code and reduced cost above the least as `within` does, in no order."""
        threshold = min(threshold, np.finfo(float).max)  # rows that a group may not choose cost inf
        own = self._groups.own
        least, reduced = self._least_own(prices)
        order, priced = self._by_kind.order, _Priced(self._groups, self._by_kind, prices)
        known, found = least[order], []
        nothing = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)

        def look(chunk: _Chunk) -> None:
            """Collect groups, runs and reduced costs of what is near the least of its group."""
            above = priced.reduced(chunk)
            base = np.minimum(known[chunk.groups], above.min(axis=1))
            known[chunk.groups] = base
            above -= base[:, None]
            hits = np.flatnonzero(above <= threshold)
            place, run = np.divmod(hits, above.shape[1])
            found.append((order[chunk.groups][place], run + chunk.runs.start, above.ravel()[hits]))

        self._over_kinds(look)
        least[order] = known
        columns = (np.concatenate(column) for column in zip(nothing, *found, strict=True))
        group, row, above_of_rows = priced.all_rows(*columns)
        groups = np.concatenate([own.group, group])
        codes = np.concatenate([np.arange(len(own)), row + len(own)])
        above = np.concatenate([reduced - least[own.group], above_of_rows])
        near = np.flatnonzero(above <= threshold)
        return groups[near], codes[near], np.maximum(above[near], 0.0)

    def _least_own(self, prices: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the least reduced cost of each group's own columns, and those of all these columns."""
        own, n = self._groups.own, self._groups.n_groups
        least = np.full(n, np.inf)
        reduced = own.cost - own.uses.priced(prices, own.entry, own.seconds, own.credit)
        having = np.flatnonzero(np.diff(own.start))
        if len(having) == len(own):  # one each, as waiting is
            least[having] = reduced
        elif len(having):
            least[having] = np.minimum.reduceat(reduced, own.start[having])
        return least, reduced

    def _first_own(self, reduced: FloatArray, least: FloatArray) -> IntArray:
        """The first own column of every group that has its least reduced cost, -1 without any."""
        own, code = self._groups.own, np.full(self._groups.n_groups, -1)
        # The first one is written last.
        hits = np.flatnonzero(reduced == least[own.group])[::-1]
        code[own.group[hits]] = hits
        return code

    def _over_kinds(self, look: Callable[[_Chunk], None]) -> None:
        """Call a function for every chunk, in threads where there are to be some."""
        if self._groups.threads == 1:
            for chunk in self._by_kind.chunks:
                look(chunk)
            return
        with ThreadPoolExecutor(self._groups.threads) as pool:
            for _ in pool.map(look, self._by_kind.chunks):
                pass


class _Chunk(NamedTuple):
    """Groups of one kind that are priced together.

    Attributes
    ----------
    groups : slice
        Of the groups by kind.
    runs : slice
        Of rows of the kind that are `KindRows.alike`.
    limited : bool
        Whether one of them may not choose all rows.
    starting : bool
        Whether one of them has a surcharge, or loses time.
    """

    groups: slice
    runs: slice
    limited: bool
    starting: bool


@dataclass(frozen=True, eq=False)
class _ByKind:
    """Groups in the order of their kinds, those that may choose all rows, at no surcharge, apart from others.

    Attributes
    ----------
    order : int array, shape (n_groups,)
    features : float array, shape (n_groups, 5 or 6)
        Work, worth, credit where rows use any, 1, surcharge and lost seconds.
    most : int array, shape (n_groups,)
        How many runs of rows each may choose.
    chunks : list of _Chunk
    """

    order: IntArray
    features: FloatArray
    most: IntArray
    chunks: list[_Chunk]

    @classmethod
    def of(cls, groups: KindGroups) -> _ByKind:
        """Sort groups by kind and by whether they are limited or starting, and cut them into chunks."""
        kinds = groups.kinds
        limited = groups.most < np.append(np.diff(kinds.start), 0)[groups.kind]
        start = np.searchsorted(kinds.alike, kinds.start)
        most, some = np.append(np.diff(start), 0)[groups.kind], np.flatnonzero(limited)
        own_kind = groups.kind[some]
        until = np.append(kinds.start[:-1], 0)[own_kind] + groups.most[some]
        most[some] = np.searchsorted(kinds.alike, until) - np.append(start[:-1], 0)[own_kind]
        starting = (groups.lost_s != 0.0) | (groups.surcharge != 0.0)
        alike = (groups.kind + 1) * 4 + 2 * limited + starting
        order = stable_order(alike)
        credit = [groups.credit] if kinds.uses.credited.nnz else []
        columns = [groups.work, groups.worth, *credit, np.ones(len(order)), groups.surcharge, groups.lost_s]
        features = np.column_stack([column[order] for column in columns])
        return cls(
            order, features, most[order], _chunks(groups.kind[order], start, limited[order], starting[order])
        )


def _chunks(kind: IntArray, start: IntArray, limited: BoolArray, starting: BoolArray) -> list[_Chunk]:
    """Cut groups that are sorted by kind into chunks; the runs of kind k begin at `start[k]`."""
    begin, starts, bounds = run_starts(kind), start.tolist(), []
    for k, (first, last) in zip(kind[begin].tolist(), pairwise([*begin.tolist(), len(kind)]), strict=True):
        if k >= 0 and (size := starts[k + 1] - starts[k]):
            step = max(64, _CELLS // size)
            runs = slice(starts[k], starts[k + 1])
            bounds += [(i, min(i + step, last), runs) for i in range(first, last, step)]
    firsts = [first for first, *_ in bounds]
    apart = (np.logical_or.reduceat(flag, firsts).tolist() if firsts else [] for flag in (limited, starting))
    return [_Chunk(slice(i, j), runs, *flags) for (i, j, runs), *flags in zip(bounds, *apart, strict=True)]


class _Priced:
    """Runs of alike rows (`KindRows.alike`) at row prices, each priced as its best row.

    Attributes
    ----------
    best : int array, shape (n_runs,)
        The best row of each run, the first one of equal rows.
    """

    def __init__(self, groups: KindGroups, by_kind: _ByKind, prices: FloatArray) -> None:
        kinds, runs = groups.kinds, groups.kinds.alike
        self._by_kind, self._horizon_s = by_kind, groups.horizon_s
        self._start, self._size = runs, np.diff(np.append(runs, len(kinds)))
        uses = kinds.uses
        at_once, metered = -(uses.fixed @ prices), -(uses.metered @ prices)[runs]
        least = np.minimum.reduceat(at_once, runs) if len(runs) else at_once
        # What each row costs more than the best row of its run.
        self._extra = at_once - np.repeat(least, self._size)
        hits = np.flatnonzero(self._extra == 0.0)
        self.best = hits[np.searchsorted(hits, runs)]
        self._metered = bool(metered.any())
        self._linear = bool(np.isinf(groups.horizon_s)) or not self._metered
        # What a work, a worth, a credit, a group, a surcharge and a second of it pay for each run.
        self._pace = kinds.pace[runs]
        credited = [-(uses.credited @ prices)[runs]] if uses.credited.nnz else []
        once = [*credited, least, np.ones(len(runs))]
        self._terms = np.array([metered * self._pace, kinds.value[runs], *once, metered])

    def all_rows(
        self, group: IntArray, run: IntArray, above: FloatArray
    ) -> tuple[IntArray, IntArray, FloatArray]:
        """List all rows of some runs, with group and reduced cost; `above` is that of each best row."""
        size = self._size[run]
        row = ranges(self._start[run], size)
        return np.repeat(group, size), row, np.repeat(above, size) + self._extra[row]

    def reduced(self, chunk: _Chunk) -> FloatArray:
        """Reduced cost of each run for each group of a chunk; inf for runs that a group may not choose."""
        features, terms = self._by_kind.features[chunk.groups], self._terms[:, chunk.runs]
        if single := len(features) == 1:  # of a vector a product is rounded otherwise than of a matrix
            features = np.repeat(features, 2, axis=0)
        last = len(terms) - 1
        # Surcharge and lost time are added apart: for groups of the chunk without any they are 0.
        if self._linear:
            cells = features[:, : last - 1] @ terms[: last - 1]
            if chunk.starting and self._metered:
                cells += np.multiply.outer(features[:, last], terms[last])
        else:
            cells = np.multiply.outer(features[:, 0], self._pace[chunk.runs])
            if chunk.starting:
                cells += features[:, last:]
            np.minimum(cells, self._horizon_s, out=cells)
            cells *= terms[last]
            cells += features[:, 1 : last - 1] @ terms[1 : last - 1]
        if chunk.starting:
            cells += features[:, last - 1 : last]
        if single:
            cells = cells[:1]
        if chunk.limited:
            most = self._by_kind.most[chunk.groups]
            cells[np.arange(cells.shape[1]) >= most[:, None]] = np.inf
        return np.asarray(cells)
