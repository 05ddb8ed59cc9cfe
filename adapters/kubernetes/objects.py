"""Objects of the API as it writes them, as far as anybody looks at them."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from wattsched.adapters.kubernetes.constraints import Taint, Toleration
from wattsched.instances.errors import shown

ItemT = TypeVar("ItemT")

_QUANTITY = re.compile(r"([+-]?[0-9.]{1,30})(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?")
_SUFFIXES = {
    "": 1.0,
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
}
_SUFFIXES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}


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


def _nothing_for_null(value: Any) -> Any:
    return [] if value is None else value


Quantity = Annotated[float, BeforeValidator(quantity), Field(allow_inf_nan=False)]
Resources = Annotated[dict[str, Quantity], BeforeValidator(_none_is_empty)]
Texts = Annotated[dict[str, str], BeforeValidator(_none_is_empty)]
Several = Annotated[list[ItemT], BeforeValidator(_nothing_for_null)]
"""A list, empty where the API says null."""
Moment = Annotated[float | None, BeforeValidator(_time_s)]


class KubeObject(BaseModel):
    """A part of an object of the API; what else it has is not looked at."""

    model_config = ConfigDict(extra="ignore")


class Metadata(KubeObject):
    """Names, labels and times."""

    name: str
    namespace: str = "default"
    uid: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    creation_s: Annotated[Moment, Field(alias="creationTimestamp")] = None
    deletion_s: Annotated[Moment, Field(alias="deletionTimestamp")] = None


class Needs(KubeObject):
    """Resources that a container asks for."""

    requests: Resources = {}
    limits: Resources = {}


class Port(KubeObject):
    """Port of a container."""

    host: Annotated[int | None, Field(alias="hostPort")] = None
    protocol: str | None = None


class Container(KubeObject):
    """Container of a pod."""

    resources: Needs = Needs()
    ports: Several[Port] = []
    restart: Annotated[str | None, Field(alias="restartPolicy")] = None


class Volume(KubeObject):
    """Volume of a pod, as far as it ties it to a node."""

    claim: Annotated[Any, Field(alias="persistentVolumeClaim")] = None
    template: Annotated[Any, Field(alias="ephemeral")] = None


class PodSpec(KubeObject):
    """Specification of a pod: all that it asks for."""

    node: Annotated[str | None, Field(alias="nodeName")] = None
    scheduler: Annotated[str | None, Field(alias="schedulerName")] = None
    containers: Several[Container] = []
    first: Annotated[Several[Container], Field(alias="initContainers")] = []
    overhead: Resources = {}
    claims: Annotated[Several[Any], Field(alias="resourceClaims")] = []
    gates: Annotated[Several[Any], Field(alias="schedulingGates")] = []
    limit_s: Annotated[float | None, Field(alias="activeDeadlineSeconds")] = None
    selector: Annotated[Texts, Field(alias="nodeSelector")] = {}
    affinity: Any = None
    spread: Annotated[Several[Any], Field(alias="topologySpreadConstraints")] = []
    tolerations: Several[Toleration] = []
    volumes: Several[Volume] = []


class PodStatus(KubeObject):
    """Status of a pod: its phase, and when it began."""

    phase: str | None = None
    start_s: Annotated[Moment, Field(alias="startTime")] = None


class Pod(KubeObject):
    """Pod."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class NodeSpec(KubeObject):
    """Specification of a node, as an administrator sets it."""

    unschedulable: bool | None = None
    taints: Several[Taint] = []


class Condition(KubeObject):
    """Condition that a node reports of itself."""

    type: str
    status: str


class NodeStatus(KubeObject):
    """Resources and state of a node."""

    allocatable: Resources = {}
    capacity: Resources = {}
    conditions: Several[Condition] = []


class Node(KubeObject):
    """Node."""

    metadata: Metadata
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Nodes(KubeObject):
    """Nodes of a cluster."""

    nodes: list[Node]
