r"""About the least priced cost of what is left of a job, by dynamic programming over slots and work left.

:math:`V_t(s, w)` is the least cost from slot t on with work w left in state s: pause, run an option for the
slot, or end in it; between levels of the work left it is taken to be linear. That guides (`schedule_pricing`)
and bounds nothing; the certificate does.

States are the kinds of options, and then "ran before" and "never ran". Delay counts from the slot on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.program import FloatArray, IntArray
from wattsched.formulations.shifting.horizon import Horizon
from wattsched.formulations.shifting.job_groups import NEVER_RAN, RAN, JobGroup
from wattsched.formulations.shifting.schedule import ROUNDING

NONE = 1e100
"""Cost where there is no schedule; finite, so that it can be interpolated."""


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
