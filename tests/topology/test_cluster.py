"""Faults of a cluster are told, all at once, and large clusters validate fast."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from wattsched.topology.cluster import Cluster
from wattsched.topology.pools import pools_of


def document(**changes: Any) -> dict[str, Any]:
    return {
        "gpu_types": {"A100": {"idle_power_w": 50.0, "max_power_w": 50.0}},
        "groups": [{"name": "site"}, {"name": "r0", "parent": "site"}],
        "nodes": [{"name": "n0", "gpu_type": "A100", "gpus": 8, "parent": "r0", "unavailable": [3, 1]}],
        "power_domains": [
            {"name": "hall", "members": ["site"], "power_cap_w": 9e4},
            {"name": "pdu", "members": ["n0"], "power_cap_w": 5e3},
        ],
        **changes,
    }


def test_a_cluster_reads_back() -> None:
    cluster = Cluster.model_validate(document())
    assert Cluster.model_validate_json(cluster.model_dump_json()) == cluster
    assert cluster.total_gpus == 6
    assert cluster.nodes[0].unavailable == [1, 3]
    assert cluster.domain_names() == {"site": ("hall",), "r0": ("hall",), "n0": ("hall", "pdu")}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": [{"name": "r0"}, {"name": "r0"}, {"name": "site"}]}, "'r0' is used for more than one"),
        ({"groups": [{"name": "r0"}, {"name": "n0"}, {"name": "site"}]}, "'n0' is used for more than one"),
        ({"groups": [{"name": "site"}]}, "node 'n0' has the unknown parent 'r0'"),
        (
            {"groups": [{"name": "site", "parent": "r0"}, {"name": "r0", "parent": "site"}]},
            "cycle: site -> r0 -> site",
        ),
        ({"gpu_types": {}}, "node 'n0' has the unknown gpu_type 'A100'"),
        ({"power_domains": [{"name": "d", "members": ["x"], "power_cap_w": 1.0}]}, "unknown member 'x'"),
        ({"power_domains": [{"name": "d", "members": [], "power_cap_w": 1.0}] * 2}, "duplicate power domain"),
        ({"nodes": [{"name": "n", "gpu_type": "A100", "gpus": 2, "unavailable": [2]}]}, "has no GPU 2"),
        ({"nodes": [{"name": "n", "gpu_type": "A100", "gpus": 2, "unavailable": [1, 1]}]}, "GPU twice"),
        ({"nodes": []}, "at least 1 item"),
        (
            {"gpu_types": {"A100": {"idle_power_w": 50.0, "max_power_w": 49.0}}},
            "max_power_w 49 is below idle_power_w 50: an idle GPU draws no more than its board may",
        ),
    ],
)
def test_faults_are_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Cluster.model_validate(document(**changes))


def test_twelve_thousand_nodes_are_no_problem() -> None:
    n = 12_500
    big = document(
        groups=[{"name": "site"}, *({"name": f"r{i}", "parent": "site"} for i in range(n // 10))],
        nodes=[{"name": f"n{i}", "gpu_type": "A100", "gpus": 8, "parent": f"r{i // 10}"} for i in range(n)],
        power_domains=[{"name": f"pdu{i}", "members": [f"r{i}"], "power_cap_w": 1.0} for i in range(n // 10)],
    )
    assert len(pools_of(Cluster.model_validate(big))) == n // 10


def test_deep_chains_are_no_problem() -> None:
    groups = [{"name": "g0"}, *({"name": f"g{i}", "parent": f"g{i - 1}"} for i in range(1, 5000))]
    cluster = Cluster.model_validate(
        document(
            groups=groups,
            nodes=[{"name": "n", "gpu_type": "A100", "gpus": 4, "parent": "g4999"}],
            power_domains=[{"name": "d", "members": ["g0"], "power_cap_w": 1.0}],
        )
    )
    (pool,) = pools_of(cluster)
    assert pool.domains == ("d",)
    assert pool.largest_block == 4
