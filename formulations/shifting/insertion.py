"""Decisions from prices: jobs take their cheapest schedules one after the other, from the GPUs that are left.

The LP's decided jobs stay; the others are inserted by dynamic programming under its prices. After that, some
jobs at a time are taken out and inserted again (Shaw 1998), as long as that pays; what exceeds a budget, or
misses a deadline, is charged more than it is worth.
"""

from __future__ import annotations

import time

import numpy as np

from wattsched.formulations.program import IntArray
from wattsched.formulations.shifting.column_generation import Generated
from wattsched.formulations.shifting.horizon import Horizon
from wattsched.formulations.shifting.prices import Prices
from wattsched.formulations.shifting.schedule import ROUNDING, Schedules, free_cells, held_gpus, use
from wattsched.formulations.shifting.schedule_pricing import SchedulePricing

DECIDED = 0.999
FINE = 3.0
"""What exceeds a budget costs so many times its price."""
REMOVED = 0.06
MOST_REMOVED = 12
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

    def decide(self, time_s: float) -> Schedules | None:
        """Best decision found in the time, None when none keeps the budgets, or a job has no schedule."""
        begin, idle, n_jobs = time.perf_counter(), 0, self.horizon.n_jobs
        if len(self.likely) < n_jobs:
            return None
        rng = np.random.default_rng(0)
        decision = self._insert(self._start(), self.prices)
        self.tried.append(decision)
        score, surcharge = self._score(decision), 1.0
        count = int(min(MOST_REMOVED, max(2, REMOVED * n_jobs)))
        while idle < IDLE_ROUNDS + n_jobs / 2 and n_jobs > 1 and time.perf_counter() - begin < time_s:
            jobs = self._related(decision, count, rng)
            kept = decision.take(np.flatnonzero(~np.isin(decision.job, jobs)))
            prices = self._surcharged(surcharge * float(rng.uniform(0.8, 1.2)))
            prices = Prices(prices.criteria, float(rng.uniform(0.0, 1.3)) * prices.gpu)
            other = self._insert((kept, jobs), prices)
            surcharge = max(0.5, surcharge / 1.05) if self._valid(other) else min(10.0, surcharge * 1.1)
            idle += 1
            if (found := self._score(other)) < score - 1e-7 * abs(score):
                decision, score, idle = other, found, 0
                self.tried.append(decision)
        return decision if self._valid(decision) else None

    def _start(self) -> tuple[Schedules, IntArray]:
        """Decided jobs and the others, the likeliest first."""
        order = np.argsort(-self.likelihood, kind="stable")
        decided = order[self.likelihood[order] >= DECIDED]
        rest = order[self.likelihood[order] < DECIDED]
        return self.known.take(self.likely[decided]), self.known.job[self.likely[rest]]

    def _surcharged(self, factor: float) -> Prices:
        own = (np.arange(len(self.prices.criteria)) == self.objective).astype(float)
        return Prices(own + factor * (self.prices.criteria - own), self.prices.gpu)

    def _insert(self, start: tuple[Schedules, IntArray], prices: Prices) -> Schedules:
        """Let jobs take their cheapest schedules in turn, in the order of jobs at the end."""
        kept, jobs = start
        free = free_cells(self.horizon) - use(self.horizon, kept)
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
        weight = np.bincount(cell[which == first], minlength=self.horizon.n_pools * self.horizon.slots)
        overlap = np.bincount(which, weights=gpus * weight[cell], minlength=len(decision))
        score = (overlap + 0.05 * overlap.max(initial=1.0)) * rng.random(len(decision))
        score[first] = np.inf
        return rng.permutation(decision.job[np.argsort(-score)[:count]])

    def _score(self, decision: Schedules) -> float:
        """Objective, and fines for budgets that are exceeded and deadlines that are missed."""
        amounts = decision.criteria.sum(axis=0)
        excess = np.maximum(amounts + self.horizon.standing - self.horizon.budget, 0.0)
        own = (np.arange(len(amounts)) == self.objective).astype(float)
        missed = int((~np.isfinite(decision.finish_s)).sum())
        fines = FINE * self.prices.criteria @ excess + missed * abs(float(amounts @ own))
        return float(amounts @ own + fines)

    def _valid(self, decision: Schedules) -> bool:
        amounts = decision.criteria.sum(axis=0) + self.horizon.standing
        kept = np.all(amounts <= self.horizon.budget * (1 + ROUNDING))
        return bool(kept and np.isfinite(decision.finish_s).all())
