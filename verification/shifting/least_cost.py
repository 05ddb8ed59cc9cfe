r"""The least that a schedule of one job costs at prices, or a bound below it.

Schedules are followed slot by slot. Those that by `CostToGo` cost more than a known one, and those that leave
more work than another at more cost, are dropped; where joules are paid for, only those that leave as much.
Where too many are left, the most costly ones count for what they cost at least.

A schedule that ends in slot T or later costs at least the delay until then and the energy of the work where
it is cheapest; where joules are paid for, instead that of drawing the most in all such slots. Where that is
more than a known schedule costs, slots from T on need not be looked at.

All schedules that cost little at prices can be listed: where they are few, other prices are met by these
alone. A decision in which some job costs more at prices than its least cost and a margin costs more than what
these prices prove and the margin. In all others every job has one of its listed schedules.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.cost_to_go import PAUSE, CostToGo, Followed, begin, run_slot
from wattsched.verification.shifting.priced import PricedJob, is_on_side

FEW_LEVELS, FEW_CELLS = 64, 2048
"""Levels that are tried first, or with few options more: up to so many levels by options take as long."""
PRICES_OF_WORK = np.append(0.0, np.geomspace(0.3, 3.0, 24))
"""Prices of a job's work, in multiples of what a known schedule pays for it, that bound its cost quickly."""
FOLLOWED = 100
"""Schedules of a job that are followed together, with few levels; with more of them more."""


class LeastCost:
    """Finds the least cost of a job's schedules, or bounds it from below.

    Attributes
    ----------
    known : float
        Cost of a schedule; infinite if none is known.
    option : int array, shape (slots,)
        Options that this schedule runs in every slot, `PAUSE` for none.
    end : int
        Slot from which on no schedule that still runs costs less.
    """

    def __init__(self, job: PricedJob):
        self.job, self.n_options = job, len(job.options.rate)
        self.option = np.full(job.slots, PAUSE)
        self.known = float(self._single_runs().min(initial=math.inf))
        self.end = end_of(job, self.known)

    @property
    def size(self) -> int:
        """Number of slots that are looked at, times the number of options."""
        return max(1, self.end - self.job.first) * self.n_options

    def by_relaxation(self) -> float:
        """Lower bound on a schedule's cost, by parts of options in every slot and a price of work.

        At such a price every slot runs what pays best, whatever runs in others. The best of some prices
        about what the known schedule pays counts.
        """
        job, options = self.job, self.job.options
        inside = np.arange(job.first, self.end)
        slot_s, begin_s = job.slot_s[inside, None], float(job.begin_s[job.first])
        known = self.known - job.delay * begin_s if math.isfinite(self.known) else 0.0
        price = max(known, 0.0) / job.work * PRICES_OF_WORK
        paid = job.gpu[inside] + job.joule[inside, None] * slot_s * options.extra_w
        paid = paid - price[:, None, None] * (slot_s * options.rate)
        # Costs of a part of a slot are between those of nothing, but for its GPUs, and of the whole.
        runs = np.minimum(paid, job.gpu[inside]).min(axis=2, initial=math.inf)
        spent = np.cumsum(np.minimum(runs, 0.0), axis=1)
        last = np.minimum(paid + job.delay * slot_s, job.gpu[inside]).min(axis=2, initial=math.inf)
        before = spent - np.minimum(runs, 0.0) + job.delay * job.begin_s[inside]
        cost = (before + last).min(axis=1, initial=math.inf)
        if self.end == job.slots:
            after, after_w = options.after
            per_work = (job.delay + job.joule[-1] * after_w) / after - price
            onward = job.delay * float(job.begin_s[-1]) + np.minimum(per_work * job.work, 0.0)
            cost = np.minimum(cost, spent[:, -1:].sum(axis=1) + onward)
        found = cost + price * job.work * (1 - 2 * ROUNDING)
        return min(float(found.max()), self.known) - job.delay * job.arrival_s

    def _single_runs(self) -> FloatArray:
        """Costs of the schedules that are one run, by first slot from the job's on and option.

        The cheapest of them becomes `option`; those that are not allowed cost infinitely much.
        """
        job, options = self.job, self.job.options
        none = np.zeros((1, self.n_options))
        full_slot = options.gpu + np.outer(job.joule[:-1] * job.slot_s, options.extra_w)
        spent = np.concatenate([none, np.cumsum(full_slot, axis=0)])
        forbidden = np.concatenate([none, np.cumsum(np.isinf(job.gpu), axis=0)])
        lost_s = job.restart_s if job.ran else 0.0
        needs_s = job.work / options.rate + lost_s
        begun, option = np.arange(job.first, job.slots)[:, None], np.arange(self.n_options)
        end_s = job.begin_s[begun] + needs_s
        # The slot of the end, if that is within the horizon, and what the run uses of it.
        ends = np.maximum(np.searchsorted(job.begin_s * (1 + ROUNDING), end_s) - 1, begun)
        last = np.minimum(ends, job.slots - 1)
        used_s = needs_s - (job.begin_s[last] - job.begin_s[begun])
        cost = spent[last, option] - spent[begun[:, 0]] + options.gpu[last, option]
        cost += job.joule[last] * options.extra_w * used_s + job.delay * np.maximum(end_s, job.after_s)
        valid = (ends < job.slots) & (end_s <= job.deadline_s) & (lost_s < job.slot_s[begun])
        # What is held would go on without the restart that is counted here.
        valid &= (begun > job.first) | (options.kind != job.held)
        valid &= forbidden[last + 1, option] == forbidden[begun[:, 0]]
        must_run = np.flatnonzero(~job.idle)
        valid &= (begun <= must_run.min(initial=job.slots)) & (last >= job.first_end)
        cost = np.where(valid, cost, math.inf)
        if valid.any():
            begin, chosen = divmod(int(np.argmin(cost)), self.n_options)
            self.option[job.first + begin : int(last[begin, chosen]) + 1] = chosen
        return cost

    def bound(self, levels: int) -> float:
        """Lower bound on a schedule's cost, by at most so many levels of the job's work; few come first."""
        best, tried, followed = -math.inf, min(max(FEW_LEVELS, FEW_CELLS // self.n_options), levels), FOLLOWED
        while True:
            best = max(best, self._bound(tried, followed))
            if best >= self.known or tried >= levels:
                # Completion counts from the job's arrival.
                return best - self.job.delay * self.job.arrival_s
            tried, followed = min(4 * tried, levels), 4 * followed

    def _bound(self, levels: int, most: int) -> float:
        """Return a bound as `bound` does, of completion from time 0 on, and from `most` schedules a slot."""
        job, to_go = self.job, CostToGo(self.job, self.end, levels)
        followed = begin(job, to_go)
        least, dropped, trail = float(followed.least[0]), math.inf, list[Followed]()
        for slot in range(job.first, self.end):
            ended, onward = run_slot(job, slot, followed, to_go)
            self._know(ended.cost, trail)
            followed = onward.take(np.flatnonzero(onward.least < self.known))
            same_work = slot + 1 < job.first_end or job.pays_to_run(slot + 1)
            followed = followed.undominated(same_work=same_work)
            if len(followed.left) > most:
                # What has more to do is less likely to end too early.
                order = np.lexsort((-followed.left, followed.least))
                dropped = min(dropped, float(followed.least[order[most]]))
                followed = followed.take(order[:most])
            trail.append(followed)
            if not len(followed.left):
                break
        if self.end == job.slots and len(followed.left):
            unfinished = followed.cost + job.unfinished(followed.left)
            self._know(unfinished[:, None], trail)
        return max(least, min(self.known, dropped))

    def _know(self, cost: FloatArray, trail: list[Followed]) -> None:
        """Keep the cheapest of schedules that go on from the last of `trail` by an option, if it is cheaper.

        The trail has what was followed in every slot from the job's first one on.
        """
        if (least := float(cost.min(initial=math.inf))) >= self.known:
            return
        which, option = divmod(int(np.argmin(cost)), cost.shape[1])
        self.known, slot = least, self.job.first + len(trail)
        self.option = np.full(self.job.slots, PAUSE)
        self.option[slot : slot + 1] = option
        for followed in reversed(trail):  # which know the schedule of the slot before only
            slot -= 1
            self.option[slot], which = followed.option[which], followed.origin[which]


def end_of(job: PricedJob, most: float) -> int:
    """Slot from which on a schedule that still runs costs more than `most`, or misses the job's deadline."""
    # What is left for delay once joules have cost their least. It may be all rounding where prices are high.
    room = most + ROUNDING * abs(most) - job.least_for_runs
    due = min(int(np.searchsorted(job.begin_s, job.deadline_s)), job.slots)
    if job.delay <= 0 or room >= job.delay * job.begin_s[-1]:
        return max(job.first, due)
    return max(job.first, min(due, int(np.searchsorted(job.begin_s, room / job.delay)) + 1))


MOST_LISTED = 5_000
"""Schedules of a job that are listed, or followed together, at most."""
LEVELS = 1024
"""Levels of a job's work by which schedules that cost too much are left out."""


class TooManyError(ValueError):
    """More schedules cost little than are listed."""


class Listed(NamedTuple):
    """Schedules of a job.

    Attributes
    ----------
    option : int array, shape (n, slots)
        Priced options, `PAUSE` for none.
    finish_s : float array, shape (n,)
        End, from the beginning of the horizon.
    ended : bool array, shape (n,)
        Whether that is within the horizon.
    """

    option: IntArray
    finish_s: FloatArray
    ended: BoolArray

    @classmethod
    def joined(cls, parts: list[Listed]) -> Listed:
        """Return the schedules of all parts."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def costs(self, job: PricedJob) -> FloatArray:
        """Cost of every schedule at the prices of the job, completion from its arrival on, shape (n,)."""
        options, slots = job.options, job.slots
        slot, runs = np.arange(slots), self.option != PAUSE
        full_slot = options.gpu + np.outer(job.joule[:-1] * job.slot_s, options.extra_w)
        spent = np.where(runs, full_slot[slot, self.option], 0.0).sum(axis=1)
        last = slots - 1 - np.argmax(runs[:, ::-1], axis=1)  # slot with a run
        unused_s = np.where(self.ended, job.begin_s[last + 1] - self.finish_s, 0.0)
        after_s = np.where(self.ended, 0.0, self.finish_s - job.begin_s[-1])
        final = self.option[np.arange(len(last)), last]
        _, after_w = options.after
        spent += job.joule[-1] * after_w * after_s
        spent -= job.joule[last] * options.extra_w[final] * unused_s
        return np.asarray(spent + job.delay * (self.finish_s - job.arrival_s))

    def allowed_by(self, job: PricedJob, split: Mapping[str, Any], inside: bool) -> BoolArray:
        """Return the mask of the schedules that are on a side of a split of the job, shape (n,)."""

        def rows_in(slot: int) -> IntArray:
            chosen = self.option[:, slot]
            return np.where(chosen == PAUSE, -1, job.options.row[chosen])

        return is_on_side(split, inside, self.finish_s, rows_in)


@dataclass(frozen=True)
class Listing:
    """Schedules of all jobs that cost little at prices.

    Attributes
    ----------
    charged : mapping of str to float
        Cost of a unit of each row.
    least : list of float
        Lower bound on the cost of each job.
    within : float
        Amount by which a listed schedule may cost more than that.
    schedules : list of Listed
    """

    charged: Mapping[str, float]
    least: list[float]
    within: float
    schedules: list[Listed]


def schedules_up_to(job: PricedJob, most: float) -> Listed:
    """List the schedules of a job that cost at most so much, and perhaps a few others.

    A TooManyError says that there are more than `MOST_LISTED`.
    """
    most += job.delay * job.arrival_s  # completion counts from the beginning of the horizon here
    most += ROUNDING * abs(most)
    end = end_of(job, most)
    to_go = CostToGo(job, end, LEVELS)
    followed = begin(job, to_go)
    option = np.full((1, job.slots), PAUSE)
    found = [Listed(option[:0], np.zeros(0), np.zeros(0, dtype=bool))]
    for slot in range(job.first, end):
        ended, onward = run_slot(job, slot, followed, to_go)
        which, chosen = np.nonzero(ended.cost <= most)
        ends_s = ended.end_s[which, chosen]
        found.append(Listed(_with(option[which], slot, chosen), ends_s, np.ones(len(which), dtype=bool)))
        followed = onward.take(np.flatnonzero(onward.least <= most))
        option = _with(option[followed.origin], slot, followed.option)
        if max(len(option), sum(len(some.option) for some in found)) > MOST_LISTED:
            raise TooManyError(f"more than {MOST_LISTED:,} schedules of a job cost so little")
    if end == job.slots:
        left = np.flatnonzero(followed.cost + job.unfinished(followed.left) <= most)
        rate, _ = job.options.after
        ends_s = job.begin_s[-1] + followed.left[left] / rate
        found.append(Listed(option[left], ends_s, np.zeros(len(left), dtype=bool)))
    return Listed.joined(found)


def _with(option: IntArray, slot: int, chosen: IntArray) -> IntArray:
    """Return schedules that run the chosen options in a slot."""
    option = option.copy()
    option[:, slot] = chosen
    return option
