"""Decisions from prices: jobs take their cheapest schedules one after the other, from the GPUs that are left.

The LP's decided jobs stay; the others are inserted by dynamic programming under its prices. After that, some
jobs at a time are taken out and inserted again (Shaw 1998), as long as that pays; what exceeds a budget, or
misses a deadline, is charged more than it is worth.
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.shifting.column_generation import Generated
from wattsched.formulations.shifting.columns import Prices, Schedules, amounts, held_gpus, is_valid, use
from wattsched.formulations.shifting.data import Horizon
from wattsched.formulations.shifting.pricing import SchedulePricing
from wattsched.formulations.timer import Timer
from wattsched.topology.arrays import IntArray

DECIDED = 0.999
"""Share of a schedule in the LP from which on its job is decided."""
FINE = 3.0
"""Cost of exceeding a budget, in multiples of its price."""
REMOVED, MOST_REMOVED = 0.06, 12
"""Part of the jobs that are taken out at a time, and how many at most."""
_BETTER = 1e-7
"""Part of a score by which a success is better."""
IDLE_ROUNDS = 60
"""Attempts without success before it ends, and one more for every two jobs."""


class Insertion:
    """Builds decisions of one schedule per job.

    Parameters
    ----------
    objective : int
        Number of the criterion to minimise.
    """

    def __init__(self, horizon: Horizon, objective: int, pricing: SchedulePricing, generated: Generated):
        self.horizon, self.objective, self.pricing = horizon, objective, pricing
        self.prices = generated.prices
        self.known, share = generated.pool.all(), generated.master.share
        best = np.lexsort((-share, self.known.job))
        self.likely = best[np.unique(self.known.job[best], return_index=True)[1]]
        self.likelihood = share[self.likely]
        self.tried: list[Schedules] = []

    def decide(self, timer: Timer) -> Schedules | None:
        """Best decision found in the time, None when none keeps the budgets, or a job has no schedule."""
        horizon, idle, n_jobs = self.horizon, 0, self.horizon.n_jobs
        if len(self.likely) < n_jobs:
            return None
        rng = np.random.default_rng(0)
        decision = self._insert(self._start(), self.prices)
        self.tried.append(decision)
        score, surcharge = self._score(decision), 1.0
        count = int(min(MOST_REMOVED, max(2, REMOVED * n_jobs)))
        while idle < IDLE_ROUNDS + n_jobs / 2 and n_jobs > 1 and not timer.over():
            jobs = self._related(decision, count, rng)
            kept = decision.take(np.flatnonzero(~np.isin(decision.job, jobs)))
            prices = self._surcharged(surcharge * float(rng.uniform(0.8, 1.2)))
            prices = Prices(prices.criteria, float(rng.uniform(0.0, 1.3)) * prices.gpu)
            other = self._insert((kept, jobs), prices)
            valid = is_valid(horizon, other)
            surcharge = max(0.5, surcharge / 1.05) if valid else min(10.0, surcharge * 1.1)
            idle += 1
            if (found := self._score(other)) < score - _BETTER * abs(score):
                decision, score, idle = other, found, 0
                self.tried.append(decision)
        return decision if is_valid(horizon, decision) else None

    def _start(self) -> tuple[Schedules, IntArray]:
        """Decided jobs and the others, the likeliest first."""
        order = np.argsort(-self.likelihood, kind="stable")
        decided = order[self.likelihood[order] >= DECIDED]
        rest = order[self.likelihood[order] < DECIDED]
        return self.known.take(self.likely[decided]), self.known.job[self.likely[rest]]

    def _surcharged(self, factor: float) -> Prices:
        over = self.prices.of_budgets(self.objective)
        return Prices(self.prices.criteria - over + factor * over, self.prices.gpu)

    def _insert(self, start: tuple[Schedules, IntArray], prices: Prices) -> Schedules:
        """Let jobs take their cheapest schedules in turn, in the order of jobs at the end."""
        kept, jobs = start
        free = self.horizon.free_cells - use(self.horizon, kept)
        parts = [kept]
        for job in jobs.tolist():
            schedule = self.pricing.cheapest_of(job, prices, free)
            free -= use(self.horizon, schedule)
            parts.append(schedule)
        decision = Schedules.joined(parts)
        return decision.take(np.argsort(decision.job, kind="stable"))

    def _related(self, decision: Schedules, count: int, rng: np.random.Generator) -> IntArray:
        """A random job and others that hold GPUs in its slots, in random order."""
        first = int(rng.integers(len(decision)))
        which, cell, gpus = held_gpus(self.horizon, decision)
        weight = np.bincount(cell[which == first], minlength=self.horizon.n_cells)
        overlap = np.bincount(which, weights=gpus * weight[cell], minlength=len(decision))
        score = (overlap + 0.05 * overlap.max(initial=1.0)) * rng.random(len(decision))
        score[first] = np.inf
        return rng.permutation(decision.job[np.argsort(-score)[:count]])

    def _score(self, decision: Schedules) -> float:
        """Objective, and fines for budgets that are exceeded and deadlines that are missed."""
        excess = np.maximum(amounts(self.horizon, decision) - self.horizon.budget, 0.0)
        own = float(decision.criteria[:, self.objective].sum())
        missed = int((~np.isfinite(decision.finish_s)).sum())
        return float(own + FINE * self.prices.criteria @ excess + missed * abs(own))
