"""Which nodes have what jobs ask for, and pools that are divided for it."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from wattsched.adapters.slurm.inventory import Needs, SlurmNode
from wattsched.instances.errors import InputError

NODES = [
    SlurmNode(
        f"g{i}", "A100", 8, ("gpu",), True, cpus=16 * i, memory_mib=1000.0 * i, features=frozenset(features)
    )
    for i, features in enumerate(({"a"}, {"a", "b"}, {"c"}), start=1)
]


@pytest.mark.parametrize(
    ("needs", "expected"),
    [
        ({}, "g1 g2 g3"),
        ({"nodes": frozenset(["g2"])}, "g2"),
        ({"excluded": frozenset(["g2"])}, "g1 g3"),
        ({"features": "a"}, "g1 g2"),
        ({"features": "a&b"}, "g2"),
        ({"features": "b|c"}, "g2 g3"),
        ({"cpus": 17}, "g2 g3"),
        ({"cpus_gpu": 12}, "g3"),
        ({"cpus_each": 48}, "g3"),
        ({"memory_each_mib": 1500}, "g2 g3"),
        ({"memory_cpu_mib": 100, "cpus": 12}, "g2 g3"),
        ({"memory_gpu_mib": 600}, "g3"),
        ({"exclusive": True}, "g1 g2 g3"),
    ],
)
def test_nodes_that_a_job_may_have(needs: dict[str, Any], expected: str) -> None:
    assert Needs(**needs).allowed(NODES, 1, 4) == set(expected.split())


@pytest.mark.parametrize(
    ("needs", "told"),
    [
        (Needs(features="d", cpus=40), "has: --constraint=d$"),
        (Needs(cpus=99, nodes=frozenset(["g1"])), "has: CPUs$"),
        (Needs(nodes=frozenset(["cpu1"])), "has: --nodelist$"),
        (Needs(features="[a|b]"), "only names with either & or |"),
        (Needs(features="a&b|c"), "only names with either & or |"),
    ],
)
def test_what_no_node_has_is_named(needs: Needs, told: str) -> None:
    with pytest.raises(InputError, match=told.replace("|", "[|]")):
        needs.allowed(NODES, 1, 4)


def test_what_slurm_does_not_tell_is_enough() -> None:
    silent = SlurmNode("g", "A100", 8, ("gpu",), True)
    assert silent.cpus == silent.memory_mib == inf
    assert Needs(cpus=99, memory_each_mib=1e9).allowed([silent], 1, 1) == {"g"}
