"""The marginal rule: valid decisions, greedy-optimal for one job, and what it leaves to the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import BaseModel

from wattsched.formulations.shifting import schedules
from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.heuristics import carbon_blind, greedy
from wattsched.formulations.tolerances import ROUNDING
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance
from wattsched.solvers import highs
from wattsched.solvers.solution import Limits
from wattsched.solving.tradeoffs import pareto
from wattsched.verification.shifting.checker import check


def test_decisions_are_valid_and_deterministic() -> None:
    """It may find none where deadlines are many and budgets tight."""
    found = 0
    for seed in range(4):
        instance = shifting_horizon(jobs=25, slots=24, seed=seed, carbon_fraction=0.9)
        for rule in (greedy, carbon_blind):
            decision = rule(horizon_of(instance), "mean-completion")
            assert decision == rule(horizon_of(instance), "mean-completion")
            if decision is not None:
                found += 1
                assert not check(instance, decision).faults
    assert found >= 6


@pytest.mark.parametrize("seed", range(4))
def test_jobs_restart_in_no_slot_that_is_too_short(seed: int) -> None:
    """Where they would, they go on as before, or pause."""
    instance, rng = (
        shifting_horizon(jobs=25, slots=24, seed=seed, carbon_fraction=0.9),
        np.random.default_rng(seed),
    )
    unequal = instance.model_copy(update={"slot_s": rng.choice([120.0, 300.0, 1800.0, 3600.0], 24).tolist()})
    changes = {"arrival_s": 0.0, "deadline_s": None, "restart_s": 300.0}
    jobs = [job.model_copy(update=changes | {"has_run": bool(rng.random() < 0.5)}) for job in unequal.jobs]
    decision = greedy(horizon_of(unequal.model_copy(update={"jobs": jobs})), "mean-completion")
    assert decision is not None
    assert not check(unequal.model_copy(update={"jobs": jobs}), decision).faults


def test_one_job_takes_the_cleanest_slots() -> None:
    """CarbonScaler's case: one concave job, least carbon by steps of most work per gram."""
    instance = ShiftingInstance.model_validate(
        {
            "problem": "shifting",
            "objective": "carbon",
            "slots": 6,
            "carbon_g_per_kwh": [500.0, 100.0, 300.0, 90.0, 400.0, 450.0],
            "pools": {"a": {"gpus": 4}},
            "tables": {
                "t": {
                    "gpus": [1, 2, 4],
                    "pool": ["a"] * 3,
                    "power_w": [100.0, 210.0, 430.0],
                    "rate": [1.0, 1.9, 3.4],
                }
            },
            "jobs": [{"name": "x", "options": "t", "remaining_work": 5.3 * 3600.0, "must_finish": True}],
        }
    )
    decision = greedy(horizon_of(instance), "carbon")
    assert decision is not None
    found = check(instance, decision)
    plan = schedules.build(horizon_of(instance), "carbon")
    solution = highs.solve(plan.program, Limits(gap=0.0))
    assert solution.objective is not None
    assert not found.faults
    assert found.objective is not None
    # Here the optimum is computed from a program's rows, there from the decision's slots.
    assert solution.objective * (1 - ROUNDING) <= found.objective <= 1.1 * solution.objective
    assert {run.first_slot for run in decision.jobs[0].runs} <= {1, 2, 3}


def test_looking_at_the_forecast_saves_grams() -> None:
    saved = []
    for seed in range(4):
        instance = shifting_horizon(jobs=15, slots=24, seed=seed, completion_factor=4.0)
        aware, blind = greedy(horizon_of(instance), "carbon"), carbon_blind(horizon_of(instance), "carbon")
        assert aware is not None
        assert blind is not None
        seen, unseen = check(instance, aware).objective, check(instance, blind).objective
        assert seen is not None
        assert unseen is not None
        saved.append(1 - seen / unseen)
    assert np.mean(saved) > 0.0


def test_the_frontier_runs_from_quick_to_clean() -> None:
    instance = shifting_horizon(jobs=2, slots=4, seed=1).model_copy(update={"budgets": HorizonBudgets()})
    instance = instance.model_copy(
        update={"tables": {name: _two_rows(table) for name, table in instance.tables.items()}}
    )

    def amounts(one: ShiftingInstance) -> list[tuple[float, float]]:
        totals = [point.result.totals for point in pareto(one, 5, solver="highs", gap=0.0).points]
        return [(total["average_completion_s"], total["carbon_g"]) for total in totals]

    found = amounts(instance)
    assert len(found) >= 2
    assert found == sorted(found)
    assert [grams for _, grams in found] == sorted((grams for _, grams in found), reverse=True)
    bounded = instance.model_copy(update={"budgets": HorizonBudgets(average_completion_s=found[0][0])})
    assert amounts(bounded) == found
    with pytest.raises(ValueError, match="points"):
        pareto(instance, 1)
    with pytest.raises(ValueError, match="frontier"):
        pareto(instance.model_copy(update={"price_per_kwh": None}), 3, tradeoff="money")


def _two_rows(table: BaseModel) -> BaseModel:
    """The first A100 rows: few enough schedules to enumerate."""
    document = table.model_dump(exclude_none=True)
    return type(table)(**{name: values[:3] for name, values in document.items()})
