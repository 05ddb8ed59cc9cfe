"""All schedules of a job that cost little at prices: where they are few, other prices are met by these alone.

A decision in which some job costs more at prices than its least cost and a margin costs more than what these
prices prove and the margin. In all others every job has one of its listed schedules.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.cost_to_go import CostToGo
from wattsched.verification.shifting.following import PAUSE, begin, run_slot
from wattsched.verification.shifting.least_cost import end_of
from wattsched.verification.shifting.priced import PricedJob
from wattsched.verification.shifting.splits import is_on_side

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
        """All of some lists."""
        return cls(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def costs(self, job: PricedJob) -> FloatArray:
        """Cost of every schedule at the prices of the job, from its arrival on, shape (n,)."""
        options, slots = job.options, job.slots
        slot, runs = np.arange(slots), self.option != PAUSE
        each = options.gpu + np.outer(job.joule[:-1], options.extra_w * job.slot_s)
        spent = np.where(runs, each[slot, self.option], 0.0).sum(axis=1)
        last = slots - 1 - np.argmax(runs[:, ::-1], axis=1)
        unused_s = np.where(self.ended, (last + 1) * job.slot_s - self.finish_s, 0.0)
        after_s = np.where(self.ended, 0.0, self.finish_s - slots * job.slot_s)
        final = self.option[np.arange(len(last)), last]
        spent += job.joule[-1] * options.after[1] * after_s
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
        Charges of rows.
    least : list of float
        What jobs cost at least.
    within : float
        What listed schedules may cost more than that.
    schedules : list of Listed
    """

    charged: Mapping[str, float]
    least: list[float]
    within: float
    schedules: list[Listed]


def schedules_up_to(job: PricedJob, most: float) -> Listed:
    """List the schedules of a job that cost at most so much from its arrival on, and perhaps some more.

    Raises
    ------
    TooManyError
        If there are more than `MOST_LISTED`.
    """
    most += job.delay * job.arrival_s
    most += ROUNDING * abs(most)
    end = end_of(job, most)
    to_go = CostToGo(job, end, LEVELS)
    followed = begin(job, to_go)
    option = np.full((1, job.slots), PAUSE)
    found = [_none(job)]
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
        after_s = followed.left[left] / job.options.after[0]
        ends_s = job.slots * job.slot_s + after_s
        found.append(Listed(option[left], ends_s, np.zeros(len(left), dtype=bool)))
    return Listed.joined(found)


def _none(job: PricedJob) -> Listed:
    return Listed(np.zeros((0, job.slots), dtype=np.int64), np.zeros(0), np.zeros(0, dtype=bool))


def _with(option: IntArray, slot: int, chosen: IntArray) -> IntArray:
    option = option.copy()
    option[:, slot] = chosen
    return option
