r"""The marginal rule: work per gram, step by step, generalised from one job to many under shared budgets.

CarbonScaler (Hanafy, Liang, Bashir, Irwin, Shenoy, POMACS 7(3), 2023) gives one job, within a window, the
steps of most marginal work per marginal carbon, :math:`\Delta\rho / (\Delta P \cdot I_t)`, until its work is
done. Here a step is the next option on the concave hull of rate over power in one pool, as long as it adds
common shares of the best work per GPU and per joule: GPUs are scarce as well, and budgets tight. The jobs are
served one after the other from what GPUs are left, those with deadlines first, then those of least time per
weight, each in the pool where it ends first, or draws least. A job's window is a common *stretch* times the
time that it takes at its fastest. The best combination that keeps the budgets is taken.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from wattsched.formulations.shifting.columns import Prices, Schedules, amounts, decision_of, follow, is_valid
from wattsched.formulations.shifting.data import CRITERIA, NO_KIND, OBJECTIVES, PAUSE, Horizon
from wattsched.formulations.shifting.scenarios import one_plan
from wattsched.formulations.shifting.settings import MOST_JOBS, resettled
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import ROUNDING
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


class Effort(NamedTuple):
    """Shares of the best work per GPU and joule that steps have to add; whether pools go by their draw."""

    per_gpu: float
    per_joule: float
    by_draw: bool


STRETCHES = (1.0, 1.5, 2.5, 4.0, 8.0, 20.0)
EFFORTS = (
    Effort(0.3, 0.0, by_draw=False),
    Effort(0.6, 0.0, by_draw=False),
    Effort(0.6, 0.7, by_draw=True),
    Effort(0.9, 0.95, by_draw=True),
)
_WIDER = 4
"""A window that is too short grows by this part of it."""
_ATTEMPTS = 6
"""Most rounds of further steps for the work that restarts cost."""
_NOTHING = 1e-300
"""Stand-in for 0 in a denominator."""


@one_plan
def greedy(horizon: Horizon, objective: str, timer: Timer | None = None) -> ShiftingDecision | None:
    """Decide by the marginal rule; None where it keeps no budget."""
    which = OBJECTIVES.index(objective)
    return by_stretch(horizon, which, intensity_of(horizon, which), timer)


@one_plan
def carbon_blind(horizon: Horizon, objective: str, timer: Timer | None = None) -> ShiftingDecision | None:
    """Decide by the marginal rule without looking at the forecasts: a joule is a joule at any time."""
    return by_stretch(horizon, OBJECTIVES.index(objective), np.ones(horizon.slots), timer)


def intensity_of(horizon: Horizon, objective: int) -> FloatArray:
    """Return the cost of a joule by slot: in the objective's unit, else the first budget's, else in grams."""
    carbon, money, joules = map(CRITERIA.index, ("carbon_g", "money", "energy_j"))
    budgets = (c for c in (carbon, money, joules) if np.isfinite(horizon.budget[c]))
    per_joule = horizon.per_joule[(objective or next(budgets, carbon)) - 1, :-1]
    return per_joule if per_joule.any() else np.ones(horizon.slots)


def by_stretch(
    horizon: Horizon, objective: int, intensity: FloatArray, timer: Timer | None = None
) -> ShiftingDecision | None:
    """Best decision of all efforts and stretches in the budgets; `intensity` costs a joule by slot.

    Where the time is over before one was found, the most thrifty effort and stretch are the last to be tried.
    """
    best, least, over = None, np.inf, False
    for effort in EFFORTS:
        for stretch in STRETCHES:
            if over := timer is not None and timer.over():
                break
            if (schedules := _within_limits(horizon, objective, intensity, stretch, effort)) is None:
                continue
            if (amount := float(amounts(horizon, schedules)[objective])) < least:
                best, least = schedules, amount
            if CRITERIA[objective] == "completion_s":
                break  # wider windows end later
    if best is None and over:
        best = _within_limits(horizon, objective, intensity, STRETCHES[-1], EFFORTS[-1])
    return None if best is None else decision_of(horizon, best)


def _within_limits(
    horizon: Horizon, objective: int, intensity: FloatArray, stretch: float, effort: Effort
) -> Schedules | None:
    """Serve all jobs with one stretch and effort; None where that exceeds a budget or misses a deadline."""
    schedules = serve(horizon, intensity, stretch, effort)
    if is_valid(horizon, schedules):
        return schedules
    if 0 < horizon.n_jobs <= MOST_JOBS and horizon.counts_watts.any():
        # Jobs that look at GPUs alone, and then settle under the caps together.
        eager = serve(horizon, intensity, stretch, effort, capped=False)
        prices = Prices(1.0 * (np.arange(len(CRITERIA)) == objective), np.zeros(horizon.n_cells))
        schedules = resettled(horizon, eager, prices) or schedules
    return schedules if is_valid(horizon, schedules) else None


def serve(
    horizon: Horizon, intensity: FloatArray, stretch: float, effort: Effort, *, capped: bool = True
) -> Schedules:
    """Serve all jobs with one stretch and effort; `intensity` is the cost of a joule by slot."""
    # A job stays in one pool.
    tables = [np.arange(*span) for span in pairwise(horizon.option_start)]
    in_pools = [[t[horizon.pool[t] == pool] for pool in np.unique(horizon.pool[t])] for t in tables]
    steps = [[_hull(horizon, options, effort) for options in parts] for parts in in_pools]
    free = horizon.capacity + horizon.slack
    if not capped:
        free[horizon.counts_watts.reshape(free.shape)] = np.inf
    option = np.full((horizon.n_jobs, horizon.slots), PAUSE, dtype=np.int64)
    fastest_s = horizon.fastest_s
    free_s = horizon.deadline_s - horizon.arrival_s - fastest_s
    for job in np.lexsort((fastest_s / np.maximum(horizon.share, _NOTHING), free_s)):
        window_s = stretch * float(fastest_s[job])
        services = [_Service(horizon, int(job), hull, free, intensity) for hull in steps[horizon.table[job]]]
        served = [service.within(window_s) for service in services]
        chosen = min(served, key=lambda s: (s.missing, s.draw if effort.by_draw else s.last_slot)).option
        option[job] = chosen
        runs = np.flatnonzero(chosen != PAUSE)
        free[:, runs] -= horizon.uses[chosen[runs]].T
    return follow(horizon, np.arange(horizon.n_jobs), option)


class _Served(NamedTuple):
    """Options of a job by slot, the work that they leave, their last slot, and watts times intensity."""

    missing: float
    last_slot: int
    draw: float
    option: IntArray


class _Service:
    """One job in one pool: its steps, options from the least watts on, and in which slots each `fits`.

    `free` are GPUs by pool and slot, `intensity` is the cost of a joule by slot.
    """

    def __init__(self, horizon: Horizon, job: int, steps: IntArray, free: FloatArray, intensity: FloatArray):
        self.horizon, self.job, self.intensity = horizon, job, intensity
        self.steps = steps
        self.fits = np.asarray((horizon.uses[steps][:, :, None] <= free).all(axis=1))

    def within(self, window_s: float) -> _Served:
        """Serve the job within a window, which grows until the work fits into it."""
        horizon, begin = self.horizon, int(self.horizon.first_slot[self.job])
        due_s = np.array([horizon.deadline_s[self.job], horizon.begin_s[begin] + window_s])
        last, end = np.searchsorted(horizon.begin_s, due_s * (1 - ROUNDING)).tolist()
        last, slots = max(begin + 1, min(last, horizon.slots)), max(1, end - begin)
        best = np.where(self.fits, horizon.rate[self.steps][:, None], 0.0).max(axis=0)
        able = np.cumsum((best * horizon.slot_s)[begin:last])
        while True:
            end = min(last, begin + slots)
            if end == last or able[end - begin - 1] >= horizon.work[self.job] * (1 - 2 * ROUNDING):
                option, missing = self._fill(begin, end)
                if missing <= 0 or end == last:
                    runs = np.flatnonzero(option != PAUSE)
                    draw = float(horizon.power_w[option[runs]] @ self.intensity[runs])
                    return _Served(max(0.0, missing), int(runs[-1:].sum()), draw, option)
            slots += max(1, slots // _WIDER)

    def _fill(self, begin: int, end: int) -> tuple[IntArray, float]:
        """Take steps until the work is done; return the option by slot, and the work that is missing.

        Work that restarts cost is made up for in further attempts.
        """
        slot, step, work = self._ordered(begin, end)
        done = np.cumsum(work)
        target = float(self.horizon.work[self.job])
        for _ in range(_ATTEMPTS):
            taken = int(np.searchsorted(done, target * (1 - ROUNDING))) + 1
            level = np.full(self.horizon.slots, -1, dtype=np.int64)
            np.maximum.at(level, slot[:taken], step[:taken])
            option = np.where(level >= 0, self.steps[level], PAUSE)
            missing = self._settle(option)
            if missing <= 0 or taken > len(done):
                break
            target += missing
        return option, missing

    def _ordered(self, begin: int, end: int) -> tuple[IntArray, IntArray, FloatArray]:
        """Slot, step and work of all steps that fit, those of most work per cost of joules first."""
        horizon, fits = self.horizon, self.fits[:, begin:end]
        # A step replaces the one before it that fits into the slot, and adds the difference.
        more, power = (_added(of[self.steps], fits) for of in (horizon.rate, horizon.power_w))
        worth = more / np.maximum(power * self.intensity[begin:end], _NOTHING)
        step, slot = np.nonzero(fits)
        order = np.lexsort((step, slot, -worth[step, slot]))
        step, slot = step[order], slot[order]
        return slot + begin, step, more[step, slot] * horizon.slot_s[slot + begin]

    def _settle(self, option: IntArray) -> float:
        """Return the work that is not done by the options, at most 0 when it all is.

        Where a slot is too short for a restart, the job goes on as before if it can, or pauses.
        """
        horizon, job = self.horizon, self.job
        left, restart_s = float(horizon.work[job]), float(horizon.restart_s[job])
        kind, ran, last = int(horizon.kind_before[job]), bool(horizon.ran_before[job]), -1
        for slot in np.flatnonzero(option != PAUSE).tolist():
            chosen, slot_s = option[slot], float(horizon.slot_s[slot])
            if slot != last + 1:
                kind = NO_KIND
            lost_s = restart_s if ran and kind != horizon.kind[chosen] else 0.0
            if lost_s >= slot_s:
                same = self.steps[self.fits[:, slot] & (horizon.kind[self.steps] == kind)]
                option[slot] = chosen = same[-1] if len(same) else PAUSE
                if chosen == PAUSE:
                    continue
                lost_s = 0.0
            left -= float(horizon.rate[chosen]) * (slot_s - lost_s)
            kind, ran, last = int(horizon.kind[chosen]), True, slot
        return left


def _added(amount: FloatArray, fits: BoolArray) -> FloatArray:
    """Amounts of steps, which ascend, by slot, less that of the step before that fits into it."""
    before = np.maximum.accumulate(np.where(fits, amount[:, None], 0.0), axis=0)[:-1]
    return np.asarray(amount[:, None] - np.concatenate([np.zeros((1, fits.shape[1])), before]))


def _hull(horizon: Horizon, options: IntArray, effort: Effort) -> IntArray:
    """Options on the concave hull of rate over power, from the least power on, that add enough."""
    hull: list[int] = []
    points = [(0.0, 0.0)]
    for option in sorted(options.tolist(), key=lambda o: (horizon.power_w[o], -horizon.rate[o], o)):
        w2, r2 = float(horizon.power_w[option]), float(horizon.rate[option])
        _, r1 = points[-1]
        if r2 <= r1:
            continue
        while hull:
            (w0, r0), (w1, r1) = points[-2:]
            if (r1 - r0) * (w2 - w1) > (r2 - r1) * (w1 - w0):
                break
            hull.pop()
            points.pop()
        hull.append(option)
        points.append((w2, r2))
    best_per_gpu = max(float(horizon.rate[o] / horizon.gpus[o]) for o in hull)
    _, (watts, rate), *rest = points
    best_per_joule = rate / max(watts, _NOTHING)
    kept, gpus = hull[:1], int(horizon.gpus[hull[0]])
    for option, (w, r) in zip(hull[1:], rest, strict=True):
        more, added = r - rate, int(horizon.gpus[option]) - gpus
        enough = effort.per_gpu * best_per_gpu * added, effort.per_joule * best_per_joule * (w - watts)
        if more >= max(enough):
            kept.append(option)
            gpus, watts, rate = gpus + added, w, r
    return np.array(kept, dtype=np.int64)
