"""From points of the program of `sharing` to decisions and back, and to prices."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain

import numpy as np

from wattsched.formulations.program import FloatArray
from wattsched.formulations.sharing.rounds import Columns, Round
from wattsched.instances.sharing.decision import SharedSet, SharingDecision
from wattsched.instances.sharing.instance import OBJECTIVES


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
