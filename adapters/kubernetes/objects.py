"""Objects of the API as it writes them, as far as anybody looks at them, and the nodes that pods may have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BeforeValidator, ConfigDict, Field

from wattsched.adapters.parts import Part, at
from wattsched.instances.errors import MOST_FAULTS, InputError, shown, validated

ItemT = TypeVar("ItemT")

MOST_CONDITIONS = 500
"""Labels, values and tolerations of a pod that are looked at, for every node."""

_QUANTITY = re.compile(r"([+-]?[0-9.]{1,30})(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei|[eE][+-]?[0-9]{1,3})?")
_SUFFIXES = {"": 1.0, "n": 1e-9, "u": 1e-6, "m": 1e-3}
_SUFFIXES |= {letter: 1000.0**power for power, letter in enumerate("kMGTPE", start=1)}
_SUFFIXES |= {f"{letter}i": 1024.0**power for power, letter in enumerate("KMGTPE", start=1)}


def quantity(text: Any) -> float:
    """Value of a quantity such as ``500m`` or ``512Gi``."""
    found = _QUANTITY.fullmatch(str(text))
    if found is None or isinstance(text, bool):
        raise ValueError(f"must be a quantity, got {shown(text)}")
    number, suffix = found[1], found[2] or ""
    return float(number) * (_SUFFIXES[suffix] if suffix in _SUFFIXES else float(f"1{suffix}"))


def _time_s(value: Any) -> Any:
    """Seconds since 1970 of a time that is a text; anything else is left to its validator."""
    if not isinstance(value, str):
        return value
    if (moment := datetime.fromisoformat(value)).tzinfo is None:
        raise ValueError(f"must be a time with its zone, got {shown(value)}")
    return moment.timestamp()


def with_kinds(document: Any) -> list[dict[str, Any]]:
    """Items of a list, each with its kind, which the API's own lists name once; an InputError if unclear."""
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise InputError(["is no list such as 'kubectl get nodes,pods -A -o json' prints"])
    version, own = document.get("apiVersion"), str(document.get("kind") or "").removesuffix("List")
    found, faults = list[dict[str, Any]](), list[str]()
    for number, item in enumerate(items):
        is_pod, is_node = "containers" in part_of(item, "spec"), "allocatable" in part_of(item, "status")
        kind = item.get("kind") or own or ("Pod" if is_pod else "Node" if is_node else "")
        found.append({"apiVersion": version, **item, "kind": kind})
        if not isinstance(kind, str) or not kind:
            faults.append(f"items[{number}]: has no kind, and is neither a pod nor a node")
        elif "api_version" in item or "creation_timestamp" in part_of(item, "metadata"):
            faults.append(f"items[{number}]: has keys in snake_case, not in camelCase as kubectl -o json has")
    if faults:
        raise InputError(faults[:MOST_FAULTS])
    return found


def part_of(item: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return the metadata, spec or status of an object; empty where it is no object itself."""
    return part if isinstance(part := item.get(name), dict) else {}


_empty_object = BeforeValidator(lambda value: {} if value is None else value)
_empty_list = BeforeValidator(lambda value: [] if value is None else value)
Quantity = Annotated[float, BeforeValidator(quantity), Field(allow_inf_nan=False)]
Resources = Annotated[dict[str, Quantity], _empty_object]
Texts = Annotated[dict[str, str], _empty_object]
Several = Annotated[list[ItemT], _empty_list]
"""A list, empty where the API says null."""
Moment = Annotated[float | None, BeforeValidator(_time_s)]


class _Frozen(Part):
    model_config = ConfigDict(frozen=True)


class Taint(_Frozen):
    """A taint of a node."""

    key: str
    value: str | None = None
    effect: str = ""


class Toleration(_Frozen):
    """Taints that a pod may be placed beside."""

    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None

    def covers(self, taint: Taint) -> bool:
        """True if it lets a taint pass."""
        if self.effect and self.effect != taint.effect:
            return False
        if self.operator == "Exists":
            return not self.key or self.key == taint.key
        return self.key == taint.key and (self.value or "") == (taint.value or "")


class Metadata(Part):
    """Names, labels and times."""

    name: str
    namespace: str = "default"
    uid: str = ""
    labels: Texts = {}
    annotations: Texts = {}
    creation_s: Annotated[Moment, Field(alias="creationTimestamp")] = None
    deletion_s: Annotated[Moment, Field(alias="deletionTimestamp")] = None

    @property
    def named(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name


class Port(Part):
    """Port of a container."""

    host: Annotated[int | None, Field(alias="hostPort")] = None
    protocol: str | None = None


class Container(Part):
    """Container of a pod."""

    requests: Annotated[Resources, at("resources", "requests")] = {}
    limits: Annotated[Resources, at("resources", "limits")] = {}
    ports: Several[Port] = []
    restart: Annotated[str | None, Field(alias="restartPolicy")] = None


class Volume(Part):
    """Volume of a pod, as far as it ties it to a node."""

    claim: Annotated[Any, Field(alias="persistentVolumeClaim")] = None
    template: Annotated[Any, Field(alias="ephemeral")] = None


class Pod(Part):
    """Pod, with all that it asks for."""

    metadata: Metadata
    node: Annotated[str | None, at("spec", "nodeName")] = None
    scheduler: Annotated[str | None, at("spec", "schedulerName")] = None
    requests: Annotated[Resources, at("spec", "resources", "requests")] = {}
    limits: Annotated[Resources, at("spec", "resources", "limits")] = {}
    containers: Annotated[Several[Container], at("spec", "containers")] = []
    first: Annotated[Several[Container], at("spec", "initContainers")] = []
    overhead: Annotated[Resources, at("spec", "overhead")] = {}
    claims: Annotated[Several[Any], at("spec", "resourceClaims")] = []
    gates: Annotated[Several[Any], at("spec", "schedulingGates")] = []
    limit_s: Annotated[float | None, at("spec", "activeDeadlineSeconds")] = None
    selector: Annotated[Texts, at("spec", "nodeSelector")] = {}
    affinity: Annotated[Any, at("spec", "affinity")] = None
    spread: Annotated[Several[Any], at("spec", "topologySpreadConstraints")] = []
    tolerations: Annotated[Several[Toleration], at("spec", "tolerations")] = []
    volumes: Annotated[Several[Volume], at("spec", "volumes")] = []
    phase: Annotated[str | None, at("status", "phase")] = None
    start_s: Annotated[Moment, at("status", "startTime")] = None


class Condition(Part):
    """Condition that a node reports of itself."""

    type: str
    status: str


class Node(Part):
    """Node, with its resources and its state."""

    metadata: Metadata
    unschedulable: Annotated[bool | None, at("spec", "unschedulable")] = None
    taints: Annotated[Several[Taint], at("spec", "taints")] = []
    allocatable: Annotated[Resources, at("status", "allocatable")] = {}
    capacity: Annotated[Resources, at("status", "capacity")] = {}
    conditions: Annotated[Several[Condition], at("status", "conditions")] = []


class _Expression(_Frozen):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] | None = None

    def holds(self, labels: Mapping[str, str]) -> bool:
        """True if a node's labels meet this condition."""
        value, values = labels.get(self.key), self.values or ()
        match self.operator:
            case "In":
                return value in values
            case "NotIn":
                return value not in values
            case "Exists" | "DoesNotExist":
                return (value is None) == (self.operator == "DoesNotExist")
        with suppress(ValueError):
            if value is not None and len(values) == 1:
                return int(value) > int(values[0]) if self.operator == "Gt" else int(value) < int(values[0])
        return False


class _Term(_Frozen):
    labels: tuple[_Expression, ...] | None = Field(None, alias="matchExpressions")
    fields: tuple[_Expression, ...] | None = Field(None, alias="matchFields")


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class _Affinity(_Frozen):
    terms: Annotated[tuple[_Term, ...] | None, at("nodeAffinity", _REQUIRED, "nodeSelectorTerms")] = None
    pods: Annotated[tuple[Any, ...] | None, at("podAffinity", _REQUIRED)] = None
    apart: Annotated[tuple[Any, ...] | None, at("podAntiAffinity", _REQUIRED)] = None


@dataclass(frozen=True)
class Constraints:
    """Nodes that a pod may have.

    Attributes
    ----------
    selector : tuple of pairs
        Labels and their values.
    terms : tuple
        Node affinity, of which one term has to hold; empty where there is none.
    odd : str
        Why it cannot be told; or empty.
    """

    selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[_Term, ...] | None = None
    tolerations: tuple[Toleration, ...] = ()
    odd: str = ""

    def allow(self, name: str, labels: Mapping[str, str], taints: Sequence[Taint]) -> bool:
        """True if a pod may be bound to a node with this name, these labels and these taints."""
        if any(labels.get(key) != value for key, value in self.selector):
            return False
        if any(not any(one.covers(taint) for one in self.tolerations) for taint in taints):
            return False
        named = {"metadata.name": name}
        return self.terms is None or any(
            bool(term.labels or term.fields)
            and all(one.holds(labels) for one in term.labels or ())
            and all(one.holds(named) for one in term.fields or ())
            for term in self.terms
        )


def constraints_of(
    selector: Mapping[str, str], affinity: Any, tolerations: Sequence[Toleration]
) -> Constraints:
    """Constraints of a pod on nodes; `odd` says why they cannot be told, as where there are too many."""
    chosen, tolerated = tuple(sorted(selector.items())), tuple(tolerations)
    try:
        found = validated(_Affinity, affinity or {}, "affinity")
    except InputError as error:
        return Constraints(chosen, None, tolerated, "; ".join(error.faults))
    odd = "has required pod affinity, which is not looked at" if found.pods or found.apart else ""
    size = sum(
        1 + len(one.values or ())
        for term in found.terms or ()
        for one in (*(term.labels or ()), *(term.fields or ()))
    )
    if size + len(tolerated) + len(chosen) > MOST_CONDITIONS:
        odd = f"has more than {MOST_CONDITIONS} conditions on nodes, which are not looked at"
        return Constraints(odd=odd)
    return Constraints(chosen, found.terms, tolerated, odd)
