"""Configuration LP of placement: how few watts any placement needs, how much GPU any placement can allocate.

A *pattern* is a multiset of task profiles that one node hosts (`configuration_pricing`). Nodes that are alike
share their patterns, so that the LP counts, for each node type, how many nodes carry which pattern, and how
many tasks of each profile are accepted (rows and proof: `ConfigurationLp.proven_w`). Every placement, online
or offline, is a point of it whose cost is its power:

* GPU: shares packed into single GPUs and whole GPUs are exact in every pattern, and so is the GPU power;
* CPU: exact up to a unit of the dynamic programme, with rounding that lets more fit at less power;
* the GPU models that a task allows, and nodes that are too small for it by themselves: exact;
* memory: of all nodes of a type together only;
* nodes are counted in fractions, and tasks may move at any time for free.

Columns are generated: an LP over the patterns known so far proposes prices of the tasks, the dynamic
programme finds the best patterns of each type at these prices, and `ConfigurationLp.proven_w` holds at all
prices met on the way, so that stopping early costs tightness only. The LP's prices oscillate: they are
smoothed towards the best so far (Wentges 1997).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csc_array, vstack

from wattsched.formulations.master import ColumnPool, LpOptimum, RestrictedMaster
from wattsched.formulations.placement.configuration_pricing import (
    PatternPricing,
    Patterns,
    PricedPattern,
)
from wattsched.formulations.placement.node_types import node_types, profile_classes
from wattsched.formulations.tolerances import ROUNDING
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.perfmodels.node_power import VCPU_PER_CORE, NodePower
from wattsched.topology.arrays import FloatArray, IntArray

MOST_UNITS = 2560
GAP = 1e-4
ROUNDS = 1000

SMOOTHING = 0.7
LEAST_SMOOTHING = 0.2
"""Weight of the best prices so far in those that patterns are priced at; below the least it is 0."""
PER_TYPE = 6
"""Patterns that a round adds per node type at most."""
FIRST_LIMIT, LAST_LIMIT = 4.0, 4.0**7
"""Limits of prices, in multiples of a task's usual watts: scarce tasks are worth more than those."""
MISSING = 1e-6
"""Total of artificial columns above which the limit of prices is raised."""
IMPROVING_W = 1e-7
"""Watts by which the reduced cost of a pattern that is added is below 0."""


@dataclass(frozen=True)
class Objective:
    """Cost of a placement: `weight` times its power, less a reward per GPU that its tasks request."""

    weight: float = 1.0
    gpu_reward_w: float = 0.0

    @property
    def rewards_w(self) -> FloatArray:
        """Watts per GPU, per vCPU and per task, shape (3,)."""
        return np.array([self.gpu_reward_w, 0.0, 0.0])


POWER, ALLOCATION = Objective(), Objective(weight=0.0, gpu_reward_w=1.0)


@dataclass(frozen=True)
class Hosted:
    """Lower bounds on the total request of the tasks on the cluster, and on their number."""

    gpus: float = 0.0
    vcpus: float = 0.0
    tasks: float = 0.0


class Accepted(NamedTuple):
    """Limits on the tasks that a placement hosts of those that have arrived.

    Attributes
    ----------
    least, most : (M,) float
        Fewest and most tasks of each profile.
    totals : (3,) float
        Least total of GPUs and vCPUs that the hosted tasks request, and of their number.
    """

    least: FloatArray
    most: FloatArray
    totals: FloatArray


class Prices(NamedTuple):
    """Duals of the configuration LP in watts, all at least 0 but those of nodes.

    Attributes
    ----------
    profile : (M,) float
        Per hosted task.
    total : (3,) float
        Per GPU and per vCPU that the hosted tasks ask for together, and per task.
    memory : (K,) float
        Per MiB of the nodes of each type.
    node : (K,) float
        Least cost of a pattern of each type: its power, and its memory at its price, less the price of the
        tasks that it hosts.
    """

    profile: FloatArray
    total: FloatArray
    memory: FloatArray
    node: FloatArray


class PatternBound(NamedTuple):
    """Bound of the configuration LP, and the cost of its best mix of patterns.

    Attributes
    ----------
    bound_w : float
        No placement costs less; infinite if none can accept what it must.
    cost_w : float
        Cost of the best mix of patterns that was found; the LP's optimum lies between the two.
    """

    bound_w: float
    cost_w: float


class ConfigurationLp:
    """Configuration LP of a cluster; the patterns and prices of a solve speed up the next ones.

    Parameters
    ----------
    nodes : NodeTable
    requests : TaskTable
        Distinct requests that may arrive, R of them, as `TaskTable.profiles` has them first.
    power : NodePower, optional
        Power of the nodes; without it as `node_types`.
    most_units : int
        Units that the CPU of the largest node is divided into, at most: more are tighter and slower.

    Attributes
    ----------
    types : NodeTypes
        K kinds of nodes.
    profiles : TaskTable
        M classes of requests that are equivalent in the LP.
    sizes : (3, M) float
        GPUs and vCPUs that one task of each profile requests, and 1.
    pool : ColumnPool
        Patterns found so far.
    """

    def __init__(
        self,
        nodes: NodeTable,
        requests: TaskTable,
        power: NodePower | None = None,
        most_units: int = MOST_UNITS,
    ):
        self.types, self._gpus = node_types(nodes, power), float(nodes.gpus.sum())
        self.profiles, self._profile_of = profile_classes(self.types, requests)
        each = [self.profiles.demand_milli / 1000, self.profiles.cpu_milli / 1000]
        self.sizes: FloatArray = np.array([*each, np.ones(len(self.profiles))])
        self.pricing = PatternPricing(self.types, self.profiles, most_units)
        # No placement accepts tasks that do not fit onto the empty cluster.
        self._hostable = self.pricing.admits.any(axis=0)
        # A pattern of each type to begin with: at prices of 0, nodes without tasks.
        _, empty = self.pricing.best(np.zeros(len(self.profiles)), np.zeros(len(self.types)), 1.0, per_type=1)
        self.pool: ColumnPool[Patterns] = ColumnPool()
        self.pool.add(self.pricing.patterns(empty))
        self._centre: dict[Objective, FloatArray] = {}
        self._proofs: defaultdict[Objective, list[Prices]] = defaultdict(list)

    def least_power(
        self,
        arrived: ArrayLike,
        hosted: Hosted | None = None,
        gap: float = GAP,
        rounds: int = ROUNDS,
    ) -> PatternBound:
        """Bound the power of the cluster from below; ``bound_w`` is infinite if no placement can host that.

        Parameters
        ----------
        arrived : (R,) float
            Tasks of each request that have arrived.
        hosted : Hosted, optional
            What is on the cluster. Without it, everything that would fit onto the empty cluster by itself.
        gap : float
            Difference between the bound and the LP's optimum to stop at, relative.
        rounds : int
            Rounds of column generation at most, 1 at least.



        Raises
        ------
        RuntimeError
            If HiGHS fails.
        """
        return self._solve(self._accepted_limits(arrived, hosted), POWER, gap, rounds)

    def most_allocated_gpus(self, arrived: ArrayLike, gap: float = GAP, rounds: int = ROUNDS) -> float:
        """Bound the GPUs that hosted tasks request together from above; arguments as of `least_power`."""
        bound = self._solve(self._accepted_limits(arrived, Hosted()), ALLOCATION, gap, rounds)
        return min(-bound.bound_w, self._gpus)

    def task_prices_w(self, arrived: ArrayLike, refused_w: float, gap: float = GAP) -> FloatArray:
        """Watts that hosting one more task of each profile costs when a GPU may be refused, shape (M,).

        These are duals at the least cost: power, and `refused_w` per GPU that refused tasks request. Other
        arguments as of `least_power`.
        """
        objective = Objective(gpu_reward_w=refused_w)
        self._solve(self._accepted_limits(arrived, Hosted()), objective, gap, ROUNDS)
        return self._proofs[objective][-1].profile

    def known_power_w(self, arrived: ArrayLike, hosted: Hosted | None = None) -> float:
        """Return the best bound on the power that prices found so far prove, without solving anything."""
        return self._best_proven_w(self._accepted_limits(arrived, hosted), POWER)

    def known_allocated_gpus(self, arrived: ArrayLike) -> float:
        """Return the best bound from above on the allocated GPUs that prices found so far prove."""
        return min(-self._best_proven_w(self._accepted_limits(arrived, Hosted()), ALLOCATION), self._gpus)

    def hostable(self, arrived: ArrayLike) -> Hosted:
        """Return the total request of the arrived tasks that fit onto the empty cluster by themselves."""
        return Hosted(*(self.sizes @ self._accepted_limits(arrived, None).most).tolist())

    def _accepted_limits(self, arrived: ArrayLike, hosted: Hosted | None) -> Accepted:
        """Sum arrivals by profile, as limits; without `hosted` every task that fits anywhere is accepted."""
        n_arrived = np.bincount(self._profile_of, np.asarray(arrived, np.float64), len(self.profiles))
        most: FloatArray = np.where(self._hostable, n_arrived, 0.0)
        if hosted is None:
            return Accepted(least=most, most=most, totals=np.zeros(3))
        totals = np.array([hosted.gpus, hosted.vcpus, hosted.tasks], dtype=float)
        return Accepted(least=0 * most, most=most, totals=totals)

    def _solve(self, accepted: Accepted, objective: Objective, gap: float, rounds: int) -> PatternBound:
        """Generate columns from the objective's last prices on, and keep the prices that prove most."""
        generation = ColumnGeneration(self, accepted, objective, self._centre.get(objective))
        cost_w = generation.run(gap, rounds)
        self._centre[objective] = generation.centre
        self._proofs[objective].append(generation.prices)
        return PatternBound(generation.bound_w, cost_w)

    def _best_proven_w(self, accepted: Accepted, objective: Objective) -> float:
        """Best bound of the objective's prices so far on the cost of placements, -inf without any."""
        proofs = self._proofs[objective]
        return max((self.proven_w(prices, accepted, objective) for prices in proofs), default=-np.inf)

    def proven_w(self, prices: Prices, accepted: Accepted, objective: Objective) -> float:
        """Compute the lower bound that prices prove on the cost of any placement of these tasks.

        With x_p the nodes that carry pattern p, a_pm the tasks of profile m in it, q_m the accepted tasks and
        s_rm their sizes, any placement, whenever and in whichever order it was decided, satisfies ::

            sum over p of a_pm x_p  >= q_m           sum over patterns p of type k of x_p        =  N_k
            sum over m of s_rm q_m  >= totals_r      sum over patterns p of type k of mem_p x_p  <=  N_k MEM_k
            least_m <= q_m <= most_m

        Subtract the slack of these rows from the cost, at prices that are at least 0 (Lagrangian relaxation):
        the rest is no more than the cost, and decomposes by profile and type ::

            cost >= sum_r total_r totals_r + sum_k N_k (node_k - memory_k MEM_k)
                    + sum_m min over q in [least_m, most_m] of q (profile_m - sum_r total_r s_rm)
            node_k = min over patterns p of type k of power_p + memory_k mem_p - sum_m profile_m a_pm

        or anything below that minimum. No step needs the prices to be optimal. For fixed prices the right
        side is linear in (totals, least, most) together, so at the means of these over several runs it
        bounds the mean of their costs; the best such bound, a maximum of linear functions, is convex
        (Jensen: at the means it is no more than the mean of the single bounds).

        ``prices.node`` is computed under the same objective, whose reward is a part of the price of GPUs. The
        bound is infinite if above the cost of the busiest cluster: then no placement meets the limits.
        """
        types = self.types
        reduced_w = prices.profile - prices.total @ self.sizes
        terms = np.concatenate(
            [
                (prices.total - objective.rewards_w) * accepted.totals,
                types.count * prices.node,
                -types.count * types.nodes.memory_mib * prices.memory,
                np.where(reduced_w > 0, accepted.least, accepted.most) * reduced_w,
            ]
        )
        bound_w = float(terms.sum() - ROUNDING * np.abs(terms).sum())
        return np.inf if bound_w > objective.weight * types.most_power_w() else bound_w


class ColumnGeneration:
    """One solve of the configuration LP, whose rows are those of `ConfigurationLp.proven_w`.

    Parameters
    ----------
    lp : ConfigurationLp
        Of K node types and M profiles; its pool of patterns grows.
    accepted : Accepted
    objective : Objective
    centre : (M + 3 + K,) float, optional
        Prices of profiles, totals and memory to start with.

    Attributes
    ----------
    bound_w : float
        Best bound so far; infinite when no placement can accept what it must.
    prices : Prices
        The prices that prove it.
    centre : (M + 3 + K,) float
        These prices as one vector: the stability centre.
    """

    def __init__(
        self, lp: ConfigurationLp, accepted: Accepted, objective: Objective, centre: FloatArray | None
    ):
        self._lp, self._accepted, self._objective = lp, accepted, objective
        self._rows = np.cumsum([len(lp.profiles), 3, len(lp.types)])
        self._price_scale_w = self._typical_prices_w()
        if centre is None:
            centre = np.concatenate([self._price_scale_w[:-3], objective.rewards_w, np.zeros(len(lp.types))])
        self._master, self._artificial = self._build_master()
        self._add(lp.pool.all())
        self._price_limit = FIRST_LIMIT
        self._master.change_costs(self._artificial, self._price_limit * self._price_scale_w)
        self._smoothing = SMOOTHING
        self.centre = centre
        self.prices, _priced = self._price_patterns(centre)
        self.bound_w = lp.proven_w(self.prices, accepted, objective)

    def run(self, gap: float, rounds: int) -> float:
        """Generate columns until bound and LP agree up to a relative gap, or for `rounds` rounds.

        Returns
        -------
        float
            The LP's last optimum: with artificial columns at 0, an upper bound on that over all patterns.
        """
        cost_w = np.inf
        for _ in range(rounds):
            optimum = self._master.solve()
            cost_w, priced = optimum.cost, self._bound_between(optimum)
            if self.bound_w == np.inf:
                break
            agree = cost_w - self.bound_w <= gap * max(abs(cost_w), 1.0)
            if (agree or not self._add_improving(optimum, priced)) and not self._raise_price_limit(optimum):
                break
        return cost_w

    def _typical_prices_w(self) -> FloatArray:
        """Return a price of usual size for each row of profiles, GPUs, vCPUs and tasks, shape (M + 3,).

        These scale the artificial columns' costs. A price is what the watts of one unit cost on an average
        node; that of tasks is the mean over the profiles.
        """
        objective, power, count = self._objective, self._lp.types.power, self._lp.types.count
        added_gpu_w = power.gpu_full_w - power.gpu_idle_w
        added_vcpu_w = (power.package_full_w - power.package_idle_w) / (VCPU_PER_CORE * power.package_cores)
        gpu_w = objective.weight * float(np.average(added_gpu_w, weights=count * power.gpus))
        vcpu_w = objective.weight * float(np.average(added_vcpu_w, weights=count))
        per_size_w = np.array([gpu_w + objective.gpu_reward_w, vcpu_w, 0.0])
        profile_w = per_size_w @ self._lp.sizes
        return np.concatenate([profile_w, per_size_w[:2], [profile_w.mean()]])

    def _build_master(self) -> tuple[RestrictedMaster, IntArray]:
        """Build the LP without patterns; return it and its artificial columns, for profiles and totals.

        These keep it feasible while patterns are few; their costs are upper limits of their rows' duals.
        """
        lp, accepted = self._lp, self._accepted
        profiles, types = len(lp.profiles), len(lp.types)
        count = lp.types.count.astype(np.float64)
        master = RestrictedMaster("patterns")
        master.add_rows(np.concatenate([np.zeros(profiles), accepted.totals]), np.inf)
        master.add_rows(count, count)
        master.add_rows(np.full(types, -np.inf), count * lp.types.nodes.memory_mib)
        packed = np.diag(np.where(lp.pricing.packed, -1.0, 0.0))
        taken = csc_array(np.vstack([packed, lp.sizes, np.zeros((2 * types, profiles))]))
        reward_w = -self._objective.gpu_reward_w * lp.sizes[0]
        master.add_columns(taken, reward_w, lower=accepted.least, upper=accepted.most)
        return master, master.add_columns(csc_array(np.eye(master.n_rows, profiles + 3)), 0.0)

    def _add(self, patterns: Patterns) -> None:
        """Add patterns as columns: the tasks that they host, their node type, and its memory."""
        kind = csc_array((np.arange(len(self._lp.types))[:, None] == patterns.type).astype(np.float64))
        hosted = csc_array(patterns.hosted.T.astype(np.float64))
        rows = [hosted, csc_array((3, len(patterns))), kind, kind * patterns.memory_mib]
        self._master.add_columns(csc_array(vstack(rows)), self._objective.weight * patterns.power_w)

    def _bound_between(self, optimum: LpOptimum) -> list[PricedPattern]:
        """Compute the bound at prices between the best ones and the LP's; return the patterns found there."""
        profile, total, _node, memory = np.split(optimum.prices, self._rows)
        proposed = np.maximum(np.concatenate([profile, total + self._objective.rewards_w, -memory]), 0.0)
        trial = self._smoothing * self.centre + (1 - self._smoothing) * proposed
        prices, priced = self._price_patterns(trial)
        bound_w = self._lp.proven_w(prices, self._accepted, self._objective)
        if bound_w > self.bound_w:
            self.bound_w, self.prices, self.centre = bound_w, prices, trial
        return priced

    def _price_patterns(self, vector: FloatArray) -> tuple[Prices, list[PricedPattern]]:
        """Complete a vector of prices of profiles, totals and memory; also return the best patterns."""
        profile, total, memory = np.split(vector, self._rows[:2])
        profile = np.where(self._lp.pricing.packed, profile, 0.0)
        node, priced = self._lp.pricing.best(profile, memory, self._objective.weight, PER_TYPE)
        return Prices(profile, total, memory, node), priced

    def _add_improving(self, optimum: LpOptimum, priced: list[PricedPattern]) -> bool:
        """Add patterns of negative reduced cost, or else smooth less; False if neither is possible."""
        profile, _total, node, memory = np.split(optimum.prices, self._rows)
        patterns = self._lp.pricing.patterns(priced)
        reduced_w = self._objective.weight * patterns.power_w - patterns.hosted @ profile
        reduced_w -= node[patterns.type] + memory[patterns.type] * patterns.memory_mib
        new = self._lp.pool.add(patterns.take(np.flatnonzero(reduced_w < -IMPROVING_W)))
        if len(new):
            self._add(new)
            self._smoothing = SMOOTHING
            return True
        if self._smoothing == 0:
            return False
        self._smoothing = self._smoothing / 2 if self._smoothing > LEAST_SMOOTHING else 0.0
        return True

    def _raise_price_limit(self, optimum: LpOptimum) -> bool:
        """Raise the limit if artificial columns are in use; False if none is, or it is at its largest."""
        if optimum.x[self._artificial].sum() <= MISSING or self._price_limit >= LAST_LIMIT:
            return False
        self._price_limit *= FIRST_LIMIT
        self._master.change_costs(self._artificial, self._price_limit * self._price_scale_w)
        self._smoothing = SMOOTHING
        return True
