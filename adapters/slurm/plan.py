"""A round: the cluster and the jobs as a session takes them, and what its decision asks of Slurm."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattsched.adapters.options import expand_models
from wattsched.adapters.slurm.inventory import SlurmNode, pool_of
from wattsched.adapters.slurm.options import (
    Launch,
    Ours,
    SiteOptions,
    fields_of,
    launch_of,
    marked,
    record_of,
)
from wattsched.adapters.slurm.reading import Site, SlurmJob
from wattsched.adapters.slurm.site import usable
from wattsched.adapters.tenants import Kept, left_for
from wattsched.inputs import echo
from wattsched.instances.errors import InputError
from wattsched.report.wording import count
from wattsched.session_decision import SessionDecision


@dataclass(frozen=True)
class Running:
    """A job of ours that has GPUs, or was released and is about to get them."""

    job: SlurmJob
    launch: Launch
    gpus: dict[str, list[int]]
    site: Site

    @property
    def site_nodes(self) -> list[SlurmNode]:
        """Its nodes."""
        return [self.site.nodes[node] for node in self.gpus]


@dataclass
class Load:
    """Who uses which GPU, and what everything draws by the model.

    A GPU of a job of ours draws its part of the option's watts; one of another job the most that its type
    draws; every other one, drained ones included, its idle watts; and every node its base watts.

    Attributes
    ----------
    ours : dict of int to Running
        Jobs that run or were released, by id.
    others : dict of str to set of int
        GPUs that no job of ours may have, by node.
    leaving : dict of int to Running
        Jobs of ours that were stopped and still have their GPUs.
    mislaid : dict of str to set of int
        GPUs that Slurm counts as used though no job has them, by node: it starts no job there. They idle.
    stranded : list of int
        Released jobs whose GPUs somebody else took.
    astray : list of int
        Jobs of ours that Slurm requeued, after a node failed, and would start again.
    """

    site: Site
    options: SiteOptions
    ours: dict[int, Running] = field(default_factory=dict)
    leaving: dict[int, Running] = field(default_factory=dict)
    others: dict[str, set[int]] = field(default_factory=dict)
    mislaid: dict[str, set[int]] = field(default_factory=dict)
    _used: dict[str, set[int]] = field(default_factory=dict)
    stranded: list[int] = field(default_factory=list)
    astray: list[int] = field(default_factory=list)

    def free(self, node: str) -> list[int]:
        """GPUs of a node that nobody uses; they may be drained."""
        used = self._used.get(node, ())
        return [gpu for gpu in range(self.site.nodes[node].gpus) if gpu not in used]

    def idle_w(self, node: SlurmNode) -> float:
        """Watts of one idle GPU of a node."""
        return self.options.gpu_type(node.gpu_type).idle_power_w

    def reserved_w(self, node: SlurmNode) -> float:
        """Watts on a node that no decision changes: others' jobs, and idle GPUs that take no job."""
        most_w = self.options.max_power_w(node.gpu_type)
        total_w = most_w * len(self.others.get(node.name, ()))
        for running in self.leaving.values():
            each_w = running.launch.power_w / max(1, running.launch.gpus)
            total_w += each_w * len(running.gpus.get(node.name, ()))
        idle = len(self.mislaid.get(node.name, ())) + (0 if node.takes_jobs else len(self.free(node.name)))
        return total_w + self.idle_w(node) * idle

    @property
    def power_w(self) -> float:
        """What everything draws."""
        total_w = sum(running.launch.power_w for running in self.ours.values())
        for node in self.site.nodes.values():
            total_w += self.options.base_power_w + self.reserved_w(node)
            total_w += self.idle_w(node) * len(self.free(node.name)) if node.takes_jobs else 0.0
        return total_w

    def added_w(self, launch: Launch) -> float:
        """What a start adds to what its GPUs draw when they are idle."""
        return launch.power_w - sum(
            count * self.idle_w(self.site.nodes[node]) for node, count in launch.nodes.items()
        )

    def has_room(self, launch: Launch) -> bool:
        """Whether the nodes of a start have its GPUs now."""
        nodes = self.site.nodes
        return all(
            node in nodes and nodes[node].takes_jobs and len(self.free(node)) >= count
            for node, count in launch.nodes.items()
        )

    def claim(self, gpus: Mapping[str, Iterable[int]]) -> None:
        """Count GPUs as used, by node."""
        for node, numbers in gpus.items():
            self._used.setdefault(node, set()).update(numbers)

    def drop(self, number: int) -> None:
        """Count a job as gone."""
        for node, numbers in self.ours.pop(number).gpus.items():
            self._used[node].difference_update(numbers)

    def disown(self, number: int) -> None:
        """Count a job of ours as one of others: its nodes are of different pools now, which no option has."""
        for node, numbers in self.ours.pop(number).gpus.items():
            self.others.setdefault(node, set()).update(numbers)

    def take(self, job: SlurmJob, launch: Launch) -> None:
        """Count a job that has been released."""
        gpus = {node: self.free(node)[:count] for node, count in launch.nodes.items()}
        self.claim(gpus)
        self.ours[job.id] = Running(job, launch, gpus, self.site)


def load_of(site: Site, options: SiteOptions, ours: Ours) -> Load:
    """Who uses which GPU.

    Numbers that Slurm does not tell yet, of jobs that start or end, are taken to be the first free ones.
    A released job whose GPUs somebody else took is `stranded`.
    """
    site = usable(site, options)
    load = Load(site, options)
    present = [job for job in site.jobs.values() if job.on_nodes]
    for job in present:
        numbers = {node: gpus for node, gpus in job.gpus.items() if gpus and node in site.nodes}
        if numbers:
            _count(load, ours, job, numbers)
    for job in present:
        if not any(job.gpus.values()):
            _count(load, ours, job, _unnumbered(load, job))
    for node in site.nodes.values():
        if mislaid := node.used & set(load.free(node.name)):
            load.mislaid[node.name] = set(mislaid)
            load.claim({node.name: mislaid})
    for job in site.jobs.values():
        if not job.pending or job.held or not ours.has(job):
            continue
        if (launch := launch_of(job)) is None:
            load.astray += [job.id] * (marked(job.admin_comment) is not None)
        elif load.has_room(launch):
            load.take(job, launch)
        else:
            load.stranded.append(job.id)
    return load


def _count(load: Load, ours: Ours, job: SlurmJob, gpus: dict[str, list[int]]) -> None:
    launch = launch_of(job) if ours.has(job) else None
    if job.running and launch is not None and launch.nodes != {n: len(held) for n, held in gpus.items()}:
        launch = None  # Slurm gave it other GPUs than we asked for
    load.claim(gpus)
    if launch is None:
        for node, numbers in gpus.items():
            load.others.setdefault(node, set()).update(numbers)
    elif job.running:
        load.ours[job.id] = Running(job, launch, gpus, load.site)
    else:
        load.leaving[job.id] = Running(job, launch, gpus, load.site)


def _unnumbered(load: Load, job: SlurmJob) -> dict[str, list[int]]:
    """GPUs of a job that starts or ends: Slurm tells its nodes, and we know how many on each."""
    launch, nodes = launch_of(job), [node for node in job.gpus if node in load.site.nodes]
    each = -(-job.request.gpus // max(1, len(job.gpus)))
    counts = {node: each if launch is None else launch.nodes.get(node, 0) for node in nodes}
    return {node: load.free(node)[:count] for node, count in counts.items() if count}


def cluster_of(
    load: Load, pools: Mapping[str, str], ahead_s: float, waiting: Iterable[SlurmJob]
) -> dict[str, Any]:
    """The cluster as an instance has it.

    Parameters
    ----------
    pools : mapping of str to str
        Of the nodes, as `pools_by_node` has them.
    ahead_s : float
        How far reservations are looked for at least. Slurm starts no job on a node whose reservation begins
        before the job's limit is over, so the longest limit of the waiting jobs counts.
    """
    site, options = load.site, load.options
    horizon_s = site.time_s + max([ahead_s, *(job.limit_s for job in waiting)])
    kept = {
        node
        for one in site.reservations
        if one.start_s <= horizon_s and one.end_s > site.time_s
        for node in one.nodes
    }
    nodes = []
    own: dict[str, set[int]] = {}
    for running in load.ours.values():
        for name, gpus in running.gpus.items():
            own.setdefault(name, set()).update(gpus)
    for node in site.nodes.values():
        shut = not node.takes_jobs or node.name in kept
        taken = set(range(node.gpus)) - set(load.free(node.name))
        mine = own.get(node.name, set())
        unavailable = set(range(node.gpus)) - mine if shut else taken - mine
        reserved_w = load.reserved_w(node)
        if shut and node.takes_jobs:
            reserved_w += load.idle_w(node) * len(load.free(node.name))
        row: dict[str, Any] = {"name": node.name, "gpu_type": node.gpu_type, "gpus": node.gpus}
        row |= {"base_power_w": options.base_power_w, "reserved_w": reserved_w}
        row |= {"unavailable": sorted(unavailable)} if unavailable else {}
        row |= {"parent": site.above[node.name]} if node.name in site.above else {}
        row |= {"pool": pools[node.name]}
        nodes.append(row)
    switches = [{"name": name, "level": "switch", "parent": parent} for name, parent in site.switches.items()]
    kinds = {node.gpu_type for node in site.nodes.values()}
    return {
        "name": "slurm",
        "gpu_types": {kind: options.gpu_type(kind).model_dump(exclude_unset=True) for kind in sorted(kinds)},
        "nodes": nodes,
        "groups": [{k: v for k, v in switch.items() if v is not None} for switch in switches],
        "power_domains": options.domains_there({*site.nodes, *site.switches}),
        "capacity": "nodes",
    }


def pools_by_node(site: Site, options: SiteOptions) -> dict[str, str]:
    """Pool of each node; nodes behind different power caps are not interchangeable."""
    feeds = {
        node: [d.name for d in options.power_domains if {node, *_switches_above(site, node)} & set(d.members)]
        for node in site.nodes
    }
    return {node.name: "/".join([pool_of(node), *feeds[node.name]]) for node in site.nodes.values()}


def _switches_above(site: Site, node: str) -> list[str]:
    found, at = list[str](), site.above.get(node)
    while at is not None and at not in found:
        found.append(at)
        at = site.switches.get(at)
    return found


@dataclass(frozen=True)
class Round:
    """What a session is told, and which jobs that wait it is not told of, and why.

    Attributes
    ----------
    kept : list of Kept
        What jobs of tenants have that no decision stops.
    """

    load: Load
    cluster: dict[str, Any]
    jobs: list[dict[str, Any]]
    left_out: dict[int, str]
    kept: list[Kept]

    def tenants(self, round_s: float) -> dict[str, dict[str, Any]]:
        """What is left of the quotas of accounts, in a round of so many seconds."""
        options = self.load.options
        return left_for(options.tenants, self.kept, round_s, options.carbon_g_per_kwh)


def round_of(load: Load, ours: Ours, ahead_s: float) -> Round:
    """The round as a session takes it.

    Jobs of ours that no pool has any more count as jobs of others in `load` from here on.

    Raises
    ------
    InputError
        Where the cluster has no GPUs.
    """
    site, options, left_out = load.site, load.options, dict[int, str]()
    if not site.nodes:
        raise InputError(["no node of the cluster has GPUs"])
    waiting = [job for job in site.jobs.values() if job.pending and job.held and ours.has(job)]
    pools = pools_by_node(site, options)
    for number, running in list(load.ours.items()):
        if len({pools[node] for node in running.gpus}) > 1:
            load.disown(number)
    cluster = cluster_of(load, pools, ahead_s, waiting)
    fields = dict[int, dict[str, Any]]()
    for job in (*(running.job for running in load.ours.values()), *waiting):
        try:
            fields[job.id] = _fields(job, load, pools)
        except InputError as error:
            left_out[job.id] = "; ".join(error.faults)
    left_out |= expand_models(fields, cluster, options)
    jobs = [_running_record(one, fields.get(one.job.id), pools) for one in load.ours.values()]
    for job in waiting:
        try:
            if job.id in fields:
                jobs.append(record_of(fields[job.id], job, site, None))
        except InputError as error:
            left_out[job.id] = "; ".join(error.faults)
    reasons = {job.id: left_out[job.id] for job in waiting if job.id in left_out}
    return Round(load, cluster, jobs, reasons, _under_quotas(jobs, load))


def _under_quotas(jobs: list[dict[str, Any]], load: Load) -> list[Kept]:
    """Make jobs those of the tenants that their accounts are; what is used by jobs that cannot be stopped."""
    kept = []
    for record in jobs:
        number = int(record["name"])
        account = load.site.jobs[number].account
        if account not in load.options.tenants:
            continue
        if record["preemptible"] or "current" not in record:
            record["tenant"] = account
        else:
            kept.append(Kept(account, record["current"]["gpus"], load.ours[number].launch.power_w))
    return kept


def _fields(job: SlurmJob, load: Load, pools: Mapping[str, str]) -> dict[str, Any]:
    site = load.site
    if job.odd:
        raise InputError([job.odd])
    if job.pending and (shut := [name for name in job.partitions if name in site.closed]):
        raise InputError([f"the partition '{shut[0]}' is {site.closed[shut[0]]}"])
    if job.pending and not job.restarts and job.eligible_s > site.time_s:
        raise InputError(["is not to begin yet (--begin)"])
    own = {pools[node.name] for node in site.nodes.values() if set(node.partitions) & set(job.partitions)}
    return fields_of(job, site, load.options, sorted(own))


def _running_record(
    running: Running, fields: dict[str, Any] | None, pools: Mapping[str, str]
) -> dict[str, Any]:
    """A job of ours that has GPUs; one that cannot be understood any more stays as it is, or stops."""
    job, nodes = running.job, running.site_nodes
    # The pools may have other names since it was released: partitions and power caps change.
    pool = pools[next(iter(running.gpus))]
    launch = running.launch.model_copy(update={"pool": pool})
    fields = fields or {"name": str(job.id), "options": {}, "preemptible": True}
    fields = {**fields, "pools": sorted({*fields.get("pools", ()), pool})}
    record = record_of(fields, job, running.site, launch)
    current = {"gpus": launch.gpus, "pool": pool, "nodes": running.gpus}
    # What starts is let alone, and so is what a drained node has left.
    begun = job.running and all(node.takes_jobs for node in nodes)
    return {**record, "current": current | launch.settings, "preemptible": record["preemptible"] and begun}


@dataclass(frozen=True)
class Start:
    """A job to be released."""

    job: SlurmJob
    launch: Launch


@dataclass(frozen=True)
class Plan:
    """What a decision asks of Slurm.

    Attributes
    ----------
    starts : list of Start
        Those whose GPUs or watts others have to leave first are among them.
    stops : dict of int to str
        Jobs to be requeued and held, and why.
    reasons : dict of int to str
        Why jobs wait, where there is more to say than that others go first.
    """

    starts: list[Start]
    stops: dict[int, str]
    reasons: dict[int, str]


def plan_of(round: Round, decision: SessionDecision) -> Plan:
    """Compare a decision with what runs."""
    site, ours = round.load.site, round.load.ours
    tables = {job["name"]: job["options"] for job in round.jobs}
    option = dict(zip(decision.ids, decision.option.tolist(), strict=True))
    starts, stops, decided = list[Start](), dict[int, str](), set[int]()
    for row in decision.assignments:
        number, nodes = int(row.job), {node: len(gpus) for node, gpus in row.nodes.items()}
        decided.add(number)
        running = ours.get(number)
        if running is not None and nodes == {node: len(gpus) for node, gpus in running.gpus.items()}:
            continue
        if running is not None:
            same = row.gpus == running.launch.gpus
            stops[number] = "goes on elsewhere" if same else f"goes on with {count(row.gpus, 'GPU')}"
        job = site.jobs[number]
        launch = Launch(
            run=job.restarts + (running is not None),
            released_s=site.time_s,
            nodes=nodes,
            power_w=tables[row.job]["power_w"][option[row.job]],
            **row.model_dump(include={"gpus", "pool", "frequency_mhz", "power_limit_w", "batch_size"}),
        )
        starts.append(Start(job, launch))
    stops |= {number: "waits" for number in ours if number not in decided}
    return Plan(starts, stops, round.left_out | {int(name): why for name, why in decision.reasons.items()})


def stops_to_fit(load: Load, cap_w: float) -> dict[int, str]:
    """Jobs to stop so that the draw is within a cap without a decision: those that began last go first."""
    excess_w = load.power_w - cap_w
    stops: dict[int, str] = {}
    for running in sorted(load.ours.values(), key=lambda one: (-one.job.start_s, -one.job.id)):
        if excess_w <= 0:
            break
        if running.job.running and running.job.requeue:
            stops[running.job.id] = echo(f"{excess_w:,.0f} W too many are drawn", "")
            excess_w -= load.added_w(running.launch)
    return stops
