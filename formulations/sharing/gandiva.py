"""`gandiva`: random pairs, kept where they help, as Gavel's policy of this name."""

from __future__ import annotations

import random

from wattsched.formulations.sharing.packing import Packing
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import SharingInstance

LEAST_THROUGHPUT = 1.0
"""Pairs with less normalised throughput are dropped (Gavel, ``policies/gandiva.py``)."""

SEED = 0


def gandiva(instance: SharingInstance, objective: str) -> SharingDecision | None:
    """Pair all jobs at random if there are more jobs than units, and place the sets in the jobs' order.

    A pair is tried on the unit type that is fastest for it, and dropped where it is slower than taking turns.
    Gavel has what finds no unit take turns with the rest; in one round it waits.
    """
    packing = Packing(instance)
    jobs = list(range(len(instance.jobs)))
    random.Random(SEED).shuffle(jobs)
    crowded = len(jobs) > sum(packing.free)
    pairs: list[list[int]] = []
    singles: list[list[int]] = []
    while jobs:
        one = jobs.pop()
        if crowded and jobs and _worth(packing, [one, jobs[-1]]):
            pairs.append([one, jobs.pop()])
        else:
            singles.append([one])
    for group in sorted([*pairs, *singles], key=min):
        _place(packing, group)
    return packing.decision()


def _patterns(packing: Packing, group: list[int]) -> list[int]:
    """Patterns of a group, the fastest first."""
    found = []
    for unit_type in range(len(packing.free)):
        pattern = packing.alone(unit_type, group[0])
        for job in group[1:]:
            pattern = None if pattern is None else packing.extended(pattern, job)
        if pattern is not None:
            found.append(pattern)
    return sorted(found, key=lambda p: sum(packing.epoch_s(p, j) for j in group))


def _worth(packing: Packing, pair: list[int]) -> bool:
    return any(
        packing.admits(p, pair) and packing.normalised_throughput(p, pair) >= LEAST_THROUGHPUT
        for p in _patterns(packing, pair)
    )


def _place(packing: Packing, group: list[int]) -> None:
    """Put a group onto a free unit on which it is worth it."""
    for pattern in _patterns(packing, group):
        helps = len(group) == 1 or packing.normalised_throughput(pattern, group) >= LEAST_THROUGHPUT
        if helps and packing.free[packing.patterns.unit_type[pattern]] and packing.admits(pattern, group):
            packing.open(pattern, group)
            return
