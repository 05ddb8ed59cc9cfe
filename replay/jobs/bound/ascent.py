r"""Prices at which the relaxation of a trace comes to much: a bound on every schedule (`relaxation`).

Prices go up where more is used than there is, and down where less. The step is that to a level a little
above the best value so far, over the length of the excess squared (Polyak 1969); the level is halved where it
is not reached (Goffin and Kiwiel, "Convergence of a simple subgradient level method", 1999). The direction is
a mean of this excess and those before. Then slots are halved in which many jobs complete, for a completion
counts from the begin of its slot, and the prices go on from there: with the prices of the whole, halves never
come to less.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.bound.relaxation import Evaluation, Prices, Relaxation, Workload
from wattsched.topology.arrays import FloatArray, IntArray

FIRST_SLOTS, MOST_SLOTS = 48, 1536
KEPT = 0.7
"""Part of the direction before in the next one."""
LEVEL, LEAST_LEVEL = 0.1, 1e-4
"""First level above the best value, and the one at which it ends, relative to that."""
SPARE, LONGEST = 1.5, 20.0
"""Slots' time over the least time of the work, and most by which a short budget multiplies the latter."""
SHORTEST_S = 1.0
"""Least time of the slots after the last arrival: times of clocks have digits for parts of it."""
PATIENCE = 10
"""Steps without a better value after which the level is halved."""
WORTHWHILE = 1e-3
"""Slots are halved as long as that raises the bound by this part."""

Progress = Callable[[float, int], None]


@dataclass(frozen=True)
class Bounded:
    """Slots, prices, and what the relaxation comes to at them."""

    relaxation: Relaxation
    prices: Prices
    found: Evaluation


def bounded(
    workload: Workload,
    joule_price: float = 0.0,
    start: Bounded | None = None,
    *,
    least_level: float = LEAST_LEVEL,
    until: float = np.inf,
    progress: Progress = lambda value, slots: None,
) -> Bounded:
    """Find prices that bound the completion times of every schedule, and its energy at a price.

    Parameters
    ----------
    joule_price : float
        Seconds of completion time, summed over jobs, that a joule counts for.
    start : Bounded, optional
        Bound at another price of a joule, whose slots are kept, and whose prices are the first.
    least_level : float
        Rise, relative to the value, below which no better prices are looked for.
    until : float
        Time of `time.monotonic` at which the best so far is returned.
    progress : callable
        Called with the best value after every step, and the number of slots.
    """
    climb = _Climb(workload, least_level, until, progress)
    workload = workload.efficient(watts=joule_price > 0 or workload.budget is not None)
    if start is not None:
        relaxation = Relaxation(workload, start.relaxation.edge_s)
        return climb.ascend(relaxation, replace(start.prices, joule=joule_price), LEVEL / 4)
    relaxation = Relaxation(workload, first_edges(workload))
    prices = Prices(
        np.zeros((len(workload.pools), len(relaxation.width_s))), np.zeros(len(relaxation.spare)), joule_price
    )
    best = climb.ascend(relaxation, prices, LEVEL)
    while len(best.relaxation.width_s) < MOST_SLOTS and not climb.late:
        halved, parts = _halved(best)
        finer = Relaxation(workload, halved)
        split = replace(best.prices, gpus=np.repeat(best.prices.gpus, parts, axis=1))
        before, best = best, climb.ascend(finer, split, LEVEL / 8)
        if best.found.value < before.found.value * (1 + WORTHWHILE):
            break
    return best


class _Climb:
    """Ascents of prices, until a time."""

    def __init__(self, workload: Workload, least_level: float, until: float, progress: Progress) -> None:
        self._least_level, self._until, self._progress = least_level, until, progress
        kinds, budget = workload.kinds, workload.budget
        # What a GPU in use takes of the budget in a second, so that both kinds of prices are of one size.
        self._per_gpu = 1.0
        if budget is not None:
            watts = float(np.mean([(kind.power_w / kind.gpus).mean() for kind in kinds]))
            self._per_gpu = max(watts * float(np.mean(budget.per_kwh)) / J_PER_KWH, 1e-30)
            self._period_s = budget.period_s

    @property
    def late(self) -> bool:
        return time.monotonic() >= self._until

    def ascend(self, relaxation: Relaxation, prices: Prices, level: float) -> Bounded:
        """Go up from prices until steps to levels above gain no more."""
        best = Bounded(relaxation, prices, relaxation.evaluate(prices))
        now, above, idle = best, level * max(abs(best.found.value), 1.0), 0
        direction = self._excess(now)
        while above > self._least_level * abs(best.found.value) and not self.late:
            if idle >= PATIENCE:
                now, above, idle, direction = best, above / 2, 0, self._excess(best)
            step = self._step(now, direction, best.found.value + above - now.found.value)
            if step is None:
                break
            now = Bounded(relaxation, step, relaxation.evaluate(step))
            mixed = zip(direction, self._excess(now), strict=True)
            direction = _Direction(*(KEPT * before + (1 - KEPT) * excess for before, excess in mixed))
            gain = now.found.value - best.found.value
            idle = 0 if gain > 0.05 * above else idle + 1
            above *= 1.2 if gain >= 0.5 * above else 1.0
            best = now if gain > 0 else best
            self._progress(best.found.value, len(relaxation.width_s))
        return best

    def _excess(self, at: Bounded) -> _Direction:
        """GPUs that are used in each slot above those that there are; the budget's in the same unit."""
        relaxation, found = at.relaxation, at.found
        gpus = found.used.gpu_s / relaxation.width_s - relaxation.workload.gpus[:, None]
        over = found.spent - relaxation.spare
        return _Direction(gpus, over / (self._per_gpu * self._period_s) if len(over) else over)

    def _step(self, at: Bounded, direction: _Direction, rise: float) -> Prices | None:
        prices = at.prices
        gpus = np.where((prices.gpus <= 0) & (direction.gpus < 0), 0.0, direction.gpus)
        budget = np.where((prices.budget <= 0) & (direction.budget < 0), 0.0, direction.budget)
        steep = float((gpus**2 * at.relaxation.width_s).sum())
        steep += float((budget**2).sum()) * self._period_s if len(budget) else 0.0
        if steep == 0:
            return None
        far = rise / steep
        return Prices(
            np.maximum(prices.gpus + far * gpus, 0.0),
            np.maximum(prices.budget + far * budget / self._per_gpu, 0.0),
            prices.joule,
        )


class _Direction(NamedTuple):
    gpus: FloatArray
    budget: FloatArray


def first_edges(workload: Workload) -> FloatArray:
    """Slots of one length from the first arrival to when all jobs should be complete, cut by periods."""
    begin_s, last_s = float(workload.arrival_s.min()), float(workload.arrival_s.max())
    least_gpu_s = least_j = alone_s = 0.0
    for kind in workload.kinds:
        work = workload.work[kind.jobs]
        least_gpu_s += float(work.sum() * (kind.gpus / kind.rate).min())
        least_j += float(work.sum() * (kind.power_w / kind.rate).min())
        alone_s = max(alone_s, float(work.max(initial=0.0) / kind.rate.max()))
    busy_s, budget = least_gpu_s / float(workload.gpus.sum()), workload.budget
    if budget is not None:
        spare_w = (
            budget.amount / budget.period_s / (np.mean(budget.per_kwh) / J_PER_KWH) - workload.standing_w
        )
        short_s = least_j / spare_w if spare_w > 0 else np.inf
        busy_s = float(min(max(busy_s, short_s), LONGEST * busy_s))
    end_s = last_s + max(SPARE * busy_s + alone_s, SHORTEST_S)
    edges = np.linspace(begin_s, end_s, FIRST_SLOTS + 1)
    if budget is None:
        return edges
    periods = np.arange(budget.begin_s, end_s, budget.period_s)
    changes = np.array(budget.time_s)
    inside = (changes > begin_s) & (changes < end_s)
    if inside.sum() <= MOST_SLOTS // 4:
        edges = np.append(edges, changes[inside])
    return np.unique(np.append(edges, periods[periods > begin_s]))


def _halved(best: Bounded) -> tuple[FloatArray, IntArray]:
    """Edges where slots are halved in which completions lose most, and the parts of each slot."""
    edge_s, width_s = best.relaxation.edge_s, best.relaxation.width_s
    lost_s = best.found.used.completing[:-1] * width_s
    shortest_s = max(1e-6 * float(edge_s[-1] - edge_s[0]), 1e-14 * float(np.abs(edge_s).max()))
    halved = (lost_s > lost_s.mean()) & (width_s > shortest_s)
    middle_s = (edge_s[:-1] + edge_s[1:]) / 2
    return np.sort(np.append(edge_s, middle_s[halved])), np.where(halved, 2, 1)
