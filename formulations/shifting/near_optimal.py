"""All schedules that cost little more than the cheapest ones at given prices, where these are few.

Schedules are followed slot by slot. Those are dropped that cost too much by a dynamic programme over levels
of the work left, in which work left is rounded down and work done is rounded up: it never costs more than the
truth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.shifting.data import NEVER_RAN, PAUSE, RAN, Horizon, JobGroup, groups_of
from wattsched.formulations.shifting.pricing import NONE, Prices, Recursion, charges_of
from wattsched.formulations.shifting.schedule import ROUNDING, Schedules, follow
from wattsched.topology.arrays import FloatArray, IntArray

LEVELS = 400
_BEGIN, _GROWTH, _TIMES = 1e-4, 1.4, 25
"""First margin, relative to the cost of all jobs, its growth, and how often it grows."""


@dataclass(frozen=True)
class NearOptimal:
    """Schedules of all jobs that cost at most `margin` more than the cheapest one of their job."""

    schedules: Schedules
    margin: float


def near_optimal(horizon: Horizon, prices: Prices, most: int) -> NearOptimal | None:
    """As many of the cheapest schedules as there can be, None where already the first are too many."""
    jobs = [g.take(np.array([i])) for g in groups_of(horizon, LEVELS) for i in range(len(g.job))]
    followed = [_Followed(horizon, job, prices, most) for job in jobs]
    if any(one.least >= NONE for one in followed):
        return None
    margin, best = _BEGIN * sum(one.least for one in followed), None
    for _ in range(_TIMES):
        found, room = [], most
        for one in followed:
            schedules = one.within(margin, room)
            if schedules is None:
                return best
            found.append(schedules)
            room -= len(schedules)
        best = NearOptimal(Schedules.joined(found), margin)
        margin *= _GROWTH
    return best


class _Followed:
    """One job and what is left of it costs at least."""

    def __init__(self, horizon: Horizon, job: JobGroup, prices: Prices, most: int):
        self.horizon, self.job = horizon, job
        self.charges = charges_of(horizon, job, prices)
        begin = job.first_slot
        self.recursion = Recursion(
            horizon, job, self.charges, begin, horizon.slots - int(begin[0]), rounded=True
        )
        self.cost = self.recursion.values()[:, 0]
        self.least = self._exact_least(most)

    def _exact_least(self, most: int) -> float:
        """Cost of the cheapest schedule, found within ever wider margins; `NONE` where that does not work."""
        start = float(self.cost[0, int(self.job.kind_before[0]), -1])
        margin = _BEGIN * max(abs(start), 1e-9)
        for _ in range(_TIMES):
            if start >= NONE or (found := self._enumerate(start + margin, most)) is None:
                return NONE
            if len(found[1]):
                return float(found[1].min())
            margin *= _GROWTH
        return NONE

    def within(self, margin: float, most: int) -> Schedules | None:
        """Schedules that cost at most so much more than the cheapest one, None when there are too many."""
        found = self._enumerate(self.least + margin, most)
        if found is None:
            return None
        return follow(self.horizon, np.full(len(found[0]), self.job.job[0]), found[0])

    def _enumerate(self, limit: float, most: int) -> tuple[IntArray, FloatArray] | None:
        """Options by slot and costs of schedules up to a limit, None where there are too many."""
        horizon, job, charges = self.horizon, self.job, self.charges
        n_options, slot_s, delay = len(job.option), horizon.slot_s, float(charges.delay[0])
        rate, extra_w = horizon.rate[job.option], horizon.extra_w[job.option]
        limit += ROUNDING * abs(limit)
        state, left, cost = job.kind_before.copy(), job.work.copy(), np.zeros(1)
        option = np.full((1, horizon.slots), PAUSE, dtype=np.int64)
        ended_options, ended_costs = [option[:0]], [cost[:0]]
        for slot in range(int(job.first_slot[0]), horizon.slots):
            lost = (state[:, None] != NEVER_RAN) & (state[:, None] != job.kind)
            able = np.where(lost, self.recursion.again.able, self.recursion.free.able)
            ends = left[:, None] <= able + ROUNDING * rate * slot_s
            lost_s = np.where(lost, job.restart_s, 0.0)
            used_s = np.where(ends, lost_s + np.minimum(left[:, None], able) / rate, slot_s)
            spent = cost[:, None] + charges.gpu[slot] + (delay + charges.joule[slot] * extra_w) * used_s
            late = slot * slot_s + used_s > float(job.deadline_s[0]) * (1 + ROUNDING)
            which, chosen = np.nonzero(ends & ~late & (spent <= limit))
            ended_options.append(_with(option[which], slot, job.option[chosen]))
            ended_costs.append(spent[which, chosen])
            rest = np.maximum(left[:, None] - able, 0.0)
            least = spent + self._later(slot, np.broadcast_to(job.kind, spent.shape), rest)
            which, chosen = np.nonzero(~ends & (least <= limit))
            resting = np.where(state == NEVER_RAN, NEVER_RAN, RAN)
            waits = np.flatnonzero(cost + delay * slot_s + self._later(slot, resting, left) <= limit)
            option = np.concatenate([option[waits], _with(option[which], slot, job.option[chosen])])
            state = np.concatenate([resting[waits], job.kind[chosen]])
            left = np.concatenate([left[waits], rest[which, chosen]])
            cost = np.concatenate([cost[waits] + delay * slot_s, spent[which, chosen]])
            if len(cost) * n_options > 20 * most or sum(map(len, ended_costs)) > most:
                return None
        cost = cost + self.recursion.unfinished(left[None])[0]
        kept = cost <= limit
        if sum(map(len, ended_costs)) + int(kept.sum()) > most:
            return None
        return np.concatenate([*ended_options, option[kept]]), np.concatenate([*ended_costs, cost[kept]])

    def _later(self, slot: int, state: IntArray, left: FloatArray) -> FloatArray:
        """What the rest costs at least, from the next slot on."""
        level = np.floor(left * (1 - ROUNDING) / float(self.job.step[0])).astype(np.int64)
        return np.asarray(self.cost[slot + 1 - int(self.job.first_slot[0])][state, level])


def _with(options: IntArray, slot: int, chosen: IntArray) -> IntArray:
    options = options.copy()
    options[:, slot] = chosen
    return options
