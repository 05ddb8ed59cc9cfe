"""Pools: sets of interchangeable places, their GPUs laid on a line of power-of-two blocks."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.topology.cluster import Cluster, Node, top_down

Chunk = IntArray  # GPUs of one aligned power-of-two block, numbered (node of the pool) * gpus_per_node + gpu


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes with the same GPU type, the same number of GPUs and the same power domains.

    Its GPUs are in *line order*: structural blocks by descending size, one after the other, so that every
    block starts at a multiple of its size.

    Attributes
    ----------
    name : str
    gpu_type : str
    gpus_per_node : int
    nodes : tuple of str
        Node names in file order.
    domains : tuple of str
        Names of the power domains that every node of the pool belongs to, in file order.
    node_index, gpu_index : int arrays, shape (n_gpus,)
        Index into `nodes` and number on that node of each GPU on the line.
    blocks : int array, shape (n_blocks, 2)
        Start and size of the structural blocks, sizes descending.
    available : bool array, shape (n_gpus,)
        False for GPUs that take no job.
    """

    name: str
    gpu_type: str
    gpus_per_node: int
    nodes: tuple[str, ...]
    domains: tuple[str, ...]
    node_index: IntArray
    gpu_index: IntArray
    blocks: IntArray
    available: BoolArray

    @property
    def n_gpus(self) -> int:
        """GPUs on the line, unavailable ones included."""
        return len(self.node_index)

    @property
    def largest_block(self) -> int:
        """Size of the largest structural block, which is the largest size a job can have."""
        return int(self.blocks[0, 1])

    def position(self, node: str, gpu: int) -> int:
        """Place of a GPU on the line.

        Raises
        ------
        ValueError
            If the pool has no such GPU.
        """
        index = self._index_of_node.get(node)
        if index is None:
            raise ValueError(f"pool '{self.name}' has no node '{node}'")
        if not 0 <= gpu < self.gpus_per_node:
            raise ValueError(f"node '{node}' has no GPU {gpu}, it has {self.gpus_per_node}")
        return int(self._positions[index, gpu])

    def positions(self, nodes: Sequence[str], node: IntArray, gpu: IntArray) -> IntArray:
        """The same of many GPUs; `node` says which of the names in `nodes` each is of."""
        index = np.array([*(self._index_of_node.get(name, -1) for name in nodes), -1])[node]
        for i in np.flatnonzero((index < 0) | (gpu < 0) | (gpu >= self.gpus_per_node)).tolist():
            self.position(nodes[node[i]], int(gpu[i]))  # which says what is wrong
        return np.asarray(self._positions[index, gpu])

    def gpus_at(self, positions: Iterable[int]) -> dict[str, list[int]]:
        """Node names and GPU numbers at places of the line, the inverse of `position`."""
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
        table = np.empty((len(self.nodes), self.gpus_per_node), dtype=np.int64)
        table[self.node_index, self.gpu_index] = np.arange(self.n_gpus)
        return table


class _Kind(NamedTuple):
    """What the nodes of a pool have in common."""

    label: str | None
    gpu_type: str
    gpus: int
    domains: tuple[str, ...]


def pools_of(cluster: Cluster) -> tuple[Pool, ...]:
    """Pools of a cluster, in the file order of their first nodes.

    Nodes that carry a label (`Node.pool`) form the pool of that name; that they agree in type, GPU count and
    power domains is checked when the cluster is validated. The other nodes fall into pools by these three
    things. Such a pool is called like its GPU type when the type has no other pool; else ``x{gpus}`` is
    added where the type has several node sizes and ``@{domain}+{domain}`` (``@none`` for no domain) where it
    has several sets of power domains.
    """
    domains = cluster.domain_names()
    members: dict[_Kind, list[Node]] = defaultdict(list)
    for node in cluster.nodes:
        members[_Kind(node.pool, node.gpu_type, node.gpus, domains[node.name])].append(node)
    names = _names(list(members), set(cluster.gpu_types))
    blocks = _structural_blocks(cluster, members)
    return tuple(
        _pool(name, kind, members[kind], blocks[kind]) for name, kind in zip(names, members, strict=True)
    )


def _pool(name: str, kind: _Kind, nodes: list[Node], chunks: list[Chunk]) -> Pool:
    # Stable: blocks of one size keep the order of the tree.
    chunks = sorted(chunks, key=len, reverse=True)
    line = np.concatenate(chunks)
    sizes = np.array([len(chunk) for chunk in chunks], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    assert not np.any(starts % sizes), "a structural block starts at a multiple of its size"
    works = np.ones(len(line), dtype=bool)
    works[[i * kind.gpus + gpu for i, node in enumerate(nodes) for gpu in node.unavailable]] = False
    return Pool(
        name=name,
        gpu_type=kind.gpu_type,
        gpus_per_node=kind.gpus,
        nodes=tuple(node.name for node in nodes),
        domains=kind.domains,
        node_index=line // kind.gpus,
        gpu_index=line % kind.gpus,
        blocks=np.array([starts, sizes]).T.copy(),
        available=works[line],
    )


def _names(kinds: list[_Kind], gpu_types: set[str]) -> list[str]:
    taken = {kind.label for kind in kinds if kind.label is not None} | gpu_types
    alike: dict[str, list[_Kind]] = defaultdict(list)
    for kind in kinds:
        alike[kind.gpu_type].append(kind)
    # What tells the pools of a type apart: node sizes, power domains.
    tells = {
        gpu_type: (len({kind.gpus for kind in found}) > 1, len({kind.domains for kind in found}) > 1)
        for gpu_type, found in alike.items()
    }
    names = []
    for kind in kinds:
        if kind.label is not None:
            names.append(kind.label)
        elif len(alike[kind.gpu_type]) == 1:
            names.append(kind.gpu_type)
        else:
            names.append(next(name for name in _candidates(kind, *tells[kind.gpu_type]) if name not in taken))
        taken.add(names[-1])
    return names


def _candidates(kind: _Kind, by_size: bool, by_domains: bool) -> Iterator[str]:
    """Names for a pool without label, the shortest telling one first."""
    size, domains = f"x{kind.gpus}", "@" + ("+".join(kind.domains) or "none")
    yield kind.gpu_type + size * by_size + domains * by_domains
    yield kind.gpu_type + size
    longest = kind.gpu_type + size + domains
    yield longest
    yield from (f"{longest}#{i}" for i in count(2))


def _structural_blocks(cluster: Cluster, members: Mapping[_Kind, list[Node]]) -> dict[_Kind, list[Chunk]]:
    """Structural blocks of the tree restricted to the nodes of each pool.

    Groups come before nodes among the children of a vertex, each in file order. Places without a parent
    are children of one implicit root.
    """
    below: dict[str | None, dict[_Kind, deque[list[Chunk]]]] = defaultdict(lambda: defaultdict(deque))
    for kind, nodes in members.items():
        for i, node in enumerate(nodes):
            below[node.parent][kind].append(_of_node(i * kind.gpus, kind.gpus))
    parents = cluster.parents()
    # From the leaves up, so that a group is complete before its parent needs it; the last of siblings first.
    for name in reversed(top_down(parents)):
        for kind, children in below.pop(name, {}).items():
            below[parents[name]][kind].appendleft(_joined(children))
    return {kind: _joined(below[None][kind]) for kind in members}


def _joined(children: Iterable[list[Chunk]]) -> list[Chunk]:
    """Structural blocks of a vertex from those of its children.

    Children that are one whole block each, all of the same size, join in aligned runs of 2^m, decomposed in
    binary from the first: 7 become 4 + 2 + 1. Blocks of a child with several blocks stay as they are.
    """
    whole: dict[int, list[Chunk]] = defaultdict(list)
    chunks: list[Chunk] = []
    for child in children:
        if len(child) == 1:
            whole[len(child[0])].append(child[0])
        else:
            chunks += child
    for equal in whole.values():
        start = 0
        while start < len(equal):
            run = 1 << ((len(equal) - start).bit_length() - 1)
            chunks.append(np.concatenate(equal[start : start + run]))
            start += run
    return chunks


def _of_node(first: int, gpus: int) -> list[Chunk]:
    """The same of the GPUs of a node, which are one child each."""
    chunks = []
    while gpus:
        run = 1 << (gpus.bit_length() - 1)
        chunks.append(np.arange(first, first + run))
        first, gpus = first + run, gpus - run
    return chunks
