"""Use of each GPU of a Slurm cluster, and what everything draws by the model."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from wattsched.adapters.agents import reports_in
from wattsched.adapters.correction import Correction, Draw
from wattsched.adapters.overdraw import Drawing, Stoppable, over_w
from wattsched.adapters.rounds import Reason
from wattsched.adapters.slurm.inventory import SlurmNode
from wattsched.adapters.slurm.options import Launch, Ours, SiteOptions, is_launched, launch_of
from wattsched.adapters.slurm.reading import Site, SlurmJob
from wattsched.adapters.slurm.running import Running, Start
from wattsched.instances.gpu_parts import host_of


@dataclass
class Load(Drawing):
    """Use of GPUs by jobs, and what everything draws by the model.

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
    astray : dict of int to str
        Released jobs that are to be held again, and why: somebody else took their GPUs, or Slurm requeued
        them, after a node failed, and would start them again.
    """

    site: Site
    options: SiteOptions
    ours: dict[int, Running] = field(default_factory=dict)
    leaving: dict[int, Running] = field(default_factory=dict)
    others: dict[str, set[int]] = field(default_factory=dict)
    mislaid: dict[str, set[int]] = field(default_factory=dict)
    # GPUs of each node that somebody uses.
    _used: dict[str, set[int]] = field(default_factory=dict)
    astray: dict[int, str] = field(default_factory=dict)
    # CPUs and MiB of hosts that Slurm tells as free, as it has not started the released jobs that take them.
    _taken: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    _pending: list[int] = field(default_factory=list)
    correction: Correction | None = None

    @property
    def draws(self) -> dict[str, Draw]:
        """Return what our jobs draw, by name, without those that are paused."""
        return {
            str(number): Draw(one.node_w, begun_s=one.since_s, run=one.job.restarts)
            for number, one in self.ours.items()
            if not one.paused
        }

    def corrected(self, factor: Callable[[str], float]) -> Load:
        """Return the load in which our jobs draw `factor` of their names times the watts of the model."""
        parts = [
            {
                number: replace(one, launch=one.launch.corrected(factor(str(number))))
                for number, one in of.items()
            }
            for of in (self.ours, self.leaving)
        ]
        return replace(self, ours=parts[0], leaving=parts[1])

    def free(self, node: str) -> list[int]:
        """GPUs of a node that nobody uses; they may be drained."""
        used = self._used.get(node, ())
        return [gpu for gpu in range(self.site.nodes[node].gpus) if gpu not in used]

    def idle_w(self, node: SlurmNode) -> float:
        """Watts of one idle GPU of a node."""
        return self.options.gpu_type(node.gpu_type).idle_power_w

    def _others_w(self, node: SlurmNode) -> float:
        """Watts of other people's jobs on a node: the most that their GPUs can draw."""
        return self.options.max_power_w(node.gpu_type) * len(self.others.get(node.name, ()))

    def reserved_w(self, node: SlurmNode, *, closed: bool) -> float:
        """Watts on a node that no decision changes: of other or leaving jobs; if `closed`, of idle GPUs."""
        total_w = self._others_w(node)
        total_w += sum(one.node_w.get(node.name, 0.0) for one in self.leaving.values())
        idle = len(self.mislaid.get(node.name, ())) + (len(self.free(node.name)) if closed else 0)
        return total_w + self.idle_w(node) * idle

    @property
    def running(self) -> int:
        """Jobs of ours on GPUs."""
        return len(self.ours)

    @property
    def waiting(self) -> list[int]:
        """Jobs of ours that wait."""
        return [number for number in self._pending if number not in self.ours]

    @property
    def node_w(self) -> dict[str, float]:
        """Return the watts that each node draws."""
        nodes, server_w = self.site.nodes, self.options.server_w
        drawn_w = {
            name: server_w(node.kinds) + self.reserved_w(node, closed=True) for name, node in nodes.items()
        }
        for running in self.ours.values():
            for node, watts in running.node_w.items():
                drawn_w[node] += watts
        return drawn_w

    @cached_property
    def under(self) -> dict[str, list[str]]:
        """Nodes that draw through each power domain."""
        above = self.site.switches_above
        return {
            domain.name: [node for node in self.site.nodes if {node, *above(node)} & {*domain.members}]
            for domain in self.options.power_domains
        }

    @property
    def foreign_node_w(self) -> dict[str, float]:
        """Return what GPUs of other people's jobs draw beyond idling, by node."""
        nodes = self.site.nodes
        return {
            name: self._others_w(nodes[name]) - len(gpus) * self.idle_w(nodes[name])
            for name, gpus in self.others.items()
        }

    @property
    def stoppable(self) -> list[Stoppable]:
        """Jobs of ours that Slurm may requeue, or has not started yet."""
        return [
            Stoppable(
                number,
                self.by_cap(self.added_by_node(one)),
                one.launch.gpus,
                one.job.ran_s(self.site.time_s),
            )
            for number, one in self.ours.items()
            if one.job.pending or one.job.requeue
        ]

    @property
    def pausable(self) -> list[Stoppable]:
        """Running jobs of ours that may be paused, and what that frees."""
        return [
            Stoppable(number, self.pause_w(one), one.launch.gpus, 1.0)
            for number, one in self.ours.items()
            if one.job.running and one.launch.paused_w is not None
        ]

    def pause_w(self, one: Running) -> dict[str, float]:
        """Watts under each cap that a job draws less while it is paused."""
        running = replace(one, job=one.resume().job)
        each_w = (running.power_w - (one.launch.paused_w or 0.0)) / one.launch.gpus
        return self.by_cap({node: each_w * gpus for node, gpus in one.counts.items()})

    @property
    def paused(self) -> list[Running]:
        """Jobs of ours that we have suspended, the longest paused first."""
        return sorted(
            (one for one in self.ours.values() if one.paused), key=lambda one: one.launch.paused_s or 0.0
        )

    def waits_w(self, caps: Mapping[str, float]) -> dict[str, float]:
        """Watts under each cap that paused jobs wait for, where they could have them without other jobs."""
        needs = [*map(self.pause_w, self.paused)]
        alone_w = self.after(self.ours).drawn_w if needs else {}
        fitting = [one for one in needs if not over_w({n: alone_w[n] + w for n, w in one.items()}, caps)]
        return {cap: sum(need[cap] for need in fitting) for cap in caps}

    @property
    def reasons(self) -> dict[int, str]:
        """Return why paused jobs do not go on."""
        why = "is paused, and goes on when the caps leave {:,.0f} W more"
        return {one.job.id: Reason(why.format(self.pause_w(one)[""]), "paused") for one in self.paused}

    @property
    def without_leaving(self) -> Load:
        """Load once the leaving jobs are gone: their GPUs idle, though Slurm starts no job there yet."""
        mislaid = {node: set(gpus) for node, gpus in self.mislaid.items()}
        for job in self.leaving.values():
            for node, gpus in job.gpus.items():
                mislaid.setdefault(node, set()).update(gpus)
        return replace(self, leaving={}, mislaid=mislaid)

    def after(self, stops: Iterable[int], starts: Iterable[Start] = ()) -> Load:
        """Load after some jobs have stopped, those that are leaving are gone, and others have started."""
        later = replace(self.beside(()), leaving={})
        for one in self.leaving.values():
            later.unclaim(one.gpus)
        for number in stops:
            later.drop(number)
        for start in starts:
            later.take(start.job, start.launch)
        return later

    def beside(self, starts: Iterable[Start]) -> Load:
        """Return the load with starts beside all that runs or is leaving."""
        then = replace(
            self,
            ours=dict(self.ours),
            _used={node: set(used) for node, used in self._used.items()},
            _taken={host: list(amounts) for host, amounts in self._taken.items()},
        )
        for start in starts:
            then.take(start.job, start.launch)
        return then

    def added_by_node(self, one: Running) -> dict[str, float]:
        """Return what a job adds on each node to what its GPUs draw when they are idle."""
        each_w, nodes = one.power_w / one.launch.gpus, self.site.nodes
        return {node: count * (each_w - self.idle_w(nodes[node])) for node, count in one.launch.nodes.items()}

    def has_room(self, launch: Launch) -> bool:
        """True if the nodes of a start have its GPUs now."""
        nodes = self.site.nodes
        return all(
            node in nodes and nodes[node].takes_jobs and len(self.free(node)) >= count
            for node, count in launch.nodes.items()
        )

    def lacks(self, job: SlurmJob, launch: Launch) -> str:
        """Return what the nodes of a start lack for it now, besides GPUs; '' where they lack nothing."""
        for name, gpus in launch.nodes.items():
            node, nodes = self.site.nodes[name], len(launch.nodes)
            taken = self._taken.get(node.host, ())
            free_cpus = node.free_cpus - sum(cpus for cpus, _ in taken)
            free_mib = node.free_memory_mib - sum(mib for _, mib in taken)
            if job.needs.cpus_on(node, nodes, gpus) > free_cpus:
                return f"CPUs of {name}"
            if job.needs.memory_mib_on(node, nodes, gpus) > free_mib:
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
        """Count a job that has been released, or a running one with its new settings and their watts."""
        if (running := self.ours.get(job.id)) is not None:
            # Of a pause nothing follows for its settings.
            sure = {} if job.suspended or running.paused else {"lowering": None}
            self.ours[job.id] = replace(running, job=job, launch=launch.model_copy(update=sure))
            return
        gpus = {node: self.free(node)[:count] for node, count in launch.nodes.items()}
        self.claim(gpus)
        self.ours[job.id] = Running(job, launch, gpus, self.site)
        for name, count in launch.nodes.items():
            node, nodes = self.site.nodes[name], len(launch.nodes)
            amounts = job.needs.cpus_on(node, nodes, count), job.needs.memory_mib_on(node, nodes, count)
            self._taken.setdefault(node.host, []).append(amounts)


def usable(site: Site, options: SiteOptions) -> Site:
    """The site as rounds can use it, with notes on the rest.

    Nodes with GPUs whose watts are not known get no jobs; they count as `SiteOptions.gpu_type` says.
    """
    nodes, notes = dict(site.nodes), list[str]()
    kinds = {name: node.gpu_type for name, node in nodes.items()}
    for names, why in options.unknown(kinds, "job", "gpu_types of the site's file"):
        nodes |= {name: replace(nodes[name], takes_jobs=False) for name in names}
        notes.append(why)
    notes += options.absent({*site.nodes, *site.switches}, "switch")
    notes += options.odd_pauses({*kinds.values()})
    reports, odd = reports_in(site.agents, site.time_s)
    return replace(site, nodes=nodes, notes=[*site.notes, *notes, *odd], reports=reports)


def load_of(site: Site, options: SiteOptions, ours: Ours) -> Load:
    """Build the load of a cluster as it is now.

    GPUs of one kind among several of a machine are numbered anew, as Slurm numbers all together. Numbers that
    it does not tell yet, of jobs that start or end, are taken to be the first free ones.
    A released job whose GPUs somebody else took is `astray`.
    """
    complete = not site.notes
    site = usable(site, options)
    pending = [job.id for job in site.jobs.values() if job.pending and ours.has(job)]
    load = Load(site, options, _pending=pending)
    present = [job for job in site.jobs.values() if job.on_nodes]
    known = defaultdict[str, dict[int, int]](dict)
    for job in present:
        numbers = {
            node: own
            for node, gpus in job.gpus.items()
            if node in site.nodes and (own := _placed(site.nodes[node], gpus, known[node]))
        }
        if numbers:
            _count(load, ours, job, numbers)
    for job in present:
        if not any(job.gpus.values()):
            _count(load, ours, job, _unnumbered(load, job))
    for node in site.nodes.values():
        used = _placed(node, node.used, known[node.name])
        if mislaid := {*used} & {*load.free(node.name)}:
            # Where a row of the queue was left out, a job that nobody knows may run on them.
            whose = load.mislaid if complete else load.others
            whose.setdefault(node.name, set()).update(mislaid)
            load.claim({node.name: mislaid})
    for job in site.jobs.values():
        if not job.pending or job.held or not ours.has(job):
            continue
        if (launch := launch_of(job)) is None:
            if is_launched(job):
                load.astray[job.id] = "Slurm requeued it, and may start it at any moment"
        elif load.has_room(launch):
            load.take(job, launch)
        else:
            load.astray[job.id] = "its GPUs are gone"
    return load


def _placed(node: SlurmNode, gpus: Iterable[int], known: dict[int, int]) -> list[int]:
    """Return GPUs as `Load` numbers them; no more than a node has, whatever a record says.

    Of one kind of a machine's GPUs, `known` has the numbers given so far, by those of Slurm.
    """
    places = gpus if node.name == node.host else [known.setdefault(gpu, len(known)) for gpu in gpus]
    return [place for place in places if place < node.gpus]


def _count(load: Load, ours: Ours, job: SlurmJob, gpus: dict[str, list[int]]) -> None:
    """Count a job's GPUs, by node, as those of a job of ours that runs or is leaving, or as others'."""
    launch = launch_of(job) if ours.has(job) else None
    counts = {node: len(numbers) for node, numbers in gpus.items()}
    if launch is not None and (job.running or job.suspended) and launch.nodes != counts:
        # Slurm gave it other GPUs than we asked for, which a decision can hold on one node or on whole ones.
        whole = all(load.site.nodes[name].gpus == many for name, many in counts.items())
        launch = launch.given(counts) if whole or len(counts) == 1 else None
    load.claim(gpus)
    if launch is None:
        for name, numbers in gpus.items():
            load.others.setdefault(name, set()).update(numbers)
        return
    one = Running(job, launch, gpus, load.site)
    (load.ours if job.running or one.paused else load.leaving)[job.id] = one
    for name, numbers in gpus.items() if one.paused else ():
        # Slurm gives others its CPUs meanwhile, and does not ask for them when it goes on.
        node = load.site.nodes[name]
        cpus = job.needs.cpus_on(node, len(gpus), len(numbers))
        load._taken.setdefault(node.host, []).append((cpus, 0.0))


def _unnumbered(load: Load, job: SlurmJob) -> dict[str, list[int]]:
    """GPUs of a job that starts or ends: Slurm tells its nodes, and we know how many on each."""
    launch, nodes = launch_of(job), [node for node in job.gpus if node in load.site.nodes]
    each = -(-job.request.gpus // max(1, len({*map(host_of, job.gpus)})))
    counts = {node: each if launch is None else launch.nodes.get(node, 0) for node in nodes}
    return {node: load.free(node)[:count] for node, count in counts.items() if count}
