"""Why jobs wait that take part in a decision: GPUs, watts, a quota, or others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from wattsched.adapters.reasons import Left, Need, why_over_quota, why_waiting
from wattsched.adapters.rounds import Plan
from wattsched.adapters.slurm.inventory import gpu_type_of
from wattsched.adapters.slurm.load import Load
from wattsched.adapters.slurm.options import Ours
from wattsched.adapters.slurm.plan import Round
from wattsched.adapters.slurm.reading import MARK, Site
from wattsched.adapters.slurm.site import behind
from wattsched.adapters.tenants import Kept

_UNHELD = "was not submitted held (--hold), so that Slurm starts it as any other"
_NO_COMMENT = f"has a comment that is no JSON object with the key '{MARK}', and so is none of ours"


def queued(plan: Plan, round: Round, cap_w: float) -> dict[int, str]:
    """Why jobs that were told to the session are not among the starts of a plan."""
    starting = {start.job.id for start in plan.starts}
    later = round.load.after(plan.stops, [(start.job, start.launch) for start in plan.starts])
    left, sizes = (
        _left(later, round, plan, cap_w),
        {row["pool"]: row["gpus"] for row in round.cluster["nodes"]},
    )
    tenants = later.options.tenants
    kept = [
        Kept(one.job.account, one.launch.gpus, one.launch.power_w)
        for one in later.ours.values()
        if one.job.account in tenants
    ]
    found = dict[int, str]()
    for record in round.jobs:
        if "current" in record or int(record["name"]) in starting:
            continue
        needs, tenant = list(_needs(record, sizes, later)), record.get("tenant")
        quota = why_over_quota(needs, tenant, tenants[tenant], kept) if tenant else ""
        found[int(record["name"])] = why_waiting(needs, left, quota)
    return found


def unclear(site: Site, ours: Ours) -> dict[int, str]:
    """Jobs that wait and seem to be meant for us, and why they are not decided on."""
    found = dict[int, str]()
    for job in site.jobs.values():
        if not job.pending:
            continue
        if ours.has(job) and not job.held and not job.admin_comment:
            found[job.id] = _UNHELD
        elif not ours.has(job) and job.held and MARK in job.comment.lower():
            found[job.id] = _NO_COMMENT
    return found


def _left(later: Load, round: Round, plan: Plan, cap_w: float) -> dict[str, Left]:
    """What there is in each pool when the plan has been carried out."""
    caps = {node: {"cap": (later.power_w, cap_w)} for node in later.site.nodes}
    for domain in later.options.power_domains:
        drawn_w = later.domain_w(domain)
        for node in behind(later.site, domain):
            caps[node][f"cap of '{domain.name}'"] = drawn_w, domain.power_cap_w
    found: dict[str, Left] = {}
    for row in round.cluster["nodes"]:
        left = found.setdefault(row["pool"], Left(caps=caps[row["name"]]))
        left.free.append(len(set(later.free(row["name"])) - set(row.get("unavailable", ()))))
    for start in plan.starts:
        found[start.launch.pool].first.append(f"job {start.job.id}")
    return found


def _needs(record: Mapping[str, Any], sizes: Mapping[str, int], later: Load) -> Iterator[Need]:
    """What the options of a job ask of its pools, those that take the least watts of their GPUs."""
    table, least_w = record["options"], dict[tuple[int, str], float]()
    for gpus, named, power_w in zip(table["gpus"], table["pool"], table["power_w"], strict=True):
        least_w[gpus, named] = min(least_w.get((gpus, named), inf), power_w)
    for (gpus, named), power_w in least_w.items():
        idle_w = gpus * later.options.gpu_type(gpu_type_of(named)).idle_power_w
        for pool in record["pools"]:
            if named in (pool, gpu_type_of(pool)):
                each = min(gpus, sizes[pool])
                yield Need(pool, each, gpus // each, power_w - idle_w)
