"""Explanation of why a round has no decision, in the terms of its instance."""

from __future__ import annotations

from wattsched.formulations.infeasibility import ShortRow
from wattsched.formulations.sizing.budgets import budgets_of
from wattsched.formulations.sizing.data import without_options
from wattsched.formulations.sizing.jobs import RoundJobs
from wattsched.formulations.sizing.left_out import above_quota

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
        if told := above_quota(known, j):
            return [f"no option of job '{job.name}' can be used: it {told}"]
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
        told = f"the least goodput of {known.instance.budgets.least_goodput:,.6g} cannot be reached"
        most = short.available if short.alone else max(0.0, needed - short.at_least)
        return f"{told}: no decision has more than {most:,.6g}{together}"
    if kind in UNITS:
        return _budget(known, row, needed, short_by) + together
    if kind == "share":
        name, _, job = place.rpartition(":")
        declared, _, pool = name.rpartition(":")
        return f"set '{declared}' in pool '{pool}' can be neither formed nor left, for job '{job}'{together}"
    if kind in ("pieces", "cuts"):
        pool, _, size = place.rpartition(":")
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
