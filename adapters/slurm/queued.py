"""Why jobs wait that take part in a decision: GPUs, watts, a quota, or others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

from wattsched.adapters.reasons import Need, left_of, undecided, why_over_quota, why_waiting
from wattsched.adapters.rounds import Plan
from wattsched.adapters.slurm.inventory import gpu_type_of
from wattsched.adapters.slurm.load import Load
from wattsched.adapters.slurm.options import Ours
from wattsched.adapters.slurm.plan import Round
from wattsched.adapters.slurm.reading import MARK, Site

_UNHELD = "was not submitted held (--hold), so that Slurm starts it as any other"
_NO_COMMENT = f"has a comment that is no JSON object with the key '{MARK}', and so is none of ours"


def queued(plan: Plan, round: Round, cap_w: float) -> dict[int, str]:
    """Why jobs that were told to the session are not among the starts of a plan."""
    later = round.load.after(plan.stops, [(start.job, start.launch) for start in plan.starts])
    nodes, tenants = round.cluster["nodes"], later.options.tenants
    free = {row["name"]: len({*later.free(row["name"])} - {*row.get("unavailable", ())}) for row in nodes}
    starts = [(f"job {start.job.id}", start.launch.nodes) for start in plan.starts]
    left = left_of(later, cap_w, {row["name"]: row["pool"] for row in nodes}, free, starts)
    sizes = {row["pool"]: row["gpus"] for row in nodes}
    kept = [one.kept for one in later.ours.values() if one.job.account in tenants]
    found = dict[int, str]()
    for record in undecided(plan, round.jobs):
        needs = list(_needs(record, sizes, later))
        quota = why_over_quota(needs, record.get("tenant"), tenants, kept)
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
