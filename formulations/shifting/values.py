r"""Least priced cost of what is left of a job, by dynamic programming over slots and levels of work left.

:math:`V_t(s, w)` is the least cost from slot t on with work w left in state s: pause, run an option for the
slot, or end in it. Costs never fall with the work left, so with *safe* levels, on which never less work is
done than in truth, V at the level below w bounds the true cost from below. Other levels guide
(`schedule_pricing`) but bound nothing.

States are the kinds of options (the options themselves with safe levels), and then "ran before" and
"never ran".
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import BoolArray, FloatArray, IntArray
from wattsched.formulations.shifting.horizon import Horizon
from wattsched.formulations.shifting.job_groups import NEVER_RAN, RAN, JobGroup
from wattsched.formulations.shifting.levels import Levels, able
from wattsched.formulations.shifting.prices import Prices
from wattsched.formulations.shifting.schedule import ROUNDING


def option_costs(
    horizon: Horizon, group: JobGroup, prices: Prices, free: IntArray | None = None
) -> FloatArray:
    """Price of the GPUs of options, infinite where fewer are free, shape (slots, n_options).

    Parameters
    ----------
    free : int array, shape (n_pools * slots,), optional
    """
    cell = horizon.pool[group.option] * horizon.slots + np.arange(horizon.slots)[:, None]
    gpus = horizon.gpus[group.option]
    cost = gpus * prices.gpu[cell]
    return cost if free is None else np.where(gpus <= free[cell], cost, np.inf)


def values(
    horizon: Horizon,
    group: JobGroup,
    levels: Levels,
    prices: Prices,
    slots: IntArray,
    gpu_cost: FloatArray,
) -> FloatArray:
    """Least cost by slot, state, row of the group and level.

    Parameters
    ----------
    slots : int array
        Those that are wanted, ascending; the number of slots stands for the end of the horizon.
    gpu_cost : float array, shape (slots, n_options)
        As `option_costs` gives it.

    Returns
    -------
    float array, shape (len(slots), n_rows, n_states, n_levels)
        Completion is counted from the beginning of the horizon.
    """
    recursion = _Recursion(horizon, group, levels, prices, gpu_cost)
    later = recursion.after()
    stored = np.empty((len(slots), *later.shape))
    position = len(slots) - 1
    for slot in range(horizon.slots, int(slots[0]) - 1, -1):
        if slot < horizon.slots:
            later = recursion.before(slot, later)
        if slots[position] == slot:
            stored[position] = later
            position -= 1
    return stored


class _Move:
    """Running an option in a slot, after some seconds are lost."""

    def __init__(
        self,
        horizon: Horizon,
        group: JobGroup,
        levels: Levels,
        weight: FloatArray,
        lost_s: float,
        can: FloatArray,
    ):
        rate = horizon.rate[group.option][:, None]
        self.ends = levels.work <= can[:, None] + ROUNDING * rate * horizon.slot_s
        used_s = np.where(self.ends, lost_s + levels.work / rate, horizon.slot_s)
        self.joules = horizon.extra_w[group.option][:, None] * used_s
        self.end_s = np.where(self.ends, used_s, 0.0)
        self.delay = weight[:, None] * self.end_s


class _Recursion:
    """Steps from slot to slot."""

    def __init__(
        self, horizon: Horizon, group: JobGroup, levels: Levels, prices: Prices, gpu_cost: FloatArray
    ):
        self.horizon, self.group, self.levels, self.gpu_cost = horizon, group, levels, gpu_cost
        self.joule = prices.per_joule(horizon)
        self.weight = prices.criteria[0] * group.share[:, None]
        full, cut = able(horizon, group)
        self.free = self.again = _Move(horizon, group, levels, self.weight, 0.0, full)
        if group.restart_s:
            self.again = _Move(horizon, group, levels, self.weight, group.restart_s, cut)
        self.state = np.arange(len(group.option)) if levels.safe else group.kind
        self.n_states = int(self.state[-1]) + 3
        self.level = np.arange(len(levels.work))
        self.offset = (self.state * len(levels.work))[:, None]
        self.kind_start = np.searchsorted(group.kind, np.arange(group.n_kinds))
        self.others = [
            np.flatnonzero((group.kind == kind) & (np.arange(len(group.kind)) != c))
            for c, kind in enumerate(group.kind)
        ]
        self.by_deadline = bool(np.isfinite(group.deadline_s).any())
        shape = (group.n_rows, len(group.option), len(levels.work))
        self.buffers = [np.empty(shape) for _ in range(3)]

    def after(self) -> FloatArray:
        """Values at the end of the horizon."""
        horizon, group = self.horizon, self.group
        fastest = horizon.fastest[horizon.table[group.job[0]]]
        seconds = self.levels.work / horizon.rate[fastest]
        end_s = horizon.slots * horizon.slot_s + seconds
        cost = self.weight * end_s + self.joule[-1] * horizon.power_w[fastest] * seconds
        late = (end_s > self._deadline_s(1)) | group.must_finish[:, None]
        return np.repeat(np.where(late, np.inf, cost)[:, None], self.n_states, axis=1)

    def before(self, slot: int, later: FloatArray) -> FloatArray:
        """Values of a slot from those of the next one."""
        levels, group, gpu = self.levels, self.group, self.gpu_cost[slot]
        start = self._run(slot, later, self.free, levels.starting[slot], gpu, 0)
        again = start
        if group.restart_s:
            again = self._run(slot, later, self.again, levels.restarting[slot], gpu, 1)
        now = np.empty_like(later)
        np.minimum(later[:, RAN], again.min(axis=1), out=now[:, RAN])
        np.minimum(later[:, NEVER_RAN], start.min(axis=1), out=now[:, NEVER_RAN])
        if not levels.safe:
            of_kind = np.minimum.reduceat(start, self.kind_start, axis=1)
            now[:, :RAN] = np.minimum(of_kind, now[:, RAN, None])
            return now
        going_on = self._run(slot, later, self.free, levels.going_on[slot], gpu, 2)
        np.minimum(going_on, later[:, RAN, None], out=going_on)
        np.minimum(going_on, self._other_kinds(again)[:, group.kind], out=going_on)
        for c, others in enumerate(self.others):
            if len(others):
                np.minimum(going_on[:, c], start[:, others].min(axis=1), out=going_on[:, c])
        now[:, :RAN] = going_on
        return now

    def _other_kinds(self, cost: FloatArray) -> FloatArray:
        """Least cost among the options of all other kinds, for every kind.

        An option that goes on is not begun again, or every slot would be given a part of a level.
        """
        of_kind = np.minimum.reduceat(cost, self.kind_start, axis=1)
        if of_kind.shape[1] == 1:
            return np.full_like(of_kind, np.inf)
        least = np.partition(of_kind, 1, axis=1)[:, :2]
        return np.where(of_kind == least[:, :1], least[:, 1:], least[:, :1])

    def _run(
        self, slot: int, later: FloatArray, move: _Move, done: IntArray, gpu: FloatArray, buffer: int
    ) -> FloatArray:
        """Cost of running every option in the slot, shape (n_rows, n_options, n_levels)."""
        cost, begin_s = self.buffers[buffer], slot * self.horizon.slot_s
        left = np.maximum(self.level - done[:, None], 0) + self.offset
        np.take(later.reshape(len(later), -1), left, axis=1, out=cost, mode="clip")
        np.copyto(cost, self.weight[:, None] * begin_s, where=move.ends)
        cost += move.delay
        cost += gpu[:, None] + self.joule[slot] * move.joules
        if self.by_deadline:
            cost[self._misses(begin_s, move)] = np.inf
        return cost

    def _misses(self, begin_s: float, move: _Move) -> BoolArray:
        """Where a job ends in the slot and after its deadline."""
        return np.asarray((begin_s + move.end_s > self._deadline_s(2)) & (move.end_s > 0))

    def _deadline_s(self, axes: int) -> FloatArray:
        return np.asarray((self.group.deadline_s * (1 + ROUNDING)).reshape(-1, *[1] * axes))
