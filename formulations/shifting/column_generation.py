"""The LP over the schedules found so far: shares that add up to one per job, under cells and budgets.

Column generation for shifting: an LP proposes prices, dynamic programming answers with schedules.

The LP's prices jump about, so schedules are asked for between them and the best prices so far (Wentges 1997).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csc_array

from wattsched.formulations.growing_lp import solve_growing
from wattsched.formulations.shifting.data import CRITERIA, Horizon
from wattsched.formulations.shifting.pricing import Prices, SchedulePricing, priced_cost
from wattsched.formulations.shifting.schedule import SchedulePool, Schedules, free_cells, held_gpus
from wattsched.formulations.timer import Timer
from wattsched.topology.arrays import FloatArray, IntArray

_FIRST_LIMIT = 10.0
_RAISE = 10.0


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


def coupling(horizon: Horizon, schedules: Schedules) -> csc_array:
    """Use of cells, then budgets that have a limit, by schedules, shape (n_rows, n_schedules)."""
    from scipy.sparse import coo_array, vstack

    which, cell, gpus = held_gpus(horizon, schedules)
    n_cells = horizon.n_pools * horizon.slots
    cells = coo_array((gpus.astype(np.float64), (cell, which)), shape=(n_cells, len(schedules)))
    budgets = schedules.criteria[:, limited(horizon)].T
    return csc_array(vstack([cells.tocsc(), csc_array(budgets)], format="csc"))


def limited(horizon: Horizon) -> IntArray:
    """Criteria with a budget."""
    return np.flatnonzero(np.isfinite(horizon.budget))


class RestrictedMaster:
    """An LP that grows by columns.

    Parameters
    ----------
    objective : int
        Number of the criterion to minimise.
    typical : Schedules
        One schedule per job, for the sizes of numbers.
    """

    def __init__(self, horizon: Horizon, objective: int, typical: Schedules):
        import highspy

        self._horizon, self._objective = horizon, objective
        self._which = limited(horizon)
        self._n_cells = horizon.n_pools * horizon.slots
        sums = np.maximum(typical.criteria.sum(axis=0), 1e-9)
        self._unit = float(sums[objective]) / max(1, horizon.n_jobs)
        limits = (horizon.budget - horizon.standing)[self._which]
        self._scale = np.concatenate([np.ones(self._n_cells), np.maximum(np.abs(limits), sums[self._which])])
        self._limit = _FIRST_LIMIT
        self._highs: Any = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        upper = np.concatenate([free_cells(horizon), limits]) / self._scale
        ones = np.ones(horizon.n_jobs)
        lower = np.concatenate([np.full(len(upper), -np.inf), ones])
        upper = np.concatenate([upper, ones])
        none = np.zeros(0)
        self._highs.addRows(len(upper), lower, upper, 0, _ints(0 * upper), _ints(none), none)
        self._n_rows = len(self._scale)
        self._n_spare = len(upper)
        sign = np.concatenate([np.full(self._n_rows, -1.0), ones])
        self._add(csc_array(np.diag(sign)), self._spare_cost())

    def _spare_cost(self) -> FloatArray:
        """A GPU too many or a job too few costs some jobs' typical cost, a budget too much that of all."""
        n = self._horizon.n_jobs
        each = np.ones(self._n_cells), np.full(self._n_rows - self._n_cells, float(n)), np.full(n, 10.0)
        return self._limit * np.concatenate(each)

    def raise_limits(self) -> None:
        """Let prices rise higher."""
        self._limit *= _RAISE
        self._highs.changeColsCost(self._n_spare, _ints(np.arange(self._n_spare)), self._spare_cost())

    def add(self, schedules: Schedules) -> None:
        """Add columns."""
        from scipy.sparse import coo_array, vstack

        n = len(schedules)
        rows = coupling(self._horizon, schedules)
        rows.data /= self._scale[rows.indices]
        of_job = coo_array((np.ones(n), (schedules.job, np.arange(n))), shape=(self._horizon.n_jobs, n))
        matrix = csc_array(vstack([rows, of_job.tocsc()], format="csc"))
        self._add(matrix, schedules.criteria[:, self._objective] / self._unit)

    def _add(self, matrix: csc_array, cost: FloatArray) -> None:
        n = len(cost)
        start, index = _ints(matrix.indptr[:-1]), _ints(matrix.indices)
        lower, upper = np.zeros(n), np.full(n, np.inf)
        self._highs.addCols(n, cost, lower, upper, matrix.nnz, start, index, matrix.data)

    def solve(self) -> MasterSolution:
        """Solve the LP.

        Raises
        ------
        RuntimeError
            If HiGHS does not find the optimum.
        """
        solve_growing(self._highs, "schedules")
        solution = self._highs.getSolution()
        dual, value = np.array(solution.row_dual), np.array(solution.col_value)
        charged = np.maximum(0.0, -dual[: self._n_rows]) * self._unit / self._scale
        criteria = np.zeros(len(CRITERIA))
        criteria[self._which] = charged[self._n_cells :]
        criteria[self._objective] += 1.0
        return MasterSolution(
            cost=float(self._highs.getInfo().objective_function_value) * self._unit,
            share=value[self._n_spare :],
            prices=Prices(criteria, charged[: self._n_cells]),
            of_job=dual[self._n_rows :] * self._unit,
            exceeds=bool(value[: self._n_spare].max(initial=0.0) > 1e-7),
        )


def _ints(values: Any) -> Any:
    return np.asarray(values, dtype=np.int32)


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
    pool, master = SchedulePool(), RestrictedMaster(horizon, objective, first[0])
    for schedules in first:
        master.add(pool.add(schedules))
    solution = master.solve()
    center = solution.prices if prices is None else prices
    best_value, smoothing, rounds, raised = -np.inf, 0.0 if prices is None else 1.0, 0, 0
    while rounds < MOST_ROUNDS and not timer.over():
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
