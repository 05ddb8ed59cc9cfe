"""Objects of the API, read: nodes with their GPUs and labels, and pods with what they ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import ceil, inf
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wattsched.adapters.kubernetes.constraints import Constraints, Taint, Toleration, constraints_of
from wattsched.instances.errors import InputError, shown, validated

GPU = "nvidia.com/gpu"
PREFIX = "wattsched.io/"
GANG, GANG_SIZE = f"{PREFIX}gang", f"{PREFIX}gang-size"
"""Label of the pods of a gang, and label or annotation that states how many they are."""

UNLABELLED = "gpu"
"""Product of GPUs that no label names."""

_QUANTITY = re.compile(r"([+-]?[0-9.]{1,30})(m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?")
_SUFFIXES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18}
_SUFFIXES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}
_HOST_PORT = "host port"
_CLOSING = frozenset(["NoSchedule", "NoExecute"])


def quantity(text: Any) -> float:
    """Value of a quantity such as ``500m`` or ``512Gi``.

    Raises
    ------
    ValueError
        Where it is none.
    """
    found = _QUANTITY.fullmatch(str(text))
    if found is None or isinstance(text, bool):
        raise ValueError(f"must be a quantity, got {shown(text)}")
    number, suffix = found[1], found[2] or ""
    return float(number) * (_SUFFIXES[suffix] if suffix in _SUFFIXES else float(f"1{suffix}"))


def _time_s(value: Any) -> Any:
    return datetime.fromisoformat(value).timestamp() if isinstance(value, str) else value


def _none_is_empty(value: Any) -> Any:
    return {} if value is None else value


def nothing_for_null(value: Any) -> Any:
    """An empty list where the API says null."""
    return [] if value is None else value


Quantity = Annotated[float, BeforeValidator(quantity), Field(allow_inf_nan=False)]
Resources = Annotated[dict[str, Quantity], BeforeValidator(_none_is_empty)]
Texts = Annotated[dict[str, str], BeforeValidator(_none_is_empty)]
Moment = Annotated[float | None, BeforeValidator(_time_s)]


class KubeObject(BaseModel):
    """A part of an object of the API; what else it has is not looked at."""

    model_config = ConfigDict(extra="ignore")


class _Owner(KubeObject):
    controller: bool | None = None


class _Metadata(KubeObject):
    name: str
    namespace: str = "default"
    uid: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    creation_s: Annotated[Moment, Field(alias="creationTimestamp")] = None
    deletion_s: Annotated[Moment, Field(alias="deletionTimestamp")] = None
    owners: Annotated[list[_Owner], BeforeValidator(nothing_for_null), Field(alias="ownerReferences")] = []


class _Needs(KubeObject):
    requests: Resources = {}
    limits: Resources = {}


class _Port(KubeObject):
    host: Annotated[int | None, Field(alias="hostPort")] = None
    protocol: str | None = None


class _Container(KubeObject):
    resources: _Needs = _Needs()
    ports: Annotated[list[_Port], BeforeValidator(nothing_for_null)] = []
    restart: Annotated[str | None, Field(alias="restartPolicy")] = None


Containers = Annotated[list[_Container], BeforeValidator(nothing_for_null)]


class _Volume(KubeObject):
    claim: Annotated[Any, Field(alias="persistentVolumeClaim")] = None
    template: Annotated[Any, Field(alias="ephemeral")] = None


class _PodSpec(KubeObject):
    node: Annotated[str | None, Field(alias="nodeName")] = None
    scheduler: Annotated[str | None, Field(alias="schedulerName")] = None
    containers: Containers = []
    first: Annotated[Containers, Field(alias="initContainers")] = []
    overhead: Resources = {}
    gates: Annotated[list[Any], BeforeValidator(nothing_for_null), Field(alias="schedulingGates")] = []
    limit_s: Annotated[float | None, Field(alias="activeDeadlineSeconds")] = None
    selector: Annotated[Texts, Field(alias="nodeSelector")] = {}
    affinity: Any = None
    spread: Annotated[
        list[Any], BeforeValidator(nothing_for_null), Field(alias="topologySpreadConstraints")
    ] = []
    tolerations: Annotated[list[Toleration], BeforeValidator(nothing_for_null)] = []
    volumes: Annotated[list[_Volume], BeforeValidator(nothing_for_null)] = []


class _PodStatus(KubeObject):
    phase: str | None = None
    start_s: Annotated[Moment, Field(alias="startTime")] = None


class _Pod(KubeObject):
    metadata: _Metadata
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _NodeSpec(KubeObject):
    unschedulable: bool | None = None
    taints: Annotated[list[Taint], BeforeValidator(nothing_for_null)] = []


class _Condition(KubeObject):
    type: str
    status: str


class _NodeStatus(KubeObject):
    allocatable: Resources = {}
    capacity: Resources = {}
    conditions: Annotated[list[_Condition], BeforeValidator(nothing_for_null)] = []


class _Node(KubeObject):
    metadata: _Metadata
    spec: _NodeSpec = _NodeSpec()
    status: _NodeStatus = _NodeStatus()


class _Objects(KubeObject):
    nodes: list[_Node]
    pods: list[_Pod]


@dataclass(frozen=True)
class KubeNode:
    """A node with GPUs.

    Attributes
    ----------
    product : str
        Its GPUs as their label names them.
    gpus, broken : int
        GPUs that it has, and how many of them the device plugin does not offer.
    room : dict of str to float
        Other resources that pods may ask for, host ports among them.
    ready : bool
        False where it does not answer or is cordoned.
    """

    name: str
    product: str
    gpus: int
    broken: int
    room: dict[str, float]
    labels: dict[str, str]
    taints: tuple[Taint, ...]
    ready: bool


@dataclass(frozen=True)
class KubePod:
    """A pod.

    Attributes
    ----------
    node : str
        Where it is bound to; empty for one that waits.
    needs : dict of str to float
        What it asks for besides GPUs; of every host port, 1.
    claims : bool
        Whether it has volumes of persistent volume claims.
    gang, gang_size : str, int
        Label, empty for a pod on its own; 0 where no size is stated.
    deletion_s : float
        When it is to be gone that was deleted; infinite for others.
    begun_s : float
        When it began to run, or was made.
    odd : str
        Why it cannot be placed whatever it says; or empty.
    """

    name: str
    namespace: str
    uid: str
    scheduler: str
    node: str
    phase: str
    gpus: int
    needs: dict[str, float]
    claims: bool
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

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.namespace}/{self.name}"

    @property
    def ended(self) -> bool:
        """Whether it has run to its end."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def leaving(self) -> bool:
        """Whether it was deleted, and has not gone yet."""
        return self.deletion_s < inf

    @property
    def waiting(self) -> bool:
        """Whether it is to be bound to a node."""
        return not self.node and not self.ended and not self.leaving

    @property
    def present(self) -> bool:
        """Whether it uses what it asked for of its node."""
        return bool(self.node) and not self.ended


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
    """Read what the API said.

    Parameters
    ----------
    snapshot : mapping
        ``time`` in seconds since 1970, and objects: ``nodes`` and ``pods``.
    gpu_label : str
        Label of nodes that names their GPUs.

    Raises
    ------
    InputError
        Where it is not what the API says. A pod that cannot be read is no reason to go on without it.
    """
    try:
        found = validated(_Objects, {"nodes": snapshot["nodes"], "pods": snapshot["pods"]}, "Kubernetes")
        nodes = {node.metadata.name: _node(node, gpu_label) for node in found.nodes if _gpus(node)}
        pods = {pod.metadata.uid or _key(pod): _pod(pod) for pod in found.pods}
        ports = {what for pod in pods.values() for what in pod.needs if what.startswith(_HOST_PORT)}
        for node in nodes.values():
            node.room.update(dict.fromkeys(ports, 1.0))
        return Site(float(snapshot["time"]), nodes, pods)
    except (ValueError, TypeError, OverflowError) as error:
        raise InputError([f"the answer of the API cannot be read: {error}"]) from None


def read_node(document: Any, gpu_label: str = f"{GPU}.product") -> KubeNode:
    """Read one node.

    Raises
    ------
    InputError
        Where it is none.
    """
    try:
        return _node(validated(_Node, document), gpu_label)
    except (TypeError, OverflowError) as error:
        raise InputError([f"Node: cannot be read: {error}"]) from None


def read_pod(document: Any) -> KubePod:
    """Read one pod.

    Raises
    ------
    InputError
        Where it is none.
    """
    try:
        return _pod(validated(_Pod, document))
    except (TypeError, OverflowError) as error:
        raise InputError([f"Pod: cannot be read: {error}"]) from None


def _key(pod: _Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _whole(number: float) -> int:
    if not 0 <= number <= 1_000_000:
        raise InputError([f"{GPU}: there cannot be {number:g} GPUs"])
    return int(number)


def _gpus(node: _Node) -> int:
    """GPUs of a node, broken ones among them."""
    return _whole(max(node.status.capacity.get(GPU, 0.0), node.status.allocatable.get(GPU, 0.0)))


def _node(row: _Node, gpu_label: str) -> KubeNode:
    gpus, offered = _gpus(row), _whole(row.status.allocatable.get(GPU, 0.0))
    ready = any(one.type == "Ready" and one.status == "True" for one in row.status.conditions)
    return KubeNode(
        name=row.metadata.name,
        product=row.metadata.labels.get(gpu_label) or UNLABELLED,
        gpus=gpus,
        broken=gpus - offered,
        room={name: most for name, most in row.status.allocatable.items() if name != GPU},
        labels=row.metadata.labels,
        taints=tuple(taint for taint in row.spec.taints if taint.effect in _CLOSING),
        ready=ready and not row.spec.unschedulable,
    )


def _pod(row: _Pod) -> KubePod:
    metadata, spec = row.metadata, row.spec
    needs = _needs(spec)
    gpus = _whole(ceil(needs.pop(GPU, 0.0)))
    constraints = constraints_of(spec.selector, spec.affinity, spec.tolerations)
    odd = constraints.odd
    if spec.gates:
        odd = "has scheduling gates"
    elif any(_hard(one) for one in spec.spread):
        odd = "has topologySpreadConstraints, which are not looked at"
    size = metadata.labels.get(GANG_SIZE) or metadata.annotations.get(GANG_SIZE) or "0"
    if not re.fullmatch(r"\d{1,6}", size):
        size, odd = "0", f"{GANG_SIZE}: must be a whole number, got {shown(size)}"
    created_s = metadata.creation_s or 0.0
    return KubePod(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid or _key(row),
        scheduler=spec.scheduler or "default-scheduler",
        node=spec.node or "",
        phase=row.status.phase or "Pending",
        gpus=gpus,
        needs=needs,
        claims=any(one.claim is not None or one.template is not None for one in spec.volumes),
        labels=metadata.labels,
        annotations=metadata.annotations,
        gang=metadata.labels.get(GANG, ""),
        gang_size=int(size),
        constraints=constraints,
        created_s=created_s,
        begun_s=row.status.start_s or created_s,
        deletion_s=inf if metadata.deletion_s is None else metadata.deletion_s,
        limit_s=spec.limit_s if spec.limit_s is not None and spec.limit_s > 0 else inf,
        odd=odd,
    )


def _hard(spread: Any) -> bool:
    """Whether a spread constraint is more than a wish."""
    return not (isinstance(spread, dict) and spread.get("whenUnsatisfiable") == "ScheduleAnyway")


def _needs(spec: _PodSpec) -> dict[str, float]:
    """What a pod takes of a node: its containers together, or the largest of those that run before them."""
    sidecars = [_asked(one) for one in spec.first if one.restart == "Always"]
    together = _summed([*(_asked(one) for one in spec.containers), *sidecars])
    alone = [_asked(one) for one in spec.first if one.restart != "Always"]
    names = {name for needs in (together, *alone) for name in needs}
    largest = {name: max(needs.get(name, 0.0) for needs in (together, *alone)) for name in names}
    listening = [*spec.containers, *(one for one in spec.first if one.restart == "Always")]
    # Those of different addresses of a node would do beside each other; few pods name addresses.
    ports = {
        f"{_HOST_PORT} {port.host}/{port.protocol or 'TCP'}"
        for one in listening
        for port in one.ports
        if port.host
    }
    return _summed([largest, spec.overhead, {"pods": 1.0}, dict.fromkeys(ports, 1.0)])


def _asked(container: _Container) -> dict[str, float]:
    return {**container.resources.limits, **container.resources.requests}


def _summed(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0.0) + amount
    return total
