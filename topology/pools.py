"""Pools: sets of interchangeable places, their GPUs laid on a line of power-of-two blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, count, repeat
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, IntArray, alike, offsets, run_starts
from wattsched.topology.cluster import Capacity, Cluster
from wattsched.topology.column import Coded
from wattsched.topology.remembered import remembered


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes with the same GPU type, the same number of GPUs and the same power domains.

    Its GPUs are in *line order*: structural blocks by descending size, one after the other, so that every
    block starts at a multiple of its size.

    Attributes
    ----------
    nodes : tuple of str
        Node names in file order.
    members : int array, shape (n_nodes,)
        Numbers of these nodes in the cluster.
    domains : tuple of str
        Names of the power domains that every node of the pool belongs to, in file order.
    node_index, gpu_index : int arrays, shape (n_gpus,)
        Index into `nodes` and number on that node of each GPU on the line.
    blocks : int array, shape (n_blocks, 2)
        Start and size of the structural blocks, sizes descending.
    available : bool array, shape (n_gpus,)
        False for GPUs that take no job.
    capacity : {"blocks", "nodes", "count"}
        What a job takes (`topology.room`).
    """

    name: str
    gpu_type: str
    gpus_per_node: int
    nodes: tuple[str, ...]
    members: IntArray
    domains: tuple[str, ...]
    node_index: IntArray
    gpu_index: IntArray
    blocks: IntArray
    available: BoolArray
    capacity: Capacity = "blocks"

    @property
    def n_gpus(self) -> int:
        """GPUs on the line, unavailable ones included."""
        return len(self.node_index)

    @property
    def largest_block(self) -> int:
        """Size of the largest structural block, which is the largest size of a job in pools of blocks."""
        return int(self.blocks[0, 1])

    def positions(self, nodes: Sequence[str], node: IntArray, gpu: IntArray) -> IntArray:
        """Places on the line of GPUs, each `gpu` of the node `nodes[node]`; a ValueError for other nodes."""
        index = np.array([*map(self._index_of_node.get, nodes, repeat(-1)), -1])[node]
        for i in np.flatnonzero((index < 0) | (gpu < 0) | (gpu >= self.gpus_per_node)).tolist():
            if index[i] < 0:
                raise ValueError(f"pool '{self.name}' has no node '{nodes[node[i]]}'")
            raise ValueError(f"node '{nodes[node[i]]}' has no GPU {gpu[i]}, it has {self.gpus_per_node}")
        return np.asarray(self._positions[index, gpu])

    def gpus_at(self, positions: Iterable[int]) -> dict[str, list[int]]:
        """Node names and GPU numbers at places of the line, the inverse of `positions`."""
        found: dict[str, list[int]] = {}
        for position in positions:
            node = self.nodes[self.node_index[position]]
            found.setdefault(node, []).append(int(self.gpu_index[position]))
        return found

    @cached_property
    def _index_of_node(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.nodes)}

    @cached_property
    def _positions(self) -> IntArray:
        """Place on the line of each GPU, shape (n_nodes, gpus_per_node)."""
        table = np.empty((len(self.nodes), self.gpus_per_node), dtype=np.int64)
        table[self.node_index, self.gpu_index] = np.arange(self.n_gpus)
        return table


class _Kind(NamedTuple):
    """Attributes that all nodes of a pool share."""

    label: str | None
    gpu_type: str
    gpus: int
    domains: tuple[str, ...]


class LineGpus(NamedTuple):
    """GPUs of all pools of a cluster, line after line.

    Attributes
    ----------
    start : int array, shape (n_pools,)
        Begin of the line of each pool.
    node, gpu : int arrays, shape (n_gpus,)
        Number of the node of each GPU in `nodes`, pool by pool, and its own on that node.
    """

    start: IntArray
    node: IntArray
    gpu: IntArray
    nodes: tuple[str, ...]


@remembered
def gpus_of_lines(cluster: Cluster) -> LineGpus:
    """GPUs of all pools of a cluster, line after line."""
    pools = pools_of(cluster)
    start = offsets([pool.n_gpus for pool in pools])
    first = offsets([len(pool.nodes) for pool in pools])
    nodes = [pool.node_index + n for pool, n in zip(pools, first.tolist(), strict=False)]
    gpu = np.concatenate([pool.gpu_index for pool in pools])
    return LineGpus(start, np.concatenate(nodes), gpu, tuple(chain(*(pool.nodes for pool in pools))))


@remembered
def pools_of(cluster: Cluster) -> tuple[Pool, ...]:
    """Pools of a cluster, in the file order of their first nodes.

    Nodes that carry a label (`Node.pool`) form the pool of that name; that they agree in type, GPU count and
    power domains is checked when the cluster is validated. The other nodes fall into pools by these three
    things. Such a pool is called like its GPU type when the type has no other pool; else ``x{gpus}`` is
    added where the type has several node sizes and ``@{domain}+{domain}`` (``@none`` for no domain) where it
    has several sets of power domains.
    """
    nodes, groups, domains = cluster.node_columns(), cluster.group_columns(), cluster.node_domains()
    label, gpu_type, gpus = nodes.coded("pool"), nodes.coded("gpu_type"), nodes.counts("gpus")
    first, kind = alike([label.codes, gpu_type.codes, gpus, domains.codes])
    kinds = [_Kind(label.at(i), gpu_type.at(i), int(gpus[i]), domains.at(i)) for i in first.tolist()]
    number = {name: g for g, name in enumerate(groups.names)}
    above = [_above(places.coded("parent"), number) for places in (nodes, groups)]
    # GPUs are numbered node by node.
    begin, node_of = np.cumsum(gpus) - gpus, np.repeat(np.arange(len(gpus)), gpus)
    broken_on, broken_gpu = nodes.broken
    works = np.ones(len(node_of), dtype=bool)
    works[begin[broken_on] + broken_gpu] = False
    members = np.split(np.argsort(kind, kind="stable"), np.cumsum(np.bincount(kind))[:-1])
    within = np.empty(len(kind), dtype=np.int64)
    for own in members:
        within[own] = np.arange(len(own))
    lines = _lines(begin, gpus, kind, *above)
    pools = []
    for p, (name, (_, of_type, gpus_per_node, feeds)) in enumerate(
        zip(_names(kinds, set(cluster.gpu_types)), kinds, strict=True)
    ):
        blocks = sorted(lines[p], key=lambda equal: -equal.shape[1])
        line = np.concatenate([equal.ravel() for equal in blocks])
        sizes = np.concatenate([np.full(len(equal), equal.shape[1]) for equal in blocks])
        starts = np.cumsum(sizes) - sizes
        assert not np.any(starts % sizes), "a structural block starts at a multiple of its size"
        node = node_of[line]
        pools.append(
            Pool(
                name=name,
                gpu_type=of_type,
                gpus_per_node=gpus_per_node,
                nodes=tuple(nodes.names[i] for i in members[p].tolist()),
                members=members[p],
                domains=feeds,
                node_index=within[node],
                gpu_index=line - begin[node],
                blocks=np.array([starts, sizes]).T.copy(),
                available=works[line],
                capacity=cluster.capacity_of(name, of_type),
            )
        )
    return tuple(pools)


def _above(parent: Coded, number: Mapping[str, int]) -> IntArray:
    """Return the numbers of the groups above places; the number of groups for none."""
    return np.array([*(number[name] for name in parent.values), len(number)], dtype=np.int64)[parent.codes]


def _lines(
    begin: IntArray, gpus: IntArray, kind: IntArray, parent: IntArray, above: IntArray
) -> dict[int, list[IntArray]]:
    """Lay the GPUs of every pool on structural blocks, from the deepest groups to the root.

    The tree is restricted to the nodes of a pool. A node of 2^m GPUs is one block, and others are several, by
    the binary digits of their count: 7 GPUs are 4 + 2 + 1. Children of a group that are one block each, all
    of the same size, join in aligned runs of 2^m, decomposed in the same way from the first. Blocks of a
    child with several stay as they are. Groups come before nodes among the children of a group, each in file
    order; places without a parent are children of one implicit root.

    Parameters
    ----------
    begin, gpus, kind, parent : int arrays, shape (n_nodes,)
        First GPU and GPU count of each node, number of its pool, and of the group above it; the number of
        groups for none.
    above : int array, shape (n_groups,)
        Group above each group, the number of groups for none.

    Returns
    -------
    dict of int to list of int arrays, shape (n_blocks, size)
        Numbers of the GPUs of blocks of one size, in their order, by number of the pool.
    """
    children: list[list[int]] = [[] for _ in range(len(above) + 1)]
    for group, parent_group in enumerate(above.tolist()):
        children[parent_group].append(group)
    top_down = [len(above)]
    for group in top_down:  # grows meanwhile
        top_down += children[group]
    order = np.lexsort((kind, parent))
    starts = run_starts(kind[order], parent[order])
    below: defaultdict[int, list[IntArray]] = defaultdict(list)
    for nodes in np.split(order, starts[1:]):
        below[int(parent[nodes[0]])].append(nodes)
    done: dict[int, dict[int, list[IntArray]]] = {}
    for group in reversed(top_down):
        kept, single = defaultdict[int, list[IntArray]](list), defaultdict[int, list[IntArray]](list)
        for child in children[group]:
            for pool, blocks in done.pop(child).items():
                (single if sum(map(len, blocks)) == 1 else kept)[pool] += blocks
        for nodes in below[group]:
            blocks = _of_nodes(begin[nodes], int(gpus[nodes[0]]))
            (single if len(blocks) == 1 else kept)[int(kind[nodes[0]])] += blocks
        done[group] = {pool: kept[pool] + _joined(single[pool]) for pool in {**kept, **single}}
    return done[len(above)]


def _of_nodes(begin: IntArray, gpus: int) -> list[IntArray]:
    """Return blocks of nodes of `gpus` GPUs each, by the binary digits of that number, the largest first."""
    sizes = [1 << bit for bit in reversed(range(gpus.bit_length())) if gpus >> bit & 1]
    firsts = accumulate(sizes, initial=0)
    return [begin[:, None] + first + np.arange(size) for first, size in zip(firsts, sizes, strict=False)]


def _joined(children: list[IntArray]) -> list[IntArray]:
    """Join equal blocks of children that are one block each in runs, by the binary digits of their number."""
    alike: defaultdict[int, list[IntArray]] = defaultdict(list)
    for blocks in children:
        alike[blocks.shape[1]].append(blocks)
    joined = []
    for size, equal in alike.items():
        blocks, first = np.concatenate(equal), 0
        for bit in reversed(range(len(blocks).bit_length())):
            if len(blocks) >> bit & 1:
                joined.append(blocks[first : first + (1 << bit)].reshape(1, size << bit))
                first += 1 << bit
    return joined


def _names(kinds: list[_Kind], gpu_types: set[str]) -> list[str]:
    """Name the pool of each kind of nodes, as `pools_of` says."""
    taken = {kind.label for kind in kinds if kind.label is not None} | gpu_types
    alike: dict[str, list[_Kind]] = defaultdict(list)
    for kind in kinds:
        alike[kind.gpu_type].append(kind)
    # Whether the pools of a type differ in node sizes, and in power domains.
    vary = {
        gpu_type: (len({kind.gpus for kind in same}) > 1, len({kind.domains for kind in same}) > 1)
        for gpu_type, same in alike.items()
    }
    names = []
    for kind in kinds:
        if kind.label is not None:
            names.append(kind.label)
        elif len(alike[kind.gpu_type]) == 1:
            names.append(kind.gpu_type)
        else:
            names.append(next(name for name in _candidates(kind, *vary[kind.gpu_type]) if name not in taken))
        taken.add(names[-1])
    return names


def _candidates(kind: _Kind, by_size: bool, by_domains: bool) -> Iterator[str]:
    """Yield names for a pool without label, the shortest that tells the pools of its type apart first."""
    size, domains = f"x{kind.gpus}", "@" + ("+".join(kind.domains) or "none")
    yield kind.gpu_type + size * by_size + domains * by_domains
    yield kind.gpu_type + size
    longest = kind.gpu_type + size + domains
    yield longest
    yield from (f"{longest}#{i}" for i in count(2))
