"""Better settings slot by slot: under a power cap, clocks of all jobs that run in a slot are chosen together.

Insertion gives each job the watts that others leave. Where few jobs share a cap, what is left over is worth
much. In every slot jobs keep their GPUs; among options of the same kind, to which they change without a
restart, those are chosen that together do the work that is worth most within the cap: a knapsack with one
choice per job (Kellerer, Pferschy and Pisinger 2004, "Knapsack Problems", ch. 11), by dynamic programming
over watts.
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.shifting.columns import Prices, Schedules, fits, follow, held
from wattsched.formulations.shifting.data import PAUSE, Horizon
from wattsched.topology.arrays import FloatArray, IntArray

MOST_JOBS = 40
"""Jobs up to which settings are chosen together; with more of them hardly anything is left over."""
LEVELS = 8192
"""Levels of the watts under a cap."""


def resettled(horizon: Horizon, decision: Schedules, prices: Prices) -> Schedules | None:
    """Return the decision with settings that keep the caps and are better; None where there are none.

    Parameters
    ----------
    decision : Schedules
        One schedule per job, in the order of the jobs; it may draw more than the caps allow.
    prices : Prices
        Of seconds and joules; those of cells are not used.
    """
    worth, option = _worth(horizon, prices), decision.option.copy()
    for resource, name in enumerate(horizon.resources):
        if name.startswith("gpus:"):
            continue
        _, cell, amount = held(horizon, decision)
        used = np.bincount(cell, amount, horizon.n_cells).reshape(-1, horizon.slots)[resource]
        for slot in np.flatnonzero(used > 0.5 * horizon.capacity[resource]).tolist():
            _settle(horizon, option, slot, resource, worth)
    better = follow(horizon, decision.job, option)
    return better if fits(horizon, better) and np.isfinite(better.finish_s).all() else None


def _worth(horizon: Horizon, prices: Prices) -> FloatArray:
    """Worth of running an option of a job for a slot, shape (n_jobs, n_options, slots).

    Work saves the seconds and joules that it would take at the end, at the job's fastest.
    """
    fastest, joule = horizon.fastest[horizon.table], prices.per_joule(horizon)
    after_s = 1.0 / horizon.rate[fastest]
    each = prices.criteria[0] * horizon.share * after_s + joule[-1] * horizon.power_w[fastest] * after_s
    gained = each[:, None, None] * horizon.rate[:, None]
    return np.asarray((gained - joule[:-1] * horizon.extra_w[:, None]) * horizon.slot_s)


def _settle(horizon: Horizon, option: IntArray, slot: int, resource: int, worth: FloatArray) -> None:
    """Choose the settings of one slot, in place."""
    runs = np.flatnonzero(option[:, slot] != PAUSE)
    runs = runs[horizon.uses[option[runs, slot], resource] > 0]
    unit = (horizon.capacity[resource, slot] + horizon.slack[resource, slot]) / LEVELS
    best, chosen = np.zeros(LEVELS + 1), []
    for job in runs.tolist():
        own = horizon.options_of(job)
        own = own[horizon.kind[own] == horizon.kind[option[job, slot]]]
        takes = np.ceil(horizon.uses[own, resource] / unit).astype(np.int64)
        value = np.full((len(own), LEVELS + 1), -np.inf)
        for row, (level, gain) in enumerate(zip(takes.tolist(), worth[job, own, slot].tolist(), strict=True)):
            value[row, level:] = best[: max(0, LEVELS + 1 - level)] + gain
        pick = value.argmax(axis=0)
        best = value[pick, np.arange(LEVELS + 1)]
        chosen.append((job, own, takes, pick))
    if not np.isfinite(best[-1]):
        return
    level = LEVELS
    for job, own, takes, pick in reversed(chosen):
        row = int(pick[level])
        option[job, slot] = own[row]
        level -= int(takes[row])
