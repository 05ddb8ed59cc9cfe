"""The cluster: GPU types, nodes, the groups above them and the power domains across them."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

Name = Annotated[str, Field(min_length=1, max_length=200)]
# Beyond these ranges solvers take a number for infinite, or lose it in rounding.
LARGEST = 1e12
Positive = Annotated[float, Field(gt=0, le=LARGEST, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=LARGEST, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]


class Strict(BaseModel):
    """Base of every file model: unknown fields and silent conversions are errors."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, ser_json_inf_nan="constants")


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

    idle_power_w: NonNegative
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
    base_power_w: NonNegative = 0.0
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
        faults = [
            *_duplicate_names(self),
            *_unknown_references(self),
            *_cycles(self.groups),
            *_bad_gpu_indices(self.nodes),
        ]
        # The domains of a node can be told only once its ancestors are known to exist.
        if faults or (faults := _unequal_labels(self)):
            raise ValueError("; ".join(faults))
        return self

    @property
    def total_gpus(self) -> int:
        """GPUs of the cluster that are available to jobs."""
        return sum(node.gpus - len(node.unavailable) for node in self.nodes)

    def ancestors(self, name: str | None) -> list[str]:
        """Names of the groups from `name` (included) up to the root; reads all groups on each call."""
        parents = {group.name: group.parent for group in self.groups}
        path: list[str] = []
        while name is not None:
            path.append(name)
            name = parents[name]
        return path

    def domain_names(self) -> dict[str, tuple[str, ...]]:
        """Power domains of every group and node, its own and those of the groups above it, in file order."""
        order = {domain.name: i for i, domain in enumerate(self.power_domains)}
        own: dict[str, set[str]] = defaultdict(set)
        for domain in self.power_domains:
            for member in domain.members:
                own[member].add(domain.name)
        parents = {group.name: group.parent for group in self.groups}
        parents |= {node.name: node.parent for node in self.nodes}
        names: dict[str, tuple[str, ...]] = {}
        for start in parents:
            path = []
            name: str | None = start
            while name is not None and name not in names:
                path.append(name)
                name = parents[name]
            inherited = names[name] if name is not None else ()
            for below in reversed(path):
                inherited = tuple(sorted(own.get(below, set()).union(inherited), key=order.__getitem__))
                names[below] = inherited
        return names


def _duplicate_names(cluster: Cluster) -> list[str]:
    places = Counter([node.name for node in cluster.nodes] + [group.name for group in cluster.groups])
    domains = Counter(domain.name for domain in cluster.power_domains)
    return [
        *(
            f"the name '{n}' is used for more than one node or group"
            for n, uses in places.items()
            if uses > 1
        ),
        *(f"duplicate power domain '{name}'" for name, n in domains.items() if n > 1),
    ]


def _unknown_references(cluster: Cluster) -> list[str]:
    groups = {group.name for group in cluster.groups}
    places = groups | {node.name for node in cluster.nodes}
    faults = [
        f"{kind} '{item.name}' has the unknown parent '{item.parent}'"
        for kind, items in (("group", cluster.groups), ("node", cluster.nodes))
        for item in items
        if item.parent is not None and item.parent not in groups
    ]
    faults += [
        f"node '{node.name}' has the unknown gpu_type '{node.gpu_type}'"
        for node in cluster.nodes
        if node.gpu_type not in cluster.gpu_types
    ]
    faults += [
        f"power domain '{domain.name}' has the unknown member '{member}'"
        for domain in cluster.power_domains
        for member in domain.members
        if member not in places
    ]
    return faults


def _cycles(groups: list[Group]) -> list[str]:
    parents = {group.name: group.parent for group in groups}
    safe: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        name: str | None = start
        while name is not None and name in parents and name not in safe:
            if name in path:
                above = list(path)
                loop = [*above[above.index(name) :], name]
                return [f"the groups form a cycle: {' -> '.join(loop)}"]
            path[name] = None
            name = parents[name]
        safe.update(path)
    return []


def _bad_gpu_indices(nodes: list[Node]) -> list[str]:
    faults = []
    for node in nodes:
        if len(set(node.unavailable)) != len(node.unavailable):
            faults.append(f"node '{node.name}' lists an unavailable GPU twice")
        faults += [
            f"node '{node.name}' has no GPU {gpu}, it has {node.gpus}"
            for gpu in node.unavailable
            if gpu >= node.gpus
        ]
    return faults


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
