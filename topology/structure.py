"""Structural blocks: how the tree of a cluster lays the GPUs of every pool on a line of power-of-two blocks.

The tree is restricted to the nodes of a pool. A node of 2^m GPUs is one block, and others are several, by
the binary digits of their count: 7 GPUs are 4 + 2 + 1. Children of a group that are one block each, all of
the same size, join in aligned runs of 2^m, decomposed in the same way from the first. Blocks of a child with
several stay as they are. Groups come before nodes among the children of a group, each in file order; places
without a parent are children of one implicit root.

All pools are laid out at once, from the deepest groups to the root: a row is a block that is not done yet.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.topology.arrays import BoolArray, IntArray, Table, ranges


@dataclass(frozen=True, eq=False)
class Lines:
    """The lines of all pools, one behind the other.

    Attributes
    ----------
    first : int array, shape (n_pools + 1,)
        Pool p has the GPUs ``first[p]`` to ``first[p + 1]``.
    node, gpu : int arrays, shape (n_gpus,)
        Number of the node and number on the node of each GPU.
    block_pool, block_size : int arrays, shape (n_blocks,)
        Structural blocks by pool, sizes descending.
    """

    first: IntArray
    node: IntArray
    gpu: IntArray
    block_pool: IntArray
    block_size: IntArray


@dataclass(frozen=True, eq=False)
class _Blocks(Table):
    """Blocks of the children of some groups.

    Attributes
    ----------
    pool, group : int arrays, shape (n_blocks,)
        `group` is the one above the child, the number of groups for the root.
    child, rank : int arrays, shape (n_blocks,)
        Place of the child among those of the group, and of the block among those of the child.
    size : int array, shape (n_blocks,)
    number : int array, shape (n_blocks,)
        What the block is known by.
    """

    pool: IntArray
    group: IntArray
    child: IntArray
    rank: IntArray
    size: IntArray
    number: IntArray


@dataclass(frozen=True, eq=False)
class _Joins:
    """Blocks that became parts of others: their numbers, those of the others, and where they lie in these."""

    number: IntArray
    into: IntArray
    offset: IntArray


def lines_of(gpus: IntArray, pool: IntArray, parent: IntArray, above: IntArray) -> Lines:
    """Lay the GPUs of every pool on its line.

    Parameters
    ----------
    gpus, pool, parent : int arrays, shape (n_nodes,)
        GPU count of each node, number of its pool, and of its group; the number of groups for none.
    above : int array, shape (n_groups,)
        Group above each group, the number of groups for none.
    """
    n_groups, (node, first_gpu, blocks) = len(above), _of_nodes(gpus, pool, parent, len(above))
    above, depth = np.append(above, n_groups), _depths(above)
    of_depth = np.argsort(depth[blocks.group], kind="stable")
    ends = np.searchsorted(depth[blocks.group[of_depth]], np.arange(depth.max(initial=0) + 2))
    done: _Blocks | None = None
    joins: list[_Joins] = []
    n_blocks = len(node)
    for d in reversed(range(len(ends) - 1)):
        own = blocks.take(of_depth[ends[d] : ends[d + 1]])
        if done is not None:
            # Blocks of a group are those of a child of the group above it.
            risen = _Blocks(done.pool, above[done.group], done.group, done.rank, done.size, done.number)
            own = _Blocks.joined([risen, own])
        done, join = _joined(own, n_blocks)
        joins.append(join)
        n_blocks += len(join.number)
    assert done is not None, "there is a root"
    done = done.take(np.lexsort((done.rank, -done.size, done.pool)))
    start = np.zeros(n_blocks, dtype=np.int64)
    start[done.number] = np.cumsum(done.size) - done.size
    for join in reversed(joins):
        start[join.number] = start[join.into] + join.offset
    size = blocks.size
    place = ranges(start[: len(node)], size)
    of_gpu, number = np.empty((2, len(place)), dtype=np.int64)
    of_gpu[place], number[place] = np.repeat(node, size), ranges(first_gpu, size)
    per_pool = np.bincount(pool, weights=gpus).astype(np.int64)
    return Lines(np.concatenate([[0], np.cumsum(per_pool)]), of_gpu, number, done.pool, done.size)


def _of_nodes(
    gpus: IntArray, pool: IntArray, parent: IntArray, n_groups: int
) -> tuple[IntArray, IntArray, _Blocks]:
    """Blocks of the nodes, with the node and the first GPU of each."""
    parts = []
    for bit in range(int(gpus.max()).bit_length()):
        node = np.flatnonzero(gpus >> bit & 1)
        parts.append((node, gpus[node] >> bit + 1 << bit + 1, np.full(len(node), 1 << bit)))
    node, first, size = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    # The largest block of a node comes first.
    blocks = _Blocks(pool[node], parent[node], n_groups + node, first, size, np.arange(len(node)))
    return node, first, blocks


def _depths(above: IntArray) -> IntArray:
    """Groups from the root to each group, and the root itself as the last."""
    n = len(above)
    depth, up = np.append(np.ones(n, dtype=np.int64), 0), np.append(above, n)
    while (up != n).any():
        depth, up = depth + depth[up], up[up]
    return depth


def _joined(blocks: _Blocks, n_blocks: int) -> tuple[_Blocks, _Joins]:
    """Blocks of groups from those of their children; new ones are numbered from `n_blocks` on."""
    blocks = blocks.take(np.lexsort((blocks.rank, blocks.child, blocks.group, blocks.pool)))
    of_child = _runs(blocks.pool, blocks.group, blocks.child)
    single = np.bincount(of_child)[of_child] == 1
    kept, whole = blocks.take(np.flatnonzero(~single)), blocks.take(np.flatnonzero(single))
    # Equal blocks of a group, in the order of its children.
    whole = whole.take(np.lexsort((whole.child, whole.size, whole.group, whole.pool)))
    equal = _runs(whole.pool, whole.group, whole.size)
    many = np.bincount(equal)
    begin = np.cumsum(many) - many
    i, many = np.arange(len(equal)) - begin[equal], many[equal]
    # The highest digit in which i differs from their count tells the run that i is in.
    bit = np.frexp((i ^ many).astype(np.float64))[1].astype(np.int64) - 1
    run = many >> bit + 1 << bit + 1
    of_run = _runs(equal, run)
    heads = np.flatnonzero(i == run)
    made = _Blocks(
        pool=whole.pool[heads],
        group=whole.group[heads],
        child=whole.child[begin[equal[heads]]],
        rank=run[heads],
        size=whole.size[heads] << bit[heads],
        number=n_blocks + np.arange(len(heads)),
    )
    join = _Joins(whole.number, made.number[of_run], (i - run) * whole.size)
    # Those of children with several come first.
    both, late = _Blocks.joined([kept, made]), np.arange(len(kept.pool) + len(heads)) >= len(kept.pool)
    order = np.lexsort((both.rank, both.child, late, both.group, both.pool))
    both = both.take(order)
    of_group = _runs(both.pool, both.group)
    first = np.flatnonzero(np.diff(of_group, prepend=-1))
    rank = np.arange(len(of_group)) - first[of_group]
    return _Blocks(both.pool, both.group, both.child, rank, both.size, both.number), join


def _runs(*columns: IntArray) -> IntArray:
    """Number of the run of equal rows that each row is in."""
    new: BoolArray = np.zeros(len(columns[0]), dtype=bool)
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.cumsum(new)
