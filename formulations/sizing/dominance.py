"""Options that another option of the same job dominates are dropped before anything is built."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import BoolArray, FloatArray, IntArray
from wattsched.formulations.sizing.uses import energy_j, extra_power_w
from wattsched.instances.options import Options

_CELLS = 4_000_000
"""Comparisons held in memory at once."""

_STEP = 16
"""Lengths of runs are rounded up to multiples of this."""


def undominated(options: Options, cost: FloatArray) -> BoolArray:
    """Options worth keeping.

    An option goes when another option of the same job in the same pool costs no more, takes no larger
    block and uses no more of any budget (the first of equals stays), or when waiting does. Options in sets
    stay, and beat none: they depend on what other jobs do.

    Returns
    -------
    bool array, shape (n_options,)
    """
    criteria = np.array([cost, options.block.astype(float), *_budget_criteria(options)])
    keep = ~_beaten_by_waiting(options, criteria)
    # What is left is compared in pairs, so it pays to drop the others first.
    left = np.flatnonzero(keep & ~options.shared)
    keep[left] = ~_beaten_in_run(_runs(options.job[left], options.pool[left]), criteria[:, left])
    return keep


def _budget_criteria(options: Options) -> list[FloatArray]:
    """Watts and joules, where they are limited; grams and the caps of domains are proportional to them."""
    budgets = options.instance.budgets
    capped = np.array([budgets.power_w is not None or bool(p.domains) for p in options.pools] + [False])
    power = np.where(capped[options.pool], extra_power_w(options), 0.0)
    criteria = [power] if capped.any() else []
    if budgets.energy_j is not None or budgets.carbon_g is not None:
        energy = energy_j(options)
        if not np.array_equal(energy, power * options.instance.round_s):
            criteria.append(energy)
    return criteria


def _beaten_by_waiting(options: Options, criteria: FloatArray) -> BoolArray:
    waiting = np.full(len(options.start) - 1, -1, dtype=np.int64)
    places = np.flatnonzero(options.waiting)
    waiting[options.job[places]] = places
    rival = waiting[options.job]
    beaten = (rival >= 0) & ~options.waiting & ~options.shared
    for values in criteria:
        beaten &= values[rival] <= values
    return beaten


def _runs(job: IntArray, pool: IntArray) -> IntArray:
    """Starts of the runs of options of one job in one pool (waiting is a run of its own), with the end."""
    n = len(job)
    change = np.flatnonzero((np.diff(job) != 0) | (np.diff(pool) != 0)) + 1
    return np.concatenate([[0], change, [n]]) if n else np.zeros(1, dtype=np.int64)


def _beaten_in_run(runs: IntArray, criteria: FloatArray) -> BoolArray:
    n = criteria.shape[1]
    # Runs of about the same length are compared together, filled up with a column that beats nothing.
    padded = np.hstack([criteria, np.full((len(criteria), 1), np.inf)])
    beaten = np.zeros(n + 1, dtype=bool)
    length = np.diff(runs)
    width = -(-length // _STEP) * _STEP
    for size in np.unique(width[length > 1]):
        members = np.flatnonzero((width == size) & (length > 1))
        step = max(1, int(_CELLS // (size * len(criteria))))
        for i in range(0, len(members), step):
            some = members[i : i + step, None]
            place = np.arange(size)
            cells = np.where(place < length[some], runs[some] + place, n)
            beaten[cells] = _pareto(padded[:, cells])
    return beaten[:n]


def _pareto(values: FloatArray) -> BoolArray:
    """Dominated members of equally long runs.

    Parameters
    ----------
    values : float array, shape (n_criteria, n_runs, size)
        Smaller is better.

    Returns
    -------
    bool array, shape (n_runs, size)
    """
    size = values.shape[2]
    order = np.lexsort(values[::-1], axis=-1)
    ranked = np.take_along_axis(values, order[None], axis=2)
    beaten = np.zeros(order.shape, dtype=bool)
    # In lexicographic order only an earlier member can dominate a later one, equals included.
    if len(values) == 2:
        beaten[:, 1:] = np.minimum.accumulate(ranked[1], axis=1)[:, :-1] <= ranked[1][:, 1:]
    for i in range(size - 1 if len(values) > 2 else 0):
        worse = ~beaten[:, i : i + 1] & ~beaten[:, i + 1 :]
        for criterion in ranked[1:]:
            worse &= criterion[:, i : i + 1] <= criterion[:, i + 1 :]
        beaten[:, i + 1 :] |= worse
    result = np.empty_like(beaten)
    np.put_along_axis(result, order, beaten, axis=1)
    return result
