"""Homogeneous clusters: shape, watts and refusals."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from click import Context

from wattsched.cli import main
from wattsched.cli.importing import ClusterOptions
from wattsched.files.exchange import read_cluster
from wattsched.instances.clusters import (
    capped_power_w,
    full_power_w,
    homogeneous_cluster,
    idle_power_w,
    with_rack_caps,
)
from wattsched.instances.traces import formats
from wattsched.topology.pools import pools_of


def test_racks_of_four_nodes_make_blocks() -> None:
    cluster = homogeneous_cluster(64)
    (pool,) = pools_of(cluster)
    assert (cluster.total_gpus, pool.name, pool.largest_block) == (512, "A100", 512)
    assert len([g for g in cluster.groups if g.level == "rack"]) == 16
    (pool,) = pools_of(homogeneous_cluster(6, 4, "T4"))
    assert pool.blocks[:, 1].tolist() == [16, 8]


def test_watts_are_those_of_the_nodes() -> None:
    cluster = with_rack_caps(homogeneous_cluster(3, 8, "V100", base_power_w=100.0), 0.5)
    assert full_power_w(cluster, cluster.nodes) == 3 * (100 + 8 * 300)
    assert idle_power_w(cluster, cluster.nodes) == 3 * (100 + 8 * 30)
    assert capped_power_w(cluster, 0.5) == 3750.0
    (domain,) = cluster.power_domains
    assert (domain.members, domain.power_cap_w) == (["rack0"], 3750.0)
    assert pools_of(cluster)[0].domains == (domain.name,)


def test_every_rack_is_capped_at_a_share_of_its_own_draw() -> None:
    """2,500 racks: looking for the nodes of each one among all of them would take long."""
    cluster = homogeneous_cluster(5_001, 8, "V100", nodes_per_rack=2, base_power_w=100.0)
    capped = with_rack_caps(cluster, 0.5)
    racks = [group.name for group in cluster.groups if group.level == "rack"]
    assert [domain.members for domain in capped.power_domains] == [[rack] for rack in racks]
    assert [domain.power_cap_w for domain in capped.power_domains] == [2500.0] * 2_500 + [1250.0]


def test_refusals_name_the_field() -> None:
    with pytest.raises(ValueError, match="nodes: must be at least 1, got 0"):
        homogeneous_cluster(0)
    with pytest.raises(ValueError, match="gpu_type: 'X' is not known"):
        homogeneous_cluster(gpu_type="X")
    with pytest.raises(ValueError, match=r"power_fraction: must be at least 0\.18"):
        capped_power_w(homogeneous_cluster(), 0.1)


def test_whoever_tells_nothing_of_a_cluster_gets_the_same_everywhere() -> None:
    """From Python, of a trace, and on the command line of every command that takes one."""
    made = inspect.signature(homogeneous_cluster).parameters
    own = {name: made[name].default for name in ("nodes", "gpus_per_node", "gpu_type")}
    assert {name: getattr(ClusterOptions, name) for name in own} == own
    read = inspect.signature(read_cluster).parameters
    assert {name: read[name].default for name in own if name in read} == {
        name: value for name, value in own.items() if name != "nodes"
    }
    family: Any = main.get_command(Context(main), "import")
    commands = [main.get_command(Context(main), name) for name in ("replay", "savings")]
    commands += [family.make(name) for name, form in formats().items() if form.yields == "jobs"]
    for command in commands:
        assert command is not None
        given = {one.name: one.default for one in command.params}
        assert {name: given[name] for name in own} == own, command.name


def test_servers_of_today_draw_more_than_those_of_then() -> None:
    drawn = {kind: homogeneous_cluster(1, 8, kind).nodes[0].base_power_w for kind in ("A100", "H100", "B200")}
    assert drawn == {"A100": 200.0, "H100": 1500.0, "B200": 1500.0}
    assert homogeneous_cluster(1, 4, "H100").nodes[0].base_power_w == 750.0
    assert homogeneous_cluster(1, 8, "H100", base_power_w=900.0).nodes[0].base_power_w == 900.0
