"""Results of problems with decisions of their own: honest ones pass, and changed fields are told."""

from __future__ import annotations

import math
from copy import deepcopy
from typing import Any

import pytest

from tests.strategies.forgeries import restated
from wattsched import solve
from wattsched.instances.generators.sharing import sharing_round
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.results.documents import instance_of, verdict_on

SHARING = sharing_round(jobs=6, seed=0)
HORIZON = shifting_horizon(jobs=3, slots=6, seed=0)
RESULT: dict[str, Any] = solve(SHARING).model_dump(mode="json")


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"sense": "max"}, "sense: 'eaco' is a min objective"),
        ({"objective_name": "foo"}, "objective_name: 'foo' is not an objective of 'sharing'"),
        ({"objective_name": []}, "objective_name"),
        ({"objective_name": "throughput"}, "objective"),
        ({"prices": RESULT["prices"] | {"job:job0": -100.0}}, "prices: 'job:job0' is -100"),
        ({"certificate": None, "prices": {"power_w": 1.0}}, "prices: there is no certificate"),
        ({"totals": []}, "totals: must be an object"),
        ({"totals": {}}, "totals.power_w"),
        ({"totals": RESULT["totals"] | {"power_w": 1.0}}, "totals.power_w"),
        ({"totals": RESULT["totals"] | {"foo": 1.0}}, "totals.foo"),
        ({"certificate": RESULT["certificate"] | {"prices": {"job:job0": 10**400}}}, "not a finite number"),
        ({"certificate": RESULT["certificate"] | {"prices": {"job:job0": True}}}, "not a finite number"),
        ({"certificate": RESULT["certificate"] | {"prices": {"row": 1.0}}}, "of row 'row' proves nothing"),
        ({"decision": None, "termination": "x"}, "the result holds no decision to check"),
        ({"decision": None}, "the result holds no decision to check"),
        ({"decision": {"sets": []}}, "decision: waiting: is missing"),
        ({"decision": 5}, "decision: must be an object, got 5"),
        ({"instance": "another"}, "not of 'sharing-6-0'"),
        ({"objective": RESULT["objective"] - 1.0}, "objective: the result claims"),
        ({"objective": None}, "no finite objective"),
        ({"objective": "5000"}, "no finite objective"),
        ({"bound": RESULT["objective"] + 1.0}, "is on the wrong side of the objective"),
        ({"gap": RESULT["gap"] + 0.01}, "gap: the result claims"),
        ({"gap": None}, "gap: the result claims None"),
        ({"bound": None}, "no gap without a bound"),
        ({"bound": None, "gap": None}, "'optimal' needs a gap"),
        ({"certificate": 5}, "certificate: needs 'prices'"),
        ({"certificate": {"prices": [], "bound": 1.0}}, "certificate: needs 'prices'"),
        ({"certificate": {"prices": {}, "bound": math.inf}}, "certificate: needs 'prices'"),
        ({"prices": {"gpus:B": 0.0}}, "prices: the certificate has no price of 'gpus:B'"),
        ({"prices": {"job:job0": "many"}}, "prices: 'job:job0' is many"),
    ],
)
def test_a_changed_field_is_told(changes: dict[str, Any], told: str) -> None:
    faults = verdict_on(SHARING, deepcopy(RESULT) | changes).faults
    assert any(told in fault for fault in faults), faults


@pytest.mark.parametrize("off", [0.0, 8e-7])
def test_objectives_are_compared_to_a_millionth(off: float) -> None:
    assert not verdict_on(SHARING, restated(RESULT, objective=RESULT["objective"] * (1 + off))).faults


def test_an_objective_without_its_forecast_is_told() -> None:
    horizon = shifting_horizon(jobs=3, seed=0).model_copy(update={"price_per_kwh": None})
    result = solve(horizon, objective="mean-completion").model_dump(mode="json")
    assert not verdict_on(horizon, result).faults
    told = verdict_on(horizon, result | {"objective_name": "money"}).faults
    assert any(fault.startswith("objective:") for fault in told)


@pytest.mark.parametrize(("instance", "sense"), [(SHARING, "min"), (SHARING, "max"), (HORIZON, "min")])
def test_certificates_may_claim_less_than_they_prove_but_no_more(instance: Any, sense: str) -> None:
    objective = "throughput" if sense == "max" else None
    result = solve(instance, objective=objective, gap=0.05).model_dump(mode="json")
    proven, step = result["certificate"]["bound"], 0.01 if sense == "max" else -0.01
    for factor, honest in ((1 + step, True), (1 - step, False)):
        certificate = result["certificate"] | {"bound": proven * factor}
        told = verdict_on(instance, result | {"certificate": certificate}).faults
        assert honest is not any("its prices prove" in fault for fault in told)


GPU = {"gpu_types": {"A": {"idle_power_w": 50.0}}, "nodes": [{"name": "n", "gpu_type": "A", "gpus": 4}]}
ONE = {"gpus": [1], "pool": ["A"], "power_w": [300.0], "rate": [1.0]}
BOUND = {"name": "a", "options": ONE, "remaining_work": 1000.0, "can_wait": False}
FREE = {"name": "b", "options": ONE, "remaining_work": 1000.0}


def sizing(*jobs: dict[str, Any], **fields: Any) -> Any:
    return instance_of({"objective": "goodput", "cluster": GPU, "jobs": list(jobs), **fields})


def late_in_shifting() -> Any:
    late = HORIZON.jobs[1].model_copy(update={"deadline_s": HORIZON.jobs[1].arrival_s + 1e-3})
    return HORIZON.model_copy(update={"jobs": [HORIZON.jobs[0], late, HORIZON.jobs[2]]})


def late_in_sharing() -> Any:
    late = SHARING.jobs[0].model_copy(update={"deadline_s": 1e-3, "can_wait": False})
    return SHARING.model_copy(update={"jobs": [late, *SHARING.jobs[1:]]})


TRIVIAL = {
    "past its deadline": sizing({**BOUND, "deadline_s": 500.0}, FREE),
    "beyond its tenant's joules": sizing({**BOUND, "tenant": "t"}, FREE, tenants={"t": {"energy_j": 10.0}}),
    "late in its only set": sizing(
        {**BOUND, "deadline_s": 500.0},
        {**FREE, "deadline_s": 2000.0},
        sets=[{"name": "s", "pool": "A", "gpus": 1, "power_w": 300.0, "rates": {"a": 5.0, "b": 0.1}}],
    ),
    "above the power cap": sizing(BOUND, FREE, budgets={"power_w": 300.0}),
    "below what all jobs' options give": sizing(
        {**FREE, "deadline_s": 500.0}, budgets={"least_goodput": 1.0}
    ),
    "nothing but idle GPUs": sizing(budgets={"power_w": 100.0}),
    "shifting": late_in_shifting(),
    "sharing": late_in_sharing(),
}


@pytest.mark.parametrize("case", TRIVIAL)
def test_what_a_look_at_each_job_shows_needs_no_word_of_a_solver(case: str) -> None:
    instance = TRIVIAL[case]
    result = solve(instance)
    assert (result.termination.reason, result.claimed) == ("infeasible", False), result.termination
    document = result.model_dump(mode="json")
    verdict = verdict_on(instance, document)
    assert verdict.requiring(0.0).faults == []
    assert verdict.infeasible
    assert not verdict.claimed
    if result.certificate is None:
        # It may be said to be on a solver's word, as earlier versions did.
        assert verdict_on(instance, document | {"claimed": True}).faults == []


@pytest.mark.parametrize("jobs", [(BOUND, FREE), ({**FREE, "deadline_s": 500.0}, BOUND), ()])
def test_a_round_with_a_decision_is_not_infeasible_by_nothing(jobs: tuple[dict[str, Any], ...]) -> None:
    instance = sizing(*jobs)
    for certificate in (None, {"prices": {}, "bound": 1.0}):
        document = solve(instance.model_copy(update={"objective": "goodput"})).model_dump(mode="json")
        nothing = dict.fromkeys(("objective", "bound", "gap", "proven_gap", "decision"))
        ended = {"reason": "infeasible", "limit": None, "detail": ""}
        told = {"certificate": certificate, "prices": {}, "totals": {}, "dropped": {}, "checked": False}
        verdict = verdict_on(instance, document | nothing | told | {"termination": ended})
        assert verdict.faults
        assert not verdict.infeasible
