"""Groups in blocks, and blocks in shards: passes over all groups are done here, or by shards elsewhere.

Sums are taken in blocks of groups that depend on the number of groups alone, and the sums of the blocks in
their order. So the number of shards changes no digit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from wattsched.formulations.kinds.groups import PER_GROUP, KindGroups
from wattsched.formulations.kinds.passes import Passes
from wattsched.topology.arrays import FloatArray, IntArray

R = TypeVar("R")

CLUSTERS = 40
"""Clusters of groups, of each of which a pass tells what its columns cost and use together."""

_BLOCK, _MOST_BLOCKS = 25_000, 8
"""Groups of a block at least, and blocks of a cluster at most."""


class Sums(NamedTuple):
    """Sums over clusters of groups, or blocks of them, when each group takes what costs it least.

    Attributes
    ----------
    least : float array, shape (n,)
        Least reduced costs.
    cost : float array, shape (n,)
    use : float array, shape (n, n_rows)
    """

    least: FloatArray
    cost: FloatArray
    use: FloatArray


class Spread(Protocol):
    """Place where the shards of a program's groups are, and passes over them are done."""

    def each(self, function: Callable[..., R], *arguments: Any) -> list[R]:
        """Return what a function finds of each shard and these arguments, in the order of the shards."""


def clusters_of(n_groups: int) -> IntArray:
    """Cluster of every group."""
    return np.arange(n_groups) * _n_clusters(n_groups) // max(1, n_groups)


def _n_clusters(n_groups: int) -> int:
    return min(CLUSTERS, n_groups)


def blocks_of(n_groups: int) -> tuple[IntArray, IntArray]:
    """First group of every block, with the number of groups at the end, and the cluster of every block."""
    clusters = _n_clusters(n_groups)
    each = min(max(1, n_groups // max(1, clusters * _BLOCK)), _MOST_BLOCKS)
    n = clusters * each
    return -(-np.arange(n + 1) * n_groups // max(1, n)), np.arange(n) // each


@dataclass(frozen=True, eq=False)
class Shard:
    """Some blocks of groups one after the other.

    Attributes
    ----------
    groups : KindGroups
    first, first_own : int
        Number of their first group, and of its first own column, among all.
    n_own : int
        Own columns of all groups.
    start : int array, shape (n_blocks + 1,)
        First group of every block, among these.
    cluster : int array, shape (n_blocks,)
    """

    groups: KindGroups
    first: int
    first_own: int
    n_own: int
    start: IntArray
    cluster: IntArray

    @cached_property
    def passes(self) -> Passes:
        """Passes over the groups."""
        return Passes(self.groups)

    @property
    def block(self) -> IntArray:
        """Block of every group."""
        return np.repeat(np.arange(len(self.start) - 1), np.diff(self.start))

    def numbered(self, code: IntArray) -> IntArray:
        """Codes among all groups."""
        n = len(self.groups.own)
        return np.asarray(code + np.where(code < n, self.first_own, self.n_own - n))

    def __sizeof__(self) -> int:
        """Bytes of the arrays, by which Dask tells what moving the shard takes."""
        groups, own = self.groups, self.groups.own
        per_group = sum(getattr(groups, name).nbytes for name in PER_GROUP)
        of_own = sum(values.nbytes for values in (own.start, own.cost, own.entry, own.seconds, own.credit))
        return object.__sizeof__(self) + int(per_group + of_own)


def whole(groups: KindGroups) -> Shard:
    """All groups as one shard."""
    start, cluster = blocks_of(groups.n_groups)
    return Shard(groups, 0, 0, len(groups.own), start, cluster)


def shards_of(groups: KindGroups, shards: int) -> list[Shard]:
    """All groups in shards of about as many; fewer where there are not so many blocks."""
    start, cluster = blocks_of(groups.n_groups)
    ends = np.unique(np.arange(shards + 1) * len(cluster) // shards)
    found = []
    for first, last in pairwise(ends.tolist()):
        begin, end = int(start[first]), int(start[last])
        part = _compact(KindGroups(**groups.taken(np.arange(begin, end))))
        own = int(groups.own.start[begin])
        found.append(
            Shard(part, begin, own, len(groups.own), start[first : last + 1] - begin, cluster[first:last])
        )
    return found


def _compact(groups: KindGroups) -> KindGroups:
    """The same groups in fewer bytes, for one thread."""
    own = replace(groups.own, start=_short(groups.own.start), entry=_short(groups.own.entry))
    return replace(groups, kind=_short(groups.kind), most=_short(groups.most), own=own, threads=1)


def _short(numbers: IntArray) -> IntArray:
    """The same numbers in 4 bytes each; types tell no lengths."""
    short: Any = numbers.astype(np.int32)
    return np.asarray(short)


# --- what is found of a shard ---------------------------------------------------------------------------


def sums(shard: Shard, prices: FloatArray) -> Sums:
    """Sums over each block of groups, of uses in steps of some blocks: columns take memory."""
    groups, start = shard.groups, shard.start
    _, code = shard.passes.least(prices)
    all_groups, block, n_blocks = np.arange(groups.n_groups), shard.block, len(start) - 1
    cost = np.bincount(block, groups.costs(all_groups, code), n_blocks).astype(float)
    step, use = max(1, _BLOCK * n_blocks // max(1, groups.n_groups)), [np.zeros((0, groups.n_rows))]
    for first in range(0, n_blocks, step):
        last = min(first + step, n_blocks)
        some = slice(start[first], start[last])
        use.append(groups.uses_in_all(all_groups[some], code[some], block[some] - first, last - first))
    return Sums(least_sums(shard, prices), cost, np.concatenate(use))


def least_sums(shard: Shard, prices: FloatArray) -> FloatArray:
    """Sums of the least reduced costs over each block of groups."""
    return np.bincount(shard.block, least(shard, prices), len(shard.start) - 1).astype(float)


def least(shard: Shard, prices: FloatArray) -> FloatArray:
    """Least reduced cost of every group."""
    found, _ = shard.passes.least(prices)
    return found


def cheapest(shard: Shard, prices: FloatArray) -> IntArray:
    """Code of what costs each group least, of several columns the first."""
    _, code = shard.passes.least(prices)
    return _short(shard.numbered(code))


def in_question(shard: Shard, prices: FloatArray, threshold: float) -> tuple[IntArray, IntArray]:
    """Group and code of the columns `within` a threshold of groups that have several."""
    group, code, _ = shard.passes.within(prices, threshold)
    several = np.bincount(group, minlength=shard.groups.n_groups)[group] > 1
    return group[several] + shard.first, shard.numbered(code[several])
