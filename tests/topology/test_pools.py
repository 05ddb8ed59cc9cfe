"""Pools: what they hold, what they are called, and how their GPUs lie on the line."""

from __future__ import annotations

import csv
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from wattsched.topology.cluster import Cluster, GpuType, Group, Node, PowerDomain
from wattsched.topology.pools import pools_of

ClusterMaker = Callable[[random.Random, int], Cluster]
TYPES = {"A100": GpuType(idle_power_w=50.0), "V100": GpuType(idle_power_w=40.0)}


def cluster(*nodes: Node, racks: int = 0, domains: dict[str, list[str]] | None = None) -> Cluster:
    return Cluster(
        gpu_types=TYPES,
        nodes=list(nodes),
        groups=[Group(name=f"r{i}", level="rack") for i in range(racks)],
        power_domains=[
            PowerDomain(name=name, members=members, power_cap_w=1e4)
            for name, members in (domains or {}).items()
        ],
    )


def node(name: str, gpus: int = 8, gpu_type: str = "A100", **more: object) -> Node:
    return Node.model_validate({"name": name, "gpu_type": gpu_type, "gpus": gpus, **more})


def names(of: Cluster) -> list[str]:
    return [pool.name for pool in pools_of(of)]


def test_names_say_what_tells_pools_apart() -> None:
    assert names(cluster(node("a"), node("b", gpu_type="V100"), node("c"))) == ["A100", "V100"]
    assert names(cluster(node("a", 8), node("b", 4))) == ["A100x8", "A100x4"]
    fed = cluster(
        node("a", parent="r0"), node("b", parent="r1"), node("c"), racks=2,
        domains={"pdu1": ["r1", "r0"], "pdu0": ["r0"]},
    )  # fmt: skip
    assert names(fed) == ["A100@pdu1+pdu0", "A100@pdu1", "A100@none"]
    assert [pool.domains for pool in pools_of(fed)] == [("pdu1", "pdu0"), ("pdu1",), ()]
    both = cluster(node("a", 8, parent="r0"), node("b", 4), racks=1, domains={"pdu": ["r0"]})
    assert names(both) == ["A100x8@pdu", "A100x4@none"]


def test_names_stay_clear_of_labels_and_types() -> None:
    assert names(cluster(node("a", pool="fast"), node("b"))) == ["fast", "A100x8"]
    assert names(cluster(node("a", pool="A100x8"), node("b"))) == ["A100x8", "A100x8@none"]
    assert names(cluster(node("a", pool="A100x4"), node("b", 4), node("c"))) == [
        "A100x4", "A100x4@none", "A100x8",
    ]  # fmt: skip
    types = {**TYPES, "A100x8": TYPES["A100"]}
    typed = Cluster(gpu_types=types, nodes=[node("a"), node("b", 4), node("c", gpu_type="A100x8")])
    assert names(typed) == ["A100x8@none", "A100x4", "A100x8"]


def test_nodes_with_one_label_must_agree() -> None:
    with pytest.raises(ValidationError, match="pool 'p': node 'b' has gpus 4, node 'a' has 8"):
        cluster(node("a", pool="p"), node("b", 4, pool="p"))
    with pytest.raises(ValidationError, match="node 'b' has gpu_type V100, node 'a' has A100"):
        cluster(node("a", pool="p"), node("b", gpu_type="V100", pool="p"))
    with pytest.raises(ValidationError, match=r"node 'b' has power domains \['d'\], node 'a' has \[\]"):
        cluster(node("a", pool="p"), node("b", pool="p"), domains={"d": ["b"]})
    with pytest.raises(ValidationError, match="label 'V100' of node 'a' is the name of another GPU type"):
        cluster(node("a", pool="V100"))


def test_structural_blocks_follow_the_tree() -> None:
    def sizes(of: Cluster) -> list[int]:
        (pool,) = pools_of(of)
        return pool.blocks[:, 1].tolist()

    assert sizes(cluster(node("a", 6))) == [4, 2]
    assert sizes(cluster(node("a", 6), node("b", 6))) == [4, 4, 2, 2]
    assert sizes(cluster(*[node(f"n{i}", 8) for i in range(7)])) == [32, 16, 8]
    racks = [node(f"n{i}", 4, parent=f"r{i // 3}") for i in range(6)]
    assert sizes(cluster(*racks, racks=2)) == [8, 8, 4, 4], "racks of three are not whole"
    racks = [node(f"n{i}", 4, parent=f"r{i // 2}") for i in range(6)]
    assert sizes(cluster(*racks, racks=3)) == [16, 8]
    uneven = [node("a", 4, parent="r0"), node("b", 4, parent="r0"), node("c", 4, parent="r1"), node("d", 4)]
    assert sizes(cluster(*uneven, racks=2)) == [8, 8], "a rack of one node equals a node"


def test_blocks_keep_neighbours_together() -> None:
    nodes = [node(f"n{i}", 2, parent=f"r{i % 2}") for i in range(4)]
    (pool,) = pools_of(cluster(*nodes, racks=2))
    assert [pool.nodes[i] for i in pool.node_index] == ["n0"] * 2 + ["n2"] * 2 + ["n1"] * 2 + ["n3"] * 2
    assert pool.largest_block == 8


def test_lines_hold_every_gpu_once(random_cluster: ClusterMaker) -> None:
    rng = random.Random("lines")
    for _ in range(200):
        made = random_cluster(rng, 60)
        (pool,) = pools_of(made)
        places = list(zip(pool.node_index.tolist(), pool.gpu_index.tolist(), strict=True))
        assert sorted(places) == [(n, g) for n in range(len(pool.nodes)) for g in range(pool.gpus_per_node)]
        starts, sizes = pool.blocks[:, 0], pool.blocks[:, 1]
        assert (starts % sizes == 0).all()
        assert (starts == np.cumsum(sizes) - sizes).all()
        assert all(size.bit_count() == 1 for size in sizes.tolist())
        for position, (n, gpu) in enumerate(places):
            assert pool.positions(pool.nodes, np.array([n]), np.array([gpu])).tolist() == [position]
            assert pool.gpus_at([position]) == {pool.nodes[n]: [gpu]}
            assert pool.available[position] == (gpu not in made.nodes[n].unavailable)


def test_unknown_places_are_told() -> None:
    (pool,) = pools_of(cluster(node("a")))
    with pytest.raises(ValueError, match="pool 'A100' has no node 'b'"):
        pool.positions(["b"], np.array([0]), np.array([0]))
    with pytest.raises(ValueError, match="node 'a' has no GPU 8, it has 8"):
        pool.positions(["a"], np.array([0]), np.array([8]))


def test_pools_of_a_production_cluster(data_dir: Path) -> None:
    path = data_dir / "alibaba-gpu-2023" / "openb_node_list_gpu_node.csv"
    if not path.is_file():
        pytest.skip(f"{path} is absent")
    with path.open() as file:
        rows = list(csv.DictReader(file))
    made = Cluster(
        gpu_types={row["model"]: GpuType(idle_power_w=30.0) for row in rows},
        nodes=[node(row["sn"], int(row["gpu"]), row["model"]) for row in rows],
    )
    pools = pools_of(made)
    gpus = {pool.name: pool.n_gpus for pool in pools}
    assert gpus == {
        "P100x2": 262, "P100x1": 3, "T4x2": 774, "T4x4": 68, "A10": 2, "G2": 4392, "G3": 312,
        "V100M16x1": 19, "V100M16x4": 112, "V100M16x8": 64, "V100M32x4": 36, "V100M32x8": 168,
    }  # fmt: skip
    assert sum(gpus.values()) == made.total_gpus == 6212
    nodes = Counter((row["model"], int(row["gpu"])) for row in rows)
    for pool in pools:
        assert len(pool.nodes) == nodes[pool.gpu_type, pool.gpus_per_node]
    first = {pool.name: pool.blocks[:, 1].tolist() for pool in pools}
    assert first["G2"] == [4096, 256, 32, 8], "549 nodes of 8 GPUs are 512 + 32 + 4 + 1"
