"""Options that another option of the same job dominates are dropped before anything is built."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.program import BoolArray, FloatArray, IntArray
from wattsched.formulations.sizing.uses import energy_j, extra_power_w
from wattsched.instances.options import Options

_CELLS = 4_000_000
"""Comparisons held in memory at once."""


def undominated(options: Options, cost: FloatArray) -> BoolArray:
    """Options worth keeping.

    An option goes when another option of the same job in the same pool costs no more, takes no larger
    block and uses no more of any budget (the first of equals stays), or when waiting does.

    Returns
    -------
    bool array, shape (n_options,)
    """
    criteria = np.array([cost, options.block.astype(float), *_budget_criteria(options)])
    return ~(_beaten_by_waiting(options, criteria) | _beaten_in_run(_runs(options), criteria))


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
    beaten = (rival >= 0) & ~options.waiting
    for values in criteria:
        beaten &= values[rival] <= values
    return beaten


def _runs(options: Options) -> IntArray:
    """Starts of the runs of options of one job in one pool (waiting is a run of its own), with the end."""
    n = len(options)
    change = np.flatnonzero((np.diff(options.job) != 0) | (np.diff(options.pool) != 0)) + 1
    return np.concatenate([[0], change, [n]]) if n else np.zeros(1, dtype=np.int64)


def _beaten_in_run(runs: IntArray, criteria: FloatArray) -> BoolArray:
    beaten = np.zeros(criteria.shape[1], dtype=bool)
    length = np.diff(runs)
    for size in np.unique(length[length > 1]):
        first = runs[:-1][length == size]
        step = max(1, int(_CELLS // (size * len(criteria))))
        for i in range(0, len(first), step):
            cells = first[i : i + step, None] + np.arange(size)
            beaten[cells] = _pareto(criteria[:, cells])
    return beaten


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
    for i in range(size - 1):
        worse = ~beaten[:, i : i + 1] & ~beaten[:, i + 1 :]
        for criterion in ranked[1:]:
            worse &= criterion[:, i : i + 1] <= criterion[:, i + 1 :]
        beaten[:, i + 1 :] |= worse
    result = np.empty_like(beaten)
    np.put_along_axis(result, order, beaten, axis=1)
    return result
