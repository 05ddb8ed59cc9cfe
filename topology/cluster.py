"""The cluster: GPU types, nodes, the groups above them and the power domains across them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, BaseModel, Discriminator, Field, Tag, model_validator

from wattsched.topology.arrays import IntArray
from wattsched.topology.column import NONE, Coded
from wattsched.topology.columns import COLUMNS, ROWS, RecordColumns, form_of
from wattsched.topology.fields import ALL, EACH, Count, GpuNumber, Name, Positive, Standing, Strict
from wattsched.topology.remembered import remembered

MOST_GPUS = 10_000_000

Capacity = Literal["blocks", "nodes", "count"]
"""Unit in which jobs take GPUs: aligned blocks; GPUs of one node, or whole nodes and one part; any GPUs."""


class GpuType(Strict):
    """A GPU model as the cluster has it.

    Attributes
    ----------
    idle_power_w : float
        Draw of one GPU on which nothing runs.
    max_power_w : float, optional
        Board power limit of one GPU, `idle_power_w` or more. Jobs with a performance model never draw more:
        where the model says so, the GPU clocks down and the rate falls. Tables of options are taken as they
        are.
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

    @model_validator(mode="after")
    def _idle_within_the_board(self) -> Self:
        if self.max_power_w is not None and self.max_power_w < self.idle_power_w:
            fault = f"max_power_w {self.max_power_w:g} is below idle_power_w {self.idle_power_w:g}"
            raise ValueError(f"{fault}: an idle GPU draws no more than its board may")
        return self

    def limits_of_stand_in(self, limits_w: list[float] | None) -> list[float] | None:
        """Power limits (this type's own by default) in the watts of the stand-in's profiles."""
        limits_w = limits_w or self.power_limits_w
        return None if limits_w is None else [limit / self.power_factor for limit in limits_w]

    @property
    def max_power_of_stand_in_w(self) -> float | None:
        """Board power limit in the watts of the stand-in's profiles."""
        return None if self.max_power_w is None else self.max_power_w / self.power_factor


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
        Draw of the server without its GPUs.
    reserved_w : float
        Draw of jobs on the node that are not of this instance, on its unavailable GPUs; always counted.
    sleeps : bool
        Whether it draws nothing as long as no job is there: neither its base power nor the idle draw of its
        GPUs.
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
    reserved_w: Standing = 0.0
    unavailable: Annotated[list[GpuNumber], AfterValidator(sorted)] = []
    sleeps: bool = False
    pool: Name | None = None
    bandwidth_gbps: Positive | None = None


class GroupColumns(RecordColumns[Group]):
    """Groups by column."""

    record: ClassVar[type[BaseModel]] = Group
    key: ClassVar[str] = "name"


class NodeColumns(RecordColumns[Node]):
    """Nodes by column."""

    record: ClassVar[type[BaseModel]] = Node
    key: ClassVar[str] = "name"

    def sound(self) -> Self:
        """Return itself; a ValueError where there is none."""
        if not len(self):
            raise ValueError("must not be empty")
        return self

    @cached_property
    def broken(self) -> tuple[IntArray, IntArray]:
        """Number of the node of each unavailable GPU, and of the GPU on that node, ascending."""
        unavailable = self.coded("unavailable")
        some = np.flatnonzero(unavailable.where(bool)).tolist()
        pairs = [(i, gpu) for i in some for gpu in unavailable.values[unavailable.codes[i]]]
        node, gpu = np.array(pairs, dtype=np.int64).reshape(-1, 2).T
        return node, gpu

    @cached_property
    def available(self) -> IntArray:
        """GPUs of each node that take jobs, shape (n_nodes,)."""
        node, _ = self.broken
        return self.counts("gpus") - np.bincount(node, minlength=len(self))


class PowerDomain(Strict):
    """A set of groups and nodes that share one power cap (a PDU, a rack feed).

    Attributes
    ----------
    reserved_w : float
        What is drawn through it besides its nodes, such as by switches or by nodes outside the instance.
    """

    name: Name
    members: list[Name]
    power_cap_w: Positive
    reserved_w: Standing = 0.0


class Cluster(Strict):
    """The tree of a site with its GPU types and power domains.

    Attributes
    ----------
    capacity : str, or dict of str to str
        What jobs take of every pool, or of some by the name of the pool or its GPU type; of others blocks.

    Raises
    ------
    pydantic.ValidationError
        For duplicate names, unknown parents or members, a cycle among the groups, unavailable
        GPUs that the node does not have, and nodes that share a pool label but differ.
    """

    name: Name = "cluster"
    gpu_types: dict[Name, GpuType]
    nodes: Annotated[
        Annotated[list[Node], Field(min_length=1), Tag(ROWS)] | Annotated[NodeColumns, Tag(COLUMNS)],
        Discriminator(form_of),
    ]
    groups: Annotated[
        Annotated[list[Group], Tag(ROWS)] | Annotated[GroupColumns, Tag(COLUMNS)], Discriminator(form_of)
    ] = []
    power_domains: list[PowerDomain] = []
    capacity: Annotated[
        Annotated[Capacity, Tag(ALL)] | Annotated[dict[Name, Capacity], Tag(EACH)],
        Discriminator(lambda value: EACH if isinstance(value, dict) else ALL),
    ] = "blocks"

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        """Refuse a cluster whose parts contradict each other."""
        nodes, groups, parents = self.node_columns(), self.group_columns(), self.parents()
        gpus = int(nodes.counts("gpus").sum())
        circle = loop(parents) if len(top_down(parents)) < len(parents) else []
        faults = [
            *_duplicate_names(nodes, groups, self.power_domains),
            *_unknown_references(self, nodes, groups),
            *([f"the groups form a cycle: {' -> '.join(circle)}"] if circle else []),
            *_bad_gpu_indices(nodes),
            # Pools lay every GPU on a line.
            *([f"has {gpus:,} GPUs, at most {MOST_GPUS:,} are read"] if gpus > MOST_GPUS else []),
        ]
        # The domains of a node are known only once its ancestors are known to exist.
        if faults or (faults := _unequal_labels(self, nodes)):
            raise ValueError("; ".join(faults))
        return self

    def capacity_of(self, pool: str, gpu_type: str) -> Capacity:
        """Return the unit in which jobs take GPUs of a pool; see `Capacity`."""
        if isinstance(self.capacity, str):
            return self.capacity
        return self.capacity.get(pool) or self.capacity.get(gpu_type) or "blocks"

    @remembered
    def node_columns(self) -> NodeColumns:
        """Nodes by column."""
        return NodeColumns.from_records(self.nodes)

    @remembered
    def group_columns(self) -> GroupColumns:
        """Groups by column."""
        return GroupColumns.from_records(self.groups)

    @property
    def total_gpus(self) -> int:
        """GPUs of the cluster that are available to jobs."""
        return int(self.node_columns().available.sum())

    def parents(self) -> dict[str, str | None]:
        """Group to the group above it, in file order."""
        groups = self.group_columns()
        return dict(zip(groups.names, groups.coded("parent").tolist(), strict=True))

    def domain_names(self) -> dict[str, tuple[str, ...]]:
        """Power domains of every group and node, its own and those of the groups above it, in file order."""
        of_group = self._domains_of_groups()
        of_nodes = zip(self.node_columns().names, self.node_domains().tolist(), strict=True)
        return {name: self._names_of(of_group[name]) for name in self.parents()} | dict(of_nodes)

    def node_domains(self) -> Coded:
        """Power domains of the nodes, tuples of names, as `domain_names` has them."""
        nodes, of_group, own = self.node_columns(), self._domains_of_groups(), self._own_domains()
        parent = nodes.coded("parent")
        number: dict[tuple[int, ...], int] = {}
        # The last is for nodes without a parent, whose code is -1.
        above = [number.setdefault(of_group[name], len(number)) for name in (*parent.values, None)]
        codes, values = np.array(above, dtype=np.int64)[parent.codes], list(number)
        for i in [i for i, name in enumerate(nodes.names) if name in own] if own else []:
            domains = tuple(sorted({*values[codes[i]], *own[nodes.names[i]]}))
            codes[i] = number.setdefault(domains, len(number))
            values += [domains] if len(number) > len(values) else []
        return Coded(codes, [self._names_of(domains) for domains in values])

    def _domains_of_groups(self) -> dict[str | None, tuple[int, ...]]:
        """Numbers of the power domains of every group, with those above it; of no group there are none."""
        own, above = self._own_domains(), self.parents()
        found: dict[str | None, tuple[int, ...]] = {None: ()}
        for name in top_down(above):
            inherited = found[above[name]]
            found[name] = tuple(sorted({*inherited, *own[name]})) if name in own else inherited
        return found

    def _own_domains(self) -> dict[str, list[int]]:
        """Numbers of the power domains that name a group or node itself."""
        own: dict[str, list[int]] = defaultdict(list)
        for number, domain in enumerate(self.power_domains):
            for member in domain.members:
                own[member].append(number)
        return dict(own)

    def _names_of(self, domains: tuple[int, ...]) -> tuple[str, ...]:
        return tuple(self.power_domains[number].name for number in domains)


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
        _, names = error.args
        return list(reversed(names))
    return []


def _duplicate_names(nodes: NodeColumns, groups: GroupColumns, domains: list[PowerDomain]) -> Iterator[str]:
    """Yield a fault for every name of several places, or of several power domains."""
    places, feeds = [*nodes.names, *groups.names], [domain.name for domain in domains]
    for names, fault in (
        (places, "the name '{}' is used for more than one node or group"),
        (feeds, "duplicate power domain '{}'"),
    ):
        if len(set(names)) < len(names):
            yield from (fault.format(name) for name, n in Counter(names).items() if n > 1)


def _unknown_references(cluster: Cluster, nodes: NodeColumns, groups: GroupColumns) -> Iterator[str]:
    """Yield a fault for every parent, GPU type and member of a power domain that does not exist."""
    above = set(groups.names)
    yield from _unknown("group", groups, "parent", above)
    yield from _unknown("node", nodes, "parent", above)
    yield from _unknown("node", nodes, "gpu_type", cluster.gpu_types)
    if cluster.power_domains:
        places = above.union(nodes.names)
        for domain in cluster.power_domains:
            strange = [member for member in domain.members if member not in places]
            yield from (f"power domain '{domain.name}' has the unknown member '{name}'" for name in strange)


def _unknown(kind: str, records: RecordColumns[Any], field: str, known: Collection[str]) -> Iterator[str]:
    column = records.coded(field)
    for i in np.flatnonzero(column.where(lambda name: name not in known)).tolist():
        yield f"{kind} '{records.names[i]}' has the unknown {field} '{column.values[column.codes[i]]}'"


def _bad_gpu_indices(nodes: NodeColumns) -> Iterator[str]:
    """Yield a fault for every unavailable GPU that is listed twice, or that its node does not have."""
    node, gpu = nodes.broken
    names, gpus = nodes.names, nodes.counts("gpus")
    twice = (node[1:] == node[:-1]) & (gpu[1:] == gpu[:-1])
    for i, g in dict.fromkeys(zip(node[1:][twice].tolist(), gpu[1:][twice].tolist(), strict=True)):
        yield f"node '{names[i]}' lists an unavailable GPU twice: {g}"
    for k in np.flatnonzero(gpu >= gpus[node]).tolist():
        yield f"node '{names[node[k]]}' has no GPU {gpu[k]}, it has {gpus[node[k]]}"


def _unequal_labels(cluster: Cluster, nodes: NodeColumns) -> list[str]:
    """Return a fault for nodes that share a pool label and differ, and for labels of another GPU type."""
    label = nodes.coded("pool")
    domains, faults = cluster.node_domains(), []
    first: dict[str, tuple[Node, tuple[str, ...]]] = {}
    for i in np.flatnonzero(label.codes != NONE).tolist():
        name, node = label.values[label.codes[i]], nodes[i]
        model, expected_domains = first.setdefault(name, (node, domains.values[domains.codes[i]]))
        if name in cluster.gpu_types and name != node.gpu_type:
            faults.append(f"the pool label '{name}' of node '{node.name}' is the name of another GPU type")
        faults += [
            f"pool '{name}': node '{node.name}' has {what} {value}, node '{model.name}' has {expected}"
            for what, value, expected in (
                ("gpu_type", node.gpu_type, model.gpu_type),
                ("gpus", node.gpus, model.gpus),
                ("power domains", list(domains.values[domains.codes[i]]), list(expected_domains)),
            )
            if value != expected
        ]
    return faults
