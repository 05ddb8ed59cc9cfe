"""`fifo` and `fifo-packed`: jobs in their order, as Gavel's policies of these names."""

from __future__ import annotations

from wattsched.formulations.sharing.packing import OpenSet, Packing
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import SharingInstance

PACKING_THRESHOLD = 1.5
"""Normalised throughput that a pair must exceed (Gavel, ``policies/fifo.py``)."""


def fifo(instance: SharingInstance, objective: str) -> SharingDecision | None:
    """Give each job the fastest free unit to itself; the first that has none stops the queue."""
    return _queue(instance, packs=False)


def fifo_packed(instance: SharingInstance, objective: str) -> SharingDecision | None:
    """As `fifo`; a job without a free unit joins the single job with which the pair runs fastest.

    The pair's normalised throughput must be above `PACKING_THRESHOLD`; the first job without a partner stops
    the queue.
    """
    return _queue(instance, packs=True)


def _queue(instance: SharingInstance, packs: bool) -> SharingDecision | None:
    packing = Packing(instance)
    for j in range(len(instance.jobs)):
        idle = min(packing.idle(j), key=lambda p: packing.epoch_s(p, j), default=None)
        if idle is not None:
            packing.open(idle, [j])
            continue
        partner = _best_partner(packing, j) if packs else None
        if partner is None:
            break
        packing.join(*partner, j)
    return packing.decision()


def _best_partner(packing: Packing, job: int) -> tuple[OpenSet, int] | None:
    """Single job with the best pair, and the pattern of the pair."""
    best, found = PACKING_THRESHOLD, None
    for pattern in sorted(packing.by_pattern):
        singles = packing.by_pattern[pattern] if packing.patterns.size[pattern] == 1 else []
        pair = packing.extended(pattern, job)
        if pair is None or not singles:
            continue
        value = packing.normalised_throughput(pair, [*singles[0].jobs, job])
        if value > best:
            takers = (s for s in singles if packing.admits(pair, [*s.jobs, job], instead_of=s))
            if (taker := next(takers, None)) is not None:
                best, found = value, (taker, pair)
    return found
