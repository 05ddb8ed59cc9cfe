"""Random clusters that the tests of the topology package share."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from wattsched.topology.cluster import Cluster, GpuType, Group, Node

ClusterMaker = Callable[[random.Random, int], Cluster]


def _random_cluster(rng: random.Random, max_gpus: int) -> Cluster:
    """One pool; racks (and pods) of differing sizes, some nodes beside the racks, broken GPUs."""
    gpus = rng.choice([1, 1, 2, 2, 3, 4, 4, 5, 6, 8])
    n_nodes = rng.randint(1, max(1, max_gpus // gpus))
    pods = [Group(name=f"p{i}", level="pod") for i in range(rng.choice([0, 0, 1, 2, 3]))]
    racks = [
        Group(name=f"r{i}", level="rack", parent=rng.choice(pods).name if pods else None)
        for i in range(rng.randint(1, 4))
    ]
    groups = [*pods, *racks]
    rng.shuffle(groups)
    near = rng.random() < 0.7
    nodes = [
        Node(
            name=f"n{i}",
            gpu_type="A100",
            gpus=gpus,
            parent=(racks[i * len(racks) // n_nodes] if near else rng.choice(groups)).name,
            unavailable=[g for g in range(gpus) if rng.random() < 0.05],
        )
        for i in range(n_nodes)
    ]
    return Cluster(gpu_types={"A100": GpuType(idle_power_w=50.0)}, nodes=nodes, groups=groups)


@pytest.fixture(scope="session")
def random_cluster() -> ClusterMaker:
    """Make a cluster of one pool with at most about the given number of GPUs."""
    return _random_cluster
