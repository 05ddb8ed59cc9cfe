"""What an instance of `placement` accepts, and what letting a task wait costs by default."""

from __future__ import annotations

from typing import Any

import pytest

from tests.strategies.windows import random_window
from wattsched.instances.errors import InputError
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.results.documents import instance_of


def document(**values: Any) -> dict[str, Any]:
    small = {
        "problem": "placement",
        "nodes": [{"name": "a", "cpu_milli": 16_000, "memory_mib": 64, "gpus": 2, "gpu_type": "T4"}],
        "tasks": [{"name": "x", "cpu_milli": 4_000, "gpus": 1, "gpu_milli": 500}],
    }
    return small | values


def node(**values: Any) -> dict[str, Any]:
    return document()["nodes"][0] | values


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"objective": "fame"}, "objective: 'fame' is not known, choose one of power-fragmentation, power,"),
        ({"fragmentation_w_per_gpu": 0.0}, "fragmentation_w_per_gpu: must be greater than 0, got 0.0"),
        ({"waiting_w": -1.0}, "waiting_w: must be greater than or equal to 0, got -1.0"),
        ({"nodes": []}, "nodes: must not be empty"),
        ({"nodes": [node(), node()]}, "duplicate node 'a'"),
        (
            {"nodes": [node(used_cpu_milli=17_000)]},
            "nodes[0]: node 'a': used_cpu_milli 17000 is above",
        ),
        (
            {"nodes": [node(used_memory_mib=65)]},
            "nodes[0]: node 'a': used_memory_mib 65 is above",
        ),
        (
            {"nodes": [node(used_gpu_milli=[1, 2, 3])]},
            "nodes[0]: node 'a': used_gpu_milli has 3 entries",
        ),
        ({"nodes": [node(used_gpu_milli=[1001])]}, "nodes[0].used_gpu_milli[0]: must be less than or equal"),
        ({"nodes": [node(gpu_type=None)]}, "nodes[0]: node 'a': gpu_type is missing, it has 2 GPUs"),
        (
            {"nodes": [node(gpu_type="H9")]},
            "node 'a': the power of 'H9' is unknown, give it in gpu_types",
        ),
        ({"nodes": [node(cpu_type="486")]}, "node 'a': the power of '486' is unknown, give it in cpu_types"),
        (
            {"gpu_types": {"H9": {"idle_power_w": 5, "full_power_w": 4}}},
            "gpu_types.H9: full_power_w 4 is",
        ),
        ({"gpu_types": {"H9": {"idle_power_w": 5.5, "full_power_w": 7}}}, "must be a whole number, got 5.5"),
        (
            {"tasks": [{"name": "x", "gpus": 2, "gpu_milli": 500}]},
            "tasks[0]: gpu_milli must be 1000 where",
        ),
        ({"tasks": [{"name": "x"}, {"name": "x"}]}, "duplicate task 'x'"),
        ({"workload": [{"gpus": 3, "gpu_milli": 5, "count": 1}]}, "workload[0]: gpu_milli must be 1000"),
    ],
)
def test_a_wrong_value_is_told(values: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as raised:
        instance_of(document(**values))
    assert any(told in fault for fault in raised.value.faults), raised.value.faults


def test_types_of_the_file_come_before_known_ones() -> None:
    own = {"T4": {"idle_power_w": 1, "full_power_w": 2}, "H9": {"idle_power_w": 3, "full_power_w": 4}}
    instance = instance_of(document(gpu_types=own, nodes=[node(), node(name="b", gpu_type="H9")]))
    assert [instance.gpu_type_of(each).full_power_w for each in instance.nodes] == [2, 4]
    assert instance.cpu_type_of(instance.nodes[0]).cores == 16


def test_usual_tasks_are_those_of_the_window_by_default() -> None:
    instance = instance_of(document())
    (usual,) = instance.usual_tasks()
    assert (usual.cpu_milli, usual.gpus, usual.gpu_milli, usual.count) == (4_000, 1, 500, 1)
    assert len(instance.model_copy(update={"tasks": []}).usual_tasks()) == 1


@pytest.mark.parametrize("objective", ["power-fragmentation", "power", "fragmentation"])
def test_waiting_costs_more_than_a_node_can_change_by_default(objective: str) -> None:
    update = {"waiting_w": None, "waiting_w_per_gpu": None, "objective": objective}
    instance = random_window(3, most_nodes=5).model_copy(update=update)
    per_task, per_gpu = instance.waiting_rates_w()
    assert per_gpu == 10 * per_task
    for each in instance.nodes:
        gpu, cpu = instance.gpu_type_of(each), instance.cpu_type_of(each)
        packages = -(-each.cpu_milli // (2000 * cpu.cores))
        most = 0.0
        if objective != "fragmentation":
            most += each.gpus * (gpu.full_power_w - gpu.idle_power_w)
            most += packages * (cpu.full_power_w - cpu.idle_power_w)
        if objective != "power":
            most += each.gpus * instance.fragmentation_w_per_gpu
        assert per_task > most


def test_given_costs_of_waiting_are_kept() -> None:
    instance = random_window(3).model_copy(update={"waiting_w": 7.0, "waiting_w_per_gpu": 500.0})
    assert instance.waiting_rates_w() == (7.0, 500.0)
    half = instance.model_copy(update={"waiting_w_per_gpu": None})
    assert half.waiting_rates_w()[0] == 7.0


def test_a_window_of_nothing_is_an_instance() -> None:
    assert isinstance(instance_of(document(tasks=[])), PlacementInstance)
