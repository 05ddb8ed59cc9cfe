r"""A coarser round: jobs of a class with nearly as much work are taken as equal.

Its LP is small, and its prices of slots and units are nearly right for the round itself.

Columns of `patterns` by their prices.

With prices :math:`u_k` of jobs, :math:`\lambda_t` of units and those of budgets from the LP over the columns
so far, a slot is best filled by the job that is cheapest less its price, and a pattern is worth adding when
its cost and that of its best jobs are less than the price of its unit. Every pattern is priced in each round,
so that each also gives a bound:

.. math::
    L = \sum_k m_k \min(u_k, w_k) + \sum_t N_t (\lambda_t + \min(0, \min_{p\ \text{on}\ t} \bar c_p)) + \dots
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from wattsched.formulations.model import Model
from wattsched.formulations.sharing.data import Kinds
from wattsched.formulations.sharing.master import Master, Prices, typical_cost
from wattsched.formulations.sharing.patterns import model_of
from wattsched.formulations.sharing.program import (
    Columns,
    Round,
    all_columns,
    certificate_prices,
    columns_of,
    slots_of,
)
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.topology.arrays import FloatArray, IntArray

BUCKETS = 6
"""Amounts of work that jobs of a class with the same permissions are told apart by."""


def coarse_slot_prices(of: Round) -> FloatArray:
    """Prices of all slots from the LP of the coarser round, shape (Q,)."""
    bucket = _buckets(of.kinds)
    kinds = _merged(of.kinds, bucket)
    count = np.bincount(bucket).astype(float)
    waiting = np.bincount(bucket, of.waiting * of.kinds.jobs) / np.bincount(bucket, of.kinds.jobs)
    coarser = replace(of, kinds=kinds, waiting=np.where(count > 0, waiting, 0.0))
    columns = all_columns(coarser)
    master = Master(coarser)
    master.add(columns.pattern, columns.kind, columns.slot)
    return master.solve()[1].slot


def _buckets(kinds: Kinds) -> IntArray:
    """Bucket of each kind: equal numbers of kinds of the same class and permissions, by work."""
    timed = np.isfinite(kinds.deadline_s)
    order = np.lexsort((kinds.epochs, kinds.may_wait, kinds.exclusive, timed, kinds.job_class))
    key = np.stack([kinds.job_class, timed, kinds.exclusive, kinds.may_wait], axis=1)[order]
    first = np.flatnonzero(np.append(True, np.any(key[1:] != key[:-1], axis=1)))
    bucket = np.zeros(len(kinds), dtype=np.int64)
    used = 0
    for group in np.split(order, first[1:]):
        bucket[group] = used + np.arange(len(group)) * BUCKETS // len(group)
        used += BUCKETS
    return np.asarray(np.unique(bucket, return_inverse=True)[1])


def _merged(kinds: Kinds, bucket: IntArray) -> Kinds:
    """One kind for each bucket, with the mean work and the loosest deadline in relation to it."""
    jobs = np.bincount(bucket, kinds.jobs)
    epochs = np.bincount(bucket, kinds.epochs * kinds.jobs) / jobs
    loosest = np.zeros(len(jobs))
    np.maximum.at(loosest, bucket, kinds.deadline_s / kinds.epochs)
    some = np.unique(bucket, return_index=True)[1]
    return Kinds(
        members=tuple(() for _ in jobs),
        job_class=kinds.job_class[some],
        jobs=jobs.astype(np.int64),
        epochs=epochs,
        deadline_s=loosest * epochs,
        exclusive=kinds.exclusive[some],
        may_wait=kinds.may_wait[some],
    )


GAP = 1e-5
"""Relative distance of the LP to its bound at which it is good enough."""

ROUNDS = 200
FEW_PATTERNS = 5_000
"""Up to this many patterns all are there from the start."""

NEW_PATTERNS = 400
PER_KIND, PER_SLOT = 4, 6
"""Placements added at once for each kind and each slot."""

LIKELY = 8
"""Placements of each kind to begin with."""

DETOUR = 0.005
"""Reduced cost of a placement that is still of use in the program, relative to the mean cost of a job."""

_ROUNDING = 1e-8


@dataclass(frozen=True)
class Priced:
    """What prices say: a lower bound, the reduced cost of every pattern, and of placements by class."""

    bound: float
    patterns: FloatArray
    placements: list[FloatArray]


def generate(of: Round, timer: Timer) -> Model[SharingDecision]:
    """Model over generated columns, with prices whose bound holds for all.

    The LP may take half of the time.
    """
    timer = timer.share(0.5)
    master = Master(of)
    alone = np.flatnonzero(of.patterns.size == 1)
    master.add(alone, *_first_placements(of, alone))
    known = _known_columns(of)
    if known is not None:
        master.add(known.pattern, known.kind, known.slot)
    if len(of.patterns) <= FEW_PATTERNS:
        master.add(np.arange(len(of.patterns)), *_likely_placements(of))
    best_bound, best_prices = -np.inf, None
    for _ in range(ROUNDS):
        cost, prices = master.solve()
        priced = price(of, prices)
        if priced.bound > best_bound:
            best_bound, best_prices = priced.bound, prices
        close = cost - best_bound <= GAP * abs(cost)
        if close or timer.over() or not _grow(of, master, prices, priced):
            break
    if best_prices is None or not np.isfinite(best_bound):
        return replace(model_of(of, master.columns), outside=-np.inf)
    model = model_of(of, _promising(of, master.columns, prices, best_bound, known))
    common = np.concatenate([best_prices.job, best_prices.unit, best_prices.budget])
    return replace(model, outside=best_bound, prices=certificate_prices(of, common))


def price(of: Round, prices: Prices) -> Priced:
    """Reduced costs under prices of jobs, units and budgets, and the bound that they prove."""
    kinds, patterns = of.kinds, of.patterns
    cheapest = np.full(len(patterns.job_class), np.inf)
    placements = []
    for own_kinds, own_slots in zip(of.kinds_of_class, of.slots_of_class, strict=True):
        k, s = own_kinds[:, None], own_slots[None, :]
        reduced = of.cost_of(k, s) - prices.job[k]
        for budget, y in zip(of.budgets, prices.budget, strict=True):
            reduced = reduced - y * budget.per_epoch[s] * kinds.epochs[k]
        reduced = np.where(kinds.admits(k, patterns, s), reduced, np.inf)
        cheapest[own_slots] = reduced.min(axis=0, initial=np.inf)
        placements.append(reduced)
    of_pattern = of.costs.pattern - prices.unit[patterns.unit_type]
    for budget, y in zip(of.budgets, prices.budget, strict=True):
        of_pattern = of_pattern - y * budget.of_pattern
    if len(patterns):
        of_pattern = of_pattern + np.add.reduceat(patterns.jobs * cheapest, patterns.start[:-1])
    least = np.zeros(len(of.units))
    np.minimum.at(least, patterns.unit_type, of_pattern)
    waiting = np.where(kinds.may_wait, of.waiting, np.inf)
    bound = of.costs.offset + float(kinds.jobs @ np.minimum(prices.job, waiting))
    bound += float(of.units @ (prices.unit + least))
    bound += sum(float(y) * budget.capacity for budget, y in zip(of.budgets, prices.budget, strict=True))
    return Priced(bound, of_pattern, placements)


def _grow(of: Round, master: Master, prices: Prices, priced: Priced) -> int:
    """Add what looks worth it; how many columns were new."""
    tolerance = _ROUNDING * typical_cost(of)
    worth = np.flatnonzero(priced.patterns < -tolerance)
    worth = worth[np.argsort(priced.patterns[worth], kind="stable")][:NEW_PATTERNS]
    fresh = np.zeros(len(of.patterns.job_class), dtype=bool)
    fresh[slots_of(of.patterns, worth)] = True
    fresh &= ~master.has_slot
    kinds, slots = [], []
    for k, s, reduced in zip(of.kinds_of_class, of.slots_of_class, priced.placements, strict=True):
        if not reduced.size:
            continue
        # In the master a slot has a price of its own; in a new pattern its best jobs are what counts.
        gain = reduced - np.where(master.has_slot[s], prices.slot[s], -np.inf)[None, :]
        chosen = _least(gain, PER_KIND, axis=1, below=-tolerance)
        chosen |= _least(gain, PER_SLOT, axis=0, below=-tolerance)
        filling = np.where(fresh[s][None, :], reduced, np.inf)
        chosen |= _least(filling, PER_SLOT, axis=0, below=np.inf)
        rows, columns = np.nonzero(chosen)
        kinds.append(k[rows])
        slots.append(s[columns])
    return master.add(worth, np.concatenate(kinds), np.concatenate(slots))


def _least(
    values: FloatArray, count: int, axis: int, below: float
) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Mark the least values along an axis, those below a bound only."""
    n = values.shape[axis]
    if count >= n:
        return np.asarray(values < below)
    nth = np.partition(values, count - 1, axis=axis).take([count - 1], axis=axis)
    return np.asarray((values <= nth) & (values < below))


def _first_placements(of: Round, alone: IntArray) -> tuple[IntArray, IntArray]:
    """Every job alone wherever it can be."""
    slots = of.patterns.start[alone]
    pairs = [
        of.placements(kinds, slots[of.patterns.job_class[slots] == c])
        for c, kinds in enumerate(of.kinds_of_class)
    ]
    return np.concatenate([pair[0] for pair in pairs]), np.concatenate([pair[1] for pair in pairs])


def _known_columns(of: Round) -> Columns | None:
    """Columns of a decision that is known, so that the program has one."""
    from wattsched.formulations.sharing.heuristics import eaco

    decision = eaco(of.patterns, of.objective)
    return None if decision is None else columns_of(of, decision)


def _promising(of: Round, columns: Columns, prices: Prices, bound: float, known: Columns | None) -> Columns:
    """Columns without placements of which a decision near the bound can have few or none.

    Places of jobs alone and of the known decision stay.
    """
    reduced = of.cost_of(columns.kind, columns.slot) - prices.job[columns.kind] - prices.slot[columns.slot]
    for budget, y in zip(of.budgets, prices.budget, strict=True):
        reduced = reduced - y * budget.per_epoch[columns.slot] * of.kinds.epochs[columns.kind]
    near = reduced <= DETOUR * abs(bound) / max(1, len(of.instance.jobs))
    near |= of.patterns.size[of.slot_pattern[columns.slot]] == 1
    if known is not None:
        width = len(of.slot_pattern)
        near |= np.isin(columns.kind * width + columns.slot, known.kind * width + known.slot)
    return Columns(columns.pattern, columns.kind[near], columns.slot[near])


def _likely_placements(of: Round) -> tuple[IntArray, IntArray]:
    """Placements that look best under the slots' prices of a coarser round."""
    slot_prices = coarse_slot_prices(of)
    kinds, slots = [], []
    for k, s in zip(of.kinds_of_class, of.slots_of_class, strict=True):
        grid = k[:, None], s[None, :]
        reduced = of.cost_of(*grid) - slot_prices[s]
        reduced = np.where(of.kinds.admits(grid[0], of.patterns, grid[1]), reduced, np.inf)
        chosen = _least(reduced, LIKELY, axis=1, below=np.inf)
        rows, columns = np.nonzero(chosen)
        kinds.append(k[rows])
        slots.append(s[columns])
    return np.concatenate(kinds), np.concatenate(slots)
