"""Shifting with scenarios: against all plans of small horizons, and what their certificates prove.

SCENARIO_CASES=500 SCENARIO_SEED=7 pytest tests/formulations/shifting/test_scenarios.py is a campaign.
"""

from __future__ import annotations

import copy
import os
import random
from io import StringIO
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import wattsched
from tests.brute_force import shifting_scenarios as brute
from tests.strategies.effort import examples
from wattsched.instances.errors import InputError
from wattsched.instances.shifting.decision import Plan
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.report.shifting import VIEW, print_decision, print_instance, rows_of
from wattsched.report.summary import price_rows
from wattsched.report.wording import scarce
from wattsched.results.problems import problem
from wattsched.solving.engine import model_of
from wattsched.verification.shifting.scenarios import ScenarioProver
from wattsched.verification.tree import Taken
from wattsched.verification.verdict import check_result

CASES = int(os.environ.get("SCENARIO_CASES", examples(10)))
SEED = int(os.environ.get("SCENARIO_SEED", "0"))
SOLVERS = ("auto", "highs", "price", "pyomo:highs")


@pytest.mark.parametrize("number", range(CASES))
def test_against_all_plans(number: int) -> None:
    """Optimum, infeasibility and certificate of a horizon that a random solver decides."""
    seed = SEED * 1_000_003 + number
    document = brute.random_horizon(random.Random(seed))
    instance, truth = ShiftingInstance.model_validate(document), brute.least_cost(document)
    found = wattsched.solve(instance, gap=1e-6, solver=SOLVERS[seed % len(SOLVERS)])
    verdict = wattsched.check(instance, found)
    assert verdict.faults == []
    if truth is None:
        assert found.termination.reason == "infeasible"
        assert verdict.infeasible
        return
    assert found.termination.reason == "optimal"
    assert found.objective == pytest.approx(truth, rel=2e-6, abs=1e-9)
    assert found.certificate is not None
    assert found.certificate.bound <= truth + 1e-6 * abs(truth)
    assert found.proven_gap is not None
    assert found.proven_gap <= 2e-6


@pytest.mark.parametrize("number", range(2 * CASES))
def test_any_prices_and_splits_prove_no_more_than_the_optimum(number: int) -> None:
    """What random prices of rows and runs prove on all sides of random splits holds for the best of them."""
    rng = random.Random(SEED * 1_000_003 + number)
    document = brute.random_horizon(rng)
    instance, truth = ShiftingInstance.model_validate(document), brute.least_cost(document)
    prove = ScenarioProver(instance)
    if truth is None:
        return
    for _ in range(3):
        size = rng.choice((0.0, 0.1, 1.0)) * abs(truth)
        runs = {name: size * rng.gauss(0, 1) for name in prove.runs if rng.random() < 0.7}
        rows = {name: -size * rng.random() for name in prove.limits if rng.random() < 0.3}
        splits = [_random_split(rng, instance) for _ in range(rng.randint(0, 3))]
        bounds = []
        for sides in range(2 ** len(splits)):
            taken = [Taken(split, bool(sides >> k & 1), k) for k, split in enumerate(splits)]
            proof = prove({**runs, **rows}, taken)
            assert proof.faults == []
            assert proof.bound is not None
            bounds.append(proof.bound)
        leeway = 2e-6 * (abs(truth) + sum(abs(y) * _limit(prove, name) for name, y in rows.items()))
        assert min(bounds) <= truth + leeway


def _limit(prove: ScenarioProver, name: str) -> float:
    scenario, row = prove.limits[name]
    return float(prove.parts[scenario][1].limits[row])


def _random_split(rng: random.Random, instance: ShiftingInstance) -> dict[str, Any]:
    job = rng.choice(instance.jobs)
    assert instance.scenarios is not None
    split: dict[str, Any] = {"scenario": rng.choice([*instance.scenarios]), "job": job.name, "at_most": 0}
    split["slot"] = rng.randrange(instance.slots)
    rows = range(len(instance.table_of(job).gpus))
    return split if rng.random() < 0.4 else {**split, "rows": rng.sample(rows, rng.randint(1, len(rows)))}


def wind(**fields: Any) -> ShiftingInstance:
    """One hour of work in two slots, of which the second is clean in half of the cases."""
    table = {"gpus": [1], "pool": ["a"], "rate": [1.0], "power_w": [1000.0]}
    scenarios = {
        "windy": {"probability": 0.5, "carbon_g_per_kwh": [100.0, 0.0]},
        "calm": {"probability": 0.5, "carbon_g_per_kwh": [100.0, 300.0]},
    }
    job = {"name": "j", "options": table, "remaining_work": 3600.0, "must_finish": True}
    known = {"problem": "shifting", "objective": "carbon", "slots": 2, "pools": {"a": {"gpus": 1}}}
    return ShiftingInstance.model_validate(
        {**known, "jobs": [job], "scenarios": scenarios, "decided_slots": 1, **fields}
    )


def test_by_hand() -> None:
    """Now costs 100 g; later costs 150 g on average; those who know the case pay 50 g."""
    found = wattsched.solve(wind())
    assert found.objective == pytest.approx(100.0)
    assert found.decision.jobs[0].runs[0].first_slot == 0
    assert wattsched.solve(wind(decided_slots=0)).objective == pytest.approx(50.0)
    assert wattsched.solve(wind().expected()).objective == pytest.approx(100.0)
    assert found.formulation == "time-indexed"
    with pytest.raises(ValueError, match="2 scenarios, which only 'time-indexed' takes"):
        wattsched.solve(wind(), formulation="schedules")
    compared = wattsched.compare(wind(), solvers=["highs", "auto"])
    assert [run.objective for run in compared.runs] == [pytest.approx(100.0)] * 2


def test_heuristics_have_one_plan_for_all_scenarios() -> None:
    for rule in ("greedy", "carbon-blind"):
        found = wattsched.solve(wind(), solver=rule)
        assert wattsched.check(wind(), found).faults == []
        plans = {plan.model_dump_json() for plan in found.decision.scenarios.values()}
        assert len(plans) == 1


def test_caps_differ_by_scenario() -> None:
    """A cap that forbids the second slot in one scenario makes the first the only one for all."""
    scenarios = wind().model_dump(exclude_none=True)["scenarios"]
    scenarios["windy"]["power_w"] = [2000.0, 10.0]
    for decided in (0, 1):
        found = wattsched.solve(wind(scenarios=scenarios, decided_slots=decided))
        assert found.objective == pytest.approx(100.0)
    assert wind(scenarios=scenarios).expected().power_w == [2000.0, 10.0]


def test_infeasible_in_one_scenario() -> None:
    scenarios = wind().model_dump(exclude_none=True)["scenarios"]
    scenarios["calm"]["power_w"] = 10.0
    instance = wind(scenarios=scenarios)
    found = wattsched.solve(instance)
    assert found.termination.reason == "infeasible"
    assert "scenario 'calm': job 'j'" in found.termination.detail
    assert wattsched.check(instance, found).infeasible


def test_plans_that_disagree_are_refused() -> None:
    instance = wind()
    decision = wattsched.solve(instance).decision
    windy = wattsched.solve(instance.in_scenario("windy")).decision
    alone = {**decision.scenarios, "windy": Plan(jobs=windy.jobs, waiting=windy.waiting)}
    faults = wattsched.check(instance, decision.model_copy(update={"scenarios": alone})).faults
    assert faults == ["scenario 'windy': job 'j' does not do in slot 0 what is decided"]
    waits = decision.model_copy(update={"jobs": [], "waiting": ["j"]})
    assert "scenario 'calm'" in str(wattsched.check(instance, waits).faults)
    for plans, told in ((None, "plans for none"), ({"calm": alone["calm"]}, "plans for calm,")):
        faults = wattsched.check(instance, decision.model_copy(update={"scenarios": plans})).faults
        assert told in faults[0]
    assert wattsched.check(instance.in_scenario("calm"), decision).faults == [
        "scenarios: the instance has none"
    ]


FORGED: dict[str, dict[str, Any]] = {
    "is not a scenario": {"scenario": "stormy", "job": "j0", "slot": 0, "rows": [0], "at_most": 0},
    "is not a job": {"scenario": "x", "job": "nobody", "slot": 0, "rows": [0], "at_most": 0},
    "is not one of the": {"scenario": "x", "job": "j0", "slot": 99, "at_most": 0},
    "is no row": {"scenario": "x", "job": "j0", "slot": 0, "rows": [99], "at_most": 0},
    "at_most": {"scenario": "x", "job": "j0", "slot": 0, "rows": [0], "at_most": 1},
    "scenario": {"job": "j0", "slot": 0, "rows": [0], "at_most": 0},
    "split.ends_by_s": {"scenario": "x", "job": "j0", "slot": 0, "at_most": 0, "ends_by_s": 1.0},
}


def test_forged_certificates_are_refused() -> None:
    """Neither a higher bound, nor one side of a split alone, nor splits and rows of something else."""
    document = brute.random_horizon(random.Random(26))
    instance = ShiftingInstance.model_validate(document)
    honest = wattsched.solve(instance, gap=1e-6).model_dump(mode="json")
    assert len(honest["certificate"]["tree"]) > 2
    assert _refusals(instance, honest) == []
    for message, split in FORGED.items():
        forged = copy.deepcopy(honest)
        forged["certificate"]["tree"][0]["split"] = split
        assert message in str(_refusals(instance, forged))
    tree = honest["certificate"]["tree"]
    leaf = next(node for node in reversed(tree) if node["prices"])
    for change in (
        {"bound": honest["certificate"]["bound"] + 0.01 * abs(honest["objective"])},
        {"tree": [leaf]},
        {"tree": [{**tree[0], "inside": tree[0]["outside"], "outside": tree[0]["inside"]}, *tree[1:]]},
        {"prices": {"x/nothing": -1.0}},
    ):
        forged = copy.deepcopy(honest)
        forged["certificate"] |= change
        assert _refusals(instance, forged)
    alone = instance.in_scenario("x")
    assert _refusals(alone, honest)


def _refusals(instance: ShiftingInstance, document: dict[str, Any]) -> list[str]:
    return check_result(problem("shifting"), instance, document).faults


HALF = {"probability": 0.5}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scenarios": {"a": HALF}}, "probabilities add up to 0.5, not to 1"),
        ({"scenarios": {"a": {"probability": 1.5}}}, "scenarios.a.probability"),
        ({"scenarios": {"a": {"probability": 1.0, "wind": 3}}}, "scenarios.a.wind"),
        (
            {"scenarios": {"a": {"probability": 1.0, "carbon_g_per_kwh": [1.0]}}},
            "scenarios.a.carbon_g_per_kwh has 1 numbers but the horizon has 2 slots",
        ),
        ({"scenarios": {"a": HALF, "b": HALF}}, "scenarios.a: objective 'carbon' needs the forecast"),
        ({"decided_slots": 3}, "decided_slots 3 is more than the 2 slots"),
        ({"decided_slots": None}, "are given together"),
        ({"scenarios": None}, "are given together"),
        ({"scenarios": {}}, "scenarios"),
    ],
)
def test_errors(fields: dict[str, Any], message: str) -> None:
    document = wind().model_dump(exclude_none=True) | fields
    with pytest.raises((InputError, ValueError)) as caught:
        wattsched.solve(ShiftingInstance.model_validate(document))
    told = caught.value.errors() if hasattr(caught.value, "errors") else []
    places = [".".join(map(str, error["loc"])) for error in told]
    assert message in str(caught.value) or message in places


def test_scenarios_are_printed() -> None:
    """What may come true, the plan of each scenario, and prices of limits, but not of ties between plans."""
    instance, out = wind(), Console(file=StringIO(), width=120)
    print_instance(out, instance)
    print_decision(out, wattsched.solve(instance).decision, instance)
    told = out.file.getvalue()
    assert "1 job over 2 slots of 1 h, the mean of 2 scenarios" in told
    assert "plans may differ after 1 slot" in told
    assert "windy  50 %  carbon █▁ 0 to 100" in told
    assert "Decision in calm  1 run" in told
    rows = rows_of(wattsched.solve(instance).decision)
    assert [row["scenario"] for row in rows] == ["windy", "calm"]
    prices = {"calm/carbon_g": -1.0, "calm/runs:j@0=0": 3.0}
    goal = VIEW.goals["carbon"]
    assert [row.label for row in price_rows(prices, goal, {})] == [f"{scarce('carbon_g').label} in calm"]


def test_what_takes_no_scenarios_says_so() -> None:
    with pytest.raises(ValueError, match="one without scenarios"):
        wattsched.pareto(wind(), 3)
    with pytest.raises(ValueError, match="scenarios: the instance has 2 of them"):
        wind().capped(np.array([100.0, 100.0]))
    with pytest.raises(ValueError, match="scenario: 'stormy' is not known"):
        wind().in_scenario("stormy")


def test_a_plan_is_fixed_by_its_columns() -> None:
    """Columns of the common plan have names by job, slot and row, and tie all scenarios."""
    program = model_of(wind()).listed
    assert "plan[j,0,0]" in program.column_names()
    assert {name for name in program.row_names() if "runs:" in name} == {
        "windy/runs:j@0=0",
        "calm/runs:j@0=0",
    }


def test_a_larger_horizon_keeps_its_limit_of_time() -> None:
    instance = wattsched.generate("shifting", jobs=6, slots=12, seed=2, carbon_fraction=None)
    forecast = instance.carbon_g_per_kwh
    scenarios = {
        name: {
            "probability": 0.5,
            "carbon_g_per_kwh": [factor * v for v in forecast[:4]] + forecast[4:][::order],
        }
        for name, factor, order in (("as forecast", 1.0, 1), ("reversed", 1.0, -1))
    }
    document = instance.model_dump(exclude_none=True) | {"scenarios": scenarios, "decided_slots": 4}
    uncertain = ShiftingInstance.model_validate(document)
    found = wattsched.solve(uncertain, time_limit=1.5)
    assert wattsched.check(uncertain, found).faults == []
    assert found.time_s["total"] < 1.05 * 1.5 + 0.5
