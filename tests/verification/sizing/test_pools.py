"""The checker's own reading of a cluster is that of the topology."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from hypothesis import given, settings

from tests.strategies.effort import examples
from tests.strategies.instances import clusters, small_instances
from wattsched.formulations.sizing.data import expand
from wattsched.formulations.sizing.rooms import free_gpus as free_by_uses
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.buddy import Occupancy
from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import pools_of
from wattsched.topology.room import largest_room
from wattsched.verification.sizing import pools as checked
from wattsched.verification.sizing.rows import awake_on_nodes


@given(content=clusters())
@settings(max_examples=examples(200), deadline=None)
def test_two_readings_of_the_cluster_agree(content: dict[str, Any]) -> None:
    """The checker walks the tree itself; pools, blocks and places are those of the topology."""
    cluster = Cluster.model_validate(content)
    by_column = cluster.model_copy(
        update={"nodes": cluster.node_columns(), "groups": cluster.group_columns()}
    )
    pools, read = pools_of(cluster), checked.pools_of(cluster)
    for name, pool in checked.pools_of(by_column).items():
        assert np.array_equal(pool.line, read[name].line)
    places = checked.Places(cluster, read)
    assert list(read) == [pool.name for pool in pools]
    for pool in pools:
        own = read[pool.name]
        assert (own.gpu_type, own.gpus_per_node) == (pool.gpu_type, pool.gpus_per_node)
        assert (own.domains, own.most_gpus) == (pool.domains, largest_room(pool))
        assert own.capacity == pool.capacity
        assert own.sizes.tolist() == pool.blocks[:, 1].tolist()
        assert own.available == pool.available.sum()
        assert len(own.base_power_w) == len(pool.nodes)
        for node in (node for node in cluster.nodes if node.name in pool.nodes):
            for gpu in range(node.gpus):
                (number,) = places.gpus({node.name: [gpu]})
                assert places.position[number] == pool.positions([node.name], np.array([0]), np.array([gpu]))
                assert places.available[number] == (gpu not in node.unavailable)


@given(instance=small_instances())
@settings(max_examples=examples(30))
def test_free_blocks_are_those_of_the_topology(instance: Instance) -> None:
    places = checked.places_of(instance.cluster)
    found = checked.free_gpus(
        instance, checked.pools_of(instance.cluster), np.zeros(len(places.size), dtype=bool)
    )
    options = expand(instance)
    on_nodes = awake_on_nodes(instance)
    for pool, free in zip(options.pools, free_by_uses(options.of), strict=True):
        counts = np.bincount(pool.node_index[free], minlength=len(pool.nodes)).tolist()
        assert on_nodes[pool.name] == Counter(counts)
        assert list(found[pool.name].values()) == list(Occupancy(pool.blocks, free).free_gpus)
