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
LEVELS, FINE_LEVELS, FEW_JOBS = 8192, 65_536, 8
"""Levels of the watts under a cap, those for few jobs, which fill it less evenly, and how many are few."""


def resettled(horizon: Horizon, decision: Schedules, prices: Prices) -> Schedules | None:
    """Return the decision with settings that keep the caps and are better; None where there are none.

    Parameters
    ----------
    decision : Schedules
        One schedule per job, in the order of the jobs; it may draw more than the caps allow.
    prices : Prices
        Of seconds and joules; those of cells are not used.
    """
    fastest, joule = horizon.fastest[horizon.table], prices.per_joule(horizon)
    # Work saves the seconds and joules that it would take at the end, at the job's fastest.
    saved = prices.criteria[0] * horizon.share + joule[-1] * horizon.power_w[fastest]
    saved /= horizon.rate[fastest]
    option, known = decision.option.copy(), dict[tuple[float, float, bytes, bytes], IntArray | None]()
    for resource, name in enumerate(horizon.resources):
        if name.startswith("gpus:"):
            continue
        _, cell, amount = held(horizon, decision)
        used_w = np.bincount(cell, amount, horizon.n_cells).reshape(-1, horizon.slots)[resource]
        for slot in np.flatnonzero(used_w > 0.5 * horizon.capacity[resource]).tolist():
            runs = np.flatnonzero(option[:, slot] != PAUSE)
            runs = runs[horizon.uses[option[runs, slot], resource] > 0]
            most_w = float((horizon.capacity + horizon.slack)[resource, slot])
            kinds = horizon.kind[option[runs, slot]]
            key = most_w, float(joule[slot]), runs.tobytes(), kinds.tobytes()
            if key not in known:
                worth = saved[runs, None] * horizon.rate - joule[slot] * horizon.extra_w
                known[key] = _best_settings(horizon, runs, kinds, resource, most_w, worth)
            if (chosen := known[key]) is not None:
                option[runs, slot] = chosen
    better = follow(horizon, decision.job, option)
    return better if fits(horizon, better) and np.isfinite(better.finish_s).all() else None


def _best_settings(
    horizon: Horizon, runs: IntArray, kinds: IntArray, resource: int, most_w: float, worth: FloatArray
) -> IntArray | None:
    """Choose an option of its kind for each job, of most worth within some watts; None where none fits.

    Parameters
    ----------
    runs, kinds : int arrays, shape (n,)
        Jobs that run, and the kinds of options that they hold.
    worth : float array, shape (n, n_options)
        Of a second of an option.
    """
    levels = FINE_LEVELS if len(runs) <= FEW_JOBS else LEVELS
    best, steps = np.zeros(levels + 1), []
    for kind, gains in zip(kinds.tolist(), worth, strict=True):
        own = np.flatnonzero(horizon.kind == kind)
        takes = np.ceil(horizon.uses[own, resource] * (levels / most_w)).astype(np.int64)
        value = np.full((len(own), levels + 1), -np.inf)
        for row, (level, gain) in enumerate(zip(takes.tolist(), gains[own].tolist(), strict=True)):
            value[row, level:] = best[: max(0, levels + 1 - level)] + gain
        pick = value.argmax(axis=0)
        best = value[pick, np.arange(levels + 1)]
        steps.append((own, takes, pick))
    if not np.isfinite(best[-1]):
        return None
    chosen, level = np.empty(len(runs), dtype=np.int64), levels
    for place, (own, takes, pick) in reversed([*enumerate(steps)]):
        row = int(pick[level])
        chosen[place] = own[row]
        level -= int(takes[row])
    return chosen
