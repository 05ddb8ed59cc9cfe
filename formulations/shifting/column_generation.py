"""Column generation for shifting: an LP proposes prices, dynamic programming answers with schedules.

The LP takes shares of the schedules found so far that add up to one per job, under cells and budgets. Its
prices jump about, so schedules are asked for between them and the best prices so far (Wentges 1997).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.master import RestrictedMaster
from wattsched.formulations.program import Entries
from wattsched.formulations.shifting.columns import (
    Prices,
    SchedulePool,
    Schedules,
    add_uses,
    lagrangian,
    priced_cost,
    row_limits,
)
from wattsched.formulations.shifting.data import CRITERIA, Horizon
from wattsched.formulations.shifting.pricing import SchedulePricing
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import ROUNDING
from wattsched.topology.arrays import BoolArray, FloatArray

FIRST_LIMIT, RAISE = 10.0, 10.0
"""Limit of prices in multiples of a job's typical cost, and what it is multiplied by when it binds."""
SMOOTHING = 0.6
"""Share of the best prices so far."""
MOST_ROUNDS = 300
MOST_RAISES = 3
"""Number of tenfold raises of prices after which rows that are exceeded are taken to be impossible."""
MOST_OF_A_LIMIT = 1e9
"""Most that a column may use of a limit, relative to it: HiGHS takes no columns beyond 1e15."""
TOLERANCE = 5e-4
"""Gap between the LP and the prices' bound, relative to the LP, at which rounds end."""
EXCEEDED = 1e-7
"""Excess of a row over its limit, relative to it, that counts as none."""


@dataclass(frozen=True)
class MasterSolution:
    """Optimum of the LP.

    Attributes
    ----------
    cost : float
        With what exceeds the rows charged at the limits of prices; without the standing part.
    share : float array, shape (n_schedules,)
        In the order in which schedules were added.
    prices : Prices
    of_job : float array, shape (n_jobs,)
        Dual of choosing one schedule of the job.
    exceeds : bool
        Whether a row is exceeded: prices have to be allowed to rise, or there is no decision.
    """

    cost: float
    share: FloatArray
    prices: Prices
    of_job: FloatArray
    exceeds: bool


class ScheduleMaster:
    """The LP over schedules, with spare columns that let rows be exceeded and jobs be left out.

    Parameters
    ----------
    objective : int
        Number of the criterion to minimise.
    typical : Schedules
        One schedule per job, for the sizes of numbers.
    """

    def __init__(self, horizon: Horizon, objective: int, typical: Schedules):
        self._horizon, self._objective, self._limit = horizon, objective, FIRST_LIMIT
        n, limits = horizon.n_jobs, row_limits(horizon)
        sums = np.maximum(typical.criteria.sum(axis=0), ROUNDING)
        self._unit = float(sums[objective]) / max(1, n)
        of_budgets = np.maximum(np.abs(limits[horizon.n_cells :]), sums[horizon.limited])
        self._scale = np.concatenate([np.ones(horizon.n_cells), of_budgets])
        self._lp = RestrictedMaster("schedules", unit=self._unit)
        rows = self._lp.add_rows(-np.inf, limits / self._scale)
        jobs = self._lp.add_rows(np.ones(n), 1.0)
        spare = Entries()
        spare.add(rows, rows, -1.0)
        spare.add(jobs, jobs)
        self._spare = self._lp.add_columns(spare.matrix(self._lp.n_rows, self._lp.n_rows), self._spare_cost())

    def _spare_cost(self) -> FloatArray:
        """A GPU too many or a job too few costs some jobs' typical cost, a budget too much that of all."""
        n, cells = self._horizon.n_jobs, self._horizon.n_cells
        each = np.ones(cells), np.full(len(self._scale) - cells, float(n)), np.full(n, 10.0)
        return self._limit * self._unit * np.concatenate(each)

    def raise_limits(self) -> None:
        """Let prices rise higher."""
        self._limit *= RAISE
        self._lp.change_costs(self._spare, self._spare_cost())

    def add(self, schedules: Schedules) -> None:
        """Add columns."""
        entries, n = Entries(), len(schedules)
        add_uses(entries, self._horizon, schedules)
        entries.add(len(self._scale) + schedules.job, np.arange(n))
        matrix = entries.matrix(self._lp.n_rows, n)
        matrix.data /= np.append(self._scale, np.ones(self._horizon.n_jobs))[matrix.indices]
        matrix.data = np.minimum(matrix.data, MOST_OF_A_LIMIT)
        self._lp.add_columns(matrix, schedules.criteria[:, self._objective])

    def restrict(self, keep: BoolArray) -> None:
        """Allow only some of the schedules, by the order in which they were added."""
        columns = len(self._spare) + np.arange(len(keep))
        self._lp.change_upper(columns, np.where(keep, np.inf, 0.0))

    def solve(self) -> MasterSolution:
        """Solve the LP.

        Raises
        ------
        RuntimeError
            If HiGHS does not find the optimum.
        """
        horizon, optimum = self._horizon, self._lp.solve()
        of_rows, of_job = np.split(optimum.prices, [len(self._scale)])
        gpu, budgets = np.split(np.maximum(0.0, -of_rows) / self._scale, [horizon.n_cells])
        criteria = np.zeros(len(CRITERIA))
        criteria[horizon.limited] = budgets
        criteria[self._objective] += 1.0
        spare, share = np.split(optimum.x, [len(self._spare)])
        exceeds = bool(spare.max(initial=0.0) > EXCEEDED)
        return MasterSolution(optimum.cost, share, Prices(criteria, gpu), of_job, exceeds)


@dataclass(frozen=True)
class Generated:
    """Result of column generation.

    Attributes
    ----------
    pool : SchedulePool
    master : MasterSolution
        Of the last LP, over all schedules of the pool.
    prices : Prices
        Best found.
    """

    pool: SchedulePool
    master: MasterSolution
    prices: Prices


def generate(
    horizon: Horizon,
    objective: int,
    pricing: SchedulePricing,
    first: list[Schedules],
    timer: Timer,
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
    pool, master = SchedulePool(), ScheduleMaster(horizon, objective, first[0])
    for schedules in first:
        master.add(pool.add(schedules))
    solution = master.solve()
    center = solution.prices if prices is None else prices
    best_value, smoothing, raised = -np.inf, 0.0 if prices is None else 1.0, 0
    for _ in range(MOST_ROUNDS):
        if timer.over():
            break
        asked = center.mixed(solution.prices, smoothing)
        schedules = pricing.cheapest(asked)
        if (value := lagrangian(horizon, objective, schedules, asked)) > best_value:
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
    return Generated(pool, solution, center)


def _improving(horizon: Horizon, schedules: Schedules, solution: MasterSolution) -> Schedules:
    """Schedules that the LP would use."""
    cost = priced_cost(horizon, schedules, solution.prices)
    least = solution.of_job[schedules.job]
    return schedules.take(np.flatnonzero(cost < least - ROUNDING * np.maximum(np.abs(least), ROUNDING)))
