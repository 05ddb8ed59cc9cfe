"""The cluster: GPU types, nodes, the groups above them and the power domains across them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from wattsched.topology.fields import Count, Name, Positive, Standing, Strict

MOST_GPUS = 10_000_000


class GpuType(Strict):
    """A GPU model as the cluster has it.

    Attributes
    ----------
    idle_power_w : float
        Draw of one GPU on which nothing runs.
    max_power_w : float, optional
        Board power limit of one GPU, for display and for default power limits.
    frequencies_mhz, power_limits_w : list, optional
        The settings the operator allows; None leaves the choice to the performance profile.
    profile : str, optional
        GPU type whose catalogue profiles stand in for this one (default: its own name).
    speed_factor, power_factor : float
        What the stand-in's rate and watts (power limits included) are multiplied with.
    memory_gib : float, optional
        Memory of one GPU.
    """

    idle_power_w: Standing
    max_power_w: Positive | None = None
    frequencies_mhz: list[Count] | None = None
    power_limits_w: list[Positive] | None = None
    profile: Name | None = None
    speed_factor: Positive = 1.0
    power_factor: Positive = 1.0
    memory_gib: Positive | None = None

    def limits_of_stand_in(self, limits_w: list[float] | None) -> list[float] | None:
        """Power limits (this type's own by default) in the watts of the stand-in's profiles."""
        limits_w = limits_w or self.power_limits_w
        return None if limits_w is None else [limit / self.power_factor for limit in limits_w]


class Group(Strict):
    """A vertex of the tree above the nodes: site, pod, rack, or any other level.

    ``bandwidth_gbps`` is the capacity of its uplink to the parent.
    """

    name: Name
    level: Name = "group"
    parent: Name | None = None
    bandwidth_gbps: Positive | None = None


class Node(Strict):
    """A server with GPUs of one type, numbered from 0.

    Attributes
    ----------
    unavailable : list of int
        GPUs that are broken or used by somebody outside this instance, kept in ascending order. They
        take no job and their watts are not counted.
    base_power_w : float
        Draw of the server without its GPUs, always counted.
    pool : str, optional
        Puts the node into a named pool; otherwise pools are derived (`topology.pools`). Nodes with one
        label must be interchangeable: same GPU type, GPU count and power domains.
    bandwidth_gbps : float, optional
        Uplink to the parent group.
    """

    name: Name
    gpu_type: Name
    gpus: Count
    parent: Name | None = None
    base_power_w: Standing = 0.0
    unavailable: list[Annotated[int, Field(ge=0)]] = []
    pool: Name | None = None
    bandwidth_gbps: Positive | None = None

    @field_validator("unavailable")
    @classmethod
    def _ascending(cls, value: list[int]) -> list[int]:
        return sorted(value)


class PowerDomain(Strict):
    """A set of groups and nodes that share one power cap (a PDU, a rack feed)."""

    name: Name
    members: list[Name]
    power_cap_w: Positive


class Cluster(Strict):
    """The tree of a site with its GPU types and power domains.

    Raises
    ------
    pydantic.ValidationError
        For duplicate names, unknown parents or members, a cycle among the groups, unavailable
        GPUs that the node does not have, and nodes that share a pool label but differ.
    """

    name: Name = "cluster"
    gpu_types: dict[Name, GpuType]
    nodes: Annotated[list[Node], Field(min_length=1)]
    groups: list[Group] = []
    power_domains: list[PowerDomain] = []

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        circle = loop(self.parents())
        faults = [
            *_duplicate_names(self),
            *_unknown_references(self),
            *([f"the groups form a cycle: {' -> '.join(circle)}"] if circle else []),
            *_bad_gpu_indices(self.nodes),
            *_too_many_gpus(self.nodes),
        ]
        # The domains of a node can be told only once its ancestors are known to exist.
        if faults or (faults := _unequal_labels(self)):
            raise ValueError("; ".join(faults))
        return self

    @property
    def total_gpus(self) -> int:
        """GPUs of the cluster that are available to jobs."""
        return sum(node.gpus - len(node.unavailable) for node in self.nodes)

    def parents(self) -> dict[str, str | None]:
        """Group to the group above it, in file order."""
        return {group.name: group.parent for group in self.groups}

    def domain_names(self) -> dict[str, tuple[str, ...]]:
        """Power domains of every group and node, its own and those of the groups above it, in file order."""
        order = {domain.name: i for i, domain in enumerate(self.power_domains)}
        own: dict[str, list[str]] = defaultdict(list)
        for domain in self.power_domains:
            for member in domain.members:
                own[member].append(domain.name)
        above = self.parents() | {node.name: node.parent for node in self.nodes}
        names: dict[str | None, tuple[str, ...]] = {None: ()}
        for name in [*top_down(self.parents()), *(node.name for node in self.nodes)]:
            domains = names[above[name]]
            if name in own:
                domains = tuple(sorted({*domains, *own[name]}, key=order.__getitem__))
            names[name] = domains
        return {name: names[name] for name in above}


def top_down(parents: Mapping[str, str | None]) -> list[str]:
    """Names in an order in which parents precede their children, and siblings keep theirs."""
    children: dict[str | None, list[str]] = defaultdict(list)
    for name, parent in parents.items():
        children[parent].append(name)
    names = [*children[None]]
    for name in names:  # grows meanwhile
        names += children.get(name, ())
    return names


def loop(parents: Mapping[str, str | None]) -> list[str]:
    """Names each of which is below the next, from one to itself; none if there is no such circle."""
    try:
        TopologicalSorter({name: (parent,) for name, parent in parents.items()}).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def _duplicate_names(cluster: Cluster) -> list[str]:
    places = Counter([node.name for node in cluster.nodes] + [group.name for group in cluster.groups])
    domains = Counter(domain.name for domain in cluster.power_domains)
    return [
        *(f"the name '{n}' is used for more than one node or group" for n in places if places[n] > 1),
        *(f"duplicate power domain '{n}'" for n in domains if domains[n] > 1),
    ]


def _unknown_references(cluster: Cluster) -> list[str]:
    groups = {None, *(group.name for group in cluster.groups)}
    places = groups | {node.name for node in cluster.nodes}
    types = cluster.gpu_types
    unknown = [
        *(("group", g.name, "parent", g.parent) for g in cluster.groups if g.parent not in groups),
        *(("node", n.name, "parent", n.parent) for n in cluster.nodes if n.parent not in groups),
        *(("node", n.name, "gpu_type", n.gpu_type) for n in cluster.nodes if n.gpu_type not in types),
        *(
            ("power domain", domain.name, "member", member)
            for domain in cluster.power_domains
            for member in domain.members
            if member not in places
        ),
    ]
    return [f"{kind} '{name}' has the unknown {what} '{to}'" for kind, name, what, to in unknown]


def _bad_gpu_indices(nodes: list[Node]) -> list[str]:
    twice = [node for node in nodes if len(set(node.unavailable)) != len(node.unavailable)]
    absent = [(node, gpu) for node in nodes for gpu in node.unavailable if gpu >= node.gpus]
    return [
        *(f"node '{node.name}' lists an unavailable GPU twice" for node in twice),
        *(f"node '{node.name}' has no GPU {gpu}, it has {node.gpus}" for node, gpu in absent),
    ]


def _too_many_gpus(nodes: list[Node]) -> list[str]:
    """Pools lay every GPU on a line."""
    gpus = sum(node.gpus for node in nodes)
    return [f"has {gpus:,} GPUs, at most {MOST_GPUS:,} are read"] if gpus > MOST_GPUS else []


def _unequal_labels(cluster: Cluster) -> list[str]:
    labelled = [node for node in cluster.nodes if node.pool is not None]
    if not labelled:
        return []
    domains = cluster.domain_names()
    first: dict[str, Node] = {}
    faults = []
    for node in labelled:
        label = str(node.pool)
        model = first.setdefault(label, node)
        if label in cluster.gpu_types and label != node.gpu_type:
            faults.append(f"the pool label '{label}' of node '{node.name}' is the name of another GPU type")
        faults += [
            f"pool '{label}': node '{node.name}' has {what} {value}, node '{model.name}' has {expected}"
            for what, value, expected in (
                ("gpu_type", node.gpu_type, model.gpu_type),
                ("gpus", node.gpus, model.gpus),
                ("power domains", list(domains[node.name]), list(domains[model.name])),
            )
            if value != expected
        ]
    return faults
