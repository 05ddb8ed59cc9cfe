"""Results of `sizing`: honest ones pass with every solver, and each changed field is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.forgeries import restated
from tests.strategies.instances import instances_with_sets, small_instances
from tests.strategies.priced import OBJECTIVE, SIX, better, with_objective
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem
from wattsched.solvers.registry import names
from wattsched.verification.report import Proof, Report
from wattsched.verification.sizing.bound import prove
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.sizing.objectives import OBJECTIVES
from wattsched.verification.sizing.rows import rows_of
from wattsched.verification.verdict import check_result

MANY = settings(max_examples=examples(80))


def solved(instance: Instance, **asked: Any) -> dict[str, Any]:
    return wattsched.solve(instance, gap=0.0, **asked).model_dump(mode="json")


SOLVERS = [name for name in names() if not name.startswith("pyomo:")]


@MANY
@given(
    instance=small_instances(max_jobs=3) | instances_with_sets(),
    objective=OBJECTIVE,
    solver=st.sampled_from(SOLVERS),
    build=st.sampled_from(["mckp", "assignment", "intervals"]),
)
def test_every_certificate_passes(instance: Instance, objective: str, solver: str, build: str) -> None:
    result = solved(instance, solver=solver, objective=objective, formulation=build)
    if result["termination"]["reason"] == "error":
        return
    verdict = verdict_on(instance, result)
    assert verdict.faults == []
    best = optimum(instance, objective)
    if result["decision"] is not None:
        assert verdict.proof is not None
        assert verdict.proof.bound is not None
        assert best is not None
        assert not better(best, verdict.proof.bound, objective)
        assert verdict.proof.bound == pytest.approx(result["certificate"]["bound"], rel=1e-9, abs=1e-9)


@settings(max_examples=examples(30))
@given(instance=small_instances(max_jobs=3), objective=OBJECTIVE, data=st.data())
def test_tampering_with_a_price_passes_only_where_the_claim_is_still_proven(
    instance: Instance, objective: str, data: st.DataObject
) -> None:
    instance = with_objective(instance, objective)
    result = solved(instance)
    assume(result["certificate"] is not None)
    prices = result["certificate"]["prices"]
    rows = rows_of(*decided(instance)[:2])
    name = data.draw(st.sampled_from(sorted(prices or rows)))
    if name in prices:
        prices[name] *= data.draw(st.sampled_from([0.0, 0.5, 0.999, 1.001, 2.0, 1000.0]))
    else:
        worth = data.draw(st.sampled_from([1e-6, 0.1, 100.0]))
        # What there must be has prices of the other sign.
        sign = 1.0 if rows[name].kind == "least" else -1.0
        prices[name] = sign * worth if OBJECTIVES[objective] == "min" else -sign * worth
    proof = prove(instance, prices)
    best = optimum(instance, objective)
    assert proof.bound is not None
    assert best is None or not better(best, proof.bound, objective)
    size = sum(abs(price) * float(rows[row].limit + rows[row].standing) for row, price in prices.items())
    certificate = result["certificate"]
    claimed = certificate["price_bound"] if certificate["tree"] else certificate["bound"]
    excess = claimed - proof.bound if OBJECTIVES[objective] == "min" else proof.bound - claimed
    caught = any("certificate: claims the bound" in fault for fault in verdict_on(instance, result).faults)
    assert caught or excess <= 1e-8 * max(1.0, size + abs(proof.bound))
    assert not caught or excess > 0


@pytest.mark.slow
@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
@pytest.mark.parametrize(
    ("family", "fields"),
    [("uniform", {}), ("hetero", {"unavailable": 0.05}), ("sia-like", {}), ("philly-like", {})],
)
def test_families_pass_and_each_tampering_is_caught(family: str, fields: dict, objective: str) -> None:
    instance = with_objective(generate(family, jobs=6, seed=2, **fields), objective)
    result = wattsched.solve(instance).model_dump(mode="json")
    assert verdict_on(instance, result).faults == []
    worse = 1e-6 if result["sense"] == "min" else -1e-6
    bound, objective_value = result["certificate"]["bound"], result["objective"]
    scale = max(abs(bound), 1.0)

    def said(**changes: Any) -> str:
        return "; ".join(verdict_on(instance, {**result, **changes}).faults)

    claimed = {**result["certificate"], "bound": bound + 10 * worse * scale}
    assert "certificate: claims the bound" in said(certificate=claimed)
    weaker = {**result["certificate"], "bound": bound - 10 * worse * scale}
    assert "the bound goes beyond the certificate" in said(certificate=weaker, claimed=False)
    assert verdict_on(instance, restated(result, certificate=weaker)).claimed
    assert verdict_on(instance, restated(result, certificate=weaker)).faults == []
    assert "objective" in said(objective=objective_value - 10 * worse * max(1.0, abs(objective_value)))
    assert "gap" in said(gap=result["gap"] + 0.01)
    assert "bound" in said(bound=objective_value + 100 * worse * max(1.0, abs(objective_value)))
    if result["decision"]["jobs"]:
        first, *others = result["decision"]["jobs"]
        stopped = {"jobs": others, "waiting": [*result["decision"]["waiting"], first["job"]]}
        assert said(decision=stopped) != ""
    for name, price in result["prices"].items():
        assert f"prices: '{name}'" in said(prices={**result["prices"], name: price * 1.01})
        others = {other: value for other, value in result["prices"].items() if other != name}
        assert f"prices: '{name}' is missing" in said(prices=others)


def test_a_decision_that_beats_the_proof_is_a_contradiction() -> None:
    """Only a proof that is wrong, or a rule that the checker does not know, can bring that about."""
    result = solved(SIX)

    def told(proof: Proof) -> bool:
        report = Report([], 3900.0)
        rules = replace(problem("sizing"), prover=lambda _: lambda *_: proof, check=lambda *_: report)
        return any("no decision can beat" in fault for fault in check_result(rules, SIX, result).faults)

    assert told(Proof([], bound=4000.0, reach=4000.0))
    assert not told(Proof([], bound=4000.0, reach=4000.0, leeway=100.0))


def test_infeasible_results_claim_nothing_else() -> None:
    tight = SIX.model_copy(update={"budgets": SIX.budgets.model_copy(update={"power_w": 250.0})})
    result = solved(tight)
    assert result["termination"]["reason"] == "infeasible"
    assert verdict_on(tight, result).faults == []
    for name, value in (
        ("objective", 1.0),
        ("bound", 1.0),
        ("gap", 0.0),
        ("certificate", {"prices": {}, "bound": 1.0}),
    ):
        assert any(name in fault for fault in verdict_on(tight, {**result, name: value}).faults)
    assert verdict_on(tight, {**result, "checked": True}).faults != []
    decided = {**result, "decision": solved(SIX)["decision"]}
    assert "termination: the result says 'infeasible' but has a decision" in verdict_on(tight, decided).faults
