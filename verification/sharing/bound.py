r"""Proving a bound from prices again, from the instance's numbers alone.

Every job is in one set or waits (prices :math:`u_j` of any sign), and capacities and budgets have prices
:math:`\lambda_r \ge 0`. Whatever they are, no decision costs less than

.. math::
    L = \sum_j \min(u_j, w_j) - \sum_r \lambda_r U_r
      + \sum_t N_t \min\Big(0,\ \lambda_t + \min_{p\ \text{on}\ t}
        \Big[c_p + \lambda a_p + \sum_{s \in p} \min_{j} (c_{js} + \lambda a_{js} - u_j)\Big]\Big)

where a job that may not wait has no :math:`w_j`. Patterns are those that there are enough jobs for; the inner
minimum may still take a job more than once, which can only lower the bound. Splits of a certificate tree are
rows like the others: they count units, or some of the jobs, and so are paid by patterns or by jobs in them.

In doubles, a part of the sum can be too large by the rounding of prices and costs that cancel in it. Of a
pattern in a decision these are no larger than the parts of its jobs and of the budgets that it keeps, and
what it costs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import NamedTuple

import numpy as np

from wattsched.instances.errors import unknown
from wattsched.instances.sharing.instance import OBJECTIVES, Job, SharingInstance, UnitType
from wattsched.instances.units import J_PER_KWH
from wattsched.topology.arrays import BoolArray, FloatArray
from wattsched.verification.report import ROUNDING, TOLERANCE, Proof, charges, reach_of
from wattsched.verification.sharing.checker import SIGNS, Outcomes, Rates, SetOutcome
from wattsched.verification.tree import Counted, CountingProver, CountSplit, Taken

SUM_ROUNDING = 1e-13
"""Largest excess of a sum of parts by rounding, relative to the sum of their magnitudes."""


def prove(instance: SharingInstance, prices: Mapping[str, object]) -> Proof:
    """Bound on the objective of an instance without faults that prices (as of `report.charges`) prove.

    Rows are ``job:NAME`` (one more job like it), an equality; ``nodes:TYPE`` or ``gpus:TYPE`` (one more
    unit), ``power_w``, ``energy_j`` and ``carbon_g``.
    """
    return Prover(instance)(prices)


class _Split(CountSplit):
    """Counts units, of a `unit_type` where one is given, with a job of each of the `classes` at least.

    Where there are `jobs`, how many of these run on such units.
    """

    unit_type: str | None = None
    classes: list[str] | None = None
    jobs: list[str] | None = None

    def unknown_in(self, instance: SharingInstance) -> Iterator[str]:
        """Yield a fault for every unit type, class and job that the instance does not have."""
        types = () if self.unit_type is None else (self.unit_type,)
        for what, names, known in (
            ("unit type", types, instance.unit_types),
            ("class", self.classes or (), instance.classes),
            ("job", self.jobs or (), instance.jobs),
        ):
            yield from unknown("split", what, names, {one.name for one in known})

    def counts(self, one: _Set) -> bool:
        """True if the split counts a set, or jobs in it."""
        return self.unit_type in (None, one.unit.name) and Counter(self.classes or ()) <= Counter(one.classes)


@dataclass(frozen=True)
class _Owed:
    """A split and its charge; ``jobs`` masks the jobs that it counts, shape (n_jobs,), None for units."""

    split: _Split
    charge: float
    jobs: BoolArray | None


class Prover(CountingProver[_Split]):
    """Proves bounds on an instance's objective (as for `prove`), also of the decisions on sides of splits."""

    split = _Split

    def __init__(self, instance: SharingInstance):
        # Limits and budgets by row; costs of waiting by job; jobs by class, and sets by type of unit.
        super().__init__(instance)
        self.outcomes, self.sense = Outcomes(instance), OBJECTIVES[instance.objective]
        self.limits = {unit.row: float(unit.count) for unit in instance.unit_types}
        self.limits |= {pool.row: float(pool.gpus) for pool in instance.pools}
        self.budgets = instance.budgets.amounts
        self._others = {
            f"objective:{name}": _Other(
                name, SIGNS[OBJECTIVES[name]], limit, Rates.of_objective(instance, name)
            )
            for name, limit in instance.budgets.objectives.items()
        }
        self._waiting = {job.name: _waiting_cost(job, self.outcomes) for job in instance.jobs}
        members: defaultdict[str, list[int]] = defaultdict(list)
        for j, job in enumerate(instance.jobs):
            members[job.job_class].append(j)
        self._jobs = {name: _Candidates(instance, own) for name, own in members.items()}
        self._sets = {unit.name: list(_sets(unit, self._jobs, self.outcomes)) for unit in instance.unit_types}

    def __call__(self, prices: Mapping[str, object], taken: Sequence[Taken] = ()) -> Proof:
        """Prove a bound as `prove` does, of the decisions on some sides of splits."""
        counts = self.counted(taken)
        inside, outside = ({count.row for count in counts if count.inside == side} for side in (True, False))
        rows, of_jobs = self.limits | self.budgets, {f"job:{job.name}" for job in self.instance.jobs}
        inside |= {row for row, other in self._others.items() if other.sign > 0}
        outside |= {row for row, other in self._others.items() if other.sign < 0}
        found, faults = charges(prices, rows.keys() | inside, of_jobs, self.sense, demands=outside)
        if faults:
            return Proof(faults)
        if self._nowhere:
            bound = math.inf if self.sense == "min" else -math.inf
            return Proof(bound=bound, excess=math.inf)
        charged = defaultdict(float, found)
        rows |= {count.row: float(count.limit) for count in counts}
        rows |= {row: other.limit for row, other in self._others.items()}
        parts = [-charged[row] * limit for row, limit in rows.items()]
        parts += self._parts(charged, [self._owed(count, charged) for count in counts if charged[count.row]])
        bound = math.fsum(parts) - SUM_ROUNDING * math.fsum(map(abs, parts))
        # Decisions may exceed a budget by the checker's tolerance, which the bound knows nothing of.
        leeway = math.fsum(charged[row] * ROUNDING * limit for row, limit in self.budgets.items())
        others = self._others.items()
        leeway += math.fsum(abs(charged[row] * TOLERANCE * other.limit) for row, other in others)
        excess = bound - leeway - self._dearest * (1 + ROUNDING)
        sign, reach = 1.0 if self.sense == "min" else -1.0, reach_of(bound, self._dearest)
        return Proof(bound=sign * bound, reach=sign * reach, excess=excess)

    def _owed(self, count: Counted[_Split], charged: Mapping[str, float]) -> _Owed:
        """Return what is charged for being counted by a split."""
        named = count.what.jobs
        jobs = None if named is None else np.array([job.name in set(named) for job in self.instance.jobs])
        return _Owed(count.what, charged[count.row], jobs)

    def _parts(self, charged: Mapping[str, float], owed: list[_Owed]) -> Iterator[float]:
        """Yield the terms that jobs and units add to the bound, with what they owe for being counted."""
        paid = _paid(self.instance, charged, self.outcomes.rates)
        # What limits on other objectives charge is these at a weight.
        others = [(other, other.sign * charged[row]) for row, other in self._others.items() if charged[row]]
        for other, charge in others:
            paid = paid.plus(other.rates, charge)
        gained = float(self.instance.objective == "throughput")
        gained += sum(charge for other, charge in others if other.name == "throughput")
        # More of a job is less of a choice: what its row charges is what having decided it is worth.
        gain = np.array([-charged[f"job:{job.name}"] for job in self.instance.jobs])
        for job, worth in zip(self.instance.jobs, gain.tolist(), strict=True):
            waits = [charge * self.outcomes.waiting_cost(job, other.rates) for other, charge in others]
            yield min(worth, self._waiting[job.name] + math.fsum(waits))
        for unit in self.instance.unit_types:
            yield unit.count * unit.sleep_power_w * paid.watt
            of_unit = charged[unit.row]
            of_unit += 0.0 if unit.pool is None else charged[f"gpus:{unit.pool}"] * unit.gpus
            reduced = (self._reduced(one, paid, gained, gain, owed) for one in self._sets[unit.name])
            yield unit.count * min(0.0, of_unit + min(reduced, default=0.0))

    def _reduced(self, one: _Set, paid: Rates, gained: float, gain: FloatArray, owed: list[_Owed]) -> float:
        """Cost at rates of a set with its best jobs, less their gains, and with the charges of splits.

        `gained` is what throughput saves.
        """
        size, power_w = len(one.classes), one.outcome.power_w
        total = paid.watt * (power_w - one.unit.sleep_power_w)
        for part in owed:
            if part.split.counts(one):
                total += part.charge if part.jobs is None else 0.0
                gain = gain if part.jobs is None else gain - part.charge * part.jobs
        best: dict[str, float] = {}
        for name, epoch_s in zip(one.classes, one.outcome.epoch_s, strict=True):
            if name not in best:
                best[name] = paid.epoch_s * epoch_s
                best[name] -= gained * self.outcomes.best_epoch_s(name) / epoch_s
                slope = paid.joule * power_w / size * epoch_s
                best[name] += self._jobs[name].least(slope, epoch_s, gain, shared=size > 1)
            total += best[name]
        return total

    @cached_property
    def _nowhere(self) -> bool:
        """True if a job may not wait, and is late in every set."""
        stuck = np.isinf([self._waiting[job.name] for job in self.instance.jobs])
        for one in (one for sets in self._sets.values() for one in sets) if stuck.any() else ():
            for name, epoch_s in zip(one.classes, one.outcome.epoch_s, strict=True):
                jobs = self._jobs[name]
                stuck[jobs.numbers[jobs.in_time(epoch_s, shared=len(one.classes) > 1)]] = False
        return bool(stuck.any())

    @cached_property
    def _dearest(self) -> float:
        """Cost that no decision exceeds: every job in its dearest set, every unit at its most."""
        rates, costs = self.outcomes.rates, []
        for unit in self.instance.unit_types:
            most_w = max((one.outcome.power_w for one in self._sets[unit.name]), default=0.0)
            costs.append(rates.watt * unit.count * max(unit.sleep_power_w, most_w))
        epoch_s: defaultdict[str, float] = defaultdict(float)
        epoch_j: defaultdict[str, float] = defaultdict(float)
        for one in (one for sets in self._sets.values() for one in sets):
            for name, seconds in zip(one.classes, one.outcome.epoch_s, strict=True):
                epoch_s[name] = max(epoch_s[name], seconds)
                epoch_j[name] = max(epoch_j[name], seconds * one.outcome.power_w / len(one.classes))
        for job in self.instance.jobs:
            name, waits = job.job_class, self._waiting[job.name]
            runs = rates.epoch_s * epoch_s[name] + rates.joule * epoch_j[name] * job.remaining_epochs
            costs.append(max(runs, waits if math.isfinite(waits) else 0.0))
        return math.fsum(costs)


@dataclass(frozen=True)
class _Set:
    """Jobs of some classes on a unit."""

    unit: UnitType
    classes: tuple[str, ...]
    outcome: SetOutcome


class _Other(NamedTuple):
    """A limit on another objective, its sign as a cost, and its rates."""

    name: str
    sign: float
    limit: float
    rates: Rates


def _paid(instance: SharingInstance, charged: Mapping[str, float], rates: Rates) -> Rates:
    """Return the rates that patterns pay by objective and prices together."""
    carbon = charged["carbon_g"] * (instance.carbon_g_per_kwh or 0.0) / J_PER_KWH
    return Rates(charged["power_w"] + rates.watt, charged["energy_j"] + carbon + rates.joule, rates.epoch_s)


def _waiting_cost(job: Job, outcomes: Outcomes) -> float:
    """Cost of a job that waits, infinite when it may not."""
    return math.inf if any(outcomes.why_not_wait(job)) else outcomes.waiting_cost(job)


def _sets(unit: UnitType, jobs: Mapping[str, _Candidates], outcomes: Outcomes) -> Iterator[_Set]:
    """Yield every set of classes that a unit of a type may have, and that there are enough jobs for."""
    instance = outcomes.instance
    here = sorted(name for name in jobs if unit.name in outcomes.alone[name])
    for size in range(1, min(instance.limits.jobs_per_set, len(instance.jobs)) + 1):
        for classes in combinations_with_replacement(here, size):
            if size > 1 and any(jobs[name].sociable < classes.count(name) for name in classes):
                continue
            outcome = outcomes.of(unit.name, classes)
            if not outcome.refused:
                yield _Set(unit, classes, outcome)


class _Candidates:
    """Jobs of a class, of which a place in a set takes the one with the least cost less its gain.

    `numbers` are theirs in the instance, `sociable` is how many may share.
    """

    def __init__(self, instance: SharingInstance, numbers: list[int]):
        jobs = [instance.jobs[j] for j in numbers]
        self.sociable = sum(not job.exclusive for job in jobs)
        self.numbers = np.array(numbers)
        self._epochs = np.array([job.remaining_epochs for job in jobs])
        # A job that may not share has no time to share in.
        deadline_s = np.array([math.inf if job.deadline_s is None else job.deadline_s for job in jobs])
        self._alone_s = deadline_s * (1 + ROUNDING)
        self._shared_s = np.where([job.exclusive for job in jobs], -math.inf, self._alone_s)

    def in_time(self, epoch_s: float, *, shared: bool) -> BoolArray:
        """Return the mask of the jobs that meet their deadlines at `epoch_s` seconds per epoch."""
        return np.asarray(self._epochs * epoch_s <= (self._shared_s if shared else self._alone_s))

    def least(self, slope: float, epoch_s: float, gain: FloatArray, *, shared: bool) -> float:
        """Least of ``slope * epochs - gain`` over the jobs that meet their deadlines, infinite for none."""
        costs = slope * self._epochs - gain[self.numbers]
        return float(np.min(costs[self.in_time(epoch_s, shared=shared)], initial=math.inf))
