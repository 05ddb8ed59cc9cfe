"""Certificate trees: whatever splits and prices they have, no decision beats what their leaves prove."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from tests.strategies.priced import Priced, better, priced
from tests.strategies.trees import require_proven
from wattsched import solve
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.sizing.bound import Prover
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES
from wattsched.verification.sizing.rows import part_sizes, sleeping_in
from wattsched.verification.sizing.splits import key as key_of
from wattsched.verification.tree import prove_tree

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
    instance = instance.model_copy(update={"objective": objective})
    proof = Prover(instance)({})
    # Sums that are nearly 0 are as exact as their parts, which are about as large as the dearest decision.
    parts = abs(proof.excess) if math.isfinite(proof.excess) else 0.0
    require_proven(instance, result, gap, max(1e-12, 1e-15 * parts))
