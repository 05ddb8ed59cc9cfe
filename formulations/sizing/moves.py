r"""Fewest moves of running jobs after which others fit, as a flow through the states of blocks and nodes.

A *piece* is what a job takes in one place: a free aligned block, or GPUs of one node. Places that look alike
are in one *state*. A *way* to go on from a state lets jobs leave or gives a piece, and leaves a rest:

- a block falls into its halves, or all its jobs leave, and it is free;
- some jobs of a node leave (or none), and it has free GPUs;
- a free block is a piece, or falls into its halves; free GPUs of a node give a piece and the rest.

Columns are numbers of places that go a way. No more places go on from a state than are in it at first or come
to be; and the pieces of each size are enough for the jobs that leave and for those that are wanted.

.. math::
    \sum_{w \text{ from } \tau} x_w \le N_\tau + \sum_w r_{w \tau} x_w \ \forall \tau, \qquad
    \sum_{w \text{ gives } s} x_w \ge \sum_w m_{ws} x_w + \sum_{t, p} d_{tps} u_{tp} \ \forall s

The page on defragmentation has the symbols, and the proof that in pools of blocks only jobs move which are
smaller than the largest wanted block, so that blocks of this size are places by themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Sequence
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.rooms import reserved_block
from wattsched.instances.sizing.rearrangement import Wanted
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.buddy import block_size
from wattsched.topology.pools import Pool

NOBODY, STAYS = -1, -2


class Way(NamedTuple):
    """Sizes of the jobs that leave a place, size of the piece that it gives or 0, states of what remains."""

    leave: tuple[int, ...]
    piece: int
    rest: tuple[int, ...]


class Piece(NamedTuple):
    """So many GPUs, for a job or a part of one, any of a place that has them: positions on a pool's line."""

    pool: int
    size: int
    place: list[int]


class _States:
    """Numbers of states, and the ways to go on from each."""

    def __init__(self) -> None:
        self.ways: list[list[Way]] = []
        self._number: dict[Hashable, int] = {}

    def _numbered(self, key: Hashable, ways: list[Way]) -> int:
        """Return the number of a state, which a new one gets with its ways."""
        if key not in self._number:
            self._number[key] = len(self.ways)
            self.ways.append(ways)
        return self._number[key]


class Blocks(_States):
    """Aligned blocks of the size of the largest wanted piece, and smaller structural blocks, as places.

    Attributes
    ----------
    owner : int array, shape (n_gpus,)
        As of `owners`.
    ways : list of list of Way
        By the number of the state.
    roots : list of (int, list of int)
        State and positions of every place at first.
    """

    def __init__(self, pool: Pool, owner: IntArray, sizes: Collection[int]) -> None:
        super().__init__()
        self.owner = owner
        self._state: dict[tuple[int, int], int] = {}
        self._jobs: dict[int, tuple[int, ...] | None] = {}
        self.roots = [
            (self._block(begin, size), [*range(begin, begin + size)])
            for start, whole in pool.blocks.tolist()
            for size in [min(whole, max(sizes))]
            for begin in range(start, start + whole, size)
        ]

    def _block(self, start: int, size: int) -> int:
        """State of a block; it tells apart what is there, but not left from right."""
        first, half = int(self.owner[start]), size // 2
        if (self.owner[start : start + size] == first).all():
            jobs = None if first == STAYS else (size,) * (first != NOBODY)
            number = self._numbered(jobs, []) if first != NOBODY else self._free(size)
        else:
            left, right = sorted((self._block(start, half), self._block(start + half, half)))
            ours, others = self._jobs[left], self._jobs[right]
            jobs = None if ours is None or others is None else tuple(sorted(ours + others))
            ways = [] if jobs is None else [Way(jobs, 0, (self._free(size),))]
            number = self._numbered((left, right), [Way((), 0, (left, right)), *ways])
        self._state[start, size], self._jobs[number] = number, jobs
        return number

    def _free(self, size: int) -> int:
        halves = [Way((), 0, (self._free(size // 2),) * 2)] if size > 1 else []
        return self._numbered(("free", size), [Way((), size, ()), *halves])

    def go(self, positions: list[int], way: Way) -> tuple[list[int], list[tuple[int, list[int]]]]:
        """Return the jobs that leave a place on its way, and states and positions of the rest."""
        if len(way.rest) < 2:
            leave = {*self.owner[positions].tolist()} - {NOBODY} if way.leave else ()
            return [*leave], [(rest, positions) for rest in way.rest]
        half = len(positions) // 2
        parts = positions[:half], positions[half:]
        if way.rest[0] == way.rest[1]:
            return [], [*zip(way.rest, parts, strict=True)]
        return [], [(self._state[part[0], half], part) for part in parts]


class Nodes(_States):
    """Nodes as places, or in pools of counts each GPU; states are free GPUs and those of the jobs there."""

    def __init__(self, pool: Pool, owner: IntArray, sizes: Collection[int]) -> None:
        super().__init__()
        self.owner = owner
        job, count = np.unique(owner[owner >= 0], return_counts=True)
        self._gpus = dict(zip(job.tolist(), count.tolist(), strict=True))
        every = sorted({*sizes, *self._gpus.values()})
        # The first states are of 1, 2, ... free GPUs.
        for gpus in range(1, pool.gpus_per_node + 1):
            rest = [(size, (gpus - size - 1,) * (size < gpus)) for size in every if size <= gpus]
            self._numbered(gpus, [Way((), size, states) for size, states in rest])
        node = pool.node_index if pool.capacity == "nodes" else np.arange(pool.n_gpus)
        usable = np.flatnonzero(owner != STAYS)
        usable = usable[np.argsort(node[usable], kind="stable")]
        places = np.split(usable, np.flatnonzero(np.diff(node[usable])) + 1)
        self.roots = [(self._node(owner[place].tolist()), place.tolist()) for place in places]

    def _node(self, owner: list[int]) -> int:
        """State of a node; some of its jobs leave, of equal ones any."""
        free, held = owner.count(NOBODY), Counter(self._gpus[j] for j in {*owner} - {NOBODY})
        ways = []
        for counts in product(*(range(n + 1) for n in held.values())):
            leave = tuple(gpus for gpus, n in zip(held, counts, strict=True) for _ in range(n))
            if free + sum(leave):
                ways.append(Way(leave, 0, (free + sum(leave) - 1,)))
        return self._numbered((free, *sorted(held.items())), ways)

    def go(self, positions: list[int], way: Way) -> tuple[list[int], list[tuple[int, list[int]]]]:
        """Return the jobs that leave a place on its way, and states and positions of the rest."""
        if way.piece:
            return [], [(rest, positions) for rest in way.rest]
        wanted, leave = Counter(way.leave), list[int]()
        for j in sorted({*self.owner[positions].tolist()} - {NOBODY}):
            if wanted[self._gpus[j]]:
                wanted[self._gpus[j]] -= 1
                leave.append(j)
        return leave, [(way.rest[0], [i for i in positions if self.owner[i] in (NOBODY, *leave)])]


class Moves:
    """Program of the fewest moves, and what its points mean.

    Parameters
    ----------
    wanted : sequence of Wanted
        Their pools are of the round, and each of these has room for one if it is empty.
    """

    def __init__(self, known: RoundJobs, wanted: Sequence[Wanted]) -> None:
        self.pools, self.wanted = known.pools, wanted
        number = {pool.name: p for p, pool in enumerate(known.pools)}
        self._taken = [
            (t, number[name], Counter(pieces_of(known.pools[number[name]], gpus)))
            for t, kind in enumerate(wanted)
            for name, gpus in kind.gpus.items()
        ]
        self.places: dict[int, Blocks | Nodes] = {}
        for p in sorted({p for _, p, _ in self._taken}):
            pool, sizes = known.pools[p], {size for _, q, taken in self._taken if q == p for size in taken}
            states = Blocks if pool.capacity == "blocks" else Nodes
            self.places[p] = states(pool, owners(known, p, max(sizes)), sizes)

    @property
    def free(self) -> int:
        """Free GPUs of the pools that will do."""
        return sum(int(np.count_nonzero(here.owner == NOBODY)) for here in self.places.values())

    @cached_property
    def _ways(self) -> list[tuple[int, int, Way]]:
        """Pool, state and way of each column."""
        return [
            (p, state, way)
            for p, here in self.places.items()
            for state, ways in enumerate(here.ways)
            for way in ways
        ]

    def program(self, most: bool = False) -> Program:
        """Program of the fewest moves, or of the most wanted jobs that fit whatever moves."""
        build, ways = ProgramBuilder(), self._ways
        n_gpus = max((pool.n_gpus for pool in self.pools), default=1)
        moved = np.array([0.0 if most else len(way.leave) for *_, way in ways])
        build.columns(Block("way", len(ways)), cost=moved, upper=n_gpus)
        count = np.array([self.wanted[t].count for t, *_ in self._taken], dtype=np.float64)
        first = build.n_columns
        build.columns(Block("wanted", len(count)), cost=-1.0 if most else 0.0, upper=count)
        state_row = {}
        for p, here in self.places.items():
            at_first = np.bincount([state for state, _ in here.roots], minlength=len(here.ways))
            state_row[p] = build.rows(Block(f"state:{self.pools[p].name}", len(at_first)), upper=at_first)
        sizes = sorted(
            {(p, size) for p, _, way in ways for size in (*way.leave, way.piece) if size}
            | {(p, size) for _, p, taken in self._taken for size in taken}
        )
        labels = [f"piece:{self.pools[p].name}:{size}" for p, size in sizes]
        piece_row = dict(zip(sizes, build.rows(Block.named("piece", labels), lower=0.0), strict=True))
        for column, (p, state, way) in enumerate(ways):
            build.add(state_row[p][state], column)
            build.add(state_row[p][[*way.rest]], column, -1.0)
            build.add([piece_row[p, size] for size in way.leave], column, -1.0)
            if way.piece:
                build.add(piece_row[p, way.piece], column)
        for t, kind in enumerate(self.wanted):
            own = [first + i for i, (of, *_) in enumerate(self._taken) if of == t]
            build.row(kind.name, own, 1.0, lower=0 if most else kind.count, upper=kind.count)
        for i, (_, p, taken) in enumerate(self._taken):
            build.add([piece_row[p, size] for size in taken], first + i, [-n for n in taken.values()])
        return build.program()

    def decode(self, x: FloatArray) -> tuple[dict[int, Piece], list[Piece], list[tuple[int, int]]]:
        """Return what jobs that move hold now, pieces free in the end, and kind and pool of those wanted."""
        n_ways, left = len(self._ways), defaultdict[tuple[int, int], list[Way]](list)
        numbers = x.round().astype(np.int64).tolist()
        for (p, state, way), n in zip(self._ways, numbers, strict=False):
            left[p, state] += [way] * n
        held, pieces = dict[int, Piece](), list[Piece]()
        for p, here in self.places.items():
            places = [*here.roots]
            while places:
                state, positions = places.pop()
                if not left[p, state]:
                    continue
                way = left[p, state].pop()
                if way.piece:
                    pieces.append(Piece(p, way.piece, positions))
                leave, rest = here.go(positions, way)
                for j in leave:
                    own = np.flatnonzero(here.owner == j).tolist()
                    held[j] = Piece(p, len(own), own)
                places += rest
        fitted = [
            (t, p) for (t, p, _), n in zip(self._taken, numbers[n_ways:], strict=True) for _ in range(n)
        ]
        return held, pieces, fitted


def pieces_of(pool: Pool, gpus: int) -> list[int]:
    """Sizes of the pieces that a job with so many GPUs takes of a pool."""
    if pool.capacity == "blocks":
        return [block_size(gpus)]
    whole = pool.gpus_per_node if pool.capacity == "nodes" else 1
    return [whole] * (gpus // whole) + [gpus % whole] * (gpus % whole > 0)


def owners(known: RoundJobs, p: int, largest: int) -> IntArray:
    """Job that may move from each position of a pool, `NOBODY` where it is free, or `STAYS`.

    Jobs that keep their GPUs or share them stay, as do all in pools of counts, those on several nodes, and in
    pools of blocks those without an aligned block of their own or with one of the `largest` wanted size.
    """
    pool, (job, position) = known.pools[p], known.held_gpus
    here = known.held[1][job] == p
    job, position = job[here], position[here]
    owner = np.where(pool.available, NOBODY, STAYS)
    owner[position] = job
    kept = known.jobs.fixed | known.jobs.shares
    for own in np.split(np.arange(len(job)), np.flatnonzero(np.diff(job)) + 1) if len(job) else ():
        j, taken, moves = int(job[own[0]]), position[own], False
        if pool.capacity == "blocks" and (block := reserved_block(pool, taken)) is not None:
            moves, taken = len(block) < largest, block
        elif pool.capacity == "nodes":
            moves = len({*pool.node_index[taken].tolist()}) == 1
        alone = np.isin(owner[taken], (j, NOBODY)).all()
        owner[taken] = j if moves and alone and not kept[j] else STAYS
    return owner
