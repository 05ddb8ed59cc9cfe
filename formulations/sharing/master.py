"""LP relaxation of `sharing` over the columns so far; it grows, and begins where it ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from wattsched.formulations.growing_lp import solve_growing
from wattsched.formulations.sharing.program import Columns, Round, slots_of
from wattsched.topology.arrays import FloatArray, IntArray

MISSING = 100.0
"""Cost of a job without a place, as a multiple of the dearest one."""


@dataclass(frozen=True)
class Prices:
    """Duals of the rows: of jobs (K,), unit types (T,), budgets (B,) and slots (Q,), nan without a row."""

    job: FloatArray
    unit: FloatArray
    budget: FloatArray
    slot: FloatArray


class Master:
    """The restricted master in HiGHS: rows of jobs, unit types and budgets, then of slots as they come.

    Jobs that may not wait do so at a high cost until there are columns for all. Costs are in units of a
    typical one, which is what the tolerances of HiGHS are made for.
    """

    def __init__(self, of: Round):
        import highspy

        self._of, self._unit = of, typical_cost(of)
        kinds, units = of.kinds, of.units
        self._patterns = np.zeros(len(of.patterns), dtype=bool)
        self._slot_row = np.full(len(of.patterns.job_class), -1)
        self._placed = np.zeros(0, dtype=np.int64)
        self._pattern_list: list[IntArray] = []
        self._highs: Any = highspy.Highs()
        self._highs.setOptionValue("output_flag", False)
        self._highs.setOptionValue("threads", 1)
        capacity = np.concatenate([units, [budget.capacity for budget in of.budgets]]).astype(float)
        lower = np.concatenate([kinds.jobs, np.full(len(capacity), -np.inf)]).astype(float)
        self._rows = 0
        self._add_rows(lower, np.concatenate([kinds.jobs.astype(float), capacity]))
        cost = np.where(kinds.may_wait, of.waiting, MISSING * _dearest(of))
        self._add_columns(cost, np.arange(len(kinds) + 1), np.arange(len(kinds)), np.ones(len(kinds)))

    @property
    def columns(self) -> Columns:
        """Columns so far."""
        slots = len(self._of.patterns.job_class)
        kind, slot = np.divmod(np.sort(self._placed), max(1, slots))
        return Columns(np.flatnonzero(self._patterns), kind, slot)

    @property
    def has_slot(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Slots of the patterns so far."""
        return np.asarray(self._slot_row >= 0)

    def add(self, patterns: IntArray, kinds: IntArray, slots: IntArray) -> int:
        """Add patterns and placements, without those that are there; how many were new."""
        fresh = np.unique(patterns[~self._patterns[patterns]]) if len(patterns) else patterns
        self._add_patterns(fresh)
        codes = np.setdiff1d(kinds * len(self._slot_row) + slots, self._placed)
        self._add_placements(*np.divmod(codes, max(1, len(self._slot_row))))
        self._placed = np.concatenate([self._placed, codes])
        return len(fresh) + len(codes)

    def solve(self) -> tuple[float, Prices]:
        """Cost of the LP, offset included, and its duals.

        Raises
        ------
        RuntimeError
            If HiGHS fails.
        """
        solve_growing(self._highs, "patterns")
        duals = np.asarray(self._highs.getSolution().row_dual) * self._unit
        k, t = len(self._of.kinds), len(self._of.kinds) + len(self._of.units)
        b = t + len(self._of.budgets)
        slot = np.full(len(self._slot_row), np.nan)
        slot[self.has_slot] = duals[self._slot_row[self.has_slot]]
        cost = self._highs.getInfo().objective_function_value * self._unit + self._of.costs.offset
        none = np.zeros(0)
        prices = Prices(
            duals[:k], np.minimum(duals[k:t], 0.0), np.minimum(duals[t:b], 0.0) if b > t else none, slot
        )
        return float(cost), prices

    def _add_patterns(self, fresh: IntArray) -> None:
        if not len(fresh):
            return
        of, patterns = self._of, self._of.patterns
        slots = slots_of(patterns, fresh)
        self._slot_row[slots] = self._rows + np.arange(len(slots))
        self._add_rows(np.zeros(len(slots)), np.zeros(len(slots)))
        self._patterns[fresh] = True
        k = len(of.kinds)
        starts, index, value = [0], [], []
        for p in fresh.tolist():
            own = np.arange(patterns.start[p], patterns.start[p + 1])
            budget_rows = k + len(of.units) + np.arange(len(of.budgets))
            index.append(np.concatenate([[k + patterns.unit_type[p]], budget_rows, self._slot_row[own]]))
            value.append(np.concatenate([[1.0], [b.of_pattern[p] for b in of.budgets], -patterns.jobs[own]]))
            starts.append(starts[-1] + len(index[-1]))
        self._add_columns(
            of.costs.pattern[fresh], np.array(starts), np.concatenate(index), np.concatenate(value)
        )

    def _add_placements(self, kinds: IntArray, slots: IntArray) -> None:
        of = self._of
        m, width = len(kinds), 2 + len(of.budgets)
        if not m:
            return
        budget_rows = len(of.kinds) + len(of.units) + np.arange(len(of.budgets))
        index = np.column_stack([kinds, self._slot_row[slots], np.tile(budget_rows, (m, 1))])
        used = [budget.per_epoch[slots] * of.kinds.epochs[kinds] for budget in of.budgets]
        value = np.column_stack([np.ones(m), np.ones(m), *used])
        self._add_columns(of.cost_of(kinds, slots), width * np.arange(m + 1), index.ravel(), value.ravel())

    def _add_rows(self, lower: FloatArray, upper: FloatArray) -> None:
        empty, none = np.zeros(0, dtype=np.int32), np.zeros(0)
        starts = np.zeros(len(lower), dtype=np.int32)
        self._highs.addRows(len(lower), lower, upper, 0, starts, empty, none)
        self._rows += len(lower)

    def _add_columns(self, cost: FloatArray, starts: IntArray, index: IntArray, value: FloatArray) -> None:
        n = len(cost)
        self._highs.addCols(
            n, cost / self._unit, np.zeros(n), np.full(n, np.inf), len(index),
            starts[:-1].astype(np.int32), index.astype(np.int32), value.astype(float),
        )  # fmt: skip


def typical_cost(of: Round) -> float:
    """Median cost of a job alone and of a pattern, those of nothing aside."""
    alone = np.flatnonzero(of.patterns.size[of.slot_pattern] == 1)
    epochs = float(np.median(of.kinds.epochs)) if len(of.kinds) else 1.0
    slots = np.abs(of.costs.slot + of.costs.per_epoch * epochs)[alone]
    costs = np.concatenate([slots, np.abs(of.costs.pattern)])
    return float(np.median(costs[costs > 0])) if np.any(costs > 0) else 1.0


def _dearest(of: Round) -> float:
    """Above the cost of any job in any place."""
    most = float(of.kinds.epochs.max(initial=0.0))
    slots = np.abs(of.costs.slot).max(initial=0.0) + np.abs(of.costs.per_epoch).max(initial=0.0) * most
    rest = np.abs(of.costs.pattern).max(initial=0.0) + np.abs(of.waiting).max(initial=0.0)
    return float(slots + rest) or 1.0
