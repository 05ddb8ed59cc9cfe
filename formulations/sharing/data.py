"""Patterns, the sets of job classes that may share a unit, and kinds of jobs, as arrays.

A pattern is a unit type with a multiset of classes. Its *slots* are its distinct classes: what a job
experiences depends on its slot alone, whichever jobs are in the others. Jobs of one class that differ in
nothing that matters are of one *kind*: only their number counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import combinations_with_replacement

import numpy as np

from wattsched.formulations.model import UnsuitableError
from wattsched.formulations.tolerances import ROUNDING
from wattsched.instances.sharing.instance import MeasuredSet, SharingInstance, UnitType
from wattsched.perfmodels.co_location import SlowdownLaw, power_at
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray, least_by, offsets

MOST_PATTERNS = 1_000_000
"""Multisets of one unit type that are looked at; more classes need a smaller ``limits.jobs_per_set``."""


@dataclass(frozen=True)
class Patterns:
    """P patterns with Q slots, those of a pattern together and in the order of the classes.

    Attributes
    ----------
    instance : SharingInstance
    unit_type, size : int arrays, shape (P,)
        Number of the unit type, and jobs.
    power_w, utilisation_pct, memory_pct : float arrays, shape (P,)
        Of the unit.
    slots : int array, shape (P,)
        How many each pattern has.
    job_class, jobs : int arrays, shape (Q,)
        Number of the class, and how many jobs of it the pattern has.
    epoch_s : float array, shape (Q,)
        Seconds that a job in the slot takes for an epoch.
    """

    instance: SharingInstance
    unit_type: IntArray
    size: IntArray
    power_w: FloatArray
    utilisation_pct: FloatArray
    memory_pct: FloatArray
    slots: IntArray
    job_class: IntArray
    jobs: IntArray
    epoch_s: FloatArray

    def __len__(self) -> int:
        return len(self.size)

    @cached_property
    def start(self) -> IntArray:
        """Slots of pattern p are ``start[p]`` to ``start[p + 1]``, shape (P + 1,)."""
        return offsets(self.slots)

    @cached_property
    def pattern(self) -> IntArray:
        """Pattern of each slot, shape (Q,)."""
        return np.repeat(np.arange(len(self)), self.slots)

    @cached_property
    def epoch_energy_j(self) -> FloatArray:
        """Energy of an epoch of a job in the slot, its share of the unit's power, shape (Q,)."""
        return np.asarray((self.power_w / self.size)[self.pattern] * self.epoch_s)

    @cached_property
    def class_of_job(self) -> IntArray:
        """Number of the class of each job of the instance."""
        number = {job_class.name: c for c, job_class in enumerate(self.instance.classes)}
        return np.array([number[job.job_class] for job in self.instance.jobs], dtype=np.int64)

    @cached_property
    def may_wait(self) -> list[bool]:
        """List for each job if it may wait: this is allowed, and alone it could still meet its deadline."""
        alone = np.flatnonzero(self.size[self.pattern] == 1)
        fastest_s = least_by(self.job_class[alone], self.epoch_s[alone], len(self.instance.classes))
        rest_s = [
            self.instance.round_s + job.remaining_epochs * s
            for job, s in zip(self.instance.jobs, fastest_s[self.class_of_job], strict=True)
        ]
        return [
            job.can_wait and (job.deadline_s is None or s <= job.deadline_s * (1 + ROUNDING))
            for job, s in zip(self.instance.jobs, rest_s, strict=True)
        ]

    @cached_property
    def numbers(self) -> dict[tuple[int, tuple[int, ...]], int]:
        """Number of each pattern by its unit type and ascending classes, one per job."""
        members = np.repeat(self.job_class, self.jobs).tolist()
        ends = np.cumsum(self.size).tolist()
        rows = zip(self.unit_type.tolist(), self.size.tolist(), ends, strict=True)
        return {(t, tuple(members[end - n : end])): p for p, (t, n, end) in enumerate(rows)}


def patterns_of(instance: SharingInstance) -> Patterns:
    """Every pattern that the instance's limits admit and its jobs can fill; jobs alone first, then pairs.

    Raises
    ------
    UnsuitableError
        When a unit type has more than `MOST_PATTERNS` multisets of classes.
    """
    counts = Counter(job.job_class for job in instance.jobs)
    sociable = Counter(job.job_class for job in instance.jobs if not job.exclusive)
    parts = []
    for t, unit in enumerate(instance.unit_types):
        here = [
            c
            for c, job_class in enumerate(instance.classes)
            if unit.name in job_class.alone and counts[job_class.name]
        ]
        able = [c for c in here if sociable[instance.classes[c].name]]
        room = np.array([sociable[job_class.name] for job_class in instance.classes], dtype=np.int64)
        table = _Table(instance, unit)
        seen = 0
        for size in range(1, instance.limits.jobs_per_set + 1):
            rows = _multisets(here if size == 1 else able, size)
            seen += len(rows)
            if seen > MOST_PATTERNS:
                raise UnsuitableError(
                    f"limits.jobs_per_set: {len(able)} classes make more than {MOST_PATTERNS:,} sets of up "
                    f"to {size} on '{unit.name}'"
                )
            if size > 1:
                rows = rows[_enough(rows, room)]
            parts.append(table.patterns(t, rows))
    names = [field.name for field in fields(Patterns) if field.name != "instance"]
    joined = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Patterns(instance, **joined)


def _multisets(classes: list[int], size: int) -> IntArray:
    """Multisets of a size as ascending rows; one row more than is allowed when there are too many."""
    found = []
    for row in combinations_with_replacement(classes, size):
        found.append(row)
        if len(found) > MOST_PATTERNS:
            break
    return np.array(found, dtype=np.int64).reshape(-1, size)


def _enough(rows: IntArray, room: IntArray) -> BoolArray:
    """Mask of multisets that have no more jobs of a class than there are, which `room` counts."""
    fits = np.ones(len(rows), dtype=bool)
    for i in range(rows.shape[1]):
        fits &= (rows == rows[:, [i]]).sum(axis=1) <= room[rows[:, i]]
    return fits


class _Table:
    """Data of classes and sets on one unit type; arrays are by class, nan where it cannot be there."""

    def __init__(self, instance: SharingInstance, unit: UnitType):
        self._instance, self._unit = instance, unit
        number = {job_class.name: c for c, job_class in enumerate(instance.classes)}
        fields = ("epoch_s", "utilisation_pct", "memory_pct", "power_w")
        alone = [job_class.alone.get(unit.name) for job_class in instance.classes]
        # None becomes nan.
        columns = np.array([[getattr(a, f, None) for f in fields] for a in alone], dtype=float)
        self._epoch_s, self._load, self._memory, self._power_w = columns.reshape(-1, 4).T
        here = [m for m in instance.sets if m.unit_type == unit.name]
        self._misfits = [Counter(number[name] for name in m.classes) for m in here if not m.fits]
        self._measured = {tuple(sorted(number[name] for name in m.classes)): m for m in here if m.fits}

    def patterns(self, unit_type: int, rows: IntArray) -> Patterns:
        """Patterns of some multisets, shape (n, size), without those that the limits refuse."""
        size = rows.shape[1]
        # As laws have it; what was measured takes their place.
        load, memory = self._load[rows].sum(axis=1), self._memory[rows].sum(axis=1)
        slowdown = np.ones(rows.shape)
        if size > 1:
            slowdown *= SlowdownLaw(**dict(self._instance.slowdown)).of(size, load / 100)[:, None]
        utilisation = np.minimum(load, 100.0)
        power = self._power_w[rows[:, 0]].copy() if size == 1 else np.full(len(rows), np.nan)
        keep = np.full(len(rows), size == 1 or self._instance.unmeasured == "law")
        for row, measured in self._found(rows):
            keep[row] = True
            by_class = dict(zip(measured.classes, measured.slowdown, strict=True))
            slowdown[row] = [by_class[self._instance.classes[c].name] for c in rows[row]]
            utilisation[row] = _or(measured.utilisation_pct, utilisation[row])
            memory[row] = _or(measured.memory_pct, memory[row])
            power[row] = _or(measured.power_w, np.nan)
        unit = self._unit
        law_w = power_at(utilisation, unit.idle_power_w, unit.full_power_w, unit.power_exponent)
        power = np.where(np.isnan(power), law_w, power)
        limits = self._instance.limits
        keep &= utilisation <= limits.utilisation_pct * (1 + ROUNDING)
        keep &= memory <= limits.memory_pct * (1 + ROUNDING)
        for misfit in self._misfits:
            keep &= ~_contains(rows, misfit)
        rows, slowdown = rows[keep], slowdown[keep]
        first = np.ones(rows.shape, dtype=bool)
        first[:, 1:] = rows[:, 1:] != rows[:, :-1]
        jobs = (rows[:, :, None] == rows[:, None, :]).sum(axis=2)
        return Patterns(
            instance=self._instance,
            unit_type=np.full(len(rows), unit_type),
            size=np.full(len(rows), size),
            power_w=power[keep],
            utilisation_pct=utilisation[keep],
            memory_pct=memory[keep],
            slots=first.sum(axis=1),
            job_class=rows[first],
            jobs=jobs[first],
            epoch_s=(self._epoch_s[rows] * slowdown)[first],
        )

    def _found(self, rows: IntArray) -> Iterator[tuple[int, MeasuredSet]]:
        """Rows that were measured, in ascending order."""
        for row, classes in enumerate(map(tuple, rows.tolist() if self._measured else [])):
            if (measured := self._measured.get(classes)) is not None:
                yield row, measured


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def _contains(rows: IntArray, misfit: Counter[int]) -> BoolArray:
    """Mask of multisets that have all of a misfit."""
    return np.asarray(np.all([(rows == c).sum(axis=1) >= n for c, n in misfit.items()], axis=0))


@dataclass(frozen=True)
class Kinds:
    """K kinds of jobs, in the order of their first jobs.

    Attributes
    ----------
    members : tuple of tuple of int
        Numbers of the jobs of each kind, ascending.
    job_class, jobs : int arrays, shape (K,)
        Number of the class, and of jobs.
    epochs, deadline_s : float arrays, shape (K,)
        Epochs that remain (1 where they do not matter), and the deadline, infinite without.
    exclusive, may_wait : bool arrays, shape (K,)
    """

    members: tuple[tuple[int, ...], ...]
    job_class: IntArray
    jobs: IntArray
    epochs: FloatArray
    deadline_s: FloatArray
    exclusive: BoolArray
    may_wait: BoolArray

    def __len__(self) -> int:
        return len(self.members)

    def of_job(self) -> IntArray:
        """Kind of each job."""
        kind = np.zeros(int(self.jobs.sum()), dtype=np.int64)
        for k, members in enumerate(self.members):
            kind[list(members)] = k
        return kind

    def admits(self, kinds: IntArray, patterns: Patterns, slots: IntArray) -> BoolArray:
        """Mask of pairs of a kind and a slot of its class, broadcast, that its jobs may be in."""
        done_s = self.epochs[kinds] * patterns.epoch_s[slots]
        alone = patterns.size[patterns.pattern[slots]] == 1
        return np.asarray(
            (alone | ~self.exclusive[kinds]) & (done_s <= self.deadline_s[kinds] * (1 + ROUNDING))
        )


def kinds_of(patterns: Patterns, work_matters: bool) -> Kinds:
    """Group the jobs; `work_matters` where a cost or budget depends on the epochs that remain."""
    found: dict[tuple[int, float, float, bool, bool], list[int]] = {}
    rows = zip(patterns.instance.jobs, patterns.class_of_job.tolist(), patterns.may_wait, strict=True)
    for j, (job, cls, waits) in enumerate(rows):
        rest = job.remaining_epochs if work_matters or job.deadline_s is not None else 1.0
        due_s = np.inf if job.deadline_s is None else job.deadline_s
        found.setdefault((cls, rest, due_s, job.exclusive, waits), []).append(j)
    job_class, epochs, deadline_s, exclusive, may_wait = zip(*found, strict=True) if found else [()] * 5
    return Kinds(
        members=tuple(tuple(members) for members in found.values()),
        job_class=np.array(job_class, dtype=np.int64),
        jobs=np.array([len(members) for members in found.values()], dtype=np.int64),
        epochs=np.array(epochs, dtype=float),
        deadline_s=np.array(deadline_s, dtype=float),
        exclusive=np.array(exclusive, dtype=bool),
        may_wait=np.array(may_wait, dtype=bool),
    )
