r"""Columns of `patterns` by their prices.

With prices :math:`u_k` of jobs, :math:`\lambda_t` of units and those of budgets from the LP over the columns
so far, a slot is best filled by the job that is cheapest less its price, and a pattern is worth adding when
its cost and that of its best jobs are less than the price of its unit. Every pattern is priced in each round,
so that each also gives a bound:

.. math::
    L = \sum_k m_k \min(u_k, w_k) + \sum_t N_t (\lambda_t + \min(0, \min_{p\ \text{on}\ t} \bar c_p)) + \dots
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.master import RestrictedMaster
from wattsched.formulations.program import Entries
from wattsched.formulations.sharing.columns import (
    Columns,
    SetPartitioning,
    add_entries,
    column_costs,
    joined_pairs,
    slots_of,
)
from wattsched.formulations.sharing.decisions import columns_of
from wattsched.formulations.sharing.heuristics import eaco
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import REDUCED_COST
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, least_by

MISSING = 100.0
"""Cost of a job without a place, as a multiple of the dearest one."""

GAP = 1e-5
"""Relative distance of the LP to its bound at which it is good enough."""

ROUNDS = 200
FEW_PATTERNS = 5_000
"""Up to this many patterns all are there from the start."""

NEW_PATTERNS = 400
PER_KIND, PER_SLOT = 4, 6
"""Placements added at once for each kind and each slot."""

DETOUR = 0.005
"""Reduced cost of a placement that is still of use in the program, relative to the mean cost of a job."""


@dataclass(frozen=True)
class Prices:
    """Duals of the rows: of kinds (K,), unit types (T,), budgets (B,) and slots (Q,), nan without a row."""

    job: FloatArray
    unit: FloatArray
    budget: FloatArray
    slot: FloatArray


@dataclass(frozen=True)
class Priced:
    """Lower bound by prices, and reduced costs of patterns and, by class, of placements."""

    bound: float
    patterns: FloatArray
    placements: list[FloatArray]


@dataclass(frozen=True)
class Generated:
    """Result of column generation.

    Attributes
    ----------
    columns : Columns
    bound : float
        On the cost of every decision; -inf if none was proved.
    prices : float array, optional
        Prices of the rows of kinds, unit types and budgets that prove it.
    """

    columns: Columns
    bound: float
    prices: FloatArray | None


class PatternMaster:
    """The restricted master: rows of kinds, unit types and budgets, then of slots as they come.

    Jobs that may not wait do so at a high cost until there are columns for all. A placement is noted as the
    number of its kind times the number of slots, plus its slot.
    """

    def __init__(self, data: SetPartitioning):
        self._data, k = data, len(data.kinds)
        self._lp = RestrictedMaster("patterns", unit=typical_cost(data))
        self._has = np.zeros(len(data.patterns), dtype=bool)
        self._slot_row = np.full(len(data.slot_pattern), -1)
        self._placed = np.zeros(0, dtype=np.int64)
        self._lp.add_rows(*data.common_bounds)
        waits = Entries()
        waits.add(np.arange(k), np.arange(k))
        cost = np.where(data.kinds.may_wait, data.waiting, MISSING * _dearest(data))
        first = k + len(data.units)
        for row, budget in enumerate(data.budgets, first):
            waits.add(row, np.arange(k), budget.of_waiting(data.kinds))
            if budget.costs is not None:  # a limit may be missed, at a high cost
                waits.add(row, len(cost), -1.0)
                size = max(abs(budget.capacity), float(np.abs(budget.costs.slot).max(initial=0.0)), 1e-9)
                cost = np.append(cost, MISSING * _dearest(data) * len(data.instance.jobs) / size)
        self._lp.add_columns(waits.matrix(self._lp.n_rows, len(cost)), cost)

    @property
    def columns(self) -> Columns:
        """Columns so far."""
        kind, slot = np.divmod(np.sort(self._placed), max(1, len(self._slot_row)))
        return Columns(np.flatnonzero(self._has), kind, slot)

    @property
    def has_slot(self) -> BoolArray:
        """Slots of the patterns so far."""
        return np.asarray(self._slot_row >= 0)

    def add(self, patterns: IntArray, kinds: IntArray, slots: IntArray) -> int:
        """Add patterns, and placements of kinds in slots, that are not there; return how many were new."""
        fresh = np.unique(patterns[~self._has[patterns]])
        codes = np.setdiff1d(kinds * len(self._slot_row) + slots, self._placed)
        new = Columns(fresh, *np.divmod(codes, max(1, len(self._slot_row))))
        own = slots_of(self._data.patterns, fresh)
        self._slot_row[own] = self._lp.add_rows(np.zeros(len(own)), 0.0)
        self._has[fresh] = True
        self._placed = np.concatenate([self._placed, codes])
        entries = Entries()
        add_entries(entries, self._data, new, self._slot_row)
        size = len(fresh) + len(codes)
        self._lp.add_columns(entries.matrix(self._lp.n_rows, size), column_costs(self._data, new))
        return size

    def solve(self) -> tuple[float, Prices]:
        """Cost of the LP, offset included, and its duals; raises as `RestrictedMaster.solve`."""
        data, optimum = self._data, self._lp.solve()
        k = len(data.kinds)
        common = [k, k + len(data.units), data.n_common_rows]
        job, unit, budget, _ = np.split(optimum.prices, common)
        slot = np.full(len(self._slot_row), np.nan)
        slot[self.has_slot] = optimum.prices[self._slot_row[self.has_slot]]
        prices = Prices(job, np.minimum(unit, 0.0), np.minimum(budget, 0.0), slot)
        return optimum.cost + data.costs.offset, prices


def typical_cost(data: SetPartitioning) -> float:
    """Median of the costs of jobs alone and of patterns, without those that are 0."""
    alone = np.flatnonzero(data.patterns.size[data.slot_pattern] == 1)
    epochs = float(np.median(data.kinds.epochs)) if len(data.kinds) else 1.0
    slots = np.abs(data.costs.slot + data.costs.per_epoch * epochs)[alone]
    costs = np.concatenate([slots, np.abs(data.costs.pattern)])
    return float(np.median(costs[costs > 0])) if np.any(costs > 0) else 1.0


def _dearest(data: SetPartitioning) -> float:
    """Cost above that of any job in any place."""
    costs, most = data.costs, float(data.kinds.epochs.max(initial=0.0))
    slots = np.abs(costs.slot).max(initial=0.0) + np.abs(costs.per_epoch).max(initial=0.0) * most
    rest = np.abs(costs.pattern).max(initial=0.0) + np.abs(data.waiting).max(initial=0.0)
    return float(slots + rest) or 1.0


def generate(data: SetPartitioning, timer: Timer) -> Generated:
    """Generate columns, and prices whose bound holds for all.

    The LP may take half of the time.
    """
    timer, master, patterns = timer.share(0.5), PatternMaster(data), data.patterns
    decision = eaco(patterns, data.objective)
    # So that the program has a decision, and every job alone wherever it can be.
    known = None if decision is None else columns_of(data, decision)
    single = patterns.size == 1
    alone = [data.admitted(kinds, slots[single[patterns.pattern[slots]]]) for kinds, slots in data.of_class]
    master.add(np.flatnonzero(single | (len(patterns) <= FEW_PATTERNS)), *joined_pairs(alone))
    if known is not None:
        master.add(known.pattern, known.kind, known.slot)
    best_bound, best_prices = -np.inf, None
    for _ in range(ROUNDS):
        cost, prices = master.solve()
        priced = price(data, prices)
        if priced.bound > best_bound:
            best_bound, best_prices = priced.bound, prices
        close = cost - best_bound <= GAP * abs(cost)
        if close or timer.over() or not _grow(data, master, prices, priced):
            break
    if best_prices is None or not np.isfinite(best_bound):
        return Generated(master.columns, -np.inf, None)
    columns = _promising(data, master.columns, prices, best_bound, known)
    common = np.concatenate([best_prices.job, best_prices.unit, best_prices.budget])
    return Generated(columns, best_bound, common)


def price(data: SetPartitioning, prices: Prices) -> Priced:
    """Reduced costs under prices of jobs, units and budgets, and the bound that they prove."""
    kinds, patterns = data.kinds, data.patterns
    cheapest = np.full(len(patterns.job_class), np.inf)
    placements = []
    for k, s in data.of_class:  # numbers of kinds and slots
        placements.append(data.cost_table(k, s, prices.budget) - prices.job[k, None])
        cheapest[s] = placements[-1].min(axis=0, initial=np.inf)
    of_pattern = data.costs.pattern - prices.unit[patterns.unit_type]
    bound = data.costs.offset
    for budget, y in zip(data.budgets, prices.budget, strict=True):
        of_pattern = of_pattern - y * budget.of_pattern
        bound += float(y) * budget.capacity
    if len(patterns):
        of_pattern = of_pattern + np.add.reduceat(patterns.jobs * cheapest, patterns.start[:-1])
    least = least_by(patterns.unit_type, of_pattern, len(data.units), 0.0)
    used = sum(
        (y * budget.of_waiting(kinds) for budget, y in zip(data.budgets, prices.budget, strict=True)), 0.0
    )
    waiting = np.where(kinds.may_wait, data.waiting - used, np.inf)
    bound += float(kinds.jobs @ np.minimum(prices.job, waiting)) + float(data.units @ (prices.unit + least))
    return Priced(bound, of_pattern, placements)


def _grow(data: SetPartitioning, master: PatternMaster, prices: Prices, priced: Priced) -> int:
    """Add patterns and placements of negative reduced cost; return how many columns were new."""
    tolerance = REDUCED_COST * typical_cost(data)
    worth = np.flatnonzero(priced.patterns < -tolerance)
    worth = worth[np.argsort(priced.patterns[worth], kind="stable")][:NEW_PATTERNS]
    fresh = np.zeros(len(data.slot_pattern), dtype=bool)
    fresh[slots_of(data.patterns, worth)] = True
    fresh &= ~master.has_slot
    pairs = []
    for (k, s), reduced in zip(data.of_class, priced.placements, strict=True):
        if not reduced.size:
            continue
        # In the master a slot has a price of its own; in a new pattern its best jobs are what counts.
        gain = reduced - np.where(master.has_slot[s], prices.slot[s], -np.inf)[None, :]
        chosen = _least_marked(gain, PER_KIND, axis=1, below=-tolerance)
        chosen |= _least_marked(gain, PER_SLOT, axis=0, below=-tolerance)
        filling = np.where(fresh[s][None, :], reduced, np.inf)
        chosen |= _least_marked(filling, PER_SLOT, axis=0, below=np.inf)
        rows, columns = np.nonzero(chosen)
        pairs.append((k[rows], s[columns]))
    return master.add(worth, *joined_pairs(pairs))


def _least_marked(values: FloatArray, count: int, axis: int, below: float) -> BoolArray:
    """Mark the `count` least values along an axis, and their equals, as far as they are below a bound."""
    if count >= values.shape[axis]:
        return np.asarray(values < below)
    nth = np.partition(values, count - 1, axis=axis).take([count - 1], axis=axis)
    return np.asarray((values <= nth) & (values < below))


def _promising(
    data: SetPartitioning, columns: Columns, prices: Prices, bound: float, known: Columns | None
) -> Columns:
    """Leave out placements of which a decision near the bound can have few or none.

    Places of jobs alone and of the known decision stay.
    """
    reduced = data.cost_of(columns.kind, columns.slot, prices.budget)
    reduced = reduced - prices.job[columns.kind] - prices.slot[columns.slot]
    near = reduced <= DETOUR * abs(bound) / max(1, len(data.instance.jobs))
    near |= data.patterns.size[data.slot_pattern[columns.slot]] == 1
    if known is not None:
        width = len(data.slot_pattern)
        near |= np.isin(columns.kind * width + columns.slot, known.kind * width + known.slot)
    return Columns(columns.pattern, columns.kind[near], columns.slot[near])
