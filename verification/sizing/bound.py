r"""Proving the bound of a certificate again: row prices, and one pass over the options of every job.

Prices :math:`\lambda_r \ge 0` of the rows :math:`a_r x \le U^r` leave jobs that do not interact. Whatever the
prices are,

.. math:: L = \sum_j \min_{o \in O_j} \Big(c_{jo} + \sum_r \lambda_r a_{r,jo}\Big) - \sum_r \lambda_r U^r

is not above the cost of any decision. Rows that hold a set of jobs together are equalities: their prices have
either sign. Of a bottleneck objective the same prices prove a threshold (`surrogate`). Earlier certificates
also name rows :math:`c_j x_j \le z`, ``worst:JOB``: what they add up to is never above that threshold.

No code of formulations, solvers, the options' arrays or the topology's pools takes part in it.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Literal, NamedTuple, Protocol

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.verification.arithmetic import DOUBLES, RATIONALS, float_above, float_below
from wattsched.verification.report import TOLERANCE, Proof, charges
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.least_cost import (
    LeastCosts,
    NoOptionError,
    RowPrices,
    in_range,
    least_costs,
    reach_of,
)
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.options import Options, Use
from wattsched.verification.sizing.outcomes import BOTTLENECK, ENERGY, OBJECTIVES, total
from wattsched.verification.sizing.pools import (
    Pool,
    entirely_free,
    free_gpus,
    free_on_nodes,
    places_of,
)
from wattsched.verification.sizing.sleepers import (
    Key,
    Sleeping,
    States,
    cost_of,
    counted_s,
    of_pools,
    part_sizes,
    sleepers,
    sleeping_of,
    states,
)
from wattsched.verification.sizing.splits import Allowed, Splits
from wattsched.verification.sizing.tenants import quotas_of
from wattsched.verification.tree import Taken

EXACT_OPTIONS = 10_000
"""Rational arithmetic takes some 40 microseconds for an option; larger rounds are proven in doubles."""

CLAIM_TOLERANCE = 1e-9
"""By how much a claimed bound may exceed what is proven, relative to the numbers that it is the sum of."""


def prove(instance: Instance, prices: Mapping[str, object]) -> Proof:
    """Bound on the instance's objective that row prices prove.

    Rational arithmetic is used for small rounds, and for numbers near the ends of the range of doubles;
    doubles with a bound on their rounding for the rest.

    Parameters
    ----------
    instance : Instance
        Validated, free of faults as `validity.faults_of` finds them, with a known objective.
    prices : mapping of str to number
        As `report.charges` takes them; rows of sets are equalities.
    """
    return Prover(instance)(prices)


class Prover:
    """Proves bounds on an instance's objective, also of the decisions on some sides of splits.

    Parameters
    ----------
    instance : Instance
        As for `prove`.
    """

    def __init__(self, instance: Instance):
        self.instance, self.configurations, _ = decided(instance)
        self.nodes = sleeping_in(self.instance, self.configurations.pools)
        self.rows = rows_of(self.instance, self.configurations)
        self.sense = OBJECTIVES[instance.objective]
        self.splits = Splits(self.configurations)

    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound as `prove` does.

        Parameters
        ----------
        taken : sequence of Taken
            Splits have ``job``, its name, and ``options``, some of what it may do: ``"wait"``, or pool, GPU
            count, batch size, frequency and power limit, or the first of these for all that begin so; of a
            set its pool and its name.

        Raises
        ------
        ValueError
            If a split is none.
        """
        shares = [name for name, row in self.rows.items() if row.kind == "share"]
        demands = [name for name, row in self.rows.items() if row.kind == "goodput"]
        charged, faults = charges(prices, self.rows.keys() - {*shares, *demands}, shares, self.sense, demands)
        if faults:
            return Proof(faults)
        allowed, of_nodes = self.splits.allowed(taken), states(self.nodes, taken)
        try:
            self._require_configurations()
            return self._proof(charged, allowed, of_nodes)
        except NoOptionError:
            bound = math.inf if self.sense == "min" else -math.inf
            return Proof([], bound, bound, excess=math.inf, exact=True)
        except ValueError as error:
            return Proof([f"certificate: {error}"])

    def _proof(self, charged: Mapping[str, float], allowed: Allowed, of_nodes: States) -> Proof:
        charged = _no_less_for_more(self.configurations.pools, charged)
        paid = prices_of(self.rows, charged)
        used = [(self.rows[name], Fraction(price)) for name, price in charged.items()]
        pieces, of_node = _cut_up(self.instance, self.configurations.pools, charged)
        least, size = self._least_of_nodes(paid, of_node, of_nodes)
        used += [(Row("room", {}, pieces), Fraction(1)), (Row("room", {}, -least), Fraction(1))]
        given: Given
        if self.instance.objective in BOTTLENECK:
            given = self._given_here(paid, allowed)
            proven, reach, leeway, excess = _threshold(given, used)
        else:
            given = self.given(paid, allowed)
            proven, reach, leeway, excess = _sum(given, used, size)
        bound, honest = float_below(proven), float_above(reach)
        if self.sense == "max":
            bound, honest = -bound, -honest
        return Proof([], bound, honest, float_above(leeway), float_below(excess), given.exact)

    def _least_of_nodes(
        self, paid: RowPrices, pieces: Mapping[str, Fraction], of_nodes: States
    ) -> tuple[Fraction, Fraction]:
        """What nodes that sleep cost at least at prices, awake or asleep, and the size of its terms.

        Parameters
        ----------
        pieces : mapping of str to Fraction
            What the pieces that a node of a pool can be cut up into are charged together.
        """
        least = size = nothing = Fraction(0)
        per_joule = paid.get(("node_joule",), nothing) * counted_s(self.instance)
        for key, (each_w, nodes) in self.nodes.items():
            pool = key[0]
            watts = paid.get(("node_watt", pool), nothing) + per_joule
            given = pieces.get(pool, nothing) - paid.get(("node", pool), nothing)
            pays = cost_of(self.instance, each_w) + each_w * watts
            size += nodes * (abs(pays) + abs(given))
            for number, many in enumerate(part_sizes(nodes)):
                may = of_nodes.get((key, number), {True, False})
                if not may:
                    raise NoOptionError
                least += many * min(pays - given if awake else nothing for awake in may)
        return least, size

    def dearest_nodes(self) -> Fraction:
        """What nodes that sleep cost at most in the objective."""
        each = (nodes * cost_of(self.instance, each_w) for each_w, nodes in self.nodes.values())
        return sum(each, Fraction(0))

    def given(self, paid: RowPrices, allowed: Allowed) -> Given:
        """Least costs at prices, where splits leave the jobs so much."""
        return self._given_here(paid, allowed)

    def _given_here(self, paid: RowPrices, allowed: Allowed) -> _Given:
        return _Given(self, paid, allowed, in_range(self.near, paid))

    def _require_configurations(self) -> None:
        of = self.configurations
        for j in np.flatnonzero(np.diff(of.start)[of.kind] == 0).tolist():
            lacking = f"job '{of.jobs.names[j]}' has no configuration that it could run as"
            raise ValueError(of.unknown.get(int(of.kind[j]), lacking))

    @cached_property
    def near(self) -> Options:
        """Options in doubles."""
        return Options(self.instance, self.configurations, DOUBLES)

    @cached_property
    def exact(self) -> Options:
        """Options in rational numbers."""
        return Options(self.instance, self.configurations, RATIONALS)


class Given(Protocol):
    """What a bound is proven of."""

    @property
    def prover(self) -> Prover:
        """Of the instance."""

    @property
    def exact(self) -> bool:
        """Whether it is proven in rational numbers."""

    def least(self) -> LeastCosts:
        """Least costs of the jobs."""


class _Given(NamedTuple):
    """What is proven of what, in which arithmetic."""

    prover: Prover
    prices: RowPrices
    allowed: Allowed
    in_range: bool

    @property
    def options(self) -> Options:
        """Options in rational numbers, where these are few enough, or out of the range of doubles."""
        few = len(self.prover.near) <= EXACT_OPTIONS
        return self.prover.exact if few or not self.in_range else self.prover.near

    @property
    def exact(self) -> bool:
        """Whether that is rational numbers."""
        return self.options.arithmetic.exact

    def least(self) -> LeastCosts:
        """Least costs of the jobs."""
        near = self.prover.near if self.in_range else None
        return least_costs(self.options, self.prices, self.allowed, near)


Charged = Sequence[tuple["Row", Fraction]]


def _sum(given: Given, charged: Charged, besides: Fraction) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Of a sum what is proven, what can have been claimed, and leeway and excess of `Proof`.

    Parameters
    ----------
    besides : Fraction
        Size of the numbers that rows of nodes are the sum of.
    """
    cheapest = given.least()
    bound = cheapest.total - _capacity(charged)
    # The same before idle uses are taken off: the size of the numbers that the bound is the sum of.
    terms = sum(
        (abs(price) * (abs(row.limit) + row.standing) for row, price in charged), cheapest.size + besides
    )
    instance = given.prover.instance
    if instance.objective == "proportional":
        # Logarithms, even near 0, are as exact as the quotients that they are of, which are near 1.
        terms += Fraction(total(given.prover.configurations.weight.tolist()))
    # What changes cost may cancel what options are worth.
    terms += Fraction(total(given.prover.configurations.change_cost.tolist()))
    leeway = _tolerated(charged)
    dearest = cheapest.dearest + given.prover.dearest_nodes()
    # Joules are large numbers: where they cancel, what is left of them is not small.
    unit = max(Fraction(1), dearest if instance.objective in ENERGY else Fraction(1))
    reach = _claimed(bound.high, abs(bound.high) + terms, unit)
    return bound.low, reach, leeway, bound.low - leeway - dearest


def _threshold(given: _Given, charged: Charged) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Likewise of the worst job's value."""
    if not given.prover.instance.jobs:
        return Fraction(0), Fraction(0), Fraction(0), Fraction(-1)
    reach, capacity = reach_of(given.options, given.prices, given.allowed), _capacity(charged)
    arithmetic = given.options.arithmetic
    proven = reach.threshold(reach.low, capacity, arithmetic)
    most = capacity + _tolerated(charged)
    lenient = reach.threshold(reach.low, most, arithmetic)
    claimed = reach.threshold(reach.surely(), capacity, arithmetic)
    excess = Fraction(1 if reach.none_fits(most, arithmetic) else -1)
    # What changes cost may cancel what the worst job is worth.
    size = abs(claimed) + Fraction(total(given.prover.configurations.change_cost.tolist()))
    return proven, _claimed(max(proven, claimed), size), proven - lenient, excess


def _capacity(charged: Charged) -> Fraction:
    return sum((price * (row.limit - row.standing) for row, price in charged), Fraction(0))


def _tolerated(charged: Charged) -> Fraction:
    """What the checker lets decisions exceed their budgets by, at prices."""
    kinds = ("power", "energy", "goodput")
    limits = (abs(price) * row.limit for row, price in charged if row.kind in kinds)
    return Fraction(TOLERANCE) * sum(limits, Fraction(0))


def _claimed(bound: Fraction, size: Fraction, unit: Fraction = Fraction(1)) -> Fraction:
    """A bound, with the rounding of numbers of a size, which prices that cancel may make of any size.

    Parameters
    ----------
    unit : Fraction
        A millionth of it is as good as nothing.
    """
    nothing = unit / 10**6
    rounding = Fraction(CLAIM_TOLERANCE) * max(Fraction(1, 10**6), size)
    return bound + min(rounding, Fraction(TOLERANCE) * max(nothing, abs(bound)))


@dataclass(frozen=True)
class Row:
    """A row ``uses of the options <= limit - standing`` of the aggregated program; of a set ``= 0``.

    The least goodput is one from below, ``>= limit``, and is charged for less than nothing.

    Attributes
    ----------
    kind : {"room", "pieces", "cuts", "power", "energy", "worst", "share", "quota", "goodput"}
        What an option uses: its block or its GPUs, pieces of nodes, its watts or joules above idle (of a
        tenant all watts); or 1 by the first job of a set and -1 by another; GPUs of a tenant's quota. Rows
        of jobs in a bottleneck, and of ways to cut nodes up, are of no use to a proof.
    uses : mapping of Use to number
        How much of the row what an option pays for uses: of carbon, grams per joule.
    limit, standing : Fraction
        What there is, and what idle GPUs and nodes use of it whatever is decided.
    """

    kind: Literal["room", "pieces", "cuts", "power", "energy", "worst", "share", "quota", "goodput"]
    uses: Mapping[Use, int | Fraction]
    limit: Fraction = Fraction(0)
    standing: Fraction = Fraction(0)


def rows_of(instance: Instance, configurations: JobConfigurations) -> dict[str, Row]:
    """Rows of the aggregated program by name, also those that are implied by others."""
    pools = configurations.pools
    asleep = sleepers(instance, places_of(instance.cluster))
    free, capacities = free_gpus(instance, pools, asleep), {pool.capacity for pool in pools.values()}
    on_nodes = free_on_nodes(instance, pools, asleep) if "nodes" in capacities else {}
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
        rows["least_goodput"] = Row("goodput", {("goodput",): 1}, Fraction(least))
    if instance.objective in BOTTLENECK:
        rows |= dict.fromkeys((f"worst:{name}" for name in configurations.jobs.names), Row("worst", {}))
    return rows


def _block_rows(pool: Pool, free: Mapping[int, int]) -> dict[str, Row]:
    """Of every size of blocks: GPUs in blocks at least as large."""
    rows, name, whole = {}, pool.name, pool.gpus_per_node
    for size, gpus in free.items():
        uses: dict[Use, int] = {("room", name, block): block for block in free if block >= size}
        if size <= whole:  # the blocks of a node are the powers of two that its GPUs are the sum of
            uses["node", name] = -(whole - whole % size)
        rows[f"gpus:{name}" if size == 1 else f"buddy:{name}:{size}"] = Row("room", uses, Fraction(gpus))
    return rows


def _node_rows(pool: Pool, free: Mapping[int, int], counts: Iterable[int]) -> Iterator[tuple[str, Row]]:
    """Of every size what fits on the nodes: GPUs in sets of so many, and pieces of exactly so many.

    How many pieces of all sizes the nodes can be cut up into is for `_cut_up` to say, whatever they and the
    ways to cut nodes are priced at.
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


def _no_less_for_more(pools: dict[str, Pool], charged: Mapping[str, float]) -> Mapping[str, float]:
    """Charge larger pieces of nodes no less than smaller ones.

    Nodes could be cut up into those in their place, so the most that pieces are charged together stays the
    same, and no bound becomes weaker.
    """
    found = dict(charged)
    for name, pool in pools.items():
        sizes = [f"pieces:{name}:{size}" for size in range(1, pool.gpus_per_node + 1)]
        if pool.capacity == "nodes" and any(size in charged for size in sizes):
            most = accumulate((charged.get(size, 0.0) for size in sizes), max)
            found |= {size: charge for size, charge in zip(sizes, most, strict=True) if charge}
    return found


def _cut_up(
    instance: Instance, pools: dict[str, Pool], charged: Mapping[str, float]
) -> tuple[Fraction, dict[str, Fraction]]:
    """The most that pieces which nodes can be cut up into are charged together, each size its price.

    Returns
    -------
    most : Fraction
        Of all nodes that are awake whatever is decided.
    of_node : dict of str to Fraction
        Of a node, all of whose GPUs are free, by pool.
    """
    worth: dict[str, dict[int, Fraction]] = defaultdict(dict)
    for row, price in charged.items():
        if row.startswith("pieces:"):
            pool, _, size = row.removeprefix("pieces:").rpartition(":")
            worth[pool][int(size)] = Fraction(price)
    most, of_node = Fraction(0), dict[str, Fraction]()
    if not worth:
        return most, of_node
    free = free_on_nodes(instance, pools, sleepers(instance, places_of(instance.cluster)))
    for pool, prices in worth.items():
        best = [Fraction(0)]
        for gpus in range(1, pools[pool].gpus_per_node + 1):
            best.append(max([best[-1], *(best[gpus - s] + p for s, p in prices.items() if s <= gpus)]))
        most += sum((nodes * best[gpus] for gpus, nodes in free[pool].items()), Fraction(0))
        of_node[pool] = best[-1]
    return most, of_node


def sleeping_in(instance: Instance, pools: dict[str, Pool]) -> dict[Key, Sleeping]:
    """Nodes that sleep, all of whose GPUs are free, by pool and watts."""
    asleep = sleepers(instance, places_of(instance.cluster))
    return sleeping_of(instance, pools, entirely_free(instance, pools, asleep) if asleep.any() else {})


def _budget_rows(instance: Instance, pools: dict[str, Pool]) -> Iterator[tuple[str, Row]]:
    budgets, types = instance.budgets, instance.cluster.gpu_types
    places = places_of(instance.cluster)
    down = of_pools(places, sleepers(instance, places))
    standing_w = {
        name: Fraction(types[pool.gpu_type].idle_power_w) * (pool.available - pool.gpus_per_node * len(nodes))
        + _servers_w(pool)
        - _base_w(instance, nodes)
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
            yield f"power_w{name}", Row("power", uses, Fraction(limit_w), standing)
    standing_j = Fraction(0)
    if budgets.scope == "round":
        standing_j = sum(standing_w.values(), Fraction(0)) * Fraction(instance.round_s)
    if budgets.energy_j is not None:
        yield (
            "energy_j",
            Row("energy", {("joule",): 1, ("node_joule",): 1}, Fraction(budgets.energy_j), standing_j),
        )
    if budgets.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        grams = Fraction(instance.carbon_g_per_kwh) / J_PER_KWH
        uses_g: dict[Use, Fraction] = {("joule",): grams, ("node_joule",): grams}
        yield "carbon_g", Row("energy", uses_g, Fraction(budgets.carbon_g), standing_j * grams)


def _quota_rows(instance: Instance) -> Iterator[tuple[str, Row]]:
    """Of GPUs and watts of tenants' jobs."""
    for quota in quotas_of(instance):
        draws = quota.counts == "draw"
        uses: dict[Use, int] = {("draw" if draws else "gpus", name): 1 for name in quota.tenants}
        yield quota.name, Row("power" if draws else "quota", uses, Fraction(quota.limit))


def _servers_w(pool: Pool) -> Fraction:
    """Draw of a pool's servers without their GPUs, and of others' jobs there."""
    return _summed(np.concatenate([pool.base_power_w, pool.reserved_w]))


def _base_w(instance: Instance, nodes: IntArray) -> Fraction:
    """Base power of some nodes."""
    if not len(nodes):
        return Fraction(0)
    return _summed(instance.cluster.node_columns().numbers("base_power_w")[nodes])


def _summed(each_w: FloatArray) -> Fraction:
    """Sum without rounding."""
    watts, counts = np.unique(each_w, return_counts=True)
    known = zip(watts.tolist(), counts.tolist(), strict=True)
    return sum((Fraction(each_w) * count for each_w, count in known), Fraction(0))


def _share_rows(configurations: JobConfigurations) -> Iterator[tuple[str, Row]]:
    """A row for each job of a set but the first, in each pool."""
    for declared in configurations.instance.sets:
        first, *others = declared.rates
        for one in configurations.in_sets(first):
            if one.set == declared.name:
                pool = one.setting[0]
                for job in others:
                    uses: dict[Use, int] = {
                        ("share", one.set, pool, first): 1,
                        ("share", one.set, pool, job): -1,
                    }
                    yield f"share:{one.set}:{pool}:{job}", Row("share", uses)


def prices_of(rows: Mapping[str, Row], charged: Mapping[str, float]) -> RowPrices:
    """What options pay at charges of rows, which are negative at most for sets."""
    paid: dict[Use, Fraction] = defaultdict(Fraction)
    for name, charge in charged.items():
        for use, amount in rows[name].uses.items():
            paid[use] += Fraction(charge) * amount
    return paid
