"""Jobs that a round leaves out, by the checker's own reading: they have no option, but may wait.

They wait, whatever else is decided: they are no part of the objective, the budgets and the bound, and sets
that they are in cannot be formed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.column import NONE
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.pools import pools_of

LAST_DIGITS = 1e-12
"""A time that equals its deadline may miss it by so much, relative to it."""


class Decided(NamedTuple):
    """What is decided of a round.

    Attributes
    ----------
    instance : Instance
        Without what is left out.
    configurations : JobConfigurations
        Of its jobs.
    left_out : frozenset of str
        Names of the other jobs.
    """

    instance: Instance
    configurations: JobConfigurations
    left_out: frozenset[str]


def decided(instance: Instance) -> Decided:
    """Leave out jobs without options until all others have some."""
    pools = pools_of(instance.cluster)
    known, names = JobConfigurations(instance, pools), set[str]()
    while found := [known.jobs.names[j] for j in _without_options(known)]:
        names.update(found)
        instance = _without(instance, names)
        known = JobConfigurations(instance, pools)
    return Decided(instance, known, frozenset(names))


def faults(of: Decided, decision: Decision) -> Iterator[str]:
    """Jobs that are left out, and run all the same."""
    if of.left_out:
        for assignment in decision.jobs:
            if assignment.job in of.left_out:
                yield f"job '{assignment.job}' runs, but has no option that it could run as in time"


def _without(instance: Instance, names: set[str]) -> Instance:
    jobs = instance.by_column()
    kept = np.array([j for j, name in enumerate(jobs.names) if name not in names], dtype=np.int64)
    sets = [declared for declared in instance.sets if names.isdisjoint(declared.rates)]
    return instance.model_copy(update={"jobs": jobs.take(kept), "sets": sets})


def _without_options(known: JobConfigurations) -> list[int]:
    """Jobs that may wait, but can neither run nor wait in time."""
    jobs, every = known.jobs, np.arange(len(known.jobs))
    latest_s = jobs.numbers("deadline_s") * (1 + LAST_DIGITS)
    # Who waits begins after the round, with what is best: to run at once is sooner.
    late = known.best_s(every) > latest_s
    nowhere = (np.diff(known.start)[known.kind] == 0) & ~np.isin(known.kind, [*known.unknown])
    suspects = np.flatnonzero(jobs.flags("can_wait") & ~jobs.fixed & (late | nowhere))
    # What such a job runs as now, it may go on as without a restart; and a set may be quicker.
    other = (jobs.current.codes != NONE) & (known.start_s > 0.0)
    other[known.settable] = True
    return [
        j
        for j in suspects.tolist()
        if nowhere[j] or not other[j] or all(seconds > latest_s[j] for seconds in _seconds(known, j))
    ]


def _seconds(known: JobConfigurations, j: int) -> Iterator[float]:
    """Seconds to completion of everything that a job could run as."""
    job = known.jobs[j]
    held = None if job.current is None else (job.current.pool, job.current.gpus, job.current.batch_size)
    for one in (*known.of(j), *known.in_sets(job.name)):
        pool, gpus, _, _, batch = one.setting
        lost_s = 0.0 if held in (None, (pool, gpus, batch)) else job.restart_s
        yield job.remaining_work / one.rate + lost_s
