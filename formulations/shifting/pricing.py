"""Schedules that cost least at given prices: the cheapest of every job, and all that cost little more.

A schedule that ends in slot T or later costs at least the delay until then and the energy of the work where
it is cheapest. Where that is more than the best schedule of a single run costs, T need not be looked at.

Near-optimal schedules are listed slot by slot. Those are dropped that cost too much by a dynamic programme
over levels of the work left, in which work left is rounded down and work done is rounded up: it never costs
more than the truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.shifting.columns import Prices, Schedules, follow
from wattsched.formulations.shifting.cost_to_go import (
    FORBIDDEN,
    NEVER_RAN,
    PricedJobs,
    Recursion,
    groups_of,
    priced_jobs,
    resting,
    unfinished,
)
from wattsched.formulations.shifting.data import PAUSE, Horizon
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import ROUNDING
from wattsched.topology.arrays import FloatArray, IntArray

LEVELS, NEAR_LEVELS = 40, 400
"""Levels of the work of a job that takes a few slots, for cheapest schedules and for listing them."""
_BEGIN, _GROWTH, _TIMES = 1e-4, 1.4, 25
"""First margin of near-optimal schedules, relative to the cost of all jobs, its growth, and most margins."""


class SchedulePricing:
    """Finds schedules that cost little at given prices; they are followed with their exact work.

    More `levels` of the work of a job that takes a few slots come closer.
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
            option[group.job] = _cheapest(priced_jobs(self.horizon, group, prices))
        return follow(self.horizon, np.arange(self.horizon.n_jobs), option)

    def cheapest_of(self, job: int, prices: Prices, free: FloatArray) -> Schedules:
        """Cheapest schedule of one job that takes no more than what is free of each cell."""
        group = self._groups[self._group_of[job]]
        alone = group.take(np.flatnonzero(group.job == job))
        option = _cheapest(priced_jobs(self.horizon, alone, prices, free))
        return follow(self.horizon, np.array([job]), option)


def _cheapest(jobs: PricedJobs) -> IntArray:
    """Options in each slot of the schedules that cost least, shape (n_jobs, slots)."""
    slots = jobs.horizon.slots
    # Windows of some lengths only, so that many jobs are decided together.
    length = 2 ** np.ceil(np.log2(_windows(jobs))).astype(np.int64)
    option = np.full((len(length), slots), PAUSE, dtype=np.int64)
    left = np.arange(len(length))
    while len(left):
        shortest = min(int(length[left].min()), slots)
        which = left[np.minimum(length[left], slots) == shortest]
        walk = _Walk(jobs.take(which), shortest)
        option[which] = walk.option
        # Between levels costs are only about right: a job that does not end needs a longer window.
        length[which[~walk.ended]] *= 2
        left = np.setdiff1d(left, which if shortest == slots else which[walk.ended])
    return option


def _windows(jobs: PricedJobs) -> IntArray:
    """Slots from a job's first one on that may matter, shape (n_jobs,); see the module's text."""
    horizon, group = jobs.horizon, jobs.group
    single_run = _single_runs(jobs).min(axis=(1, 2), initial=np.inf)
    cheapest = np.minimum.accumulate(jobs.joule[::-1])[::-1][group.first_slot]
    for_delay = single_run - group.work * (group.extra_w / group.rate).min(axis=1) * cheapest
    with np.errstate(divide="ignore", invalid="ignore"):
        latest_s = np.where(jobs.delay > 0, for_delay * (1 + ROUNDING) / jobs.delay, np.inf)
    end = np.searchsorted(horizon.begin_s, latest_s) + 1
    end = np.where((end < horizon.slots) & (cheapest >= 0), end, horizon.slots)
    return np.asarray(np.maximum(end - group.first_slot, 1))


def _single_runs(jobs: PricedJobs) -> FloatArray:
    """Costs of schedules that are one run, by job, option and first slot; infinite where it ends too late."""
    group, slots, begin_s = jobs.group, jobs.horizon.slots, jobs.horizon.begin_s
    joules = np.outer(jobs.joule[:-1] * jobs.horizon.slot_s, jobs.horizon.extra_w[jobs.options])
    each = jobs.held + joules
    spent = np.concatenate([np.zeros((1, each.shape[1])), np.cumsum(each, axis=0)])
    lost_s = np.where(group.kind_before == NEVER_RAN, 0.0, group.restart_s)
    needs_s = group.work[:, None] / group.rate + lost_s[:, None]
    begun, option = np.arange(slots), jobs.column[:, :, None]
    end_s = begin_s[begun] + needs_s[:, :, None]
    last = np.searchsorted(begin_s[1:] * (1 + ROUNDING), end_s)
    inside = np.minimum(last, slots - 1)
    used_s = end_s - begin_s[inside]
    cost = spent[inside, option] - spent[begun, option] + jobs.held[inside, option]
    cost += jobs.joule[inside] * group.extra_w[:, :, None] * used_s + jobs.delay[:, None, None] * end_s
    begins = (begun >= group.first_slot[:, None, None]) & (lost_s[:, None, None] < jobs.horizon.slot_s[begun])
    valid = (last < slots) & begins & (end_s <= group.deadline_s[:, None, None])
    return np.asarray(np.where(valid, cost, np.inf))


class _Walk:
    """Jobs of a group led through windows of `slots` slots, by what costs least in every slot.

    `option` is what they run, shape (n_jobs, slots of the horizon), `ended` who ended in the window.
    """

    def __init__(self, jobs: PricedJobs, slots: int):
        self._jobs, group = jobs, jobs.group
        self._begin = np.minimum(group.first_slot, jobs.horizon.slots - slots)
        recursion = Recursion(jobs, self._begin, slots)
        self._cost, self._most = recursion.values(), recursion.most
        self._left, self._state = group.work.copy(), group.kind_before.copy()
        self.ended = np.zeros(len(group.job), dtype=bool)
        self.option = np.full((len(group.job), jobs.horizon.slots), PAUSE, dtype=np.int64)
        for position in range(slots):
            self._step(position)
            if self.ended.all():
                break

    def _step(self, position: int) -> None:
        """Run in the slot at a position of each window what costs least with all that follows."""
        jobs, group, horizon = self._jobs, self._jobs.group, self._jobs.horizon
        slot, each, left = self._begin + position, np.arange(len(group.job)), self._left[:, None]
        slot_s = horizon.slot_s[slot]
        able, ends, used_s, cannot = group.run(slot_s[:, None], self._state, self._left)
        end_s = horizon.begin_s[slot][:, None] + used_s
        cannot |= ends & (end_s > group.deadline_s[:, None] * (1 + ROUNDING))
        rest = self._later(position, np.broadcast_to(group.kind, able.shape), np.maximum(left - able, 0.0))
        cost = jobs.held[slot[:, None], jobs.column]
        cost += (jobs.delay[:, None] + jobs.joule[slot][:, None] * group.extra_w) * used_s
        cost += np.where(cannot, FORBIDDEN, np.where(ends, 0.0, rest))
        idle = resting(self._state)
        wait = jobs.delay * slot_s + self._later(position, idle[:, None], left)[:, 0]
        best = np.argmin(cost, axis=1)
        begun = group.first_slot <= slot
        runs = (cost[each, best] < wait) & ~self.ended & begun
        self.option[each[runs], slot[runs]] = group.option[runs, best[runs]]
        self.ended |= runs & ends[each, best]
        self._left = np.where(runs, np.maximum(self._left - able[each, best], 0.0), self._left)
        self._state = np.where(runs, group.kind[best], np.where(begun, idle, self._state))

    def _later(self, position: int, state: IntArray, left: FloatArray) -> FloatArray:
        """Costs from the slot after a position on, for states and work left by job and option."""
        cost, row, group = self._cost[position + 1], np.arange(len(left))[:, None], self._jobs.group
        level = np.clip((left - group.least_left[:, None]) / group.step[:, None], 0.0, group.levels)
        upper = np.ceil(level).astype(np.int64)
        below, above = cost[row, state, np.maximum(upper - 1, 0)], cost[row, state, upper]
        too_much = left > self._most[position + 1][row, state] + ROUNDING * group.work[:, None]
        return np.where(too_much, FORBIDDEN, above + (upper - level) * (below - above))


@dataclass(frozen=True)
class NearOptimal:
    """Schedules of all jobs that cost at most `margin` more than the cheapest one of their job."""

    schedules: Schedules
    margin: float


def near_optimal(horizon: Horizon, prices: Prices, most: int, timer: Timer) -> NearOptimal | None:
    """List the schedules of all jobs within ever wider margins, as long as they are no more than `most`.

    None where already the first are too many, or time is over before. None where a joule is paid for, too:
    levels that round work down then bound nothing.
    """
    if (prices.per_joule(horizon) < 0).any():
        return None
    groups = groups_of(horizon, NEAR_LEVELS)
    listings: list[_Listing] = []
    for alone in (group.take(np.array([i])) for group in groups for i in range(len(group.job))):
        listings.append(_Listing(priced_jobs(horizon, alone, prices), most))
        if listings[-1].least >= FORBIDDEN or timer.over():
            return None
    margin, best = _BEGIN * sum(listing.least for listing in listings), None
    for _ in range(_TIMES):
        found, room = [], most
        for listing in listings:
            schedules = None if timer.over() else listing.within(margin, room)
            if schedules is None:
                return best
            found.append(schedules)
            room -= len(schedules)
        best = NearOptimal(Schedules.joined(found), margin)
        margin *= _GROWTH
    return best


class _Listing:
    """Lists schedules of one job up to a cost; `least` is that of the cheapest, or `FORBIDDEN`."""

    def __init__(self, jobs: PricedJobs, most: int):
        self._jobs, self._first = jobs, int(jobs.group.first_slot[0])
        slots = jobs.horizon.slots - self._first
        self._cost = Recursion(jobs, jobs.group.first_slot, slots, rounded=True).values()[:, 0]
        self.least = self._exact_least(most)

    def _exact_least(self, most: int) -> float:
        """Cost of the cheapest schedule, by ever wider margins; `FORBIDDEN` where that does not work."""
        start = float(self._cost[0, int(self._jobs.group.kind_before[0]), -1])
        margin = _BEGIN * max(abs(start), ROUNDING)
        for _ in range(_TIMES):
            if start >= FORBIDDEN or (found := self._up_to(start + margin, most)) is None:
                return FORBIDDEN
            _, cost = found
            if len(cost):
                return float(cost.min())
            margin *= _GROWTH
        return FORBIDDEN

    def within(self, margin: float, most: int) -> Schedules | None:
        """Schedules that cost at most so much more than the cheapest one, None when there are too many."""
        if (found := self._up_to(self.least + margin, most)) is None:
            return None
        option, _ = found
        return follow(self._jobs.horizon, np.full(len(option), self._jobs.group.job[0]), option)

    def _up_to(self, limit: float, most: int) -> tuple[IntArray, FloatArray] | None:
        """Options by slot and costs of schedules that cost up to a limit; None for more than `most`."""
        jobs, group, horizon = self._jobs, self._jobs.group, self._jobs.horizon
        delay, [options] = float(jobs.delay[0]), group.option
        deadline_s = float(group.deadline_s[0]) * (1 + ROUNDING)
        limit += ROUNDING * abs(limit)
        state, left, cost = group.kind_before.copy(), group.work.copy(), np.zeros(1)
        option = np.full((1, horizon.slots), PAUSE, dtype=np.int64)
        ended: list[tuple[IntArray, FloatArray]] = []
        for slot in range(self._first, horizon.slots):
            begin_s, slot_s = float(horizon.begin_s[slot]), float(horizon.slot_s[slot])
            able, ends, used_s, cannot = group.run(slot_s, state, left)
            per_s = delay + jobs.joule[slot] * group.extra_w
            spent = cost[:, None] + jobs.held[slot, jobs.column[0]] + per_s * used_s
            spent[cannot] = np.inf
            which, chosen = np.nonzero(ends & (begin_s + used_s <= deadline_s) & (spent <= limit))
            ended.append((_with(option[which], slot, options[chosen]), spent[which, chosen]))
            rest = np.maximum(left[:, None] - able, 0.0)
            least = spent + self._later(slot, np.broadcast_to(group.kind, spent.shape), rest)
            which, chosen = np.nonzero(~ends & (least <= limit))
            idle = resting(state)
            waits = np.flatnonzero(cost + delay * slot_s + self._later(slot, idle, left) <= limit)
            option = np.concatenate([option[waits], _with(option[which], slot, options[chosen])])
            state = np.concatenate([idle[waits], group.kind[chosen]])
            left = np.concatenate([left[waits], rest[which, chosen]])
            cost = np.concatenate([cost[waits] + delay * slot_s, spent[which, chosen]])
            # Most of what is on its way ends, or costs too much.
            if len(cost) * len(options) > 20 * most or sum(len(c) for _, c in ended) > most:
                return None
        cost = cost + unfinished(jobs, left[None])[0]
        ended.append((option[cost <= limit], cost[cost <= limit]))
        if sum(len(c) for _, c in ended) > most:
            return None
        return np.concatenate([o for o, _ in ended]), np.concatenate([c for _, c in ended])

    def _later(self, slot: int, state: IntArray, left: FloatArray) -> FloatArray:
        """Lower bound on the cost from the next slot on, by state and work left, shape as `left`."""
        group = self._jobs.group
        level = (left * (1 - ROUNDING) - float(group.least_left[0])) / float(group.step[0])
        level = np.maximum(np.floor(level).astype(np.int64), 0)
        return np.asarray(self._cost[slot + 1 - self._first][state, level])


def _with(options: IntArray, slot: int, chosen: IntArray) -> IntArray:
    options = options.copy()
    options[:, slot] = chosen
    return options
