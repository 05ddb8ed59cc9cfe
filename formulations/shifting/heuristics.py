r"""The marginal rule: work per gram, step by step, generalised from one job to many under shared budgets.

CarbonScaler gives one job, within a window, the steps of most marginal work per marginal carbon,
:math:`\Delta\rho / (\Delta P \cdot I_t)`, until its work is done (`systems.md` 2.2). Here a step is the
next option on the concave hull of rate over power in one pool, as long as it adds common shares of the best
work per GPU and per joule: GPUs are scarce as well, and budgets tight. The jobs are served one after the
other from what GPUs are left, those with deadlines first, then those of least time per weight, each in the
pool where it ends first, or draws least. A job's window is a common *stretch* times the time that it takes at
its fastest. The best combination that keeps the budgets is taken.

Decisions from prices: jobs take their cheapest schedules one after the other, from the GPUs that are left.

The LP's decided jobs stay; the others are inserted by dynamic programming under its prices. After that, some
jobs at a time are taken out and inserted again (Shaw 1998), as long as that pays; what exceeds a budget, or
misses a deadline, is charged more than it is worth.
"""

from __future__ import annotations

import time

import numpy as np

from wattsched.formulations.shifting.column_generation import Generated
from wattsched.formulations.shifting.data import CRITERIA, NEVER, OBJECTIVES, PAUSE, Horizon
from wattsched.formulations.shifting.pricing import Prices, SchedulePricing
from wattsched.formulations.shifting.schedule import (
    ROUNDING,
    Schedules,
    decision_of,
    follow,
    free_cells,
    held_gpus,
    use,
)
from wattsched.formulations.timer import Timer
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.topology.arrays import FloatArray, IntArray

STRETCHES = (1.0, 1.5, 2.5, 4.0, 8.0, 20.0)
EFFORTS = ((0.3, 0.0, False), (0.6, 0.0, False), (0.6, 0.7, True), (0.9, 0.95, True))
"""Shares of the best work per GPU and per joule that steps have to add; whether pools go by their draw."""
_WIDER = 4
_ATTEMPTS = 6


def greedy(horizon: Horizon, objective: str, timer: Timer | None = None) -> ShiftingDecision | None:
    """Decide by the marginal rule; None where it keeps no budget."""
    which = OBJECTIVES.index(objective)
    best = by_stretch(horizon, which, intensity_of(horizon, which))
    return None if best is None else decision_of(horizon, best)


def carbon_blind(horizon: Horizon, objective: str, timer: Timer | None = None) -> ShiftingDecision | None:
    """Decide by the marginal rule without looking at the forecasts: a joule is a joule at any time."""
    best = by_stretch(horizon, OBJECTIVES.index(objective), np.ones(horizon.slots))
    return None if best is None else decision_of(horizon, best)


def intensity_of(horizon: Horizon, objective: int) -> FloatArray:
    """What a joule costs in a slot: in the unit of the objective, else of the first budget, else in grams."""
    budgets = [c for c in (1, 3, 2) if np.isfinite(horizon.budget[c])]
    which = objective if objective else (budgets or [1])[0]
    per_joule = horizon.per_joule[which - 1, :-1]
    return per_joule if per_joule.any() else np.ones(horizon.slots)


def by_stretch(horizon: Horizon, objective: int, intensity: FloatArray) -> Schedules | None:
    """Best schedules of all efforts and stretches that keep the budgets."""
    best, least = None, np.inf
    for effort in EFFORTS:
        for stretch in STRETCHES:
            schedules = serve(horizon, intensity, stretch, effort)
            amounts = schedules.criteria.sum(axis=0) + horizon.standing
            kept = np.all(amounts <= horizon.budget * (1 + ROUNDING))
            if not kept or not np.isfinite(schedules.finish_s).all():
                continue
            if amounts[objective] < least:
                best, least = schedules, float(amounts[objective])
            if CRITERIA[objective] == "completion_s":
                break
    return best


def serve(
    horizon: Horizon, intensity: FloatArray, stretch: float, effort: tuple[float, float, bool]
) -> Schedules:
    """Serve all jobs with one stretch, by steps that are worth some effort."""
    steps = [
        _hulls(horizon, np.arange(start, end), effort)
        for start, end in zip(horizon.option_start[:-1], horizon.option_start[1:], strict=True)
    ]
    free = np.repeat(horizon.capacity[:, None], horizon.slots, axis=1)
    option = np.full((horizon.n_jobs, horizon.slots), PAUSE, dtype=np.int64)
    fastest_s = horizon.work / horizon.rate[horizon.fastest[horizon.table]]
    free_s = horizon.deadline_s - horizon.arrival_s - fastest_s
    for job in np.lexsort((fastest_s / np.maximum(horizon.share, 1e-300), free_s)):
        window_s = stretch * float(fastest_s[job])
        services = [_Service(horizon, int(job), hull, free, intensity) for hull in steps[horizon.table[job]]]
        found = [service.within(window_s) for service in services]
        chosen = min(found, key=lambda f: (f[0], f[2] if effort[2] else f[1]))[3]
        option[job] = chosen
        runs = np.flatnonzero(chosen != PAUSE)
        np.subtract.at(free, (horizon.pool[chosen[runs]], runs), horizon.gpus[chosen[runs]])
    return follow(horizon, np.arange(horizon.n_jobs), option)


class _Service:
    """One job, the steps on its hull, and the GPUs that are free for it."""

    def __init__(self, horizon: Horizon, job: int, steps: IntArray, free: IntArray, intensity: FloatArray):
        self.horizon, self.job, self.intensity = horizon, job, intensity
        self.steps = steps
        self.fits = horizon.gpus[steps][:, None] <= free[horizon.pool[steps]]

    def within(self, window_s: float) -> tuple[float, int, float, IntArray]:
        """Work missing, last slot, draw and option by slot; windows grow until the work fits into them."""
        horizon, begin = self.horizon, int(self.horizon.first_slot[self.job])
        latest = min(float(horizon.slots), float(horizon.deadline_s[self.job]) / horizon.slot_s)
        last = max(begin + 1, int(np.ceil(latest - ROUNDING)))
        slots = max(1, round(window_s / horizon.slot_s + 0.499))
        best = np.where(self.fits, horizon.rate[self.steps][:, None], 0.0).max(axis=0)
        able = np.cumsum(best[begin:last]) * horizon.slot_s
        while True:
            end = min(last, begin + slots)
            if end < last and able[end - begin - 1] < horizon.work[self.job] * (1 - 2 * ROUNDING):
                slots += max(1, slots // _WIDER)
                continue
            option, missing = self._fill(begin, end)
            if missing <= 0 or end == last:
                runs = np.flatnonzero(option != PAUSE)
                draw = float(horizon.power_w[option[runs]] @ self.intensity[runs])
                return max(0.0, missing), int(runs[-1:].sum()), draw, option
            slots += max(1, slots // _WIDER)

    def _fill(self, begin: int, end: int) -> tuple[IntArray, float]:
        """Take steps until the work is done; what restarts cost is asked for in further attempts."""
        slot, step, work = self._ordered(begin, end)
        done = np.cumsum(work)
        target = float(self.horizon.work[self.job])
        for _ in range(_ATTEMPTS):
            taken = int(np.searchsorted(done, target * (1 - ROUNDING))) + 1
            level = np.full(self.horizon.slots, -1, dtype=np.int64)
            np.maximum.at(level, slot[:taken], step[:taken])
            option = np.where(level >= 0, self.steps[level], PAUSE)
            missing = self._missing(option)
            if missing <= 0 or taken > len(done):
                break
            target += missing
        return option, missing

    def _ordered(self, begin: int, end: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Slot, step and work of what can be taken, by work per carbon."""
        horizon, span = self.horizon, slice(begin, end)
        rate, watts = np.zeros(end - begin), np.zeros(end - begin)
        parts = []
        for k, option in enumerate(self.steps):
            fits = self.fits[k, span]
            more, power = horizon.rate[option] - rate, horizon.power_w[option] - watts
            worth = more / np.maximum(power * self.intensity[span], 1e-300)
            slots = np.flatnonzero(fits)
            parts.append(np.column_stack([slots + begin, np.full(len(slots), k), more[slots], worth[slots]]))
            rate = np.where(fits, horizon.rate[option], rate)
            watts = np.where(fits, horizon.power_w[option], watts)
        steps = np.concatenate(parts)
        steps = steps[np.lexsort((steps[:, 1], steps[:, 0], -steps[:, 3]))]
        return steps[:, 0].astype(np.int64), steps[:, 1].astype(np.int64), steps[:, 2] * horizon.slot_s

    def _missing(self, option: IntArray) -> float:
        """Work that is not done by the options, at most 0 when it all is."""
        horizon, job = self.horizon, self.job
        left, restart_s = float(horizon.work[job]), float(horizon.restart_s[job])
        kind, ran, last = int(horizon.kind_before[job]), bool(horizon.ran_before[job]), -1
        for slot in np.flatnonzero(option != PAUSE).tolist():
            chosen = option[slot]
            if slot != last + 1:
                kind = NEVER
            lost_s = restart_s if ran and kind != horizon.kind[chosen] else 0.0
            left -= float(horizon.rate[chosen]) * (horizon.slot_s - lost_s)
            kind, ran, last = int(horizon.kind[chosen]), True, slot
        return left


def _hulls(horizon: Horizon, options: IntArray, effort: tuple[float, float, bool]) -> list[IntArray]:
    """Steps in each pool: a job stays in one."""
    pools = horizon.pool[options]
    return [_hull(horizon, options[pools == pool], effort) for pool in np.unique(pools)]


def _hull(horizon: Horizon, options: IntArray, effort: tuple[float, float, bool]) -> IntArray:
    """Options on the concave hull of rate over power, from the least power on, while GPUs add enough."""
    hull: list[int] = []
    points = [(0.0, 0.0)]
    for option in sorted(options.tolist(), key=lambda o: (horizon.power_w[o], -horizon.rate[o], o)):
        point = (float(horizon.power_w[option]), float(horizon.rate[option]))
        if point[1] <= points[-1][1]:
            continue
        while hull and _turns_up(points[-2], points[-1], point):
            hull.pop()
            points.pop()
        hull.append(option)
        points.append(point)
    best = max(float(horizon.rate[o] / horizon.gpus[o]) for o in hull)
    thrifty = points[1][1] / max(points[1][0], 1e-300)
    kept, gpus, (watts, rate) = hull[:1], int(horizon.gpus[hull[0]]), points[1]
    for option, point in zip(hull[1:], points[2:], strict=True):
        more, added = point[1] - rate, int(horizon.gpus[option]) - gpus
        if more < effort[0] * best * added or more < effort[1] * thrifty * (point[0] - watts):
            continue
        kept.append(option)
        gpus, (watts, rate) = gpus + added, point
    return np.array(kept, dtype=np.int64)


def _turns_up(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[1] - a[1]) * (c[0] - b[0]) <= (c[1] - b[1]) * (b[0] - a[0])


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
