"""`makespan` and `max-min`: optimal, proven by prices alone, and no claim beyond that passes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.brute_force.agreement import pays_moves
from tests.brute_force.sizing import optimum
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances
from tests.strategies.priced import with_objective
from wattsched import generate, solve
from wattsched.formulations.timer import Timer
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.result import Result
from wattsched.solvers import tree
from wattsched.solvers.bottleneck import bottleneck_of
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.solution import Limits, relative_gap
from wattsched.solving.engine import model_of
from wattsched.verification.claims import beyond_proof
from wattsched.verification.sizing.bound import prove
from wattsched.verification.sizing.objectives import BOTTLENECK, OBJECTIVES

OBJECTIVE = st.sampled_from(BOTTLENECK)
SOLVERS = [
    (formulation, solver) for formulation in ("mckp", "assignment") for solver in ("auto", "price", "greedy")
]
INSTANCES = st.one_of(small_instances(max_jobs=3), instances_with_sets())


def faults_of(instance: Instance, result: dict[str, Any]) -> list[str]:
    return verdict_on(instance, result).faults


@settings(max_examples=examples(60))
@given(instance=INSTANCES, objective=OBJECTIVE, chosen=st.sampled_from([*SOLVERS, ("mckp", "highs")]))
def test_optima_are_those_of_trying_everything(
    instance: Instance, objective: str, chosen: tuple[str, str]
) -> None:
    formulation, solver = chosen
    best = optimum(instance, objective)
    result = solve(instance, formulation=formulation, solver=solver, objective=objective, gap=0.0)
    assert faults_of(instance, result.model_dump(mode="json")) == []
    if result.solved and solver != "greedy":
        assert result.termination.reason == "optimal" or pays_moves(result)
        if not pays_moves(result):
            assert result.objective == pytest.approx(best, rel=1e-9)
    elif solver != "greedy":
        assert best is None
    if result.certificate is not None and best is not None:
        sign = 1.0 if result.sense == "min" else -1.0
        assert sign * result.certificate.bound <= sign * best + 1e-9 * abs(best)


@pytest.fixture(
    scope="module", params=[("uniform", "max-min"), ("philly-like", "max-min"), ("uniform", "makespan")]
)
def answered(request: pytest.FixtureRequest) -> tuple[Instance, Result]:
    """A round of 200 jobs, and its answer."""
    family, objective = request.param
    instance = with_objective(generate(family, jobs=200, seed=1), objective)
    return instance, solve(instance)


def test_prices_prove_the_optimum_of_a_round(answered: tuple[Instance, Result]) -> None:
    instance, result = answered
    assert result.termination.reason == "optimal"
    assert result.certificate is not None
    proof = prove(instance, result.certificate.prices)
    assert proof.bound is not None
    assert relative_gap(result.objective, proof.bound) <= 1e-4
    assert faults_of(instance, result.model_dump(mode="json")) == []
    # They have no scale, but are stated as what a unit more improves the objective by.
    twice = prove(instance, {name: 2 * price for name, price in result.certificate.prices.items()})
    assert twice.bound == pytest.approx(proof.bound, rel=1e-12)
    assert all(price > 0 for price in result.prices.values())


def test_whoever_claims_more_is_refused(answered: tuple[Instance, Result]) -> None:
    instance, result = answered
    content = result.model_dump(mode="json")
    better = -1 if result.sense == "min" else 1
    bound, prices = content["certificate"]["bound"], content["certificate"]["prices"]
    forged = {**content, "certificate": {"prices": prices, "bound": bound * (1 - better * 1e-3)}}
    assert any("claims the bound" in fault for fault in faults_of(instance, forged))
    if prices:
        for name in prices:
            turned = {**content, "certificate": {"prices": {**prices, name: -prices[name]}, "bound": bound}}
            assert any(name in fault for fault in faults_of(instance, turned))
        empty = {**content, "prices": {}, "certificate": {"prices": {}, "bound": bound}}
        assert any("claims the bound" in fault for fault in faults_of(instance, empty))


@settings(max_examples=examples(30))
@given(instance=small_instances(max_jobs=3), objective=OBJECTIVE)
def test_certificates_of_the_linear_relaxation_are_still_valid(instance: Instance, objective: str) -> None:
    """As earlier versions wrote them: with prices of the jobs' rows."""
    result = solve(instance, objective=objective, gap=0.0)
    assume(result.solved)
    model = model_of(instance, objective=objective)
    relaxed = solve_lp(model.program, Limits())
    assert model.named_prices is not None
    assert relaxed.prices is not None
    named = model.named_prices(relaxed.prices)
    bound = model.program.reported(model.program.lagrangian_bound(relaxed.prices))
    stated = {name: abs(price) for name, price in named.items() if not name.startswith(("worst:", "share:"))}
    content = result.model_dump(mode="json")
    content |= {"prices": stated, "certificate": {"prices": named, "bound": bound}}
    claimed = beyond_proof(result.termination.reason, result.bound, bound, result.sense)
    content |= {"proven_gap": relative_gap(result.objective, bound), "claimed": claimed}
    assert faults_of(with_objective(instance, objective), content) == []


@pytest.mark.parametrize(
    ("family", "jobs", "seed"), [("philly-like", 4, 8), ("uniform", 2, 1028), ("philly-like", 3, 1068)]
)
def test_thresholds_that_lps_do_not_refute_are_refuted_by_cases(family: str, jobs: int, seed: int) -> None:
    instance = with_objective(generate(family, jobs=jobs, seed=seed), "max-min")
    by_prices, result = solve(instance, prove=0.0), solve(instance)
    assert by_prices.certificate is not None
    assert result.certificate is not None
    assert result.objective == pytest.approx(by_prices.objective)
    assert result.proven_gap is not None
    assert result.proven_gap <= 1e-4
    claimed = result.model_dump(mode="json")
    assert verdict_on(instance, claimed).requiring(1e-4).faults == []
    # A leaf without its prices, and a bound that is better than the optimum, prove nothing.
    forged = result.model_dump(mode="json")
    forged["certificate"]["bound"] *= 1.0 - 1e-3
    assert faults_of(instance, forged)
    if result.certificate.tree:
        leaf = next(node for node in claimed["certificate"]["tree"] if node["prices"])
        leaf["prices"] = {}
        assert faults_of(instance, claimed)


@settings(max_examples=examples(30))
@given(instance=INSTANCES, objective=OBJECTIVE)
def test_cases_prove_no_threshold_beyond_the_optimum(instance: Instance, objective: str) -> None:
    instance = with_objective(instance, objective)
    assume((best := optimum(instance, objective)) is not None)
    model = model_of(instance)
    bottleneck = bottleneck_of(model.program)
    assume(bottleneck is not None)
    assert bottleneck is not None
    assert best is not None
    cost = best if OBJECTIVES[objective] == "min" else -best
    place = bottleneck.place(cost)
    grown = tree.prove_threshold(bottleneck, bottleneck.cost(place), Timer())
    assert (grown is None) == (place == 0), "every level below the optimum is refuted"
    for beyond in range(place + 1, len(bottleneck.levels) + 1):
        # Levels may differ in the last digit only.
        if bottleneck.cost(beyond) > cost + 1e-9 * abs(cost):
            assert tree.prove_threshold(bottleneck, bottleneck.cost(beyond), Timer()) is None
