"""Why jobs wait that take part in a decision: GPUs, watts, a quota, or others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from math import inf
from typing import Any

from wattsched.adapters.rounds import Plan
from wattsched.adapters.slurm.inventory import gpu_type_of
from wattsched.adapters.slurm.load import Load
from wattsched.adapters.slurm.options import Ours
from wattsched.adapters.slurm.plan import Round
from wattsched.adapters.slurm.reading import MARK, Site
from wattsched.adapters.slurm.site import behind

_UNHELD = "was not submitted held (--hold), so that Slurm starts it as any other"
_NO_COMMENT = f"has a comment that is no JSON object with the key '{MARK}', and so is none of ours"


def queued(plan: Plan, round: Round, cap_w: float) -> dict[int, str]:
    """Why jobs that were told to the session are not among the starts of a plan."""
    starting = {start.job.id for start in plan.starts}
    later = round.load.after(plan.stops, [(start.job, start.launch) for start in plan.starts])
    free = _free(later, round)
    sample = {row["pool"]: row["name"] for row in round.cluster["nodes"]}
    by_node = _spare(later, cap_w)
    spare = {pool: by_node[node] for pool, node in sample.items()}
    return {
        int(record["name"]): _why(record, later, free, spare)
        for record in round.jobs
        if "current" not in record and int(record["name"]) not in starting
    }


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


def _free(later: Load, round: Round) -> dict[str, list[tuple[int, int]]]:
    """Free GPUs and all GPUs of the nodes of each pool that take jobs."""
    found: dict[str, list[tuple[int, int]]] = {}
    for row in round.cluster["nodes"]:
        open_gpus = set(later.free(row["name"])) - set(row.get("unavailable", ()))
        found.setdefault(row["pool"], []).append((len(open_gpus), row["gpus"]))
    return found


def _spare(later: Load, cap_w: float) -> dict[str, dict[str, float]]:
    """Watts that are left below every cap that each node is under."""
    left_w = cap_w - later.power_w
    found = {node: {"cap": left_w} for node in later.site.nodes}
    for domain in later.options.power_domains:
        left_w = domain.power_cap_w - later.domain_w(domain)
        for node in behind(later.site, domain):
            found[node][f"cap of '{domain.name}'"] = left_w
    return found


def _why(
    record: Mapping[str, Any],
    later: Load,
    free: Mapping[str, list[tuple[int, int]]],
    spare: Mapping[str, Mapping[str, float]],
) -> str:
    table, added_w = record["options"], dict[str, float]()
    for gpus, named, power_w in zip(table["gpus"], table["pool"], table["power_w"], strict=True):
        more_w = power_w - gpus * later.options.gpu_type(gpu_type_of(named)).idle_power_w
        for pool in record["pools"]:
            if named in (pool, gpu_type_of(pool)) and _fits(gpus, free.get(pool, ())):
                added_w[pool] = min(added_w.get(pool, inf), more_w)
    if not added_w:
        return "too few GPUs are free, or others go first"
    over = Counter[str]()
    for pool, more_w in added_w.items():
        over.update([next((cap for cap, left_w in spare[pool].items() if more_w > left_w), "")])
    if not over[""]:
        return f"the {over.most_common(1)[0][0]} leaves too few watts, or others go first"
    quota = f", or the quota of '{record['tenant']}' leaves too little" if "tenant" in record else ""
    return f"others go first{quota}"


def _fits(gpus: int, nodes: Any) -> bool:
    """Whether one node has so many free GPUs, or whole nodes have them together."""
    whole = sum(size for free, size in nodes if free == size)
    return any(free >= gpus for free, _ in nodes) or (
        gpus > max((size for _, size in nodes), default=0) and whole >= gpus
    )
