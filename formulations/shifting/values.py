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
    float array, shape (len(slots), n_states, n_rows, n_levels)
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
        ends = levels.work <= can[:, None] + ROUNDING * rate * horizon.slot_s
        self.ending = np.count_nonzero(ends, axis=1).tolist()
        self.used_s = np.where(ends, lost_s + levels.work / rate, horizon.slot_s)
        self.end_s = np.where(ends, self.used_s, 0.0)
        self.joules = horizon.extra_w[group.option][:, None] * self.used_s
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
        self.kind_start = np.searchsorted(group.kind, np.arange(group.n_kinds))
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
        return np.repeat(np.where(late, np.inf, cost)[None], self.n_states, axis=0)

    def before(self, slot: int, later: FloatArray) -> FloatArray:
        """Values of a slot from those of the next one."""
        levels, group, gpu = self.levels, self.group, self.gpu_cost[slot]
        start = self._run(slot, later, self.free, levels.starting[slot], gpu, 0)
        of_kind = np.minimum.reduceat(start, self.kind_start, axis=1)
        first = of_kind.min(axis=1)
        again = first
        if group.restart_s:
            again = self._run(slot, later, self.again, levels.restarting[slot], gpu, 1).min(axis=1)
        now = np.empty_like(later)
        np.minimum(later[RAN], again, out=now[RAN])
        np.minimum(later[NEVER_RAN], first, out=now[NEVER_RAN])
        held = np.minimum(of_kind, now[RAN][:, None])
        if levels.safe:
            going_on = self._run(slot, later, self.free, levels.going_on[slot], gpu, 2)
            held = np.minimum(held[:, group.kind], going_on)
        now[:RAN] = held.swapaxes(0, 1)
        return now

    def _run(
        self, slot: int, later: FloatArray, move: _Move, done: IntArray, gpu: FloatArray, buffer: int
    ) -> FloatArray:
        """Cost of running every option in the slot, shape (n_rows, n_options, n_levels)."""
        horizon, cost, n = self.horizon, self.buffers[buffer], len(self.levels.work)
        begin_s = slot * horizon.slot_s
        for c, (down, ending, state) in enumerate(
            zip(done.tolist(), move.ending, self.state.tolist(), strict=True)
        ):
            row = cost[:, c]
            row[:, :ending] = self.weight * begin_s
            low = max(ending, min(down, n))
            row[:, ending:low] = later[state, :, :1]
            row[:, low:] = later[state, :, low - down : n - down]
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
