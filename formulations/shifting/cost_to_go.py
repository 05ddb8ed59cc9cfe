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
from wattsched.formulations.tolerances import FRACTIONAL, ROUNDING
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

RAN, NEVER_RAN = -2, -1
"""States of a job that runs nothing: it ran before, or its next start is free. They are the last ones."""
FORBIDDEN = 1e100
"""Cost where there is no schedule; finite, so that it can be interpolated."""
_LEVELS_PER_SLOT, _MOST_DOUBLINGS = 4, 3
"""Levels that the median option works off in a slot at least, if so many doublings of levels do."""
_MOST_TOGETHER = 128
"""Jobs of a group: more of them do not fit into the processor's caches."""
_COPIED = ("first_slot", "work", "most_left", "share", "deadline_s", "restart_s")


@dataclass(frozen=True)
class JobGroup:
    """Jobs with as many options of each kind and one number of levels, which are decided together.

    Attributes
    ----------
    levels : int
        Of the work left of each job, above the least that it can be when the horizon ends.
    kind : int array, shape (n_options,)
        Kinds of the options, numbered within each table, ascending.
    option : int array, shape (n_jobs, n_options)
        Options of each job's table, by kind.
    rate, extra_w : float arrays, shape (n_jobs, n_options)
        Work in a second and watts above idle of the options.
    job, first_slot, kind_before : int arrays, shape (n_jobs,)
        `kind_before` is `RAN` or `NEVER_RAN` for jobs that hold nothing before their first slot.
    work, least_left, most_left, share, deadline_s, restart_s : float arrays, shape (n_jobs,)
    """

    levels: int
    kind: IntArray
    option: IntArray
    rate: FloatArray
    extra_w: FloatArray
    job: IntArray
    first_slot: IntArray
    kind_before: IntArray
    work: FloatArray
    least_left: FloatArray
    most_left: FloatArray
    share: FloatArray
    deadline_s: FloatArray
    restart_s: FloatArray

    @property
    def n_kinds(self) -> int:
        """Number of kinds."""
        return int(self.kind[-1]) + 1

    @property
    def step(self) -> FloatArray:
        """Work between two levels, shape (n_jobs,)."""
        return (self.work - self.least_left) / self.levels

    @property
    def left(self) -> FloatArray:
        """Work left at each level, shape (n_jobs, levels + 1)."""
        return self.least_left[:, None] + self.step[:, None] * np.arange(self.levels + 1)

    def take(self, which: IntArray) -> JobGroup:
        """Some of the jobs."""
        names = ("option", "rate", "extra_w", "job", "kind_before", "least_left", *_COPIED)
        return replace(self, **{name: getattr(self, name)[which] for name in names})

    def run(
        self, slot_s: float | FloatArray, state: IntArray, left: FloatArray
    ) -> tuple[FloatArray, BoolArray, FloatArray, BoolArray]:
        """Run every option for a slot from states with work left; as `run_slot`, by state and option."""
        restarts = (state[:, None] != NEVER_RAN) & (state[:, None] != self.kind)
        return run_slot(slot_s, self.rate, restarts * self.restart_s[:, None], left[:, None])


def resting(state: IntArray) -> IntArray:
    """States after a slot in which nothing runs."""
    return np.where(state == NEVER_RAN, NEVER_RAN, RAN)


def groups_of(horizon: Horizon, levels: int) -> list[JobGroup]:
    """Put jobs that can be decided together into a group each, short ones first.

    The work of a job that takes a few slots has `levels`, up to eight times as many where it takes more.
    """
    spans = [np.arange(*span) for span in pairwise(horizon.option_start)]
    by_kind = [span[np.argsort(horizon.kind[span], kind="stable")] for span in spans]
    patterns = [np.unique(horizon.kind[options], return_inverse=True)[1].tobytes() for options in by_kind]
    middle_s = horizon.work / np.array([np.median(horizon.rate[span]) for span in spans])[horizon.table]
    able_s = np.minimum(middle_s, horizon.begin_s[-1] - horizon.begin_s[horizon.first_slot])
    needed = _LEVELS_PER_SLOT * able_s / (np.median(horizon.slot_s) * levels)
    doubled = np.clip(np.ceil(np.log2(needed)), 0, _MOST_DOUBLINGS).astype(np.int64)
    members: dict[tuple[bytes, int], list[int]] = {}
    for job in np.argsort(middle_s, kind="stable").tolist():
        members.setdefault((patterns[horizon.table[job]], int(doubled[job])), []).append(job)
    return [
        _group(horizon, np.array(jobs[at : at + _MOST_TOGETHER]), by_kind, levels << doublings)
        for (_, doublings), jobs in members.items()
        for at in range(0, len(jobs), _MOST_TOGETHER)
    ]


def _group(horizon: Horizon, jobs: IntArray, by_kind: list[IntArray], levels: int) -> JobGroup:
    """Group of jobs, given the options of every table by their kinds."""
    option = np.array([by_kind[table] for table in horizon.table[jobs]])
    _, kind = np.unique(horizon.kind[option[0]], return_inverse=True)
    kind_before = kind[np.argmax(horizon.kind[option] == horizon.kind_before[jobs, None], axis=1)]
    without = np.where(horizon.ran_before[jobs], RAN, NEVER_RAN)
    able = horizon.rate[option].max(axis=1) * (
        horizon.begin_s[-1] - horizon.begin_s[horizon.first_slot[jobs]]
    )
    return JobGroup(
        levels=levels,
        kind=kind,
        option=option,
        rate=horizon.rate[option],
        extra_w=horizon.extra_w[option],
        job=jobs,
        kind_before=np.where(horizon.kind_before[jobs] == NO_KIND, without, kind_before),
        least_left=np.maximum(horizon.work[jobs] - able, 0.0),
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
    options : int array, shape (n,)
        Options of all the jobs' tables, ascending.
    held : float array, shape (slots, n)
        Of their GPUs and watts under caps; at least `FORBIDDEN` where there are too few.
    column : int array, shape (n_jobs, n_options)
        Where a job's options are among all these.
    """

    horizon: Horizon
    group: JobGroup
    delay: FloatArray
    joule: FloatArray
    options: IntArray
    held: FloatArray
    column: IntArray

    def take(self, which: IntArray) -> PricedJobs:
        """Some of the jobs."""
        return replace(self, group=self.group.take(which), delay=self.delay[which], column=self.column[which])


def priced_jobs(
    horizon: Horizon, group: JobGroup, prices: Prices, free: FloatArray | None = None
) -> PricedJobs:
    """Jobs of a group with prices as they see them, and only what is `free` of each cell, if given."""
    options = np.unique(group.option)
    uses, cells = horizon.uses[options], (len(horizon.resources), horizon.slots)
    held = prices.cell.reshape(cells).T @ uses.T
    fits = horizon.fits[options]
    if free is not None:
        fits = fits & (uses[:, :, None] <= free.reshape(cells) + horizon.slack).all(axis=1)
    held[~fits.T] = FORBIDDEN
    delay, column = prices.criteria[0] * group.share, np.searchsorted(options, group.option)
    return PricedJobs(horizon, group, delay, prices.per_joule(horizon), options, held, column)


class _Move:
    """Running an option for its slot, of which each job loses `lost_s`; arrays by job, option and level.

    Attributes
    ----------
    ends, used_s
        As `run_slot` has them.
    upper, lower, part
        The work left afterwards is between two levels, a part of the way from the upper to the lower one;
        these are flat indices into costs by job, state and level.
    too_long : int array
        Jobs that lose all of their slot.
    """

    def __init__(self, slot_s: FloatArray, group: JobGroup, lost_s: FloatArray, rounded: bool):
        level, rate = np.arange(group.levels + 1), group.rate[:, :, None]
        step, slot_s, lost_s = (values[:, None, None] for values in (group.step, slot_s, lost_s))
        able, self.ends, self.used_s, cannot = run_slot(slot_s, rate, lost_s, group.left[:, None])
        self.too_long = np.flatnonzero(cannot)
        down = np.floor(able / step).astype(np.int64)
        self.part = able / step - down
        if rounded:
            down += self.part > ROUNDING
            self.part = np.zeros_like(self.part)
        states = group.n_kinds + 2
        offset = (np.arange(len(group.job))[:, None] * states + group.kind)[:, :, None] * len(level)
        self.upper = np.maximum(level + (offset - down), offset)
        self.lower = np.maximum(self.upper - 1, offset)


class Recursion:
    """Steps from slot to slot for the jobs of a group, each in a window of its own from slot `begin` on.

    If `rounded`, the work of slots is rounded up to whole levels; then costs are no more than the truth.
    """

    def __init__(self, jobs: PricedJobs, begin: IntArray, length: int, *, rounded: bool = False):
        self._jobs, self._begin, self._length = jobs, begin, length
        group, self._rounded, self._lengths = jobs.group, rounded, b""
        # Kinds and the first option of each, then those with a second one and this, and so on.
        place = np.arange(len(group.kind)) - np.searchsorted(group.kind, group.kind)
        ranks = [np.flatnonzero(place == rank) for rank in range(int(place.max()) + 1)]
        self._of_kind = [(group.kind[options], options) for options in ranks]
        self._buffers = [np.empty((*group.rate.shape, group.levels + 1)) for _ in range(3)]
        # Most work left from which a job can still do what it must, by position, job and state.
        self.most = np.full((length + 1, len(group.job), group.n_kinds + 2), np.inf)

    def values(self) -> FloatArray:
        """Costs from every slot of the windows on, shape (length + 1, n_jobs, n_states, n_levels)."""
        group, horizon = self._jobs.group, self._jobs.horizon
        stored = np.empty((self._length + 1, len(group.job), group.n_kinds + 2, group.levels + 1))
        # No schedule that goes on after a window costs least, unless the window is cut by the horizon.
        beyond = (self._begin + self._length < horizon.slots)[:, None]
        stored[-1] = np.where(beyond, FORBIDDEN, unfinished(self._jobs, group.left))[:, None]
        most = np.maximum(group.most_left, 0.0)[:, None]
        bound = not self._rounded and bool(np.isfinite(most).any())
        if bound:
            self.most[-1] = np.where(beyond & np.isfinite(most), 0.0, most)
            self._bridge(stored[-1], self.most[-1])
        for position in range(self._length - 1, -1, -1):
            slot = self._begin + position
            self._fill(slot, stored[position + 1], stored[position])
            if bound:
                self._reach(slot, self.most[position + 1], self.most[position])
                self._bridge(stored[position], self.most[position])
        return stored

    def _reach(self, slot: IntArray, later: FloatArray, now: FloatArray) -> None:
        """Set the most work that may be left in a job's slot by that in the next, both by job and state."""
        group, slot_s, endless = self._jobs.group, self._jobs.horizon.slot_s[slot], np.full(len(slot), np.inf)
        fits = self._jobs.held[slot[:, None], self._jobs.column] < FORBIDDEN
        for state in (*range(group.n_kinds), RAN, NEVER_RAN):
            before = np.full(len(slot), state)
            able, _, _, cannot = group.run(slot_s[:, None], before, endless)
            most = np.where(fits & ~cannot, able + later[:, group.kind], 0.0).max(axis=1)
            now[:, state] = np.maximum(later[:, resting(before)[0]], most)

    def _bridge(self, now: FloatArray, most: FloatArray) -> None:
        """Continue costs in a line to the level above the most work left, so that it lies between two."""
        group = self._jobs.group
        above = np.floor((most - group.least_left[:, None]) / group.step[:, None] + FRACTIONAL) + 1
        job, state = np.nonzero((above > 0) & (above <= group.levels))
        level = above[job, state].astype(np.int64)
        last, before = now[job, state, level - 1], now[job, state, np.maximum(level - 2, 0)]
        now[job, state, level] = np.minimum(2 * last - before, FORBIDDEN)

    def _fill(self, slot: IntArray, later: FloatArray, now: FloatArray) -> None:
        """Set costs from each job's slot on by those from the next on; both by job, state and level."""
        jobs, slot_s = self._jobs, self._jobs.horizon.slot_s[slot]
        self._move_for(slot_s)
        waits = (jobs.delay * slot_s)[:, None]
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

    def _move_for(self, slot_s: FloatArray) -> None:
        """Make the moves of slots of some lengths by job, unless all are as long as those before."""
        if (lengths := slot_s.tobytes()) == self._lengths:
            return
        self._lengths, group, lost_s = lengths, self._jobs.group, self._jobs.group.restart_s
        self._start = _Move(slot_s, group, np.zeros_like(lost_s), self._rounded)
        self._again = _Move(slot_s, group, lost_s, self._rounded) if lost_s.any() else self._start

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
        cost += jobs.held[slot[:, None], jobs.column][:, :, None]
        if len(move.too_long):
            cost[move.too_long] = FORBIDDEN
        begin_s, deadline_s = jobs.horizon.begin_s[slot], jobs.group.deadline_s * (1 + ROUNDING)
        if (jobs.horizon.begin_s[slot + 1] > deadline_s).any():
            late = (begin_s[:, None, None] + move.used_s > deadline_s[:, None, None]) & move.ends
            cost[late] = FORBIDDEN
        return cost


def unfinished(jobs: PricedJobs, work: FloatArray) -> FloatArray:
    """Cost of work left at the end of the horizon, shape (n_jobs, n) as `work`; delay counts from there."""
    horizon, group = jobs.horizon, jobs.group
    fastest = horizon.fastest[horizon.table[group.job]]
    seconds = work / horizon.rate[fastest, None]
    cost = (jobs.delay + jobs.joule[-1] * horizon.power_w[fastest])[:, None] * seconds
    late = horizon.begin_s[-1] + seconds > group.deadline_s[:, None] * (1 + ROUNDING)
    late |= work > (group.most_left + ROUNDING * group.work)[:, None]
    return np.asarray(np.where(late, FORBIDDEN, cost))
