"""Jobs that a round leaves out: they have no option, but may wait; the rest of the round is decided.

A job that fits nowhere, or whose deadline is past, would else make its whole round infeasible.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.sizing.data import comparable_jobs, without_options
from wattsched.formulations.sizing.jobs import RoundJobs, jobs_of
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import why_nowhere
from wattsched.topology.arrays import IntArray


def decided_jobs(instance: Instance) -> RoundJobs:
    """Jobs of a validated instance that are to be decided, and why others are left out.

    Without them sets cannot be formed that they are in, which may leave further jobs without an option.

    Raises
    ------
    InputError
        As `comparable_jobs`.
    """
    known, reasons = comparable_jobs(instance), dict[str, str]()
    while len(out := _left_out(known)):
        reasons |= _reasons(known, out)
        known = jobs_of(without(known.instance, out))
    return replace(known, left_out=reasons) if reasons else known


def without(instance: Instance, jobs: IntArray) -> Instance:
    """The round without some of its jobs, by number, and without the sets that they are in."""
    columns = instance.by_column()
    names = {columns.names[j] for j in jobs.tolist()}
    kept = columns.take(np.delete(np.arange(len(columns)), jobs))
    sets = [declared for declared in instance.sets if names.isdisjoint(declared.rates)]
    return instance.model_copy(update={"jobs": kept.listed(), "sets": sets})


def above_quota(known: RoundJobs, job: int) -> str:
    """Say by how much a job uses more joules or grams than its tenant may; empty where it does not."""
    if not known.beyond_quotas[job]:
        return ""
    name, least_j = known.jobs.coded("tenant").at(job), known.least_drawn_j[job]
    tenant, when = known.instance.tenants[name], " in the round" if known.counts_rounds else ""
    needed, limit, unit = least_j, tenant.energy_j, "J"
    if limit is None or least_j <= limit:
        needed, limit, unit = least_j * known.per_joule["carbon"], tenant.carbon_g, "g CO2"
    return f"needs at least {needed:,.6g} {unit}{when} but its tenant '{name}' may use {limit:,.6g}"


def _within_quota(known: RoundJobs, job: int) -> str:
    """Name the quota that rules out options that would meet a deadline; empty where none would."""
    if known.work[job] / known.configurations.best_rate[known.kind[job]] > known.latest_s[job]:
        return ""
    return f" with the energy that its tenant '{known.jobs.coded('tenant').at(job)}' may use"


def _left_out(known: RoundJobs) -> IntArray:
    """Numbers of jobs without an option that may wait."""
    jobs = without_options(known)
    return np.asarray(jobs[~known.must_run[jobs]])


def _reasons(known: RoundJobs, jobs: IntArray) -> dict[str, str]:
    """Explain for each job why it is left out; equal jobs are judged once."""
    kinds, first = np.unique(known.kind[jobs], return_index=True)
    told = {
        kind: why_nowhere(known.instance, known.pools, known.jobs[j])
        for kind, j in zip(kinds.tolist(), jobs[first].tolist(), strict=True)
    }
    deadlines_s = known.jobs.numbers("deadline_s")[jobs].tolist()
    return {
        known.jobs.names[j]: told[kind]
        or above_quota(known, j)
        or f"cannot meet its deadline of {deadline_s:g} s{_within_quota(known, j)}"
        for j, kind, deadline_s in zip(jobs.tolist(), known.kind[jobs].tolist(), deadlines_s, strict=True)
    }
