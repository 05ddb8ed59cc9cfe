"""Conversion of points of the program of `sharing` to decisions and back; prices and counts by name."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations
from typing import Any, NamedTuple

import numpy as np

from wattsched.formulations.counts import Counting, Counts
from wattsched.formulations.program import Program
from wattsched.formulations.sharing.columns import Columns, SetPartitioning
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import OBJECTIVES
from wattsched.topology.arrays import FloatArray, IntArray


def decide(data: SetPartitioning, columns: Columns, x: FloatArray) -> SharingDecision:
    """Jobs of each set from a point of the program; jobs of a kind in the order of the file.

    Raises
    ------
    ValueError
        If the point does not fill its patterns.
    """
    n, m, patterns = len(columns.pattern), len(columns.kind), data.patterns
    whole = np.round(x).astype(np.int64)
    left = [list(members) for members in data.kinds.members]
    in_slot: defaultdict[int, list[int]] = defaultdict(list)
    for i in np.flatnonzero(whole[n : n + m]):
        members, count = left[columns.kind[i]], int(whole[n + i])
        in_slot[int(columns.slot[i])] += members[:count]
        del members[:count]
    names = [job.name for job in data.instance.jobs]
    sets = []
    for i in np.flatnonzero(whole[:n]):
        p = int(columns.pattern[i])
        slots = range(int(patterns.start[p]), int(patterns.start[p + 1]))
        if any(len(in_slot[s]) != patterns.jobs[s] * whole[i] for s in slots):
            raise ValueError("the point does not fill its patterns")
        unit_type = data.instance.unit_types[patterns.unit_type[p]].name
        for unit in np.hstack([np.reshape(in_slot[s], (whole[i], -1)) for s in slots]).tolist():
            sets.append(SharedSet(unit_type=unit_type, jobs=[names[j] for j in unit]))
    return SharingDecision(sets=sets, waiting=[names[j] for j in sorted(chain.from_iterable(left))])


def columns_of(data: SetPartitioning, decision: SharingDecision) -> Columns | None:
    """Columns that a decision uses, one per set and job that runs; None when a set is no pattern."""
    types = {unit.name: t for t, unit in enumerate(data.instance.unit_types)}
    jobs = {job.name: j for j, job in enumerate(data.instance.jobs)}
    kind_of, start = data.kinds.of_job(), data.patterns.start
    pattern, kind, slot = [], [], []
    for formed in decision.sets:
        if any(name not in jobs for name in formed.jobs):
            return None
        members = [jobs[name] for name in formed.jobs]
        of_class = data.patterns.class_of_job[members].tolist()
        key = types.get(formed.unit_type, -1), tuple(sorted(of_class))
        if (p := data.patterns.numbers.get(key)) is None:
            return None
        pattern.append(p)
        kind += [int(kind_of[j]) for j in members]
        own = data.patterns.job_class[start[p] : start[p + 1]]
        slot += [int(start[p] + np.searchsorted(own, c)) for c in of_class]
    return Columns(*(np.array(values, dtype=np.int64) for values in (pattern, kind, slot)))


def point(data: SetPartitioning, columns: Columns, decision: SharingDecision) -> FloatArray | None:
    """Point of the program that stands for a decision, None where one of its columns is missing."""
    used = columns_of(data, decision)
    if used is None:
        return None
    # A placement is the number of its kind times the number of slots, plus its slot.
    width = len(data.slot_pattern)
    patterns = _counts(columns.pattern, used.pattern)
    placed = _counts(columns.kind * width + columns.slot, used.kind * width + used.slot)
    if patterns is None or placed is None:
        return None
    running = np.bincount(used.kind, minlength=len(data.kinds))
    return np.concatenate([patterns, placed, data.kinds.jobs - running])


def _counts(known: IntArray, used: IntArray) -> FloatArray | None:
    """Count how often each known number is used, None when another number is."""
    if not np.isin(used, known).all():
        return None
    order, counts = np.argsort(known), np.zeros(len(known))
    np.add.at(counts, order[np.searchsorted(known, used, sorter=order)], 1.0)
    return counts


def certificate_prices(data: SetPartitioning, y: FloatArray) -> dict[str, float]:
    """Prices of jobs, units and budgets from those of the program's first rows, in the objective's sense."""
    sign = -1.0 if OBJECTIVES[data.objective] == "max" else 1.0
    names = [f"job:{job.name}" for job in data.instance.jobs]
    names += [unit.row for unit in data.instance.unit_types]
    names += [budget.name for budget in data.budgets]
    # More of an objective that is maximised is a tighter limit on its cost.
    of_budgets = [budget.sign for budget in data.budgets]
    signs = np.concatenate([np.full(len(names) - len(of_budgets), 1.0), of_budgets])
    values = signs * np.concatenate([y[data.kinds.of_job()], y[len(data.kinds) : data.n_common_rows]])
    return {name: sign * float(v) for name, v in zip(names, values, strict=True) if v != 0.0}


class _Key(NamedTuple):
    """What is counted: units, or jobs of a kind; all, on a unit type, or there in sets with some classes."""

    kind: int | None = None
    unit_type: int | None = None
    classes: tuple[int, ...] = ()


def counts_of(data: SetPartitioning, columns: Columns, program: Program) -> Counts:
    """Counts of a program over columns, from those of everything to those of single columns."""
    patterns, counting, n = data.patterns, Counting(), len(columns.pattern)
    members = np.split(np.repeat(patterns.job_class, patterns.jobs), np.cumsum(patterns.size)[:-1])
    parts = {p: list(_parts(data, p, tuple(members[p].tolist()))) for p in columns.pattern.tolist()}
    of_kind = zip(columns.kind.tolist(), data.slot_pattern[columns.slot].tolist(), strict=True)
    for column, (kind, p) in enumerate([*((None, p) for p in columns.pattern.tolist()), *of_kind]):
        # Patterns are counted before placements: levels 0 and 1 before 2 and 3.
        unit_type, level = int(patterns.unit_type[p]), 2 * int(column >= n)
        counting.add(level, _Key(kind), column)
        counting.add(1 + level, _Key(kind, unit_type), column)
        for classes in parts[p]:
            single = len(classes) == 1 and kind is None
            counting.add(3 if single else 4, _Key(kind, unit_type, classes), column)
    instance, job_names = data.instance, [job.name for job in data.instance.jobs]

    def named(key: _Key) -> dict[str, Any]:
        """Describe a count by the names of jobs, unit type and classes."""
        count: dict[str, Any] = {}
        if key.kind is not None:
            count["jobs"] = [job_names[j] for j in data.kinds.members[key.kind]]
        if key.unit_type is not None:
            count["unit_type"] = instance.unit_types[key.unit_type].name
        return count | ({"classes": [instance.classes[c].name for c in key.classes]} if key.classes else {})

    # What prices prove counts on all units of a type being filled, whether there are jobs for that or not.
    units, upper = data.units[patterns.unit_type], program.upper.copy()
    upper[:n] = units[columns.pattern] + 1
    jobs = (patterns.jobs * units[data.slot_pattern])[columns.slot]
    upper[n : n + len(jobs)] = jobs + 1
    return counting.counts(replace(program, upper=upper), lambda y: certificate_prices(data, y), named)


def _parts(data: SetPartitioning, pattern: int, classes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Single classes of a pattern, and all of its classes that are a pattern, too; ascending."""
    yield from ((c,) for c in dict.fromkeys(classes))
    unit_type = int(data.patterns.unit_type[pattern])
    for size in range(2, len(classes) + 1):
        met = dict.fromkeys(combinations(classes, size))
        yield from (part for part in met if (unit_type, part) in data.patterns.numbers)
