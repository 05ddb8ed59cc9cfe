"""The checker's own reading of nodes that sleep: which do, what they draw awake, and what they add to rows.

Such a node draws nothing as long as no job is there. It is awake whatever is decided where others draw
something on it or use GPUs of it, or a job keeps its own there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.remembered import remembered
from wattsched.verification.arithmetic import RATIONALS
from wattsched.verification.sizing.objectives import ENERGY, per_joule
from wattsched.verification.sizing.pools import Places, Pool
from wattsched.verification.tree import Taken

FIELDS = ("awake", "each_w", "part")
"""Fields of a split on whether a part of the nodes of a pool, all of the same draw, is awake."""

Key = tuple[str, float]
"""A pool, and what each of some of its nodes draws awake."""


def sleepers(instance: Instance, places: Places) -> BoolArray:
    """Return the mask of the nodes that draw nothing as long as no job is there, shape (n_nodes,)."""
    asleep, jobs = _undisturbed(instance.cluster), instance.by_column()
    if asleep.any():
        asleep = asleep.copy()
        for j in np.flatnonzero(jobs.fixed).tolist():
            held = jobs.held(j)
            asleep[[places.node[name] for name, gpus in (held.nodes if held else {}).items() if gpus]] = False
    return asleep


@remembered
def _undisturbed(cluster: Cluster) -> BoolArray:
    """Nodes that sleep, as far as others are concerned."""
    nodes = cluster.node_columns()
    asleep = nodes.flags("sleeps") & (nodes.numbers("reserved_w") == 0)
    return np.asarray(asleep & (nodes.available == nodes.counts("gpus")))


def of_pools(places: Places, some: BoolArray) -> list[IntArray]:
    """Some of the nodes, by pool."""
    if not some.any():
        return [np.empty(0, dtype=np.int64)] * len(places.pools)
    return [np.flatnonzero(some & (places.pool == number)) for number in range(len(places.pools))]


def awake_w(instance: Instance, nodes: IntArray, pool: Pool) -> FloatArray:
    """Return the draw in watts of nodes of a pool that are awake, without jobs."""
    if not len(nodes):
        return np.zeros(0)
    idle_w = instance.cluster.gpu_types[pool.gpu_type].idle_power_w * pool.gpus_per_node
    return np.asarray(instance.cluster.node_columns().numbers("base_power_w")[nodes] + idle_w)


class Sleeping(NamedTuple):
    """Nodes of a pool, with all GPUs free, that draw the same awake and sleep otherwise.

    Attributes
    ----------
    each_w : Fraction
        What each draws, not above it.
    nodes : int
    """

    each_w: Fraction
    nodes: int


def sleeping_of(
    instance: Instance, pools: Mapping[str, Pool], free: Mapping[str, IntArray]
) -> dict[Key, Sleeping]:
    """Nodes that sleep by pool and watts.

    Parameters
    ----------
    free : mapping of str to int array
        Numbers in the cluster of each pool's nodes that sleep and have all GPUs free.
    """
    found: dict[Key, Sleeping] = {}
    base_w = instance.cluster.node_columns().numbers("base_power_w")
    for name, nodes in free.items():
        near = awake_w(instance, nodes, pools[name])
        idle_w = Fraction(instance.cluster.gpu_types[pools[name].gpu_type].idle_power_w)
        for each_w in np.unique(near).tolist():
            mine = nodes[near == each_w]
            exact = Fraction(float(base_w[mine].min())) + idle_w * pools[name].gpus_per_node
            found[name, each_w] = Sleeping(exact, len(mine))
    return found


def part_sizes(nodes: int) -> list[int]:
    """Return the number of nodes in each part: twice that of the one before; the last has the rest."""
    sizes, size = [], 1
    while nodes > 0:
        sizes.append(min(size, nodes))
        nodes, size = nodes - sizes[-1], 2 * size
    return sizes


States = Mapping[tuple[Key, int], set[bool]]
"""States of each part that was split: True if it may be awake, False if it may be asleep."""


def states(sleeping: Mapping[Key, Sleeping], taken: Sequence[Taken]) -> States:
    """Return the states that splits leave to parts of nodes; a ValueError says what a split lacks."""
    found: dict[tuple[Key, int], set[bool]] = {}
    for split, inside, _ in taken:
        if "awake" in split:
            part = _part(sleeping, split)
            found[part] = found.get(part, {True, False}) & {inside}
    return found


def _part(sleeping: Mapping[Key, Sleeping], split: Mapping[str, Any]) -> tuple[Key, int]:
    if strangers := sorted(map(str, split.keys() - {*FIELDS})):
        raise ValueError(f"split: {strangers[0]!r:.80} is not a field of it")
    pool, each_w, number = (split.get(name) for name in FIELDS)
    if not isinstance(pool, str) or not isinstance(each_w, int | float) or (pool, each_w) not in sleeping:
        raise ValueError(
            f"split.awake: no nodes of a pool {pool!r:.80} sleep that draw {each_w!r:.40} W awake"
        )
    sizes = part_sizes(sleeping[pool, each_w].nodes)
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(sizes):
        raise ValueError(f"split.part: must be a whole number below {len(sizes)}, not {number!r:.40}")
    return (pool, float(each_w)), number


def counted_s(instance: Instance) -> Fraction:
    """Seconds for which the energy of nodes counts."""
    return Fraction(instance.round_s if instance.budgets.scope == "round" else 0)


def cost_of(instance: Instance, each_w: Fraction) -> Fraction:
    """Return the cost in the objective of one node that is awake."""
    if instance.objective not in ENERGY:
        return Fraction(0)
    return each_w * counted_s(instance) * Fraction(per_joule(instance, RATIONALS))
