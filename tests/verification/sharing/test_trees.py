"""Certificate trees of `sharing`: whatever they count, no decision beats what their leaves prove."""

from __future__ import annotations

from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from tests.brute_force.sharing import optimum
from tests.strategies.effort import examples
from tests.strategies.sharing import sharing_instances
from tests.strategies.trees import counting_trees, disturbed, require_proven
from wattsched import solve
from wattsched.instances.generators import generate
from wattsched.instances.sharing.instance import OBJECTIVES, Budgets, SharingInstance
from wattsched.results.documents import verdict_on
from wattsched.verification.sharing.bound import Prover
from wattsched.verification.tree import prove_tree


@st.composite
def splits(draw: st.DrawFn, instance: SharingInstance) -> dict[str, Any]:
    """Units or jobs, anywhere or in some sets."""
    told: dict[str, Any] = {"at_most": draw(st.integers(0, 3))}
    if draw(st.booleans()):
        told["jobs"] = draw(st.lists(st.sampled_from([job.name for job in instance.jobs]), max_size=3))
    if draw(st.booleans()):
        told["unit_type"] = draw(st.sampled_from([unit.name for unit in instance.unit_types]))
    if draw(st.booleans()):
        told["classes"] = draw(st.lists(st.sampled_from([c.name for c in instance.classes]), max_size=3))
    return told


@st.composite
def prices(draw: st.DrawFn, instance: SharingInstance) -> dict[str, float]:
    """Prices of any rows, of the right signs and about the size of costs."""
    sign = -1.0 if OBJECTIVES[instance.objective] == "min" else 1.0
    scale = {"power": 100.0, "energy": 0.1, "eaco": 0.1, "throughput": 1.0}[instance.objective]
    size = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0, 1e6])
    found = {f"job:{job.name}": draw(st.sampled_from([-1.0, 1.0])) * draw(size) for job in instance.jobs}
    found |= {row.row: sign * draw(size) for row in [*instance.unit_types, *instance.pools]}
    found = {name: scale * price for name, price in found.items()}
    budgets = {"power_w": scale / 100.0, "energy_j": scale / 1e5, "carbon_g": scale / 10.0}
    for name, limit in instance.budgets.amounts.items():
        if limit is not None:
            found[name] = sign * budgets[name] * draw(size)
    return found


@settings(max_examples=examples(250))
@given(data=st.data(), instance=sharing_instances(most_jobs=4))
def test_no_decision_beats_the_bound_of_a_tree(data: st.DataObject, instance: SharingInstance) -> None:
    sense = OBJECTIVES[instance.objective]
    scale = {"power": 100.0, "energy": 0.1, "eaco": 0.1, "throughput": 1.0}[instance.objective]
    nodes = data.draw(counting_trees(splits(instance), prices(instance), sense, scale))
    proof = prove_tree(Prover(instance), nodes, sense)
    best = optimum(instance, instance.objective)
    assert not proof.faults
    assert proof.bound is not None
    if best is not None:
        assert proof.excess <= 0
        over = proof.bound - best if sense == "min" else best - proof.bound
        assert over <= 1e-9 * max(0.1, abs(best))


@settings(max_examples=examples(150))
@given(instance=sharing_instances(most_jobs=6), gap=st.sampled_from([0.0, 1e-4]))
def test_what_is_called_optimal_or_infeasible_is_proven_in_full(
    instance: SharingInstance, gap: float
) -> None:
    result = solve(instance, gap=gap, prove=60.0)
    event(result.termination.reason)
    if result.termination.reason == "infeasible":
        assert verdict_on(instance, result.model_dump(mode="json")).infeasible
        return
    assert result.termination.reason == "optimal"
    require_proven(instance, result, gap)


@settings(max_examples=examples(60))
@given(data=st.data(), instance=sharing_instances(most_jobs=6))
def test_no_disturbed_tree_proves_more_than_the_optimum(
    data: st.DataObject, instance: SharingInstance
) -> None:
    result = solve(instance, gap=0.0, prove=60.0)
    if result.certificate is None or not result.certificate.tree or result.objective is None:
        return
    tree = data.draw(disturbed([node.model_dump() for node in result.certificate.tree]))
    sense = OBJECTIVES[instance.objective]
    proof = prove_tree(Prover(instance), tree, sense)
    assert proof.bound is not None
    over = proof.bound - result.objective if sense == "min" else result.objective - proof.bound
    assert over <= 1e-9 * max(0.1, abs(result.objective))


def test_a_forged_infeasible_is_refused() -> None:
    instance = generate("sharing", jobs=4, seed=1)
    jobs = [job.model_copy(update={"can_wait": False}) for job in instance.jobs]
    instance = instance.model_copy(update={"jobs": jobs})
    short = instance.model_copy(update={"budgets": Budgets(power_w=1.0)})
    result = solve(short).model_dump(mode="json")
    assert result["termination"]["reason"] == "infeasible"
    assert verdict_on(short, result).infeasible
    wide = short.model_copy(update={"budgets": Budgets(power_w=1e6)})
    own = solve(wide).model_dump(mode="json")
    # Whatever tells the instance is forged, too.
    verdict = verdict_on(wide, {**result, **{name: own[name] for name in own.keys() & {"digest"}}})
    assert not verdict.infeasible
    assert any("leaves room for a decision" in fault for fault in verdict.faults)
