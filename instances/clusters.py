"""Clusters to start from when only their size is known."""

from __future__ import annotations

from collections import defaultdict

from wattsched.topology.cluster import Cluster, GpuType, Group, Node, PowerDomain

GPU_TYPES = {
    "A100": GpuType(idle_power_w=50.0, max_power_w=400.0, memory_gib=80.0),
    "V100": GpuType(idle_power_w=30.0, max_power_w=300.0, memory_gib=32.0),
    "P100": GpuType(idle_power_w=25.0, max_power_w=250.0, memory_gib=16.0),
    "T4": GpuType(idle_power_w=10.0, max_power_w=70.0, memory_gib=16.0),
    "A40": GpuType(idle_power_w=30.0, max_power_w=300.0, memory_gib=48.0),
}
"""GPU types with the watts of PWR (Lettich et al., CCGrid 2025); A40 idles as V100, the other 300 W board."""

BASE_POWER_W = 200.0
"""Draw of a server without its GPUs where nothing is known: two CPU packages, memory and fans (assumed)."""


def known_gpu_type(name: str) -> GpuType:
    """GPU type by name.

    Raises
    ------
    ValueError
        When the watts of the type are not known.
    """
    if name not in GPU_TYPES:
        raise ValueError(f"gpu_type: '{name}' is not known, choose one of {', '.join(GPU_TYPES)}")
    return GPU_TYPES[name]


def homogeneous_cluster(
    nodes: int = 64,
    gpus_per_node: int = 8,
    gpu_type: str = "A100",
    *,
    nodes_per_rack: int = 4,
    base_power_w: float = BASE_POWER_W,
    rack_power_fraction: float | None = None,
    name: str = "cluster",
) -> Cluster:
    """Build a cluster of equal nodes under racks.

    Parameters
    ----------
    nodes_per_rack : int
        The last rack takes what is left.
    rack_power_fraction : float, optional
        Caps every rack at this fraction of its full draw; by default racks have no cap.

    Raises
    ------
    ValueError
        For an unknown GPU type or a count below 1.
    """
    for field, value in (
        ("nodes", nodes),
        ("gpus_per_node", gpus_per_node),
        ("nodes_per_rack", nodes_per_rack),
    ):
        if value < 1:
            raise ValueError(f"{field}: must be at least 1, got {value}")
    kind = known_gpu_type(gpu_type)
    digits = len(str(nodes - 1))
    racks = [f"rack{r:0{digits}d}" for r in range(-(-nodes // nodes_per_rack))]
    members = [
        Node(
            name=f"node{i:0{digits}d}",
            gpu_type=gpu_type,
            gpus=gpus_per_node,
            parent=racks[i // nodes_per_rack],
            base_power_w=base_power_w,
        )
        for i in range(nodes)
    ]
    cluster = Cluster(
        name=name,
        gpu_types={gpu_type: kind},
        nodes=members,
        groups=[
            Group(name="site", level="site"),
            *(Group(name=r, level="rack", parent="site") for r in racks),
        ],
    )
    return cluster if rack_power_fraction is None else with_rack_caps(cluster, rack_power_fraction)


def with_rack_caps(cluster: Cluster, fraction: float) -> Cluster:
    """Give every rack a power domain capped at a fraction of its full draw.

    Raises
    ------
    ValueError
        When the idle rack draws more than that.
    """
    below: dict[str | None, list[Node]] = defaultdict(list)
    for node in cluster.nodes:
        below[node.parent].append(node)
    domains = []
    for group in cluster.groups:
        if nodes := below.get(group.name):
            cap = capped_power_w(cluster, fraction, nodes, field="rack_power_fraction")
            domains.append(PowerDomain(name=f"{group.name}-feed", members=[group.name], power_cap_w=cap))
    return cluster.model_copy(update={"power_domains": domains})


def capped_power_w(
    cluster: Cluster, fraction: float, nodes: list[Node] | None = None, *, field: str = "power_fraction"
) -> float:
    """Watts that are a fraction of the full draw of nodes (default: all).

    Parameters
    ----------
    field : str
        What the fraction is called where it comes from, for the message.

    Raises
    ------
    ValueError
        When the idle nodes draw more than that.
    """
    nodes = cluster.nodes if nodes is None else nodes
    full, idle = full_power_w(cluster, nodes), idle_power_w(cluster, nodes)
    if not full * fraction >= idle:
        raise ValueError(
            f"{field}: must be at least {idle / full:.2f}, the idle draw as a part of the full draw, "
            f"got {fraction}"
        )
    return round(full * fraction, 1)


def full_power_w(cluster: Cluster, nodes: list[Node]) -> float:
    """Draw of nodes with every available GPU at its board limit."""
    types = cluster.gpu_types
    return sum(
        node.base_power_w
        + (node.gpus - len(node.unavailable))
        * (types[node.gpu_type].max_power_w or types[node.gpu_type].idle_power_w)
        for node in nodes
    )


def idle_power_w(cluster: Cluster, nodes: list[Node]) -> float:
    """Draw of nodes on which nothing runs."""
    types = cluster.gpu_types
    return sum(
        node.base_power_w + (node.gpus - len(node.unavailable)) * types[node.gpu_type].idle_power_w
        for node in nodes
    )
