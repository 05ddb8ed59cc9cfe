"""Clusters in and out of other programs' files: trees, node-link graphs, Slurm's switches and host lists."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.topology.cluster import Cluster, GpuType, Group, Node, PowerDomain
from wattsched.topology.exchange import compress, expand, from_node_link, from_slurm, to_node_link, to_slurm
from wattsched.topology.pools import pools_of
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


ClusterMaker = Callable[[random.Random, int], Cluster]

CONF = r"""
# Two leaves below a spine.
SwitchName=s0 Nodes=n[0-3]   LinkSpeed=100  # the first
switchname = s1 NODES="n[04-05],login" \
    linkspeed=25

SWITCHNAME=spine Switches=s[0-1]
"""


def test_node_link_reads_back_exactly(random_cluster: ClusterMaker) -> None:
    rng = random.Random("node-link")
    for cluster in [site(), *(random_cluster(rng, 40) for _ in range(50))]:
        text = to_node_link(cluster)
        assert from_node_link(json.loads(text)) == cluster
        assert to_node_link(from_node_link(json.loads(text))) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "must be an object"),
        ('{"directed": true, "edges": []}', "the list 'nodes' is missing"),
        ('{"directed": true, "nodes": []}', "the list 'links' is missing"),
        ('{"nodes": [], "edges": []}', "must be directed"),
        ('{"directed": true, "nodes": [{}], "edges": []}', "'nodes' must hold objects that name id, not {}"),
        ('{"directed": true, "nodes": [], "edges": [3]}', "objects that name source and target, not 3"),
        ('{"directed": true, "nodes": [{"id": "a"}], "edges": []}', "the graph lacks the attribute"),
        (
            '{"directed": true, "graph": {"gpu_types": {}}, "nodes": [{"id": "a"}], "edges": []}',
            "vertex 'a' lacks the attribute 'level'",
        ),
    ],
)
def test_faulty_node_link_is_told(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_node_link(json.loads(text))


def test_damaged_node_link_never_crashes(random_cluster: ClusterMaker) -> None:
    """Whatever replaces a value of the file, the answer is a cluster or a ValueError."""
    rng = random.Random("damage")
    for _ in range(400):
        data = json.loads(to_node_link(random_cluster(rng, 12)))
        spots = [data, data["graph"], *data["nodes"], *data["edges"]]
        spot = rng.choice([spot for spot in spots if spot])
        key = rng.choice(list(spot))
        spot[key] = rng.choice([None, 3, -1.5, "x", [], ["x"], [[]], {}, {"x": 1}, True])
        with contextlib.suppress(ValueError):
            assert from_node_link(data).nodes


def test_slurm_switches_become_groups() -> None:
    cluster = from_slurm(CONF, gpu_type="A100", gpus_per_node=8, idle_power_w=50)
    assert cluster.groups == [
        Group(name="s0", level="switch", parent="spine", bandwidth_gbps=100.0),
        Group(name="s1", level="switch", parent="spine", bandwidth_gbps=25.0),
        Group(name="spine", level="switch"),
    ]
    parents = {node.name: node.parent for node in cluster.nodes}
    assert list(parents) == ["n0", "n1", "n2", "n3", "n04", "n05", "login"]
    assert list(parents.values()) == ["s0"] * 4 + ["s1"] * 3
    (pool,) = pools_of(cluster)
    assert pool.blocks[:, 1].tolist() == [32, 16, 8]


def test_slurm_reads_back() -> None:
    rng = random.Random("slurm")
    for _ in range(50):
        spines = [
            Group(name=f"spine{i}", level="switch", bandwidth_gbps=800.0) for i in range(rng.randint(1, 3))
        ]
        leaves = [
            Group(name=f"leaf{i:02d}", level="switch", parent=spine.name)
            for i, spine in enumerate(s for s in spines for _ in range(rng.randint(1, 4)))
        ]
        nodes = [
            Node(name=f"{leaf.name}-n{i}", gpu_type="A100", gpus=4, parent=leaf.name)
            for leaf in leaves
            for i in rng.sample(range(30), rng.randint(1, 9))
        ]
        cluster = Cluster(
            gpu_types={"A100": GpuType(idle_power_w=50.0)}, groups=[*spines, *leaves], nodes=nodes
        )
        text = to_slurm(cluster)
        assert from_slurm(text, gpu_type="A100", gpus_per_node=4, idle_power_w=50.0) == cluster
        assert len(text.splitlines()) == len(cluster.groups)


def test_slurm_export_uses_host_lists() -> None:
    cluster = from_slurm(CONF, gpu_type="A100", gpus_per_node=8, idle_power_w=50.0)
    assert to_slurm(cluster) == (
        "SwitchName=s0 Nodes=n[0-3] LinkSpeed=100\n"
        "SwitchName=s1 Nodes=n[04-05],login LinkSpeed=25\n"
        "SwitchName=spine Switches=s[0-1]\n"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("# nothing\n", "no SwitchName line"),
        ("SwitchName=a Nodes=n\nwhat\n", "line 2: expected Key=Value, found 'what'"),
        ("SwitchName=a Nodes=n \\\n LinkSpeed=1\nSwitchName=b Colour=red", "line 3: unknown key 'Colour'"),
        ("SwitchName=a Nodes=n nodes=m", "line 1: 'nodes' is given twice"),
        ("Nodes=n", "line 1: SwitchName is missing"),
        ("\nSwitchName=a", "line 2: switch 'a' needs either Switches or Nodes"),
        ("SwitchName=a Nodes=n Switches=b", "line 1: switch 'a' needs either"),
        ("SwitchName=a Nodes=n[3-1]", "line 1: the range '3-1' in a host list runs backwards"),
        ("SwitchName=a Nodes=n LinkSpeed=fast", "line 1: LinkSpeed must be a positive whole number"),
        ("SwitchName=a Nodes=n\nSwitchName=a Nodes=m", "line 2: switch 'a' is defined already in line 1"),
        ("SwitchName=a Switches=b", "line 1: switch 'b' is not defined"),
        ("SwitchName=a Nodes=n,n", "line 1: node 'n' is below 'a' already"),
        (
            "SwitchName=a Nodes=n\nSwitchName=b Switches=a\nSwitchName=c Switches=a",
            "line 3: switch 'a' is below 'b' already",
        ),
        ("SwitchName=a Nodes=n\nSwitchName=b Nodes=a", "line 2: 'a' is both a node and a switch"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "line [12]: switch '[ab]' is below itself"),
    ],
)
def test_faulty_slurm_files_are_told(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_slurm(text, gpu_type="A100", gpus_per_node=8, idle_power_w=50.0)


def test_clusters_that_slurm_cannot_describe() -> None:
    def export(groups: list[Group], *places: tuple[str, str | None]) -> None:
        nodes = [Node(name=name, gpu_type="A100", gpus=8, parent=parent) for name, parent in places]
        to_slurm(Cluster(gpu_types={"A100": GpuType(idle_power_w=50.0)}, nodes=nodes, groups=groups))

    with pytest.raises(ValueError, match="group above every node, node 'n' has none"):
        export([], ("n", None))
    with pytest.raises(ValueError, match="group 'a' has groups and nodes below it"):
        export([Group(name="a"), Group(name="b", parent="a")], ("n", "a"), ("m", "b"))
    with pytest.raises(ValueError, match="the name 'n 1' cannot be written"):
        export([Group(name="a")], ("n 1", "a"))


NAME = st.from_regex(r"[a-z]{0,2}[0-9]{0,3}[a-z-]{0,2}[0-9]{1,3}[a-z.]{0,1}", fullmatch=True)


@given(st.lists(NAME, min_size=1, max_size=12))
def test_compression_is_undone_by_expansion(names: list[str]) -> None:
    assert expand(compress(names)) == names


@given(st.sampled_from(["n", "rack1-n"]), st.integers(0, 995), st.integers(1, 300), st.integers(1, 4))
def test_a_run_of_numbers_takes_one_range(prefix: str, first: int, count: int, width: int) -> None:
    names = [f"{prefix}{i:0{width}d}" for i in range(first, first + count)]
    text = compress(names)
    assert expand(text) == names
    assert text.count("-") - prefix.count("-") == (count > 1)


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("a", ["a"]),
        ("n[0-3]", ["n0", "n1", "n2", "n3"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[3,0-1,007]x,login", ["n3x", "n0x", "n1x", "n007x", "login"]),
        ("r[0-1]n[1-2]", ["r0n1", "r0n2", "r1n1", "r1n2"]),
        ("[1-2]", ["1", "2"]),
    ],
)
def test_expansion(expression: str, names: list[str]) -> None:
    assert expand(expression) == names


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "malformed host list '' at character 1"),
        ("a,", "at character 3"),
        ("a,,b", "at character 3"),
        ("a[1", "at character 2"),
        ("a]", "at character 2"),
        ("a[[1]]", "at character 2"),
        ("a[]", "'' is no number or range"),
        ("a[1-]", "'1-' is no number or range"),
        ("a[x-z]", "'x-z' is no number or range"),
        ("a[3-1]", "runs backwards"),
        ("a[0-9999999]", "too many names"),
        ("a[0-999]b[0-999]c[0-9]", "too many names"),
        ("a[0-99999],b[0-99999],c", "too many names"),
        ("a" * 201, "names of more than 200 characters"),
        ("a" * 199 + "[08-11]", "names of more than 200 characters"),
        ("a[0" + "0" * 30 + "-1]", "is no number or range"),
    ],
)
def test_malformed_expressions_are_told(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        expand(expression)


@pytest.mark.parametrize("name", ["", "a,b", "a[0]"])
def test_names_that_cannot_be_written(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be written in a host list"):
        compress([name])
