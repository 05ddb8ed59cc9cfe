"""Programs over groups by kind: points, what row prices prove, and programs over a few of their columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np

from wattsched.formulations.kinds.groups import KindGroups
from wattsched.formulations.kinds.passes import Passes
from wattsched.formulations.kinds.shards import (
    Shard,
    Spread,
    Sums,
    blocks_of,
    cheapest,
    in_question,
    least,
    least_sums,
    shards_of,
    sums,
    whole,
)
from wattsched.formulations.program import Block, Program, ProgramRows
from wattsched.formulations.tolerances import CANCELLATION
from wattsched.topology.arrays import FloatArray, IntArray, largest_by, least_by, run_starts

R = TypeVar("R")

_SAMPLE, _SAMPLED = 4_096, 1 << 18
"""Groups, and about how many columns, by which a threshold for all is estimated."""


@dataclass(frozen=True, eq=False, kw_only=True)
class KindProgram(KindGroups, ProgramRows):
    """Minimise the groups' costs under rows, as `Program` does; every group chooses one column.

    Attributes
    ----------
    row_lower, row_upper : float arrays, shape (n_rows,)
    rows : tuple of Block
    sense : {"min", "max"}
    spread : Spread, optional
        Where passes over shards of the groups are done, if not here.
    """

    row_lower: FloatArray
    row_upper: FloatArray
    rows: tuple[Block, ...]
    sense: Literal["min", "max"] = "min"
    spread: Spread | None = None

    by_kind: ClassVar[bool] = True
    bottleneck: ClassVar[None] = None
    intervals: ClassVar[None] = None

    def take(self, groups: IntArray) -> KindProgram:
        """The program over some of the groups, under the same rows."""
        return replace(self, spread=None, **self.taken(groups))

    @cached_property
    def nonzeros(self) -> int:
        """Entries of the matrix if all columns were written down."""
        until = np.concatenate([[0], np.cumsum(self.kinds.uses.sizes)])
        begin = np.append(self.kinds.start[:-1], 0)[self.kind]
        of_own = self.own.uses.sizes[self.own.entry].sum()
        return int(of_own + (until[begin + self.most] - until[begin]).sum())

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
        """True if a point chooses for every group a column that it has."""
        n, row = len(self.own), point - len(self.own)
        begin = np.append(self.kinds.start[:-1], 0)[self.kind]
        inside = (row >= begin) & (row < begin + self.most)
        inside |= (point >= self.own.start[:-1]) & (point < self.own.start[1:]) & (point < n)
        return bool(inside.all())

    # --- prices ---------------------------------------------------------------------------------------

    def lagrangian_bound(self, prices: FloatArray) -> float:
        """Lower bound on the optimal cost that row prices prove; see `Program.lagrangian_bound`."""
        y = self.valid_prices(prices)
        return self.charged(y) + float(self._by_cluster(self._each(least_sums, y)).sum())

    def sums(self, prices: FloatArray) -> Sums:
        """Sum over each cluster the groups' least reduced costs, and the costs and uses of those columns."""
        return Sums(*map(self._by_cluster, zip(*self._each(sums, prices), strict=True)))

    def _by_cluster(self, blocks: Sequence[FloatArray]) -> FloatArray:
        """Sums over each cluster from those over the blocks of all shards."""
        every, (_, cluster) = np.concatenate(blocks), blocks_of(self.n_groups)
        first = run_starts(cluster)
        return np.add.reduceat(every, first) if len(first) else every

    def losses(self, prices: FloatArray, point: IntArray) -> tuple[FloatArray, float]:
        """Return the reduced cost of a point above the least, by group, and the bound that the prices prove.

        The two are what the gap of the point consists of, beside what the rows have left at prices.
        """
        known, every = np.concatenate(self._each(least, prices)), np.arange(self.n_groups)
        return self.reduced(every, point, prices) - known, self.charged(prices) + float(known.sum())

    def cheapest(self, prices: FloatArray) -> IntArray:
        """Point of what costs each group least, of several columns the first."""
        return np.concatenate(self._each(cheapest, prices))

    def in_question(self, prices: FloatArray, threshold: float) -> tuple[IntArray, IntArray]:
        """Group and code, by group, of columns with a reduced cost little above the group's least.

        Of groups that have several such columns only.
        """
        group, code = zip(*self._each(in_question, prices, threshold), strict=True)
        return np.concatenate(group), np.concatenate(code)

    def threshold(self, prices: FloatArray, size: int) -> float:
        """Reduced cost above its group's least that about `size` columns besides the least ones have."""
        if size >= self.n_columns - self.n_groups:
            return np.inf
        many = min(_SAMPLE, self.n_groups, max(1, _SAMPLED * self.n_groups // self.n_columns))
        sample = np.linspace(0, self.n_groups - 1, many).astype(np.int64)
        above = Passes(self.take(sample)).above(prices)
        if len(above) <= len(sample):
            return np.inf
        place = min(len(sample) + int(size * len(sample) / self.n_groups), len(above) - 1)
        return float(np.partition(above, place)[place])

    def near(self, prices: FloatArray, size: int) -> tuple[IntArray, IntArray]:
        """Group and code, by group, of the groups' least columns and about `size` more, the next in cost."""
        if self.n_columns > _SAMPLED:
            group, code, _ = Passes(self).within(prices, self.threshold(prices, size))
            return group, code
        # So few are sooner written down.
        group, code = self.columns()
        above = self.reduced(group, code, prices)
        above -= least_by(group, above, self.n_groups)[group]
        many = self.n_groups + size
        near = np.flatnonzero(above <= np.partition(above, many)[many]) if many < len(above) else slice(None)
        group, code = group[near], code[near]
        order = np.lexsort((code, group))
        return group[order], code[order]

    def shards(self, shards: int) -> list[Shard]:
        """The groups in shards, for a `Spread`."""
        return shards_of(self, shards)

    def _each(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """Return what a function of a shard and these arguments finds of each shard of the groups."""
        if self.spread is not None:
            return self.spread.each(function, *arguments)
        return [function(self._whole, *arguments)]

    @cached_property
    def _whole(self) -> Shard:
        return whole(self)

    # --- sizes ----------------------------------------------------------------------------------------

    def costs_at_most(self) -> float:
        """Return a cost that no point exceeds, but for rounding."""
        _, most = self._extremes
        return float(most.sum())

    def cost_range(self) -> float:
        """Sum of what the groups' dearest columns cost above their cheapest, 1 where that is nothing."""
        least, most = self._extremes
        return float((most - least).sum()) or 1.0

    @cached_property
    def _extremes(self) -> tuple[FloatArray, FloatArray]:
        """Least and most that each group's columns cost, two arrays of shape (n_groups,)."""
        least = least_by(self.own.group, self.own.cost, self.n_groups)
        most = largest_by(self.own.group, self.own.cost, self.n_groups, -np.inf)
        start, value = self.kinds.start, self.kinds.value
        full = np.flatnonzero(np.diff(start))
        low, high = np.full(len(start), np.inf), np.full(len(start), -np.inf)
        if len(full):
            low[full] = np.minimum.reduceat(value, start[full])
            high[full] = np.maximum.reduceat(value, start[full])
        some = self.most > 0
        worth, more = self.worth[some], self.surcharge[some]
        least[some] = np.minimum(least[some], worth * low[self.kind[some]] + more)
        most[some] = np.maximum(most[some], worth * high[self.kind[some]] + more)
        return least, most

    def largest_cost(self) -> float:
        """Largest cost of a column, without its sign."""
        return float(max(np.abs(end).max(initial=0.0) for end in self._extremes))

    def largest_use(self) -> FloatArray:
        """Largest use of every row by a column, about; shape (n_rows,)."""
        own, kinds = self.own, self.kinds.uses
        parts = [abs(own.uses.of(own.entry, own.seconds, own.credit)), abs(kinds.fixed)]
        largest = [np.asarray(p.max(axis=0).todense()).ravel() for p in parts if p.shape[0] and p.nnz]
        if len(self.kinds) and self.n_groups:
            longest_s = float(self.work.max() * self.kinds.pace.max() + self.lost_s.max())
            longest_s = min(self.horizon_s, longest_s)
            most = np.asarray(abs(kinds.metered).max(axis=0).todense()).ravel()
            largest.append(longest_s * most)
            most = np.asarray(abs(kinds.credited).max(axis=0).todense()).ravel()
            largest.append(float(np.abs(self.credit).max()) * most)
        return np.asarray(np.max([np.zeros(self.n_rows), *largest], axis=0))


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
        """Point of the whole program from one of the part."""
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


def part_of(
    program: KindProgram, prices: FloatArray, threshold: float, points: Sequence[IntArray] = ()
) -> Part:
    """The program over the columns that prices leave in question.

    Groups of which only one is take what costs them least.

    Parameters
    ----------
    threshold : float
        Reduced cost above the least of their group up to which columns are in question.
    points : sequence of int arrays, shape (n_groups,)
        What they choose otherwise is in question, too.
    """
    base = program.cheapest(prices)
    more = [np.flatnonzero(point != base) for point in points]
    group, code = program.in_question(prices, threshold)
    is_open = np.zeros(program.n_groups, dtype=bool)
    for groups in (group, *more):
        is_open[groups] = True
    opened = np.flatnonzero(is_open)
    groups = np.concatenate([group, opened, *more])
    codes = np.concatenate([code, base[opened], *(p[of] for p, of in zip(points, more, strict=True))])
    order = np.lexsort((codes, groups))
    groups, codes = groups[order], codes[order]
    new = run_starts(groups, codes)
    return _over(program, np.where(is_open, -1, base), groups[new], codes[new])


def part_around(
    program: KindProgram, base: IntArray, groups: IntArray, prices: FloatArray, size: int
) -> Part:
    """The program over what some groups may choose, where the others choose as a point does.

    Parameters
    ----------
    groups : int array, ascending
    size : int
        About how many columns besides the groups' least are looked at.
    """
    some = program.take(groups)
    place, code = some.near(prices, size)
    code, group = program.numbered(some, groups, place, code), groups[place]
    single = np.bincount(place, minlength=len(groups))[place] == 1
    point = base.copy()
    point[groups] = -1
    point[group[single]] = code[single]
    return _over(program, point, group[~single], code[~single])


def _over(program: KindProgram, point: IntArray, group: IntArray, code: IntArray) -> Part:
    """The program over columns of these groups and codes, where others choose as a point does."""
    from scipy.sparse import csc_array

    decided = np.flatnonzero(point >= 0)
    used = program.uses_in_all(decided, point[decided])
    room = _lost(program, used)
    n = len(code)
    part = Program(
        cost=program.costs(group, code),
        matrix=csc_array(program.uses(group, code).T),
        row_lower=program.row_lower - used - room,
        row_upper=program.row_upper - used + room,
        lower=np.zeros(n),
        upper=np.ones(n),
        integer=np.ones(n, dtype=bool),
        group_start=np.append(run_starts(group), n),
        rows=program.rows,
        columns=(Block("option", n),),
        offset=float(program.costs(decided, point[decided]).sum()),
        sense=program.sense,
    )
    return Part(part, group, code, point)


def _lost(program: KindProgram, used: FloatArray) -> FloatArray:
    """Bound by row the digits lost in limits less what is `used`; 0 where all numbers are whole."""
    fractional = program.kinds.fractional.copy()
    if not fractional.all():
        fractional |= program.own.uses.fractional
    for limit in (program.row_lower, program.row_upper):
        fractional |= np.where(np.isfinite(limit), limit, 0.0) % 1.0 != 0.0
    return np.where(fractional, CANCELLATION * np.abs(used), 0.0)
