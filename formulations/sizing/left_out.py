"""Jobs that a round leaves out, as they have no option but may wait; and why a round has no decision.

A job that fits nowhere, or whose deadline is past, would else make its whole round infeasible.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.infeasibility import ShortRow
from wattsched.formulations.sizing.budgets import budgets_of
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
    of_kind = {
        kind: why_nowhere(known.instance, known.pools, known.jobs[j])
        for kind, j in zip(kinds.tolist(), jobs[first].tolist(), strict=True)
    }
    deadlines_s = known.jobs.numbers("deadline_s")[jobs].tolist()
    return {
        known.jobs.names[j]: of_kind[kind]
        or above_quota(known, j)
        or f"cannot meet its deadline of {deadline_s:g} s{_within_quota(known, j)}"
        for j, kind, deadline_s in zip(jobs.tolist(), known.kind[jobs].tolist(), deadlines_s, strict=True)
    }


UNITS = {"power_w": "W", "energy_j": "J", "carbon_g": "g CO2"}
QUOTAS = {
    "tenant_gpus": ("tenant", "GPUs"),
    "tenant_power_w": ("tenant", "W"),
    "tenant_energy_j": ("tenant", "J"),
    "tenant_carbon_g": ("tenant", "g CO2"),
    "cohort_gpus": ("cohort", "GPUs"),
}
NOUNS = {"power_w": "power cap", "energy_j": "energy budget", "carbon_g": "carbon budget"}


def diagnose(known: RoundJobs) -> list[str]:
    """Explain why a round has no decision, as far as a look at each job alone can tell."""
    for j in without_options(known)[:1].tolist():
        job = known.jobs[j]
        if reason := above_quota(known, j):
            return [f"no option of job '{job.name}' can be used: it {reason}"]
        if job.deadline_s is not None:
            late = f"its deadline of {job.deadline_s:g} s cannot be met"
            return [f"no option of job '{job.name}' can be used: {late}"]
        if not job.preemptible:
            held = "the GPU count, pool and batch size that it holds and must keep"
            return [f"no option of job '{job.name}' has {held}"]
        return [f"no option of job '{job.name}' can be used: it can neither run nor wait"]
    return []


def describe(known: RoundJobs, short: ShortRow) -> str:
    """Say what a row of `mckp` lacks, such as ``gpus:POOL``, ``parts:POOL:SIZE`` or ``power_w``."""
    row, needed, short_by = short.row, short.needed, short.short_by
    kind, _, place = row.partition(":")
    together = "" if short.alone else " (together with the other limits)"
    if kind in QUOTAS:
        who, unit = QUOTAS[kind]
        needs = f"the jobs need at least {needed:,.6g} {unit}, it may have {needed - short_by:,.6g}"
        return f"{who} '{place}' is {short_by:,.6g} {unit} short: {needs}{together}"
    if kind == "least_goodput":
        lacking = f"the least goodput of {known.instance.budgets.least_goodput:,.6g} cannot be reached"
        # Not `short_by`, which is lacking if other limits are raised, too: this is what no decision beats.
        most = short.available if short.alone else max(0.0, needed - short.at_least)
        return f"{lacking}: no decision has more than {most:,.6g}{together}"
    if kind == "objective":
        limit = known.instance.budgets.objectives[place]
        return f"the limit of {limit:,.6g} on {place}, in budgets.objectives, cannot be kept{together}"
    if kind in UNITS:
        return _budget(known, row, needed, short_by) + together
    if kind == "share":
        name, _, job = place.rpartition(":")
        declared, _, pool = name.rpartition(":")
        return f"set '{declared}' in pool '{pool}' can be neither formed nor left, for job '{job}'{together}"
    if kind in ("pieces", "cuts"):
        pool, _, _ = place.rpartition(":")
        return f"pool '{pool}': its nodes cannot be cut up into the pieces that the jobs need{together}"
    if kind not in ("gpus", "buddy", "parts"):
        return f"{row} is {short_by:g} short of {needed:g}" + together
    pool, _, size = (place, "", "") if kind == "gpus" else place.rpartition(":")
    where = {"gpus": "", "buddy": " in free blocks of {} or more", "parts": " in parts of {} of a node"}
    blocks = where[kind].format(size)
    return (
        f"pool '{pool}' is {short_by:g} GPUs short: the jobs need at least {needed:g}{blocks}, "
        f"{needed - short_by:g} are free" + together
    )


def _budget(known: RoundJobs, row: str, needed: float, short_by: float) -> str:
    """Say by how much a budget or power cap is short, of which the jobs need at least so much."""
    budget = next(budget for budget in budgets_of(known) if budget.name == row)
    kind, _, domain = row.partition(":")
    unit = UNITS[kind]
    of_domain = f" of power domain '{domain}'" if domain else ""
    parts = [f"the jobs need at least {needed:,.6g} {unit}"] if needed > 0 else []
    if budget.standing:
        parts = [f"{part} more" for part in parts]
        nodes = known.instance.cluster.node_columns().numbers("reserved_w")
        others = bool(nodes.any()) or any(one.reserved_w for one in known.instance.cluster.power_domains)
        who = "idle GPUs, nodes and others' load" if others else "idle GPUs and nodes"
        parts.insert(0, f"{who} use {budget.standing:,.6g} {unit}")
    limit = f"{NOUNS[kind]}{of_domain} of {budget.limit:,.6g} {unit}"
    return f"{kind}: the {limit} is {short_by:,.6g} {unit} short: {' and '.join(parts)}"
