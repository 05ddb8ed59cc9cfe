"""The checker's own reading of a cluster: its pools, their buddy blocks, and the GPUs that may take jobs.

It walks the tree of nodes, and finds again what `topology` computes in another way.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cache, cached_property
from math import fsum
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, offsets, ranges
from wattsched.topology.arrays import alike as kinds_of
from wattsched.topology.cluster import Cluster, NodeColumns
from wattsched.topology.column import NONE, Coded
from wattsched.topology.remembered import remembered
from wattsched.verification.arithmetic import alike

Block = tuple[int, list[int]]
"""GPUs of a structural block, and where the GPUs that follow each other in it begin."""


class _Kind(NamedTuple):
    """Properties that the nodes of a pool have in common."""

    label: str | None
    gpu_type: str
    gpus: int
    domains: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Pool:
    """Nodes that are alike, and their structural blocks.

    Attributes
    ----------
    name, gpu_type : str
    gpus_per_node : int
    domains : tuple of str
        Power domains of its nodes.
    available : int
        GPUs that take jobs.
    base_power_w, reserved_w : float arrays, shape (n_nodes,)
        Of its servers, and of others' jobs there.
    sizes : int array, shape (n_blocks,)
        Of the structural blocks, descending, so that each begins at a multiple of its size.
    line : int array, shape (n_gpus,)
        GPUs of these blocks one after the other, by their numbers in the cluster (`Places`).
    capacity : {"blocks", "nodes", "count"}
        Whether jobs take a block, GPUs of a node or whole nodes and a part of one, or any GPUs.
    """

    name: str
    gpu_type: str
    gpus_per_node: int
    domains: tuple[str, ...]
    available: int
    base_power_w: FloatArray
    reserved_w: FloatArray
    sizes: IntArray
    line: IntArray
    capacity: str = "blocks"

    @cached_property
    def servers_w(self) -> float:
        """Draw of all its servers, and of others' jobs there."""
        return fsum([*self.base_power_w.tolist(), *self.reserved_w.tolist()])

    @property
    def most_gpus(self) -> int:
        """The most that a job can have here; in blocks, which are powers of two, the size of the largest."""
        return int(self.sizes[0]) if self.capacity == "blocks" else len(self.line)

    def taken(self, gpus: int) -> int:
        """GPUs that a job with so many takes for itself."""
        return int(block_of(gpus)) if self.capacity == "blocks" else gpus


class Places:
    """Every GPU of a cluster, numbered node by node.

    Attributes
    ----------
    pools, capacity : lists of str
        Names of the pools, and what jobs take of each.
    node : dict of str to int
        Number of each node.
    first, size : int arrays, shape (n_nodes,)
        First GPU of each node, and how many it has.
    pool : int array, shape (n_nodes,)
        Number of each node's pool.
    line : int array, shape (n_pools,)
        Where the line of each pool begins, when they follow each other.
    position, block : int arrays, shape (n_gpus,)
        Place of each GPU on its pool's line, and the size of its structural block.
    available : bool array, shape (n_gpus,)
    """

    def __init__(self, cluster: Cluster, pools: dict[str, Pool]):
        self.pools, self.capacity = list(pools), [pool.capacity for pool in pools.values()]
        nodes = cluster.node_columns()
        self.node = {name: n for n, name in enumerate(nodes.names)}
        self.first, self.size = _first(nodes), nodes.counts("gpus")
        n_gpus = int(self.size.sum())
        self.position, self.block, pool = (np.zeros(n_gpus, dtype=np.int64) for _ in range(3))
        for number, one in enumerate(pools.values()):
            self.position[one.line] = np.arange(len(one.line))
            self.block[one.line] = np.repeat(one.sizes, one.sizes)
            pool[one.line] = number
        self.pool = pool[self.first]
        lengths = np.array([len(one.line) for one in pools.values()], dtype=np.int64)
        self.line = np.cumsum(lengths) - lengths
        self.available = np.ones(n_gpus, dtype=bool)
        broken, gpu = nodes.broken
        self.available[self.first[broken] + gpu] = False

    @cached_property
    def on_lines(self) -> IntArray:
        """Number of the GPU at each position of all lines, which follow each other; shape (n_gpus,)."""
        found = np.empty(len(self.position), dtype=np.int64)
        found[self.line[self.home] + self.position] = np.arange(len(found))
        return found

    @cached_property
    def on_node(self) -> IntArray:
        """Number of each GPU's node, shape (n_gpus,)."""
        return np.repeat(np.arange(len(self.size)), self.size)

    def by_pool(self, nodes: BoolArray) -> list[IntArray]:
        """Return the nodes of a mask, by pool."""
        return [np.flatnonzero(nodes & (self.pool == number)) for number in range(len(self.pools))]

    @cached_property
    def home(self) -> IntArray:
        """Number of each GPU's pool, shape (n_gpus,)."""
        return np.repeat(self.pool, self.size)

    @cached_property
    def _broken_before(self) -> IntArray:
        """Number of unavailable GPUs before each position of all lines; one entry more for the end."""
        return offsets(~self.available[self.on_lines])

    def broken(self, first: IntArray, size: IntArray) -> IntArray:
        """Return the number of unavailable GPUs among `size` positions of all lines from `first` on."""
        return np.asarray(self._broken_before[first + size] - self._broken_before[first])

    def gpus(self, nodes: dict[str, list[int]]) -> IntArray:
        """Numbers of GPUs that exist."""
        listed = [self.first[self.node[name]] + gpu for name, gpus in nodes.items() for gpu in gpus]
        return np.array(listed, dtype=np.int64)

    def reserved(self, gpus: IntArray, start: IntArray, count: IntArray) -> tuple[IntArray, BoolArray]:
        """The aligned blocks of powers of two that jobs with so many GPUs take for themselves.

        Parameters
        ----------
        gpus : int array
            GPUs job after job, of each job in one pool.
        start : int array, shape (n_jobs,)
            Where those of each job begin; it has one at least.
        count : int array, shape (n_jobs,)

        Returns
        -------
        begin : int array, shape (n_jobs,)
            Position on the pool's line where the block of each job begins.
        aligned : bool array, shape (n_jobs,)
            Whether all its GPUs lie in that block, and the block in a structural one.
        """
        size, position = block_of(count), self.position[gpus]
        begin = np.minimum.reduceat(position, start) // size * size
        within = np.maximum.reduceat(position, start) < begin + size
        return begin, within & (np.minimum.reduceat(self.block[gpus], start) >= size)


@remembered
def places_of(cluster: Cluster) -> Places:
    """Every GPU of a cluster."""
    return Places(cluster, pools_of(cluster))


@remembered
def pools_of(cluster: Cluster) -> dict[str, Pool]:
    """Pools of a cluster by name, in the order of their first nodes.

    Nodes with a label form the pool of that label. Other nodes are one pool when they agree in GPU type, GPU
    count and power domains. It is called like its type where the type has one pool, else ``x`` with the GPU
    count and ``@`` with the domains are added, each where it differs within the type.
    """
    nodes, kinds, tree = cluster.node_columns(), _kinds(cluster), _Tree(cluster)
    siblings: dict[str, list[_Kind]] = defaultdict(list)
    for kind, _ in kinds:
        siblings[kind.gpu_type].append(kind)
    taken = {kind.label for kind, _ in kinds if kind.label is not None} | set(cluster.gpu_types)
    pools: dict[str, Pool] = {}
    for kind, inside in kinds:
        label, gpu_type, gpus, power = kind
        name = label or _name(kind, siblings[gpu_type], taken)
        taken.add(name)
        available = int(nodes.available[inside].sum())
        base_power_w, reserved_w = (nodes.numbers(of)[inside] for of in ("base_power_w", "reserved_w"))
        line = _line(tree.blocks(inside, gpus))
        of = _capacity(cluster, name, gpu_type)
        pools[name] = Pool(name, gpu_type, gpus, power, available, base_power_w, reserved_w, *line, of)
    return pools


def _capacity(cluster: Cluster, pool: str, gpu_type: str) -> str:
    """Return the capacity rule that the cluster states for all pools, for the pool, or else for its type."""
    said = cluster.capacity
    if not isinstance(said, dict):
        return said
    return said[pool] if pool in said else said.get(gpu_type, "blocks")


def _kinds(cluster: Cluster) -> list[tuple[_Kind, IntArray]]:
    """Kinds of nodes, and the numbers of those that are of each, in the order of the first ones."""
    nodes, power = cluster.node_columns(), _domains(cluster)
    label, gpu_type, gpus = nodes.coded("pool"), nodes.coded("gpu_type"), nodes.counts("gpus")
    _, kind = kinds_of([_same(label).codes, _same(gpu_type).codes, gpus, power.codes])
    found = []
    for n, inside in sorted((int(inside[0]), inside) for _, inside in alike(kind)):
        found.append((_Kind(label.at(n), gpu_type.at(n), int(gpus[n]), power.at(n)), inside))
    return found


def _same(column: Coded) -> Coded:
    """Return the column with one code for each value, in place of several for equal ones."""
    number: dict[Hashable, int] = {}
    codes = [number.setdefault(value, len(number)) for value in column.values]
    return Coded(np.array([*codes, NONE], dtype=np.int64)[column.codes], list(number))


def _first(nodes: NodeColumns) -> IntArray:
    """First GPU of every node."""
    size = nodes.counts("gpus")
    return np.asarray(np.cumsum(size) - size)


def _name(kind: _Kind, siblings: list[_Kind], taken: set[str]) -> str:
    """Name a pool without a label, among those of its GPU type, other than the names that are taken."""
    _, gpu_type, gpus, domains = kind
    if len(siblings) == 1:
        return gpu_type
    size, feed = f"x{gpus}", "@" + ("+".join(domains) or "none")
    several_sizes = len({other.gpus for other in siblings}) > 1
    several_feeds = len({other.domains for other in siblings}) > 1
    short = gpu_type + (size if several_sizes else "") + (feed if several_feeds else "")
    for name in (short, gpu_type + size, gpu_type + size + feed):
        if name not in taken:
            return name
    number = 2
    while (name := f"{gpu_type}{size}{feed}#{number}") in taken:
        number += 1
    return name


def _domains(cluster: Cluster) -> Coded:
    """Power domains of each node, through any group above it, in file order."""
    nodes, parents = cluster.node_columns(), cluster.parents()
    memberships: dict[str, set[int]] = defaultdict(set)
    for number, domain in enumerate(cluster.power_domains):
        for member in domain.members:
            memberships[member].add(number)

    def above(group: str | None) -> set[int]:
        """Domains of a group and of those above it."""
        found: set[int] = set()
        while group is not None:
            found |= memberships.get(group, set())
            group = parents[group]
        return found

    parent = nodes.coded("parent")
    # The last is that of nodes without a parent.
    sets = [*map(above, parent.values), set()]
    codes = np.where(parent.codes == NONE, len(parent.values), parent.codes)
    named = memberships.keys() - parents.keys()
    for n, name in enumerate(nodes.names) if named else ():
        if name in named:
            sets.append(sets[codes[n]] | memberships[name])
            codes[n] = len(sets) - 1
    tuples = [tuple(cluster.power_domains[number].name for number in sorted(found)) for found in sets]
    return _same(Coded(codes, tuples))


class _Tree:
    """The groups of a cluster, those that are deepest in its tree first, siblings in file order."""

    def __init__(self, cluster: Cluster):
        nodes = cluster.node_columns()
        self._first, self._above = _first(nodes), _same(nodes.coded("parent"))
        self._parent = cluster.parents()
        children: dict[str | None, list[str]] = defaultdict(list)
        for group, parent in self._parent.items():
            children[parent].append(group)
        level, levels = children[None], []
        while level:
            levels.append(level)
            level = [name for group in level for name in children.get(group, [])]
        self._rank = {name: rank for rank, name in enumerate(n for one in reversed(levels) for n in one)}

    def blocks(self, nodes: IntArray, gpus: int) -> list[Block]:
        """Structural blocks of the tree over some nodes only, of which each has so many GPUs."""
        leaves: dict[str | None, list[int]] = {}
        for parent, inside in alike(self._above.codes[nodes]):
            name = None if parent == NONE else self._above.values[parent]
            leaves[name] = self._first[nodes[inside]].tolist()
        above: set[str] = set()
        for leaf in leaves:
            group = leaf
            while group is not None and group not in above:
                above.add(group)
                group = self._parent[group]
        groups: dict[str | None, list[list[Block]]] = defaultdict(list)
        for name in sorted(above, key=self._rank.__getitem__):
            groups[self._parent[name]].append(_merged(groups.pop(name, []), leaves.get(name, []), gpus))
        return _merged(groups[None], leaves.get(None, []), gpus)


def _merged(groups: list[list[Block]], nodes: list[int], gpus: int) -> list[Block]:
    """Return the blocks of children: groups, by their blocks, and nodes of so many GPUs, by their first ones.

    Children that are one block each are joined, equal ones in powers of two from the first: 7 to 4 + 2 + 1.
    """
    joined = [block for blocks in groups if len(blocks) > 1 for block in blocks]
    equal: dict[int, list[int]] = defaultdict(list)
    for blocks in groups:
        if len(blocks) == 1:
            ((size, firsts),) = blocks
            equal[size] += firsts
    pieces = _powers(gpus)
    if len(pieces) == 1:
        equal[gpus] += nodes
    else:
        joined += [(size, [first + offset]) for first in nodes for offset, size in pieces]
    for size, firsts in equal.items():
        each = size // gpus
        for done, count in _powers(len(firsts) // each):
            joined.append((size * count, firsts[done * each : (done + count) * each]))
    return joined


@cache
def _powers(count: int) -> tuple[tuple[int, int], ...]:
    """Return the offset and size of the powers of two that sum up to a number, the largest first."""
    found, done = [], 0
    while done < count:
        found.append((done, 1 << (count - done).bit_length() - 1))
        done += found[-1][1]
    return tuple(found)


def _line(blocks: list[Block]) -> tuple[IntArray, IntArray]:
    """Sizes of blocks, descending, and their GPUs one after the other."""
    blocks = sorted(blocks, key=lambda block: -block[0])
    sizes = np.array([size for size, _ in blocks], dtype=np.int64)
    runs = np.array([len(firsts) for _, firsts in blocks], dtype=np.int64)
    first = np.array([gpu for _, firsts in blocks for gpu in firsts], dtype=np.int64)
    length = np.repeat(sizes // runs, runs)
    return sizes, ranges(first, length)


def free_gpus(instance: Instance, pools: dict[str, Pool], asleep: BoolArray) -> dict[str, dict[int, int]]:
    """For every pool and power of two: GPUs in entirely free aligned blocks of that size.

    Unavailable GPUs are not free, nor are the blocks of jobs that keep what they hold. Sizes go up to the
    pool's largest block.

    Parameters
    ----------
    asleep : bool array, shape (n_nodes,)
        Nodes whose GPUs are free in blocks alone that are larger than a node.
    """
    free, awake = _free(instance), np.repeat(~asleep, places_of(instance.cluster).size)
    found = {}
    for name, pool in pools.items():
        found[name], up = _by_size(free[pool.line], pool.sizes), awake[pool.line]
        if not up.all():
            rested = _by_size(free[pool.line] & up, pool.sizes)
            found[name] |= {size: gpus for size, gpus in rested.items() if size <= pool.gpus_per_node}
    return found


def free_on_nodes(instance: Instance) -> IntArray:
    """Number of free GPUs of every node (see `free_gpus`), shape (n_nodes,)."""
    places = places_of(instance.cluster)
    return np.bincount(places.on_node[_free(instance)], minlength=len(places.size))


def _free(instance: Instance) -> BoolArray:
    """Return the mask of the GPUs of the cluster that are free."""
    places, jobs = places_of(instance.cluster), instance.by_column()
    free = places.available.copy()
    for j in np.flatnonzero(jobs.fixed).tolist():
        if (held := jobs.held(j)) is not None:
            # Scattered GPUs are all that such a job takes, and without blocks, too.
            gpus, pool = places.gpus(held.nodes), places.pools.index(held.pool)
            begin, aligned = places.reserved(gpus, np.array([0]), np.array([held.gpus]))
            if aligned[0] and places.capacity[pool] == "blocks":
                first = int(places.line[pool] + begin[0])
                gpus = places.on_lines[first : first + int(block_of(held.gpus))]
            free[gpus] = False
    return free


def _by_size(free: BoolArray, sizes: IntArray) -> dict[int, int]:
    """Return the GPUs in free blocks of each size, by the mask of a line and its structural blocks' sizes."""
    found: dict[int, int] = {}
    size, whole = 1, free
    while True:
        found[size] = size * int(whole.sum())
        size *= 2
        if size > sizes[0]:
            return found
        # Blocks of this size lie in structural ones that are as large, with which the line begins.
        halves = whole[: int(sizes[sizes >= size].sum()) * 2 // size]
        whole = halves[0::2] & halves[1::2]


def block_of(gpus: IntArray | int) -> IntArray:
    """GPUs that jobs reserve: their counts, rounded up to powers of two."""
    # The exponent of a whole number below 2^53, of one less than a power of two its digits.
    return np.asarray(np.left_shift(1, np.frexp(np.maximum(gpus, 1) - 1.0)[1].astype(np.int64)))
