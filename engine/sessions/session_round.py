"""The round of a session as it changes: its fields, nodes down and up, GPUs and watts that others use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from math import inf, isinf
from pathlib import Path
from typing import Any, Final, Self, TypeVar

from pydantic import model_validator

from wattsched.instances.errors import InputError, validated
from wattsched.instances.signals import Moment, Signal, read_signal
from wattsched.instances.sizing.instance import PER_KWH, Instance
from wattsched.sessions.session_columns import plain
from wattsched.topology.cluster import Cluster, Node, PowerDomain
from wattsched.topology.fields import Strict

FIELDS = ("round_s", "change_cost", *PER_KWH.values(), "tenants", "objective")
"""Fields of a round, beside its budgets."""

LIMITS = ("power_w", "energy_j", "carbon_g", "least_goodput", *PER_KWH.values())
"""Fields of a round and its budgets that None takes away."""

STATED = ("scope", "round_s", "change_cost", "tenants")
"""Others, of which None says nothing."""

# A round by which fields are validated that do not depend on jobs and cluster.
_SMALLEST = {
    "cluster": {
        "gpu_types": {"A": {"idle_power_w": 0.0}},
        "nodes": [{"name": "n", "gpu_type": "A", "gpus": 1}],
    },
    "jobs": [],
}


class Same:
    """Default of an argument that leaves a value as it is; None takes a limit away."""


SAME: Final = Same()
Limit = float | None | Same


def changed_fields(now: Instance, stated: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of a round, its budgets among them, with those that are stated in place of what it has now.

    An InputError with every fault.
    """
    budgets = {name: stated.get(name, value) for name, value in now.budgets}
    fields = {name: stated.get(name, getattr(now, name)) for name in FIELDS}
    sound = validated(Instance, {**_SMALLEST, **fields, "budgets": budgets})
    return {name: getattr(sound, name) for name in ("budgets", *FIELDS)}


@contextmanager
def gathered(faults: list[str]) -> Iterator[None]:
    """Add what this block raises as faults to a list instead, so that all are told at once."""
    try:
        yield
    except InputError as error:
        faults += str(error).split("\n")  # with the file, where there is one
    except ValueError as error:
        faults.append(str(error))


class Following(Strict):
    """A signal that a session follows, and when its round begins."""

    signal: Signal | None = None
    now: Moment | None = None

    @model_validator(mode="after")
    def _in_time(self) -> Self:
        if self.signal is not None and self.now is None:
            raise ValueError("now: is needed with a signal, as a session has no clock")
        if self.signal is not None and self.now and self.signal.until and self.now >= self.signal.until:
            raise ValueError(f"signal.until: it counted until {self.signal.until}, and now is {self.now}")
        return self

    def told(self, signal: Any, now: datetime | str | None) -> Following:
        """Follow another signal, or its file, from a time on; `SAME` and None leave them as they are."""
        read = read_signal(signal) if isinstance(signal, str | Path) else plain(signal)
        fields = {"signal": self.signal if read is SAME else read, "now": self.now if now is None else now}
        return validated(Following, fields)

    def limited(self, round: Instance) -> Instance:
        """Return a round with the least of its own caps and of the limits until it ends.

        Raises
        ------
        InputError
            For a limit of a power domain that its cluster does not have.
        """
        if self.signal is None or self.now is None:
            return round
        domains, now_s = round.cluster.power_domains, self.now.timestamp()
        try:
            limits = self.signal.limits_on([domain.name for domain in domains])
        except InputError as error:
            raise InputError([f"signal.{fault}" for fault in error.faults]) from None
        least_w = {name: limit.least_from(now_s, round.round_s) for name, limit in limits.items()}
        site_w = min(least_w[""], inf if round.budgets.power_w is None else round.budgets.power_w)
        lower = [
            domain.model_copy(update={"power_cap_w": min(domain.power_cap_w, least_w.get(domain.name, inf))})
            for domain in domains
        ]
        budgets = round.budgets.model_copy(update={"power_w": None if isinf(site_w) else site_w})
        cluster = round.cluster
        if lower != domains:  # what is known of a cluster is kept with it
            cluster = cluster.model_copy(update={"power_domains": lower})
        return round.model_copy(update={"budgets": budgets, "cluster": cluster})


PlaceT = TypeVar("PlaceT", Node, PowerDomain)


def document_of(cluster: Cluster | Mapping[str, Any]) -> dict[str, Any]:
    """A cluster as a file has it, without what was left to defaults."""
    return cluster.model_dump(exclude_unset=True) if isinstance(cluster, Cluster) else dict(plain(cluster))


@dataclass(frozen=True)
class Site:
    """A cluster, of which some nodes are down.

    Attributes
    ----------
    cluster : Cluster
        With all GPUs of nodes that are down as unavailable.
    unavailable : dict of str to list of int
        GPUs that are unavailable of each node that is up, or will be when it is up again.
    down : frozenset of str
        Nodes that are down.
    """

    cluster: Cluster
    unavailable: dict[str, list[int]]
    down: frozenset[str] = frozenset()

    @classmethod
    def of(cls, cluster: Cluster) -> Site:
        """A cluster all of whose nodes are up."""
        return cls(cluster, {node.name: node.unavailable for node in cluster.nodes})

    def replaced(self, cluster: Cluster | Mapping[str, Any]) -> Site:
        """Another cluster, with this one's capacity where it does not state its own.

        Raises
        ------
        InputError
            With every fault.
        """
        document = {"capacity": self.cluster.capacity, **document_of(cluster)}
        try:
            return Site.of(validated(Cluster, document))
        except InputError as error:
            raise InputError([f"cluster.{fault}" for fault in error.faults]) from None

    def changed(
        self,
        reserved_w: Mapping[str, float],
        down: Sequence[str],
        up: Sequence[str],
        unavailable: Mapping[str, Sequence[int]],
    ) -> Site:
        """Return the site with other loads, nodes that are gone or back, and other GPUs unavailable.

        Raises
        ------
        InputError
            With every fault.
        """
        if faults := list(self._faults(reserved_w, down, up, unavailable)):
            raise InputError(faults)
        broken = self.unavailable | {name: list(plain(gpus)) for name, gpus in unavailable.items()}
        gone = (self.down - {*up}) | {*down}
        touched, nodes = {*down, *up, *unavailable}, []
        for node in self.cluster.nodes:
            changes: dict[str, Any] = {}
            if node.name in touched:
                every = list(range(node.gpus))
                changes["unavailable"] = every if node.name in gone else broken[node.name]
            nodes.append(_loaded(node, reserved_w, changes))
        fed = [_loaded(domain, reserved_w, {}) for domain in self.cluster.power_domains]
        changed = self.cluster.model_copy(update={"nodes": nodes, "power_domains": fed})
        return Site(changed, broken, frozenset(gone))

    def _faults(
        self,
        reserved_w: Mapping[str, float],
        down: Sequence[str],
        up: Sequence[str],
        unavailable: Mapping[str, Sequence[int]],
    ) -> Iterator[str]:
        """Yield what is wrong with the arguments of `changed`."""
        for field, names in (("down", down), ("up", up), ("unavailable", unavailable)):
            for name in names:
                if name not in self.unavailable:
                    yield f"{field}: '{name}' is no node of the cluster"
        domains = {domain.name for domain in self.cluster.power_domains}
        for name in reserved_w:
            if name not in self.unavailable and name not in domains:
                yield f"reserved_w: '{name}' is neither a node nor a power domain"
        yield from (f"node '{name}' is said to be down and up" for name in sorted({*down} & {*up}))
        if unavailable:
            gpus = {node.name: node.gpus for node in self.cluster.nodes if node.name in unavailable}
            for name in gpus:
                yield from _faults_of(name, unavailable[name], gpus[name])


def _faults_of(name: str, numbers: Any, gpus: int) -> Iterator[str]:
    """Yield the faults of numbers that are to be the unavailable GPUs of a node."""
    listed = plain(numbers)
    stated = f"unavailable: node '{name}'"
    if not isinstance(listed, list) or not all(type(gpu) is int for gpu in listed):
        yield f"{stated} must have a list of numbers of GPUs, got {numbers!r:.80}"
    elif strange := [gpu for gpu in listed if not 0 <= gpu < gpus]:
        yield f"{stated} has no GPU {strange[0]}, it has {gpus}"
    elif len(set(listed)) < len(listed):
        yield f"{stated} lists a GPU twice"


def _loaded(place: PlaceT, reserved_w: Mapping[str, float], changes: dict[str, Any]) -> PlaceT:
    """A node or a power domain with changes, and what others draw there; changes are validated."""
    if place.name in reserved_w:
        changes = {**changes, "reserved_w": reserved_w[place.name]}
    if not changes:
        return place
    try:
        return validated(type(place), {**place.model_dump(), **changes})
    except InputError as error:
        kind = "node" if isinstance(place, Node) else "power domain"
        raise InputError([f"{kind} '{place.name}': {fault}" for fault in error.faults]) from None
