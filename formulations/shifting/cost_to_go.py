r"""The least priced cost of what is left of a job, by dynamic programming over slots and work left.

:math:`V_t(s, w)` is the least cost from slot t on with work w left in state s: pause, run an option for the
slot, or end in it; between levels of the work left it is taken to be linear. That guides (`pricing`), and
bounds nothing; the certificate does. States are the kinds of options, and then "ran before" and "never ran".
Delay counts from the slot on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from wattsched.formulations.shifting.columns import Prices, run_slot
from wattsched.formulations.shifting.data import NO_KIND, Horizon
from wattsched.formulations.tolerances import ROUNDING
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

RAN, NEVER_RAN = -2, -1
"""States of a job that runs nothing: it ran before, or its next start is free. They are the last ones."""
FORBIDDEN = 1e100
"""Cost where there is no schedule; finite, so that it can be interpolated."""
_LEVELS_PER_SLOT, _MOST_DOUBLINGS = 4, 3
"""Levels that the median option works off in a slot at least, if so many doublings of levels do."""
_COPIED = ("first_slot", "work", "most_left", "share", "deadline_s", "must_finish")


@dataclass(frozen=True)
class JobGroup:
    """Jobs of one table, restart time and number of levels, which are decided together.

    Attributes
    ----------
    levels : int
        Of the work that is left of each job.
    option, kind : int arrays, shape (n_options,)
        Options of the table, by kind; kinds numbered within the group, ascending.
    rate, extra_w, restart_s
        Work in a second and watts above idle of the options, and seconds that a restart of the jobs takes.
    job, first_slot, kind_before : int arrays, shape (n_jobs,)
        `kind_before` is `RAN` or `NEVER_RAN` for jobs that hold nothing before their first slot.
    work, share, deadline_s : float arrays, shape (n_jobs,)
    must_finish : bool array, shape (n_jobs,)
    """

    levels: int
    option: IntArray
    kind: IntArray
    rate: FloatArray
    extra_w: FloatArray
    restart_s: float
    job: IntArray
    first_slot: IntArray
    kind_before: IntArray
    work: FloatArray
    share: FloatArray
    deadline_s: FloatArray
    must_finish: BoolArray
    most_left: FloatArray

    @property
    def n_kinds(self) -> int:
        """Number of kinds."""
        return int(self.kind[-1]) + 1

    @property
    def step(self) -> FloatArray:
        """Work between two levels, shape (n_jobs,)."""
        return self.work / self.levels

    def take(self, which: IntArray) -> JobGroup:
        """Some of the jobs."""
        return replace(
            self, **{name: getattr(self, name)[which] for name in ("job", "kind_before", *_COPIED)}
        )

    def run(
        self, slot_s: float, state: IntArray, left: FloatArray
    ) -> tuple[FloatArray, BoolArray, FloatArray]:
        """Run every option for a slot from states with work left; as `run_slot`, by state and option."""
        restarts = (state[:, None] != NEVER_RAN) & (state[:, None] != self.kind)
        return run_slot(slot_s, self.rate, restarts * self.restart_s, left[:, None])


def resting(state: IntArray) -> IntArray:
    """States after a slot in which nothing runs."""
    return np.where(state == NEVER_RAN, NEVER_RAN, RAN)


def groups_of(horizon: Horizon, levels: int) -> list[JobGroup]:
    """Put jobs of one table, restart time and number of levels into a group each.

    The work of a job that takes a few slots has `levels`, up to eight times as many where it takes more.
    """
    if not horizon.n_jobs:
        return []
    middle = np.array([np.median(horizon.rate[start:end]) for start, end in pairwise(horizon.option_start)])
    needed = _LEVELS_PER_SLOT * horizon.work / (middle[horizon.table] * horizon.slot_s) / levels
    doubled = np.clip(np.ceil(np.log2(needed)), 0, _MOST_DOUBLINGS).astype(np.int64)
    keys = np.column_stack([horizon.table, horizon.restart_s, doubled])
    _, of_job = np.unique(keys, axis=0, return_inverse=True)
    order = np.argsort(of_job.ravel(), kind="stable")
    cuts = np.flatnonzero(np.diff(of_job.ravel()[order])) + 1
    return [_group(horizon, jobs, levels << int(doubled[jobs[0]])) for jobs in np.split(order, cuts)]


def _group(horizon: Horizon, jobs: IntArray, levels: int) -> JobGroup:
    """Group of jobs that share a table and a restart time."""
    option = horizon.options_of(int(jobs[0]))
    option = option[np.argsort(horizon.kind[option], kind="stable")]
    kinds, kind = np.unique(horizon.kind[option], return_inverse=True)
    kind_before = np.searchsorted(kinds, horizon.kind_before[jobs])
    without = np.where(horizon.ran_before[jobs], RAN, NEVER_RAN)
    return JobGroup(
        levels=levels,
        option=option,
        kind=kind.ravel(),
        rate=horizon.rate[option],
        extra_w=horizon.extra_w[option],
        restart_s=float(horizon.restart_s[jobs[0]]),
        job=jobs,
        kind_before=np.where(horizon.kind_before[jobs] == NO_KIND, without, kind_before),
        **{name: getattr(horizon, name)[jobs] for name in _COPIED},
    )


@dataclass(frozen=True)
class PricedJobs:
    """Jobs of a group, and prices as they see them.

    Attributes
    ----------
    delay : float array, shape (n_jobs,)
        Of a second of completion time.
    joule : float array, shape (slots + 1,)
        The last one is for joules after the horizon.
    held : float array, shape (slots, n_options)
        Of an option's GPUs and watts under caps; at least `FORBIDDEN` where there are too few of them.
    """

    horizon: Horizon
    group: JobGroup
    delay: FloatArray
    joule: FloatArray
    held: FloatArray

    def take(self, which: IntArray) -> PricedJobs:
        """Some of the jobs."""
        return replace(self, group=self.group.take(which), delay=self.delay[which])


def priced_jobs(
    horizon: Horizon, group: JobGroup, prices: Prices, free: FloatArray | None = None
) -> PricedJobs:
    """Jobs of a group with prices as they see them, and only what is `free` of each cell, if given."""
    uses, cells = horizon.uses[group.option], (len(horizon.resources), horizon.slots)
    held = prices.cell.reshape(cells).T @ uses.T
    fits = horizon.fits[group.option]
    if free is not None:
        fits = fits & (uses[:, :, None] <= free.reshape(cells) + horizon.slack).all(axis=1)
    held[~fits.T] = FORBIDDEN
    return PricedJobs(horizon, group, prices.criteria[0] * group.share, prices.per_joule(horizon), held)


class _Move:
    """Running an option for a slot of which a restart loses `lost_s`; arrays by job, option and level.

    Attributes
    ----------
    ends, used_s
        As `run_slot` has them.
    upper, lower, part
        The work left afterwards is between two levels, a part of the way from the upper to the lower one;
        these are flat indices into costs by job, state and level.
    """

    def __init__(self, slot_s: float, group: JobGroup, lost_s: float, rounded: bool):
        level, step = np.arange(group.levels + 1), group.step[:, None, None]
        rate = group.rate[:, None]
        able, self.ends, self.used_s = run_slot(slot_s, rate, np.array(lost_s), level * step)
        down = np.floor(able / step).astype(np.int64)
        self.part = able / step - down
        if rounded:
            down += self.part > ROUNDING
            self.part = np.zeros_like(self.part)
        states = group.n_kinds + 2
        offset = (np.arange(len(group.job))[:, None] * states + group.kind)[:, :, None] * len(level)
        self.upper = np.maximum(level - down, 0) + offset
        self.lower = np.maximum(level - down - 1, 0) + offset


class Recursion:
    """Steps from slot to slot for the jobs of a group, each in a window of its own from slot `begin` on.

    If `rounded`, the work of slots is rounded up to whole levels; then costs are no more than the truth.
    """

    def __init__(self, jobs: PricedJobs, begin: IntArray, length: int, *, rounded: bool = False):
        self._jobs, self._begin, self._length = jobs, begin, length
        group, slot_s = jobs.group, jobs.horizon.slot_s
        self._start = _Move(slot_s, group, 0.0, rounded)
        self._again = _Move(slot_s, group, group.restart_s, rounded) if group.restart_s else self._start
        # Kinds and the first option of each, then those with a second one and this, and so on.
        place = np.arange(len(group.kind)) - np.searchsorted(group.kind, group.kind)
        ranks = [np.flatnonzero(place == rank) for rank in range(int(place.max()) + 1)]
        self._of_kind = [(group.kind[options], options) for options in ranks]
        self._buffers = [np.empty(self._start.used_s.shape) for _ in range(3)]

    def values(self) -> FloatArray:
        """Costs from every slot of the windows on, shape (length + 1, n_jobs, n_states, n_levels)."""
        group, horizon = self._jobs.group, self._jobs.horizon
        stored = np.empty((self._length + 1, len(group.job), group.n_kinds + 2, group.levels + 1))
        # No schedule that goes on after a window costs least, unless the window is cut by the horizon.
        beyond = (self._begin + self._length < horizon.slots)[:, None]
        after = unfinished(self._jobs, group.step[:, None] * np.arange(group.levels + 1))
        stored[-1] = np.where(beyond, FORBIDDEN, after)[:, None]
        for position in range(self._length - 1, -1, -1):
            self._fill(self._begin + position, stored[position + 1], stored[position])
        return stored

    def _fill(self, slot: IntArray, later: FloatArray, now: FloatArray) -> None:
        """Set costs from each job's slot on by those from the next on; both by job, state and level."""
        waits = (self._jobs.delay * self._jobs.horizon.slot_s)[:, None]
        start = again = self._run(slot, later, self._start, 0)
        if self._again is not self._start:
            again = self._run(slot, later, self._again, 1)
        np.minimum(later[:, RAN] + waits, again.min(axis=1), out=now[:, RAN])
        np.minimum(later[:, NEVER_RAN] + waits, start.min(axis=1), out=now[:, NEVER_RAN])
        # Options of the kind that runs go on without a restart; all others are as after a pause.
        (_, options), *more = self._of_kind
        running = start[:, options]
        for kinds, options in more:
            running[:, kinds] = np.minimum(running[:, kinds], start[:, options])
        np.minimum(running, now[:, RAN, None], out=now[:, :RAN])
        np.minimum(now, FORBIDDEN, out=now)

    def _run(self, slot: IntArray, later: FloatArray, move: _Move, buffer: int) -> FloatArray:
        """Cost of running every option in the slot, by job, option and level, kept in a buffer."""
        jobs, cost, other = self._jobs, self._buffers[buffer], self._buffers[2]
        np.take(later, move.upper, out=cost, mode="clip")
        np.take(later, move.lower, out=other, mode="clip")
        other -= cost
        other *= move.part
        cost += other
        np.copyto(cost, 0.0, where=move.ends)
        per_s = jobs.delay[:, None] + jobs.joule[slot][:, None] * jobs.group.extra_w
        np.multiply(per_s[:, :, None], move.used_s, out=other)
        cost += other
        cost += jobs.held[slot][:, :, None]
        begin_s, deadline_s = slot * jobs.horizon.slot_s, jobs.group.deadline_s * (1 + ROUNDING)
        if (begin_s + jobs.horizon.slot_s > deadline_s).any():
            late = (begin_s[:, None, None] + move.used_s > deadline_s[:, None, None]) & move.ends
            cost[late] = FORBIDDEN
        return cost


def unfinished(jobs: PricedJobs, work: FloatArray) -> FloatArray:
    """Cost of work left at the end of the horizon, shape (n_jobs, n) as `work`; delay counts from there."""
    horizon, group = jobs.horizon, jobs.group
    fastest = horizon.fastest[horizon.table[group.job[0]]]
    seconds = work / horizon.rate[fastest]
    cost = (jobs.delay[:, None] + jobs.joule[-1] * horizon.power_w[fastest]) * seconds
    late = horizon.slots * horizon.slot_s + seconds > group.deadline_s[:, None] * (1 + ROUNDING)
    late |= group.must_finish[:, None] | (work > (group.most_left + ROUNDING * group.work)[:, None])
    return np.asarray(np.where(late, FORBIDDEN, cost))
