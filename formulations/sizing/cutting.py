r"""Nodes cut up into pieces of any sizes: integer columns that say how many nodes are cut in which way.

Rows by size (`topology.room`) are exact where each size of the pieces divides the next. For other sizes, such
as 2 and 3, let :math:`N_f` nodes have :math:`f` free GPUs, and let a way :math:`c` to cut one of them up give
:math:`n_{cs}` pieces of size :math:`s`. What jobs take fits if and only if there are whole :math:`y_{fc}`:

.. math:: \sum_j d_{js} \le \sum_{f,c} n_{cs}\, y_{fc} \ \forall s, \qquad \sum_c y_{fc} \le N_f \ \forall f

(Gilmore and Gomory, "A linear programming approach to the cutting-stock problem", 1961).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from wattsched.formulations.program import Block, ProgramBuilder
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.node_allocation import Exact, Slots
from wattsched.topology.room import Room, cuts, divides


@dataclass(frozen=True, eq=False)
class Cutting:
    """Ways to cut the nodes of a pool up.

    Attributes
    ----------
    room : Room
    sizes : int array, shape (n_sizes,)
        Of the pieces, ascending.
    free : int array, shape (n_ways,)
        Free GPUs of the nodes that are cut in this way.
    pieces : int array, shape (n_ways, n_sizes)
        What it gives.
    """

    room: Room
    sizes: IntArray
    free: IntArray
    pieces: IntArray

    @classmethod
    def of(cls, room: Room, sizes: IntArray) -> Cutting | None:
        """All ways to cut nodes with so many free GPUs into pieces of these sizes; None for too many."""
        free, pieces = [], []
        for count in np.unique(room.on_nodes).tolist():
            kinds = sizes[sizes <= count].tolist()
            found = cuts(count, kinds)
            if found is None:
                return None
            pieces += [[*way, *[0] * (len(sizes) - len(kinds))] for way in found]
            free += [count] * len(found)
        listed = np.array(pieces, dtype=np.int64).reshape(len(pieces), len(sizes))
        return cls(room, sizes, np.array(free, dtype=np.int64), listed)

    def nodes(self) -> tuple[IntArray, IntArray]:
        """Counts of free GPUs that a node may have, ascending, and the number of nodes with each."""
        return np.unique(self.room.on_nodes[np.isin(self.room.on_nodes, self.free)], return_counts=True)

    def demand(self, taken: IntArray) -> Iterator[tuple[int, IntArray]]:
        """Yield each size, and how many pieces of it each job takes, from the GPUs that it takes."""
        whole = self.room.pool.gpus_per_node
        nodes, part = np.divmod(taken, whole)
        for size in self.sizes.tolist():
            yield size, (part == size) + (nodes if size == whole else 0)

    def pieces_of(self, taken: IntArray) -> IntArray:
        """Count the pieces of each size that jobs take together, from the GPUs that each takes."""
        return np.array([pieces.sum() for _, pieces in self.demand(taken)], dtype=np.int64)

    def add(self, rows: ProgramBuilder, inside: IntArray, taken: IntArray) -> None:
        """Add the columns and rows of the formula; columns `inside` take so much of the pool."""
        name, (free, nodes) = self.room.pool.name, self.nodes()
        of_way = np.searchsorted(free, self.free)
        columns = rows.columns(Block(f"cut:{name}", len(self.free)), upper=nodes[of_way].astype(float))
        for k, (size, pieces) in enumerate(self.demand(taken)):
            row = rows.row(f"pieces:{name}:{size}", columns, -self.pieces[:, k].astype(float), upper=0.0)
            some = np.flatnonzero(pieces)
            rows.add(row, inside[some], pieces[some].astype(float))
        for f, (count, many) in enumerate(zip(free.tolist(), nodes.tolist(), strict=True)):
            mine = columns[of_way == f]
            awake = many - len(self.room.sleeping) * (count == self.room.pool.gpus_per_node)
            rows.row(f"cuts:{name}:{count}", mine, np.ones(len(mine)), upper=float(awake))

    def ways_for(self, pieces: IntArray, asleep: int = 0) -> IntArray | None:
        """Find how many nodes to cut in each way for so many pieces of each size; None if they do not fit.

        Of the nodes all of whose GPUs are free, so many as are `asleep` are not cut.
        """
        from scipy.optimize import Bounds, LinearConstraint, milp

        free, nodes = self.nodes()
        nodes = nodes - asleep * (free == self.room.pool.gpus_per_node)
        if not len(self.free):
            return None if pieces.any() else np.zeros(0, dtype=np.int64)
        cut = (self.free == free[:, None]).astype(float)
        found = milp(
            np.zeros(len(self.free)),
            integrality=np.ones(len(self.free), dtype=np.int64),
            bounds=Bounds(0.0, nodes[np.searchsorted(free, self.free)]),
            constraints=[
                LinearConstraint(self.pieces.T.astype(float), lb=pieces.astype(float)),
                LinearConstraint(cut, ub=nodes.astype(float)),
            ],
        )
        return None if found.x is None else np.rint(found.x).astype(np.int64)

    def slots(self, ways: IntArray) -> Slots:
        """Nodes and sizes of the pieces that so many nodes cut in each way give, the largest first."""
        node, size = [], []
        # Nodes with each count of free GPUs that are not cut yet.
        of_count = {
            count: iter(np.flatnonzero(self.room.on_nodes == count)) for count in set(self.free.tolist())
        }
        for way, many in enumerate(ways.tolist()):
            for _ in range(many):
                cut = np.repeat(self.sizes, self.pieces[way])
                node += [int(next(of_count[int(self.free[way])]))] * len(cut)
                size += cut.tolist()
        order = np.argsort(-np.array(size, dtype=np.int64), kind="stable")
        return np.array(node, dtype=np.int64)[order], np.array(size, dtype=np.int64)[order]


def add_room_rows(rows: ProgramBuilder, rooms: Sequence[Room], pool: IntArray, taken: IntArray) -> None:
    """Add the rows of `room_rows`."""
    for name, columns, uses, capacity in room_rows(rooms, pool, taken):
        rows.row(name, columns, uses, upper=capacity)


def room_rows(
    rooms: Sequence[Room], pool: IntArray, taken: IntArray
) -> Iterator[tuple[str, IntArray, FloatArray, float]]:
    """For each pool and size k: what jobs take of free sets of k GPUs is at most what there is, F_k.

    A size whose row is implied by that of a smaller one is left out.

    Parameters
    ----------
    rooms : sequence of Room
        Of all pools.
    pool, taken : int arrays, shape (n_columns,)
        Number of the pool, and GPUs that a column takes there; 0 for none.

    Yields
    ------
    name : str
    columns : int array
    uses : float array
        What these columns take of the sets.
    capacity : float
    """
    for room in rooms:
        inside = np.flatnonzero((taken > 0) & (pool == room.number))
        if not len(inside):
            continue
        wanted = taken[inside]
        before, most, gained = np.inf, wanted, 0
        for size in room.sizes(wanted):
            capacity, gain = room.capacity(size), room.gain(size) if len(room.sleeping) else 0
            known = capacity == before and gain >= gained
            if known and room.pool.capacity == "blocks":  # of larger blocks there are only fewer
                continue
            use = room.use(wanted, size)
            some = np.flatnonzero(use)
            if not len(some) or (known and (use <= most).all()):
                continue
            before, most, gained = capacity, use, gain
            yield room.name(size), inside[some], use[some].astype(float), float(capacity)


def cutting_of(room: Room, taken: IntArray) -> Cutting | None:
    """Ways to cut the nodes up for jobs that take so much; None where rows by size are all that is needed.

    None, too, where the ways are too many: then the rows by size are a relaxation.
    """
    if room.pool.capacity != "nodes" or divides(sizes := room.pieces(taken[taken > 0])):
        return None
    return Cutting.of(room, sizes)


def points_of(
    cuttings: Sequence[Cutting], pool: IntArray, taken: IntArray, woken: Mapping[str, int] = {}
) -> FloatArray | None:
    """Values of the columns of all cuttings for what jobs take of some pools; None where it does not fit.

    Of the nodes that sleep, so many as `woken` says are awake, by name of the pool.
    """
    values = [np.zeros(0)]
    for cutting in cuttings:
        here = taken[(taken > 0) & (pool == cutting.room.number)]
        asleep = len(cutting.room.sleeping) - woken.get(cutting.room.pool.name, 0)
        ways = cutting.ways_for(cutting.pieces_of(here), asleep)
        if ways is None:
            return None
        values.append(ways.astype(float))
    return np.concatenate(values)


def slots_of(cuttings: Sequence[Cutting], x: FloatArray) -> dict[int, Exact]:
    """Return by pool what cuts its nodes up as a point does, whose last values are of `points_of`."""
    found: dict[int, Exact] = {}
    end = len(x)
    for cutting in reversed(cuttings):
        begin = end - len(cutting.free)
        found[cutting.room.number] = partial(_at_point, cutting, x[begin:end])
        end = begin
    return found


def _at_point(cutting: Cutting, values: FloatArray, size: IntArray) -> Slots:
    """Slots at a point; they suit the sizes of the jobs' pieces, as the point is of these jobs."""
    return cutting.slots(np.rint(values).astype(np.int64))


def slots_for(room: Room, gpus: IntArray, size: IntArray) -> Slots | None:
    """Slots for pieces of these sizes of jobs with so many GPUs; None where they do not fit."""
    cutting = cutting_of(room, gpus)
    if cutting is None:
        return None
    ways = cutting.ways_for(np.array([np.count_nonzero(size == one) for one in cutting.sizes]))
    return None if ways is None else cutting.slots(ways)
