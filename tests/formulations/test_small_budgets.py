"""Budgets however small, down to denormal numbers: what is decided is what trying all finds."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import wattsched
from tests.brute_force.sizing import optimum
from wattsched.results.documents import instance_of, verdict_on

UNITS = (1e-300, 1e-100, 1e-30, 1e-15, 1e-12, 1e-10, 1e-8, 1e-5, 1e-3)
FACTORS = (0.3, 0.5, 0.999999, 1.0, 1.0000001, 1.5, 2.0, 3.0)
KINDS = ("power_w", "energy_j", "carbon_g", "least_goodput", "tenant", "domain")
HOW = (("mckp", "auto"), ("mckp", "highs"), ("mckp", "cpsat"), ("mckp", "greedy"), ("assignment", "highs"))


def round_of(kind: str, unit: float, choice: Random) -> Any:
    """Jobs that draw about a unit, under a budget of about one."""
    jobs = []
    for name in "ab":
        options = {"gpus": [1, 2], "pool": ["A", "A"], "rate": [1.0, choice.choice(FACTORS)]}
        options["power_w"] = [unit * choice.choice(FACTORS) for _ in range(2)]
        jobs.append({"name": name, "options": options, "remaining_work": 100.0, "can_wait": name == "a"})
    limit = unit * choice.choice(FACTORS) * (300.0 if kind in ("energy_j", "carbon_g") else 1.0)
    node = {"name": "n", "gpu_type": "A", "gpus": 4}
    document: dict[str, Any] = {
        "objective": choice.choice(["total-completion", "goodput", "energy", "makespan"]),
        "carbon_g_per_kwh": 3.6e6,
        "budgets": {"scope": choice.choice(["round", "completion"])},
        "cluster": {"gpu_types": {"A": {"idle_power_w": choice.choice([0.0, unit / 10])}}, "nodes": [node]},
    }
    match kind:
        case "tenant":
            document["tenants"] = {"t": {"power_w": limit}}
            jobs = [{**job, "tenant": "t", "can_wait": True} for job in jobs]
        case "domain":
            domain = {"name": "d", "members": ["n"], "power_cap_w": limit}
            document["cluster"]["power_domains"] = [domain]
        case _:
            document["budgets"][kind] = limit
    return instance_of({**document, "jobs": jobs})


@pytest.mark.parametrize("kind", KINDS)
def test_small_budgets_are_kept(kind: str) -> None:
    choice, reasons = Random(kind), set()
    for unit in UNITS:
        instance = round_of(kind, unit, choice)
        best = optimum(instance, instance.objective)
        formulation, solver = choice.choice(HOW)
        result = wattsched.solve(instance, formulation=formulation, solver=solver, gap=0.0)
        assert verdict_on(instance, result.model_dump(mode="json")).faults == []
        reasons.add(result.termination.reason)
        if best is None:
            assert result.termination.reason == "infeasible", (unit, result.termination)
        elif solver != "greedy":
            assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-300), (unit, result.termination)
    assert "optimal" in reasons


@pytest.mark.parametrize("limit", [5e-324, 1e-310, 1e-12, 1e18])
def test_budgets_far_from_what_jobs_need_are_told_apart(limit: float) -> None:
    options = {"gpus": [1], "pool": ["A"], "rate": [1.0], "power_w": [100.0]}
    cluster = {
        "gpu_types": {"A": {"idle_power_w": 0.0}},
        "nodes": [{"name": "n", "gpu_type": "A", "gpus": 1}],
    }
    for budget in ("power_w", "least_goodput"):
        document = {"objective": "goodput", "cluster": cluster, "budgets": {budget: limit}}
        instance = instance_of({**document, "jobs": [{"name": "a", "options": options}]})
        result = wattsched.solve(instance)
        assert verdict_on(instance, result.model_dump(mode="json")).faults == []
        if budget == "least_goodput" and limit > 1:
            assert "no decision has more than 1" in result.termination.detail
        else:
            runs = budget == "least_goodput" or limit > 1
            assert (result.termination.reason, result.objective) == ("optimal", float(runs))
