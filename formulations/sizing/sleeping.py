r"""Nodes that sleep as long as no job is there: how many are awake, what that costs, and which they are.

Nodes of a pool that sleep have all their GPUs free, so each that is woken adds the same to the pool's rows by
size (`Room.gain`). Those that draw the same watts awake are woken in *parts* of 1, 2, 4, ... nodes, the last
of what is left: a part is a choice group of two columns, asleep and awake. So :math:`z_i \in \{0, 1\}` says
that part i of :math:`n_i` nodes is awake, and with :math:`a_i` watts for each of them

.. math:: \sum_{j,o} b_{ok} x_{jo} \le F_k + G_k \sum_i n_i z_i, \qquad
    \sum_{j,o} e_{jo} x_{jo} + \sum_i a_i n_i z_i \le U ,

where :math:`F_k` are the free GPUs of nodes that are awake anyway and :math:`G_k` those of one that is woken.
In pools of blocks this is exact where all nodes that are entirely free draw the same awake and sleep, or no
block is larger than a node (`instances.sizing.validity` refuses others): large blocks take whole nodes, of
which any will do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.model import UnsuitableError
from wattsched.formulations.program import ProgramBuilder
from wattsched.formulations.sizing.budgets import Budget, budgets_of
from wattsched.formulations.sizing.cutting import cutting_of
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.rooms import rooms_of
from wattsched.instances.sizing.instance import PER_KWH
from wattsched.topology.arrays import IntArray
from wattsched.topology.room import Room

ENERGY = ("energy", *PER_KWH)
"""Objectives that count joules."""


@dataclass(frozen=True)
class Part:
    """Nodes of a pool that sleep or are awake together.

    Attributes
    ----------
    pool : str
    each_w : float
        What each of them draws awake.
    number : int
        Of the part among those of the pool whose nodes draw the same.
    nodes : int
    cost : float
        What it costs in the objective that they are awake.
    uses : mapping of str to float
        What that uses of rows, by their names; room is given.
    """

    pool: str
    each_w: float
    number: int
    nodes: int
    cost: float
    uses: Mapping[str, float]


def parts_of(known: RoundJobs, objective: str) -> list[Part]:
    """Parts of each pool's sleeping nodes, of 1, 2, 4, ... that draw the same, with costs and uses."""
    if not any(len(room.sleeping) for room in rooms_of(known)):
        return []
    found, budgets = list[Part](), budgets_of(known)
    for room in rooms_of(known):
        watts, counts = np.unique(room.awake_w, return_counts=True)
        for each_w, nodes in zip(watts.tolist(), counts.tolist(), strict=True):
            uses, cost = uses_of_node(known, budgets, room, each_w), cost_of_node(known, objective, each_w)
            for number, size in enumerate(part_sizes(nodes)):
                scaled = {name: size * use for name, use in uses.items()}
                found.append(Part(room.pool.name, each_w, number, size, size * cost, scaled))
    return found


def part_sizes(nodes: int) -> list[int]:
    """Sizes whose sums are all numbers up to that of the nodes: 1, 2, 4, ..., and what is left."""
    sizes: list[int] = []
    while nodes > 0:
        sizes.append(min(1 << len(sizes), nodes))
        nodes -= sizes[-1]
    return sizes


def _counted_s(known: RoundJobs) -> float:
    """Seconds for which the energy of nodes counts: in the scope of completion none."""
    return known.round_s if known.counts_rounds else 0.0


def cost_of_node(known: RoundJobs, objective: str, each_w: float) -> float:
    """Return the cost in the objective of a node that is awake; none is woken to be paid for drawing."""
    return max(0.0, each_w * _counted_s(known) * known.per_joule[objective]) if objective in ENERGY else 0.0


def uses_of_node(known: RoundJobs, budgets: Sequence[Budget], room: Room, each_w: float) -> dict[str, float]:
    """Return a woken node's use of rows, by their names; the room that it gives is negative."""
    whole = room.pool.gpus_per_node
    uses = {room.name(size): -float(room.gain(size)) for size in range(1, whole + 1) if room.gain(size)}
    uses[f"cuts:{room.pool.name}:{whole}"] = -1.0
    for budget in budgets:
        if budget.counts != "power":
            uses[budget.name] = each_w * _counted_s(known) * known.per_joule[budget.counts]
        elif room.number in budget.members:
            uses[budget.name] = each_w
    for name in known.instance.budgets.reached:
        uses[f"objective:{name}"] = cost_of_node(known, name, each_w)
    return uses


def add_uses(rows: ProgramBuilder, parts: Sequence[Part], first: int) -> None:
    """Add what parts use of the rows so far; each has two columns from the first on, asleep and awake."""
    number = {block.name: place for place, block in rows.numbered()}
    for i, part in enumerate(parts):
        known = [(number[name], use) for name, use in part.uses.items() if name in number and use]
        if known:
            places, uses = zip(*known, strict=True)
            rows.add(np.array(places), first + 2 * i + 1, np.array(uses))


def awake_parts(parts: Sequence[Part], awake: Mapping[str, int]) -> IntArray:
    """Return 1 for each part that is awake, else 0, for so many nodes `awake` by pool, lowest draw first."""
    left, found = dict(awake), np.zeros(len(parts), dtype=np.int64)
    by_watts: dict[tuple[str, float], list[int]] = {}
    for i, part in enumerate(parts):
        by_watts.setdefault((part.pool, part.each_w), []).append(i)
    for (pool, _), mine in sorted(by_watts.items()):
        nodes = min(left.get(pool, 0), sum(parts[i].nodes for i in mine))
        left[pool] = left.get(pool, 0) - nodes
        # From the largest on what fits: the smaller ones are enough for the rest.
        for i in sorted(mine, key=lambda i: -parts[i].nodes):
            if parts[i].nodes <= nodes:
                found[i], nodes = 1, nodes - parts[i].nodes
    return found


def nodes_awake(rooms: Sequence[Room], pool: IntArray, taken: IntArray) -> dict[str, int]:
    """Count the sleeping nodes that jobs need, by name of the pool; all of a pool where these are too few."""
    found = {}
    for room in rooms:
        if len(room.sleeping):
            here = taken[(taken > 0) & (pool == room.number)]
            found[room.pool.name] = min(least_awake(room, here), len(room.sleeping))
    return found


def least_awake(room: Room, taken: IntArray) -> int:
    """Count the sleeping nodes that jobs need in a pool, where need be by the ways to cut its nodes up."""
    least = room.least_awake(taken)
    while least < len(room.sleeping):
        woken = room.woken(room.sleeping[:least])
        cutting = cutting_of(woken, taken)
        if cutting is None or cutting.ways_for(cutting.pieces_of(taken)) is not None:
            break
        least += 1
    return least


def refuse_sleepers(known: RoundJobs, formulation: str) -> None:
    """Raise an UnsuitableError where nodes sleep, for formulations that do not say which are awake."""
    for room in rooms_of(known):
        if len(room.sleeping):
            name = room.pool.nodes[room.sleeping[0]]
            kind = "nodes that sleep as long as no job is there"
            raise UnsuitableError(f"formulation '{formulation}' takes no {kind}, such as '{name}'")


def counts_watts(known: RoundJobs) -> bool:
    """True if anything depends on what the cluster draws."""
    return bool(budgets_of(known)) or known.instance.objective in ENERGY


def rooms_awake(room: Room, taken: IntArray, held: IntArray, large: IntArray, *, few: bool) -> Iterator[Room]:
    """Rooms with more and more of the nodes that sleep awake, from those on that jobs need at least.

    Parameters
    ----------
    taken : int array
        What each job takes of the pool.
    held : int array
        Positions that jobs hold now, whose nodes are woken before others that draw as much.
    large : int array
        Nodes that are woken first: those of blocks that are larger than a node.
    few : bool
        Whether as few nodes as possible are to be awake; else all are that jobs hold GPUs of, so that these
        can stay.
    """
    holding = np.bincount(room.pool.node_index[held], minlength=len(room.pool.nodes))
    holding[large] = room.pool.n_gpus + 1
    mine = holding[room.sleeping]
    order = np.lexsort((-mine, room.awake_w)) if few else np.argsort(-mine, kind="stable")
    least = least_awake(room, taken)
    least = least if few else max(least, int(np.count_nonzero(mine)))
    for awake in range(least, len(order) + 1):
        yield room.woken(room.sleeping[order[:awake]])
