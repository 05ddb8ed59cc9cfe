"""A round: the cluster and the jobs as a session takes them, and what its decision asks of Slurm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from wattsched.adapters.options import Expansion, Row, rates_of
from wattsched.adapters.plan import (
    Kept,
    Need,
    Round,
    assigned,
    cluster_row,
    left_of,
    undecided,
    why_over_quota,
    why_waiting,
)
from wattsched.adapters.pools import Claim, divided
from wattsched.adapters.quarantine import Clock, alone, in_turn
from wattsched.adapters.rounds import Plan
from wattsched.adapters.slurm.inventory import SlurmNode, gpu_type_of
from wattsched.adapters.slurm.load import Load
from wattsched.adapters.slurm.options import Launch, Ours, fields_of, record_of, said_of
from wattsched.adapters.slurm.reading import MARK, Site, SlurmJob
from wattsched.adapters.slurm.running import Running, Start
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.report.wording import count
from wattsched.sessions.session_decision import SessionDecision

_UNHELD = "was not submitted held (--hold), so that Slurm starts it as any other"
_NO_COMMENT = f"has a comment that is no JSON object with the key '{MARK}', and so is none of ours"


def cluster_of(
    load: Load, pools: Mapping[str, str], ahead_s: float, apart: Collection[int] = ()
) -> dict[str, Any]:
    """The cluster as an instance has it.

    Parameters
    ----------
    pools : mapping of str to str
        Of the nodes, as `pools_by_node` has them.
    ahead_s : float
        Nodes whose reservation begins within so many seconds are closed to all jobs.
    apart : collection of int
        Jobs of ours on nodes of several pools, which stay as they are.
    """
    load = load.without_leaving
    site, options = load.site, load.options
    kept = reserved(site, ahead_s)
    nodes = []
    own, staying_w = defaultdict[str, set[int]](set), defaultdict[str, float](float)
    for number, running in load.ours.items():
        for name, gpus in running.gpus.items():
            if number in apart:
                staying_w[name] += running.node_w[name]
            else:
                own[name].update(gpus)
    for node in site.nodes.values():
        # Without a CPU it takes no job, whatever GPUs are free.
        shut = not node.takes_jobs or node.name in kept or node.free_cpus < 1
        taken = set(range(node.gpus)) - set(load.free(node.name))
        mine = own[node.name]
        unavailable = set(range(node.gpus)) - mine if shut else taken - mine
        reserved_w = load.reserved_w(node, closed=shut) + staying_w[node.name]
        row: dict[str, Any] = {"name": node.name, "gpu_type": node.gpu_type, "gpus": node.gpus}
        row |= {"base_power_w": options.server_w(node.kinds), "reserved_w": reserved_w}
        row |= {"unavailable": sorted(unavailable)} if unavailable else {}
        row |= {"parent": site.above[node.name]} if node.name in site.above else {}
        row |= {"pool": pools[node.name]}
        nodes.append(row)
    kinds = {node.gpu_type for node in site.nodes.values()}
    return cluster_row("slurm", options, kinds, nodes, site.switches, "switch")


def reserved(site: Site, ahead_s: float) -> frozenset[str]:
    """Nodes with a reservation that has begun, or begins within some seconds."""
    until_s = site.time_s + ahead_s
    begun = (one for one in site.reservations if one.start_s <= until_s and one.end_s > site.time_s)
    return frozenset(node for one in begun for node in one.nodes)


def pools_by_node(load: Load) -> dict[str, str]:
    """Pool of each node: those of one type, size and set of partitions behind the same power caps."""
    nodes = load.site.nodes.values()
    pools = {one.name: f"{one.gpu_type}/{one.gpus}/{'+'.join(sorted(one.partitions))}" for one in nodes}
    for domain, below in load.under.items():
        for node in below:
            pools[node] += f"/{domain}"
    return pools


@dataclass
class _Places:
    """Nodes that jobs may have, kept for others that ask for the same, as most do."""

    site: Site
    _known: dict[Any, frozenset[str]] = field(default_factory=dict)

    def of(self, job: SlurmJob) -> frozenset[str]:
        """Nodes of its partitions that have what it asks for."""
        each = -(-job.request.gpus // job.asked_nodes)
        asked = (job.partitions, job.needs, job.asked_nodes, each)
        if asked not in self._known:
            own = [node for node in self.site.nodes.values() if set(node.partitions) & set(job.partitions)]
            if not own:
                raise InputError(["none of its partitions has GPUs that it may use"])
            self._known[asked] = job.needs.allowed(own, job.asked_nodes, each)
        return self._known[asked]

    def claim(self, job: SlurmJob, hosts: frozenset[str]) -> Claim:
        """Return the nodes that a waiting job asks for, without those reserved before its limit is over.

        Slurm starts no job on a node whose reservation begins before the job's limit is over.
        """
        sizes = sorted((self.site.nodes[name].gpus for name in hosts), reverse=True)
        if job.request.gpus > sum(sizes):
            text = f"asks for {count(job.request.gpus, 'GPU')}, and the nodes that it may have, have"
            raise InputError([f"{text} {sum(sizes):,}"])
        if not (left := hosts - reserved(self.site, job.limit_s)):
            names = sorted(one.name for one in self.site.reservations if one.nodes & hosts)
            raise InputError([f"its time limit reaches into the reservation '{names[0]}' of its nodes"])
        nodes = max(job.asked_nodes, -(-job.request.gpus // sizes[0]))
        return Claim(left, job.submit_s, nodes, min(max(1, job.request.gpus), sizes[0]))

    def kinds(self, names: frozenset[str]) -> list[SlurmNode]:
        """One node of each kind."""
        nodes = [self.site.nodes[name] for name in sorted(names)]
        return list({(one.gpu_type, one.gpus, one.cpus, one.memory_mib): one for one in nodes}.values())


def round_of(
    load: Load,
    ours: Ours,
    ahead_s: float,
    aside: Mapping[int, str] | None = None,
    clock: Clock | None = None,
) -> Round:
    """The round as a session takes it, without jobs that are put aside or that nobody had time to look at.

    Jobs of ours on nodes of several pools are told of as load: they stay, or are stopped for a cap.
    """
    site, options, left_out = load.site, load.options, dict[int, str]()
    if not site.nodes:
        raise InputError(["no node of the cluster has GPUs"])
    waiting = [job for job in site.jobs.values() if job.pending and job.held and ours.has(job)]
    places, clock, claims = _Places(site), clock or Clock(), list[Claim]()
    allowed, said = dict[int, frozenset[str]](), dict[int, dict[str, Any]]()
    users = {job.id: job.user for job in waiting}
    in_order = [*load.ours, *in_turn(users, site.time_s)]
    for job in map(site.jobs.__getitem__, in_order):
        with alone(job.id, left_out):
            _require_ready(job, site, aside or {})
            hosts = places.of(job)
            claim = None if job.id in load.ours else places.claim(job, hosts)
            allowed[job.id] = claim.hosts if claim else (hosts - reserved(site, job.limit_s)) or hosts
            clock.require_time()
            said[job.id] = said_of(job, options, kinds={site.nodes[name].gpu_type for name in hosts})
            claims += [claim] if claim else []
    pools = divided(
        pools_by_node(load),
        claims,
        together=[frozenset(one.gpus) for one in load.ours.values() if len(one.gpus) > 1],
        apart=[one.nodes for one in site.reservations if one.end_s > site.time_s],
        free={node.name: len(load.free(node.name)) for node in site.nodes.values() if node.takes_jobs},
    )
    apart = {number for number, one in load.ours.items() if len({pools[node] for node in one.gpus}) > 1}
    decidable = {number: one for number, one in load.ours.items() if number not in apart}
    cluster = cluster_of(load, pools, ahead_s, apart)
    expansion = Expansion(cluster, options, clock)
    records = dict[int, dict[str, Any]]()

    def look_at(job: SlurmJob, said: dict[str, Any]) -> None:
        """Make the record of a job by what is said of it; any exception is why it has none."""
        running, kinds = load.ours.get(job.id), places.kinds(allowed[job.id])
        fields = _fields(said, job, load, pools, allowed[job.id])
        fields = expansion.with_table(fields, job.user, load.factor(job.id))
        if running is None:
            records[job.id] = record_of(fields, job, site, None, kinds)
        else:
            records[job.id] = _running_record(running, fields, pools, kinds)

    for number in (one for one in in_order if one in said and (one in decidable or one in users)):
        with alone(number, left_out):
            look_at(site.jobs[number], said[number])
    # What runs and cannot be understood any more is what it was launched as.
    for number, running in decidable.items():
        if number not in records:
            records[number] = _running_record(running, None, pools, ())
            with alone(number, left_out):
                look_at(running.job, said_of(running.job, options, believe=False))
    jobs = [records[number] for number in (*decidable, *users) if number in records]
    reasons = {job.id: left_out[job.id] for job in waiting if job.id in left_out}
    return Round(load, cluster, jobs, load.reasons | reasons, _under_quotas(jobs, load), clock)


def _under_quotas(jobs: list[dict[str, Any]], load: Load) -> list[Kept]:
    """Put its tenant into each job's record; return what jobs that cannot be stopped use of quotas."""
    tenants, staying = load.options.tenants, dict(load.ours)
    for record in jobs:
        number = int(record["name"])
        if record["preemptible"] or "current" not in record:
            staying.pop(number, None)
            if (account := load.site.jobs[number].account) in tenants:
                record["tenant"] = account
    return [one.kept for one in staying.values() if one.job.account in tenants]


def _require_ready(job: SlurmJob, site: Site, aside: Mapping[int, str]) -> None:
    """Refuse jobs that cannot be decided on now."""
    if job.odd:
        raise InputError([job.odd])
    if job.pending and (shut := [name for name in job.partitions if name in site.closed]):
        raise InputError([f"the partition '{shut[0]}' is {site.closed[shut[0]]}"])
    if job.pending and not job.restarts and job.eligible_s > site.time_s:
        raise InputError(["is not to begin yet (--begin)"])
    if job.pending and job.id in aside:
        raise InputError([aside[job.id]])


def _fields(
    said: dict[str, Any], job: SlurmJob, load: Load, pools: Mapping[str, str], allowed: frozenset[str]
) -> dict[str, Any]:
    """Fields of a job in the pools of which it is `allowed` all nodes; an `InputError` without any."""
    beyond = {pool for node, pool in pools.items() if node not in allowed}
    own = {pools[node] for node in allowed} - beyond
    if job.pending and not own:
        text = "of the nodes that it may have, jobs of several nodes that run or came first have some"
        raise InputError([f"{text}: waits"])
    return fields_of(said, job, load.site, load.options, sorted(own))


def _running_record(
    running: Running,
    fields: dict[str, Any] | None,
    pools: Mapping[str, str],
    hosts: Iterable[SlurmNode],
) -> dict[str, Any]:
    """A job of ours that has GPUs, as a session takes it; without `fields` it stays as it is, or stops.

    `hosts` has a node of each kind that it may have.
    """
    job, nodes = running.job, running.site_nodes
    # The pools may have other names since it was released: partitions and power caps change.
    pool = pools[next(iter(running.gpus))]
    launch = running.launch.model_copy(update={"pool": pool, "power_w": running.power_w})
    fields = fields or {"name": str(job.id), "options": {}, "preemptible": True}
    fields = {**fields, "pools": sorted({*fields.get("pools", ()), pool})}
    record = record_of(fields, job, running.site, launch, hosts, adjustable=running.adjustable)
    current = {"gpus": launch.gpus, "pool": pool, "nodes": running.gpus}
    # What starts or goes on now is let alone, and so is what a drained node has left.
    begun = job.running and job.suspended_s != running.site.time_s
    begun = begun and all(node.takes_jobs for node in nodes)
    return {**record, "current": current | launch.settings, "preemptible": record["preemptible"] and begun}


def plan_of(round: Round, decision: SessionDecision) -> Plan:
    """Starts, stops and changes by which a decision differs from what runs, and why other jobs wait."""
    site, ours = round.load.site, round.load.ours
    starts, lowered, raised = list[Start](), list[Start](), list[Start]()
    stops, decided = dict[int, str](), set[int]()
    for one, record, row, nodes in assigned(round.jobs, decision):
        number = int(one.job)
        decided.add(number)
        running = ours.get(number)
        power_w = record["options"]["power_w"][row]
        settings = one.model_dump(include=set(SETTINGS), exclude_none=True)
        if running is not None and nodes == running.counts:
            if running.adjustable and settings != running.launch.settings:
                change = running.changed(Row(settings, power_w, 0.0), rates_of(record["options"])[-1])
                (lowered if change.launch.lowering else raised).append(change)
            continue
        if running is not None:
            same = one.gpus == running.launch.gpus
            stops[number] = "goes on elsewhere" if same else f"goes on with {count(one.gpus, 'GPU')}"
        job, said = site.jobs[number], dict[str, Any]()
        with alone(number, {}):
            said = said_of(job, round.load.options)
        launch = Launch(
            run=job.restarts + (running is not None),
            released_s=site.time_s,
            nodes=nodes,
            power_w=power_w,
            asked_nodes=sorted(job.needs.nodes),
            least_nodes=job.least_nodes if job.least_nodes > 1 else None,
            factor=round.load.factor(number),
            gpus=one.gpus,
            pool=one.pool,
            **settings,
            **round.load.options.tolerance(said, one.gpus, one.pool),
        )
        starts.append(Start(job, launch))
    # What was not told to the session stays as it is.
    decidable = {int(job["name"]) for job in round.jobs} - decided - round.left_out.keys()
    stops |= {number: "waits" for number in ours if number in decidable}
    reasons = round.left_out | {int(name): why for name, why in decision.reasons.items()}
    return Plan(starts, stops, reasons, lowered=lowered, raised=raised)


def queued(plan: Plan, round: Round, cap_w: Mapping[str, float]) -> dict[int, str]:
    """Return why jobs that were told to the session are not among the starts of a plan."""
    later = round.load.after(plan.stops, plan.begins)
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
    """Yield a job's needs by GPU count and pool, by the option of least watts; `sizes` are GPUs of a node."""
    table, least_w = record["options"], dict[tuple[int, str], float]()
    least, most = record.get("min_gpus") or 0, record.get("max_gpus") or inf
    for gpus, named, power_w in zip(table["gpus"], table["pool"], table["power_w"], strict=True):
        if least <= gpus <= most:
            least_w[gpus, named] = min(least_w.get((gpus, named), inf), power_w)
    for (gpus, named), power_w in least_w.items():
        idle_w = gpus * later.options.gpu_type(gpu_type_of(named)).idle_power_w
        for pool in record["pools"]:
            if named in (pool, gpu_type_of(pool)):
                each = min(gpus, sizes[pool])
                yield Need(pool, each, gpus // each, power_w - idle_w)
