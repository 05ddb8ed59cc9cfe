"""Gaps count from the rounding of what an objective is the sum of: an optimum of 0 is optimal."""

from __future__ import annotations

from typing import Any

import pytest

import wattsched
from wattsched.results.documents import instance_of

SIZING: dict[str, Any] = {
    "name": "heavy",
    "objective": "goodput",
    "budgets": {"power_w": 840.0007},
    "cluster": {
        "capacity": "count",
        "gpu_types": {"C": {"idle_power_w": 40}},
        "nodes": [{"name": "n", "gpu_type": "C", "gpus": 20, "base_power_w": 40}],
    },
    "jobs": [
        {
            "name": "j",
            "weight": 1e6,
            "options": {"gpus": [1, 6], "pool": ["C", "C"], "power_w": [990.9, 2401.3], "rate": [1.7, 7.77]},
        }
    ],
}
PLACEMENT: dict[str, Any] = {
    "name": "nothing",
    "problem": "placement",
    "objective": "fragmentation",
    "gpu_types": {"X": {"idle_power_w": 30, "full_power_w": 330}},
    "nodes": [{"name": "n", "cpu_milli": 8000, "memory_mib": 1024, "gpus": 1, "gpu_type": "X"}],
    "tasks": [{"name": "t", "cpu_milli": 0, "gpus": 1, "gpu_milli": 300}],
    "workload": [{"cpu_milli": 1000, "gpus": 1, "gpu_milli": 300, "count": 1}],
}


@pytest.mark.parametrize("solver", ["auto", "highs", "cpsat", "price"])
@pytest.mark.parametrize("document", [SIZING, PLACEMENT], ids=["sizing", "placement"])
def test_rounding_is_no_gap(document: dict[str, Any], solver: str) -> None:
    instance = instance_of(document)
    result = wattsched.solve(instance, solver=solver)
    assert result.termination.reason == "optimal"
    assert result.gap == 0.0
    verdict = wattsched.check(instance, result)
    assert verdict.faults == []


def test_more_than_rounding_is_a_gap() -> None:
    """A light job beside a heavy one that cannot run, of a billionth of its worth, still counts."""
    light = {"gpus": [1], "pool": ["C"], "power_w": [60.0], "rate": [0.01]}
    jobs = [*SIZING["jobs"], {"name": "light", "weight": 1e-3, "options": light}]
    instance = instance_of(SIZING | {"jobs": jobs, "budgets": {"power_w": 870.0}})
    best = wattsched.solve(instance)
    assert (best.termination.reason, best.objective) == ("optimal", pytest.approx(1e-3))
    assert [one.job for one in best.decision.jobs] == ["light"]
