"""Column generation for the configuration LP.

An LP over the patterns known so far proposes prices of the tasks, the dynamic programme finds the best
patterns of each type at these prices, and `Prices.bound_w` holds at all prices met on the way, so that
stopping early costs tightness only. The LP's prices jump about: they are smoothed towards the best so far
(Wentges 1997).
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.placement.node_types import NodeTypes
from wattsched.formulations.placement.pattern_prices import TOTALS, Accepted, Objective, Prices, sizes
from wattsched.formulations.placement.pattern_pricing import Offer, PatternPricing, Patterns
from wattsched.formulations.placement.restricted_master import MasterSolution, RestrictedMaster
from wattsched.instances.placement.tables import TaskTable
from wattsched.topology.arrays import FloatArray

SMOOTHING = 0.7
LEAST_SMOOTHING = 0.2
PER_TYPE = 6
"""Patterns that a round adds per node type at most."""
FIRST_LIMIT, LAST_LIMIT = 4.0, 4.0**7
"""Limits of prices, in multiples of a task's usual watts: what is scarce is worth more than those."""
MISSING = 1e-6
"""Tasks and amounts that the LP may lack before prices must rise."""
IMPROVING_W = 1e-7


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
    types : NodeTypes
        K node types.
    profiles : TaskTable
        M profiles.
    pricing : PatternPricing
    pool : PatternPool
        Patterns to start with; it grows.
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
    solution : MasterSolution
        The last optimum of the LP.
    """

    solution: MasterSolution

    def __init__(
        self,
        types: NodeTypes,
        profiles: TaskTable,
        pricing: PatternPricing,
        pool: PatternPool,
        accepted: Accepted,
        objective: Objective,
        centre: FloatArray | None,
    ):
        self._types, self._profiles, self._pricing, self._pool = types, profiles, pricing, pool
        self._accepted, self._objective = accepted, objective
        self._usual_w = usual_w(types, profiles, objective)
        if centre is None:
            totals = [objective.gpu_reward_w, 0.0, 0.0]
            centre = np.concatenate([self._usual_w[:-TOTALS], totals, np.zeros(len(types))])
        self._master = RestrictedMaster(
            types, profiles, pricing.packed, self._accepted, objective.weight, objective.gpu_reward_w
        )
        self._master.add(pool.all())
        self._limit = FIRST_LIMIT
        self._master.limit(self._limit * self._usual_w)
        self._pull = SMOOTHING
        self.centre = centre
        self.prices, _offers = self._priced(centre)
        self.bound_w = self._bound_w(self.prices)

    def run(self, gap: float, rounds: int) -> int:
        """Go on until bound and LP agree up to a relative gap; return the rounds it took."""
        for done in range(rounds):
            self.solution = self._master.solve()
            offers = self._look_between()
            if self.bound_w == np.inf:
                return done
            cost_w = self.solution.cost_w
            agree = cost_w - self.bound_w <= gap * max(abs(cost_w), 1.0)
            if (agree or not self._grow(offers)) and not self._raise_limit():
                return done
        return rounds

    def _look_between(self) -> list[Offer]:
        """Bound at prices between the best ones and the LP's, and return the patterns found there."""
        solution = self.solution
        total = solution.total + np.array([self._objective.gpu_reward_w, 0.0, 0.0])
        proposed = np.maximum(np.concatenate([solution.profile, total, -solution.memory]), 0.0)
        trial = self._pull * self.centre + (1 - self._pull) * proposed
        prices, offers = self._priced(trial)
        bound_w = self._bound_w(prices)
        if bound_w > self.bound_w:
            self.bound_w, self.prices, self.centre = bound_w, prices, trial
        return offers

    def _priced(self, vector: FloatArray) -> tuple[Prices, list[Offer]]:
        profile, total, memory = np.split(vector, np.cumsum([len(self._profiles), TOTALS]))
        profile = np.where(self._pricing.packed, profile, 0.0)
        node, offers = self._pricing.best(profile, memory, self._objective.weight, PER_TYPE)
        return Prices(profile, total, memory, node), offers

    def _bound_w(self, prices: Prices) -> float:
        return prices.bound_w(self._types, self._profiles, self._accepted, self._objective)

    def _grow(self, offers: list[Offer]) -> bool:
        """Add patterns that lower the LP's optimum, or else look closer to its prices; False if done so."""
        solution, patterns = self.solution, self._pricing.patterns(offers)
        cost_w = self._objective.weight * patterns.power_w - patterns.hosted @ solution.profile
        cost_w -= solution.node[patterns.type] + solution.memory[patterns.type] * patterns.memory_mib
        new = self._pool.add(patterns.take(np.flatnonzero(cost_w < -IMPROVING_W)))
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
