"""The cheapest schedule of every job at given prices, and what prices prove."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import FloatArray, IntArray
from wattsched.formulations.shifting.horizon import PAUSE, Horizon
from wattsched.formulations.shifting.job_groups import NEVER_RAN, RAN, JobGroup, groups_of
from wattsched.formulations.shifting.levels import Levels, able, levels_of
from wattsched.formulations.shifting.prices import Prices
from wattsched.formulations.shifting.schedule import ROUNDING, Schedules, follow, free_cells, held_gpus
from wattsched.formulations.shifting.values import option_costs, values

GUIDING_LEVELS = 120
SAFE_LEVELS = 1000
SIZES, SAFE_SIZES = 30.0, 3.0
"""Largest ratios between the work of two jobs that share levels."""


class SchedulePricing:
    """Finds schedules that cost little at given prices.

    Parameters
    ----------
    levels : int
        Most levels of work left; schedules are followed exactly, whatever the levels.
    """

    def __init__(self, horizon: Horizon, levels: int = GUIDING_LEVELS):
        self.horizon = horizon
        self._groups = [(g, levels_of(horizon, g, levels, safe=False)) for g in groups_of(horizon, SIZES)]
        self._group_of = np.empty(horizon.n_jobs, dtype=np.int64)
        for number, (group, _) in enumerate(self._groups):
            self._group_of[group.job] = number

    def cheapest(self, prices: Prices) -> Schedules:
        """Cheapest schedule of every job as far as the levels can tell, in the order of the jobs."""
        option = np.full((self.horizon.n_jobs, self.horizon.slots), PAUSE, dtype=np.int64)
        for group, levels in self._groups:
            option[group.job] = _cheapest(self.horizon, group, levels, prices)
        return follow(self.horizon, np.arange(self.horizon.n_jobs), option)

    def cheapest_of(self, job: int, prices: Prices, free: IntArray) -> Schedules:
        """Cheapest schedule of one job that takes no more than the free GPUs of each cell."""
        group, levels = self._groups[self._group_of[job]]
        option = _cheapest(self.horizon, group.only(job), levels, prices, free)
        return follow(self.horizon, np.array([job]), option)


def _cheapest(
    horizon: Horizon, group: JobGroup, levels: Levels, prices: Prices, free: IntArray | None = None
) -> IntArray:
    """Let jobs do what costs least in every slot, with their exact work, shape (n_jobs, slots)."""
    begin = int(horizon.first_slot[group.job].min())
    gpu_cost = option_costs(horizon, group, prices, free)
    cost = values(horizon, group, levels, prices, np.arange(begin, horizon.slots + 1), gpu_cost)
    walk = _Walk(horizon, group, levels, prices, gpu_cost)
    for slot in range(begin, horizon.slots):
        walk.step(slot, cost[slot + 1 - begin])
    return walk.option


class _Walk:
    """Jobs of a group on their way through the slots."""

    def __init__(
        self, horizon: Horizon, group: JobGroup, levels: Levels, prices: Prices, gpu_cost: FloatArray
    ):
        self.horizon, self.group, self.levels, self.gpu_cost = horizon, group, levels, gpu_cost
        self.joule, self.able = prices.per_joule(horizon), able(horizon, group)
        self.first_slot = horizon.first_slot[group.job]
        self.weight = prices.criteria[0] * group.share[group.row]
        self.deadline_s = group.deadline_s[group.row] * (1 + ROUNDING)
        self.left, self.state = horizon.work[group.job].copy(), group.kind_before.copy()
        self.ended = np.zeros(len(group.job), dtype=bool)
        self.option = np.full((len(group.job), horizon.slots), PAUSE, dtype=np.int64)

    def step(self, slot: int, later: FloatArray) -> None:
        """Do what costs least in a slot, with the least costs from the next slot on."""
        horizon, group, row = self.horizon, self.group, self.group.row
        rate, watts = horizon.rate[group.option][:, None], horizon.extra_w[group.option][:, None]
        lost = (self.state != NEVER_RAN) & (self.state != group.kind[:, None])
        can = self.able[lost.astype(np.int64), np.arange(len(group.option))[:, None]]
        ends = self.left <= can + ROUNDING * rate * horizon.slot_s
        used_s = np.where(ends, lost * group.restart_s + np.minimum(self.left, can) / rate, horizon.slot_s)
        level = self.levels.below(np.maximum(self.left - can, 0.0))
        end_s = slot * horizon.slot_s + used_s
        last = np.where(end_s > self.deadline_s, np.inf, self.weight * end_s)
        rest = np.where(ends, last, later[row, group.kind[:, None], level])
        cost = self.gpu_cost[slot][:, None] + self.joule[slot] * watts * used_s + rest
        resting = np.where(self.state == NEVER_RAN, NEVER_RAN, RAN)
        wait = later[row, resting, self.levels.below(self.left)]
        best, each = np.argmin(cost, axis=0), np.arange(len(group.job))
        begun = self.first_slot <= slot
        runs = (cost[best, each] < wait) & ~self.ended & begun
        self.option[runs, slot] = group.option[best[runs]]
        self.ended |= runs & ends[best, each]
        self.left = np.where(runs, np.maximum(self.left - can[best, each], 0.0), self.left)
        self.state = np.where(runs, group.kind[best], np.where(begun, resting, self.state))


def priced_cost(horizon: Horizon, schedules: Schedules, prices: Prices) -> FloatArray:
    """Cost of schedules at prices, shape (n,); infinite for those that break a deadline."""
    which, cell, gpus = held_gpus(horizon, schedules)
    gpu_cost = np.bincount(which, weights=gpus * prices.gpu[cell], minlength=len(schedules))
    cost = schedules.criteria @ prices.criteria + gpu_cost
    return np.where(np.isfinite(schedules.finish_s), cost, np.inf)


def lower_bound(horizon: Horizon, prices: Prices, objective: int, levels: int = SAFE_LEVELS) -> float:
    r"""Objective that no decision can be below, by prices: :math:`\sum_j V_j - \sum \lambda_r U_r`.

    Parameters
    ----------
    objective : int
        Number of the criterion that is minimised.
    """
    total = float(horizon.standing[objective]) - prices.criteria[0] * float(horizon.share @ horizon.arrival_s)
    for group in groups_of(horizon, SAFE_SIZES):
        grid = levels_of(horizon, group, levels, safe=True)
        slots, layer = np.unique(horizon.first_slot[group.job], return_inverse=True)
        cost = values(horizon, group, grid, prices, slots, option_costs(horizon, group, prices))
        option_of_kind = np.searchsorted(group.kind, group.kind_before)
        state = np.where(group.kind_before >= 0, option_of_kind, group.kind_before)
        # Going on with what is held counts as the middle of a run: its part of a level is given back here.
        level = np.maximum(grid.below(horizon.work[group.job]) - (group.kind_before >= 0), 0)
        total += float(cost[layer, group.row, state, level].sum())
    over = prices.criteria.copy()
    over[objective] -= 1.0
    charged = over > 0
    limits = horizon.budget - horizon.standing
    charges = float(over[charged] @ limits[charged] + prices.gpu @ free_cells(horizon))
    return float(total - charges - ROUNDING * (abs(total) + abs(charges)))
