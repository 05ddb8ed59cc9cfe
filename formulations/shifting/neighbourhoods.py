"""Better decisions: schedules of some jobs at a time are chosen together, in what the other jobs leave.

What the others leave of GPUs, watts and budgets is a horizon of its own. Its LP, over schedules that column
generation adds, says how little the jobs could cost there. Where that is less than what they do, branch and
bound chooses among the schedules whose reduced costs leave room for an improvement (Shaw 1998; Danna,
Rothberg and Le Pape 2005, "Exploring relaxation induced neighborhoods to improve MIP solutions"). All jobs
come first. Then those go together that hold the same GPUs, or run at about the same time: more of them
while branch and bound finishes soon, and fewer where it does not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.shifting.column_generation import (
    Generated,
    MasterSolution,
    ScheduleMaster,
    improving,
    score,
)
from wattsched.formulations.shifting.columns import (
    SchedulePool,
    Schedules,
    fits,
    held,
    is_valid,
    never_run,
    priced_cost,
    use,
)
from wattsched.formulations.shifting.data import PAUSE, Horizon
from wattsched.formulations.shifting.pricing import SchedulePricing
from wattsched.formulations.timer import Timer
from wattsched.topology.arrays import FloatArray, IntArray

FIRST_S, FIRST_SHARE = 4.0, 0.5
"""Most seconds, and most of the time, that branch and bound has for all jobs."""
CHOICE_S, SOON = 0.5, 0.8
"""Seconds that it has for some, and the share of them that is soon."""
NEAR = 0.005
"""Reduced costs of schedules for all jobs together, in parts of the LP's cost, at most."""
ROUNDS = 2
"""Rounds of column generation for some jobs."""
FEWEST, FIRST, LARGER, SMALLER = 5.0, 30.0, 1.05, 0.8
"""Jobs at a time, the fewest and at first, and what they are multiplied by after each attempt."""
CLOSE = 0.8
"""Share of the gap asked for, from the LP on, at which it ends: the bound is a little below the LP."""
IDLE = 60
"""Attempts without a better decision after which it ends."""
_BETTER = 1e-7
"""Part of a score by which a success is better."""


class Neighbourhoods:
    """Improves decisions of one schedule per job, which may exceed budgets or miss deadlines at first.

    Attributes
    ----------
    pool : SchedulePool
        Schedules found so far, of all jobs.
    count : float
        Number of jobs that are taken together, about.
    """

    def __init__(self, horizon: Horizon, objective: int, generated: Generated):
        self.horizon, self.objective, self.prices = horizon, objective, generated.prices
        self.pool, self.count = generated.pool, min(FIRST, float(horizon.n_jobs))
        self._lp, self._rng = generated.master, np.random.default_rng(0)

    def improved(self, decisions: list[Schedules], timer: Timer) -> Schedules:
        """Improve the last of some decisions until the time is over, or nothing helps any more."""
        self.pool.add(Schedules.joined(decisions))
        decision, n_jobs = decisions[-1], self.horizon.n_jobs
        value, valid = self._score(decision), is_valid(self.horizon, decision)
        jobs, idle, left_s = np.arange(n_jobs), 0, timer.remaining_s()
        seconds = FIRST_S if left_s is None else min(FIRST_S, FIRST_SHARE * left_s)
        lp, known = self._lp.cost, True
        enough = lp + CLOSE * timer.gap * abs(lp + float(self.horizon.idle_use[self.objective]))
        while not timer.over() and not (value <= enough and valid):
            other, idle = self._chosen(decision, jobs, timer, seconds, enough, known), idle + 1
            new = np.inf if other is None else self._score(other)
            keeps = other is not None and is_valid(self.horizon, other)
            if other is not None and (not keeps, new) < (not valid, value - _BETTER * abs(value)):
                decision, value, valid, idle = other, new, keeps, 0
            elif idle == IDLE or n_jobs <= FEWEST:
                break
            jobs, seconds, known = self._some(decision), CHOICE_S, False
        return decision

    def _score(self, decision: Schedules) -> float:
        return score(self.horizon, self.objective, self.prices, decision)

    def _some(self, decision: Schedules) -> IntArray:
        """Jobs that are chosen anew together, ascending; every other time those about a point in time."""
        rng, n_jobs = self._rng, self.horizon.n_jobs
        count = int(np.clip(rng.normal(self.count, self.count / 5), 2, n_jobs))
        near = self._overlap(decision) if rng.random() < 0.5 else self._about(decision)
        return np.sort(np.argsort(-near, kind="stable")[:count])

    def _overlap(self, decision: Schedules) -> FloatArray:
        """By job, what it holds of the cells of a random job, at random a little less; shape (n_jobs,)."""
        first = int(self._rng.integers(len(decision)))
        which, cell, amount = held(self.horizon, decision)
        inside = np.bincount(cell[which == first], minlength=self.horizon.n_cells)
        overlap = np.bincount(which, amount * inside[cell], minlength=len(decision))
        near = (overlap + 0.05 * overlap.max(initial=1.0)) * self._rng.random(len(decision))
        near[first] = np.inf
        return np.asarray(near)

    def _about(self, decision: Schedules) -> FloatArray:
        """By job, how close it runs to a random slot, in slots, at random a little less; shape (n_jobs,)."""
        runs, slots = decision.option != PAUSE, self.horizon.slots
        first: IntArray = np.where(runs.any(axis=1), runs.argmax(axis=1), self.horizon.first_slot)
        last = np.where(runs.any(axis=1), slots - 1 - runs[:, ::-1].argmax(axis=1), slots)
        slot = int(self._rng.integers(slots))
        apart = np.maximum(np.maximum(first - slot, slot - last), 0) + 0.1 * np.abs((first + last) / 2 - slot)
        return np.asarray(-apart * (1 + 0.3 * self._rng.random(len(decision))))

    def _chosen(
        self, decision: Schedules, jobs: IntArray, timer: Timer, seconds: float, enough: float, known: bool
    ) -> Schedules | None:
        """Decision in which schedules of some jobs are chosen anew; None where none is better.

        The LP is `known` of all jobs, whose schedules are those in the pool.
        """
        kept, own = decision.take(~np.isin(decision.job, jobs)), decision.take(jobs)
        part = self.horizon.part(jobs, use(self.horizon, kept), kept.criteria.sum(axis=0))
        own = replace(own, job=np.arange(len(jobs)))
        every, solution = (self.pool.all(), self._lp) if known else self._generated(part, own, jobs, timer)
        most = NEAR * abs(solution.cost) if known else np.inf
        some = every.take(self._promising(part, own, every, solution, most))
        limited, chosen = timer.at_most(seconds), None
        if len(some):
            master = ScheduleMaster(part, self.objective, own)
            master.add(some)
            chosen = master.choose(limited, enough - float(kept.criteria[:, self.objective].sum()))
        soon = limited.elapsed_s() < SOON * seconds
        self.count = float(np.clip(self.count * (LARGER if soon else SMALLER), FEWEST, self.horizon.n_jobs))
        if chosen is None or len(chosen) < len(jobs):
            return None
        new = some.take(chosen)
        both = Schedules.joined([kept, replace(new, job=jobs[new.job])])
        both = both.take(np.argsort(both.job, kind="stable"))
        return both if fits(self.horizon, both) else None

    def _generated(
        self, part: Horizon, own: Schedules, jobs: IntArray, timer: Timer
    ) -> tuple[Schedules, MasterSolution]:
        """Schedules of some jobs that column generation finds, and the optimum of the LP over the first ones.

        Parameters
        ----------
        part : Horizon
            Of these jobs alone, in what others leave.
        own : Schedules
            What the decision has for each of them, numbered as jobs of `part`.
        """
        pool, pricing = SchedulePool(), SchedulePricing(part)
        master = ScheduleMaster(part, self.objective, own)
        for schedules in (own, self._known(part, jobs), never_run(part, own.job)):
            master.add(pool.add(schedules))
        solution = master.solve()
        for _ in range(ROUNDS):
            new = pool.add(improving(part, pricing.cheapest(solution.prices), solution))
            if not len(new):
                break
            master.add(new)
            solution = master.solve()
            if timer.over():
                break
        every = pool.all()
        self.pool.add(replace(every, job=jobs[every.job]))
        return every, solution

    def _promising(
        self, part: Horizon, own: Schedules, every: Schedules, solution: MasterSolution, most: float
    ) -> IntArray:
        """Numbers of schedules that a decision better than `own` may have, as far as the LP can tell.

        Those are left out whose reduced cost is more than `most`.
        """
        value = score(part, self.objective, self.prices, own)
        if (slack := value - solution.cost) <= _BETTER * abs(value):
            return np.arange(0)
        reduced = priced_cost(part, every, solution.prices) - solution.of_job[every.job]
        used = np.zeros(len(every), dtype=bool)
        used[: len(solution.share)] = solution.share > 0
        return np.flatnonzero((reduced <= min(slack, most)) | used)

    def _known(self, part: Horizon, jobs: IntArray) -> Schedules:
        """Schedules of some jobs in the pool that fit into a part of the horizon, numbered as jobs there."""
        every = self.pool.all()
        known = every.take(np.isin(every.job, jobs))
        known = replace(known, job=np.searchsorted(jobs, known.job))
        which, cell, amount = held(part, known)
        too_much = amount > part.room[cell]
        return known.take(np.setdiff1d(np.arange(len(known)), which[too_much]))
