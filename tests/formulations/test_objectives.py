"""Every objective on one hand-worked job: 2 options and waiting, running now on one GPU."""

from __future__ import annotations

import math

import pytest

import wattsched
from wattsched.formulations.sizing.data import expand
from wattsched.formulations.sizing.objectives import OBJECTIVES, objective
from wattsched.instances.sizing.instance import Instance
from wattsched.verification.sizing.objectives import BOTTLENECK

JOB = {
    "name": "job",
    "weight": 2.0,
    "restart_s": 30.0,
    "remaining_work": 1200.0,
    "current": {"gpus": 1, "pool": "A", "nodes": {"n": [0]}},
    "options": {"gpus": [1, 4], "pool": ["A", "A"], "rate": [1.0, 3.0], "power_w": [100.0, 350.0]},
}
CLUSTER = {"gpu_types": {"A": {"idle_power_w": 10.0}}, "nodes": [{"name": "n", "gpu_type": "A", "gpus": 4}]}
# Staying takes 1200 s; four GPUs 400 s + 30 s restart; waiting a round of 300 s and then 430 s.
EXPECTED = {
    "total-completion": [2 * 1200, 2 * 430, 2 * 730],
    "makespan": [2 * 1200, 2 * 430, 2 * 730],
    "progress": [2 * 3600 / 1200, 2 * 3600 / 430, 0.0],
    "max-min": [430 / 1200 / 2, 1 / 2, 430 / 730 / 2],
    "proportional": [2 * math.log(1200 / 430), 0.0, 2 * math.log(730 / 430)],
    "goodput": [2 * 1.0, 2 * 3.0 * 0.9, 0.0],
    # The only job: its value is its weight, the root of 2 * (0 + 2). It ends before the 600 s are over.
    "work-value": [2 * 1.0, 2 * 3.0 * (1 - 30 / 430), 0.0],
    # Above idle draw, for the round of 300 s; nobody is complete before.
    "energy": [90 * 300, 310 * 300, 0.0],
    "carbon": [90 * 300 / 9000, 310 * 300 / 9000, 0.0],
    "money": [90 * 300 / 14.4e6, 310 * 300 / 14.4e6, 0.0],
}


@pytest.mark.parametrize("name", sorted(OBJECTIVES))
def test_values_of_one_job(name: str) -> None:
    document = {"cluster": CLUSTER, "jobs": [JOB], "carbon_g_per_kwh": 400.0, "price_per_kwh": 0.25}
    options = expand(Instance.model_validate(document))
    assert objective(name).value(options) == pytest.approx(EXPECTED[name])


def test_energy_to_completion() -> None:
    document = {"cluster": CLUSTER, "jobs": [JOB], "budgets": {"scope": "completion"}}
    options = expand(Instance.model_validate(document))
    # A job that waits needs the least later: on one GPU, with its restart.
    assert objective("energy").value(options) == pytest.approx([100 * 1200, 350 * 430, 100 * 1230])


def test_the_checker_knows_in_which_objectives_the_worst_job_counts() -> None:
    assert {one.name for one in OBJECTIVES.values() if one.combine == "worst"} == set(BOTTLENECK)


def test_unknown_objectives_are_named() -> None:
    with pytest.raises(ValueError, match=r"unknown objective 'speed'; known: total-completion"):
        objective("speed")


@pytest.mark.parametrize(("objective", "best"), [("max-min", 1.0), ("proportional", 0.0)])
def test_who_goes_on_at_its_best_is_at_its_best(objective: str, best: float) -> None:
    """A restart counts in the best completion as it does in that of an option."""
    table = {"gpus": [1, 2], "pool": ["A100"] * 2, "power_w": [300, 600], "completion_s": [1200, 800]}
    current = {"gpus": 2, "pool": "A100", "nodes": {"n": [0, 1]}}
    document = {
        "cluster": {
            "gpu_types": {"A100": {"idle_power_w": 50}},
            "nodes": [{"name": "n", "gpu_type": "A100", "gpus": 2}],
        },
        "jobs": [{"name": "job", "options": table, "current": current, "restart_s": 800}],
        "objective": objective,
    }
    result = wattsched.solve(Instance.model_validate(document))
    assert result.objective == pytest.approx(best, abs=1e-12)
    assert wattsched.check(Instance.model_validate(document), result).faults == []
