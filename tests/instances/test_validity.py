"""What fields mean together: every fault is found, and says what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from wattsched.instances.errors import InputError, validated
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import faults_of

CLUSTER = {
    "gpu_types": {"A100": {"idle_power_w": 10.0}, "B": {"idle_power_w": 5.0}},
    "nodes": [
        {"name": "a0", "gpu_type": "A100", "gpus": 8, "unavailable": [7]},
        {"name": "b0", "gpu_type": "B", "gpus": 2, "parent": "left"},
        {"name": "b1", "gpu_type": "B", "gpus": 2},
    ],
    "groups": [{"name": "left"}],
    "power_domains": [{"name": "feed", "members": ["left"], "power_cap_w": 1000.0}],
}


def table(*rows: tuple[int, str]) -> dict[str, Any]:
    gpus, pools = zip(*rows, strict=True)
    ones = [1.0] * len(rows)
    return {"gpus": list(gpus), "pool": list(pools), "power_w": ones, "rate": ones}


def job(**fields: Any) -> dict[str, Any]:
    return {"name": "j", "options": table((1, "A100"), (2, "B")), **fields}


def held(nodes: dict[str, list[int]], gpus: int = 1, pool: str = "A100") -> dict[str, Any]:
    return {"gpus": gpus, "pool": pool, "nodes": nodes}


def model(name: str = "resnet50", **fields: Any) -> dict[str, Any]:
    return {"name": "j", "model": name, **fields}


def faults(*jobs: dict[str, Any], **fields: Any) -> list[str]:
    return faults_of(Instance.model_validate({"cluster": CLUSTER, "jobs": list(jobs), **fields}))


NEEDS = "needs at least {} GPUs in one block but the largest block is {}"
NO_OPTION = "has no option in its pools and within its min_gpus and max_gpus"


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (job(), None),
        (job(pools=["A100"]), None),
        (job(pools=["B@feed"]), None),
        (job(deadline_s=1e-9), None),
        (job(current=held({"a0": [3]})), None),
        (job(current=held({}, gpus=2)), None),
        (model(), None),
        (job(pools=["A10", "A100"]), "pool 'A10' is no pool or GPU type of the cluster (did you mean"),
        (job(options=table((1, "A100"), (1, "Z"))), "pool 'Z' is no pool or GPU type of the cluster"),
        (job(options=table((1, "B@feed"), (1, "B"))), "row 0 of pool 'B@feed' repeats a row of GPU type 'B'"),
        (job(options=table((16, "A100")), can_wait=False), NEEDS.format(16, 8)),
        (job(options=table((3, "B")), can_wait=False), NEEDS.format(4, 2)),
        (job(options=table((1, "A100"), (16, "A100"))), None),
        (job(min_gpus=3, can_wait=False), NO_OPTION),
        (job(pools=["B"], max_gpus=1, can_wait=False), NO_OPTION),
        # Jobs that may wait are left out instead.
        (job(options=table((16, "A100"))), None),
        (job(min_gpus=3), None),
        (model("resnet51"), "has the model 'resnet51', which no profile describes on A100, B (did you"),
        (model(pools=["B"]), "has the model 'resnet50', which no profile describes on B"),
        (model(gpu_counts=[64], can_wait=False), NEEDS.format(64, 8)),
        (job(current=held({"a0": [3]}, pool="A1000")), "current.pool 'A1000' is no pool of the cluster (did"),
        (job(current=held({"b0": [1]})), "current.nodes: 'b0' is not in the pool 'A100'"),
        (job(current=held({"a00": [3]})), "current.nodes: 'a00' is no node of the cluster (did you mean"),
        (job(current=held({"a0": [8]})), "current.nodes: node 'a0' has no GPU 8, it has 8"),
        (
            job(current=held({"a0": [7]}), preemptible=False),
            "current.nodes: GPU 7 of node 'a0' is unavailable, but the job is not preemptible",
        ),
        (job(current=held({"a0": [7]})), None),  # its GPU broke: it goes on elsewhere
        (job(current=held({"a0": [1, 2]})), "current.gpus is 1 but current.nodes lists 2"),
        (job(current=held({"a0": [1, 1]}, gpus=2)), "current.nodes: node 'a0' lists a GPU twice"),
    ],
)  # fmt: skip
def test_faults(content: dict[str, Any], fault: str | None) -> None:
    found = [told.replace("job 'j': ", "").replace("job 'j' ", "") for told in faults(content)]
    assert len(found) == (fault is not None)
    assert fault is None or found[0].startswith(fault)


def test_a_setting_outside_the_profile() -> None:
    (fault,) = faults(model(frequencies_mhz=[5000]))
    assert fault.startswith("job 'j' has a setting out of range: frequency_mhz 5000")


def test_a_model_with_more_configurations_than_are_taken() -> None:
    (fault,) = faults(model(batch_sizes=list(range(1, 1_001)), frequencies_mhz=list(range(210, 1_210))))
    assert fault.startswith("job 'j' has ")
    assert fault.endswith(" configurations in a pool, and at most 100,000 are taken")


def test_two_jobs_cannot_hold_one_gpu() -> None:
    first, second = job(current=held({"a0": [3]})), job(name="k", current=held({"a0": [3]}))
    assert faults(first, second) == ["jobs 'j' and 'k' both hold GPU 3 of node 'a0'"]


def test_a_fault_of_a_shared_table_is_reported_once_and_of_a_job_for_each() -> None:
    shared = {"t": table((1, "A100"), (1, "Z"))}
    jobs = [{"name": f"j{i}", "options": "t", "min_gpus": 2, "can_wait": False} for i in range(3)]
    found = faults(*jobs, tables=shared)
    assert found[0].startswith("table 't': pool 'Z'")
    assert [f.split(" has ")[0] for f in found[1:]] == ["job 'j0'", "job 'j1'", "job 'j2'"]


@pytest.mark.parametrize(
    ("capacity", "told"),
    [
        ("node", ["cluster.capacity: must be 'blocks', 'nodes' or 'count', got 'node'"]),
        (3, ["cluster.capacity: must be 'blocks', 'nodes' or 'count', got 3"]),
        ({"A100": "node"}, ["cluster.capacity.A100: must be 'blocks', 'nodes' or 'count', got 'node'"]),
        (
            {"A10": "nodes"},
            ["cluster.capacity: pool 'A10' is no pool or GPU type of the cluster (did you mean 'A100'?)"],
        ),
        ({"A100": "nodes", "B": "count"}, []),
        ("count", []),
    ],
)
def test_capacities_are_words_or_by_pool(capacity: Any, told: list[str]) -> None:
    content = {"cluster": {**CLUSTER, "capacity": capacity}, "jobs": [job()]}
    try:
        found = faults_of(validated(Instance, content))
    except InputError as error:
        found = error.faults
    assert found == told


def test_a_job_may_be_as_large_as_its_pool_in_pools_of_nodes() -> None:
    large = {"name": "j", "options": table((8, "A100"), (99, "A100")), "min_gpus": 99, "can_wait": False}
    found = faults(large, cluster={**CLUSTER, "capacity": "nodes"})
    assert found == ["job 'j' needs at least 99 GPUs but the largest pool has 8"]
