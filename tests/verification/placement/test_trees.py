"""Certificate trees of `placement`: whatever they count, no decision beats what their leaves prove."""

from __future__ import annotations

from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.brute_force.placement import optimum
from tests.strategies.effort import examples
from tests.strategies.placement import windows
from tests.strategies.trees import counting_trees, disturbed, require_proven
from tests.strategies.windows import random_window
from wattsched import solve
from wattsched.instances.generators import generate
from wattsched.instances.placement.instance import PlacementInstance
from wattsched.verification.placement.bound import Prover
from wattsched.verification.tree import prove_tree

SMALL = windows() | st.integers(0, 2**31).map(lambda seed: random_window(seed, most_tasks=5))


@st.composite
def splits(draw: st.DrawFn, instance: PlacementInstance) -> dict[str, Any]:
    """Nodes or tasks, anywhere or on some nodes, or nodes that host some tasks."""
    told: dict[str, Any] = {"at_most": draw(st.integers(0, 2))}
    tasks = st.sampled_from([task.name for task in instance.tasks])
    if draw(st.booleans()):
        told["nodes"] = draw(st.lists(st.sampled_from([node.name for node in instance.nodes]), max_size=3))
    if draw(st.booleans()):
        told["task"] = draw(tasks)
    if draw(st.booleans()):
        told["hosts"] = dict.fromkeys(draw(st.lists(tasks, max_size=2, unique=True)), 1)
    return told


@st.composite
def prices(draw: st.DrawFn, instance: PlacementInstance) -> dict[str, float]:
    """Prices of any tasks and nodes, of the right signs."""
    size = st.sampled_from([0.0, 1.0, 50.0, 300.0, 1e4])
    found = {f"task:{task.name}": draw(st.sampled_from([-1.0, 1.0])) * draw(size) for task in instance.tasks}
    return found | {f"node:{node.name}": -draw(size) for node in instance.nodes}


@settings(max_examples=examples(200))
@given(data=st.data(), instance=SMALL)
def test_no_decision_beats_the_bound_of_a_tree(data: st.DataObject, instance: PlacementInstance) -> None:
    assume(instance.tasks)
    nodes = data.draw(counting_trees(splits(instance), prices(instance), "min", 300.0))
    proof = prove_tree(Prover(instance), nodes, "min")
    assert not proof.faults
    assert proof.bound is not None
    truth = float(optimum(instance))
    assert proof.bound <= truth + 1e-7 * max(1.0, abs(truth))


@settings(max_examples=examples(150))
@given(
    data=st.data(), instance=SMALL, room=st.sampled_from([0.0, 10.0, 100.0, 1e3, 1e4]), listed=st.booleans()
)
def test_no_decision_beats_the_bound_of_a_split_on_costs(
    data: st.DataObject, instance: PlacementInstance, room: float, listed: bool
) -> None:
    assume(instance.tasks)
    at = data.draw(prices(instance))
    charge = data.draw(st.sampled_from([0.0, 0.5, 1.0, 2.0])) * room
    nodes = [
        {"split": {"beyond": room, "prices": at, "at_most": 0}, "inside": 2, "outside": 1},
        {"prices": at | {"split:0": charge}},
        {"prices": data.draw(prices(instance))},
    ]
    prover = Prover(instance)
    prover._too_many = "" if listed else "too many"
    proof = prove_tree(prover, nodes, "min")
    assert not proof.faults
    assert proof.bound is not None
    truth = float(optimum(instance))
    assert proof.bound <= truth + 1e-7 * max(1.0, abs(truth))


def test_outside_of_a_split_on_costs_only_its_prices_prove() -> None:
    instance = random_window(3, most_tasks=5)
    name = f"task:{instance.tasks[0].name}"
    split = {"beyond": 10.0, "prices": {name: 5.0}, "at_most": 0}
    nodes = [{"split": split, "inside": 2, "outside": 1}, {"prices": {name: 6.0}}, {"prices": {}}]
    (fault,) = prove_tree(Prover(instance), nodes, "min").faults
    assert "must be those of the split" in fault
    split["at_most"] = 1
    (fault,) = prove_tree(Prover(instance), nodes, "min").faults
    assert "with 'at_most' 0" in fault


def test_bounds_are_rounded_to_the_watts_that_nodes_change_by() -> None:
    """A GPU is 40 W or none: no decision in which no task waits costs anything between."""
    gpu = {"cpu_milli": 0, "gpus": 1, "gpu_milli": 1000}
    node = {"cpu_milli": 1000, "memory_mib": 1, "gpus": 4, "gpu_type": "flat"}
    instance = PlacementInstance.model_validate(
        {
            "name": "steps",
            "objective": "power",
            "problem": "placement",
            "gpu_types": {"flat": {"idle_power_w": 0, "full_power_w": 40}},
            "nodes": [{"name": "n", **node}],
            "tasks": [{"name": f"t{i}", **gpu} for i in range(3)],
        }
    )
    proof = Prover(instance)({f"task:t{i}": 30.0 for i in range(3)}, ())
    assert (proof.bound, proof.step) == (120.0, 40.0)


@settings(max_examples=examples(60))
@given(data=st.data(), seed=st.integers(0, 2**31))
def test_no_disturbed_tree_proves_more_than_the_optimum(data: st.DataObject, seed: int) -> None:
    instance = random_window(seed, most_tasks=6, most_nodes=4)
    result = solve(instance, gap=0.0, prove=60.0)
    assert result.objective is not None
    if result.certificate is None or not result.certificate.tree:
        return
    tree = data.draw(disturbed([node.model_dump() for node in result.certificate.tree]))
    proof = prove_tree(Prover(instance), tree, "min")
    if proof.faults:  # prices outside of a split on costs that are not the split's
        return
    assert proof.bound is not None
    assert proof.bound <= result.objective + 1e-7 * max(1.0, abs(result.objective))


@settings(max_examples=examples(100))
@given(
    instance=SMALL
    | st.builds(generate, st.just("placement"), jobs=st.integers(2, 8), seed=st.integers(0, 99)),
    gap=st.sampled_from([0.0, 1e-4]),
)
def test_what_is_called_optimal_is_proven_in_full(instance: PlacementInstance, gap: float) -> None:
    result = solve(instance, gap=gap, prove=60.0)
    if result.termination.reason != "optimal":
        return
    # What waits is dear: bounds are as exact as these costs, which cancel in them.
    per_task, per_gpu = instance.waiting_rates_w()
    unit = instance.fragmentation_w_per_gpu if instance.objective == "fragmentation" else 1.0
    size = sum(per_task + per_gpu * task.demand_gpus for task in instance.tasks) / unit
    require_proven(instance, result, gap, 1e-9 * (1.0 + size))
