"""Clusters in and out of other programs' files."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable

import pytest

from wattsched.topology.cluster import Cluster, GpuType, Group, Node
from wattsched.topology.exchange import from_node_link, from_slurm, to_node_link, to_slurm
from wattsched.topology.pools import pools_of

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
    for _ in range(50):
        cluster = random_cluster(rng, 40)
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
