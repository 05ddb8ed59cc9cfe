r"""The program of `sharing` over some of its columns.

.. math::
    \min\ \sum_p c_p n_p + \sum_{k,s} (a_s + b_s r_k) x_{ks} + \sum_k w_k z_k \quad\text{s.t.}\quad
    \sum_s x_{ks} + z_k = m_k\ \forall k,\quad
    \sum_k x_{ks} = q_s n_{p(s)}\ \forall s,\quad
    \sum_{p\ \text{on}\ t} n_p \le N_t\ \forall t

:math:`n_p` units carry pattern p, :math:`x_{ks}` jobs of kind k are in slot s, which :math:`q_s` jobs of its
pattern share, and :math:`z_k` of the :math:`m_k` jobs of the kind wait. Budgets of power are rows over n,
those of energy and carbon over x.

From points of the program of `sharing` to decisions and back, and to prices.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING

import numpy as np

from wattsched.formulations.program import Block, Program
from wattsched.formulations.sharing.data import Kinds, Patterns, kinds_of
from wattsched.formulations.sharing.objectives import Costs, costs_of
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import OBJECTIVES, SharingInstance
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from scipy.sparse import coo_array


@dataclass(frozen=True)
class Budget:
    """A budget row: uses by units with each pattern, shape (P,), and by epochs in each slot, shape (Q,)."""

    name: str
    of_pattern: FloatArray
    per_epoch: FloatArray
    capacity: float


@dataclass(frozen=True)
class Round:
    """Patterns, kinds and costs of an instance under an objective.

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

    @property
    def units(self) -> IntArray:
        """Units of each type, shape (T,)."""
        return np.array([unit.count for unit in self.instance.unit_types], dtype=np.int64)

    @cached_property
    def slot_pattern(self) -> IntArray:
        """Pattern of each slot, shape (Q,)."""
        return self.patterns.pattern

    @cached_property
    def slots_of_class(self) -> list[IntArray]:
        """Slots of each class."""
        order = np.argsort(self.patterns.job_class, kind="stable")
        bounds = np.searchsorted(self.patterns.job_class[order], np.arange(len(self.instance.classes) + 1))
        return [order[a:b] for a, b in pairwise(bounds)]

    @cached_property
    def kinds_of_class(self) -> list[IntArray]:
        """Kinds of each class."""
        return [np.flatnonzero(self.kinds.job_class == c) for c in range(len(self.instance.classes))]

    @cached_property
    def pattern_numbers(self) -> dict[tuple[int, tuple[int, ...]], int]:
        """Pattern by unit type and ascending classes."""
        return self.patterns.numbers()

    def placements(self, kinds: IntArray, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Pairs of kinds and slots of one class that go together."""
        k, s = (grid.ravel() for grid in np.meshgrid(kinds, slots, indexing="ij"))
        admitted = self.kinds.admits(k, self.patterns, s)
        return k[admitted], s[admitted]

    def cost_of(self, kinds: IntArray, slots: IntArray) -> FloatArray:
        """Cost of a job of each kind in each slot."""
        return np.asarray(self.costs.slot[slots] + self.costs.per_epoch[slots] * self.kinds.epochs[kinds])


def round_of(patterns: Patterns, objective: str) -> Round:
    """Everything that formulations need of an instance.

    Raises
    ------
    ValueError
        For an unknown objective.
    """
    instance = patterns.instance
    costs = costs_of(instance, patterns, objective)
    budgets = budgets_of(instance, patterns)
    work_matters = costs.work_matters or any(budget.per_epoch.any() for budget in budgets)
    kinds = kinds_of(instance, patterns, work_matters)
    waiting = [costs.of_waiting(int(c), float(r)) for c, r in zip(kinds.job_class, kinds.epochs, strict=True)]
    return Round(instance, objective, patterns, costs, kinds, budgets, np.array(waiting, dtype=float))


def budgets_of(instance: SharingInstance, patterns: Patterns) -> tuple[Budget, ...]:
    """Rows of the GPUs of pools and of the budgets of an instance."""
    nothing, energy_j = np.zeros(len(patterns)), patterns.epoch_energy_j
    rows, given = [], instance.budgets
    for pool in instance.pools:
        gpus = np.array([unit.gpus * (unit.pool == pool.name) for unit in instance.unit_types], dtype=float)
        rows.append(Budget(pool.row, gpus[patterns.unit_type], np.zeros(len(energy_j)), float(pool.gpus)))
    if given.power_w is not None:
        sleep_w = np.array([unit.sleep_power_w for unit in instance.unit_types])
        asleep_w = float(sum(unit.count * unit.sleep_power_w for unit in instance.unit_types))
        awake = patterns.power_w - sleep_w[patterns.unit_type]
        rows.append(Budget("power_w", awake, np.zeros(len(energy_j)), given.power_w - asleep_w))
    if given.energy_j is not None:
        rows.append(Budget("energy_j", nothing, energy_j, given.energy_j))
    if given.carbon_g is not None and instance.carbon_g_per_kwh is not None:
        carbon_g = energy_j * (instance.carbon_g_per_kwh / J_PER_KWH)
        rows.append(Budget("carbon_g", nothing, carbon_g, given.carbon_g))
    return tuple(rows)


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

    def __len__(self) -> int:
        return len(self.pattern) + len(self.kind)


def all_columns(of: Round) -> Columns:
    """Every column."""
    nothing = np.zeros(0, dtype=np.int64)
    pairs = [of.placements(k, s) for k, s in zip(of.kinds_of_class, of.slots_of_class, strict=True)]
    pairs.append((nothing, nothing))  # a round may be without classes
    kind, slot = (np.concatenate([pair[i] for pair in pairs]).astype(np.int64) for i in (0, 1))
    return Columns(np.arange(len(of.patterns)), kind, slot)


def count_columns(of: Round) -> int:
    """How many columns there are at most."""
    pairs = zip(of.kinds_of_class, of.slots_of_class, strict=True)
    return len(of.patterns) + sum(len(kinds) * len(slots) for kinds, slots in pairs)


def program_of(of: Round, columns: Columns) -> Program:
    """Program over some columns, then one for the waiting jobs of each kind."""
    from scipy.sparse import csc_array

    patterns, kinds = of.patterns, of.kinds
    n, m, k = len(columns.pattern), len(columns.kind), len(kinds)
    slots = slots_of(patterns, columns.pattern)
    slot_row = np.full(len(patterns.job_class), -1)
    slot_row[slots] = k + np.arange(len(slots))
    place = np.zeros(len(patterns), dtype=np.int64)
    place[columns.pattern] = np.arange(n)
    types = k + len(slots)
    entries = _Entries()
    entries.add(columns.kind, n + np.arange(m), np.ones(m))
    entries.add(np.arange(k), n + m + np.arange(k), np.ones(k))
    entries.add(slot_row[columns.slot], n + np.arange(m), np.ones(m))
    entries.add(slot_row[slots], place[of.slot_pattern[slots]], -patterns.jobs[slots].astype(float))
    entries.add(types + patterns.unit_type[columns.pattern], np.arange(n), np.ones(n))
    for i, budget in enumerate(of.budgets):
        row = types + len(of.units) + i
        entries.add(np.full(n, row), np.arange(n), budget.of_pattern[columns.pattern])
        used = budget.per_epoch[columns.slot] * kinds.epochs[columns.kind]
        entries.add(np.full(m, row), n + np.arange(m), used)
    matrix = csc_array(entries.matrix((types + len(of.units) + len(of.budgets), n + m + k)))
    equal = np.concatenate([kinds.jobs, np.zeros(len(slots))])
    upper = np.concatenate([equal, of.units, [budget.capacity for budget in of.budgets]])
    lower = np.concatenate([equal, np.full(len(upper) - len(equal), -np.inf)])
    most = np.minimum(of.units[patterns.unit_type[columns.pattern]], _fillable(of)[columns.pattern])
    # No column can be at such a bound, so that the prices of rows tell everything.
    most = np.concatenate([most, kinds.jobs[columns.kind], kinds.jobs]) + 1.0
    most[n + m :][~kinds.may_wait] = 0.0
    return Program(
        cost=np.concatenate(
            [of.costs.pattern[columns.pattern], of.cost_of(columns.kind, columns.slot), of.waiting]
        ),
        matrix=matrix,
        row_lower=lower,
        row_upper=upper,
        lower=np.zeros(n + m + k),
        upper=most,
        integer=np.ones(n + m + k, dtype=bool),
        group_start=np.zeros(1, dtype=np.int64),
        rows=(
            Block("job", k, lambda i: f"job:{of.instance.jobs[kinds.members[i][0]].name}"),
            Block("slot", len(slots), lambda i: _slot_name(of, int(slots[i]))),
            *(Block(unit.row, 1) for unit in of.instance.unit_types),
            *(Block(budget.name, 1) for budget in of.budgets),
        ),
        columns=(Block("pattern", n), Block("placement", m), Block("waiting", k)),
        offset=of.costs.offset,
        sense=OBJECTIVES[of.objective],
    )


def _slot_name(of: Round, slot: int) -> str:
    """Name such as ``slot:v100:A+B+B:B``."""
    patterns, names = of.patterns, [job_class.name for job_class in of.instance.classes]
    p = int(of.slot_pattern[slot])
    own = slice(int(patterns.start[p]), int(patterns.start[p + 1]))
    members = np.repeat(patterns.job_class[own], patterns.jobs[own])
    unit = of.instance.unit_types[patterns.unit_type[p]].name
    return f"slot:{unit}:{'+'.join(names[c] for c in members)}:{names[patterns.job_class[slot]]}"


class _Entries:
    """Entries of a matrix while they are gathered."""

    def __init__(self) -> None:
        self._parts: list[tuple[IntArray, IntArray, FloatArray]] = []

    def add(self, rows: IntArray, columns: IntArray, values: FloatArray) -> None:
        self._parts.append((rows, columns, values))

    def matrix(self, shape: tuple[int, int]) -> coo_array:
        from scipy.sparse import coo_array

        rows, columns, values = (np.concatenate([part[i] for part in self._parts]) for i in range(3))
        used = values != 0
        return coo_array((values[used], (rows[used].astype(int), columns[used].astype(int))), shape=shape)


def slots_of(patterns: Patterns, kept: IntArray) -> IntArray:
    """Slots of some patterns, pattern by pattern."""
    sizes = patterns.start[kept + 1] - patterns.start[kept]
    ends = np.cumsum(sizes)
    return np.asarray(np.arange(sizes.sum()) + np.repeat(patterns.start[kept] - (ends - sizes), sizes))


def _fillable(of: Round) -> IntArray:
    """How many units the jobs there are could fill with each pattern, shape (P,)."""
    counts = Counter(job.job_class for job in of.instance.jobs)
    jobs = np.array([counts[job_class.name] for job_class in of.instance.classes], dtype=np.int64)
    per_slot = jobs[of.patterns.job_class] // of.patterns.jobs
    if not len(per_slot):
        return np.zeros(0, dtype=np.int64)
    return np.asarray(np.minimum.reduceat(per_slot, of.patterns.start[:-1]))


def decide(of: Round, columns: Columns, x: FloatArray) -> SharingDecision:
    """Jobs of each set from a point of the program; jobs of a kind in the order of the file.

    Raises
    ------
    ValueError
        If the point does not fill its patterns.
    """
    n, m = len(columns.pattern), len(columns.kind)
    whole = np.round(x).astype(np.int64)
    left = [list(members) for members in of.kinds.members]
    in_slot: defaultdict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero(whole[n : n + m]):
        members, count = left[columns.kind[i]], int(whole[n + i])
        in_slot[int(columns.slot[i])] += members[:count]
        del members[:count]
    names = [job.name for job in of.instance.jobs]
    sets = []
    for i in np.flatnonzero(whole[:n]):
        p = int(columns.pattern[i])
        slots = range(int(of.patterns.start[p]), int(of.patterns.start[p + 1]))
        if any(len(in_slot[s]) != of.patterns.jobs[s] * whole[i] for s in slots):
            raise ValueError("the point does not fill its patterns")
        for unit in range(int(whole[i])):
            jobs = chain.from_iterable(
                in_slot[s][unit * int(of.patterns.jobs[s]) : (unit + 1) * int(of.patterns.jobs[s])]
                for s in slots
            )
            unit_type = of.instance.unit_types[of.patterns.unit_type[p]].name
            sets.append(SharedSet(unit_type=unit_type, jobs=[names[j] for j in jobs]))
    return SharingDecision(sets=sets, waiting=[names[j] for j in sorted(chain.from_iterable(left))])


def columns_of(of: Round, decision: SharingDecision) -> Columns | None:
    """Columns that a decision uses, one per set and job that runs; None when a set is no pattern."""
    types = {unit.name: t for t, unit in enumerate(of.instance.unit_types)}
    classes = {job_class.name: c for c, job_class in enumerate(of.instance.classes)}
    jobs = {job.name: j for j, job in enumerate(of.instance.jobs)}
    kind_of, numbers = of.kinds.of_job(), of.pattern_numbers
    pattern, kind, slot = [], [], []
    for formed in decision.sets:
        if formed.unit_type not in types or any(name not in jobs for name in formed.jobs):
            return None
        members = [jobs[name] for name in formed.jobs]
        of_class = [classes[of.instance.jobs[j].job_class] for j in members]
        p = numbers.get((types[formed.unit_type], tuple(sorted(of_class))))
        if p is None:
            return None
        pattern.append(p)
        begin, end = int(of.patterns.start[p]), int(of.patterns.start[p + 1])
        kind += [int(kind_of[j]) for j in members]
        slot += [begin + int(np.searchsorted(of.patterns.job_class[begin:end], c)) for c in of_class]
    return Columns(*(np.array(values, dtype=np.int64) for values in (pattern, kind, slot)))


def point(of: Round, columns: Columns, decision: SharingDecision) -> FloatArray | None:
    """Point of the program that stands for a decision, None where one of its columns is missing."""
    used = columns_of(of, decision)
    if used is None:
        return None
    n, m, k = len(columns.pattern), len(columns.kind), len(of.kinds)
    x = np.zeros(n + m + k)
    placed = {
        pair: n + i for i, pair in enumerate(zip(columns.kind.tolist(), columns.slot.tolist(), strict=True))
    }
    for p in used.pattern.tolist():
        i = int(np.searchsorted(columns.pattern, p))
        if i == n or columns.pattern[i] != p:
            return None
        x[i] += 1
    for pair in zip(used.kind.tolist(), used.slot.tolist(), strict=True):
        if pair not in placed:
            return None
        x[placed[pair]] += 1
    x[n + m :] = of.kinds.jobs - np.bincount(used.kind, minlength=k)
    return x


def certificate_prices(of: Round, y: FloatArray) -> dict[str, float]:
    """Prices of jobs, units and budgets from those of the program's rows, in the objective's sense."""
    sign = -1.0 if OBJECTIVES[of.objective] == "max" else 1.0
    of_kind = y[: len(of.kinds)][of.kinds.of_job()]
    common = y[len(y) - len(of.units) - len(of.budgets) :]
    names = [f"job:{job.name}" for job in of.instance.jobs]
    names += [unit.row for unit in of.instance.unit_types]
    names += [budget.name for budget in of.budgets]
    values = np.concatenate([of_kind, common])
    return {name: sign * float(v) for name, v in zip(names, values, strict=True) if v != 0.0}
