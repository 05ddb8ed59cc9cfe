"""The checker of placements, and the proof of bounds, on cases worked by hand."""

from __future__ import annotations

from typing import Any

import pytest

from wattsched.instances.placement.decision import PlacementDecision
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.verification.placement import bound
from wattsched.verification.placement.bound import prove
from wattsched.verification.placement.checker import check
from wattsched.verification.tree import Taken

NODE = {"cpu_milli": 40_000, "memory_mib": 100, "gpus": 2}


@pytest.fixture
def window() -> PlacementInstance:
    """Two empty nodes, T4 and P100, of 2 GPUs and 40 vCPUs (two packages); half of the usual tasks share."""
    return PlacementInstance.model_validate(
        {
            "problem": "placement",
            "fragmentation_w_per_gpu": 3000.0,
            "waiting_w": 32.0,
            "waiting_w_per_gpu": 40.0,
            "nodes": [{"name": "t", "gpu_type": "T4", **NODE}, {"name": "p", "gpu_type": "P100", **NODE}],
            "workload": [
                {"cpu_milli": 1000, "gpus": 1, "gpu_milli": 600, "count": 1},
                {"cpu_milli": 1000, "gpus": 2, "gpu_types": ["T4"], "count": 1},
            ],
            "tasks": [
                {"name": "x", "cpu_milli": 31_000, "memory_mib": 60, "gpus": 1, "gpu_milli": 500},
                {"name": "y", "cpu_milli": 2000, "memory_mib": 60},
                {"name": "z", "cpu_milli": 1000, "memory_mib": 10, "gpus": 2, "gpu_types": ["T4"]},
            ],
        }
    )


def decision(**placed: tuple[str, list[int]]) -> PlacementDecision:
    document = {
        "placed": [{"task": task, "node": node, "gpus": gpus} for task, (node, gpus) in placed.items()],
        "waiting": [task for task in "xyz" if task not in placed],
    }
    return PlacementDecision.model_validate(document)


def test_a_share_wakes_a_gpu_and_a_package(window: PlacementInstance) -> None:
    report = check(window, decision(x=("t", [1])))
    assert report.faults == []
    # A T4 at 70 instead of 10 W; 31 vCPUs keep 16 cores, one package, busy: 120 instead of 15 W.
    assert report.totals["added_power_w"] == 60 + 105
    # Free before on t: 2, all useful to both classes. After: 1.5; the first class finds 1 useful, the second
    # needs two whole GPUs. On p the second class is at a loss for GPUs, before and after.
    assert report.totals["added_fragmentation_gpus"] == 0.5 * 0.5 + 0.5 * 1.5
    assert report.totals["fragmentation_gpus"] == 1.0 + 0.5 * 2
    # Both other tasks would fit and are waiting: 32 W each, and 40 W for each of 2 GPUs.
    assert (report.totals["waiting_tasks"], report.totals["unplaceable_tasks"]) == (2, 0)
    assert report.objective == pytest.approx(165 + 3000 * 1.0 + 2 * 32 + 2 * 40)


@pytest.mark.parametrize(
    ("placed", "told"),
    [
        ({"x": ("t", [0]), "y": ("t", [])}, "task 'y' on node 't': the memory is 20 MiB short"),
        ({"x": ("t", [0]), "z": ("t", [0, 1])}, "task 'z' on node 't': GPU 0 is 500 thousandths short"),
        ({"x": ("t", [])}, "task 'x' on node 't': it asks for 1 GPUs and has 0"),
        ({"z": ("t", [1, 1])}, "task 'z' on node 't': a GPU is named twice"),
        ({"z": ("p", [0, 1])}, "task 'z' on node 'p': it may not use the GPU type 'P100'"),
        ({"x": ("t", [2])}, "task 'x' on node 't': the node has only 2 GPUs"),
        ({"x": ("u", [0])}, "node 'u' is not in the instance"),
        ({"w": ("t", [0])}, "task 'w' is not in the instance"),
    ],
)
def test_what_is_impossible_is_told(window: PlacementInstance, placed: dict[str, Any], told: str) -> None:
    assert told in check(window, decision(**placed)).faults


def test_too_little_cpu_is_told(window: PlacementInstance) -> None:
    nodes = [window.nodes[0].model_copy(update={"used_cpu_milli": 10_000}), window.nodes[1]]
    faults = check(window.model_copy(update={"nodes": nodes}), decision(x=("t", [0]))).faults
    assert faults == ["task 'x' on node 't': the CPU is 1000 thousandths of a vCPU short"]


def test_every_task_is_placed_or_waits_once(window: PlacementInstance) -> None:
    once = decision(x=("t", [0]))
    twice = once.model_copy(update={"placed": once.placed * 2, "waiting": ["x", "y", "y"]})
    assert check(window, twice).faults[:4] == [
        "task 'x' is placed 2 times",
        "task 'x' is placed and waits",
        "task 'y' waits 2 times",
        "task 'z' is neither placed nor waits",
    ]


def test_what_is_too_much_to_list_proves_no_splits(
    window: PlacementInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = prove(window, {}).bound
    monkeypatch.setattr(bound, "MOST_STATES", 2)
    assert prove(window, {}).bound == pytest.approx(listed)
    taken = [Taken({"at_most": 0}, True, 0)]
    (fault,) = bound.Prover(window)({}, taken).faults
    assert fault == "certificate: the nodes can host too many sets of tasks to prove a bound by splits"
