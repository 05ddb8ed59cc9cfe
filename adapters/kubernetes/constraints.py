"""Constraints on the nodes of a pod: its node selector, required node affinity, and tolerations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from wattsched.instances.errors import InputError, validated

MOST_CONDITIONS = 500
"""Labels, values and tolerations of a pod that are looked at, for every node."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Taint(_Part):
    """A taint of a node."""

    key: str
    value: str | None = None
    effect: str = ""


class Toleration(_Part):
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


class _Expression(_Part):
    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] | None = None

    def holds(self, labels: Mapping[str, str]) -> bool:
        """True if labels are as it says."""
        value, values = labels.get(self.key), self.values or ()
        match self.operator:
            case "In":
                return value is not None and value in values
            case "NotIn":
                return value is None or value not in values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        with suppress(ValueError):
            if value is not None and len(values) == 1:
                return int(value) > int(values[0]) if self.operator == "Gt" else int(value) < int(values[0])
        return False


class _Term(_Part):
    labels: tuple[_Expression, ...] | None = Field(None, alias="matchExpressions")
    fields: tuple[_Expression, ...] | None = Field(None, alias="matchFields")


class _Required(_Part):
    terms: tuple[_Term, ...] = Field((), alias="nodeSelectorTerms")


class _NodeAffinity(_Part):
    required: _Required | None = Field(None, alias="requiredDuringSchedulingIgnoredDuringExecution")


class _PodAffinity(_Part):
    required: tuple[Any, ...] | None = Field(None, alias="requiredDuringSchedulingIgnoredDuringExecution")


class _Affinity(_Part):
    node: _NodeAffinity | None = Field(None, alias="nodeAffinity")
    pod: _PodAffinity | None = Field(None, alias="podAffinity")
    apart: _PodAffinity | None = Field(None, alias="podAntiAffinity")


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
    """Constraints of a pod."""
    chosen, tolerated = tuple(sorted(selector.items())), tuple(tolerations)
    if affinity is None and len(chosen) + len(tolerated) <= MOST_CONDITIONS:
        return Constraints(chosen, None, tolerated)
    try:
        found = validated(_Affinity, affinity or {}, "affinity")
    except InputError as error:
        return Constraints(chosen, None, tolerated, "; ".join(error.faults))
    odd = ""
    if (found.pod and found.pod.required) or (found.apart and found.apart.required):
        odd = "has required pod affinity, which is not looked at"
    required = found.node.required if found.node else None
    size = sum(
        1 + len(one.values or ())
        for term in (required.terms if required else ())
        for one in (*(term.labels or ()), *(term.fields or ()))
    )
    if size + len(tolerated) + len(chosen) > MOST_CONDITIONS:
        told = f"has more than {MOST_CONDITIONS} conditions on nodes, which are not looked at"
        return Constraints(odd=told)
    return Constraints(chosen, required.terms if required else None, tolerated, odd)
