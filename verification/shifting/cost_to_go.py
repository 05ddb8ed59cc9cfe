r"""The least that the rest of a job's schedule costs at prices, from below: a dynamic program over its work.

Levels of work left are safe. What is left is rounded down to one. Over a run (an option without a pause) the
work done is rounded as a whole: in slot t, :math:`\lfloor (t+1) a \rfloor - \lfloor t a \rfloor` levels for
an option that does a of them, and in the first slot of the run as much more as makes the sum of any number of
slots at least the true one. Schedules of the true job have thus counterparts that do no less work in the same
slots, and costs never fall with the work left.

Where a joule is paid for (at a negative price), they may. A level then stands for work left from it up to the
next one: a slot does as many levels as fit into its work, or one more, and each costs the least that it may
between the two.

Splits of a certificate tree forbid options in slots, and pauses, which counterparts keep to as they run the
same in the same slots. They may be through with their work sooner: where a split forbids to end, what has no
work left runs on. Ends before the earliest second that is allowed are not forbidden but count as if at it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.priced import PricedJob

PAUSED, NEVER = -2, -1
"""States of a job that runs nothing: it ran before, or its next start is free. They are the last ones."""
_MARGIN = 1e-7
"""Share of a level by which levels done exceed what rounding could make too few."""


class _Move:
    """Every option for `slot_s` seconds of which `lost_s` are lost; arrays by option and level of work left.

    `end_s` is when the work ends, from the slot's beginning on, 0 where it does not, and `delay` what that is
    charged. Joules are those above idle: of this work, of the whole slot (`most_joules`), and of the next
    level's work (`joules_up`).
    """

    def __init__(self, job: PricedJob, work: FloatArray, slot_s: float, lost_s: float):
        options = job.options
        needs_s = lost_s + work / options.rate[:, None]
        self.ends = needs_s <= slot_s * (1 + ROUNDING)
        self.joules = options.extra_w[:, None] * np.where(self.ends, needs_s, slot_s)
        self.most_joules = options.extra_w[:, None] * slot_s
        step = work[1]  # one level
        next_s = np.minimum(needs_s + step / options.rate[:, None], slot_s)
        self.joules_up = options.extra_w[:, None] * next_s
        self.end_s = np.where(self.ends, needs_s, 0.0)
        self.delay = job.delay * self.end_s


class CostToGo:
    """Lower bounds on the costs of a job's schedules from every slot on.

    Parameters
    ----------
    end : int
        Schedules that run in this slot or later are left out, unless it is the number of slots.
    levels : int
        Levels that the job's work is divided into.

    Attributes
    ----------
    step : float
        Work of a level.
    paid : bool
        True if drawing more may cost less.
    floor : float array, shape (slots + 1, n_options)
        Levels that an option does up to a slot, rounded down.
    makes_up : float array, shape (slots, n_options)
        Levels by which rounding falls behind, at most, in a run that begins in a slot.
    ranks, partners : lists
        As `_ranks` and `_partners` yield them.
    """

    def __init__(self, job: PricedJob, end: int, levels: int):
        self.job, rate, kind = job, job.options.rate, job.options.kind
        self.n, self.step, self.paid = len(rate), job.work / levels, job.pays_to_run(job.first)
        self.level = np.arange(levels + 1)
        work = np.asarray(self.step * self.level, dtype=np.float64)
        # Successive slots are often as long.
        self._move = lru_cache(4)(partial(_Move, job, work))
        exact = job.begin_s[:, None] * (rate / self.step)
        self.floor = np.floor(exact)
        behind = exact - self.floor
        worst = np.maximum.accumulate(behind[:0:-1], axis=0)[::-1]  # at the end of a slot or of any later one
        # Short slots may be lost in the rounding of long sums.
        self.makes_up = worst - behind[1:] + _MARGIN + job.slots * np.finfo(float).eps * exact[-1]
        # Where an option's levels begin in costs of all options one after another.
        self.row = (np.arange(self.n) * len(self.level))[:, None]
        members = [np.flatnonzero(kind == k) for k in range(int(kind.max()) + 1)]
        self.ranks, self.partners = list(_ranks(members)), list(_partners(members))
        self._cost = np.full((end - job.first + 1, self.n + 2, levels + 1), math.inf)
        if end == job.slots:
            self._cost[-1] = job.unfinished(work, work + self.step)
        for position in range(end - job.first - 1, -1, -1):
            self._fill(job.first + position, self._cost[position + 1], self._cost[position])

    def at(self, slot: int, state: IntArray, work: FloatArray) -> FloatArray:
        """Return lower bounds on costs from a slot on.

        Parameters
        ----------
        state : int array
            The option of the slot before, `PAUSED`, or `NEVER`.
        work : float array
            Work left.
        """
        level = (work * (1 - ROUNDING) / self.step).astype(np.int64)
        # In the middle of a run: the part of a level that its first slot was given more is given back.
        level = np.clip(level - ((state >= 0) & ~self.paid), 0, len(self.level) - 1)
        return np.asarray(self._cost[slot - self.job.first][state, level])

    def _fill(self, slot: int, later: FloatArray, now: FloatArray) -> None:
        """Fill in the costs from a slot on, by state and level, from those of the next slot."""
        # Of options that begin for the first time, or after a restart, or that go on.
        start = again = self._run(slot, later, self._first(slot, 0.0), 0.0)
        if (lost_s := self.job.restart_s) >= self.job.slot_s[slot]:
            again = np.full_like(start, math.inf)
        elif lost_s:
            again = self._run(slot, later, self._first(slot, lost_s), lost_s)
        going_on = self._run(slot, later, self.floor[slot + 1] - self.floor[slot], 0.0)
        # The least of the options of every kind.
        (_, options), *more = self.ranks
        of_kind = again[options]
        for kinds, options in more:
            of_kind[kinds] = np.minimum(of_kind[kinds], again[options])
        paused, never = (later[PAUSED], later[NEVER]) if self.job.idle[slot] else (math.inf, math.inf)
        np.minimum(paused, of_kind.min(axis=0), out=now[PAUSED])
        np.minimum(never, start.min(axis=0), out=now[NEVER])
        # A run that goes on is not begun again, or every slot would be given a part of a level.
        running = now[: self.n]
        np.minimum(going_on, paused, out=running)
        np.minimum(running, _of_others(of_kind)[self.job.options.kind], out=running)
        for options, partners in self.partners:
            running[options] = np.minimum(running[options], start[partners])

    def _first(self, slot: int, lost_s: float) -> FloatArray:
        """Levels that options do in a slot in which they begin, rounded up so as never to fall behind."""
        able = self.job.options.rate * (self.job.slot_s[slot] - lost_s) / self.step
        return np.asarray(np.ceil(able + self.makes_up[slot]))

    def _run(self, slot: int, later: FloatArray, done: FloatArray, lost_s: float) -> FloatArray:
        """Cost of running every option in a slot of which `lost_s` is lost, shape (n_options, n_levels).

        `later` are the costs from the next slot on, by state and level; `done` the levels that options do.
        """
        job, slot_s = self.job, float(self.job.slot_s[slot])
        move = self._move(slot_s, lost_s)
        if self.paid:
            return self._run_paid(slot, later, move, lost_s)
        index = np.maximum(self.level - done.astype(np.int64)[:, None], 0)
        index += self.row
        cost: FloatArray = np.take(later, index)
        if slot < job.first_end:  # what is through with its work runs on
            cost += (job.joule[slot] * job.options.extra_w * slot_s + job.gpu[slot])[:, None]
            return cost
        begin_s = float(job.begin_s[slot])
        np.copyto(cost, job.delay * begin_s, where=move.ends)
        if begin_s + slot_s > job.deadline_s:
            cost[move.ends & (begin_s + move.end_s > job.deadline_s)] = math.inf
        if begin_s < job.after_s:
            cost += job.delay * np.maximum(job.after_s - begin_s, move.end_s) * move.ends
        else:
            cost += move.delay
        cost += job.joule[slot] * move.joules
        cost += job.gpu[slot][:, None]
        return cost

    def _run_paid(self, slot: int, later: FloatArray, move: _Move, lost_s: float) -> FloatArray:
        """Return what `_run` does where joules are paid for, in this slot or another."""
        job, joule = self.job, self.job.joule[slot]
        able = (job.options.rate * (job.slot_s[slot] - lost_s) / self.step)[:, None]
        fit, more = np.floor(able - _MARGIN), np.ceil(able + _MARGIN)
        left = [np.maximum(self.level - done, 0).astype(np.int64) for done in (fit, fit + 1, more)]
        cost = np.minimum.reduce([np.take(later, self.row + index) for index in left])
        cost = np.where(self.level + 1 + _MARGIN > able, cost + joule * move.most_joules, math.inf)
        if slot >= job.first_end:
            end_s = job.begin_s[slot] + move.end_s
            ended = job.delay * np.maximum(end_s, job.after_s)
            ended += joule * (move.joules if joule >= 0.0 else move.joules_up)
            cost = np.minimum(cost, np.where(move.ends & (end_s <= job.deadline_s), ended, math.inf))
        return np.asarray(cost + job.gpu[slot][:, None])


def _ranks(members: list[IntArray]) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield kinds and the first option of each, those that have a second one and these, and so on.

    `members` are the options of every kind.
    """
    for rank in range(max(map(len, members))):
        kinds = [k for k, options in enumerate(members) if len(options) > rank]
        yield np.array(kinds), np.array([members[k][rank] for k in kinds])


def _partners(members: list[IntArray]) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield options and, for each, another one of its kind, until all pairs have come."""
    for turn in range(1, max(map(len, members))):
        able = [options for options in members if len(options) > turn]
        yield np.concatenate(able), np.concatenate([np.roll(options, turn) for options in able])


def _of_others(of_kind: FloatArray) -> FloatArray:
    """Least cost among all other kinds, for every kind and level of work."""
    if len(of_kind) == 1:
        return np.full_like(of_kind, math.inf)
    best, (least, second) = np.argmin(of_kind, axis=0), np.partition(of_kind, 1, axis=0)[:2]
    return np.asarray(np.where(np.arange(len(of_kind))[:, None] == best, second, least))


PAUSE = -1
"""Number in place of an option where a job does not run."""


class Followed(NamedTuple):
    """Schedules up to a slot.

    Attributes
    ----------
    state : int array
        The option of the slot before, `PAUSED`, or `NEVER`.
    kind : int array
        Its kind, which needs no restart; -1 for none.
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
        """Return some of the schedules, by number."""
        return self._replace(**{name: values[which] for name, values in self._asdict().items()})

    def undominated(self, *, same_work: bool) -> Followed:
        """Drop schedules that leave as much work as another of their state, or more, at no less cost.

        With `same_work` only as much counts, as having less to do may mean to end too early.
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
    """Costs of schedules that end in a slot, infinite where they cannot, and when; by schedule and option.

    Ends, here and below, count from the beginning of the horizon.
    """

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
    """Return what follows in a slot from every option and a pause: schedules that end, and that go on."""
    options, slot_s = job.options, float(job.slot_s[slot])
    full = options.rate * slot_s
    never = before.state == NEVER
    free = (before.kind[:, None] == options.kind) | never[:, None]
    lost_s = np.where(free, 0.0, job.restart_s)
    able, left = full - options.rate * lost_s, before.left[:, None]
    # Twice what counts as rounding, so that nothing ends later here than in truth.
    ends = left <= able + 2 * ROUNDING * full
    used_s = np.where(ends, lost_s + np.minimum(left, able) / options.rate, slot_s)
    cost = before.cost[:, None] + job.gpu[slot] + job.joule[slot] * options.extra_w * used_s
    cost[lost_s >= slot_s] = math.inf
    end_s = job.begin_s[slot] + used_s
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
