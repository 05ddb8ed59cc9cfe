"""Use of the GPUs of each node, and what everything draws by the model."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from wattsched.adapters.correction import Correction, Draw
from wattsched.adapters.kubernetes.launches import Launch, Launches
from wattsched.adapters.kubernetes.options import (
    KubeJob,
    KubernetesOptions,
    PoolView,
    groups_above,
    job_key,
    jobs_of,
    pools_of_site,
    there,
)
from wattsched.adapters.kubernetes.reading import HOST_PORT, KubeNode, KubePod, Site, seated
from wattsched.adapters.overdraw import Drawing, Stoppable, left_w, too_much
from wattsched.adapters.rounds import Reason, start_text
from wattsched.instances.gpu_parts import host_of

Ours = Callable[[KubePod], bool]
"""Rule that says of a pod whether it is ours, such as by its scheduler's name."""

LEAVING_S = 30.0
"""So long after it was to be gone a deleted pod's GPUs still count as about to be free."""
_SLACK = 1e-6


@dataclass(frozen=True)
class Binding:
    """A pod that is to be bound to a node."""

    pod: KubePod
    node: str
    launch: Launch

    @property
    def host(self) -> str:
        """Name by which Kubernetes knows its node."""
        return host_of(self.node)


@dataclass(frozen=True)
class Start:
    """A job whose pods are to be bound, all or none."""

    job: KubeJob
    bindings: tuple[Binding, ...]

    @property
    def power_w(self) -> float:
        """Watts of its pods."""
        return sum(one.launch.power_w for one in self.bindings)

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.job.name

    def __str__(self) -> str:
        """Describe a start: its GPUs by node, its settings, and its watts."""
        gpus = Counter[str]()
        for one in self.bindings:
            gpus[one.node] += one.launch.gpus
        return start_text(gpus, self.bindings[0].launch, self.power_w)


@dataclass
class Load(Drawing):
    """Use of nodes by pods, and the watts of it.

    A GPU of a pod of ours draws its part of the option's watts, and no less than its idle watts, whatever an
    annotation says; one of another pod the most that its type draws; every other one, broken and cordoned
    ones included, its idle watts; and every node its base watts.

    Attributes
    ----------
    pools : PoolView
        Nodes by pool; `plan.round_of` divides them.
    ours : dict of str to KubeJob
        Jobs of which pods that we bound are on nodes, and these pods.
    launches : dict of str to Launch
        By uid, of these pods.
    waiting : dict of str to KubeJob
        Jobs of which no pod is on a node.
    coming : list of Binding
        Pods that another scheduler may bind at any moment, and where; they are counted.
    due : list of Binding
        Pods whose gang is on nodes already; they are counted as if they were, too.
    late : dict of str to KubeJob
        Jobs with other pods that wait while some of their gang are on nodes, and these pods.
    surplus : dict of str to str
        Pods that their gang has no place for, and why.
    stuck : dict of str to str
        Jobs with pods that are due and have no room, and why.
    leaving : list of KubePod
        Pods that were deleted and are about to go.
    used : dict of str to int
        GPUs of all pods, by node.
    """

    site: Site
    options: KubernetesOptions
    pools: PoolView
    ours: dict[str, KubeJob] = field(default_factory=dict)
    launches: dict[str, Launch] = field(default_factory=dict)
    waiting: dict[str, KubeJob] = field(default_factory=dict)
    coming: list[Binding] = field(default_factory=list)
    due: list[Binding] = field(default_factory=list)
    late: dict[str, KubeJob] = field(default_factory=dict)
    surplus: dict[str, str] = field(default_factory=dict)
    stuck: dict[str, str] = field(default_factory=dict)
    used: Counter[str] = field(default_factory=Counter)
    leaving: list[KubePod] = field(default_factory=list)
    node_w: dict[str, float] = field(default_factory=dict)
    # Watts that present pods add to idle GPUs, by uid; what each host has left of each resource.
    _added_w: dict[str, float] = field(default_factory=dict)
    _room: dict[str, dict[str, float]] = field(default_factory=dict)
    under: dict[str, list[str]] = field(default_factory=dict)
    foreign_node_w: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    # Pods that are counted and not on their nodes yet, by uid.
    _taken: dict[str, Binding] = field(default_factory=dict)
    correction: Correction | None = None

    @property
    def draws(self) -> dict[str, Draw]:
        """Return what our jobs draw, by name."""
        bound = [pod for job in self.ours.values() for pod in job.pods if pod.uid in self.launches]
        pods = [(pod, pod.node, self.launches[pod.uid].power_w, pod.begun_s) for pod in bound]
        pods += [(one.pod, one.node, one.launch.power_w, inf) for one in self._taken.values()]
        node_w, pod_w = (defaultdict[str, dict[str, float]](dict) for _ in range(2))
        begun_s = defaultdict[str, float](float)
        for pod, node, power_w, at_s in pods:
            name = job_key(pod)
            node_w[name][node] = node_w[name].get(node, 0.0) + power_w
            pod_w[name][pod.key], begun_s[name] = power_w, max(begun_s[name], at_s)
        return {name: Draw(node_w[name], pod_w[name], begun_s[name]) for name in node_w}

    def corrected(self, factor: Callable[[str], float]) -> Load:
        """Return the load in which our jobs draw `factor` of their names times the watts of the model."""
        then = self.without(())
        then.launches, then._added_w = dict(self.launches), dict(self._added_w)
        for job in self.ours.values():
            for pod in job.pods:
                launch = self.launches[pod.uid]
                new = _sound(launch.corrected(factor(job.name)), self.idle_w(pod.node))
                then.launches[pod.uid] = new
                then._added_w[pod.uid] += new.power_w - launch.power_w
                then.node_w[pod.node] += new.power_w - launch.power_w
        return then

    @property
    def running(self) -> int:
        """Jobs of ours that have nodes."""
        return len(self.ours.keys() | {job_key(one.pod) for one in self.coming})

    @property
    def stoppable(self) -> list[Stoppable]:
        """Jobs of ours that may be evicted."""
        found = list[Stoppable]()
        for name, job in self.ours.items():
            if job.preemptible:
                bound = [Binding(pod, pod.node, self.launches[pod.uid]) for pod in job.pods]
                ran_s = max(0.0, self.site.time_s - job.begun_s)
                found.append(Stoppable(name, self.by_cap(self.added_by_node(bound)), job.gpus, ran_s))
        return found

    @property
    def without_leaving(self) -> Load:
        """Load once the pods that are leaving are gone, without those that are not bound yet."""
        later = self.after(())
        later.give_back(self.due)
        return later

    def after(self, stops: Iterable[str], starts: Iterable[Start] = ()) -> Load:
        """Load after some jobs have stopped, pods that are leaving are gone, and others have started."""
        stopped = set(stops)
        left = self.without([*self.leaving, *(pod for name in stopped for pod in self.ours[name].pods)])
        ours = {name: job for name, job in self.ours.items() if name not in stopped}
        then = replace(left, ours=ours, leaving=[])
        for start in starts:
            then.placed(start)
        return then

    def idle_w(self, node: str) -> float:
        """Watts of one idle GPU of a node."""
        return self.pools.idle_w[self.pools.of_node[node]]

    def free(self, node: KubeNode) -> int:
        """GPUs of a node that nobody uses; it may be cordoned."""
        return max(0, node.gpus - node.broken - self.used[node.name])

    def added_w(self, node: str, launch: Launch) -> float:
        """Return the watts that a pod adds to what its GPUs draw when they are idle."""
        return launch.power_w - launch.gpus * self.idle_w(node)

    def has_room(self, pod: KubePod, name: str) -> bool:
        """True if a node takes a pod now."""
        node = self.site.nodes.get(name)
        if node is None or not node.ready or self.lacks(pod, node):
            return False
        return pod.constraints.allow(node.host, node.labels, node.taints)

    def lacks(self, pod: KubePod, node: KubeNode) -> list[str]:
        """Resources of which a node has less left than a pod asks for."""
        short = self.free(node) < pod.gpus
        gpus = [name for name in pod.resources if short or name not in node.resources]
        needs = pod.needs.items()
        return gpus + [what for what, most in needs if 0 < most > self._left(node.name, what) + _SLACK]

    def copies(self, pod: KubePod, node: KubeNode, what: Iterable[str]) -> int:
        """Return the number of pods like one that fit on a node, by its GPUs and some other resources."""
        most = self.free(node) // pod.gpus
        for name in what:
            if (amount := pod.needs[name]) > 0:
                most = min(most, int((self._left(node.name, name) + _SLACK) / amount))
        return max(0, most)

    def _left(self, node: str, what: str) -> float:
        """Return the amount of a resource that a node has left; of a host port each node has one."""
        return self._room[host_of(node)].get(what, 1.0 if what.startswith(HOST_PORT) else 0.0)

    def without(self, pods: Iterable[KubePod]) -> Load:
        """Return the load that there would be if pods had left their nodes."""
        left = replace(
            self,
            used=self.used.copy(),
            node_w=dict(self.node_w),
            _room={name: dict(room) for name, room in self._room.items()},
            _taken=dict(self._taken),
        )
        for pod in pods:
            left._count(pod, pod.node, self._added_w[pod.uid], sign=-1)
        return left

    def emptied(self) -> Load:
        """Return the load that there would be on empty nodes, but for watts."""
        room = {node.host: dict(node.room) for node in self.site.nodes.values()}
        return replace(self, used=Counter(), node_w=dict(self.node_w), _room=room)

    def place(self, pod: KubePod, wanted: str) -> str | None:
        """The node wanted, or that of its pool where a pod has room and leaves the fewest GPUs, if any."""
        if self.has_room(pod, wanted):
            return wanted
        pool = self.pools.of_node.get(wanted)
        alike = (node for node in self.site.nodes.values() if self.pools.of_node[node.name] == pool)
        others = [node for node in alike if self.has_room(pod, node.name)]
        return min(others, key=lambda node: (self.free(node), node.name)).name if others else None

    def placed(self, start: Start) -> tuple[tuple[Binding, ...], str]:
        """Count the pods of a start that find room; return where they do, and why not all do, or ''."""
        found = list[Binding]()
        for one in start.bindings:
            pod = self.site.pods.get(one.pod.uid)
            if pod is None or not pod.waiting:
                return tuple(found), "has changed meanwhile"
            if (node := self.place(pod, one.node)) is None:
                return tuple(found), Reason(f"waits for room: {self._scarce(pod, one.node)}", "room")
            found.append(Binding(pod, node, one.launch))
            self.take(found[-1])
        # What the pods are launched with says where the others of their gang are.
        gang = dict(Counter(one.node for one in found)) if start.job.pods[0].gang else None
        launches = [one.launch.model_copy(update={"gang": gang}) for one in found]
        return tuple(replace(one, launch=of) for one, of in zip(found, launches, strict=True)), ""

    def _scarce(self, pod: KubePod, wanted: str) -> str:
        """Name what a pod lacks on nodes of the wanted node's pool, of those nodes that lack the fewest."""
        of_node = self.pools.of_node
        nodes = [node for node in self.site.nodes.values() if node.ready]
        lacks = [self.lacks(pod, node) for node in nodes if of_node[node.name] == of_node.get(wanted)]
        if not lacks:
            return "no node is ready"
        least = min(map(len, lacks))
        return ", ".join(sorted({what for one in lacks if len(one) == least for what in one}))

    def added_by_node(self, bindings: Iterable[Binding]) -> dict[str, float]:
        """Return the watts that bindings add, by node, to what their GPUs draw when they are idle."""
        added: dict[str, float] = defaultdict(float)
        for one in bindings:
            added[one.node] += self.added_w(one.node, one.launch)
        return added

    def within(self, cap_w: Mapping[str, float], bindings: Iterable[Binding]) -> str:
        """Return why bindings that are counted already would be too much now; '' where they are not."""
        return too_much(self.drawn_w, self.by_cap(self.added_by_node(bindings)), left_w(self, cap_w))

    def take(self, binding: Binding) -> None:
        """Count a pod as bound."""
        self._taken[binding.pod.uid] = binding
        self._count(binding.pod, binding.node, self.added_w(binding.node, binding.launch), sign=1)

    def give_back(self, bindings: Iterable[Binding]) -> None:
        """Count pods as not bound."""
        for one in bindings:
            self._taken.pop(one.pod.uid, None)
            self._count(one.pod, one.node, self.added_w(one.node, one.launch), sign=-1)

    def _count(self, pod: KubePod, node: str, added_w: float, sign: int) -> None:
        """Count a pod on a node (`sign` 1) or no longer (-1), with the watts that it adds to idle GPUs."""
        self.used[node] += sign * pod.gpus
        self.node_w[node] += sign * added_w
        for what, amount in pod.needs.items():
            self._room[host_of(node)][what] = self._left(node, what) - sign * amount


def usable(site: Site, options: KubernetesOptions) -> Site:
    """The site as rounds can use it, with notes on the rest.

    Nodes with GPUs whose watts are not known get no pods; they count as `KubernetesOptions.gpu_type` says.
    """
    nodes, (pods, notes) = dict(site.nodes), seated(site)
    kinds = {name: options.type_of(node) for name, node in nodes.items()}
    stated = f"gpu_types of the site's file, or its type as products, by the label {options.gpu_label}"
    for names, why in options.unknown(kinds, "pod", stated):
        nodes |= {name: replace(nodes[name], ready=False) for name in names}
        notes.append(why)
    labels = " and ".join(options.rack_labels) or "rack_labels"
    notes += options.absent(there(site, options), f"value of {labels}")
    return replace(site, nodes=nodes, pods=pods, notes=[*site.notes, *notes])


def load_of(
    site: Site,
    options: KubernetesOptions,
    ours: Ours,
    held: Mapping[str, Binding] | None = None,
    launches: Launches | None = None,
) -> Load:
    """Build the load of a cluster as it is now.

    A pod that is not as we bound it, whatever its annotations say, counts as one of others. Pods that are
    held, by uid, count as bound.
    """
    held, launches, site = held or {}, launches or Launches(), usable(site, options)
    launches.forget(site.pods)
    waiting = [pod for pod in site.pods.values() if pod.waiting and ours(pod) and pod.uid not in held]
    load = Load(site, options, pools_of_site(site, options))
    for node in site.nodes.values():
        load.node_w[node.name] = options.server_w(options.types_of(node)) + node.gpus * load.idle_w(node.name)
        load._room[node.host] = dict(node.room)
    for domain in options.power_domains:
        members = set(domain.members)
        load.under[domain.name] = [
            node.name for node in site.nodes.values() if members & {node.name, *groups_above(node, options)}
        ]
    present = list[KubePod]()
    for pod in site.pods.values():
        if pod.present and pod.node in site.nodes:
            _count_present(load, pod, present, launches.of(pod) if ours(pod) else None)
    load.ours = jobs_of(present)
    for uid, one in held.items():
        if one.node in site.nodes:
            load.coming.append(Binding(site.pods[uid], one.node, _sound(one.launch, load.idle_w(one.node))))
            load.take(load.coming[-1])
    jobs = jobs_of(waiting)
    load.late = {name: job for name, job in jobs.items() if name in load.ours}
    load.waiting = {name: job for name, job in jobs.items() if name not in load.ours}
    for name, job in load.late.items():
        coming = [one.node for one in load.coming if job_key(one.pod) == name]
        _join(load, job, load.ours[name], coming)
    return load


def _count_present(load: Load, pod: KubePod, present: list[KubePod], launch: Launch | None) -> None:
    """Count a pod on its node, without a launch as others'; put one of ours that stays into `present`."""
    node = load.site.nodes[pod.node]
    if launch is not None:
        launch = _sound(launch, load.idle_w(node.name))
    most_w = load.options.max_power_w(load.options.type_of(node))
    each_w = most_w if launch is None else launch.power_w / launch.gpus
    added_w = pod.gpus * (each_w - load.idle_w(node.name))
    load._count(pod, pod.node, added_w, sign=1)
    load._added_w[pod.uid] = added_w
    if pod.leaving and load.site.time_s < pod.deletion_s + LEAVING_S:
        load.leaving.append(pod)
    elif launch is not None and not pod.leaving:
        present.append(pod)
        load.launches[pod.uid] = launch
    if launch is None and not pod.leaving:
        load.foreign_node_w[pod.node] += added_w


def _join(load: Load, late: KubeJob, there: KubeJob, coming: list[str]) -> None:
    """Count waiting pods of a gang (`late`) as bound, as others are on nodes (`there`), or `coming` to some.

    An eviction of ours or a failure may have left them behind. They go to nodes as the gang was launched.
    """
    launch = load.launches[there.pods[0].uid]
    planned = Counter(launch.gang or {})
    planned.subtract([*(pod.node for pod in there.pods), *coming])
    most = len(late.pods)  # whatever numbers an annotation states
    wanted = [node for node, pods in sorted(planned.items()) for _ in range(max(0, min(pods, most)))]
    wanted += [there.pods[0].node] * most
    size = there.pods[0].gang_size or len(late.pods)
    missing = max(0, size - len(there.pods) - len(coming))
    pods = late.oldest
    load.surplus |= {pod.key: f"its gang has its {size} pods without it" for pod in pods[missing:]}
    for pod, node in zip(pods[:missing], wanted, strict=False):
        found = load.place(pod, node) if node in load.site.nodes and pod.gpus == launch.gpus else None
        if found is None:
            load.stuck[late.name] = "the others of its gang are on nodes, and there is no room left for it"
            break
        joined = Binding(pod, found, launch.model_copy(update={"uid": pod.uid}))
        load.take(joined)
        load.due.append(joined)


def _sound(launch: Launch, idle_w: float) -> Launch:
    """The same with no less than the idle watts of its GPUs: who may annotate a pod may write anything."""
    return launch.model_copy(update={"power_w": max(launch.power_w, launch.gpus * idle_w)})
