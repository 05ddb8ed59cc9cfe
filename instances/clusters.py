"""Clusters to start from when only their size is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from wattsched.instances.errors import require_known, require_range
from wattsched.instances.gpu_parts import boards_of, unused_idle_w
from wattsched.topology.cluster import Cluster, GpuType, GroupColumns, Node, NodeColumns, PowerDomain
from wattsched.topology.column import NONE, Coded

GPU_TYPES = {
    "A100": GpuType(idle_power_w=50.0, max_power_w=400.0, memory_gib=80.0),
    "V100": GpuType(idle_power_w=30.0, max_power_w=300.0, memory_gib=32.0),
    "P100": GpuType(idle_power_w=25.0, max_power_w=250.0, memory_gib=16.0),
    "T4": GpuType(idle_power_w=10.0, max_power_w=70.0, memory_gib=16.0),
    "A40": GpuType(idle_power_w=30.0, max_power_w=300.0, memory_gib=48.0),
    "H100": GpuType(idle_power_w=70.0, max_power_w=700.0, memory_gib=80.0),
    "H200": GpuType(idle_power_w=80.0, max_power_w=700.0, memory_gib=141.0),
    "B200": GpuType(idle_power_w=137.0, max_power_w=1000.0, memory_gib=180.0),
    "MI300X": GpuType(idle_power_w=150.0, max_power_w=750.0, memory_gib=192.0),
    "L40S": GpuType(idle_power_w=24.0, max_power_w=350.0, memory_gib=48.0),
}
"""Watts of PWR (Lettich et al., CCGrid 2025); the A40, which it lacks, idles as its other board of 300 W.

Of the newer types the limits of the data sheets (SXM and OAM boards), and idle watts of listings in public:
H100 67 to 73 W, H200 80.3 W, B200 137 W, L40S 24 W; that of the MI300X is assumed, a fifth of the limit.
"""

BASE_POWER_W = 200.0
"""Draw of a server without its GPUs where nothing is known: two CPU packages, memory and fans (assumed)."""

SERVER_POWER_W = dict.fromkeys(("H100", "H200", "B200", "MI300X"), 1500.0)
"""The same of a server of eight GPUs of today: what is left of the watts of liquid-cooled nodes of H100 and
B200 in MLPerf, as docs/performance-models.md tells; with air it is about 3,200 W."""


def server_power_w(kinds: Mapping[str, int]) -> float:
    """Draw to assume of a server without its GPUs, of some types; today's in proportion to the boards."""
    each_w = {name.lower(): watts / 8 for name, watts in SERVER_POWER_W.items()}
    boards = boards_of(kinds).items()
    return max(BASE_POWER_W, sum(each_w.get(model, 0.0) * number for model, number in boards))


def known_gpu_type(name: str) -> GpuType:
    """GPU type by name; ValueError when its watts are not known."""
    require_known("gpu_type", name, GPU_TYPES)
    return GPU_TYPES[name]


def spelt_as_known(name: str, known: Iterable[str] = GPU_TYPES) -> str:
    """Name of a known GPU type that is the same but for its case, or the name itself."""
    return next((one for one in known if one.lower() == name.lower()), name)


def numbered(prefix: str, count: int) -> list[str]:
    """Names whose alphabetical order is that of their numbers: ``job00`` to ``job99``."""
    digits = len(str(count - 1))
    return [f"{prefix}{i:0{digits}d}" for i in range(count)]


def homogeneous_cluster(
    nodes: int = 2,
    gpus_per_node: int = 8,
    gpu_type: str = "A100",
    *,
    kind: GpuType | None = None,
    nodes_per_rack: int = 4,
    base_power_w: float | None = None,
    name: str = "cluster",
) -> Cluster:
    """Build a cluster of equal nodes under racks.

    Parameters
    ----------
    kind : GpuType, optional
        What is known of the GPU type, where that is not one of `GPU_TYPES`.
    nodes_per_rack : int
        The last rack takes what is left.
    base_power_w : float, optional
        Of a node without its GPUs; default: `server_power_w`. What parts leave of boards comes on top.

    Raises
    ------
    ValueError
        For an unknown GPU type or a count below 1.
    """
    counts = {"nodes": nodes, "gpus_per_node": gpus_per_node, "nodes_per_rack": nodes_per_rack}
    for field, value in counts.items():
        require_range(value >= 1, field, "at least 1", value)
    names, kind = numbered("node", nodes), kind or known_gpu_type(gpu_type)
    kinds = {gpu_type: gpus_per_node}
    base_w = server_power_w(kinds) if base_power_w is None else base_power_w
    base_w += unused_idle_w(kinds, {gpu_type: kind})
    # As many digits as the nodes have.
    racks = [f"rack{node.removeprefix('node')}" for node in names[: -(-nodes // nodes_per_rack)]]
    return Cluster(
        name=name,
        gpu_types={gpu_type: kind},
        nodes=NodeColumns(
            {
                "name": names,
                "gpu_type": Coded(np.zeros(nodes, dtype=np.int64), [gpu_type]),
                "gpus": np.full(nodes, gpus_per_node),
                "parent": Coded(np.arange(nodes) // nodes_per_rack, racks),
                "base_power_w": np.full(nodes, float(base_w)),
            }
        ).listed(),
        groups=GroupColumns(
            {
                "name": ["site", *racks],
                "level": Coded(np.array([0, *[1] * len(racks)]), ["site", "rack"]),
                "parent": Coded(np.array([NONE, *[0] * len(racks)]), ["site"]),
            }
        ).listed(),
    )


def with_rack_caps(cluster: Cluster, fraction: float) -> Cluster:
    """Cap every rack by a power domain at a fraction of its full draw; ValueError if it idles at more."""
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
    cluster: Cluster, fraction: float, nodes: Sequence[Node] | None = None, *, field: str = "power_fraction"
) -> float:
    """Watts that are a fraction of the full draw of nodes (default: all).

    Raises
    ------
    ValueError
        When the idle nodes draw more than that; it calls the fraction by the name of its field.
    """
    nodes = cluster.nodes if nodes is None else nodes
    full, idle = full_power_w(cluster, nodes), idle_power_w(cluster, nodes)
    words = f"at least {idle / full:.2f}, the idle draw as a part of the full draw"
    require_range(full * fraction >= idle, field, words, fraction)
    return round(full * fraction, 1)


def full_power_w(cluster: Cluster, nodes: Sequence[Node]) -> float:
    """Draw of nodes with every available GPU at its board limit."""
    return _power_w(nodes, {name: t.max_power_w or t.idle_power_w for name, t in cluster.gpu_types.items()})


def idle_power_w(cluster: Cluster, nodes: Sequence[Node]) -> float:
    """Draw of nodes on which nothing runs."""
    return _power_w(nodes, {name: kind.idle_power_w for name, kind in cluster.gpu_types.items()})


def _power_w(nodes: Sequence[Node], gpu_w: dict[str, float]) -> float:
    """Watts of nodes and what others draw there, with each available GPU at the watts of its type."""
    known = NodeColumns.from_records(nodes)
    kind = known.coded("gpu_type")
    each_w = np.array([gpu_w[name] for name in kind.values])[kind.codes]
    servers_w = known.numbers("base_power_w") + known.numbers("reserved_w")
    return float((servers_w + known.available * each_w).sum())
