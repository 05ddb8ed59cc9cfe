"""Budgets said to be short are so: with a little less than that more, there is still no decision."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings

from tests.brute_force import sharing as sharing_brute_force
from tests.brute_force import shifting as shifting_brute_force
from tests.strategies.effort import examples
from tests.strategies.sharing import sharing_instances
from tests.strategies.shifting import tiny as tiny_shifting
from wattsched import solve
from wattsched.instances.sharing.instance import SharingInstance

TOLD = re.compile(r"(.+) is short by at least (\S+)")
LITTLE = 1e-4
"""More than a checker's tolerance, relative to the budget."""


def _grown(instance: Any, row: str, by: float) -> Any:
    budgets = instance.budgets
    limit = getattr(budgets, row)
    grown = limit + (1 - LITTLE) * by - LITTLE * limit
    return instance.model_copy(update={"budgets": budgets.model_copy(update={row: grown})})


def _hold(instance: Any, formulation: str, optimum: Any) -> int:
    """Check what is said of an instance; the number of budgets that were named."""
    result = solve(instance, formulation=formulation)
    if result.termination.reason != "infeasible":
        return 0
    named = 0
    for words in result.termination.detail.split("; "):
        if (told := TOLD.fullmatch(words)) is None:
            continue
        row, by = told[1], float(told[2])
        assert by > 0
        if row.partition(":")[0] in ("gpus", "nodes"):
            continue
        assert optimum(_grown(instance, row, by)) is None, (row, by)
        named += 1
    assert "slot:" not in result.termination.detail
    assert "work" not in result.termination.detail
    return named


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["schedules", "time-indexed"])
def test_shifting(formulation: str) -> None:
    instances = [tiny_shifting(seed) for seed in range(80)]
    assert sum(_hold(i, formulation, shifting_brute_force.optimum) for i in instances) >= 2


@settings(max_examples=examples(60))
@given(sharing_instances(most_jobs=4))
def test_sharing(instance: SharingInstance) -> None:
    jobs = [job.model_copy(update={"can_wait": False}) for job in instance.jobs]
    _hold(
        instance.model_copy(update={"jobs": jobs}),
        "patterns",
        lambda one: sharing_brute_force.optimum(one, one.objective),
    )


def _on_one_node(jobs: int, **more: Any) -> SharingInstance:
    """Jobs that may not wait and need a node each, and one node of 300 W."""
    return SharingInstance.model_validate(
        {
            "problem": "sharing",
            "unit_types": [
                {"name": "node", "count": 1, "gpus": 8, "idle_power_w": 300.0, "full_power_w": 300.0}
            ],
            "classes": [{"name": "any", "alone": {"node": {"epoch_s": 60.0, "utilisation_pct": 90.0}}}],
            "jobs": [
                {"name": f"job{j}", "job_class": "any", "exclusive": True, "can_wait": False}
                for j in range(jobs)
            ],
            **more,
        }
    )


def test_units_that_are_too_few_are_told_not_jobs_that_could_run() -> None:
    assert solve(_on_one_node(1)).termination.reason == "optimal"
    assert solve(_on_one_node(3)).termination.detail == "nodes:node is short by at least 2"


def test_budgets_are_told_under_the_name_that_they_have_in_the_file() -> None:
    told = solve(_on_one_node(1, budgets={"power_w": 200.0})).termination.detail
    assert told == "power_w is short by at least 100"
