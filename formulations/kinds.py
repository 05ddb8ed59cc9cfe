r"""Programs by kind: choice columns that are never written down.

Groups of one *kind* choose among the same rows. Group g in row o costs :math:`w_g v_o`, takes
:math:`s_{go} = \min(W_g p_o, H)` seconds, and uses :math:`f_o + s_{go} m_o` of the program's rows. Under row
prices y its reduced cost is

.. math:: w_g v_o - f_o^T y - \min(W_g p_o, H)\, m_o^T y,

so a pass over all groups of a kind is a small matrix product and an arg-min, and whether a row can be best at
all is a matter of the kind. What a group may choose besides are columns of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

import numpy as np

from wattsched.formulations.program import Block, Program
from wattsched.formulations.tolerances import CANCELLATION
from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

_CELLS = 1 << 16
"""Reduced costs computed at once: they stay in the processor's cache."""

_SAMPLE = 4_096
"""Groups by which a threshold for all is estimated."""


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
    fixed, metered : csr arrays, shape (n_kind_rows, n_rows)
        What is used of the program's rows: at once, and per second.
    """

    start: IntArray
    value: FloatArray
    pace: FloatArray
    fixed: csr_array
    metered: csr_array

    def __len__(self) -> int:
        return len(self.value)


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


@dataclass(frozen=True, eq=False)
class KindProgram:
    """Minimise the groups' costs under rows, as `Program` does; every group chooses one column.

    A column has a *code*: the number of an own column, or ``n_own`` and the number of a kind's row. A point
    is the code that each group chooses.

    Attributes
    ----------
    kind : int array, shape (n_groups,)
        Kind of each group, -1 for one that has own columns only.
    worth, work : float arrays, shape (n_groups,)
    most : int array, shape (n_groups,)
        How many of its kind's rows, from the quickest on, a group may choose.
    kinds : KindRows
    own : OwnColumns
    row_lower, row_upper : float arrays, shape (n_rows,)
    rows : tuple of Block
    horizon_s : float
        Seconds after which nothing metered counts.
    sense : {"min", "max"}
    threads : int
        Threads of a pass; the answer does not depend on it.
    """

    kind: IntArray
    worth: FloatArray
    work: FloatArray
    most: IntArray
    kinds: KindRows
    own: OwnColumns
    row_lower: FloatArray
    row_upper: FloatArray
    rows: tuple[Block, ...]
    horizon_s: float = np.inf
    sense: Literal["min", "max"] = "min"
    threads: int = 1

    by_kind: ClassVar[bool] = True
    bottleneck: ClassVar[None] = None
    intervals: ClassVar[None] = None

    @property
    def n_rows(self) -> int:
        """Number of coupling rows."""
        return len(self.row_lower)

    @property
    def n_groups(self) -> int:
        """Number of choice groups."""
        return len(self.kind)

    @cached_property
    def n_columns(self) -> int:
        """Columns that there would be, were they written down."""
        return len(self.own) + int(self.most.sum())

    @cached_property
    def nonzeros(self) -> int:
        """Entries of the matrix that there would be."""
        size = np.diff(self.kinds.fixed.indptr) + np.diff(self.kinds.metered.indptr)
        until = np.concatenate([[0], np.cumsum(size)])
        begin = np.append(self.kinds.start[:-1], 0)[self.kind]
        return int(self.own.uses.nnz + (until[begin + self.most] - until[begin]).sum())

    def row_names(self) -> list[str]:
        """Names of all rows."""
        return [block.member(i) for block in self.rows for i in range(block.size)]

    def reported(self, value: float) -> float:
        """Cost or bound in the direction of the user's objective."""
        return -value if self.sense == "max" else value

    def named_prices(self, prices: FloatArray) -> dict[str, float]:
        """Row prices other than 0 by the rows' names, in the direction of the user's objective."""
        named = zip(self.row_names(), prices, strict=True)
        return {name: self.reported(float(y)) for name, y in named if y != 0.0}

    # --- points ---------------------------------------------------------------------------------------

    def rounded(self, point: IntArray) -> IntArray:
        """The point, which is whole."""
        return point

    def objective(self, point: IntArray) -> float:
        """Cost of a point."""
        return float(self.costs(np.arange(self.n_groups), point).sum())

    def violation(self, point: IntArray) -> float:
        """Largest violation of a row, relative to max(1, |bound|); infinite for what is no point."""
        if len(point) != self.n_groups or not self._possible(point):
            return np.inf
        use = self.uses_in_all(np.arange(self.n_groups), point)
        upper, lower = self.row_upper, self.row_lower
        over = (use - upper) / np.maximum(1.0, np.where(np.isfinite(upper), np.abs(upper), 1.0))
        under = (lower - use) / np.maximum(1.0, np.where(np.isfinite(lower), np.abs(lower), 1.0))
        return float(max(0.0, over.max(initial=0.0), under.max(initial=0.0)))

    def _possible(self, point: IntArray) -> bool:
        """Whether every group chooses a column that it has."""
        n, row = len(self.own), point - len(self.own)
        begin = np.append(self.kinds.start[:-1], 0)[self.kind]
        inside = (row >= begin) & (row < begin + self.most)
        inside |= (point >= self.own.start[:-1]) & (point < self.own.start[1:]) & (point < n)
        return bool(inside.all())

    def costs(self, group: IntArray, code: IntArray) -> FloatArray:
        """Cost of columns."""
        row = code - len(self.own)
        own = np.append(self.own.cost, 0.0)[np.where(row < 0, code, len(self.own))]
        kinds = self.worth[group] * np.append(self.kinds.value, 0.0)[np.where(row < 0, len(self.kinds), row)]
        return np.where(row < 0, own, kinds)

    def _seconds(self, group: IntArray, row: IntArray) -> FloatArray:
        return np.asarray(np.minimum(self.work[group] * self.kinds.pace[row], self.horizon_s))

    def uses(self, group: IntArray, code: IntArray) -> csr_array:
        """What columns use of the rows, shape (n, n_rows)."""
        from scipy.sparse import csr_array, vstack

        of_kind = np.flatnonzero(code >= len(self.own))
        own = np.flatnonzero(code < len(self.own))
        row = code[of_kind] - len(self.own)
        metered = self.kinds.metered[row]
        seconds = self._seconds(group[of_kind], row)
        metered.data = metered.data * np.repeat(seconds, np.diff(metered.indptr))
        parts = vstack([self.kinds.fixed[row] + metered, self.own.uses[code[own]]], format="csr")
        place = np.empty(len(code), dtype=np.int64)
        place[np.concatenate([of_kind, own])] = np.arange(len(code))
        return csr_array(parts[place])

    def uses_in_all(
        self, group: IntArray, code: IntArray, part: IntArray | None = None, parts: int = 1
    ) -> FloatArray:
        """What columns use of the rows together, shape (n_rows,), or by part, shape (parts, n_rows)."""
        from scipy.sparse import csr_array

        number = np.zeros(len(code), dtype=np.int64) if part is None else part
        kinds, n = self.kinds, len(self.own)
        of_kind = np.flatnonzero(code >= n)
        row = code[of_kind] - n
        cells, shape = (number[of_kind], row), (parts, len(kinds))
        times = csr_array((np.ones(len(row)), cells), shape)
        seconds = csr_array((self._seconds(group[of_kind], row), cells), shape)
        use = np.asarray((times @ kinds.fixed + seconds @ kinds.metered).toarray())
        own = np.flatnonzero(code < n)
        taken = self.own.uses[code[own]].tocoo()
        place = number[own][taken.row] * self.n_rows + taken.col
        use += np.bincount(place, taken.data, parts * self.n_rows).reshape(parts, self.n_rows)
        return use[0] if part is None else use

    # --- prices ---------------------------------------------------------------------------------------

    def lagrangian_bound(self, prices: FloatArray) -> float:
        """Lower bound on the optimal cost that row prices prove; see `Program.lagrangian_bound`."""
        y = np.where((prices > 0) & ~np.isfinite(self.row_lower), 0.0, prices)
        y = np.where((y < 0) & ~np.isfinite(self.row_upper), 0.0, y)
        return self.charged(y) + float(self.least(y)[0].sum())

    def charged(self, prices: FloatArray) -> float:
        """What the rows themselves add to the bound."""
        up, down = prices > 0, prices < 0
        return float(prices[up] @ self.row_lower[up]) + float(prices[down] @ self.row_upper[down])

    def least(self, prices: FloatArray) -> tuple[FloatArray, IntArray]:
        """Least reduced cost of every group, and the code of the first column that has it."""
        least, code = self._least_own(prices)
        by_kind, priced = self._by_kind, _Priced(self, prices)
        of_kind, row = np.full(self.n_groups, np.inf), np.zeros(self.n_groups, dtype=np.int64)

        def look(chunk: _Chunk) -> None:
            cells = priced.reduced(chunk)
            first = cells.argmin(axis=1)
            row[chunk.groups] = first
            row[chunk.groups] += chunk.rows.start
            of_kind[chunk.groups] = cells[np.arange(len(cells)), first]

        self._over_kinds(look)
        better = of_kind < least[by_kind.order]
        groups = by_kind.order[better]
        least[groups], code[groups] = of_kind[better], row[better] + len(self.own)
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
        least = self.least(prices)[0]
        own = self.own.cost - self.own.uses @ prices - least[self.own.group]
        near = np.flatnonzero(own <= threshold)
        found = [(self.own.group[near], near, own[near])]
        order, priced = self._by_kind.order, _Priced(self, prices)
        known = least[order]

        def look(chunk: _Chunk) -> None:
            above = priced.reduced(chunk)
            above -= known[chunk.groups, None]
            hits = np.flatnonzero(above <= threshold)
            place, row = np.divmod(hits, above.shape[1])
            codes = row + (chunk.rows.start + len(self.own))
            found.append((order[chunk.groups][place], codes, above.ravel()[hits]))

        self._over_kinds(look)
        group, codes, above = (np.concatenate(column) for column in zip(*found, strict=True))
        order = np.lexsort((codes, group))
        return group[order], codes[order], np.maximum(above[order], 0.0)

    def threshold(self, prices: FloatArray, size: int) -> float:
        """Reduced cost above their group's least that about so many columns besides the least have."""
        if size >= self.n_columns - self.n_groups:
            return np.inf
        sample = np.linspace(0, self.n_groups - 1, min(_SAMPLE, self.n_groups)).astype(np.int64)
        above = np.sort(self.take(sample).within(prices, np.inf)[2])[len(sample) :]
        place = int(size * len(sample) / self.n_groups)
        return float(above[min(place, len(above) - 1)]) if len(above) else np.inf

    def take(self, groups: IntArray) -> KindProgram:
        """The program over some of the groups, under the same rows."""
        sizes = np.diff(self.own.start)[groups]
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        columns = np.repeat(self.own.start[groups] - start[:-1], sizes) + np.arange(start[-1])
        own = OwnColumns(start, self.own.cost[columns], self.own.uses[columns])
        arrays = {name: getattr(self, name)[groups] for name in ("kind", "worth", "work", "most")}
        return replace(self, own=own, **arrays)

    def _least_own(self, prices: FloatArray) -> tuple[FloatArray, IntArray]:
        own, n = self.own, self.n_groups
        least, code = np.full(n, np.inf), np.full(n, -1)
        reduced = own.cost - own.uses @ prices
        having = np.flatnonzero(np.diff(own.start))
        if len(having) == len(own):  # one each, as waiting is
            least[having], code[having] = reduced, np.arange(len(own))
        elif len(having):
            starts = own.start[having]
            least[having] = np.minimum.reduceat(reduced, starts)
            hits = np.flatnonzero(reduced == least[own.group])
            code[having] = hits[np.searchsorted(hits, starts)]
        return least, code

    @cached_property
    def _by_kind(self) -> _ByKind:
        return _ByKind.of(self)

    def _over_kinds(self, look: Callable[[_Chunk], None]) -> None:
        """Look at all chunks of groups; numpy lets go of the interpreter for other threads."""
        if self.threads == 1:
            for chunk in self._by_kind.chunks:
                look(chunk)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            for _ in pool.map(look, self._by_kind.chunks):
                pass

    # --- parts ----------------------------------------------------------------------------------------

    def costs_at_most(self) -> float:
        """What no point exceeds, but for rounding."""
        return float(self._extremes[1].sum())

    def cost_range(self) -> float:
        """Sum of what the groups' dearest columns cost above their cheapest, 1 where that is nothing."""
        least, most = self._extremes
        return float((most - least).sum()) or 1.0

    @cached_property
    def _extremes(self) -> tuple[FloatArray, FloatArray]:
        """Least and most that each group can cost."""
        least, most = np.full(self.n_groups, np.inf), np.full(self.n_groups, -np.inf)
        np.minimum.at(least, self.own.group, self.own.cost)
        np.maximum.at(most, self.own.group, self.own.cost)
        start, value = self.kinds.start, self.kinds.value
        full = np.flatnonzero(np.diff(start))
        low, high = np.full(len(start), np.inf), np.full(len(start), -np.inf)
        if len(full):
            low[full] = np.minimum.reduceat(value, start[full])
            high[full] = np.maximum.reduceat(value, start[full])
        some = self.most > 0
        least[some] = np.minimum(least[some], self.worth[some] * low[self.kind[some]])
        most[some] = np.maximum(most[some], self.worth[some] * high[self.kind[some]])
        return least, most

    def largest_cost(self) -> float:
        """Largest cost of a column, without its sign."""
        return float(max(np.abs(end).max(initial=0.0) for end in self._extremes))

    def largest_use(self) -> FloatArray:
        """Largest use of every row by a column, about; shape (n_rows,)."""
        parts = [abs(self.own.uses), abs(self.kinds.fixed)]
        largest = [np.asarray(p.max(axis=0).todense()).ravel() for p in parts if p.shape[0] and p.nnz]
        if len(self.kinds) and self.n_groups:
            longest_s = min(self.horizon_s, float(self.work.max() * self.kinds.pace.max()))
            most = np.asarray(abs(self.kinds.metered).max(axis=0).todense()).ravel()
            largest.append(longest_s * most)
        return np.asarray(np.max([np.zeros(self.n_rows), *largest], axis=0))

    def part(
        self,
        prices: FloatArray,
        threshold: float,
        base: IntArray | None = None,
        points: Sequence[IntArray] = (),
    ) -> Part:
        """The program over the columns that prices leave in question.

        Parameters
        ----------
        threshold : float
            Reduced cost above the least of their group up to which they are.
        base : int array, shape (n_groups,), optional
            A point: what groups choose in which nothing else is in question. Default: what costs them least.
        points : sequence of int arrays
            More points, what they choose otherwise than the base is in question, too.
        """
        group, code, above = self.within(prices, threshold)
        if base is not None:
            group, code = _joined(group, code, above, base, points)
        return self._over(group, code)

    def around(self, base: IntArray, groups: IntArray, prices: FloatArray, threshold: float) -> Part:
        """The program over what some groups may choose, where the others choose as a point does.

        Parameters
        ----------
        groups : int array, ascending
        threshold : float
            Reduced cost above the least of their group up to which columns are looked at.
        """
        some = self.take(groups)
        group, code, _ = some.within(prices, threshold)
        # Own columns have other numbers among some of the groups.
        shift = np.append(self.own.start[groups] - some.own.start[:-1], len(self.own) - len(some.own))
        code = code + shift[np.where(code < len(some.own), group, -1)]
        group = groups[group]
        others = np.setdiff1d(np.arange(self.n_groups), groups)
        group, code = np.concatenate([group, others]), np.concatenate([code, base[others]])
        order = np.lexsort((code, group))
        return self._over(group[order], code[order])

    def _over(self, group: IntArray, code: IntArray) -> Part:
        """The program over some columns, by group; groups with one are decided."""
        from scipy.sparse import csc_array

        count = np.bincount(group, minlength=self.n_groups)
        single = count[group] == 1
        point = np.full(self.n_groups, -1)
        point[group[single]] = code[single]
        decided = np.flatnonzero(point >= 0)
        used = self.uses_in_all(decided, point[decided])
        room = self._lost(decided, point[decided])
        group, code = group[~single], code[~single]
        start = np.concatenate([[0], np.cumsum(count[count > 1])]).astype(np.int64)
        n = len(code)
        program = Program(
            cost=self.costs(group, code),
            matrix=csc_array(self.uses(group, code).T),
            row_lower=self.row_lower - used - room,
            row_upper=self.row_upper - used + room,
            lower=np.zeros(n),
            upper=np.ones(n),
            integer=np.ones(n, dtype=bool),
            group_start=start,
            rows=self.rows,
            columns=(Block("option", n),),
            offset=float(self.costs(decided, point[decided]).sum()),
            sense=self.sense,
        )
        return Part(program, group, code, point)

    def _lost(self, group: IntArray, code: IntArray) -> FloatArray:
        """What limits less uses may be off by; nothing where all are whole numbers."""
        broken = np.zeros(self.n_rows, dtype=bool)
        for uses in (self.own.uses, self.kinds.fixed):
            broken[uses.indices[uses.data % 1.0 != 0.0]] = True
        broken[self.kinds.metered.indices] = True
        for limit in (self.row_lower, self.row_upper):
            broken |= np.where(np.isfinite(limit), limit, 0.0) % 1.0 != 0.0
        size = np.abs(self.uses_in_all(group, code))
        return np.where(broken, CANCELLATION * size, 0.0)


@dataclass(frozen=True, eq=False)
class Part:
    """A program over some columns of a program by kind.

    Attributes
    ----------
    program : Program
        Of the groups that are not decided.
    group, code : int arrays, shape (n_columns of `program`,)
    decided : int array, shape (n_groups,)
        Point of the whole, -1 for the groups of `program`.
    """

    program: Program
    group: IntArray
    code: IntArray
    decided: IntArray

    def lift(self, x: FloatArray) -> IntArray:
        """Point of the whole program."""
        taken = np.flatnonzero(x > 0.5)
        point = self.decided.copy()
        point[self.group[taken]] = self.code[taken]
        return point

    def lower(self, point: IntArray) -> FloatArray | None:
        """Point of the part, None where the whole's point has a column that is not in it."""
        open_groups = self.decided < 0
        if np.any(self.decided[~open_groups] != point[~open_groups]):
            return None
        x = (self.code == point[self.group]).astype(float)
        return x if int(x.sum()) == int(open_groups.sum()) else None


def _joined(
    group: IntArray, code: IntArray, above: FloatArray, base: IntArray, points: Sequence[IntArray]
) -> tuple[IntArray, IntArray]:
    """Columns in question with those of points; where there is one for a group, that of the base is it."""
    count = np.bincount(group, minlength=len(base))
    more = [np.flatnonzero(point != base) for point in points]
    count[np.concatenate([[], *more]).astype(np.int64)] += 1
    kept = count[group] > 1
    groups = np.concatenate([group[kept], np.arange(len(base)), *more])
    codes = np.concatenate([code[kept], base, *(p[g] for p, g in zip(points, more, strict=True))])
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    first = np.concatenate([[True], (np.diff(groups) != 0) | (np.diff(codes) != 0)])
    return groups[first], codes[first]


class _Chunk(NamedTuple):
    """Groups of one kind that are looked at together.

    Attributes
    ----------
    groups : slice
        Of the groups by kind.
    rows : slice
        Of the kind.
    limited : bool
        Whether some of them may not choose all rows.
    """

    groups: slice
    rows: slice
    limited: bool


@dataclass(frozen=True, eq=False)
class _ByKind:
    """Groups in the order of their kinds, those that may choose all rows apart from others.

    Attributes
    ----------
    order : int array, shape (n_groups,)
    features : float array, shape (n_groups, 3)
        Worth, 1 and work.
    most : int array, shape (n_groups,)
    chunks : list of _Chunk
    """

    order: IntArray
    features: FloatArray
    most: IntArray
    chunks: list[_Chunk]

    @classmethod
    def of(cls, program: KindProgram) -> _ByKind:
        """Put the groups of a program in order."""
        start = program.kinds.start
        sizes = np.append(np.diff(start), 0)
        limited = program.most < sizes[program.kind]
        order = np.lexsort((limited, program.kind))
        worth, work = program.worth[order], program.work[order]
        features = np.column_stack([worth, np.ones(len(order)), work])
        kind, apart = program.kind[order], limited[order]
        begin = np.flatnonzero(np.diff(kind * 2 + apart, prepend=-5))
        chunks = []
        for first, last in pairwise([*begin.tolist(), len(order)]):
            k = int(kind[first])
            if k < 0 or sizes[k] == 0:
                continue
            rows, step = slice(int(start[k]), int(start[k + 1])), max(64, _CELLS // int(sizes[k]))
            places = [slice(i, min(i + step, last)) for i in range(first, last, step)]
            chunks += [_Chunk(groups, rows, bool(apart[first])) for groups in places]
        return cls(order, features, program.most[order], chunks)


class _Priced:
    """Rows of every kind under row prices."""

    def __init__(self, program: KindProgram, prices: FloatArray) -> None:
        kinds = program.kinds
        self._by_kind, self._pace, self._horizon_s = program._by_kind, kinds.pace, program.horizon_s
        metered = -(kinds.metered @ prices)
        self._linear = bool(np.isinf(program.horizon_s)) or not metered.any()
        # What a worth, a group, and a work, or else a second, of it pay for each row.
        self._terms = np.array([kinds.value, -(kinds.fixed @ prices), metered])
        if self._linear:
            self._terms[2] *= kinds.pace

    def reduced(self, chunk: _Chunk) -> FloatArray:
        """Reduced costs of the rows of a kind for some groups, infinite for those that one may not choose."""
        features, terms = self._by_kind.features[chunk.groups], self._terms[:, chunk.rows]
        if self._linear:
            cells = features @ terms
        else:
            cells = np.multiply.outer(features[:, 2], self._pace[chunk.rows])
            np.minimum(cells, self._horizon_s, out=cells)
            cells *= terms[2]
            cells += features[:, :2] @ terms[:2]
        if chunk.limited:
            most = self._by_kind.most[chunk.groups]
            cells[np.arange(cells.shape[1]) >= most[:, None]] = np.inf
        return np.asarray(cells)
