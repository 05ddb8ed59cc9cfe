"""Few outcomes that matter: column generation with exact pricing, and all that may be in a better decision.

An LP over the outcomes known so far says what hosting a task of each profile is worth and what using a node
of each class costs. Outcomes that are better than these prices join (`pricing`), until there is none: the
prices then prove what every decision costs at least. Stopped before, the best prices met prove a little less.

A decision that uses an outcome costs at least that bound and the outcome's reduced cost. So once a decision
is known, only outcomes whose reduced cost is at most the gap matter, which are mostly few.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from wattsched.formulations.master import ColumnPool
from wattsched.formulations.placement.data import NodeStates, Window
from wattsched.formulations.placement.outcomes import OutcomeMaster, Outcomes, Prices, cheapest_of
from wattsched.formulations.placement.pricing import Pricing
from wattsched.formulations.timer import Timer
from wattsched.topology.arrays import IntArray

MOST_NEAR = 20_000
"""Outcomes that a program has at most besides those that were generated."""
_PER_CLASS = 5
"""Outcomes of a class that join the LP at once, at most."""
_WIDTHS = (300, 3_000)
"""Labels that pricing keeps: few until no outcome is found that way."""
_ROUNDING = 1e-9
_MIP_SHARE, _MIP_NODES = 0.4, 500
"""Share of the time, and nodes of branch and bound, for a decision over the outcomes generated."""
_HALVINGS = 6


class Found(NamedTuple):
    """Outcomes that a search found, how often they are used, and the prices that prove most.

    Attributes
    ----------
    outcomes : Outcomes
        K outcomes.
    nodes : (K,) int
        How many nodes use each of them in the best decision met.
    prices : Prices
    outside : float
        What decisions with other outcomes cost at least; infinite where these are no better than the one met.
    room : float
        Reduced cost that other outcomes have at least.
    """

    outcomes: Outcomes
    nodes: IntArray
    prices: Prices
    outside: float
    room: float


def search_outcomes(window: Window, timer: Timer) -> Found:
    """Search the outcomes of a window; where the timer is over, the search stops with what it has."""
    pricing, one_by_one = Pricing(window), place_one_by_one(window)
    prices, bound, pool = _relaxed(window, pricing, one_by_one, timer)
    used = _better(window, pool, one_by_one, bound, timer)
    gap = max(0.0, cost_of(window, used) - bound)
    # All that are in a better decision; of very many those that are in decisions up to another cost.
    outside, room = np.inf, gap + _ROUNDING * max(1.0, abs(bound), float(window.demand @ window.worth))
    near = None if timer.over() else pricing.within(prices, room, MOST_NEAR)
    for _ in range(_HALVINGS):
        if near is not None or timer.over():
            break
        room /= 2.0
        outside, near = bound + room, pricing.within(prices, room, MOST_NEAR)
    if near is None:
        outside, near, room = bound, pool, 0.0
    elif outside < np.inf:
        near = Outcomes.joined([near, pool])
    outcomes = cheapest_of(Outcomes.joined([near, used]))
    known, nodes = outcomes.numbers(), np.zeros(len(outcomes), dtype=np.int64)
    for key in zip(used.cls.tolist(), (row.tobytes() for row in used.hosted), strict=True):
        nodes[known[key]] += 1
    return Found(outcomes, nodes, prices, outside, room)


def cost_of(window: Window, used: Outcomes) -> float:
    """Cost of a decision by the outcomes of the nodes that it uses."""
    return float(used.cost.sum() + (window.demand - used.hosted.sum(axis=0)) @ window.worth)


def _relaxed(
    window: Window, pricing: Pricing, known: Outcomes, timer: Timer
) -> tuple[Prices, float, Outcomes]:
    """Prices that prove most of those met, the bound that they prove, and the outcomes of the LP.

    Prices are tried once at least, whatever the time.
    """
    master, count, widths = OutcomeMaster(window), window.classes.count, iter(_WIDTHS)
    best, bound, width, pool = master.prices(), -np.inf, next(widths), ColumnPool[Outcomes]()
    new = pool.add(known)
    while True:
        master.add(new.cls, new.hosted, new.cost)
        prices = master.prices()
        least, new = pricing(prices, _PER_CLASS, width)
        proven = float(window.demand @ prices.task_worth + count @ (least - prices.node_cost))
        if proven > bound:
            best, bound = prices, proven
        optimum = prices.cost + float(window.demand @ window.worth)
        size = max(1.0, abs(optimum), float(window.demand @ np.abs(prices.task_worth)))
        new = new.take(prices.reduced(new.cls, new.hosted, new.cost) < -_ROUNDING * size)
        # An LP's prices are of fewer digits than that: outcomes that have joined it may be found again.
        new = pool.add(new)
        closed = bound >= optimum - _ROUNDING * size
        if closed or timer.over() or (not len(new) and (width := next(widths, 0)) == 0):
            return best, bound, pool.all()


def _better(window: Window, pool: Outcomes, used: Outcomes, bound: float, timer: Timer) -> Outcomes:
    """Outcomes of a decision no worse than the one that is used, by branch and bound over a pool."""
    cost = cost_of(window, used)
    if timer.over() or cost - bound <= timer.gap * abs(cost):
        return used
    master = OutcomeMaster(window)
    master.add(pool.cls, pool.hosted, pool.cost)
    times = master.whole(timer.share(_MIP_SHARE), _MIP_NODES)
    if times is None:
        return used
    better = pool.take(np.repeat(np.arange(len(pool)), times.astype(np.int64)))
    return better if cost_of(window, better) < cost else used


def place_one_by_one(window: Window) -> Outcomes:
    """Outcomes of the nodes in use when each task was placed where it cost least, in the order of arrival."""
    classes, hosting, size, profiles = window.classes, window.hosting, len(window.tasks), len(window.demand)
    roots, most, unused = len(classes.count), len(classes.count) + size, classes.count.copy()
    # Rows: the classes, as long as they have unused nodes, then the nodes in use.
    cost, slot = np.zeros((most, profiles)), np.zeros((most, profiles), dtype=np.int64)
    cls, hosted = np.zeros(most, dtype=np.int64), np.zeros((most, profiles), dtype=np.int64)
    total, way, rows = np.zeros(most), np.full((2, most, size), -1), roots
    cls[:roots] = np.arange(roots)
    states: list[NodeStates] = [classes.states.take(np.array([row])) for row in range(roots)]
    if roots:
        cost[:roots], slot[:roots] = hosting.best(classes.states)
    for profile in window.profile.tolist():
        row = int(np.argmin(cost[:rows, profile])) if rows else 0
        if rows == 0 or np.isinf(cost[row, profile]):
            continue
        after = hosting.after(states[row], np.array([profile]), slot[[row], profile])
        at, added, used = row, cost[row, profile], slot[row, profile]
        if row < roots:
            unused[row] -= 1
            cost[row] = cost[row] if unused[row] else np.inf
            at, rows = rows, rows + 1
            cls[at] = row
            states.append(after)
        way[:, at, hosted[at].sum()] = profile, used
        hosted[at, profile] += 1
        total[at] += added
        states[at] = after
        (cost[at],), (slot[at],) = hosting.best(after)
    new = slice(roots, rows)
    return Outcomes(cls[new], hosted[new], total[new], np.zeros((rows - roots, 0)), way[0, new], way[1, new])
