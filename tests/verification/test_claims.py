"""Results of problems with decisions of their own: honest ones pass, and changed fields are told."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from wattsched import solve
from wattsched.documents import verdict_on
from wattsched.instances.generators.sharing import sharing_round
from wattsched.instances.generators.shifting import shifting_horizon

SHARING = sharing_round(jobs=6, seed=0)
HORIZON = shifting_horizon(jobs=3, slots=6, seed=0)
RESULT: dict[str, Any] = solve(SHARING).model_dump(mode="json")


def faults(instance: Any = SHARING, **changes: Any) -> list[str]:
    return verdict_on(instance, deepcopy(RESULT) | changes).faults


def test_an_honest_result_passes() -> None:
    assert not faults()


@pytest.mark.parametrize("objective", ["eaco", "energy", "power", "throughput"])
def test_every_objective_passes(objective: str) -> None:
    result = solve(SHARING, objective=objective).model_dump(mode="json")
    assert not verdict_on(SHARING, result).faults


def test_an_infeasible_result_passes() -> None:
    jobs = [job.model_copy(update={"exclusive": True, "can_wait": False}) for job in SHARING.jobs]
    crowded = SHARING.model_copy(update={"jobs": jobs})
    result = solve(crowded).model_dump(mode="json")
    assert result["termination"]["reason"] == "infeasible"
    verdict = verdict_on(crowded, result)
    assert not verdict.faults
    assert verdict.report is None


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
        ({"objective": RESULT["objective"] - 1.0}, "objective: the result claims"),
        ({"bound": RESULT["objective"] + 1.0}, "bound"),
    ],
)
def test_a_changed_field_is_told(changes: dict[str, Any], told: str) -> None:
    assert any(told in fault for fault in faults(**changes)), faults(**changes)


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
