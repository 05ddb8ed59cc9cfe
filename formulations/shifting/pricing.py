r"""Prices of GPUs in slots and of budgets: their names, and what they make a schedule cost.

About the least priced cost of what is left of a job, by dynamic programming over slots and work left.

:math:`V_t(s, w)` is the least cost from slot t on with work w left in state s: pause, run an option for the
slot, or end in it; between levels of the work left it is taken to be linear. That guides (`schedule_pricing`)
and bounds nothing; the certificate does.

States are the kinds of options, and then "ran before" and "never ran". Delay counts from the slot on.

A schedule that ends in slot T or later costs at least the delay until then and the energy of the work where
it is cheapest. Where that is more than the best schedule of a single run costs, T need not be looked at
(`windows`).

Last, the cheapest schedule of every job at given prices, and what schedules cost.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from wattsched.formulations.shifting.data import CRITERIA, NEVER_RAN, PAUSE, RAN, Horizon, JobGroup, groups_of
from wattsched.formulations.shifting.schedule import ROUNDING, Schedules, follow, held_gpus
from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Prices:
    """What schedules are charged, never negative.

    Attributes
    ----------
    criteria : float array, shape (4,)
        Price of each criterion; the objective's is one more than that of its budget.
    gpu : float array, shape (n_pools * slots,)
        Price of a GPU in each cell; infinite where none is to be had.
    """

    criteria: FloatArray
    gpu: FloatArray

    def per_joule(self, horizon: Horizon) -> FloatArray:
        """Price of a joule in every slot and, last, after the horizon, shape (slots + 1,)."""
        return np.asarray(self.criteria[1:] @ horizon.per_joule)

    def mixed(self, other: Prices, share: float) -> Prices:
        """Between these prices and others, `share` of these."""
        return Prices(
            share * self.criteria + (1 - share) * other.criteria, share * self.gpu + (1 - share) * other.gpu
        )


def budget_rows(horizon: Horizon) -> Iterator[tuple[int, str, float]]:
    """Number of the criterion, name, and limit without the idle GPUs' part of every budget."""
    for which, name in enumerate(CRITERIA):
        if np.isfinite(horizon.budget[which]):
            yield which, name, float(horizon.budget[which] - horizon.standing[which])


def row_names(horizon: Horizon) -> list[str]:
    """Name of every cell, by pool and then slot, and of every budget."""
    cells = [f"gpus:{pool}@{slot}" for pool in horizon.instance.pools for slot in range(horizon.slots)]
    return cells + [name for _, name, _ in budget_rows(horizon)]


def names_of_prices(named: list[tuple[str, int]], row_prices: FloatArray) -> dict[str, float]:
    """Prices of named rows of a program, without those of the wrong sign."""
    return {name: float(row_prices[row]) for name, row in named if row_prices[row] < 0}


NONE = 1e100
"""Cost where there is no schedule; finite, so that it can be interpolated."""


def windows(
    horizon: Horizon, group: JobGroup, delay: FloatArray, joule: FloatArray, gpu_cost: FloatArray
) -> IntArray:
    """Slots from a job's first one on that may matter, shape (n_jobs,).

    Parameters
    ----------
    delay : float array, shape (n_jobs,)
        Price of a second of completion time.
    joule : float array, shape (slots + 1,)
    gpu_cost : float array, shape (slots, n_options)
    """
    extra_w, rate = horizon.extra_w[group.option], horizon.rate[group.option]
    known = _single_runs(horizon, group, delay, joule, gpu_cost).min(axis=(1, 2), initial=np.inf)
    cheapest = np.minimum.accumulate(joule[::-1])[::-1][group.first_slot]
    room = known - group.work * float((extra_w / rate).min()) * cheapest
    with np.errstate(divide="ignore", invalid="ignore"):
        end = np.ceil(room * (1 + ROUNDING) / (delay * horizon.slot_s)) + 1
    end = np.where(np.isfinite(end) & (end < horizon.slots), end, horizon.slots)
    return np.asarray(np.maximum(end.astype(np.int64) - group.first_slot, 1))


def _single_runs(
    horizon: Horizon, group: JobGroup, delay: FloatArray, joule: FloatArray, gpu_cost: FloatArray
) -> FloatArray:
    """Costs of schedules that are one run, by job, first slot and option."""
    extra_w, rate = horizon.extra_w[group.option], horizon.rate[group.option]
    slot_s, option = horizon.slot_s, np.arange(len(group.option))
    each = gpu_cost + np.outer(joule[:-1], extra_w * slot_s)
    spent = np.concatenate([np.zeros((1, len(option))), np.cumsum(each, axis=0)])
    lost_s = np.where(group.kind_before == NEVER_RAN, 0.0, group.restart_s)
    needs_s = group.work[:, None] / rate + lost_s[:, None]
    before = np.maximum(np.ceil(needs_s / slot_s - 1e-6).astype(np.int64) - 1, 0)
    used_s = needs_s - before * slot_s
    begun = np.arange(horizon.slots)[:, None]
    last = begun + before[:, None]
    inside = np.minimum(last, horizon.slots - 1)
    end_s = inside * slot_s + used_s[:, None]
    cost = spent[inside, option] - spent[:-1] + gpu_cost[inside, option]
    cost += joule[inside] * (extra_w * used_s)[:, None] + delay[:, None, None] * end_s
    valid = (last < horizon.slots) & (begun >= group.first_slot[:, None, None])
    valid &= end_s <= group.deadline_s[:, None, None]
    return np.asarray(np.where(valid, cost, np.inf))


class Move:
    """Running an option for a slot, of which some seconds are lost; arrays by job, option and level.

    Attributes
    ----------
    able : float array, shape (n_options,)
        Work of the slot.

    Parameters
    ----------
    rounded : bool
        Round the work of a slot up to whole levels instead of going between them.
    """

    def __init__(self, horizon: Horizon, group: JobGroup, lost_s: float, *, rounded: bool = False):
        rate = horizon.rate[group.option]
        self.able = rate * (horizon.slot_s - lost_s)
        level, step = np.arange(group.levels + 1), group.step[:, None, None]
        able, rate = self.able[:, None], rate[:, None]
        self.ends = level * step <= able + ROUNDING * rate * horizon.slot_s
        self.used_s = np.where(self.ends, lost_s + level * step / rate, horizon.slot_s)
        down = np.floor(able / step).astype(np.int64)
        self.part = able / step - down
        if rounded:
            down += self.part > ROUNDING
            self.part = np.zeros_like(self.part)
        states = group.n_kinds + 2
        offset = (np.arange(len(group.job))[:, None] * states + group.kind)[:, :, None] * len(level)
        self.upper = np.maximum(level - down, 0) + offset
        self.lower = np.maximum(level - down - 1, 0) + offset


@dataclass(frozen=True)
class Charges:
    """Prices as a group's jobs see them.

    Attributes
    ----------
    delay : float array, shape (n_jobs,)
        Of a second of completion time.
    joule : float array, shape (slots + 1,)
    gpu : float array, shape (slots, n_options)
        Of an option's GPUs; at least `NONE` where there are too few.
    """

    delay: FloatArray
    joule: FloatArray
    gpu: FloatArray


class Recursion:
    """Steps from slot to slot for the jobs of a group, each in a window of its own.

    Parameters
    ----------
    begin : int array, shape (n_jobs,)
        First slot of each job's window.
    length : int
        Slots of all windows.
    rounded : bool
        As of `Move`; then costs are no more than the truth.
    """

    def __init__(
        self, horizon: Horizon, group: JobGroup, charges: Charges, begin: IntArray, length: int,
        *, rounded: bool = False,
    ):  # fmt: skip
        self.horizon, self.group, self.charges = horizon, group, charges
        self.begin, self.length = begin, length
        self.free = self.again = Move(horizon, group, 0.0, rounded=rounded)
        if group.restart_s:
            self.again = Move(horizon, group, group.restart_s, rounded=rounded)
        self.extra_w = horizon.extra_w[group.option]
        self.of_kind = _ranks(group.kind)
        self.buffers = [np.empty(self.free.used_s.shape) for _ in range(3)]

    def values(self) -> FloatArray:
        """Costs from every slot of the windows on, shape (length + 1, n_jobs, n_states, n_levels)."""
        group = self.group
        stored = np.empty((self.length + 1, len(group.job), group.n_kinds + 2, group.levels + 1))
        stored[-1] = self._after(group.step[:, None] * np.arange(group.levels + 1))[:, None]
        for position in range(self.length - 1, -1, -1):
            self._fill(self.begin + position, stored[position + 1], stored[position])
        return stored

    def _after(self, work: FloatArray) -> FloatArray:
        """Costs at the end of the windows, which is that of the horizon or later than need be looked at."""
        cost = self.unfinished(work)
        return np.where((self.begin + self.length < self.horizon.slots)[:, None], NONE, cost)

    def unfinished(self, work: FloatArray) -> FloatArray:
        """What work left at the end of the horizon costs, by job; delay counts from there."""
        horizon, group = self.horizon, self.group
        fastest = horizon.fastest[horizon.table[group.job[0]]]
        seconds = work / horizon.rate[fastest]
        cost = (self.charges.delay[:, None] + self.charges.joule[-1] * horizon.power_w[fastest]) * seconds
        late = horizon.slots * horizon.slot_s + seconds > group.deadline_s[:, None] * (1 + ROUNDING)
        return np.asarray(np.where(late | group.must_finish[:, None], NONE, cost))

    def _fill(self, slot: IntArray, later: FloatArray, now: FloatArray) -> None:
        group = self.group
        waits = (self.charges.delay * self.horizon.slot_s)[:, None]
        start = again = self._run(slot, later, self.free, 0)
        if group.restart_s:
            again = self._run(slot, later, self.again, 1)
        np.minimum(later[:, RAN] + waits, again.min(axis=1), out=now[:, RAN])
        np.minimum(later[:, NEVER_RAN] + waits, start.min(axis=1), out=now[:, NEVER_RAN])
        first, *more = self.of_kind
        running = start[:, first[1]]
        for kinds, options in more:
            running[:, kinds] = np.minimum(running[:, kinds], start[:, options])
        np.minimum(running, now[:, RAN, None], out=now[:, :RAN])
        np.minimum(now, NONE, out=now)

    def _run(self, slot: IntArray, later: FloatArray, move: Move, buffer: int) -> FloatArray:
        """Cost of running every option in the slot, shape (n_jobs, n_options, n_levels)."""
        charges, cost, other = self.charges, self.buffers[buffer], self.buffers[2]
        np.take(later, move.upper, out=cost, mode="clip")
        np.take(later, move.lower, out=other, mode="clip")
        other -= cost
        other *= move.part
        cost += other
        np.copyto(cost, 0.0, where=move.ends)
        per_s = charges.delay[:, None] + charges.joule[slot][:, None] * self.extra_w
        np.multiply(per_s[:, :, None], move.used_s, out=other)
        cost += other
        cost += charges.gpu[slot][:, :, None]
        begin_s, deadline_s = slot * self.horizon.slot_s, self.group.deadline_s * (1 + ROUNDING)
        if (begin_s + self.horizon.slot_s > deadline_s).any():
            late = (begin_s[:, None, None] + move.used_s > deadline_s[:, None, None]) & move.ends
            cost[late] = NONE
        return cost


def _ranks(kind: IntArray) -> list[tuple[IntArray, IntArray]]:
    """Kinds and their first options, those with a second one and these, and so on."""
    place = np.arange(len(kind)) - np.searchsorted(kind, kind)
    return [(kind[place == rank], np.flatnonzero(place == rank)) for rank in range(int(place.max()) + 1)]


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
