"""The rows of the aggregated program as the checker reads them: what options use of each, and what there is.

A node that sleeps draws nothing as long as no job is there. It is awake whatever is decided where others draw
something on it or use GPUs of it, or a job keeps its own there.

No code of formulations, solvers, the options' arrays or the topology's pools takes part in it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal, NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.cluster import Cluster
from wattsched.topology.remembered import remembered
from wattsched.verification.arithmetic import RATIONALS
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.job_rows import Use
from wattsched.verification.sizing.objectives import BOTTLENECK, ENERGY, OBJECTIVES, per_joule
from wattsched.verification.sizing.pools import Places, Pool, free_gpus, free_on_nodes, places_of
from wattsched.verification.sizing.tenants import quotas_of
from wattsched.verification.sizing.uncertainty import Piece

Key = tuple[str, float]
"""A pool, and what each of some of its nodes draws awake."""


LAST_DIGITS = Fraction(1, 2**51)
"""Part of a limit by which it may be exceeded: sums of uses are rounded so far."""

RowPrices = Mapping[Use | Piece, Fraction]
"""Price of each use, in units of the cost that is minimised; only those of shares can be negative."""


def sleepers(instance: Instance, places: Places) -> BoolArray:
    """Return the mask of the nodes that draw nothing as long as no job is there, shape (n_nodes,)."""
    asleep, jobs = _undisturbed(instance.cluster), instance.by_column()
    if asleep.any():
        asleep = asleep.copy()
        for j in np.flatnonzero(jobs.fixed).tolist():
            if (held := jobs.held(j)) is not None:
                asleep[[places.node[name] for name, gpus in held.nodes.items() if gpus]] = False
    return asleep


@remembered
def _undisturbed(cluster: Cluster) -> BoolArray:
    """Return the mask of the nodes that sleep without jobs, and that nobody outside of the instance uses."""
    nodes = cluster.node_columns()
    asleep = nodes.flags("sleeps") & (nodes.numbers("reserved_w") == 0)
    return np.asarray(asleep & (nodes.available == nodes.counts("gpus")))


def awake_on_nodes(instance: Instance) -> dict[str, Counter[int]]:
    """For every pool how many of its nodes, awake whatever is decided, have each number of free GPUs."""
    places = places_of(instance.cluster)
    free, awake = free_on_nodes(instance), places.by_pool(~sleepers(instance, places))
    return {name: Counter(free[nodes].tolist()) for name, nodes in zip(places.pools, awake, strict=True)}


def awake_w(instance: Instance, nodes: IntArray, pool: Pool) -> FloatArray:
    """Return the draw in watts of nodes of a pool that are awake, without jobs."""
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


def sleeping_in(instance: Instance, pools: Mapping[str, Pool]) -> dict[Key, Sleeping]:
    """Nodes that sleep, all of whose GPUs are free, by pool and watts."""
    places, found = places_of(instance.cluster), dict[Key, Sleeping]()
    asleep = sleepers(instance, places)
    if not asleep.any():
        return found
    base_w = instance.cluster.node_columns().numbers("base_power_w")
    by_pool = places.by_pool(asleep & (free_on_nodes(instance) == places.size))
    for pool, nodes in zip(pools.values(), by_pool, strict=True):
        near = awake_w(instance, nodes, pool)
        idle_w = Fraction(instance.cluster.gpu_types[pool.gpu_type].idle_power_w)
        for each_w in np.unique(near).tolist():
            mine = nodes[near == each_w]
            exact = Fraction(float(base_w[mine].min())) + idle_w * pool.gpus_per_node
            found[pool.name, each_w] = Sleeping(exact, len(mine))
    return found


def part_sizes(nodes: int) -> list[int]:
    """Return the number of nodes in each part: twice that of the one before; the last has the rest."""
    sizes, size = [], 1
    while nodes > 0:
        sizes.append(min(size, nodes))
        nodes, size = nodes - sizes[-1], 2 * size
    return sizes


def counted_s(instance: Instance) -> Fraction:
    """Seconds for which the energy of nodes counts."""
    return Fraction(instance.round_s if instance.budgets.scope == "round" else 0)


def cost_of(instance: Instance, each_w: Fraction) -> Fraction:
    """Return the cost in the objective of one node that is awake, 0 where joules are paid for."""
    if instance.objective not in ENERGY:
        return Fraction(0)
    return each_w * counted_s(instance) * max(Fraction(0), Fraction(per_joule(instance, RATIONALS)))


@dataclass(frozen=True)
class Row:
    """A row ``uses of the options <= limit - standing`` of the aggregated program; of a set ``= 0``.

    A least amount is one from below, ``>= limit``, and is charged for less than nothing.

    Attributes
    ----------
    kind : {"room", "pieces", "cuts", "power", "energy", "worst", "share", "quota", "least", "most"}
        What an option uses: its block or its GPUs, pieces of nodes, its watts or joules above idle (of a
        tenant all of them); or 1 by the first job of a set and -1 by another; GPUs of a tenant's quota. Rows
        of jobs in a bottleneck, and of ways to cut nodes up, are of no use to a proof. Values of other
        objectives, and jobs that do as in another decision, are limited from below, or above.
    uses : mapping of Use to number
        How much of the row what an option pays for uses: of carbon, grams per joule.
    limit, standing : Fraction
        What there is, and what idle GPUs and nodes use of it whatever is decided.
    """

    kind: Literal["room", "pieces", "cuts", "power", "energy", "worst", "share", "quota", "least", "most"]
    uses: Mapping[Use, int | Fraction]
    limit: Fraction = Fraction(0)
    standing: Fraction = Fraction(0)


def rows_of(instance: Instance, configurations: JobConfigurations) -> dict[str, Row]:
    """Rows of the aggregated program by name, also those that are implied by others."""
    pools = configurations.pools
    asleep = sleepers(instance, places_of(instance.cluster))
    free, capacities = free_gpus(instance, pools, asleep), {pool.capacity for pool in pools.values()}
    on_nodes = awake_on_nodes(instance)
    counts = configurations.in_pools() if capacities != {"blocks"} else {}
    rows: dict[str, Row] = {}
    for name, pool in pools.items():
        if pool.capacity == "blocks":
            rows |= _block_rows(pool, free[name])
        elif pool.capacity == "count":
            uses: dict[Use, int] = {("room", name, gpus): gpus for gpus in counts[name]}
            uses["node", name] = -pool.gpus_per_node
            rows[f"gpus:{name}"] = Row("room", uses, Fraction(free[name][1]))
        else:
            rows |= dict(_node_rows(pool, on_nodes[name], counts[name]))
    rows |= dict([*_budget_rows(instance, configurations.pools), *_share_rows(configurations)])
    rows |= dict(_quota_rows(instance))
    if (least := instance.budgets.least_goodput) is not None:
        rows["least_goodput"] = Row("least", {("goodput",): 1}, Fraction(least))
    rows |= dict(_requirement_rows(instance, len(configurations.jobs)))
    if instance.objective in BOTTLENECK:
        rows |= dict.fromkeys((f"worst:{name}" for name in configurations.jobs.names), Row("worst", {}))
    return rows


def _block_rows(pool: Pool, free: Mapping[int, int]) -> dict[str, Row]:
    """Return a row for every size of blocks: the GPUs in blocks at least as large."""
    rows, name, whole = {}, pool.name, pool.gpus_per_node
    for size, gpus in free.items():
        uses: dict[Use, int] = {("room", name, block): block for block in free if block >= size}
        if size <= whole:  # the blocks of a node are the powers of two that its GPUs are the sum of
            uses["node", name] = -(whole - whole % size)
        rows[f"gpus:{name}" if size == 1 else f"buddy:{name}:{size}"] = Row("room", uses, Fraction(gpus))
    return rows


def _node_rows(pool: Pool, free: Mapping[int, int], counts: Iterable[int]) -> Iterator[tuple[str, Row]]:
    """Yield rows for every size: GPUs in sets of so many on the nodes, and pieces of exactly so many.

    How many pieces of all sizes the nodes can be cut up into is for the proof to say (`bound`), whatever they
    and the ways to cut nodes are priced at.
    """
    name, whole = pool.name, pool.gpus_per_node
    pieces = {gpus: Counter({whole: gpus // whole, gpus % whole: 1}) for gpus in counts}
    for size in range(1, whole + 1):
        sets: dict[Use, int] = {
            ("room", name, gpus): size * sum(many * (piece // size) for piece, many in its.items())
            for gpus, its in pieces.items()
        }
        sets["node", name] = -size * (whole // size)
        room = sum(size * (gpus // size) * nodes for gpus, nodes in free.items())
        yield f"gpus:{name}" if size == 1 else f"parts:{name}:{size}", Row("room", sets, Fraction(room))
        exact: dict[Use, int] = {("room", name, gpus): its[size] for gpus, its in pieces.items()}
        yield f"pieces:{name}:{size}", Row("pieces", exact)
    for gpus in {*free, whole}:
        yield f"cuts:{name}:{gpus}", Row("cuts", {})


def _budget_rows(instance: Instance, pools: dict[str, Pool]) -> Iterator[tuple[str, Row]]:
    """Yield the rows of watts (of all pools, and of power domains), joules and grams, with their names."""
    budgets, types = instance.budgets, instance.cluster.gpu_types
    places = places_of(instance.cluster)
    down = places.by_pool(sleepers(instance, places))
    base_w = instance.cluster.node_columns().numbers("base_power_w")
    standing_w = {
        name: Fraction(types[pool.gpu_type].idle_power_w) * (pool.available - pool.gpus_per_node * len(nodes))
        + _summed(np.concatenate([pool.base_power_w, pool.reserved_w]))
        - _summed(base_w[nodes])
        for (name, pool), nodes in zip(pools.items(), down, strict=True)
    }
    capped = [
        (f":{d.name}", d.power_cap_w, d.reserved_w, [p for p in pools if d.name in pools[p].domains])
        for d in instance.cluster.power_domains
    ]
    for name, limit_w, besides_w, inside in [("", budgets.power_w, 0.0, list(pools)), *capped]:
        if limit_w is not None:
            standing = sum((standing_w[pool] for pool in inside), Fraction(besides_w))
            uses: dict[Use, int] = {(use, pool): 1 for pool in inside for use in ("watt", "node_watt")}
            yield f"power_w{name}", Row("power", uses, _limit_of(limit_w), standing)
    standing_j = Fraction(0)
    if budgets.scope == "round":
        standing_j = sum(standing_w.values(), Fraction(0)) * Fraction(instance.round_s)
    if budgets.energy_j is not None:
        uses_j: dict[Use, int] = {("joule",): 1, ("node_joule",): 1}
        yield "energy_j", Row("energy", uses_j, _limit_of(budgets.energy_j), standing_j)
    if budgets.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        grams = Fraction(instance.carbon_g_per_kwh) / J_PER_KWH
        uses_g: dict[Use, Fraction] = {("joule",): grams, ("node_joule",): grams}
        standing_g = standing_j * grams
        yield "carbon_g", Row("energy", uses_g, _limit_of(budgets.carbon_g), standing_g)


def _quota_rows(instance: Instance) -> Iterator[tuple[str, Row]]:
    """Yield the rows of tenants' quotas of GPUs, watts, joules and grams."""
    grams = Fraction(instance.carbon_g_per_kwh or 0.0) / J_PER_KWH
    counted: dict[str, tuple[Literal["quota", "power", "energy"], str, int | Fraction]] = {
        "share": ("quota", "gpus", 1),
        "draw": ("power", "draw", 1),
        "energy": ("energy", "drawn", 1),
        "carbon": ("energy", "drawn", grams),
    }
    for quota in quotas_of(instance):
        kind, use, amount = counted[quota.counts]
        uses: dict[Use, int | Fraction] = {(use, name): amount for name in quota.tenants}
        yield quota.name, Row(kind, uses, Fraction(quota.limit))


def _requirement_rows(instance: Instance, n_jobs: int) -> Iterator[tuple[str, Row]]:
    """Yield rows of objectives that are limited, and of decisions to differ from; see `options.Options`.

    A node that is woken costs joules in an objective that counts them, where they are not paid for.
    """
    for name, limit in instance.budgets.reached.items():
        if name not in BOTTLENECK:
            of = instance.model_copy(update={"objective": name})
            least = OBJECTIVES[name] == "max"
            uses: dict[Use, int | Fraction] = {("objective", name): -1 if least else 1}
            if name in ENERGY:
                uses["node_joule",] = max(Fraction(0), Fraction(per_joule(of, RATIONALS)))
            yield f"objective:{name}", Row("least" if least else "most", uses, Fraction(limit))
    most = Fraction(n_jobs - instance.differ)
    for number in range(1, len(instance.unlike) + 1):
        yield f"unlike:{number}", Row("quota", {("same", str(number)): 1}, most)


def _limit_of(limit: float) -> Fraction:
    return Fraction(limit) * (1 + LAST_DIGITS)


def _summed(each_w: FloatArray) -> Fraction:
    """Return the sum without rounding, of few different numbers."""
    watts, counts = np.unique(each_w, return_counts=True)
    known = zip(watts.tolist(), counts.tolist(), strict=True)
    return sum((Fraction(each_w) * count for each_w, count in known), Fraction(0))


def _share_rows(configurations: JobConfigurations) -> Iterator[tuple[str, Row]]:
    """Yield a row for each job of a set but the first, in each pool."""
    for declared in configurations.instance.sets:
        first, *others = declared.rates
        for one in configurations.in_sets(first):
            if one.set == declared.name:
                pool, *_ = one.setting
                for job in others:
                    uses: dict[Use, int] = {
                        ("share", one.set, pool, first): 1,
                        ("share", one.set, pool, job): -1,
                    }
                    yield f"share:{one.set}:{pool}:{job}", Row("share", uses)


def prices_of(rows: Mapping[str, Row], charged: Mapping[str, float]) -> dict[Use | Piece, Fraction]:
    """Return the price of each use at charges of rows; only those of sets can be negative."""
    paid: dict[Use | Piece, Fraction] = defaultdict(Fraction)
    for name, charge in charged.items():
        for use, amount in rows[name].uses.items():
            paid[use] += Fraction(charge) * amount
    return paid
