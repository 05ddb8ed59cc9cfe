r"""Proving the bound of a certificate again: row prices, and one pass over the options of every job.

Prices :math:`\lambda_r \ge 0` of the rows :math:`a_r x \le U^r` leave jobs that do not interact. Whatever the
prices are,

.. math:: L = \sum_j \min_{o \in O_j} \Big(c_{jo} + \sum_r \lambda_r a_{r,jo}\Big) - \sum_r \lambda_r U^r

is not above the cost of any decision. Rows that hold a set of jobs together are equalities: their prices have
either sign. Of a bottleneck objective the same prices prove a threshold (`least_cost`). Earlier certificates
also name rows :math:`c_j x_j \le z`, ``worst:JOB``: what they add up to is never above that threshold.

No code of formulations, solvers, the options' arrays or the topology's pools takes part in it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import FloatArray
from wattsched.verification.arithmetic import DOUBLES, RATIONALS, float_above, float_below
from wattsched.verification.report import CLAIM_TOLERANCE, TOLERANCE, Proof, charges
from wattsched.verification.sizing import blocks
from wattsched.verification.sizing.least_cost import (
    LeastCosts,
    NoOptionError,
    in_range,
    least_costs,
    reach_of,
)
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES, total
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.pools import Pool
from wattsched.verification.sizing.rows import (
    Row,
    RowPrices,
    awake_on_nodes,
    cost_of,
    counted_s,
    part_sizes,
    prices_of,
    rows_of,
    sleeping_in,
)
from wattsched.verification.sizing.splits import Allowed, Splits, States, states
from wattsched.verification.sizing.thresholds import Thresholds
from wattsched.verification.sizing.uncertainty import OBJECTIVE, Piece
from wattsched.verification.tree import Prover as ProverOfSplits
from wattsched.verification.tree import Taken

EXACT_OPTIONS = 10_000
"""Rational arithmetic takes some 40 microseconds for an option; larger rounds are proven in doubles."""


def prove(instance: Instance, prices: Mapping[str, object]) -> Proof:
    """Bound on the objective of an instance without faults that prices (as of `report.charges`) prove.

    Rows are those of `rows.rows_of`; those of sets are equalities. With prices of jobs, ``job:NAME``, blocks
    of pools keep the rows that have none (`blocks`), in doubles. Else rational arithmetic is used for small
    rounds, and for numbers near the ends of the range of doubles; doubles with a bound on their rounding for
    the rest.
    """
    return Prover(instance)(prices)


class Prover(ProverOfSplits):
    """Proves bounds on an instance's objective (as for `prove`), also of the decisions on sides of splits.

    The `rows` are those of the aggregated program, the `nodes` those that may sleep (`rows`).
    """

    def __init__(self, instance: Instance):
        self.instance, self.configurations, _ = decided(instance)
        self.nodes = sleeping_in(self.instance, self.configurations.pools)
        self.rows = rows_of(self.instance, self.configurations)
        self.sense = OBJECTIVES[instance.objective]
        self.splits = Splits(self.configurations)

    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound as `prove` does, on the decisions that some sides of splits leave (`splits`)."""
        shares = [name for name, row in self.rows.items() if row.kind == "share"]
        demands = [name for name, row in self.rows.items() if row.kind == "least"]
        limits = self.rows.keys() - {*shares, *demands}
        jobs = self._job_numbers if any(name.startswith(blocks.PREFIX) for name in prices) else {}
        equalities = {*shares, *jobs}
        charged, faults = charges(prices, limits, equalities, sense=self.sense, demands=demands)
        if faults:
            return Proof(faults)
        allowed, of_nodes = self.splits.allowed(taken), states(self.nodes, taken)
        try:
            self._require_configurations()
            owed = None
            if jobs:
                blocks.require_blocks(self.instance, sets=bool(shares), sleeping=bool(self.nodes))
                owed = np.array([-charged.pop(name, 0.0) for name in jobs])
            return self._proof(charged, allowed, of_nodes, self.thresholds.pieces(taken), owed)
        except NoOptionError:
            bound = math.inf if self.sense == "min" else -math.inf
            return Proof([], bound, bound, excess=math.inf, exact=True)
        except ValueError as error:
            return Proof([f"certificate: {error}"])

    def _proof(
        self,
        charged: Mapping[str, float],
        allowed: Allowed,
        of_nodes: States,
        worst: Mapping[str, Piece],
        owed: FloatArray | None = None,
    ) -> Proof:
        """Return the proof from charges for a unit of rows, and from what splits leave to jobs and nodes.

        Charged rows, and the objective, also use what their `worst` cases are at least. Where jobs have
        prices, as costs `owed`, rows that are not charged may be kept (`blocks`).
        """
        charged = _no_less_for_more(self.configurations.pools, charged)
        paid = prices_of(self.rows, charged)
        used = [(self.rows[name], Fraction(price)) for name, price in charged.items()]
        for name, piece in worst.items():
            if price := Fraction(1 if name == OBJECTIVE else charged.get(name, 0.0)):
                paid[piece] = price
                used.append((Row("room", {}, -piece.besides), price))
        pieces, of_node = self._cut_up(charged)
        least, size = self._least_of_nodes(paid, of_node, of_nodes)
        # What pieces and sleeping nodes add to the bound, as limits of rows that are charged 1.
        used += [(Row("room", {}, pieces), Fraction(1)), (Row("room", {}, -least), Fraction(1))]
        if self.instance.objective in BOTTLENECK:
            options, _ = self._options_at(paid)
            exact = options.arithmetic.exact
            proven, reach, leeway, excess = _bound_on_worst(self, options, paid, allowed, used)
        else:
            if owed is None:
                cheapest, exact = self.least_costs(paid, allowed)
            else:
                kept = blocks.blocks_of(self.rows, list(self.configurations.pools), charged)
                cheapest, exact = blocks.least_costs(self.near, paid, allowed, owed, kept), False
            proven, reach, leeway, excess = _bound_on_sum(self, cheapest, used, size)
        bound, honest = float_below(proven), float_above(reach)
        if self.sense == "max":
            bound, honest = -bound, -honest
        return Proof([], bound, honest, float_above(leeway), float_below(excess), exact)

    @cached_property
    def _job_numbers(self) -> dict[str, int]:
        """Numbers of the jobs, in their order, by the names of their prices."""
        return {blocks.PREFIX + name: number for number, name in enumerate(self.configurations.jobs.names)}

    @cached_property
    def thresholds(self) -> Thresholds:
        """Thresholds of the uncertain power caps and of the objective."""
        return Thresholds(self.instance, lambda: self.near, self.rows)

    def _cut_up(self, charged: Mapping[str, float]) -> tuple[Fraction, dict[str, Fraction]]:
        """Return the largest charge for pieces that nodes can be cut up into, each size at its price.

        Returns
        -------
        most : Fraction
            For all nodes together that are awake whatever is decided.
        of_node : dict of str to Fraction
            For one node whose GPUs are all free, by pool.
        """
        worth: dict[str, dict[int, Fraction]] = defaultdict(dict)
        for row, price in charged.items():
            if row.startswith("pieces:"):
                pool, _, size = row.removeprefix("pieces:").rpartition(":")
                worth[pool][int(size)] = Fraction(price)
        most, of_node = Fraction(0), dict[str, Fraction]()
        for pool, prices in worth.items():
            best = [Fraction(0)]  # by the number of free GPUs of a node
            for gpus in range(1, self.configurations.pools[pool].gpus_per_node + 1):
                best.append(max([best[-1], *(best[gpus - s] + p for s, p in prices.items() if s <= gpus)]))
            free = self._free_on_nodes[pool].items()
            most += sum((nodes * best[gpus] for gpus, nodes in free), Fraction(0))
            of_node[pool] = best[-1]
        return most, of_node

    @cached_property
    def _free_on_nodes(self) -> Mapping[str, Mapping[int, int]]:
        """Number of nodes by pool and free GPUs, of those that are awake whatever is decided."""
        return awake_on_nodes(self.instance)

    def _least_of_nodes(
        self, paid: RowPrices, pieces: Mapping[str, Fraction], of_nodes: States
    ) -> tuple[Fraction, Fraction]:
        """Return the least cost at prices of the nodes that may sleep, and the sum of its terms' magnitudes.

        Parameters
        ----------
        pieces : mapping of str to Fraction
            Largest charge for the pieces that one node of a pool can be cut up into.
        """
        least = size = nothing = Fraction(0)
        per_joule = paid.get(("node_joule",), nothing) * counted_s(self.instance)
        for key, (each_w, nodes) in self.nodes.items():
            pool, _ = key
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
        """Return the cost in the objective of all nodes that may sleep being awake."""
        each = (nodes * cost_of(self.instance, each_w) for each_w, nodes in self.nodes.values())
        return sum(each, Fraction(0))

    def least_costs(self, paid: RowPrices, allowed: Allowed) -> tuple[LeastCosts, bool]:
        """Return the jobs' least costs at prices among what splits allow; True if computed in rationals."""
        options, near = self._options_at(paid)
        return least_costs(options, paid, allowed, near), options.arithmetic.exact

    def _options_at(self, paid: RowPrices) -> tuple[Options, Options | None]:
        """Return options, in rationals if few or beyond doubles, and those in doubles, None where beyond."""
        near = self.near if in_range(self.near, paid) else None
        return self.exact if near is None or len(near) <= EXACT_OPTIONS else near, near

    def _require_configurations(self) -> None:
        """Refuse a round with a job that has no configuration, or whose configurations are unknown."""
        of = self.configurations
        for j in np.flatnonzero(np.diff(of.start)[of.kind] == 0).tolist():
            kind = int(of.kind[j])
            raise ValueError(of.unknown[kind]) if kind in of.unknown else NoOptionError

    @cached_property
    def near(self) -> Options:
        """Options in doubles."""
        return Options(self.instance, self.configurations, DOUBLES)

    @cached_property
    def exact(self) -> Options:
        """Options in rational numbers."""
        return Options(self.instance, self.configurations, RATIONALS)


Charged = Sequence[tuple[Row, Fraction]]
"""Rows, and the charge for a unit of each."""


def _bound_on_sum(
    prover: Prover, cheapest: LeastCosts, charged: Charged, nodes_size: Fraction
) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Return bound, reach, leeway and excess, as in `Proof`, where the objective is a sum over the jobs.

    Parameters
    ----------
    nodes_size : Fraction
        Sum of the magnitudes of the terms of sleeping nodes, as `LeastCosts.size` is of those of the jobs.
    """
    bound = cheapest.total - _capacity(charged)
    # An honest bound is off by some rounding of the terms that were added up, even where these cancel.
    of_rows = (abs(price) * (abs(row.limit) + row.standing) for row, price in charged)
    size = sum(of_rows, cheapest.size + nodes_size)
    if prover.instance.objective == "proportional":
        # A logarithm near 0 is as inexact as its argument, which is near 1.
        size += Fraction(total(prover.configurations.weight.tolist()))
    # Costs of changes may have cancelled costs of options before they got here.
    size += Fraction(total(prover.configurations.change_cost.tolist()))
    leeway = _tolerated(charged)
    # No decision costs more.
    most = cheapest.dearest + prover.dearest_nodes() + prover.thresholds.dearest()
    # The size of the costs alone: a forger could choose prices that make any rounding look honest.
    unit = max(Fraction(1), cheapest.worth + prover.dearest_nodes())
    reach = _claimed(bound.high, abs(bound.high) + size, unit)
    return bound.low, reach, leeway, bound.low - leeway - most


def _bound_on_worst(
    prover: Prover, options: Options, paid: RowPrices, allowed: Allowed, charged: Charged
) -> tuple[Fraction, Fraction, Fraction, Fraction]:
    """Return bound, reach, leeway and excess, as in `Proof`, where the objective is the worst job's value."""
    if not prover.instance.jobs:
        # What stands idle may exceed a limit by itself.
        fits = _capacity(charged) + _tolerated(charged) >= 0
        return Fraction(0), Fraction(0), Fraction(0), Fraction(-1 if fits else 1)
    reach, capacity = reach_of(options, paid, allowed), _capacity(charged)
    arithmetic = options.arithmetic
    proven = reach.threshold(reach.low, capacity, arithmetic)
    most = capacity + _tolerated(charged)
    lenient = reach.threshold(reach.low, most, arithmetic)
    claimed = reach.threshold(reach.surely(), capacity, arithmetic)
    excess = Fraction(1 if reach.none_fits(most, arithmetic) else -1)
    # Costs of changes may have cancelled costs of the worst job.
    size = abs(claimed) + Fraction(total(prover.configurations.change_cost.tolist()))
    return proven, _claimed(max(proven, claimed), size), proven - lenient, excess


def _capacity(charged: Charged) -> Fraction:
    """Return the worth, at the charges, of what rows leave for jobs."""
    return sum((price * (row.limit - row.standing) for row, price in charged), Fraction(0))


def _tolerated(charged: Charged) -> Fraction:
    """Return what it is worth, at prices, that the checker lets decisions exceed budgets a little."""
    kinds = ("power", "energy", "least", "most")
    limits = (abs(price * row.limit) for row, price in charged if row.kind in kinds)
    return Fraction(TOLERANCE) * sum(limits, Fraction(0))


def _claimed(bound: Fraction, size: Fraction, unit: Fraction = Fraction(1)) -> Fraction:
    """Return the best bound that honest arithmetic may have found where exact arithmetic gives this one.

    Parameters
    ----------
    size : Fraction
        Sum of the magnitudes of the terms, for their rounding. Prices may make it of any size, so the
        checker's tolerance limits the rounding.
    unit : Fraction
        Magnitude of the costs: bounds below a millionth of it have the same tolerance.
    """
    nothing = unit / 10**6
    rounding = Fraction(CLAIM_TOLERANCE) * max(Fraction(1, 10**6), size)
    return bound + min(rounding, Fraction(TOLERANCE) * max(nothing, abs(bound)))


def _no_less_for_more(pools: dict[str, Pool], charged: Mapping[str, float]) -> Mapping[str, float]:
    """Raise the price of a larger piece of a node to that of any smaller one.

    A node that can be cut into the larger piece can be cut into the smaller one instead. So the largest
    charge for pieces stays the same, and no bound becomes weaker.
    """
    raised = dict(charged)
    for name, pool in pools.items():
        sizes = [f"pieces:{name}:{size}" for size in range(1, pool.gpus_per_node + 1)]
        if pool.capacity == "nodes" and any(size in charged for size in sizes):
            most = accumulate((charged.get(size, 0.0) for size in sizes), max)
            raised |= {size: charge for size, charge in zip(sizes, most, strict=True) if charge}
    return raised
