"""The cheapest schedule of every job at given prices, and what schedules cost."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import FloatArray, IntArray
from wattsched.formulations.shifting.horizon import PAUSE, Horizon
from wattsched.formulations.shifting.job_groups import NEVER_RAN, RAN, JobGroup, groups_of
from wattsched.formulations.shifting.prices import Prices
from wattsched.formulations.shifting.schedule import ROUNDING, Schedules, follow, held_gpus
from wattsched.formulations.shifting.values import NONE, Charges, Recursion
from wattsched.formulations.shifting.windows import windows

LEVELS = 40


class SchedulePricing:
    """Finds schedules that cost little at given prices; they are followed with their exact work.

    Parameters
    ----------
    levels : int
        Levels of the work of a job that takes a few slots; more of them come closer.
    """

    def __init__(self, horizon: Horizon, levels: int = LEVELS):
        self.horizon = horizon
        self._groups = groups_of(horizon, levels)
        self._group_of = np.empty(horizon.n_jobs, dtype=np.int64)
        for number, group in enumerate(self._groups):
            self._group_of[group.job] = number

    def cheapest(self, prices: Prices) -> Schedules:
        """Cheapest schedule of every job as far as the levels can tell, in the order of the jobs."""
        option = np.full((self.horizon.n_jobs, self.horizon.slots), PAUSE, dtype=np.int64)
        for group in self._groups:
            option[group.job] = _cheapest(self.horizon, group, prices)
        return follow(self.horizon, np.arange(self.horizon.n_jobs), option)

    def cheapest_of(self, job: int, prices: Prices, free: IntArray) -> Schedules:
        """Cheapest schedule of one job that takes no more than the free GPUs of each cell."""
        group = self._groups[self._group_of[job]]
        alone = group.take(np.flatnonzero(group.job == job))
        return follow(self.horizon, np.array([job]), _cheapest(self.horizon, alone, prices, free))


def _cheapest(horizon: Horizon, group: JobGroup, prices: Prices, free: IntArray | None = None) -> IntArray:
    """Options by slot that cost least, shape (n_jobs, slots)."""
    charges = charges_of(horizon, group, prices, free)
    length = windows(horizon, group, charges.delay, charges.joule, charges.gpu)
    # Windows of some lengths only, so that many jobs are decided together.
    length = np.ceil(2.0 ** (np.ceil(2 * np.log2(length)) / 2)).astype(np.int64)
    option = np.full((len(group.job), horizon.slots), PAUSE, dtype=np.int64)
    left = np.arange(len(group.job))
    while len(left):
        slots = min(int(length[left].min()), horizon.slots)
        which = left[np.minimum(length[left], horizon.slots) == slots]
        some = Charges(charges.delay[which], charges.joule, charges.gpu)
        walk = _Walk(horizon, group.take(which), some, slots)
        option[which] = walk.option
        # Between levels costs are only about right: who does not get through needs a longer window.
        length[which[~walk.ended]] *= 2
        left = np.setdiff1d(left, which if slots == horizon.slots else which[walk.ended])
    return option


def charges_of(horizon: Horizon, jobs: JobGroup, prices: Prices, free: IntArray | None = None) -> Charges:
    """Prices as jobs see them, for options of which enough GPUs are free."""
    cell = horizon.pool[jobs.option] * horizon.slots + np.arange(horizon.slots)[:, None]
    gpus = horizon.gpus[jobs.option]
    gpu_cost = gpus * prices.gpu[cell]
    if free is not None:
        gpu_cost = np.where(gpus <= free[cell], gpu_cost, NONE)
    return Charges(prices.criteria[0] * jobs.share, prices.per_joule(horizon), gpu_cost)


class _Walk:
    """Jobs of a group on their way through their windows, by what costs least in every slot."""

    def __init__(self, horizon: Horizon, jobs: JobGroup, charges: Charges, slots: int):
        self.horizon, self.jobs, self.charges = horizon, jobs, charges
        self.begin = np.minimum(jobs.first_slot, horizon.slots - slots)
        recursion = Recursion(horizon, jobs, charges, self.begin, slots)
        self.free, self.again, self.cost = recursion.free.able, recursion.again.able, recursion.values()
        self.left, self.state = jobs.work.copy(), jobs.kind_before.copy()
        self.ended = np.zeros(len(jobs.job), dtype=bool)
        self.option = np.full((len(jobs.job), self.horizon.slots), PAUSE, dtype=np.int64)
        for position in range(slots):
            self._step(position)
            if self.ended.all():
                break

    def _step(self, position: int) -> None:
        horizon, jobs, charges = self.horizon, self.jobs, self.charges
        slot, each, slot_s = self.begin + position, np.arange(len(jobs.job)), horizon.slot_s
        rate, extra_w = horizon.rate[jobs.option], horizon.extra_w[jobs.option]
        lost = (self.state[:, None] != NEVER_RAN) & (self.state[:, None] != jobs.kind)
        able = np.where(lost, self.again, self.free)
        left = self.left[:, None]
        ends = left <= able + ROUNDING * rate * slot_s
        used_s = np.where(ends, lost * jobs.restart_s + np.minimum(left, able) / rate, slot_s)
        late = ends & (slot[:, None] * slot_s + used_s > jobs.deadline_s[:, None] * (1 + ROUNDING))
        rest = self._later(position, np.broadcast_to(jobs.kind, able.shape), np.maximum(left - able, 0.0))
        cost = charges.gpu[slot] + (charges.delay[:, None] + charges.joule[slot][:, None] * extra_w) * used_s
        cost += np.where(late, NONE, np.where(ends, 0.0, rest))
        resting = np.where(self.state == NEVER_RAN, NEVER_RAN, RAN)
        wait = charges.delay * slot_s + self._later(position, resting[:, None], left)[:, 0]
        best = np.argmin(cost, axis=1)
        begun = jobs.first_slot <= slot
        runs = (cost[each, best] < wait) & ~self.ended & begun
        self.option[each[runs], slot[runs]] = jobs.option[best[runs]]
        self.ended |= runs & ends[each, best]
        self.left = np.where(runs, np.maximum(self.left - able[each, best], 0.0), self.left)
        self.state = np.where(runs, jobs.kind[best], np.where(begun, resting, self.state))

    def _later(self, position: int, state: IntArray, left: FloatArray) -> FloatArray:
        """Costs from the next slot on, between levels; states and work by job and option."""
        cost, row = self.cost[position + 1], np.arange(len(left))[:, None]
        level = np.minimum(left / self.jobs.step[:, None], self.jobs.levels)
        upper = np.ceil(level).astype(np.int64)
        below, above = cost[row, state, np.maximum(upper - 1, 0)], cost[row, state, upper]
        return np.asarray(above + (upper - level) * (below - above))


def priced_cost(horizon: Horizon, schedules: Schedules, prices: Prices) -> FloatArray:
    """Cost of schedules at prices, shape (n,); infinite for those that break a deadline."""
    which, cell, gpus = held_gpus(horizon, schedules)
    gpu_cost = np.bincount(which, weights=gpus * prices.gpu[cell], minlength=len(schedules))
    cost = schedules.criteria @ prices.criteria + gpu_cost
    return np.where(np.isfinite(schedules.finish_s), cost, np.inf)
