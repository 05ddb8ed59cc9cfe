r"""Amounts that jobs take of a pool, by how its GPUs can be shared out, and the rows under which they fit.

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
"""More ways to cut nodes of a pool up are not listed."""


def room_for(pools: Sequence[Pool], pool: IntArray, gpus: IntArray) -> IntArray:
    """GPUs that jobs take of pools, given by number: their counts, rounded up to powers of two in blocks."""
    in_blocks = np.array([one.capacity == "blocks" for one in pools], dtype=bool)[pool]
    return np.asarray(np.where(in_blocks, block_size(gpus), gpus))


def largest_room(pool: Pool) -> int:
    """The most that a job can take of a pool, if nothing else is there."""
    return pool.largest_block if pool.capacity == "blocks" else pool.n_gpus


def divides(sizes: IntArray) -> bool:
    """True if each size divides the next one."""
    return all(large % small == 0 for small, large in pairwise(sizes.tolist()))


@dataclass(frozen=True, eq=False)
class Room:
    """Free GPUs of a pool, whose `number` it has, as jobs can take them.

    Attributes
    ----------
    free : bool array, shape (n_gpus,)
        By the pool's line.
    sleeping : int array, shape (n_sleeping,)
        Nodes, all of whose GPUs are free, that sleep as long as no job is there, those first that draw least.
    awake_w : float array, shape (n_sleeping,)
        What each of them draws awake.
    """

    number: int
    pool: Pool
    free: BoolArray
    sleeping: IntArray = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    awake_w: FloatArray = field(default_factory=lambda: np.empty(0))

    @cached_property
    def rested(self) -> BoolArray:
        """Free GPUs of nodes that are awake whatever is decided."""
        if not len(self.sleeping):
            return self.free
        return np.asarray(self.free & ~np.isin(self.pool.node_index, self.sleeping))

    def woken(self, nodes: IntArray) -> Room:
        """The room where of the nodes that sleep only these are awake, and the others of no use."""
        free = self.rested | (self.free & np.isin(self.pool.node_index, nodes))
        return Room(self.number, self.pool, free)

    @cached_property
    def on_nodes(self) -> IntArray:
        """Free GPUs of each node, shape (n_nodes,)."""
        return np.bincount(self.pool.node_index[self.free], minlength=len(self.pool.nodes))

    @cached_property
    def vacant(self) -> Occupancy:
        """Free blocks of a pool of blocks; not to be changed."""
        return Occupancy(self.pool.blocks, self.free)

    @cached_property
    def _vacant_rested(self) -> Occupancy:
        return Occupancy(self.pool.blocks, self.rested) if len(self.sleeping) else self.vacant

    def pieces(self, taken: IntArray) -> IntArray:
        """Sizes of the pieces of jobs that take so much in a pool of nodes, ascending."""
        nodes, part = np.divmod(np.unique(taken), self.pool.gpus_per_node)
        sizes = np.unique(np.append(part, self.pool.gpus_per_node if nodes.any() else 0))
        return np.asarray(sizes[sizes > 0], dtype=np.int64)

    def sizes(self, taken: IntArray) -> list[int]:
        """Sizes whose rows jobs that take so much are held to, ascending; the first is 1."""
        if self.pool.capacity == "count":
            return [1]
        if self.pool.capacity == "blocks":
            return [1 << k for k in range(min(int(taken.max(initial=1)).bit_length(), self.vacant.n_levels))]
        sizes = self.pieces(taken)
        return sorted({1, *(sizes if divides(sizes) else np.arange(sizes[-1]) + 1).tolist()})

    def capacity(self, size: int) -> int:
        """Free GPUs in disjoint sets of a size; a part of one of these sets is taken by nobody.

        Those of nodes that sleep count in blocks that are larger than a node alone; see `gain`.
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
        # Of a node its binary digits are blocks; what is larger counts already.
        return whole & -size if size <= whole else 0

    def least_awake(self, taken: IntArray) -> int:
        """Compute a lower bound, from the rows by size, on the sleeping nodes that these jobs need awake."""
        most = 0
        for size in self.sizes(taken) if len(taken) else ():
            lacking = int(self.use(taken, size).sum()) - self.capacity(size)
            if lacking > 0 and (gain := self.gain(size)):
                most = max(most, -(-lacking // gain))
        return most

    def use(self, taken: IntArray, size: int) -> IntArray:
        """Compute the use of each job in the row of a size, from the GPUs that it takes."""
        if self.pool.capacity == "count":
            return taken
        if self.pool.capacity == "blocks":
            return np.where(taken >= size, taken, 0)
        nodes, part = np.divmod(taken, self.pool.gpus_per_node)
        return np.asarray(size * (nodes * (self.pool.gpus_per_node // size) + part // size))

    def name(self, size: int) -> str:
        """Name of the row of a size."""
        if size == 1:
            return f"gpus:{self.pool.name}"
        return f"{'buddy' if self.pool.capacity == 'blocks' else 'parts'}:{self.pool.name}:{size}"


@dataclass(frozen=True, eq=False)
class KeptRoom(Room):
    """Room of which jobs keep pieces: these are whole in no larger set of free GPUs.

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
        """Free GPUs in disjoint sets of a size, in the pieces and in the rest."""
        outside = self._outside.capacity(size)
        if self.pool.capacity == "count":
            return outside + int(self.kept.sum())
        return outside + int((size * (self.kept // size)).sum())


def cuts(free: int, sizes: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Ways to cut a node's free GPUs up into pieces of ascending sizes, none a part of another way.

    A way is the number of pieces of each size; None where there are too many ways.
    """

    def ways(kinds: int, left: int) -> Iterator[tuple[int, ...]]:
        """Ways to use some of the sizes, the smallest ones, until nothing more fits."""
        if kinds == 1:
            yield (left // sizes[0],)
            return
        for count in range(left // sizes[kinds - 1] + 1):
            for others in ways(kinds - 1, left - count * sizes[kinds - 1]):
                yield (*others, count)

    found = list(islice(ways(len(sizes), free), MOST_CUTS + 1)) if len(sizes) else []
    return None if len(found) > MOST_CUTS else found
