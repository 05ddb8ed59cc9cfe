"""Pools: sets of interchangeable places, their GPUs laid on a line of power-of-two blocks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, count

import numpy as np

from wattsched.topology.arrays import BoolArray, IntArray
from wattsched.topology.cluster import Cluster, Node

Chunk = list[int]  # GPUs of one aligned power-of-two block, numbered (node of the pool) * gpus_per_node + gpu


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


@dataclass(frozen=True)
class _Kind:
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
    tree = _Tree(cluster)
    return tuple(_pool(name, kind, members[kind], tree) for name, kind in zip(names, members, strict=True))


def _pool(name: str, kind: _Kind, nodes: list[Node], tree: _Tree) -> Pool:
    # Stable: blocks of one size keep the order of the tree.
    chunks = sorted(tree.chunks(nodes), key=len, reverse=True)
    line = np.array([gpu for chunk in chunks for gpu in chunk], dtype=np.int64)
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
    siblings: dict[str, list[_Kind]] = defaultdict(list)
    for kind in kinds:
        siblings[kind.gpu_type].append(kind)
    forms = {gpu_type: _form(alike) for gpu_type, alike in siblings.items()}
    names = []
    for kind in kinds:
        if kind.label is not None:
            names.append(kind.label)
        elif len(siblings[kind.gpu_type]) == 1:
            names.append(kind.gpu_type)
        else:
            names.append(next(name for name in _candidates(kind, forms[kind.gpu_type]) if name not in taken))
        taken.add(names[-1])
    return names


def _form(alike: list[_Kind]) -> str:
    """Template of the names of a type's pools: with what tells them apart."""
    size = "x{gpus}" if len({kind.gpus for kind in alike}) > 1 else ""
    return "{gpu_type}" + size + ("@{domains}" if len({kind.domains for kind in alike}) > 1 else "")


def _candidates(kind: _Kind, form: str) -> Iterator[str]:
    """Names for a pool without label, the shortest telling one first."""
    longest = "{gpu_type}x{gpus}@{domains}"
    numbered = (f"{longest}#{i}" for i in count(2))
    for template in chain([form, "{gpu_type}x{gpus}", longest], numbered):
        domains = "+".join(kind.domains) or "none"
        yield template.format(gpu_type=kind.gpu_type, gpus=kind.gpus, domains=domains)


class _Tree:
    """Parents, depths and file order of the groups, prepared once for all pools."""

    def __init__(self, cluster: Cluster) -> None:
        self.parent = {group.name: group.parent for group in cluster.groups}
        self.order = {group.name: i for i, group in enumerate(cluster.groups)}
        self.depth: dict[str | None, int] = {None: 0}
        for start in self.parent:
            path = []
            name: str | None = start
            while name not in self.depth:
                assert name is not None
                path.append(name)
                name = self.parent[name]
            for below in reversed(path):
                self.depth[below] = self.depth[self.parent[below]] + 1

    def chunks(self, nodes: list[Node]) -> list[Chunk]:
        """Structural blocks of the tree restricted to these nodes.

        Groups come before nodes among the children of a vertex, each in file order. Places without a parent
        are children of one implicit root.
        """
        below: dict[str | None, list[list[Chunk]]] = defaultdict(list)
        for i, node in enumerate(nodes):
            gpus = [[[i * node.gpus + gpu]] for gpu in range(node.gpus)]
            below[node.parent].append(_joined(gpus))
        # Deepest first, so that a group is complete before its parent needs it.
        groups = sorted(self._above(nodes), key=lambda name: (-self.depth[name], self.order[name]))
        from_groups: dict[str | None, list[list[Chunk]]] = defaultdict(list)
        for name in groups:
            from_groups[self.parent[name]].append(_joined(from_groups[name] + below[name]))
        return _joined(from_groups[None] + below[None])

    def _above(self, nodes: list[Node]) -> set[str]:
        found: set[str] = set()
        for name in {node.parent for node in nodes}:
            while name is not None and name not in found:
                found.add(name)
                name = self.parent[name]
        return found


def _joined(children: list[list[Chunk]]) -> list[Chunk]:
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
            chunks.append([gpu for chunk in equal[start : start + run] for gpu in chunk])
            start += run
    return chunks
