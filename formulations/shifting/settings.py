"""Better settings slot by slot: under a power cap, clocks of all jobs that run in a slot are chosen together.

Insertion gives each job the watts that others leave. Where few jobs share a cap, what is left over is worth
much. In every slot jobs keep their GPUs; among options of the same kind, to which they change without a
restart, those are chosen that together do the work that is worth most within the cap: a knapsack with one
choice per job (Kellerer, Pferschy and Pisinger 2004, "Knapsack Problems", ch. 11), by lists of the sums of
watts that no other sum is better than (Nemhauser and Ullmann 1969).
"""

from __future__ import annotations

import numpy as np

from wattsched.formulations.shifting.columns import Prices, Schedules, fits, follow, held
from wattsched.formulations.shifting.data import PAUSE, Horizon
from wattsched.topology.arrays import FloatArray, IntArray

MOST_JOBS = 40
"""Jobs up to which settings are chosen together; with more of them hardly anything is left over."""
MOST_SUMS = 1024
"""Sums of watts that are kept after each job: all that no other is better than, or so many of them."""


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
    _, cell, amount = held(horizon, decision)
    used = np.bincount(cell, amount, horizon.n_cells).reshape(-1, horizon.slots)
    for resource, name in enumerate(horizon.resources):
        if name.startswith("gpus:"):
            continue
        for slot in np.flatnonzero(used[resource] > 0.5 * horizon.capacity[resource]).tolist():
            runs = np.flatnonzero(option[:, slot] != PAUSE)
            runs = runs[horizon.uses[option[runs, slot], resource] > 0]
            most_w = float(horizon.capacity[resource, slot] + horizon.slack[resource, slot])
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
    watts, value, steps = np.zeros(1), np.zeros(1), []
    of_kinds = [np.flatnonzero(horizon.kind == kind) for kind in kinds]
    least_w = np.array([horizon.uses[own, resource].min() for own in of_kinds])
    left_w = most_w - np.append(np.cumsum(least_w[:0:-1])[::-1], 0.0)
    for own, gains, room_w in zip(of_kinds, worth, left_w.tolist(), strict=True):
        sums_w = np.add.outer(watts, horizon.uses[own, resource]).ravel()
        sums = np.add.outer(value, gains[own]).ravel()
        order = np.lexsort((-sums, sums_w))
        order = order[: np.searchsorted(sums_w[order], room_w, side="right")]
        if not len(order):
            return None
        # Those that draw no more and are worth more leave the others behind.
        most = np.maximum.accumulate(sums[order])
        order = order[np.append(True, most[1:] > most[:-1])]
        if len(order) > MOST_SUMS:
            order = order[np.linspace(0, len(order) - 1, MOST_SUMS).astype(np.int64)]
        watts, value = sums_w[order], sums[order]
        steps.append((own, order))
    chosen, at = np.empty(len(runs), dtype=np.int64), -1
    for place, (own, order) in reversed([*enumerate(steps)]):
        at, row = divmod(int(order[at]), len(own))
        chosen[place] = own[row]
    return chosen
