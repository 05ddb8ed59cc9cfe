"""Schedules of a job that are followed slot by slot with their exact work, all at once."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.cost_to_go import NEVER, PAUSED, CostToGo
from wattsched.verification.shifting.priced import PricedJob

PAUSE = -1
"""Number in place of an option where a job does not run."""


class Followed(NamedTuple):
    """Schedules up to a slot.

    Attributes
    ----------
    state : int array
        The option of the slot before, or paused, or never run.
    kind : int array
        Its kind, which needs no restart.
    left, cost, least : float arrays
        Work left, cost so far, and with it what the rest costs at least.
    origin, option : int arrays
        Number of the same schedule among those of the slot before, and what it runs in the last slot.
    """

    state: IntArray
    kind: IntArray
    left: FloatArray
    cost: FloatArray
    least: FloatArray
    origin: IntArray
    option: IntArray

    def take(self, which: IntArray) -> Followed:
        """Some of them."""
        return self._replace(**{name: values[which] for name, values in self._asdict().items()})

    def undominated(self, *, same_work: bool) -> Followed:
        """Without schedules that leave as much work as another of their state, or more, at no less cost.

        Only as much, where having less to do may mean to end too early.
        """
        if len(self.left) < 2:
            return self
        order = np.lexsort((self.cost, self.left, self.state))
        if same_work:
            state, left = self.state[order], self.left[order]
            return self.take(order[np.append(True, (np.diff(state) != 0) | (np.diff(left) != 0))])
        # States are so far apart that the least cost so far begins anew with each of them.
        apart = 1.0 + 2 * float(np.abs(self.cost).max())
        cost = self.cost[order] - apart * self.state[order]
        before = np.concatenate([[math.inf], np.minimum.accumulate(cost)[:-1]])
        return self.take(order[cost < before])


class Ends(NamedTuple):
    """Costs of schedules that end in a slot, infinite where they cannot, and when; by schedule and option."""

    cost: FloatArray
    end_s: FloatArray


def begin(job: PricedJob, to_go: CostToGo) -> Followed:
    """The one schedule up to the first slot, in which nothing is done yet."""
    state, work = np.array([PAUSED if job.ran else NEVER]), np.array([job.work])
    # What is held may go on without a restart, of which the levels know nothing.
    least = np.full(1, -math.inf) if job.held >= 0 else to_go.at(job.first, state, work)
    nowhere = np.zeros(1, dtype=np.int64)
    return Followed(state, np.array([job.held]), work, np.zeros(1), least, nowhere, nowhere)


def run_slot(job: PricedJob, slot: int, before: Followed, to_go: CostToGo) -> tuple[Ends, Followed]:
    """Those that end in the slot, and those that go on after it."""
    options, full = job.options, job.options.rate * job.slot_s
    never = before.state == NEVER
    free = (before.kind[:, None] == options.kind) | never[:, None]
    lost_s = np.where(free, 0.0, job.restart_s)
    able, left = full - options.rate * lost_s, before.left[:, None]
    # Twice what counts as rounding, so that nothing ends later here than in truth.
    ends = left <= able + 2 * ROUNDING * full
    used_s = np.where(ends, lost_s + np.minimum(left, able) / options.rate, job.slot_s)
    cost = before.cost[:, None] + job.gpu[slot] + job.joule[slot] * options.extra_w * used_s
    end_s = slot * job.slot_s + used_s
    in_time = ends & (end_s <= job.deadline_s) & (slot >= job.first_end)
    ended = np.where(in_time, cost + job.delay * np.maximum(end_s, job.after_s), math.inf)
    # What is a rounding away from its end may as well go on.
    which, option = np.nonzero(left > able)
    idle = np.flatnonzero(job.idle[slot] & np.ones_like(never))
    state = np.concatenate([np.where(never, NEVER, PAUSED)[idle], option])
    kind = np.concatenate([np.full(len(idle), -1), options.kind[option]])
    rest = np.concatenate([before.left[idle], (left - able)[which, option]])
    spent = np.concatenate([before.cost[idle], cost[which, option]])
    least = spent + to_go.at(slot + 1, state, rest)
    chosen = np.concatenate([np.full(len(idle), PAUSE), option])
    onward = Followed(state, kind, rest, spent, least, np.concatenate([idle, which]), chosen)
    return Ends(ended, end_s), onward
