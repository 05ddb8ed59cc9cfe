"""A round: the cluster and the jobs as a session takes them, and what its decision asks of Kubernetes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

from wattsched.adapters.kubernetes.launches import Launch
from wattsched.adapters.kubernetes.load import Binding, Load, Start
from wattsched.adapters.kubernetes.options import (
    KubeJob,
    PoolView,
    complete,
    fields_of,
    groups_above,
    hosts_of,
    pools_of_site,
    possible,
    said_by,
)
from wattsched.adapters.kubernetes.reading import Site
from wattsched.adapters.kubernetes.room import Room, claim_of, with_room
from wattsched.adapters.options import NOT_TOLD, Expansion, under_way
from wattsched.adapters.plan import Kept, Round, assigned, cluster_row
from wattsched.adapters.pools import Claim
from wattsched.adapters.quarantine import Clock, alone, in_turn
from wattsched.adapters.rounds import Plan
from wattsched.instances.errors import InputError
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.sessions.session_decision import SessionDecision


def round_of(load: Load, aside: Mapping[str, str] | None = None, clock: Clock | None = None) -> Round:
    """The round as a session takes it, without jobs that are put aside or that nobody had time to look at."""
    if not load.site.nodes:
        raise InputError(["no node of the cluster has GPUs (nvidia.com/gpu)"])
    left_out, clock = load.stuck | load.surplus | dict(aside or {}), clock or Clock()
    users = {name: job.pods[0].namespace for name, job in load.waiting.items() if name not in left_out}
    in_order = in_turn(users, load.site.time_s)
    whole, claims = dict[str, KubeJob](), dict[str, Claim]()
    # Rooms on the nodes that a job may have, kept as many jobs may have the same.
    empty, later = (cache(partial(Room, of)) for of in (load.emptied(), load.without(load.leaving)))
    for name in in_order:
        with alone(name, left_out):
            clock.require_time()
            job = complete(load.waiting[name])
            said_by(job.pods[0], load.options, load.pools.kind)  # no pool is divided for one in error
            hosts = hosts_of(job, load.site.nodes.values())
            claims[name], whole[name] = claim_of(job, hosts, empty(hosts), later(hosts)), job
    load.pools = _divided(load, claims.values())
    records = [record for job in load.ours.values() if (record := _running_record(job, load))]
    cluster = cluster_of(load, records)
    stoppable = [pod for record in records for pod in load.ours[record["name"]].pods]
    now = Room(load.without([*load.leaving, *stoppable]))
    expansion = Expansion(cluster, load.options, clock)
    found = dict[str, dict[str, Any]]()
    for name in (name for name in in_order if name in whole):
        with alone(name, left_out):
            text = f"its gang has its {len(whole[name].pods)} pods without it"
            left_out |= {pod.key: text for pod in load.waiting[name].oldest[len(whole[name].pods) :]}
            fields = _fields(whole[name], load, claims[name])
            said = expansion.with_table(fields, users[name], load.factor(name))
            table = possible(whole[name], said["options"], said["pools"], load.pools)
            record = {field: value for field, value in said.items() if field not in NOT_TOLD}
            found[name] = {**record, "options": with_room(whole[name], table, empty(claims[name].hosts), now)}
    records += [found[name] for name in users if name in found]
    return Round(load, cluster, records, left_out, _under_quotas(records, whole, load), clock)


def _under_quotas(records: list[dict[str, Any]], waiting: Mapping[str, KubeJob], load: Load) -> list[Kept]:
    """Put its tenant into each job's record; return what pods that cannot be stopped use of quotas."""
    for record in records:
        job = waiting.get(record["name"]) or load.ours[record["name"]]
        if (tenant := load.options.tenant_of(job.pods[0])) is not None:
            record["tenant"] = tenant
    names = {record["name"] for record in records}
    staying = [pod for name, job in load.ours.items() if name not in names for pod in job.pods]
    bound = [(pod, load.launches[pod.uid].power_w) for pod in staying]
    bound += [(one.pod, one.launch.power_w) for one in (*load.coming, *load.due)]
    used = ((load.options.tenant_of(pod), pod.gpus, power_w) for pod, power_w in bound)
    return [Kept(tenant, gpus, power_w) for tenant, gpus, power_w in used if tenant is not None]


def _divided(load: Load, claims: Iterable[Claim]) -> PoolView:
    """Pools of the nodes, divided by the `claims` of jobs that can run."""
    later = load.without(load.leaving)
    free = {node.name: later.free(node) for node in load.site.nodes.values() if node.ready}
    together = [frozenset(pod.node for pod in job.pods) for job in load.ours.values()]
    return pools_of_site(load.site, load.options, claims, together, free)


def _fields(job: KubeJob, load: Load, claim: Claim) -> dict[str, Any]:
    """Fields of a waiting job in the pools of which its claim has all nodes; an `InputError` without any."""
    if not load.options.claims_on_any_node and any(pod.volume_claims for pod in job.pods):
        raise InputError(["has volumes of persistent volume claims; see claims_on_any_node"])
    pools = load.pools.within(claim.hosts)
    if not pools:
        text = "of the nodes that it may have, jobs of several nodes that run or came before it have some"
        raise InputError([f"{text}: waits for these"])
    return fields_of(job, load.options, load.pools.kind, sorted(pools))


def cluster_of(load: Load, records: list[dict[str, Any]]) -> dict[str, Any]:
    """The cluster as an instance has it.

    Kubernetes does not tell which of a node's GPUs a pod has, so numbers are given here: first those that
    take no job, then those of jobs that may be stopped, whose records get them.
    """
    later, own, own_w = load.without(load.leaving), Counter[str](), Counter[str]()
    for record in records:
        for node, numbers in record["current"]["nodes"].items():
            gpus = len(numbers)
            each_w = record["options"]["power_w"][0] / record["options"]["gpus"][0]
            own[node] += gpus
            own_w[node] += gpus * (each_w - load.idle_w(node))
    nodes, groups = list[dict[str, Any]](), dict[str, str | None]()
    next_free = dict[str, int]()
    for node in load.site.nodes.values():
        # GPUs that take no job: on a ready node those that are broken or stay in use.
        fixed = node.broken + later.used[node.name] - own[node.name]
        shut = node.gpus - own[node.name] if not node.ready else min(fixed, node.gpus - own[node.name])
        idle_w, base_w = load.idle_w(node.name), load.options.server_w(load.options.types_of(node))
        others_w = later.node_w[node.name] - base_w - own_w[node.name]
        row: dict[str, Any] = {
            "name": node.name,
            "gpu_type": load.pools.kind[load.pools.of_node[node.name]],
            "gpus": node.gpus,
            "base_power_w": base_w,
            "reserved_w": max(0.0, round(others_w - idle_w * (node.gpus - shut), 6)),
            "pool": load.pools.of_node[node.name],
        }
        row |= {"unavailable": list(range(shut))} if shut else {}
        if above := groups_above(node, load.options):
            row["parent"] = above[-1]
            groups |= dict(zip(above, [None, *above], strict=False))
        next_free[node.name] = shut
        nodes.append(row)
    for record in records:
        for node, numbers in record["current"]["nodes"].items():
            begin = next_free[node]
            next_free[node] += len(numbers)
            record["current"]["nodes"][node] = list(range(begin, next_free[node]))
    return cluster_row("kubernetes", load.options, set(load.pools.kind.values()), nodes, groups, "group")


def _running_record(job: KubeJob, load: Load) -> dict[str, Any] | None:
    """A job of ours that may be stopped, as a session takes it; None for others, which count as load."""
    on_nodes = Counter(pod.node for pod in job.pods)
    pools = {load.pools.of_node[node] for node in on_nodes}
    ready = all(load.site.nodes[node].ready for node in on_nodes)
    if not (job.preemptible and ready and len(pools) == 1 and _regular(job, on_nodes, load.site)):
        return None
    (pool,) = pools
    launch = load.launches[job.pods[0].uid]
    said = dict[str, Any]()
    # What cannot be understood any more is what it was launched as.
    for believe in (True, False):
        with alone(job.name, {}):
            said = said or fields_of(job, load.options, load.pools.kind, [pool], believe=believe)
    power_w = sum(load.launches[pod.uid].power_w for pod in job.pods)
    table = {"gpus": [job.gpus], "pool": [pool], "power_w": [power_w], "rate": [launch.rate]}
    table |= {name: [value] for name, value in launch.settings.items()}
    each, settings = job.pods[0].gpus, launch.settings
    nodes = {node: list(range(each * pods)) for node, pods in on_nodes.items()}
    record = {name: value for name, value in said.items() if name not in NOT_TOLD}
    record |= {"options": table, "pools": [pool]}
    record |= {"current": {"gpus": job.gpus, "pool": pool, "nodes": nodes, **settings}}
    ran_s = max(0.0, load.site.time_s - job.begun_s)
    return under_way(record, ran_s, launch.rate * ran_s)


def _regular(job: KubeJob, on_nodes: Mapping[str, int], site: Site) -> bool:
    """True if a job is complete, and lies as the engine would place it."""
    first = job.pods[0]
    return not (first.gang and len(job.pods) != first.gang_size) and not _scattered(job, on_nodes, site)


def _scattered(job: KubeJob, on_nodes: Mapping[str, int], site: Site) -> bool:
    """True if a job has neither one node nor whole ones and a part of one."""
    parts = [node for node, pods in on_nodes.items() if pods * job.pods[0].gpus < site.nodes[node].gpus]
    return len(on_nodes) > 1 and len(parts) > 1


def not_for_others(load: Load) -> dict[str, str]:
    """Return the jobs that may be stopped and that decisions cannot stop for others, and why."""
    jobs = [job for job in load.ours.values() if job.preemptible]
    text = "it is on parts of several nodes, and so is evicted for the cap, not for others"
    found = [job for job in jobs if _scattered(job, Counter(pod.node for pod in job.pods), load.site)]
    return {job.name: text for job in found}


def plan_of(round: Round, decision: SessionDecision) -> Plan:
    """Starts and stops by which a decision differs from what runs, and why other jobs wait."""
    load = round.load
    starts, moved, decided = list[Start](), list[str](), set[str]()
    # Parts of gangs on nodes may be stopped to begin together with the others.
    text = "has no room for all of its gang"
    stops = {name: text for name in load.stuck if load.ours[name].preemptible}
    for one, record, row, nodes in assigned(round.jobs, decision):
        decided.add(one.job)
        held = record.get("current")
        if held is None:
            starts.append(_start(complete(load.waiting[one.job]), nodes, record["options"], row, load))
        elif nodes != {node: len(gpus) for node, gpus in held["nodes"].items()}:
            moved.append(one.job)
    running = [record["name"] for record in round.jobs if "current" in record]
    stops |= {name: "is to wait" for name in running if name not in decided}
    stops = {name: why for name, why in stops.items() if name not in round.guarded}
    return Plan(starts, stops, round.left_out | dict(decision.reasons), moved)


def _start(job: KubeJob, nodes: Mapping[str, int], table: Mapping[str, Any], row: int, load: Load) -> Start:
    """Start of a job's pods on nodes with so many GPUs each, by an option: a row of its table."""
    each = job.pods[0].gpus
    # What pods leave of a node is taken, and idle: no pod draws its watts.
    gaps = table["gpus"][row] - job.gpus
    power_w = table["power_w"][row] - gaps * load.pools.idle_w[table["pool"][row]]
    rate = table["rate"][row] if "rate" in table else 1.0 / table["completion_s"][row]
    settings = {name: table[name][row] for name in SETTINGS if name in table}
    counts = dict[str, int]()
    for node, gpus in sorted(nodes.items(), key=lambda pair: (-pair[1], pair[0])):
        counts[node] = min(gpus // each, len(job.pods) - sum(counts.values()))
    places = [node for node, pods in counts.items() for _ in range(pods)]
    gang = {node: pods for node, pods in counts.items() if pods} if job.pods[0].gang else None
    alike = settings | {"gpus": each, "power_w": power_w / len(job.pods), "rate": rate, "gang": gang}
    alike["factor"] = load.factor(job.name)
    pairs = zip(job.pods, places, strict=True)
    return Start(job, tuple(Binding(pod, node, Launch(uid=pod.uid, **alike)) for pod, node in pairs))
