"""`eaco`: each job joins the fullest set that takes it (EaCO, algorithms 1 and 2).

Candidates are the units with jobs whose limits leave room, the most utilised first, then idle units, those
first on which the job needs the least energy. The first is taken on which every deadline holds for all. What
EaCO does afterwards, to measure for an epoch and perhaps undo, is nothing that a decision says.
"""

from __future__ import annotations

from wattsched.formulations.sharing.packing import OpenSet, Packing
from wattsched.instances.sharing.decision import SharingDecision
from wattsched.instances.sharing.instance import SharingInstance


def eaco(instance: SharingInstance, objective: str) -> SharingDecision | None:
    """Decide by EaCO's rule; jobs that may not wait come first, then exclusive ones, then in their order."""
    packing = Packing(instance)
    jobs = instance.jobs
    for j in sorted(range(len(jobs)), key=lambda j: (packing.may_wait(j), not jobs[j].exclusive)):
        found = _fullest(packing, j)
        if found is not None:
            packing.join(*found, j)
            continue
        idle = min(packing.idle(j), key=lambda p: packing.epoch_energy_j(p, j), default=None)
        if idle is not None:
            packing.open(idle, [j])
    return packing.decision()


def _fullest(packing: Packing, job: int) -> tuple[OpenSet, int] | None:
    """Most utilised set that takes a job, and the pattern that it becomes."""
    utilisation = packing.patterns.utilisation_pct
    for pattern in sorted(packing.by_pattern, key=lambda p: (-utilisation[p], p)):
        larger = packing.extended(pattern, job)
        if larger is None:
            continue
        for formed in packing.by_pattern[pattern]:
            if packing.admits(larger, [*formed.jobs, job], instead_of=formed):
                return formed, larger
    return None
