"""Column generation for shifting: an LP proposes prices, dynamic programming answers with schedules.

The LP's prices jump about, so schedules are asked for between them and the best prices so far (Wentges 1997).
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.shifting.horizon import Horizon
from wattsched.formulations.shifting.prices import Prices
from wattsched.formulations.shifting.restricted_master import MasterSolution, RestrictedMaster
from wattsched.formulations.shifting.schedule import Schedules, free_cells
from wattsched.formulations.shifting.schedule_pool import SchedulePool
from wattsched.formulations.shifting.schedule_pricing import SchedulePricing, priced_cost

SMOOTHING = 0.6
"""Share of the best prices so far."""
MOST_ROUNDS = 300
MOST_RAISES = 3
"""How often prices may rise tenfold before rows that are exceeded are taken to be impossible."""
TOLERANCE = 5e-4
"""Gap between the LP and the prices' bound, relative to the LP, at which rounds end."""


@dataclass(frozen=True)
class Generated:
    """What column generation leaves.

    Attributes
    ----------
    pool : SchedulePool
    master : MasterSolution
        Of the last LP, over all schedules of the pool.
    prices : Prices
        Best found.
    rounds : int
    feasible : bool
        Whether the LP keeps all rows.
    """

    pool: SchedulePool
    master: MasterSolution
    prices: Prices
    rounds: int
    feasible: bool


def generate(
    horizon: Horizon,
    objective: int,
    pricing: SchedulePricing,
    first: list[Schedules],
    time_s: float | None = None,
    prices: Prices | None = None,
) -> Generated:
    """Generate schedules until prices are about as good as they get.

    Parameters
    ----------
    first : list of Schedules
        To begin with, the first of them with a schedule for every job.
    prices : Prices, optional
        Good ones, from earlier rounds.
    """
    begin = time.perf_counter()
    pool, master = SchedulePool(), RestrictedMaster(horizon, objective, first[0])
    for schedules in first:
        master.add(pool.add(schedules))
    solution = master.solve()
    center = solution.prices if prices is None else prices
    best_value, smoothing, rounds, raised = -np.inf, 0.0 if prices is None else 1.0, 0, 0
    while rounds < MOST_ROUNDS and (time_s is None or time.perf_counter() - begin < time_s):
        rounds += 1
        asked = center.mixed(solution.prices, smoothing)
        schedules = pricing.cheapest(asked)
        if (value := guess(horizon, objective, schedules, asked)) > best_value:
            center, best_value = asked, value
        new = pool.add(_improving(horizon, schedules, solution))
        master.add(new)
        closed = solution.cost - best_value <= TOLERANCE * abs(solution.cost)
        if not closed and not len(new) and smoothing > 0:
            smoothing = 0.0
            continue
        if closed or not len(new):
            if not solution.exceeds or raised == MOST_RAISES:
                break
            master.raise_limits()
            raised, best_value = raised + 1, -np.inf
        smoothing = SMOOTHING
        solution = master.solve()
    if len(solution.share) < len(pool):
        solution = master.solve()
    return Generated(pool, solution, center, rounds, not solution.exceeds)


def guess(horizon: Horizon, objective: int, schedules: Schedules, prices: Prices) -> float:
    """Bound that prices would prove if these schedules were the cheapest, without the standing part."""
    over = prices.criteria - (np.arange(len(prices.criteria)) == objective)
    charged = over > 0
    charges = over[charged] @ (horizon.budget - horizon.standing)[charged]
    total = priced_cost(horizon, schedules, prices).sum()
    return float(total - charges - prices.gpu @ free_cells(horizon))


def _improving(horizon: Horizon, schedules: Schedules, solution: MasterSolution) -> Schedules:
    """Schedules that the LP would use."""
    cost = priced_cost(horizon, schedules, solution.prices)
    least = solution.of_job[schedules.job]
    return schedules.take(np.flatnonzero(cost < least - 1e-9 * np.maximum(np.abs(least), 1e-9)))
