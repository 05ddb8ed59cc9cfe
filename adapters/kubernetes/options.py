"""Options of pods: from their annotations, a file of the site, or their plain requests.

An `InputError` says why a job waits.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from pydantic import Field

from wattsched.adapters.allowed import JobOptions
from wattsched.adapters.kubernetes.launches import WRITTEN, annotation
from wattsched.adapters.kubernetes.reading import GANG, GANG_SIZE, PREFIX, KubeNode, KubePod, Site
from wattsched.adapters.options import PLAIN_S, Stated, StatedOptions, merged, plain_table, with_table
from wattsched.adapters.pools import Claim, divided
from wattsched.instances.errors import InputError, shown, validated
from wattsched.instances.gpu_parts import part_named
from wattsched.instances.sizing.job import Job
from wattsched.topology.fields import Name

_FIXED = ("min_gpus", "max_gpus", "gpu_counts")
"""Fields that a pod's request settles."""

_OF_A_MODEL = ("batch_sizes", "frequencies_mhz", "power_limits_w")
"""Fields that say nothing of a job without a model."""


class KubernetesOptions(StatedOptions):
    """The file of the site: watts that Kubernetes does not know, and options of jobs.

    Attributes
    ----------
    gpu_label : str
        Label of nodes that names their GPUs; of those without it their vendor's does.
    products : dict
        GPU type by such a name; without an entry it is the known type that the name contains.
    rack_labels : list of str
        Labels of nodes that name what they stand in, the largest first; these are members of `power_domains`.
    namespaces : dict
        What is said of the jobs of a namespace.
    claims_on_any_node : bool
        Whether volumes of persistent volume claims can be had on every node. Otherwise pods with some wait.
    names_of_other_namespaces : bool
        Whether the reason why a pod waits names jobs of other namespaces that go first; else it counts them.
    tenant_label : str, optional
        Label of pods that names their tenant; that of a pod without it is its namespace.
    """

    gpu_label: Name = "nvidia.com/gpu.product"
    products: dict[Name, Name] = Field(default_factory=dict)
    rack_labels: list[Name] = Field(
        default_factory=lambda: ["topology.kubernetes.io/zone", "topology.kubernetes.io/rack"]
    )
    namespaces: dict[str, JobOptions] = Field(default_factory=dict)
    claims_on_any_node: bool = False
    names_of_other_namespaces: bool = False
    tenant_label: Name | None = None

    def tenant_of(self, pod: KubePod) -> str | None:
        """Tenant of a pod, None where there are no quotas of it."""
        name = pod.labels.get(self.tenant_label or "", pod.namespace)
        return name if name in self.tenants else None

    def gpu_type_named(self, product: str) -> str:
        """GPU type of a product such as ``NVIDIA-A100-SXM4-80GB``: that stated, or its first word known."""
        if product in self.products:
            return self.products[product]
        if product in self.gpu_types:
            return product
        part = part_named(product)
        known = [word for word in re.split(r"[-_ ]", part.board) if self.knows(word)]
        return "-".join(filter(None, [*known[:1], part.kind])) if known else product

    def types_of(self, node: KubeNode) -> dict[str, int]:
        """GPUs of a node by type, with which its server's watts count; see `KubeNode`."""
        found = Counter[str]()
        for product, gpus in node.kinds.items():
            found[self.gpu_type_named(product)] += gpus
        return found

    def type_of(self, node: KubeNode) -> str:
        """GPU type of a node, or of its kind of GPUs."""
        return self.gpu_type_named(node.product)


@dataclass(frozen=True)
class KubeJob:
    """A pod on its own, or the pods of a gang, by name."""

    name: str
    pods: tuple[KubePod, ...]

    @property
    def gpus(self) -> int:
        """GPUs of all pods."""
        return sum(pod.gpus for pod in self.pods)

    @property
    def preemptible(self) -> bool:
        """True if all pods say that they may be evicted."""
        return all(pod.annotations.get(annotation("preemptible")) == "true" for pod in self.pods)

    @property
    def oldest(self) -> list[KubePod]:
        """Its pods, those first that were made first."""
        return sorted(self.pods, key=lambda pod: (pod.created_s, pod.name))

    @property
    def begun_s(self) -> float:
        """Time at which the last of its pods began, in seconds since 1970."""
        return max(pod.begun_s for pod in self.pods)


def job_key(pod: KubePod) -> str:
    """Name of the job that a pod belongs to; no pod has a colon in its name."""
    return f"{pod.namespace}/gang:{pod.gang}" if pod.gang else pod.key


def jobs_of(pods: Iterable[KubePod]) -> dict[str, KubeJob]:
    """Group pods into jobs, by name."""
    found = defaultdict[str, list[KubePod]](list)
    for pod in pods:
        found[job_key(pod)].append(pod)
    return {name: KubeJob(name, tuple(sorted(of, key=lambda pod: pod.name))) for name, of in found.items()}


def said_by(pod: KubePod, options: KubernetesOptions, kind_of: Mapping[str, str]) -> JobOptions:
    """Read what a pod's annotations state of its job, as JSON or words; `kind_of` is the GPU type by pool."""
    document: dict[str, Any] = {}
    own = {name: text for name, text in pod.annotations.items() if name.startswith(PREFIX)}
    options.allow.require_short(*own, *own.values())
    for name, text in own.items():
        if name in (*WRITTEN, GANG_SIZE):
            continue
        field = name.removeprefix(PREFIX).replace("-", "_")
        if field in _FIXED:
            raise InputError([f"{name}: the pods' request settles how many GPUs there are"])
        try:
            document[field] = json.loads(text)
        except (ValueError, RecursionError):
            if text.lstrip()[:1] in ("{", "["):
                raise InputError([f"{name}: is no JSON: {shown(text)}"]) from None
            document[field] = text
    if document.get("preemptible") is False:
        del document["preemptible"]  # as all pods are that do not say otherwise
    try:
        return options.believed(validated(JobOptions, document), lambda pool: kind_of.get(pool, pool))
    except InputError as error:
        raise InputError([_as_annotation(fault) for fault in error.faults]) from None


def _as_annotation(fault: str) -> str:
    """A fault that names the annotation instead of the field."""
    found = re.match(r"[a-z_]+", fault)
    return annotation(found[0]) + fault[found.end() :] if found else fault


def fields_of(
    job: KubeJob,
    options: KubernetesOptions,
    kind_of: Mapping[str, str],
    pools: Sequence[str],
    *,
    believe: bool = True,
) -> dict[str, Any]:
    """Fields of a job of an instance: what is said of its pods or, where nothing is, their plain request.

    `kind_of` is the GPU type of every pool; without `believe` its annotations do not count.
    """
    first = job.pods[0]
    said = [said_by(pod, options, kind_of) for pod in job.pods] if believe else [JobOptions()]
    own = said[0]
    # Whether a pod may be stopped is asked of each.
    if any(one.model_copy(update={"preemptible": own.preemptible}) != own for one in said):
        raise InputError(["its pods differ in their annotations"])
    by_name = [said for name, said in options.jobs.items() if fnmatchcase(job.name, name)]
    fields = merged([options.namespaces.get(first.namespace), *by_name, own])
    if "model" not in fields and (idle := [name for name in _OF_A_MODEL if getattr(own, name) is not None]):
        raise InputError([f"{annotation(idle[0])}: is read with a model alone"])
    kinds = sorted(set(kind_of.values()))
    stated = fields.get("pools")
    if stated and (strange := [name for name in stated if name not in kinds]):
        raise InputError([f"{annotation('pools')}: '{strange[0]}' is no GPU type of the cluster"])
    allowed = [pool for pool in pools if stated is None or kind_of[pool] in stated]
    if not allowed:
        raise InputError(["no node with GPUs is as its selector, affinity and tolerations ask"])
    if "options" not in fields and "model" not in fields:
        limit_s = first.limit_s if first.limit_s <= 1e12 else PLAIN_S
        table = plain_table(job.gpus, sorted({kind_of[pool] for pool in allowed}), options)
        fields = {"remaining_work": limit_s, **fields, "options": table}
    try:
        fields = with_table(fields, options.tables)
    except InputError as error:
        faults = [_as_annotation(one) for one in error.faults] if own.options else error.faults
        raise InputError(faults) from None
    least = {name: fields.pop(name) for name in ("least_progress",) if name in fields}
    given = {name: value for name, value in fields.items() if name not in ("preemptible", *_FIXED)}
    if "model" in given:
        given["gpu_counts"] = [job.gpus]
    checked = validated(Job, {**given, "pools": allowed, "name": job.name})
    return checked.model_dump(exclude_unset=True) | least


def taken_gpus(job: KubeJob, size: int) -> int:
    """GPUs that a job takes of nodes of `size` GPUs; more than it uses where its pods leave some of a node.

    None fit where a pod is larger than a node: 0.
    """
    each, pods = job.pods[0].gpus, len(job.pods)
    on_one = size // each
    if not on_one:
        return 0
    if pods <= on_one:
        return pods * each
    return (pods // on_one) * size + (pods % on_one) * each


def possible(
    job: KubeJob, table: Mapping[str, Any], pools: Sequence[str], view: PoolView
) -> dict[str, list[Any]]:
    """Rows of a table with as many GPUs as a job's pods ask for, in each of the pools that they may use.

    No GPU draws less than an idle one, whatever a table says. Those that pods of a gang leave unused on whole
    nodes are taken, and are idle.
    """
    columns = {name: column for name, column in table.items() if column is not None}
    rows: dict[str, list[Any]] = {name: [] for name in columns}
    for i, (gpus, named) in enumerate(zip(columns.get("gpus", ()), columns.get("pool", ()), strict=True)):
        for pool in pools:
            taken = taken_gpus(job, view.size[pool])
            if gpus != job.gpus or named not in (pool, view.kind[pool]) or not taken:
                continue
            for name, column in columns.items():
                rows[name].append(column[i])
            rows["gpus"][-1], rows["pool"][-1] = taken, pool
            rows["power_w"][-1] = max(rows["power_w"][-1], gpus * view.idle_w[pool])
            rows["power_w"][-1] += (taken - gpus) * view.idle_w[pool]
    if not rows.get("gpus"):
        raise InputError([_why_none(job, columns, pools, view)])
    return rows


def _why_none(job: KubeJob, columns: Mapping[str, Any], pools: Sequence[str], view: PoolView) -> str:
    """Say why none of the options in a table's columns is one for a job's pods in some pools."""
    if all(not taken_gpus(job, view.size[pool]) for pool in pools):
        return f"a pod asks for {job.pods[0].gpus} GPUs, and no node that it may have has so many"
    counts = sorted(set(columns.get("gpus", ())))
    if job.gpus not in counts:
        text = ", ".join(map(str, counts)) or "none"
        return f"its pods ask for {job.gpus} GPUs, and its options are for {text}"
    kinds = ", ".join(sorted({view.kind[pool] for pool in pools}))
    return f"its options for {job.gpus} GPUs are of none of the GPU types that it may use ({kinds})"


@dataclass(frozen=True)
class PoolView:
    """Properties of pools: GPU type, GPUs of a node, watts of an idle GPU, nodes.

    Attributes
    ----------
    sample : dict of str to KubeNode
        A node of each pool; pools of GPUs whose watts are not known have none, as they take no pods.
    """

    kind: dict[str, str]
    size: dict[str, int]
    idle_w: dict[str, float]
    of_node: dict[str, str]
    sample: dict[str, KubeNode]

    def within(self, hosts: frozenset[str]) -> list[str]:
        """Pools of which a job that may have some nodes may have every node."""
        beyond = {pool for node, pool in self.of_node.items() if node not in hosts}
        return [pool for pool in self.sample if pool not in beyond]


def hosts_of(job: KubeJob, nodes: Collection[KubeNode]) -> frozenset[str]:
    """Nodes that the pods of a job may have, by their selectors, affinities and tolerations."""
    asked, gpus = {pod.constraints for pod in job.pods}, {name for pod in job.pods for name in pod.resources}
    return frozenset(
        node.name
        for node in nodes
        if gpus <= node.resources.keys()
        and all(one.allow(node.host, node.labels, node.taints) for one in asked)
    )


def complete(job: KubeJob) -> KubeJob:
    """A waiting job with as many pods as its gang has, the oldest; an `InputError` where some are missing."""
    if odd := [pod.odd for pod in job.pods if pod.odd]:
        raise InputError([odd[0]])
    first = job.pods[0]
    if not first.gang:
        if GANG in first.annotations:
            raise InputError([f"{GANG}: must be a label, and is an annotation"])
        if first.gang_size:
            raise InputError([f"{GANG_SIZE}: is stated without the label {GANG}"])
        return job
    if any(pod.gang_size != first.gang_size for pod in job.pods) or not first.gang_size:
        raise InputError([f"{GANG_SIZE}: all pods of a gang have to state it, and the same"])
    if len(job.pods) < first.gang_size:
        raise InputError([f"{len(job.pods)} of the {first.gang_size} pods of its gang are there"])
    return KubeJob(job.name, tuple(sorted(job.oldest[: first.gang_size], key=lambda pod: pod.name)))


def pools_of_site(
    site: Site,
    options: KubernetesOptions,
    claims: Iterable[Claim] = (),
    together: Collection[frozenset[str]] = (),
    free: Mapping[str, int] | None = None,
) -> PoolView:
    """Pools: nodes that are `divided` by no job that can run, and are behind the same power caps."""
    plain, kinds = dict[str, str](), dict[str, str]()
    for node in site.nodes.values():
        kinds[node.name] = options.type_of(node)
        above = set(groups_above(node, options))
        feeds = [domain.name for domain in options.power_domains if {node.name, *above} & set(domain.members)]
        plain[node.name] = "/".join([kinds[node.name], str(node.gpus), *feeds])
    view = PoolView({}, {}, {}, divided(plain, claims, together=together, free=free), {})
    for name, pool in view.of_node.items():
        kind, node = kinds[name], site.nodes[name]
        if pool not in view.kind:
            view.kind[pool], view.size[pool] = kind, node.gpus
            view.idle_w[pool] = options.gpu_type(kind).idle_power_w
            if options.knows(kind):
                view.sample[pool] = node
    return view


def groups_above(node: KubeNode, options: KubernetesOptions) -> list[str]:
    """Return the groups that a node stands in, the largest first: ``zone``, ``zone/rack``, a kind's host."""
    names = [node.labels[label] for label in options.rack_labels if node.labels.get(label)]
    return ["/".join(names[: i + 1]) for i in range(len(names))] + [node.host] * (node.host != node.name)


def stated_names(site: Site, options: KubernetesOptions) -> list[Stated]:
    """Names of the site's file, and those that the cluster has; of namespaces those with pods."""
    members = {name for domain in options.power_domains for name in domain.members}
    seen = {pod.namespace for pod in site.pods.values()}
    tenants = options.tenants if options.tenant_label is None else ()
    return [
        Stated("power_domains of the site's file", members, there(site, options)),
        Stated("namespaces of the site's file", options.namespaces, seen, fault=False),
        Stated("tenants of the site's file", tenants, seen, fault=False),
    ]


def there(site: Site, options: KubernetesOptions) -> set[str]:
    """Nodes of a cluster, and the groups that they stand in."""
    return set(site.nodes).union(*(groups_above(node, options) for node in site.nodes.values()))
