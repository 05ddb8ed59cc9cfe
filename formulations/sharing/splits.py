"""Counts in certificate trees of `sharing`: units in use, and jobs of a kind, anywhere or in some sets."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from wattsched.formulations.counts import Counting, Counts
from wattsched.formulations.program import Program
from wattsched.formulations.sharing.columns import Columns, SetPartitioning
from wattsched.formulations.sharing.decisions import certificate_prices


class _Key(NamedTuple):
    """Units, or jobs of a kind: all, or on a unit type, or there in sets with some classes at least."""

    kind: int | None = None
    unit_type: int | None = None
    classes: tuple[int, ...] = ()


def counts_of(data: SetPartitioning, columns: Columns, program: Program) -> Counts:
    """Counts of a program over some columns, from those of everything to those of single columns.

    Parameters
    ----------
    program : Program
        Of `patterns.program_of`.
    """
    patterns, counting, n = data.patterns, Counting(), len(columns.pattern)
    members = np.split(np.repeat(patterns.job_class, patterns.jobs), np.cumsum(patterns.size)[:-1])
    parts = {p: list(_parts(data, p, tuple(members[p].tolist()))) for p in columns.pattern.tolist()}
    of_kind = zip(columns.kind.tolist(), data.slot_pattern[columns.slot].tolist(), strict=True)
    for column, (kind, p) in enumerate([*((None, p) for p in columns.pattern.tolist()), *of_kind]):
        unit_type, whole = int(patterns.unit_type[p]), int(column >= n)
        counting.add(2 * whole, _Key(kind), column)
        counting.add(1 + 2 * whole, _Key(kind, unit_type), column)
        for classes in parts[p]:
            single = len(classes) == 1 and kind is None
            counting.add(3 if single else 4, _Key(kind, unit_type, classes), column)
    instance, job_names = data.instance, [job.name for job in data.instance.jobs]

    def named(key: _Key) -> dict[str, Any]:
        told: dict[str, Any] = {}
        if key.kind is not None:
            told["jobs"] = [job_names[j] for j in data.kinds.members[key.kind]]
        if key.unit_type is not None:
            told["unit_type"] = instance.unit_types[key.unit_type].name
        return told | ({"classes": [instance.classes[c].name for c in key.classes]} if key.classes else {})

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
