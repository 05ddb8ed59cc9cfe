"""Configuration LP of placement: how few watts any placement needs, how much GPU any placement can allocate.

A *pattern* is a multiset of task profiles that one node hosts (`configuration_pricing`). Nodes that are alike
share their patterns, so that the LP counts, for each node type, how many nodes carry which pattern, and how
many tasks of each profile are accepted (rows and proof: `Prices.bound_w`). Every placement, online or
offline, is a point of it whose cost is its power:

* GPU: shares packed into single GPUs and whole GPUs are exact in every pattern, and so is the GPU power;
* CPU: exact up to a unit of the dynamic programme, with rounding that lets more fit at less power;
* the GPU models that a task allows, and nodes that are too small for it by themselves: exact;
* memory: of all nodes of a type together only;
* nodes are counted in fractions, and tasks may move at any time for free.

Columns are generated: an LP over the patterns known so far proposes prices of the tasks, the dynamic
programme finds the best patterns of each type at these prices, and `Prices.bound_w` holds at all prices met
on the way, so that stopping early costs tightness only. The LP's prices jump about: they are smoothed towards
the best so far (Wentges 1997).
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from scipy.sparse import csc_array, vstack

from wattsched.formulations.placement.configuration_prices import (
    TOTALS,
    Accepted,
    NodeTypes,
    Objective,
    Prices,
    sizes,
)
from wattsched.formulations.placement.configuration_pricing import PatternPricing, Patterns, PricedPattern
from wattsched.formulations.placement.master import RestrictedMaster
from wattsched.instances.placement.tables import TaskTable
from wattsched.topology.arrays import BoolArray, FloatArray

MOST_UNITS = 2560
GAP = 1e-4
ROUNDS = 1000
POWER = Objective()

SMOOTHING = 0.7
LEAST_SMOOTHING = 0.2
PER_TYPE = 6
"""Patterns that a round adds per node type at most."""
FIRST_LIMIT, LAST_LIMIT = 4.0, 4.0**7
"""Limits of prices, in multiples of a task's usual watts: what is scarce is worth more than those."""
MISSING = 1e-6
"""Tasks and amounts that the LP may lack before prices must rise."""
IMPROVING_W = 1e-7


class PatternBound(NamedTuple):
    """What the configuration LP says.

    Attributes
    ----------
    bound_w : float
        No placement costs less; infinite if none can accept what it must.
    cost_w : float
        Cost of the best mix of patterns that was found; the LP's optimum lies between the two.
    prices : Prices
        The prices that prove the bound.
    """

    bound_w: float
    cost_w: float
    prices: Prices


class PatternPool:
    """Patterns found so far, each of them once.

    Parameters
    ----------
    patterns : Patterns
        The first ones, at least one.
    """

    def __init__(self, patterns: Patterns):
        self._known: set[bytes] = set()
        self._parts: list[Patterns] = []
        self.add(patterns)

    def add(self, patterns: Patterns) -> Patterns:
        """Keep those that are new, and return them."""
        keys = np.column_stack([patterns.type, patterns.gpus, patterns.hosted])
        new = []
        for position, key in enumerate(row.tobytes() for row in keys):
            if key not in self._known:
                self._known.add(key)
                new.append(position)
        kept = patterns.take(np.array(new, dtype=np.int64))
        if new:
            self._parts.append(kept)
        return kept

    def all(self) -> Patterns:
        """All of them, the oldest first."""
        self._parts = [Patterns.joined(self._parts)]
        return self._parts[0]


class ConfigurationLp:
    """The configuration LP of a cluster and the profiles of its tasks; a solve learns from those before it.

    Parameters
    ----------
    types : NodeTypes
        K node types.
    profiles : TaskTable
        M profiles of tasks.
    most_units : int
        Units that the CPU of the largest node is divided into, at most: more are tighter and slower.

    Attributes
    ----------
    hostable : (M,) bool
        Profiles of which a task fits onto the empty cluster. No placement accepts any of the others.
    """

    def __init__(self, types: NodeTypes, profiles: TaskTable, most_units: int = MOST_UNITS):
        self.types, self.profiles = types, profiles
        self.pricing = PatternPricing(types, profiles, most_units)
        self.hostable: BoolArray = np.asarray(self.pricing.admits.any(axis=0))
        _least, priced = self.pricing.best(np.zeros(len(profiles)), np.zeros(len(types)), 1.0, per_type=1)
        self.pool = PatternPool(self.pricing.patterns(priced))
        self._centre: dict[Objective, FloatArray] = {}
        self._proofs: defaultdict[Objective, list[Prices]] = defaultdict(list)

    def solve(
        self, accepted: Accepted, objective: Objective = POWER, gap: float = GAP, rounds: int = ROUNDS
    ) -> PatternBound:
        """Bound the cost of a placement.

        Parameters
        ----------
        accepted : Accepted
            What it must and may host.
        objective : Objective
            What it costs.
        gap : float
            Difference between the bound and the LP's optimum to stop at, relative.
        rounds : int
            Rounds of column generation at most, 1 at least.

        Raises
        ------
        RuntimeError
            If HiGHS fails.
        """
        accepted = accepted.only(self.hostable)
        generation = ColumnGeneration(self, accepted, objective, self._centre.get(objective))
        generation.run(gap, rounds)
        self._centre[objective] = generation.centre
        self._proofs[objective].append(generation.prices)
        return PatternBound(generation.bound_w, generation.solution.cost_w, generation.prices)

    def known_bound_w(self, accepted: Accepted, objective: Objective = POWER) -> float:
        """Best bound that the prices of past solves for this objective prove; arguments as of `solve`."""
        accepted = accepted.only(self.hostable)
        return max(
            (p.bound_w(self.types, self.profiles, accepted, objective) for p in self._proofs[objective]),
            default=-np.inf,
        )


class MasterOptimum(NamedTuple):
    """Optimum of the LP over some patterns.

    Attributes
    ----------
    cost_w : float
        The optimum: with nothing missing, an upper bound on that over all patterns.
    profile, total, node, memory : (M,), (3,), (K,), (K,) float
        Duals of the rows; those of memory are at most 0, those of node types of any sign, the others at
        least 0.
    missing : float
        Tasks and amounts that the LP paid for not having.
    """

    cost_w: float
    profile: FloatArray
    total: FloatArray
    node: FloatArray
    memory: FloatArray
    missing: float


class PatternMaster:
    """The rows of `Prices.bound_w` as an LP that grows by patterns.

    Parameters
    ----------
    types : NodeTypes
        K node types.
    profiles : TaskTable
        M profiles.
    packed : (M,) bool
        Profiles that need a place in a pattern.
    accepted : Accepted
    objective : Objective
    """

    def __init__(
        self,
        types: NodeTypes,
        profiles: TaskTable,
        packed: BoolArray,
        accepted: Accepted,
        objective: Objective,
    ):
        self._weight, self._profiles, self._types = objective.weight, len(profiles), len(types)
        demands = self._profiles + TOTALS
        count = types.count.astype(np.float64)
        lower = np.concatenate(
            [np.zeros(self._profiles), accepted.totals, count, np.full(len(count), -np.inf)]
        )
        upper = np.concatenate([np.full(demands, np.inf), count, count * types.nodes.memory_mib])
        self._lp = RestrictedMaster("patterns")
        self._lp.add_rows(lower, upper)
        size = sizes(profiles)
        rest = csc_array((2 * self._types, self._profiles))
        taken = csc_array(vstack([csc_array(np.diag(np.where(packed, -1.0, 0.0))), csc_array(size), rest]))
        reward = -objective.gpu_reward_w * size[0]
        self._lp.add_columns(taken, reward, lower=accepted.least, upper=accepted.most)
        self._missing = self._lp.add_columns(csc_array(np.eye(len(lower), demands)), 0.0)

    def limit(self, missing_w: FloatArray) -> None:
        """Set the watts for a task of each profile, a GPU, a vCPU and a task too few, shape (M + 3,).

        They keep the LP feasible while patterns are few, and are what the duals of these rows can be at most.
        """
        self._lp.change_costs(self._missing, missing_w)

    def add(self, patterns: Patterns) -> None:
        """Add patterns."""
        kind = csc_array((np.arange(self._types)[:, None] == patterns.type).astype(np.float64))
        hosted = csc_array(patterns.hosted.T.astype(np.float64))
        rows = [hosted, csc_array((TOTALS, len(patterns))), kind, kind * patterns.memory_mib]
        self._lp.add_columns(csc_array(vstack(rows)), self._weight * patterns.power_w)

    def solve(self) -> MasterOptimum:
        """Optimum over the patterns so far.

        Raises
        ------
        RuntimeError
            If HiGHS does not find it.
        """
        optimum = self._lp.solve()
        rows = np.cumsum([self._profiles, TOTALS, self._types])
        profile, total, node, memory = np.split(optimum.prices, rows)
        missing = float(optimum.x[self._missing].sum())
        return MasterOptimum(optimum.cost, profile, total, node, memory, missing)


def usual_w(types: NodeTypes, profiles: TaskTable, objective: Objective) -> FloatArray:
    """Watts for a task of each profile, a GPU, a vCPU and a task by a usual GPU and CPU, shape (M + 3,)."""
    power = types.power
    of_gpu = power.gpu_full_w - power.gpu_idle_w
    of_vcpu = (power.package_full_w - power.package_idle_w) / (2 * power.package_cores)
    gpu_w = objective.weight * float(np.average(of_gpu, weights=types.count * power.gpus))
    vcpu_w = objective.weight * float(np.average(of_vcpu, weights=types.count))
    each = np.array([gpu_w + objective.gpu_reward_w, vcpu_w, 0.0])
    profile = each @ sizes(profiles)
    return np.concatenate([profile, each[:2], [profile.mean()]])


class ColumnGeneration:
    """One solve of the configuration LP.

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
        The same as one vector.
    solution : MasterOptimum
        The last optimum of the LP.
    """

    solution: MasterOptimum

    def __init__(
        self, lp: ConfigurationLp, accepted: Accepted, objective: Objective, centre: FloatArray | None
    ):
        self._lp, self._accepted, self._objective = lp, accepted, objective
        self._usual_w = usual_w(lp.types, lp.profiles, objective)
        if centre is None:
            totals = [objective.gpu_reward_w, 0.0, 0.0]
            centre = np.concatenate([self._usual_w[:-TOTALS], totals, np.zeros(len(lp.types))])
        self._master = PatternMaster(lp.types, lp.profiles, lp.pricing.packed, accepted, objective)
        self._master.add(lp.pool.all())
        self._limit = FIRST_LIMIT
        self._master.limit(self._limit * self._usual_w)
        self._pull = SMOOTHING
        self.centre = centre
        self.prices, _priced = self._priced(centre)
        self.bound_w = self._bound_w(self.prices)

    def run(self, gap: float, rounds: int) -> None:
        """Go on until bound and LP agree up to a relative gap, or for so many rounds."""
        for _ in range(rounds):
            self.solution = self._master.solve()
            priced = self._look_between()
            if self.bound_w == np.inf:
                return
            cost_w = self.solution.cost_w
            agree = cost_w - self.bound_w <= gap * max(abs(cost_w), 1.0)
            if (agree or not self._grow(priced)) and not self._raise_limit():
                return

    def _look_between(self) -> list[PricedPattern]:
        """Bound at prices between the best ones and the LP's, and return the patterns found there."""
        solution = self.solution
        total = solution.total + np.array([self._objective.gpu_reward_w, 0.0, 0.0])
        proposed = np.maximum(np.concatenate([solution.profile, total, -solution.memory]), 0.0)
        trial = self._pull * self.centre + (1 - self._pull) * proposed
        prices, priced = self._priced(trial)
        bound_w = self._bound_w(prices)
        if bound_w > self.bound_w:
            self.bound_w, self.prices, self.centre = bound_w, prices, trial
        return priced

    def _priced(self, vector: FloatArray) -> tuple[Prices, list[PricedPattern]]:
        profile, total, memory = np.split(vector, np.cumsum([len(self._lp.profiles), TOTALS]))
        profile = np.where(self._lp.pricing.packed, profile, 0.0)
        node, priced = self._lp.pricing.best(profile, memory, self._objective.weight, PER_TYPE)
        return Prices(profile, total, memory, node), priced

    def _bound_w(self, prices: Prices) -> float:
        return prices.bound_w(self._lp.types, self._lp.profiles, self._accepted, self._objective)

    def _grow(self, priced: list[PricedPattern]) -> bool:
        """Add patterns that lower the LP's optimum, or else look closer to its prices; False if done so."""
        solution, patterns = self.solution, self._lp.pricing.patterns(priced)
        cost_w = self._objective.weight * patterns.power_w - patterns.hosted @ solution.profile
        cost_w -= solution.node[patterns.type] + solution.memory[patterns.type] * patterns.memory_mib
        new = self._lp.pool.add(patterns.take(np.flatnonzero(cost_w < -IMPROVING_W)))
        if len(new):
            self._master.add(new)
            self._pull = SMOOTHING
            return True
        if self._pull == 0:
            return False
        self._pull = self._pull / 2 if self._pull > LEAST_SMOOTHING else 0.0
        return True

    def _raise_limit(self) -> bool:
        """Let prices be higher if the LP still lacks something; False if not, or if they are high enough."""
        if self.solution.missing <= MISSING or self._limit >= LAST_LIMIT:
            return False
        self._limit *= FIRST_LIMIT
        self._master.limit(self._limit * self._usual_w)
        self._pull = SMOOTHING
        return True
