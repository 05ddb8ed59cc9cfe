"""Scarce resources of a round: watts, joules, grams and free GPUs; what options use, and what is left."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from wattsched.formulations.reach import reached
from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.in_place import kept_rooms
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.quotas import quotas_of, uses_of
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, ranges
from wattsched.topology.buddy import block_size
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import Pool, pools_of
from wattsched.topology.remembered import remembered
from wattsched.topology.room import Room


@dataclass(frozen=True)
class BudgetRow:
    """One budget: what columns use of it and the capacity left once everything idle is paid for.

    Attributes
    ----------
    name : str
        Row name, for example ``power_w`` or ``power_w:rack3``.
    column : int array, shape (n_users,)
        Columns that use it, in their order.
    use : float array, shape (n_users,)
    limit : float
        The budget as the instance states it.
    standing : float
        What idle GPUs and nodes use of it whatever is decided.
    least : bool
        Whether the limit is one from below: there must be as much at least.
    unit : float, optional
        What one is in the unit of the row's name, where that is another; prices are then of another program.
    """

    name: str
    column: IntArray
    use: FloatArray
    limit: float
    standing: float
    least: bool = False
    unit: float | None = None

    @classmethod
    def of(
        cls, name: str, use: FloatArray, limit: float, standing: float, *, least: bool = False
    ) -> BudgetRow:
        """Row of the uses of all columns, shape (n_columns,)."""
        column = np.flatnonzero(use)
        return cls(name, column, use[column], limit, standing, least)

    @property
    def capacity(self) -> float:
        """Amount left for the jobs; negative when the standing use alone breaks the budget."""
        return self.limit - self.standing

    def in_reach(self) -> BudgetRow:
        """The row in a unit that solvers can tell."""
        if (known := reached(self.use, self.capacity, self.limit, least=self.least)) is None:
            return self
        use, capacity, unit = known
        return replace(self, use=use, limit=capacity, standing=0.0, unit=unit)


def extra_power_w(options: Options) -> FloatArray:
    """Draw of each option beyond the idle draw of the GPUs it takes."""
    return options.power_w - options.idle_w


@dataclass(frozen=True)
class Budget:
    """Budget of the round: what it counts, and what is left of it once everything idle is paid for.

    Attributes
    ----------
    name : str
        Row name, for example ``power_w`` or ``power_w:rack3``.
    counts : {"power", "energy", "carbon"}
    pools : int array
        Numbers of the pools whose jobs use it.
    limit : float
        The budget as the instance states it.
    standing : float
        What idle GPUs and nodes use of it whatever is decided.
    """

    name: str
    counts: Literal["power", "energy", "carbon"]
    pools: IntArray
    limit: float
    standing: float

    @property
    def capacity(self) -> float:
        """Amount left for the jobs; negative when the standing use alone breaks the budget."""
        return self.limit - self.standing


def budgets_of(known: RoundJobs) -> list[Budget]:
    """All budgets and power caps of the round."""
    instance, pools, budgets = known.instance, known.pools, known.instance.budgets
    found, everywhere = list[Budget](), np.arange(len(pools))
    if (budgets.power_w, budgets.energy_j, budgets.carbon_g) == (None, None, None):
        idle_w = 0.0  # which nobody asks for
    else:
        idle_w = standing_power_w(known)
    if budgets.power_w is not None:
        found.append(Budget("power_w", "power", everywhere, budgets.power_w, idle_w))
    for domain in instance.cluster.power_domains:
        inside = np.flatnonzero([domain.name in pool.domains for pool in pools])
        standing = standing_power_w(known, domain.name)
        found.append(Budget(f"power_w:{domain.name}", "power", inside, domain.power_cap_w, standing))
    standing = idle_w * instance.round_s if budgets.scope == "round" else 0.0
    if budgets.energy_j is not None:
        found.append(Budget("energy_j", "energy", everywhere, budgets.energy_j, standing))
    if budgets.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        grams = standing * known.per_joule["carbon"]
        found.append(Budget("carbon_g", "carbon", everywhere, budgets.carbon_g, grams))
    return found


def budget_rows(options: Options, index: IntArray | None = None) -> list[BudgetRow]:
    """Rows of all budgets and power caps of the instance, of quotas of its tenants, and of the least goodput.

    Parameters
    ----------
    index : int array, shape (n_columns,), optional
        Option of each column; without it, every option is one.
    """
    budgets, quotas = budgets_of(options.of), quotas_of(options.instance)
    least = options.instance.budgets.least_goodput
    if not budgets and not quotas and least is None:
        return []
    index = np.arange(len(options)) if index is None else index
    extra, pool = extra_power_w(options)[index], options.pool[index]
    by_pool = np.argsort(pool, kind="stable")
    ends = np.searchsorted(pool[by_pool], np.arange(len(options.pools) + 1))
    energy = options.counted_j[index] if any(b.counts != "power" for b in budgets) else extra[:0]
    rows = []
    for budget in budgets:
        if budget.name == "power_w":
            rows.append(BudgetRow.of("power_w", extra, budget.limit, budget.standing))
        elif budget.counts == "power":
            parts = [by_pool[ends[p] : ends[p + 1]] for p in budget.pools.tolist()]
            column = np.sort(np.concatenate([ends[:0], *parts]))
            column = column[extra[column] != 0.0]
            rows.append(BudgetRow(budget.name, column, extra[column], budget.limit, budget.standing))
        else:
            use = energy * options.per_joule[budget.counts]
            rows.append(BudgetRow.of(budget.name, use, budget.limit, budget.standing))
    for quota in quotas:
        rows.append(BudgetRow.of(quota.name, uses_of(options, quota)[index], quota.limit, 0.0))
    if least is not None:
        rows.append(BudgetRow.of("least_goodput", options.goodput[index], least, 0.0, least=True))
    if any(len(some) for some in sleepers_of(options.of)):  # whose watts are added
        return rows
    return [row.in_reach() for row in rows]


def standing_power_w(known: RoundJobs, domain: str | None = None) -> float:
    """Compute the watts drawn whatever is decided, in the site or through a power domain.

    It is the idle draw of all available GPUs and the base power of nodes, without those that sleep as long as
    no job is there, and what others draw.
    """
    cluster = known.instance.cluster
    nodes = cluster.node_columns()
    base_w, reserved_w = nodes.numbers("base_power_w"), nodes.numbers("reserved_w")
    of_nodes_w = 0.0
    for pool, sleeping in zip(known.pools, sleepers_of(known), strict=True):
        if domain is None or domain in pool.domains:
            up = np.delete(pool.members, sleeping) if len(sleeping) else pool.members
            idle_w = cluster.gpu_types[pool.gpu_type].idle_power_w
            awake = int(pool.available.sum()) - pool.gpus_per_node * len(sleeping)
            of_nodes_w += idle_w * awake + (base_w + reserved_w)[up].sum()
    besides_w = sum(one.reserved_w for one in cluster.power_domains if one.name == domain)
    return float(of_nodes_w + besides_w)


@remembered
def _undisturbed(cluster: Cluster) -> BoolArray:
    """Nodes that sleep, as far as others are concerned."""
    nodes = cluster.node_columns()
    sleeps = nodes.flags("sleeps") & (nodes.numbers("reserved_w") == 0.0)
    sleeps[nodes.broken[0]] = False
    return np.asarray(sleeps)


@remembered
def _sleepers(cluster: Cluster) -> list[IntArray]:
    """`sleepers_of` rounds in which no job keeps its GPUs."""
    sleeps = _undisturbed(cluster)
    return [np.flatnonzero(sleeps[pool.members]) for pool in pools_of(cluster)]


@remembered
def _open_rooms(cluster: Cluster) -> list[Room]:
    """`rooms_of` rounds in which no job keeps its GPUs."""
    every = zip(pools_of(cluster), _sleepers(cluster), strict=True)
    return [_room(cluster, p, pool, pool.available, some) for p, (pool, some) in enumerate(every)]


@remembered
def sleepers_of(known: RoundJobs) -> list[IntArray]:
    """Per pool the nodes that draw nothing as long as no job is there, by their places in `Pool.nodes`.

    A node is awake anyway where others reserve watts, where a GPU is unavailable, as others may use it, and
    where a job keeps its GPUs.
    """
    if not known.jobs.fixed.any():
        return _sleepers(known.instance.cluster)
    sleeps = _undisturbed(known.instance.cluster).copy()
    job, position = known.held_gpus
    kept, pool_of = known.jobs.fixed[job], known.held[1][job]
    for p, pool in enumerate(known.pools):
        sleeps[pool.members[pool.node_index[position[kept & (pool_of == p)]]]] = False
    return [np.flatnonzero(sleeps[pool.members]) for pool in known.pools]


def free_gpus(known: RoundJobs) -> list[BoolArray]:
    """Per pool, which positions of its line are free for the jobs that are to be placed."""
    job, position = known.held_gpus
    _, pool_of, _ = known.held
    kept, free = known.jobs.fixed[job], []
    for p, pool in enumerate(known.pools):
        here = np.flatnonzero(kept & (pool_of[job] == p))
        left = pool.available.copy()
        left[position[here]] = False
        if pool.capacity == "blocks":
            left[_reserved(pool, job[here], position[here])] = False
        free.append(left)
    return free


@remembered
def rooms_of(known: RoundJobs) -> list[Room]:
    """Return the free GPUs of each pool as jobs can take them."""
    if known.in_place:
        return kept_rooms(known, free_gpus(known))
    if not known.jobs.fixed.any():
        return _open_rooms(known.instance.cluster)
    free = zip(known.pools, free_gpus(known), sleepers_of(known), strict=True)
    return [_room(known.instance.cluster, p, *parts) for p, parts in enumerate(free)]


def _room(cluster: Cluster, number: int, pool: Pool, free: BoolArray, sleepers: IntArray) -> Room:
    """A pool's room, with the nodes that sleep, all of whose GPUs are free."""
    if not len(sleepers):
        return Room(number, pool, free)
    sleeping = np.setdiff1d(sleepers, pool.node_index[~free])
    idle_w = cluster.gpu_types[pool.gpu_type].idle_power_w * pool.gpus_per_node
    awake_w = cluster.node_columns().numbers("base_power_w")[pool.members[sleeping]] + idle_w
    order = np.argsort(awake_w, kind="stable")
    return Room(number, pool, free, sleeping[order], awake_w[order])


def _reserved(pool: Pool, job: IntArray, position: IntArray) -> IntArray:
    """The aligned blocks around jobs' GPUs, which they reserve when their count is no power of two.

    A job that keeps its GPUs may hold some that lie in no common block; it reserves nothing more then.
    """
    _, first, gpus = np.unique(job, return_index=True, return_counts=True)
    size, last = block_size(gpus), position[first + gpus - 1]
    first = position[first]
    begin = first // size * size
    # On the line, small structural blocks lie next to each other without being one.
    structural = pool.blocks[np.searchsorted(pool.blocks[:, 0], first, side="right") - 1, 1]
    together = (structural >= size) & (last < begin + size)
    return ranges(begin[together], size[together])
