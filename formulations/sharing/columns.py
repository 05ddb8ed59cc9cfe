r"""The columns of `sharing`, what they cost, and their entries in rows.

.. math::
    \min\ \sum_p c_p n_p + \sum_{k,s} (a_s + b_s r_k) x_{ks} + \sum_k w_k z_k \quad\text{s.t.}\quad
    \sum_s x_{ks} + z_k = m_k\ \forall k,\quad
    \sum_k x_{ks} = q_s n_{p(s)}\ \forall s,\quad
    \sum_{p\ \text{on}\ t} n_p \le N_t\ \forall t

:math:`n_p` units carry pattern p, :math:`x_{ks}` jobs of kind k are in slot s, which :math:`q_s` jobs of its
pattern share, and :math:`z_k` of the :math:`m_k` jobs of the kind wait. Budgets of power are rows over n,
those of energy and carbon over x.

Rows are those of kinds, unit types and budgets, and then of slots as far as there are columns for them. A job
of :math:`r_k` remaining epochs costs :math:`a_s + b_s r_k` in its slot, and everything else is linear in the
number of units that carry a pattern, so the program is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from wattsched.formulations.program import Entries
from wattsched.formulations.sharing.data import Kinds, Patterns, kinds_of
from wattsched.instances.sharing.instance import OBJECTIVES, SharingInstance
from wattsched.instances.units import J_PER_KWH, S_PER_H
from wattsched.topology.arrays import FloatArray, IntArray, ranges


@dataclass(frozen=True)
class Costs:
    """Costs to be minimised, of P patterns with Q slots and C classes.

    Attributes
    ----------
    pattern : float array, shape (P,)
        For each unit that carries the pattern.
    slot, per_epoch : float arrays, shape (Q,)
        a and b: for each job in the slot, and for each epoch that remains of it.
    waiting, waiting_per_epoch : float arrays, shape (C, T)
        The same for a job alone on each unit type, -inf where it cannot be; the dearest one counts.
    penalty : float
        What the cost of waiting is multiplied with.
    offset : float
    """

    pattern: FloatArray
    slot: FloatArray
    per_epoch: FloatArray
    waiting: FloatArray
    waiting_per_epoch: FloatArray
    penalty: float
    offset: float = 0.0

    @property
    def work_matters(self) -> bool:
        """True if costs depend on the epochs that remain."""
        return bool(np.any(self.per_epoch != 0))

    def of_waiting(self, job_class: IntArray, epochs: FloatArray) -> FloatArray:
        """Cost of jobs that wait."""
        alone = self.waiting[job_class] + self.waiting_per_epoch[job_class] * epochs[:, None]
        dearest = alone.max(axis=1, initial=-np.inf)
        return self.penalty * np.where(np.isfinite(dearest), dearest, 0.0)


def _eaco(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Energy in kWh and mean epoch time in h, weighted (EaCO, eq. 1)."""
    per_job = (1 - instance.alpha) / max(1, len(instance.jobs)) / S_PER_H
    per_epoch = instance.alpha * patterns.epoch_energy_j / J_PER_KWH
    return _of_slots(instance, patterns, per_job * patterns.epoch_s, per_epoch)


def _energy(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Energy in kWh until the jobs that run are complete."""
    return _of_slots(instance, patterns, np.zeros(len(patterns.epoch_s)), patterns.epoch_energy_j / J_PER_KWH)


def _power(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Watts of all units, sleeping ones included."""
    sleep_w = np.array([unit.sleep_power_w for unit in instance.unit_types])
    awake, nothing = patterns.power_w - sleep_w[patterns.unit_type], np.zeros(len(patterns.epoch_s))
    of_slots = _of_slots(instance, patterns, np.maximum(0.0, awake)[patterns.pattern], nothing)
    offset = float(sum(unit.count * unit.sleep_power_w for unit in instance.unit_types))
    return replace(of_slots, pattern=awake, slot=nothing, offset=offset)


def _throughput(instance: SharingInstance, patterns: Patterns) -> Costs:
    """Sum of normalised throughputs: epochs per second over the most that the job could have anywhere."""
    fastest = np.array([min(a.epoch_s for a in c.alone.values()) for c in instance.classes])
    gain = fastest[patterns.job_class] / patterns.epoch_s
    return replace(_of_slots(instance, patterns, -gain, np.zeros(len(gain))), penalty=0.0)


def _of_slots(
    instance: SharingInstance, patterns: Patterns, slot: FloatArray, per_epoch: FloatArray
) -> Costs:
    """Costs of slots, none of patterns; waiting costs what the slots of jobs alone do."""
    shape = (len(instance.classes), len(instance.unit_types))
    waiting, waiting_per_epoch = np.full(shape, -np.inf), np.zeros(shape)
    alone = np.flatnonzero(patterns.size[patterns.pattern] == 1)
    where = patterns.job_class[alone], patterns.unit_type[patterns.pattern[alone]]
    waiting[where], waiting_per_epoch[where] = slot[alone], per_epoch[alone]
    nothing, penalty = np.zeros(len(patterns)), instance.waiting_penalty
    return Costs(nothing, slot, per_epoch, waiting, waiting_per_epoch, penalty)


_COSTS: dict[str, Callable[[SharingInstance, Patterns], Costs]] = {
    "eaco": _eaco,
    "energy": _energy,
    "power": _power,
    "throughput": _throughput,
}


def costs_of(instance: SharingInstance, patterns: Patterns, objective: str) -> Costs:
    """Costs of an objective; ValueError for an unknown one."""
    if objective not in _COSTS:
        raise ValueError(f"unknown objective '{objective}'; known: {', '.join(OBJECTIVES)}")
    return _COSTS[objective](instance, patterns)


@dataclass(frozen=True)
class Budget:
    """A budget row: uses by units with each pattern, shape (P,), and by epochs in each slot, shape (Q,).

    One that limits another objective has its `costs`: `sign` is -1 where more is better.
    """

    name: str
    of_pattern: FloatArray
    per_epoch: FloatArray
    capacity: float
    costs: Costs | None = None
    sign: float = 1.0

    def of_job(self, slots: IntArray, epochs: FloatArray) -> FloatArray:
        """Return the uses of jobs in slots."""
        alone = 0.0 if self.costs is None else self.costs.slot[slots]
        return np.asarray(alone + self.per_epoch[slots] * epochs)

    def of_waiting(self, kinds: Kinds) -> FloatArray:
        """Return the uses of jobs of each kind that wait, shape (K,)."""
        if self.costs is None:
            return np.zeros(len(kinds))
        return self.costs.of_waiting(kinds.job_class, kinds.epochs)


def budgets_of(patterns: Patterns) -> tuple[Budget, ...]:
    """Rows of the GPUs of an instance's pools, and of its budgets beside sleeping units."""
    instance, energy_j = patterns.instance, patterns.epoch_energy_j
    nothing, no_energy = np.zeros(len(patterns)), np.zeros(len(energy_j))
    rows, given, types = [], instance.budgets, instance.unit_types
    for pool in instance.pools:
        gpus = np.array([unit.gpus * (unit.pool == pool.name) for unit in types], dtype=float)
        rows.append(Budget(pool.row, gpus[patterns.unit_type], no_energy, float(pool.gpus)))
    if given.power_w is not None:
        sleep_w = np.array([unit.sleep_power_w for unit in types])
        asleep_w = float(sum(unit.count * unit.sleep_power_w for unit in types))
        awake = patterns.power_w - sleep_w[patterns.unit_type]
        rows.append(Budget("power_w", awake, no_energy, given.power_w - asleep_w))
    if given.energy_j is not None:
        rows.append(Budget("energy_j", nothing, energy_j, given.energy_j))
    if given.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        carbon_g = energy_j * (instance.carbon_g_per_kwh / J_PER_KWH)
        rows.append(Budget("carbon_g", nothing, carbon_g, given.carbon_g))
    return tuple(rows)


def limits_of_objectives(patterns: Patterns) -> tuple[Budget, ...]:
    """Rows of the objectives that are limited, of their costs."""
    rows = []
    for name, limit in patterns.instance.budgets.objectives.items():
        costs, sign = costs_of(patterns.instance, patterns, name), 1.0 if OBJECTIVES[name] == "min" else -1.0
        left = sign * limit - costs.offset
        rows.append(Budget(f"objective:{name}", costs.pattern, costs.per_epoch, left, costs, sign))
    return tuple(rows)


@dataclass(frozen=True)
class SetPartitioning:
    """Patterns, kinds, costs and budgets of an instance under an objective.

    Attributes
    ----------
    waiting : float array, shape (K,)
        Cost of a job that waits, for each kind.
    """

    instance: SharingInstance
    objective: str
    patterns: Patterns
    costs: Costs
    kinds: Kinds
    budgets: tuple[Budget, ...]
    waiting: FloatArray

    @cached_property
    def units(self) -> IntArray:
        """Units of each type, shape (T,)."""
        return np.array([unit.count for unit in self.instance.unit_types], dtype=np.int64)

    @cached_property
    def slot_pattern(self) -> IntArray:
        """Pattern of each slot, shape (Q,)."""
        return self.patterns.pattern

    @cached_property
    def of_class(self) -> list[tuple[IntArray, IntArray]]:
        """Numbers of the kinds, and of the slots, of each class."""
        return [
            (np.flatnonzero(self.kinds.job_class == c), np.flatnonzero(self.patterns.job_class == c))
            for c in range(len(self.instance.classes))
        ]

    @property
    def n_common_rows(self) -> int:
        """Number of rows of kinds, unit types and budgets."""
        return len(self.kinds) + len(self.units) + len(self.budgets)

    @property
    def common_bounds(self) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bounds of these rows."""
        limits = np.concatenate([self.units, [budget.capacity for budget in self.budgets]])
        lower = np.concatenate([self.kinds.jobs, np.full(len(limits), -np.inf)])
        return lower, np.concatenate([self.kinds.jobs, limits])

    def admitted(self, kinds: IntArray, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Pairs of kinds and slots of one class that go together."""
        k, s = (grid.ravel() for grid in np.meshgrid(kinds, slots, indexing="ij"))
        able = self.kinds.admits(k, self.patterns, s)
        return k[able], s[able]

    def cost_of(
        self, kinds: IntArray, slots: IntArray, budget_prices: FloatArray | None = None
    ) -> FloatArray:
        """Cost of a job of each kind in the slot at its place; with prices also that of budgets."""
        epochs = self.kinds.epochs[kinds]
        cost = self.costs.slot[slots] + self.costs.per_epoch[slots] * epochs
        for budget, y in zip(self.budgets, () if budget_prices is None else budget_prices, strict=False):
            cost = cost - y * budget.of_job(slots, epochs)
        return np.asarray(cost)

    def cost_table(
        self, kinds: IntArray, slots: IntArray, budget_prices: FloatArray | None = None
    ) -> FloatArray:
        """Compute `cost_of` of every kind (rows) in every slot of its class; infinite where it may not be."""
        k, s = kinds[:, None], slots[None, :]
        allowed = self.kinds.admits(k, self.patterns, s)
        return np.where(allowed, self.cost_of(k, s, budget_prices), np.inf)


def set_partitioning(patterns: Patterns, objective: str) -> SetPartitioning:
    """Everything that formulations need of an instance; ValueError for an unknown objective."""
    instance, budgets = patterns.instance, (*budgets_of(patterns), *limits_of_objectives(patterns))
    costs = costs_of(instance, patterns, objective)
    work_matters = costs.work_matters or any(budget.per_epoch.any() for budget in budgets)
    kinds = kinds_of(patterns, work_matters)
    waiting = costs.of_waiting(kinds.job_class, kinds.epochs)
    return SetPartitioning(instance, objective, patterns, costs, kinds, budgets, waiting)


@dataclass(frozen=True)
class Columns:
    """Some columns of the program.

    Attributes
    ----------
    pattern : int array, shape (n,)
        Ascending.
    kind, slot : int arrays, shape (m,)
        Placements, in slots of these patterns.
    """

    pattern: IntArray
    kind: IntArray
    slot: IntArray


def all_columns(data: SetPartitioning) -> Columns:
    """Every column."""
    pairs = [data.admitted(kinds, slots) for kinds, slots in data.of_class]
    return Columns(np.arange(len(data.patterns)), *joined_pairs(pairs))


def joined_pairs(pairs: list[tuple[IntArray, IntArray]]) -> tuple[IntArray, IntArray]:
    """Kinds and slots of the placements of several classes; a round may be without any."""
    none = np.zeros(0, dtype=np.int64)
    kind, slot = (np.concatenate(parts) for parts in zip((none, none), *pairs, strict=True))
    return kind, slot


def count_columns(data: SetPartitioning) -> int:
    """Return the largest possible number of columns."""
    return len(data.patterns) + sum(len(kinds) * len(slots) for kinds, slots in data.of_class)


def slots_of(patterns: Patterns, kept: IntArray) -> IntArray:
    """Slots of some patterns, pattern by pattern."""
    return ranges(patterns.start[kept], patterns.slots[kept])


def add_entries(entries: Entries, data: SetPartitioning, columns: Columns, slot_row: IntArray) -> None:
    """Add the entries of columns: first those of the patterns, then those of the placements.

    Parameters
    ----------
    slot_row : int array, shape (Q,)
        Row of each slot of the patterns, also of those of the placements.
    """
    n, m, patterns = len(columns.pattern), len(columns.kind), data.patterns
    pattern, placement = np.arange(n), n + np.arange(m)
    slots = slots_of(patterns, columns.pattern)
    sizes = patterns.slots[columns.pattern]
    first_limit = len(data.kinds) + len(data.units)
    entries.add(columns.kind, placement)
    entries.add(slot_row[columns.slot], placement)
    entries.add(slot_row[slots], np.repeat(pattern, sizes), -patterns.jobs[slots])
    entries.add(len(data.kinds) + patterns.unit_type[columns.pattern], pattern)
    for row, budget in enumerate(data.budgets, first_limit):
        entries.add(row, pattern, budget.of_pattern[columns.pattern])
        entries.add(row, placement, budget.of_job(columns.slot, data.kinds.epochs[columns.kind]))


def column_costs(data: SetPartitioning, columns: Columns) -> FloatArray:
    """Costs of columns, in the order of their entries."""
    return np.concatenate([data.costs.pattern[columns.pattern], data.cost_of(columns.kind, columns.slot)])
