r"""Capacity rows of a pool: the GPUs that jobs take, by how the pool allocates them, and when they fit.

- ``blocks``: a job takes an aligned block of a power of two (`topology.buddy`).
- ``nodes``: a job takes GPUs of one node or, where it has more, whole nodes and at most one part of another.
- ``count``: a job takes any GPUs.

A *piece* is what a job takes of one node. Let :math:`f_i` be the free GPUs of node :math:`i`. For every size
:math:`s`, a node has no more than :math:`\lfloor f_i / s \rfloor` disjoint sets of :math:`s` free GPUs, of
which a piece of :math:`p` GPUs takes :math:`\lfloor p / s \rfloor`. So pieces that fit have

.. math:: \sum_p s \lfloor p / s \rfloor \le \sum_i s \lfloor f_i / s \rfloor .

**Theorem.** Where each size of the pieces divides the next larger one, these rows for the sizes are enough.

*Proof.* Place the pieces by descending size. When one of size :math:`s` comes, those before it are of
multiples of :math:`s`, and leave room for :math:`\lfloor f_i / s \rfloor` less their sizes by :math:`s` of it
in every node. By the row of :math:`s`, with this piece on the left, that is at least one in some node. ∎

Sizes such as 2 and 3 need more: ways to cut nodes up (`cuts`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, pairwise

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.buddy import Occupancy, block_size
from wattsched.topology.pools import Pool

MOST_CUTS = 5_000
"""Largest number of ways to partition nodes of a pool that is listed."""


def room_for(pools: Sequence[Pool], pool: IntArray, gpus: IntArray) -> IntArray:
    """Return the GPUs that jobs take of pools: their counts, rounded up to powers of two in blocks."""
    in_blocks = np.array([one.capacity == "blocks" for one in pools], dtype=bool)[pool]
    return np.asarray(np.where(in_blocks, block_size(gpus), gpus))


def largest_room(pool: Pool) -> int:
    """Return the most GPUs that a job can take of an empty pool."""
    return pool.largest_block if pool.capacity == "blocks" else pool.n_gpus


def divides(sizes: IntArray) -> bool:
    """True if each size divides the next one."""
    return all(large % small == 0 for small, large in pairwise(sizes.tolist()))


@dataclass(frozen=True, eq=False)
class Room:
    """Free GPUs of the pool of index `number`, and the capacity rows that jobs on them satisfy.

    Attributes
    ----------
    free : bool array, shape (n_gpus,)
        Mask of the free GPUs, in the order of the pool's line.
    sleeping : int array, shape (n_sleeping,)
        Nodes without jobs that sleep until one is placed there, by ascending draw.
    awake_w : float array, shape (n_sleeping,)
        Draw of each of them when awake.
    """

    number: int
    pool: Pool
    free: BoolArray
    sleeping: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    awake_w: FloatArray = field(default_factory=lambda: np.empty(0))

    @cached_property
    def rested(self) -> BoolArray:
        """Free GPUs of nodes that do not sleep."""
        if not len(self.sleeping):
            return self.free
        return np.asarray(self.free & ~np.isin(self.pool.node_index, self.sleeping))

    def woken(self, nodes: IntArray) -> Room:
        """Return the room that remains if of the sleeping nodes only these are woken."""
        free = self.rested | (self.free & np.isin(self.pool.node_index, nodes))
        return Room(self.number, self.pool, free)

    @cached_property
    def on_nodes(self) -> IntArray:
        """Free GPUs of each node, shape (n_nodes,)."""
        return np.bincount(self.pool.node_index[self.free], minlength=len(self.pool.nodes))

    @cached_property
    def vacant(self) -> Occupancy:
        """Free blocks of a pool of blocks; read only."""
        return Occupancy(self.pool.blocks, self.free)

    @cached_property
    def _vacant_rested(self) -> Occupancy:
        return Occupancy(self.pool.blocks, self.rested) if len(self.sleeping) else self.vacant

    def pieces(self, taken: IntArray) -> IntArray:
        """Return the sizes of the pieces of jobs that take these GPUs in a pool of nodes, ascending."""
        nodes, part = np.divmod(np.unique(taken), self.pool.gpus_per_node)
        sizes = np.unique(np.append(part, self.pool.gpus_per_node if nodes.any() else 0))
        return np.asarray(sizes[sizes > 0], dtype=np.int64)

    def sizes(self, taken: IntArray) -> list[int]:
        """Return the sizes whose rows constrain jobs that take these GPUs, ascending; the first is 1."""
        if self.pool.capacity == "count":
            return [1]
        if self.pool.capacity == "blocks":
            return [1 << k for k in range(min(int(taken.max(initial=1)).bit_length(), self.vacant.n_levels))]
        sizes = self.pieces(taken)
        return sorted({1, *(sizes if divides(sizes) else np.arange(sizes[-1]) + 1).tolist()})

    def capacity(self, size: int) -> int:
        """Compute the right-hand side of the row of a size: the most free GPUs in disjoint sets of that size.

        Nodes that sleep count only in blocks larger than a node; `gain` is what one adds otherwise.
        """
        if self.pool.capacity == "count":
            return int(np.count_nonzero(self.rested))
        if self.pool.capacity == "blocks":
            blocks = self._vacant_rested if size <= self.pool.gpus_per_node else self.vacant
            return int(blocks.free_gpus[size.bit_length() - 1])
        on_nodes = np.bincount(self.pool.node_index[self.rested], minlength=len(self.pool.nodes))
        return int((size * (on_nodes // size)).sum())

    def gain(self, size: int) -> int:
        """Return the GPUs that waking one sleeping node adds to the capacity of a size."""
        whole = self.pool.gpus_per_node
        if self.pool.capacity == "count":
            return whole
        if self.pool.capacity == "nodes":
            return size * (whole // size)
        # A node consists of one block per binary digit; blocks larger than a node count already.
        return whole & -size if size <= whole else 0

    def least_awake(self, taken: IntArray) -> int:
        """Compute a lower bound, from the rows by size, on the sleeping nodes that these jobs need awake."""
        n_awake = 0
        for size in self.sizes(taken) if len(taken) else ():
            shortage = int(self.use(taken, size).sum()) - self.capacity(size)
            if shortage > 0 and (gain := self.gain(size)):
                n_awake = max(n_awake, -(-shortage // gain))
        return n_awake

    def use(self, taken: IntArray, size: int) -> IntArray:
        """Compute the use of each job in the row of a size, from the GPUs that it takes."""
        if self.pool.capacity == "count":
            return taken
        if self.pool.capacity == "blocks":
            return np.where(taken >= size, taken, 0)
        nodes, part = np.divmod(taken, self.pool.gpus_per_node)
        return np.asarray(size * (nodes * (self.pool.gpus_per_node // size) + part // size))

    def name(self, size: int) -> str:
        """Return the name of the row of a size."""
        if size == 1:
            return f"gpus:{self.pool.name}"
        return f"{'buddy' if self.pool.capacity == 'blocks' else 'parts'}:{self.pool.name}:{size}"


@dataclass(frozen=True, eq=False)
class KeptRoom(Room):
    """Room in which jobs keep pieces of GPUs, which no larger set of free GPUs may contain.

    Attributes
    ----------
    rest : bool array, shape (n_gpus,)
        Free GPUs outside these pieces.
    kept : int array, shape (n_pieces,)
        Sizes of the pieces, each a block or GPUs of one node.
    """

    rest: BoolArray = field(kw_only=True)
    kept: IntArray = field(kw_only=True)

    @cached_property
    def _outside(self) -> Room:
        return Room(self.number, self.pool, self.rest)

    def capacity(self, size: int) -> int:
        """Compute the most free GPUs in disjoint sets of a size, in the pieces and in the rest."""
        outside = self._outside.capacity(size)
        if self.pool.capacity == "count":
            return outside + int(self.kept.sum())
        return outside + int((size * (self.kept // size)).sum())


def cuts(free: int, sizes: Sequence[int]) -> list[tuple[int, ...]] | None:
    """List the maximal ways to partition a node's free GPUs into pieces of ascending sizes.

    A way is the number of pieces of each size; None where there are more than `MOST_CUTS` ways.
    """

    def ways(n_sizes: int, left: int) -> Iterator[tuple[int, ...]]:
        """Yield the maximal ways that use the `n_sizes` smallest sizes."""
        if n_sizes == 1:
            yield (left // sizes[0],)
            return
        for count in range(left // sizes[n_sizes - 1] + 1):
            for others in ways(n_sizes - 1, left - count * sizes[n_sizes - 1]):
                yield (*others, count)

    listed = list(islice(ways(len(sizes), free), MOST_CUTS + 1)) if len(sizes) else []
    return None if len(listed) > MOST_CUTS else listed
