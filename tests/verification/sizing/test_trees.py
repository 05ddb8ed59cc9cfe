"""Certificate trees: whatever splits and prices they have, no decision beats what their leaves prove."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from tests.strategies.priced import Priced, better, priced
from wattsched import solve
from wattsched.documents import verdict_on
from wattsched.formulations.shifting import branching
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.solvers import tree
from wattsched.verification.sizing.bound import Prover
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES
from wattsched.verification.sizing.rows import part_sizes, sleeping_in
from wattsched.verification.sizing.splits import key as key_of
from wattsched.verification.tree import MOST_SPLITS, MOST_SPLITS_IN_ALL, prove_tree

MANY = settings(max_examples=examples(80))
SLEEPING = sleeping(small_instances(max_jobs=3))
PRICED = priced(small_instances(max_jobs=3)) | priced(instances_with_sets()) | priced(SLEEPING)
SUMS = sorted(set(OBJECTIVES) - set(BOTTLENECK))


@st.composite
def splits(draw: st.DrawFn, instance: Instance) -> dict[str, Any]:
    """Some beginnings of what a job may do, or a part of the nodes that sleep."""
    instance, configurations, _ = decided(instance)
    nodes = sleeping_in(instance, configurations.pools)
    if nodes and draw(st.booleans()):
        pool, each_w = draw(st.sampled_from(sorted(nodes)))
        part = draw(st.integers(0, len(part_sizes(nodes[pool, each_w].nodes)) - 1))
        return {"awake": pool, "each_w": each_w, "part": part}
    j = draw(st.integers(0, len(instance.jobs) - 1))
    job = instance.jobs[j]
    rows = [*configurations.of(j), *configurations.in_sets(job.name)]
    begun = {key_of(row)[:length] for row in rows for length in range(1, 6)}
    known = ["wait", *(list(key) for key in sorted(begun, key=str))]
    return {"job": job.name, "options": draw(st.lists(st.sampled_from(known), max_size=4))}


@st.composite
def trees(draw: st.DrawFn, case: Priced) -> list[dict[str, Any]]:
    """Trees of any shape, with prices that are multiples of the case's."""
    instance, prices = case
    nodes: list[dict[str, Any]] = [{}]
    for number in range(6):
        if number >= len(nodes):
            break
        if draw(st.booleans()) and decided(instance).instance.jobs:
            children = {"inside": len(nodes), "outside": len(nodes) + 1}
            nodes[number] = {"split": draw(splits(instance)), **children}
            nodes += [{}, {}]
    for node in nodes:
        if not node:
            factor = draw(st.sampled_from([0.0, 0.5, 1.0, 3.0, 1e6]))
            node["prices"] = {name: factor * price for name, price in prices.items()}
    return nodes


@MANY
@given(data=st.data(), case=PRICED)
def test_no_decision_beats_the_bound_of_a_tree(data: st.DataObject, case: Priced) -> None:
    instance, _ = case
    nodes = data.draw(trees(case))
    proof = prove_tree(Prover(instance), nodes, OBJECTIVES[instance.objective])
    best = optimum(instance, instance.objective)
    if best is not None:
        assert not proof.faults
        assert proof.bound is not None
        assert not better(best, proof.bound, instance.objective)


@settings(max_examples=examples(150))
@given(
    instance=small_instances(max_jobs=4) | instances_with_sets() | SLEEPING,
    objective=st.sampled_from(SUMS),
    gap=st.sampled_from([0.0, 1e-4]),
)
def test_what_is_called_optimal_is_proven_in_full(instance: Instance, objective: str, gap: float) -> None:
    result = solve(instance, objective=objective, gap=gap, prove=60.0)
    if result.termination.reason != "optimal":
        return
    document = result.model_dump(mode="json")
    verdict = verdict_on(instance.model_copy(update={"objective": objective}), document)
    assert not verdict.faults
    assert verdict.proof is not None
    assert verdict.proof.bound is not None
    assert result.objective is not None
    # Sums that are nearly 0 are as exact as their parts, which are about as large as the dearest decision.
    proof = verdict.proof
    parts = abs(proof.excess) if math.isfinite(proof.excess) else 0.0
    nothing = max(1e-12, 1e-15 * parts)
    assert abs(result.objective - proof.bound) <= (gap + 2e-9) * abs(result.objective) + nothing


@pytest.fixture(scope="module")
def demo() -> tuple[Instance, dict[str, Any]]:
    instance = generate("uniform", jobs=5, seed=3)
    result = solve(instance, prove=60.0).model_dump(mode="json")
    assert len(result["certificate"]["tree"]) > 10
    return instance, result


@pytest.mark.parametrize(
    ("node", "told"),
    [
        ({"prices": {}}, "claims the bound"),
        ({"prices": {"gpus:A100": 1.0}}, "more of it cannot make"),
        ({"prices": {"gpus:none": -1.0}}, "no row of that name"),
        ({"prices": None}, "needs 'prices' or a 'split'"),
        ({"split": {"job": "none", "options": []}, "inside": 1, "outside": 2}, "not a job"),
        ({"split": {"job": "job0", "options": [["A100", 3]]}, "inside": 1, "outside": 2}, "no option of job"),
        ({"split": {"job": "job0", "options": [[["A100"]]]}, "inside": 1, "outside": 2}, "no option of job"),
        ({"split": {"job": "job0", "options": 1}, "inside": 1, "outside": 2}, "must be a list"),
        (
            {"split": {"job": "job0", "options": [], "at_most": 1}, "inside": 1, "outside": 2},
            "split.at_most: is not a known field",
        ),
        (
            {"split": {"awake": "A100", "each_w": 1.0, "part": 0}, "inside": 1, "outside": 2},
            "no nodes of a pool",
        ),
        ({"prices": {}, "x": 1}, "'x' is not a field"),
        ({"split": {"job": "job0", "options": []}, "inside": 1, "outside": 1}, "reached twice"),
        ({"split": {"job": "job0", "options": []}, "inside": 0, "outside": 1}, "number of a later node"),
        ({"split": {"job": "job0", "options": []}, "inside": True, "outside": 1}, "number of a later node"),
        ("node", "must be an object"),
    ],
)
def test_a_tree_that_is_none_is_refused(demo: tuple[Instance, dict[str, Any]], node: Any, told: str) -> None:
    instance, result = demo
    tree = result["certificate"]["tree"]
    at = 0 if "split" in node or node == "node" else max(i for i, one in enumerate(tree) if one["prices"])
    changed = [*tree[:at], node, *tree[at + 1 :]]
    forged = {**result, "certificate": {**result["certificate"], "tree": changed}}
    faults = verdict_on(instance, forged).faults
    assert any(told in fault for fault in faults), faults


def test_a_node_that_no_split_leads_to_is_refused(demo: tuple[Instance, dict[str, Any]]) -> None:
    instance, result = demo
    tree = [*result["certificate"]["tree"], {"prices": {}}]
    forged = {**result, "certificate": {**result["certificate"], "tree": tree}}
    assert any("reached by no split" in fault for fault in verdict_on(instance, forged).faults)


def chain(splits: int) -> list[dict[str, Any]]:
    """A tree that splits one side again and again."""
    split = {"job": "job0", "options": ["wait"]}
    nodes: list[dict[str, Any]] = []
    for number in range(0, 2 * splits, 2):
        nodes += [{"split": split, "inside": number + 1, "outside": number + 2}, {"prices": {}}]
    return [*nodes, {"prices": {}}]


@pytest.mark.slow
def test_a_tree_that_is_too_deep_is_refused(demo: tuple[Instance, dict[str, Any]]) -> None:
    instance, result = demo

    def faults(tree: list[dict[str, Any]]) -> list[str]:
        forged = {**result, "certificate": {**result["certificate"], "tree": tree}}
        return verdict_on(instance, forged).faults

    assert not any("no more are read" in fault for fault in faults(chain(MOST_SPLITS)))
    for splits in (MOST_SPLITS + 1, 20_000):
        assert any("below 1,000 splits; no more are read" in fault for fault in faults(chain(splits)))


@pytest.mark.slow
def test_a_tree_of_many_deep_leaves_is_refused(demo: tuple[Instance, dict[str, Any]]) -> None:
    instance, result = demo
    deep, wide = chain(MOST_SPLITS - 20), 2 * (MOST_SPLITS_IN_ALL // MOST_SPLITS)
    # A binary tree below the last leaf of the chain.
    nodes, last = deep[:-1], len(deep) - 1
    for number in range(wide):
        below = {"inside": last + 2 * number + 1, "outside": last + 2 * number + 2}
        nodes.append({"split": deep[0]["split"], **below})
    nodes += [{"prices": {}}] * (wide + 1)
    forged = {**result, "certificate": {**result["certificate"], "tree": nodes}}
    assert any("2,000,000 splits in all; no more" in fault for fault in verdict_on(instance, forged).faults)


def test_trees_that_are_grown_are_never_too_deep() -> None:
    # Each split adds two nodes, of which one is a leaf.
    most = max(tree.MOST_NODES, branching.MOST_NODES) // 2
    assert most <= MOST_SPLITS
    assert most * (most + 1) <= MOST_SPLITS_IN_ALL
