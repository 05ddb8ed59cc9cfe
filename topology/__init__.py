"""The tree of the cluster, its pools of interchangeable GPUs, and their buddy blocks."""

from wattsched.topology.allocation import Allocation, Request, allocate
from wattsched.topology.buddy import block_size, fits, free_by_level
from wattsched.topology.cluster import Cluster, GpuType, Group, Node, PowerDomain
from wattsched.topology.pools import Pool, pools_of

__all__ = [
    "Allocation",
    "Cluster",
    "GpuType",
    "Group",
    "Node",
    "Pool",
    "PowerDomain",
    "Request",
    "allocate",
    "block_size",
    "fits",
    "free_by_level",
    "pools_of",
]
