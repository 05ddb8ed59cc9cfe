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
from wattsched.topology.arrays import BoolArray, FloatArray
from wattsched.topology.column import NONE
from wattsched.verification.sizing.configurations import LAST_DIGITS, JobConfigurations, lasts_s
from wattsched.verification.sizing.pools import pools_of
from wattsched.verification.sizing.tenants import ROUNDING, alone_j, drawn_j


class Decided(NamedTuple):
    """Instance that is decided, without the jobs that have no options, and the names of these."""

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
    """Yield a fault for every job that is left out, and runs all the same."""
    if of.left_out:
        for assignment in decision.jobs:
            if assignment.job in of.left_out:
                yield f"job '{assignment.job}' runs, but has no option that it could run as in time"


def _without(instance: Instance, names: set[str]) -> Instance:
    """Return the instance without jobs of some names, and without sets of these."""
    jobs = instance.by_column()
    kept = np.array([j for j, name in enumerate(jobs.names) if name not in names], dtype=np.int64)
    sets = [declared for declared in instance.sets if names.isdisjoint(declared.rates)]
    return instance.model_copy(update={"jobs": jobs.take(kept), "sets": sets})


def _without_options(known: JobConfigurations) -> Iterator[int]:
    """Yield jobs that may wait, but can neither run nor wait in time, or run only beyond quotas of joules."""
    instance, jobs = known.instance, known.jobs
    best_s, most_j = known.best_s, _most_j(known)
    latest_s = jobs.numbers("deadline_s") * (1 + LAST_DIGITS)
    # Who waits begins after the round, with what is best: to run at once is sooner.
    late, waits_late = best_s > latest_s, instance.round_s + best_s > latest_s
    empty = np.diff(known.start) == 0
    empty[[*known.unknown]] = False  # they may have some
    nowhere, dear, other = empty[known.kind], _dear(known, most_j), _have_other(known)
    suspects = late | nowhere | dear | (np.isfinite(most_j) & waits_late)
    for j in np.flatnonzero(suspects & jobs.flags("can_wait") & ~jobs.fixed).tolist():
        if nowhere[j] or (not other[j] and (late[j] or dear[j])):
            yield j
            continue
        seconds, power_w = np.array(list(_runs(known, j))).reshape(-1, 2).T
        beyond = drawn_j(instance, power_w, seconds) > most_j[j]
        if beyond.all() or (waits_late[j] and (beyond | (seconds > latest_s[j])).all()):
            yield j


def _most_j(known: JobConfigurations) -> FloatArray:
    """Joules that each job may use by the quotas of its tenant, infinite without."""
    tenant = known.jobs.coded("tenant")
    most_j = np.array([alone_j(known.instance, name) for name in (*tenant.values, None)])[tenant.codes]
    return np.asarray(most_j * (1 + ROUNDING))


def _dear(known: JobConfigurations, most_j: FloatArray) -> BoolArray:
    """Mask of jobs that use more joules than their tenants have, whatever they begin anew as."""
    dear, limited = np.zeros(len(most_j), dtype=bool), np.flatnonzero(np.isfinite(most_j))
    if not len(limited):
        return dear
    least_j, least_w = known.least_energy_j(limited), np.full(len(known.start) - 1, np.inf)
    if known.instance.budgets.scope == "round":
        np.minimum.at(least_w, known.every.kind, known.every.power_w)
        least_j = np.minimum(least_j, least_w[known.kind[limited]] * known.instance.round_s)
    dear[limited] = least_j > most_j[limited]
    return dear


def _have_other(known: JobConfigurations) -> BoolArray:
    """Mask of jobs that may do other than to begin anew alone: go on without a restart, or run in a set."""
    other = (known.jobs.current.codes != NONE) & (known.start_s > 0.0)
    other[known.settable] = True
    return np.asarray(other)


def _runs(known: JobConfigurations, j: int) -> Iterator[tuple[float, float]]:
    """Yield seconds to completion, and watts, of everything that a job could run as; in a set its part."""
    job = known.jobs[j]
    for one in (*known.of(j), *known.in_sets(job.name)):
        if one.in_time:
            yield lasts_s(job, one), one.power_w / one.members
