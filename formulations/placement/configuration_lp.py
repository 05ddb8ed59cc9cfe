"""Configuration LP of placement: how few watts any placement needs, how much GPU any placement can allocate.

A *pattern* is a multiset of task profiles that one node hosts (`node_patterns`). Nodes that are alike share
their patterns, so that the LP counts, for each node type, how many nodes carry which pattern, and how many
tasks of each profile are accepted (rows and proof: `Prices.bound_w`). Every placement, online or offline, is
a point of it whose cost is its power:

* GPU: shares packed into single GPUs and whole GPUs are exact in every pattern, and so is the GPU power;
* CPU: exact up to a unit of the dynamic programme, with rounding that lets more fit at less power;
* the GPU models that a task allows, and nodes that are too small for it by themselves: exact;
* memory: of all nodes of a type together only;
* nodes are counted in fractions, and tasks may move at any time for free.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.placement.column_generation import ColumnGeneration, PatternPool
from wattsched.formulations.placement.node_types import NodeTypes
from wattsched.formulations.placement.pattern_prices import Accepted, Objective, Prices
from wattsched.formulations.placement.pattern_pricing import PatternPricing, Patterns
from wattsched.instances.placement.tables import TaskTable
from wattsched.topology.arrays import BoolArray, FloatArray

MOST_UNITS = 2560
GAP = 1e-4
ROUNDS = 1000
POWER = Objective()
CARRYING = 1e-9
"""Nodes that a pattern of the best mix is on at least."""


@dataclass(frozen=True)
class PatternBound:
    """What the configuration LP says.

    Parameters
    ----------
    bound_w : float
        No placement costs less; infinite if none can accept what it must.
    cost_w : float
        Cost of the best mix of patterns that was found; the LP's optimum lies between the two.
    prices : Prices
        The prices that prove the bound.
    patterns : Patterns
        Patterns of the best mix.
    nodes : (P,) float
        Nodes that carry each of them.
    accepted : (M,) float
        Tasks of each profile in it.
    rounds : int
        Rounds of column generation after the first.
    """

    bound_w: float
    cost_w: float
    prices: Prices
    patterns: Patterns
    nodes: FloatArray
    accepted: FloatArray
    rounds: int


class PatternProgram:
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
        self._pricing = PatternPricing(types, profiles, most_units)
        self.hostable: BoolArray = np.asarray(self._pricing.admits.any(axis=0))
        _least, offers = self._pricing.best(np.zeros(len(profiles)), np.zeros(len(types)), 1.0, per_type=1)
        self._pool = PatternPool(self._pricing.patterns(offers))
        self._centre: dict[Objective, FloatArray] = {}
        self._proofs: defaultdict[Objective, list[Prices]] = defaultdict(list)

    def solve(
        self,
        accepted: Accepted,
        objective: Objective = POWER,
        gap: float = GAP,
        rounds: int = ROUNDS,
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
        generation = ColumnGeneration(
            self.types,
            self.profiles,
            self._pricing,
            self._pool,
            accepted.only(self.hostable),
            objective,
            self._centre.get(objective),
        )
        done = generation.run(gap, rounds)
        self._centre[objective] = generation.centre
        self._proofs[objective].append(generation.prices)
        patterns, nodes = self._pool.all(), generation.solution.nodes
        carrying = np.flatnonzero(nodes > CARRYING)
        return PatternBound(
            bound_w=generation.bound_w,
            cost_w=generation.solution.cost_w,
            prices=generation.prices,
            patterns=patterns.take(carrying),
            nodes=nodes[carrying],
            accepted=generation.solution.accepted,
            rounds=done,
        )

    def known_bound_w(self, accepted: Accepted, objective: Objective = POWER) -> float:
        """Best bound that the prices of past solves for this objective prove; arguments as of `solve`."""
        accepted = accepted.only(self.hostable)
        return max(
            (p.bound_w(self.types, self.profiles, accepted, objective) for p in self._proofs[objective]),
            default=-np.inf,
        )
