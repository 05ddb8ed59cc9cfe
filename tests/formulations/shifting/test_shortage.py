"""What is said to be impossible is so, and the plain cases are found, whoever solves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.brute_force import shifting as brute_force
from tests.strategies.shifting import tiny
from wattsched import solve
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.shifting import schedules
from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.infeasibility import diagnose
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance, ShiftingJob


@pytest.mark.parametrize("first", range(0, 300, 60))
def test_only_what_cannot_be_is_refused(first: int) -> None:
    for seed in range(first, first + 60):
        if diagnose(horizon_of(tiny(seed))):
            assert brute_force.optimum(tiny(seed)) is None, seed


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_budget_of_the_optimum_is_not_refused(first: int) -> None:
    for seed in range(first, first + 20):
        instance = tiny(seed).model_copy(update={"budgets": HorizonBudgets()})
        fields = {"mean-completion": "average_completion_s", "carbon": "carbon_g", "energy": "energy_j"}
        best = brute_force.optimum(instance)
        field = fields.get(instance.objective, "money")
        if best:
            budgets = HorizonBudgets.model_validate({field: best})
            assert not diagnose(horizon_of(instance.model_copy(update={"budgets": budgets}))), seed


def _one_job(budgets: dict[str, float] | None = None, **fields: Any) -> ShiftingInstance:
    """An hour of work at 300 W in two slots; an idle GPU draws 50 W, or 100 Wh."""
    document = {
        "problem": "shifting",
        "slots": 2,
        "carbon_g_per_kwh": [200.0, 100.0],
        "budgets": budgets or {},
        "pools": {"a": {"gpus": 1, "idle_power_w": 50.0}},
        "jobs": [
            {
                "name": "job",
                "options": {"gpus": [1], "pool": ["a"], "power_w": [300.0], "rate": [1.0]},
                "remaining_work": 3600.0,
                **fields,
            }
        ],
    }
    return ShiftingInstance.model_validate(document)


@pytest.mark.parametrize(
    ("instance", "told"),
    [
        (_one_job(deadline_s=3000.0), "job 'job' cannot end before 3600 s, its deadline is 3000 s"),
        (
            _one_job(remaining_work=9000.0, must_finish=True),
            "job 'job' cannot end before 9000 s, it must finish by 7200 s",
        ),
        (
            _one_job({"carbon_g": 30.0}),
            "carbon_g is short by at least 10: idle GPUs take 15 and the jobs need 25 or more, "
            "the budget is 30",
        ),
        (
            _one_job({"average_completion_s": 600.0}),
            "average_completion_s is short by at least 3000: the jobs need 3600 or more, the budget is 600",
        ),
        (_one_job({"carbon_g": 40.0, "average_completion_s": 7200.0}), ""),
    ],
)
@pytest.mark.parametrize("solver", ["auto", "greedy"])
def test_what_is_short_is_told(instance: ShiftingInstance, told: str, solver: str) -> None:
    result = solve(instance, solver=solver)
    if told:
        assert (result.termination.reason, result.termination.detail) == ("infeasible", told)
    else:
        assert result.termination.reason in ("optimal", "feasible")


def test_a_job_none_of_whose_schedules_ends_in_time() -> None:
    """It would end in time but for its restart; other jobs have thousands of schedules."""
    late = _one_job(deadline_s=3600.0, restart_s=600.0, has_run=True)
    wide = {"gpus": [1] * 80, "pool": ["a"] * 80, "power_w": [300.0] * 80, "rate": [1.0] * 80}
    options = wide | {"frequency_mhz": list(range(1000, 1080))}
    other = ShiftingJob.model_validate({"name": "other", "options": options, "remaining_work": 3600.0})
    instance = late.model_copy(update={"jobs": [*late.jobs, other]})
    assert not diagnose(horizon_of(instance))
    with pytest.raises(InfeasibleError, match="'job' has no schedule that ends in time"):
        schedules.build(horizon_of(instance), "mean-completion")
    assert solve(instance).termination.reason == "infeasible"
