"""Who uses which GPU of a Slurm cluster, and what everything draws by the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from wattsched.adapters.overdraw import Drawing, Stoppable
from wattsched.adapters.slurm.inventory import SlurmNode
from wattsched.adapters.slurm.options import Launch, Ours, SiteOptions, launch_of
from wattsched.adapters.slurm.reading import Site, SlurmJob, marked
from wattsched.adapters.slurm.site import behind, usable
from wattsched.topology.cluster import PowerDomain


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
class Load(Drawing):
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
    _released: dict[str, list[tuple[float, float]]] = field(default_factory=dict)

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
    def running(self) -> int:
        """Jobs of ours on GPUs."""
        return len(self.ours)

    @property
    def power_w(self) -> float:
        """What everything draws."""
        total_w = sum(running.launch.power_w for running in self.ours.values())
        return total_w + sum(map(self._unled_w, self.site.nodes.values()))

    def domain_w(self, domain: PowerDomain) -> float:
        """What is drawn behind a power domain: of a job of ours the part of its GPUs that are there."""
        inside = behind(self.site, domain)
        total_w = domain.reserved_w + sum(self._unled_w(self.site.nodes[node]) for node in inside)
        for running in self.ours.values():
            gpus = sum(len(running.gpus.get(node, ())) for node in inside)
            total_w += running.launch.power_w * gpus / running.launch.gpus
        return total_w

    @property
    def drawn_w(self) -> dict[str, float]:
        """What is drawn under each cap; that of the site has no name."""
        node_w = {name: self._unled_w(node) for name, node in self.site.nodes.items()}
        for running in self.ours.values():
            for node, gpus in running.gpus.items():
                node_w[node] += running.launch.power_w * len(gpus) / running.launch.gpus
        found = self.by_cap(node_w)
        for domain in self.options.power_domains:
            found[domain.name] += domain.reserved_w
        return found | {"": self.power_w}

    @cached_property
    def under(self) -> dict[str, list[str]]:
        """Nodes that draw through each power domain."""
        return {domain.name: behind(self.site, domain) for domain in self.options.power_domains}

    @property
    def foreign_w(self) -> dict[str, float]:
        """What GPUs of other people's jobs draw beyond idling, under each cap."""
        nodes = self.site.nodes
        most_w = {name: self.options.max_power_w(nodes[name].gpu_type) for name in self.others}
        return self.by_cap(
            {
                name: len(gpus) * (most_w[name] - self.idle_w(nodes[name]))
                for name, gpus in self.others.items()
            }
        )

    @property
    def stoppable(self) -> list[Stoppable]:
        """Jobs of ours that Slurm may requeue, or has not started yet."""
        return [
            Stoppable(
                number,
                self.by_cap(self.added_by_node(one.launch)),
                one.launch.gpus,
                max(0.0, self.site.time_s - one.job.start_s) if one.job.running else 0.0,
            )
            for number, one in self.ours.items()
            if one.job.pending or (one.job.running and one.job.requeue)
        ]

    @property
    def begun(self) -> Load:
        """The same when what is leaving has left; its GPUs take no job yet."""
        taken = {node: set(gpus) for node, gpus in self.mislaid.items()}
        for one in self.leaving.values():
            for node, gpus in one.gpus.items():
                taken.setdefault(node, set()).update(gpus)
        return replace(self, leaving={}, mislaid=taken)

    def _unled_w(self, node: SlurmNode) -> float:
        """What a node draws without the jobs of ours."""
        idle_w = self.idle_w(node) * len(self.free(node.name)) if node.takes_jobs else 0.0
        return self.options.base_power_w + self.reserved_w(node) + idle_w

    def after(self, stops: Iterable[int], starts: Iterable[tuple[SlurmJob, Launch]] = ()) -> Load:
        """The load when jobs have stopped, what is leaving has left, and others have started."""
        later = replace(
            self,
            ours=dict(self.ours),
            leaving={},
            _used={node: set(used) for node, used in self._used.items()},
            _released={node: list(asked) for node, asked in self._released.items()},
        )
        for one in self.leaving.values():
            later.unclaim(one.gpus)
        for number in stops:
            later.drop(number)
        for job, launch in starts:
            later.take(job, launch)
        return later

    def added_w(self, launch: Launch) -> float:
        """What a start adds to what its GPUs draw when they are idle."""
        return sum(self.added_by_node(launch).values())

    def added_by_node(self, launch: Launch) -> dict[str, float]:
        """The same by node."""
        each_w, nodes = launch.power_w / launch.gpus, self.site.nodes
        return {node: count * (each_w - self.idle_w(nodes[node])) for node, count in launch.nodes.items()}

    def has_room(self, launch: Launch) -> bool:
        """Whether the nodes of a start have its GPUs now."""
        nodes = self.site.nodes
        return all(
            node in nodes and nodes[node].takes_jobs and len(self.free(node)) >= count
            for node, count in launch.nodes.items()
        )

    def lacks(self, job: SlurmJob, launch: Launch) -> str:
        """What the nodes of a start do not have for it now, besides GPUs; or nothing."""
        for name, gpus in launch.nodes.items():
            node, count = self.site.nodes[name], len(launch.nodes)
            cpus = node.free_cpus - sum(cpus for cpus, _ in self._released.get(name, ()))
            memory_mib = node.free_memory_mib - sum(one for _, one in self._released.get(name, ()))
            if job.needs.cpus_on(node, count, gpus) > cpus:
                return f"CPUs of {name}"
            if job.needs.memory_mib_on(node, count, gpus) > memory_mib:
                return f"memory of {name}"
        return ""

    def claim(self, gpus: Mapping[str, Iterable[int]]) -> None:
        """Count GPUs as used, by node."""
        for node, numbers in gpus.items():
            self._used.setdefault(node, set()).update(numbers)

    def drop(self, number: int) -> None:
        """Count a job as gone."""
        self.unclaim(self.ours.pop(number).gpus)

    def unclaim(self, gpus: Mapping[str, Iterable[int]]) -> None:
        """Count GPUs as free, by node."""
        for node, numbers in gpus.items():
            self._used[node].difference_update(numbers)

    def take(self, job: SlurmJob, launch: Launch) -> None:
        """Count a job that has been released."""
        gpus = {node: self.free(node)[:count] for node, count in launch.nodes.items()}
        self.claim(gpus)
        self.ours[job.id] = Running(job, launch, gpus, self.site)
        for name, count in launch.nodes.items():
            node, nodes = self.site.nodes[name], len(launch.nodes)
            asked = job.needs.cpus_on(node, nodes, count), job.needs.memory_mib_on(node, nodes, count)
            self._released.setdefault(name, []).append(asked)


def load_of(site: Site, options: SiteOptions, ours: Ours) -> Load:
    """Who uses which GPU.

    Numbers that Slurm does not tell yet, of jobs that start or end, are taken to be the first free ones.
    A released job whose GPUs somebody else took is `stranded`.
    """
    site = usable(site, options)
    load = Load(site, options)
    present = [job for job in site.jobs.values() if job.on_nodes]
    for job in present:
        # A job has no more GPUs of a node than there are, whatever its record says.
        numbers = {
            node: own
            for node, gpus in job.gpus.items()
            if node in site.nodes and (own := [gpu for gpu in gpus if gpu < site.nodes[node].gpus])
        }
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
            said = marked(job.admin_comment)
            if isinstance(said, dict) and "run" in said:
                load.astray.append(job.id)
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
