"""Few outcomes that matter: column generation over a tree of outcomes.

An LP over the outcomes known so far says what hosting a task of each profile is worth and what using a node
of each class costs. A beam search then looks, on all classes at once, for outcomes that are better than these
prices; they join, until none is found. The first outcomes are those of placing the tasks one by one.

Decisions in whole nodes need more than what an LP likes to mix. So the LP's optimum is rounded and completed
one by one, and outcomes met on the way are taken too that could be in a better decision than this one.

The search is no proof: outcomes that it does not meet could be better still.
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.placement.hosting import Hosting
from wattsched.formulations.placement.node_classes import NodeClasses
from wattsched.formulations.placement.outcome_beam import better_states
from wattsched.formulations.placement.outcome_master import OutcomeMaster, Prices
from wattsched.formulations.placement.outcome_pool import OutcomePool
from wattsched.formulations.placement.outcome_tree import OutcomeTree
from wattsched.formulations.placement.outcomes import Demand, Found
from wattsched.topology.arrays import IntArray

NEARBY = 1_000
ROUNDS = 60
MOST_STATES = 100_000


def search_outcomes(
    hosting: Hosting,
    classes: NodeClasses,
    demand: Demand,
    width: int,
    nearby: int = NEARBY,
    rounds: int = ROUNDS,
    most_states: int = MOST_STATES,
) -> Found:
    """Search the outcomes of a window.

    Parameters
    ----------
    hosting : Hosting
    classes : NodeClasses
        C classes of nodes.
    demand : Demand
    width : int
        Outcomes of a class that the beam follows at once. The search begins with one and doubles it
        whenever nothing is found.
    nearby : int
        Outcomes to return at most besides those that were better at some prices.
    rounds : int
        Prices to try at most.
    most_states : int
        States to visit, about.
    """
    arrivals, worth, count = demand.arrivals, demand.worth, demand.count
    tree = OutcomeTree(hosting, classes.states, demand.tasks, most_states)
    if tree.roots == 0:
        return Found(tree.outcomes(np.arange(0)), np.zeros(0, dtype=np.int64))
    pool = OutcomePool(tree, OutcomeMaster(demand.tasks, count, worth))
    decisions = [pool.one_by_one(np.zeros(0, dtype=np.int64), arrivals, count)]
    beam, prices = 1, pool.prices()
    for _ in range(rounds):
        new = pool.add(better_states(tree, prices, beam))
        if new == 0 and beam >= width:
            break
        beam = beam if new else min(2 * beam, width)
        prices = pool.prices()
    decisions.append(pool.one_by_one(pool.rounded(prices.nodes, demand.tasks, count), arrivals, count))
    prices = pool.prices()
    costs = [float((tree.cost[states] - tree.hosted[states] @ worth).sum()) for states in decisions]
    best = int(np.argmin(costs))
    room = costs[best] - prices.cost + demand.ties
    near = _near(tree, prices, room, nearby)
    states, outcome = tree.distinct(np.concatenate([decisions[best], pool.states, near]))
    nodes = np.bincount(outcome[: len(decisions[best])], minlength=len(states))
    return Found(tree.outcomes(states), nodes)


def _near(tree: OutcomeTree, prices: Prices, room: float, most: int) -> IntArray:
    """States met that cost at most `room` more than their prices, and of these the `most` that cost least."""
    met = np.arange(tree.roots, len(tree))
    reduced = prices.reduced(tree.cls[met], tree.hosted[met], tree.cost[met])
    return met[np.argsort(reduced, kind="stable")[:most][np.sort(reduced)[:most] <= room]]
