"""Nodes with their GPUs and labels, and pods with what they ask for, of objects of the API."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import Any

from wattsched.adapters.allowed import MOST_CHARACTERS
from wattsched.adapters.kubernetes.objects import (
    Constraints,
    Container,
    Node,
    Pod,
    Taint,
    constraints_of,
)
from wattsched.adapters.options import first_of
from wattsched.adapters.parts import listing
from wattsched.instances.errors import InputError, shown, validated
from wattsched.instances.gpu_names import recognised_gpu_type
from wattsched.instances.gpu_parts import host_of, part_named
from wattsched.topology.fields import shortened

GPU, _GKE = "nvidia.com/gpu", "cloud.google.com/gke"
_GPU = re.compile(r"nvidia\.com/(?:gpu|(mig-[^/]+?))(?:\.shared)?|amd\.com/(?:gpu|([sdtqc]px_nps\d))")
"""Resources that are GPUs: whole ones or a node's only slices, replicas, and parts by their kind."""
AMD_GPU = "amd.com/gpu"

_MODELS = ("k8s.amazonaws.com/accelerator", "kubernetes.azure.com/accelerator", "accelerator")
"""Labels of EKS and AKS, which may say no more than a vendor: they count if they name a known model."""
_LABELS = {
    "nvidia.com": (f"{GPU}.product", f"{_GKE}-accelerator", "karpenter.k8s.aws/instance-gpu-name", *_MODELS),
    "amd.com": ("amd.com/gpu.product-name",),
}
"""Labels of nodes that name the product of a vendor's GPUs."""

PREFIX = "wattsched.io/"
GANG, GANG_SIZE = f"{PREFIX}gang", f"{PREFIX}gang-size"
"""Label of the pods of a gang, and label or annotation that states how many they are."""

UNLABELLED = "gpu"
"""Product of GPUs that no label names."""

_COUNT, HOST_PORT, _MOST_PORTS = r"[1-9]\d{0,4}", "host port", 100
_MOST_GPUS, _MOST_AMOUNT = 1_000_000, 1e18
_TEXTS = {
    "metadata": ("name", "namespace", "uid"),
    "spec": ("nodeName", "schedulerName"),
    "status": ("phase",),
}
"""Fields that are used of a pod that cannot be read."""
_CLOSING = frozenset(["NoSchedule", "NoExecute"])


@dataclass(frozen=True)
class KubeNode:
    """A node with GPUs, or one kind of the GPUs of a node that has several, named ``NODE/PRODUCT``.

    Attributes
    ----------
    resources : dict of str to str
        Product of each resource by which pods ask for some: GPUs as their label names them, replicas with
        their number on a board (``Tesla-T4-SHARED-4``).
    kinds : dict of str to int
        GPUs by product of the whole node, whose server's watts count here; none but on its first kind.
    gpus, broken : int
        GPUs that it has, and how many of them the device plugin does not offer.
    room : dict of str to float
        Other resources that pods may ask for.
    ready : bool
        False where it does not answer or is cordoned.
    """

    name: str
    gpus: int
    broken: int
    room: dict[str, float]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    ready: bool
    resources: dict[str, str]
    kinds: dict[str, int]

    @property
    def host(self) -> str:
        """Name by which Kubernetes knows it."""
        return host_of(self.name)

    @property
    def product(self) -> str:
        """Product of its GPUs, of which there is one but on a whole node."""
        return next(iter(self.resources.values()), UNLABELLED)


@dataclass(frozen=True)
class KubePod:
    """A pod.

    Attributes
    ----------
    node : str
        Where it is bound to; empty for one that waits.
    resources : dict of str to int
        Its GPUs by the resource that it asks for, such as ``nvidia.com/mig-1g.5gb``.
    needs : dict of str to float
        What it asks for besides GPUs; of every host port, 1.
    volume_claims : bool
        Whether it has volumes of persistent volume claims.
    gang, gang_size : str, int
        Label, empty for a pod on its own; 0 where no size is stated.
    deletion_s : float
        When it is to be gone that was deleted; infinite for others.
    begun_s : float
        When it began to run, or was made.
    annotations : dict of str to str
        Those of ours.
    odd : str
        Why it cannot be placed whatever it says; or empty.
    others : tuple of str
        What else it asks for that may be devices: resources with a domain, and claims of resources.
    legible : bool
        False where the API's object cannot be read; on a node it may have all GPUs then.
    """

    name: str
    namespace: str
    uid: str
    scheduler: str
    node: str
    phase: str
    gpus: int
    needs: dict[str, float]
    volume_claims: bool
    labels: dict[str, str]
    annotations: dict[str, str]
    gang: str
    gang_size: int
    constraints: Constraints
    created_s: float
    begun_s: float
    deletion_s: float
    limit_s: float
    odd: str
    resources: dict[str, int]
    others: tuple[str, ...] = ()
    legible: bool = True

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """True if it has run to its end."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def leaving(self) -> bool:
        """True if it was deleted, and has not gone yet."""
        return self.deletion_s < inf

    @property
    def waiting(self) -> bool:
        """True if it is to be bound to a node."""
        return not self.node and not self.ended and not self.leaving

    @property
    def present(self) -> bool:
        """True if it uses what it asked for of its node."""
        return bool(self.node) and not self.ended

    def gpus_on(self, node: KubeNode) -> int:
        """GPUs that it asks for and that a node has."""
        return sum(number for name, number in self.resources.items() if name in node.resources)


@dataclass(frozen=True)
class Site:
    """The cluster as the API has it.

    Attributes
    ----------
    nodes : dict of str to KubeNode
        Those with GPUs.
    pods : dict of str to KubePod
        By uid.
    notes : list of str
        What was left out, and why.
    """

    time_s: float
    nodes: dict[str, KubeNode]
    pods: dict[str, KubePod]
    notes: list[str] = field(default_factory=list)


def read(snapshot: Mapping[str, Any], gpu_label: str = f"{GPU}.product") -> Site:
    """Read what the API said; `gpu_label` names GPUs where a node has it, and else their vendor's label."""
    try:
        found = validated(listing("nodes", Node), {"nodes": snapshot["nodes"]}, "Kubernetes")
        nodes = {node.name: node for row in found.nodes for node in _nodes(row, gpu_label)}
        pods = {pod.uid: pod for pod in map(_any_pod, snapshot["pods"])}
        return Site(float(snapshot["time"]), nodes, pods)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError([f"the answer of the API cannot be read: {error}"]) from None


def seated(site: Site) -> tuple[dict[str, KubePod], list[str]]:
    """Pods with no more GPUs than their nodes can have given them, and what is to be noted.

    A user may name a node and ask for anything. Kubelet refuses what is more than is left, so those that run
    come first; what is more than a whole node has was never there. Of a pod that cannot be read, all that is
    left is taken.
    """
    left, hosts = dict[str, int](), defaultdict[str, list[KubeNode]](list)
    for node in site.nodes.values():
        left[node.name] = node.gpus
        hosts[node.host].append(node)
    pods, notes = dict(site.pods), list[str]()
    present = [pod for pod in site.pods.values() if pod.present and pod.node in hosts]
    for pod in sorted(present, key=lambda one: (one.phase != "Running", one.begun_s, one.key)):
        own = [node for node in hosts[pod.node] if pod.gpus_on(node) or not pod.legible]
        had = 0
        for place, node in enumerate(own or hosts[pod.node][:1]):
            asked = pod.gpus_on(node) if pod.legible else node.gpus
            some = 0 if asked > node.gpus and pod.phase != "Running" else min(asked, left[node.name])
            left[node.name] -= some
            had += some
            # What it has of a second kind counts as another pod's.
            uid, needs = (f"{pod.uid}/{node.name}", dict[str, float]()) if place else (pod.uid, pod.needs)
            if (node.name, some) != (pod.node, pod.gpus):
                pods[uid] = replace(pod, uid=uid, node=node.name, gpus=some, needs=needs)
        if had != pod.gpus:
            why = pod.odd if not pod.legible else f"asks for {pod.gpus:,} GPUs of {pod.node}"
            notes.append(f"{pod.key} {why}: counts as {had}")
    return pods, first_of(notes)


def _any_pod(document: Any) -> KubePod:
    """A pod, whatever its object says: users write these."""
    try:
        return read_pod(document)
    except InputError as error:
        why = f"cannot be read: {error.faults[0]}"
    whole = document if isinstance(document, dict) else {}
    parts = {name: part if isinstance(part := whole.get(name), dict) else {} for name in _TEXTS}
    about, spec, status = (
        {field: text for field in fields if isinstance(text := parts[part].get(field), str)}
        for part, fields in _TEXTS.items()
    )
    bare = read_pod({"metadata": {"name": "?", **about}, "spec": spec, "status": status})
    return replace(bare, odd=why, legible=False)


def read_node(document: Any, gpu_label: str = f"{GPU}.product") -> KubeNode:
    """Read one node."""
    try:
        return _node(validated(Node, document), gpu_label)
    except (TypeError, OverflowError) as error:
        raise InputError([f"Node: cannot be read: {error}"]) from None


def read_pod(document: Any) -> KubePod:
    """Read one pod."""
    try:
        return _pod(validated(Pod, document))
    except (TypeError, OverflowError, RecursionError) as error:
        raise InputError([f"Pod: cannot be read: {error}"]) from None


def gpus_asked(amounts: Mapping[str, float]) -> dict[str, int]:
    """GPUs among amounts of resources, those that there are any of."""
    asked = {name: most for name, most in amounts.items() if most > 0 and _GPU.fullmatch(name)}
    if many := [
        f"{name}: there cannot be {most:g} GPUs" for name, most in asked.items() if most > _MOST_GPUS
    ]:
        raise InputError(many)
    return {name: ceil(most) for name, most in asked.items()}


def _named(resource: str, labels: Mapping[str, str], gpu_label: str) -> str:
    """Return what labels of a node call its GPUs."""
    vendor = resource.partition("/")[0]
    stated = [gpu_label] if vendor in gpu_label or GPU not in gpu_label else []  # not NVIDIA's for others
    told = ((name, labels.get(name, "")) for name in (*stated, *_LABELS[vendor]))
    known = (text for name, text in told if text and (name not in _MODELS or recognised_gpu_type(text)))
    return next(known, UNLABELLED)


def _product(resource: str, gpus: int, labels: Mapping[str, str], gpu_label: str) -> str:
    """Return what GPUs that a node offers as a resource are, such as ``Tesla-T4-SHARED-4``."""
    product, name = _named(resource, labels, gpu_label), resource.removesuffix(".shared")
    if (found := _GPU.fullmatch(resource)) and (kind := found[1] or found[2]):
        whole = re.sub("-SHARED$", "", product)
        product = labels.get(f"{name}.product") or f"{whole}-{kind.removesuffix('.shared')}"
    elif name == AMD_GPU and (mode := labels.get("amd.com/compute-memory-partition", "spx"))[:3] != "spx":
        product = f"{product}-{mode}"
    elif name == GPU and (size := labels.get(f"{_GKE}-gpu-partition-size")):
        product = f"{product}-mig-{size}"
    each, boards = _replicas(name, labels), labels.get(f"{name}.count", "")
    is_shared = product.endswith("-SHARED") or resource.endswith(".shared")
    if each < 2 and is_shared:  # no label tells how many there are of a board
        each = gpus // int(boards) if re.fullmatch(_COUNT, boards) else gpus
    elif resource == GPU and (found_each := gpus_per_board(gpus, labels)).is_integer():
        each = max(each, int(found_each))
    return f"{re.sub('-SHARED$', '', product)}-SHARED-{each}" if each > 1 else product


def _replicas(name: str, labels: Mapping[str, str]) -> int:
    """Return how many replicas of a board labels tell; 1 where they tell none."""
    told = labels.get(f"{name}.replicas") or labels.get(f"{_GKE}-max-shared-clients-per-gpu", "")
    return int(told) if re.fullmatch(r"\d{1,4}", told) else 1


def gpus_per_board(gpus: int, labels: Mapping[str, str]) -> float:
    """Return `gpus` per board that a label counts, at least 1; 1 where parts or replicas are told."""
    boards, product = labels.get(f"{GPU}.count", ""), labels.get(f"{GPU}.product", "")
    told = _replicas(GPU, labels) > 1 or product.endswith("-SHARED") or part_named(product).kind
    return 1.0 if told or not re.fullmatch(_COUNT, boards) else max(1.0, gpus / int(boards))


def _nodes(row: Node, gpu_label: str) -> Iterator[KubeNode]:
    """A node with GPUs or, where it has several kinds of these, one for each."""
    whole, offered = _node(row, gpu_label), gpus_asked(row.allocatable)
    kinds = whole.kinds
    for kind, gpus in whole.kinds.items():
        name = whole.name if len(whole.kinds) == 1 else shortened(f"{whole.name}/{kind}")
        resources = {one: product for one, product in whole.resources.items() if product == kind}
        broken = gpus - sum(offered.get(one, 0) for one in resources)
        yield replace(whole, name=name, gpus=gpus, broken=broken, resources=resources, kinds=kinds)
        kinds = {}


def _node(row: Node, gpu_label: str) -> KubeNode:
    """Node as a whole, with GPUs of all kinds that it has."""
    labels, offered = row.metadata.labels, Counter(gpus_asked(row.allocatable))
    there = Counter(gpus_asked(row.capacity)) | offered  # broken ones among them
    resources = {name: _product(name, number, labels, gpu_label) for name, number in there.items()}
    kinds = Counter[str]()
    for name, number in there.items():
        kinds[resources[name]] += number
    ready = any(one.type == "Ready" and one.status == "True" for one in row.conditions)
    return KubeNode(
        name=row.metadata.name,
        resources=resources,
        kinds=kinds,
        gpus=kinds.total(),
        broken=kinds.total() - offered.total(),
        room={name: most for name, most in row.allocatable.items() if name not in there},
        labels=row.metadata.labels,
        taints=tuple(taint for taint in row.taints if taint.effect in _CLOSING),
        ready=ready and not row.unschedulable,
    )


def _pod(row: Pod) -> KubePod:
    """Pod of the API's object. Where several things are odd, the last one found is told."""
    metadata = row.metadata
    needs = {name: min(max(0.0, amount), _MOST_AMOUNT) for name, amount in _needs(row).items()}
    asked = gpus_asked(needs)
    needs = {name: amount for name, amount in needs.items() if not _GPU.fullmatch(name)}
    constraints = constraints_of(row.selector, row.affinity, row.tolerations)
    devices = [what for what in needs if "/" in what and not what.startswith(HOST_PORT)]
    odd = constraints.odd
    if row.gates:
        odd = "has scheduling gates"
    elif len(asked) > 1:
        odd = f"asks for GPUs of several kinds, which are not decided on together: {', '.join(asked)}"
    elif not all(map(_is_wish, row.spread)):
        odd = "has topologySpreadConstraints, which are not looked at"
    elif row.claims:
        odd = "has resourceClaims, which are not looked at"
    elif len(ports := [what for what in needs if what.startswith(HOST_PORT)]) > _MOST_PORTS:
        odd = f"asks for {len(ports):,} host ports, and {_MOST_PORTS} are looked at"
        needs = {what: amount for what, amount in needs.items() if what not in ports}
    texts = {name: text for name, text in metadata.annotations.items() if name.startswith(PREFIX)}
    if long := next((name for name, text in texts.items() if len(text) > MOST_CHARACTERS), ""):
        odd = f"{shown(long)}: has {len(texts[long]):,} characters, and at most {MOST_CHARACTERS:,} are read"
        texts = {name: text for name, text in texts.items() if len(text) <= MOST_CHARACTERS}
    size = metadata.labels.get(GANG_SIZE) or texts.get(GANG_SIZE) or "0"
    if not re.fullmatch(r"\d{1,9}", size):
        size, odd = "0", f"{GANG_SIZE}: must be a whole number, got {shown(size)}"
    created_s = metadata.creation_s or 0.0
    return KubePod(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid or "/".join(metadata.named),
        scheduler=row.scheduler or "default-scheduler",
        node=row.node or "",
        phase=row.phase or "Pending",
        gpus=sum(asked.values()),
        resources=asked,
        needs=needs,
        volume_claims=any(one.claim is not None or one.template is not None for one in row.volumes),
        labels=metadata.labels,
        annotations=texts,
        gang=metadata.labels.get(GANG, ""),
        gang_size=int(size),
        constraints=constraints,
        created_s=created_s,
        begun_s=row.start_s or created_s,
        deletion_s=inf if metadata.deletion_s is None else metadata.deletion_s,
        limit_s=row.limit_s if row.limit_s is not None and row.limit_s > 0 else inf,
        odd=odd,
        others=(*devices, *(["resourceClaims"] if row.claims else [])),
    )


def _is_wish(spread: Any) -> bool:
    return isinstance(spread, dict) and spread.get("whenUnsatisfiable") == "ScheduleAnyway"


def _needs(pod: Pod) -> dict[str, float]:
    """Return a pod's resources by Kubernetes' own formula, in base units (cores, bytes, pieces).

    Of each resource, the most that is in use at once: by all containers and sidecars, or before them by an
    init container and the sidecars that have started; or what the pod states for all of them.
    """
    sidecars, most = dict[str, float](), dict[str, float]()
    for one in pod.first:
        together = _summed([sidecars, _asked(one)])
        sidecars = together if one.restart == "Always" else sidecars
        most |= {name: max(amount, most.get(name, 0.0)) for name, amount in together.items()}
    together = _summed([sidecars, *(_asked(one) for one in pod.containers)])
    most |= {name: max(amount, most.get(name, 0.0)) for name, amount in together.items()}
    whole = {**pod.limits, **most, **pod.requests}
    listening = [*pod.containers, *(one for one in pod.first if one.restart == "Always")]
    # The same port of two addresses of a node counts as one, as few pods name an address.
    on_host = [port for one in listening for port in one.ports if port.host]
    ports = {f"{HOST_PORT} {port.host}/{port.protocol or 'TCP'}" for port in on_host}
    return _summed([whole, pod.overhead, {"pods": 1.0}, dict.fromkeys(ports, 1.0)])


def _asked(container: Container) -> dict[str, float]:
    return {**container.limits, **container.requests}


def _summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total
