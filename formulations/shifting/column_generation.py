"""Column generation for shifting: an LP proposes prices, dynamic programming answers with schedules.

The LP takes shares of the schedules found so far that add up to one per job, under cells and budgets. Its
prices jump about, so schedules are asked for between them and the best prices so far (Wentges 1997).

Decisions to begin with come from prices, too: schedules of large shares in the LP stay, and the other jobs
take their cheapest schedules one after the other, from the GPUs that are left: once the likeliest first, and
once those of most weight per GPU second (Smith 1956). They may exceed budgets, or miss deadlines.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.formulations.master import RestrictedMaster
from wattsched.formulations.program import Entries
from wattsched.formulations.shifting.columns import (
    Prices,
    SchedulePool,
    Schedules,
    add_uses,
    amounts,
    is_valid,
    lagrangian,
    least_of_jobs,
    priced_cost,
    row_limits,
    use,
)
from wattsched.formulations.shifting.data import CRITERIA, Horizon
from wattsched.formulations.shifting.pricing import SchedulePricing
from wattsched.formulations.shifting.settings import MOST_JOBS, resettled
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import ROUNDING
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

FIRST_LIMIT, RAISE = 10.0, 10.0
"""Limit of prices in multiples of a job's typical cost, and what it is multiplied by when it binds."""
SMOOTHING = 0.6
"""Share of the best prices so far."""
MOST_ROUNDS = 300
MOST_RAISES = 3
"""Number of tenfold raises of prices after which rows that are exceeded are taken to be impossible."""
MOST_OF_A_LIMIT = 1e9
"""Most that a column may use of a limit, relative to it: HiGHS takes no columns beyond 1e15."""
TOLERANCE, EARLY = 5e-4, 0.1
"""Gap of the LP to the prices' bound, relative to the LP, at which rounds end; or share of that asked."""
EXCEEDED = 1e-7
"""Excess of a row over its limit, relative to it, that counts as none."""


@dataclass(frozen=True)
class MasterSolution:
    """Optimum of the LP.

    Attributes
    ----------
    cost : float
        With what exceeds the rows charged at the limits of prices; without what idle GPUs add.
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
        One schedule per job; rows of budgets and costs are scaled by what these use and cost.
    """

    def __init__(self, horizon: Horizon, objective: int, typical: Schedules):
        self._horizon, self._objective, self._limit = horizon, objective, FIRST_LIMIT
        n, limits = horizon.n_jobs, row_limits(horizon)
        sums = np.maximum(np.abs(typical.criteria).sum(axis=0), ROUNDING)
        self._unit = float(sums[objective]) / max(1, n)
        of_budgets = np.maximum(np.abs(limits[horizon.n_cells :]), sums[horizon.limited])
        # Watts count by the most that a job draws, as GPUs count one by one.
        each = np.where(
            [n.startswith("gpus:") for n in horizon.resources],
            1.0,
            horizon.uses.max(axis=0, initial=ROUNDING),
        )
        self._scale = np.concatenate([np.repeat(each, horizon.slots), of_budgets])
        self._lp = RestrictedMaster("schedules", unit=self._unit)
        rows = self._lp.add_rows(-np.inf, limits / self._scale)
        jobs = self._lp.add_rows(np.ones(n), 1.0)
        spare = Entries()
        spare.add(rows, rows, -1.0)
        spare.add(jobs, jobs)
        self._spare = self._lp.add_columns(spare.matrix(self._lp.n_rows, self._lp.n_rows), self._spare_cost())

    def _spare_cost(self) -> FloatArray:
        """In typical costs of a job, times the limit: a GPU too many is 1, a budget n, a job left out 10."""
        n, cells = self._horizon.n_jobs, self._horizon.n_cells
        each = np.ones(cells), np.full(len(self._scale) - cells, float(n)), np.full(n, 10.0)
        return self._limit * self._unit * np.concatenate(each)

    def raise_limits(self) -> None:
        """Let prices rise higher."""
        self._limit *= RAISE
        self._lp.change_costs(self._spare, self._spare_cost())

    def add(self, schedules: Schedules) -> None:
        """Add schedules as columns."""
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
        self._lp.change_bounds(columns, 0.0, np.where(keep, np.inf, 0.0))

    def choose(self, timer: Timer, enough: float) -> IntArray | None:
        """Choose the best schedules in whole numbers, or some that cost `enough`; return their numbers.

        What exceeds the rows is charged as in the LP, and jobs may be left out. None where the time is over.
        """
        x = self._lp.whole(timer, first=len(self._spare), enough=enough)
        return None if x is None else np.flatnonzero(x[len(self._spare) :] > 0.5)

    def solve(self) -> MasterSolution:
        """Solve the LP; raises as `RestrictedMaster.solve`."""
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

    It begins with the schedules of `first`, whose first entry has one for every job, and with good prices.
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
        trial = center.mixed(solution.prices, smoothing)
        schedules = pricing.cheapest(trial)
        # Where a job has no schedule as far as the levels can tell, the value is infinite.
        if best_value < (value := lagrangian(horizon, objective, schedules, trial)) < np.inf:
            center, best_value = trial, value
        new = pool.add(improving(horizon, schedules, solution))
        master.add(new)
        closed = solution.cost - best_value <= max(TOLERANCE, EARLY * timer.gap) * abs(solution.cost)
        if not closed and not len(new) and smoothing > 0:
            smoothing = 0.0  # at the LP's own prices there may be new ones
            continue
        if closed or not len(new):
            if not solution.exceeds or raised == MOST_RAISES:
                break
            # Some row is exceeded because prices may not rise higher.
            master.raise_limits()
            raised, best_value = raised + 1, -np.inf
        smoothing = SMOOTHING
        solution = master.solve()
    if len(solution.share) < len(pool):
        solution = master.solve()
    return Generated(pool, solution, center)


def improving(horizon: Horizon, schedules: Schedules, solution: MasterSolution) -> Schedules:
    """Schedules of negative reduced cost in the LP."""
    cost = priced_cost(horizon, schedules, solution.prices)
    least = solution.of_job[schedules.job]
    return schedules.take(np.flatnonzero(cost < least - ROUNDING * np.maximum(np.abs(least), ROUNDING)))


DECIDED, LIKELY = 0.999, 0.7
"""Share of a schedule in the LP from which on its job is decided, and from which on it is if it fits."""
DEARER = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0)
"""Parts of the prices of budgets that are charged beside these, until a decision keeps the budgets."""
FINE = 10.0
"""Cost of exceeding a budget, in multiples of its price."""


class Insertion:
    """Builds decisions of one schedule per job.

    Attributes
    ----------
    objective : int
        Number of the criterion to minimise.
    likely, likelihood : arrays, shape (n_jobs,)
        Of each job the schedule of most share in the LP, its number among those `known`, and the share.
    """

    def __init__(self, horizon: Horizon, objective: int, pricing: SchedulePricing, generated: Generated):
        self.horizon, self.objective, self.pricing = horizon, objective, pricing
        self.prices, self.known, share = generated.prices, generated.pool.all(), generated.master.share
        self.likely = least_of_jobs(self.known.job, -share)
        self.likelihood = share[self.likely]

    def decide(self, timer: Timer) -> list[Schedules]:
        """Decisions made in time, the best one last; none where the LP leaves a job without a schedule."""
        horizon = self.horizon
        if len(self.likely) < horizon.n_jobs:
            return []
        kept, *orders = self._start()
        decisions = [made for jobs in orders if (made := self._insert(kept, jobs, timer)) is not None]

        def cost(decision: Schedules) -> float:
            return score(horizon, self.objective, self.prices, decision)

        if decisions and not is_valid(horizon, best := min(decisions, key=cost)):
            decisions.append(self._thriftier(best, timer))
        return sorted(decisions, key=cost, reverse=True)

    def _start(self) -> tuple[Schedules, IntArray, IntArray]:
        """Schedules of the decided jobs, and the other jobs by likelihood and by weight per GPU second."""
        horizon, order = self.horizon, np.argsort(-self.likelihood, kind="stable")
        cuts = np.searchsorted(-self.likelihood[order], [-DECIDED, -LIKELY], side="right")
        decided, likely, rest = np.split(order, cuts)
        kept, left_out = [self.known.take(self.likely[decided])], []
        free = np.maximum(horizon.room - use(horizon, kept[0]), 0.0)
        for place in likely.tolist():
            schedule = self.known.take(self.likely[[place]])
            if np.all((taken := use(horizon, schedule)) <= free):
                free -= taken
                kept.append(schedule)
            else:
                left_out.append(place)
        jobs = self.known.job[self.likely[[*left_out, *rest.tolist()]]]
        gpu_s = horizon.gpus[horizon.fastest[horizon.table[jobs]]] * horizon.fastest_s[jobs]
        by_weight = jobs[np.argsort(-horizon.share[jobs] / gpu_s, kind="stable")]
        return Schedules.joined(kept), jobs, by_weight

    def _insert(self, kept: Schedules, jobs: IntArray, timer: Timer) -> Schedules | None:
        """Let jobs take their cheapest schedules in turn beside those kept; return all, by job.

        Few jobs under caps look at GPUs alone, and what they draw too much is mended together afterwards.
        """
        horizon = self.horizon
        if horizon.n_jobs <= MOST_JOBS and horizon.counts_watts.any():
            cells = np.where(horizon.counts_watts, np.inf, horizon.free_cells)
            decision = self._beside(kept, jobs, cells, timer)
            if decision is not None and (settled := resettled(horizon, decision, self.prices)) is not None:
                return settled
        return self._beside(kept, jobs, horizon.free_cells, timer)

    def _beside(self, kept: Schedules, jobs: IntArray, cells: FloatArray, timer: Timer) -> Schedules | None:
        free, parts = cells - use(self.horizon, kept), [kept]
        for job in jobs.tolist():
            if timer.over():
                return None
            schedule = self.pricing.cheapest_of(job, self.prices, free)
            free -= use(self.horizon, schedule)
            parts.append(schedule)
        decision = Schedules.joined(parts)
        return decision.take(np.argsort(decision.job, kind="stable"))

    def _thriftier(self, decision: Schedules, timer: Timer) -> Schedules:
        """Let jobs go elsewhere as budgets become dearer, those first that the LP divides, until all hold."""
        horizon, of_budgets = self.horizon, self.prices.of_budgets(self.objective)
        free = horizon.room - use(horizon, decision)
        order = self.known.job[self.likely[np.argsort(self.likelihood, kind="stable")]]
        parts = [decision.take(np.array([job])) for job in range(horizon.n_jobs)]
        used = amounts(horizon, decision)
        for dearer in DEARER if of_budgets.any() else ():
            prices = replace(self.prices, criteria=self.prices.criteria + dearer * of_budgets)
            for job in order.tolist():
                if timer.over() or np.all(used <= horizon.budget):
                    break
                own = parts[job]
                new = self.pricing.cheapest_of(job, prices, np.maximum(free + use(horizon, own), 0.0))
                # Between levels of work the cheapest one is only about right.
                if priced_cost(horizon, new, prices) < priced_cost(horizon, own, prices):
                    free += use(horizon, own) - use(horizon, new)
                    used += (new.criteria - own.criteria)[0]
                    parts[job] = new
        return Schedules.joined(parts)


def score(horizon: Horizon, objective: int, prices: Prices, decision: Schedules) -> float:
    """Objective without idle GPUs, and fines for budgets exceeded and deadlines missed."""
    excess = np.maximum(amounts(horizon, decision) - horizon.budget, 0.0)
    own = float(decision.criteria[:, objective].sum())
    missed = np.count_nonzero(~np.isfinite(decision.finish_s))
    return float(own + FINE * prices.criteria @ excess + missed * abs(own))
