"""The networkx tree of a cluster and the way back."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest

from wattsched.topology.cluster import Cluster, GpuType, Group, Node, PowerDomain
from wattsched.topology.tree import cluster_from_tree, tree

ClusterMaker = Callable[[random.Random, int], Cluster]


def site() -> Cluster:
    return Cluster(
        name="site-1",
        gpu_types={
            "A100": GpuType(idle_power_w=50.0, max_power_w=400.0, frequencies_mhz=[1410, 900]),
            "T4": GpuType(idle_power_w=10.0),
        },
        groups=[
            Group(name="r1", level="rack", parent="pod", bandwidth_gbps=400.0),
            Group(name="pod", level="pod", bandwidth_gbps=1600.0),
            Group(name="empty"),
        ],
        nodes=[
            Node(name="b", gpu_type="T4", gpus=2, parent="r1", pool="old", bandwidth_gbps=25.0),
            Node(name="a", gpu_type="A100", gpus=3, unavailable=[2, 0], bandwidth_gbps=10.0),
            Node(name="c", gpu_type="A100", gpus=1, parent="pod", base_power_w=300.0, reserved_w=70.0),
        ],
        power_domains=[
            PowerDomain(name="pdu", members=["r1", "a"], power_cap_w=5e3, reserved_w=40.0),
            PowerDomain(name="hall", members=["pod"], power_cap_w=9e3),
        ],
    )


def test_vertices_and_edges_say_what_the_cluster_says() -> None:
    graph = tree(site())
    assert nx.is_forest(graph)
    assert graph.edges["pod", "r1"] == {"bandwidth_gbps": 400.0}
    assert graph.edges["r1", "b"] == {"bandwidth_gbps": 25.0}
    assert graph.edges["b", "b/1"] == graph.edges["pod", "c"] == {}
    assert graph.nodes["r1"] == {"level": "rack", "power_domains": ["hall", "pdu"]}
    assert graph.nodes["a/2"] == {
        "level": "gpu", "gpu_type": "A100", "index": 2, "available": False, "power_domains": ["pdu"],
        "idle_power_w": 50.0, "max_power_w": 400.0,
    }  # fmt: skip
    assert sum(level == "gpu" for _, level in graph.nodes(data="level")) == 6


def test_trees_read_back(random_cluster: ClusterMaker) -> None:
    assert cluster_from_tree(tree(site())) == site()
    rng = random.Random("tree")
    for _ in range(50):
        cluster = random_cluster(rng, 40)
        assert cluster_from_tree(tree(cluster)) == cluster


def test_a_tree_needs_few_attributes() -> None:
    graph: nx.DiGraph[str] = nx.DiGraph(gpu_types={"A100": {"idle_power_w": 50.0}})
    graph.add_node("rack", level="rack")
    for node in ("n0", "n1"):
        graph.add_node(node, level="node")
        graph.add_edge("rack", node)
        for gpu in range(4):
            graph.add_node(f"{node}:{gpu}", level="gpu", gpu_type="A100")
            graph.add_edge(node, f"{node}:{gpu}")
    assert cluster_from_tree(graph) == Cluster(
        gpu_types={"A100": GpuType(idle_power_w=50.0)},
        groups=[Group(name="rack", level="rack")],
        nodes=[Node(name=name, gpu_type="A100", gpus=4, parent="rack") for name in ("n0", "n1")],
    )


def cycle(graph: Any) -> None:
    graph.remove_edge("pod", "r1")
    graph.add_edges_from([("pod", "r1"), ("r1", "pod")])


def rename_type(graph: Any) -> None:
    graph.nodes["c"]["gpu_type"] = "H100"
    graph.nodes["c/0"].clear()
    graph.nodes["c/0"].update(level="gpu", gpu_type="H100")


FAULTS: dict[str, Callable[[Any], object]] = {
    "cycle: pod -> r1 -> pod|cycle: r1 -> pod -> r1": cycle,
    "'b' has several parents: r1, pod": lambda g: g.add_edge("pod", "b"),
    "vertex 'r1' lacks the attribute 'level'": lambda g: g.nodes["r1"].pop("level"),
    "'a/0' lacks the attribute 'gpu_type'": lambda g: g.nodes["a/0"].pop("gpu_type"),
    "lacks the attribute 'gpu_types'": lambda g: g.graph.pop("gpu_types"),
    "'level' of vertex 'r1' must be text, not 3": lambda g: g.nodes["r1"].update(level=3),
    "unknown gpu_type 'H100'": rename_type,
    "node 'a' has several GPU types: A100, T4": lambda g: g.nodes["a"].update(gpu_type="T4"),
    "node 'c' has no GPUs": lambda g: g.remove_node("c/0"),
    "GPU 'c/0' is not below a node": lambda g: (
        g.remove_edge("c", "c/0") or g.add_edge("pod", "c/0") or g.remove_node("c")
    ),
    "'r1' is below 'c', which is no group": lambda g: g.remove_edge("pod", "r1") or g.add_edge("c", "r1"),
    "numbered from 0 to 2": lambda g: g.nodes["a/0"].update(index=1),
    "GPU 'a/0' has idle_power_w 60, its type 'A100' has 50": lambda g: g.nodes["a/0"].update(idle_power_w=60),
    "vertex 'b' has the power_domains \\[\\], not": lambda g: g.nodes["b"].update(power_domains=[]),
}  # fmt: skip


@pytest.mark.parametrize("message", FAULTS)
def test_faulty_trees_are_told(message: str) -> None:
    graph = tree(site())
    FAULTS[message](graph)
    with pytest.raises(ValueError, match=message):
        cluster_from_tree(graph)


def test_names_and_levels_that_a_tree_cannot_have() -> None:
    types = {"A100": GpuType(idle_power_w=50.0)}
    nodes = [Node(name="n", gpu_type="A100", gpus=2)]
    with pytest.raises(ValueError, match="group 'g' has the level 'node'"):
        tree(Cluster(gpu_types=types, nodes=nodes, groups=[Group(name="g", level="node")]))
    with pytest.raises(ValueError, match="the name 'n/1' is needed for GPU 1 of node 'n'"):
        tree(Cluster(gpu_types=types, nodes=nodes, groups=[Group(name="n/1")]))
