"""Of all outcomes of a window, those that can be in a better decision than one already known."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.placement.outcome_beam import first_of_class
from wattsched.formulations.placement.outcome_master import OutcomeMaster, Prices
from wattsched.formulations.placement.outcomes import Demand, Found, Outcomes
from wattsched.topology.arrays import IntArray

_PER_CLASS = 5
_ROUNDING = 1e-9


def fixed(outcomes: Outcomes, found: Found, demand: Demand) -> Found:
    r"""Leave outcomes out by their reduced cost.

    At prices :math:`\pi` of tasks and :math:`\mu` of nodes, every decision costs at least

    .. math::
        L = \sum_p d_p (\pi_p - w_p) - \sum_c n_c \mu_c + \sum_c n_c \min(0, \min_{k\ \text{of}\ c} r_k),
        \quad r_k = c_k - \sum_p a_{kp} \pi_p + \mu_c

    and one that uses outcome k at least :math:`L + r_k - \min(0, \min r)`. The prices are those of the LP.

    Parameters
    ----------
    outcomes : Outcomes
        All outcomes of the window.
    found : Found
        Some of them, and a decision.
    demand : Demand
    """
    if len(outcomes) == 0:
        return found
    position = {_key(outcomes, k): k for k in range(len(outcomes))}
    known = np.array([position[_key(found.outcomes, k)] for k in range(len(found.outcomes))])
    used, times = known[found.nodes > 0], found.nodes[found.nodes > 0]
    prices = _prices(outcomes, known, demand)
    reduced = prices.reduced(outcomes.cls, outcomes.hosted, outcomes.cost)
    least = np.zeros(len(demand.count))
    np.minimum.at(least, outcomes.cls, reduced)
    bound = demand.tasks @ (prices.task_worth - demand.worth) + demand.count @ (least - prices.node_cost)
    cost = (outcomes.cost[used] - outcomes.hosted[used] @ demand.worth) @ times
    room = cost - bound + demand.ties + _ROUNDING * max(1.0, abs(cost), float(demand.tasks @ demand.worth))
    kept = reduced - least[outcomes.cls] <= room
    kept[used] = True
    nodes = np.zeros(len(outcomes), dtype=np.int64)
    nodes[used] = times
    return Found(outcomes.take(np.flatnonzero(kept)), nodes[kept])


def _key(outcomes: Outcomes, k: int) -> tuple[int, bytes]:
    return int(outcomes.cls[k]), outcomes.hosted[k].tobytes()


def _prices(outcomes: Outcomes, known: IntArray, demand: Demand) -> Prices:
    """Prices of the LP over all outcomes, by columns that it grows by, from those known."""
    master = OutcomeMaster(demand.tasks, demand.count, demand.worth)
    missing = np.ones(len(outcomes), dtype=bool)
    new = known
    while True:
        master.add(outcomes.cls[new], outcomes.hosted[new], outcomes.cost[new])
        missing[new] = False
        prices = master.prices()
        reduced = prices.reduced(outcomes.cls, outcomes.hosted, outcomes.cost)
        better = np.flatnonzero(missing & (reduced < -_ROUNDING * np.abs(outcomes.cost).max()))
        if len(better) == 0:
            return prices
        new = better[first_of_class(outcomes.cls[better], reduced[better], _PER_CLASS)]
