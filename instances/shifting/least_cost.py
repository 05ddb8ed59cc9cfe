"""The least that a schedule of one job costs at prices; only the certificate uses it.

Schedules are followed slot by slot with their exact work, all at once. Those that by `cost_to_go` cost more
than a known one, and those that leave more work than another at more cost, are dropped. Where too many are
left, the most costly ones count for what they cost at least.

A schedule that ends in slot T or later costs at least the delay until then and the energy of the work where
it is cheapest. Where that is more than a known schedule costs, slots from T on need not be looked at.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from wattsched.instances.shifting.cost_to_go import ROUNDING, CostToGo, FloatArray, IntArray, PricedJob

FEW_LEVELS = 64
MOST_FOLLOWED = 100
_PAUSED, _NEVER = -2, -1


@dataclass(frozen=True)
class _Followed:
    """Schedules up to a slot.

    Attributes
    ----------
    state : int array
        The option of the slot before, or paused, or never run.
    kind : int array
        Its kind, which needs no restart.
    left, cost, least : float arrays
        Work left, cost so far, and with it what the rest costs at least.
    """

    state: IntArray
    kind: IntArray
    left: FloatArray
    cost: FloatArray
    least: FloatArray

    def take(self, which: IntArray) -> _Followed:
        return _Followed(
            self.state[which], self.kind[which], self.left[which], self.cost[which], self.least[which]
        )


class LeastCost:
    """Finds the least cost of a job's schedules, or bounds it from below."""

    def __init__(self, job: PricedJob):
        self.job = job
        self.full = job.rate * job.slot_s
        self.known = float(self._single_runs().min(initial=math.inf))
        self.end = self._end()

    @property
    def size(self) -> int:
        """Slots by options that are looked at."""
        return max(1, self.end - self.job.first) * len(self.full)

    def _end(self) -> int:
        """Slot from which on schedules cost more than the known one."""
        job = self.job
        joules = job.work * float((job.extra_w / job.rate).min())
        # At high prices the difference is small beside its parts, and may be all rounding.
        room = self.known * (1 + ROUNDING) - joules * float(job.joule[job.first :].min())
        if job.delay <= 0 or room >= job.delay * job.slots * job.slot_s:
            return job.slots
        return min(job.slots, max(job.first, math.ceil(room / (job.delay * job.slot_s))) + 1)

    def _single_runs(self) -> FloatArray:
        """Costs of the schedules that are one run, by first slot and option, shape (n_slots, n_options)."""
        job = self.job
        each = job.gpu + np.outer(job.joule[:-1], job.extra_w * job.slot_s)
        spent = np.concatenate([np.zeros((1, len(self.full))), np.cumsum(each, axis=0)])
        needs_s = job.work / job.rate + (job.restart_s if job.ran else 0.0)
        before = np.maximum(np.ceil(needs_s / job.slot_s - 1e-6).astype(np.int64) - 1, 0)
        used_s = needs_s - before * job.slot_s
        begun = np.arange(job.first, job.slots)[:, None]
        last = np.minimum(begun + before, job.slots - 1)
        option, end_s = np.arange(len(self.full)), last * job.slot_s + used_s
        cost = spent[last, option] - spent[begun[:, 0]] + job.gpu[last, option]
        cost += job.joule[last] * job.extra_w * used_s + job.delay * end_s
        valid = (begun + before < job.slots) & (end_s <= job.deadline_s)
        return np.where(valid, cost, math.inf)

    def bound(self, levels: int) -> float:
        """Least cost, or less, by at most so many levels of the job's work.

        Completion counts from the beginning of the horizon. Few levels are tried first.
        """
        best, tried = -math.inf, min(FEW_LEVELS, levels)
        while True:
            best = max(best, self._bound(tried))
            if best >= self.known or tried >= levels:
                return best
            tried = min(4 * tried, levels)

    def _bound(self, levels: int) -> float:
        job, to_go = self.job, CostToGo(self.job, self.end, levels)
        begun = np.array([_PAUSED if job.ran else _NEVER])
        # What is held may go on without a restart, of which the levels know nothing.
        least = np.full(1, -math.inf) if job.held >= 0 else to_go.at(job.first, begun, np.array([job.work]))
        dropped = math.inf
        followed = _Followed(begun, np.array([job.held]), np.array([job.work]), np.zeros(1), least)
        for slot in range(job.first, self.end):
            ended, onward = self._step(slot, followed, to_go)
            self.known = min(self.known, ended)
            followed = _undominated(onward.take(np.flatnonzero(onward.least < self.known)))
            if len(followed.left) > MOST_FOLLOWED:
                order = np.argsort(followed.least, kind="stable")
                dropped = min(dropped, float(followed.least[order[MOST_FOLLOWED]]))
                followed = followed.take(order[:MOST_FOLLOWED])
            if not len(followed.left):
                break
        if self.end == job.slots:
            unfinished = followed.cost + job.unfinished(followed.left)
            self.known = min(self.known, float(unfinished.min(initial=math.inf)))
        return max(float(least[0]), min(self.known, dropped))

    def _step(self, slot: int, before: _Followed, to_go: CostToGo) -> tuple[float, _Followed]:
        """Least cost of schedules that end in the slot, and those that go on after it."""
        job = self.job
        free = (before.kind[:, None] == job.kind) | (before.state == _NEVER)[:, None]
        lost_s = np.where(free, 0.0, job.restart_s)
        able, left = self.full - job.rate * lost_s, before.left[:, None]
        # Twice what counts as rounding, so that nothing ends later here than in truth.
        ends = left <= able + 2 * ROUNDING * self.full
        used_s = np.where(ends, lost_s + np.minimum(left, able) / job.rate, job.slot_s)
        cost = before.cost[:, None] + job.gpu[slot] + job.joule[slot] * job.extra_w * used_s
        end_s = slot * job.slot_s + used_s
        ended = cost + job.delay * end_s
        in_time = ends & (end_s <= job.deadline_s)
        which, option = np.nonzero(~ends)
        resting = np.where(before.state == _NEVER, _NEVER, _PAUSED)
        state = np.concatenate([resting, option])
        rest = np.concatenate([before.left, (left - able)[which, option]])
        spent = np.concatenate([before.cost, cost[which, option]])
        kind = np.concatenate([np.full(len(resting), -1), job.kind[option]])
        least = spent + to_go.at(slot + 1, state, rest)
        return float(ended[in_time].min(initial=math.inf)), _Followed(state, kind, rest, spent, least)


def _undominated(followed: _Followed) -> _Followed:
    """Without schedules that leave as much work as another of their state, or more, at no less cost."""
    if len(followed.left) < 2:
        return followed
    order = np.lexsort((followed.cost, followed.left, followed.state))
    # States are so far apart that the least cost so far begins anew with each of them.
    apart = 1.0 + 2 * float(np.abs(followed.cost).max())
    cost = followed.cost[order] - apart * followed.state[order]
    before = np.concatenate([[math.inf], np.minimum.accumulate(cost)[:-1]])
    return followed.take(order[cost < before])
