"""Shortages that are told are real, whoever solves, and no prices rule out what has a decision."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest

from tests.brute_force import shifting as brute_force
from tests.strategies.effort import examples
from tests.strategies.shifting import tiny
from wattsched import solve
from wattsched.cli.files import answer_text
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.shifting import schedules
from wattsched.formulations.shifting.data import horizon_of
from wattsched.formulations.shifting.infeasibility import diagnose, refute
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance, ShiftingJob
from wattsched.results.documents import verdict_on
from wattsched.verification.shifting.bound import BUDGETS, objective_upper_bound
from wattsched.verification.shifting.checker import check


@pytest.mark.parametrize("first", range(0, 300, 60))
def test_only_what_cannot_be_is_refused(first: int) -> None:
    for seed in range(first, first + examples(60)):
        if diagnose(horizon_of(tiny(seed))):
            assert brute_force.optimum(tiny(seed)) is None, seed


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_a_budget_of_the_optimum_is_not_refused(first: int) -> None:
    for seed in range(first, first + examples(20)):
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


def test_a_job_that_has_no_slot_for_its_restart_in_time() -> None:
    """It cannot start in the first slot, and loses too much of the second."""
    unequal = {"slot_s": [600.0, 4000.0]}
    late = _one_job(must_finish=True, restart_s=700.0, has_run=True).model_copy(update=unequal)
    told = "job 'job' cannot do its work in time with restarts in slots that are long enough, even alone"
    assert solve(late).termination.detail == told
    ready = _one_job(must_finish=True, restart_s=700.0).model_copy(update=unequal)
    assert solve(ready).termination.reason == "optimal"


def random_prices(instance: ShiftingInstance, rng: random.Random) -> dict[str, float]:
    rows = [f"gpus:{pool}@{slot}" for pool in instance.pools for slot in range(instance.slots)]
    rows += [name for name, field in BUDGETS.items() if getattr(instance.budgets, field) is not None]
    return {row: -(10 ** rng.uniform(-3, 9)) for row in rows if rng.random() < 0.5}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 300, 60))
def test_only_what_cannot_be_is_ruled_out(first: int) -> None:
    for seed in range(first, first + 60):
        instance, rng = tiny(seed), random.Random(seed)
        tries = [refute(horizon_of(instance), random_prices(instance, rng)) for _ in range(8)]
        if any(tries):
            assert brute_force.optimum(instance) is None, seed


@pytest.mark.parametrize("first", range(0, 300, 60))
def test_no_decision_is_dearer_than_the_dearest(first: int) -> None:
    for seed in range(first, first + examples(60)):
        # Deadlines and budgets forbid decisions, but make none cheaper.
        instance = tiny(seed).model_copy(update={"budgets": HorizonBudgets()})
        free = [job.model_copy(update={"must_finish": False, "deadline_s": None}) for job in instance.jobs]
        instance = instance.model_copy(update={"jobs": free})
        nothing = ShiftingDecision(jobs=[], waiting=[job.name for job in instance.jobs])
        idle = check(instance, nothing).objective
        blind = solve(instance, solver="carbon-blind").objective
        assert idle is not None
        assert blind is not None
        assert max(idle, blind) <= objective_upper_bound(instance) * (1 + 1e-9), seed


def short_of_carbon() -> ShiftingInstance:
    """Ends that have to be kept, with less carbon than that takes: 21,414 g or a little more."""
    loose = shifting_horizon(jobs=60, slots=24, seed=1)
    fastest = {name: max(table.rate or []) for name, table in loose.tables.items()}
    jobs = [
        job.model_copy(
            update={
                "must_finish": job.arrival_s + job.remaining_work / fastest[str(job.options)]
                < 0.8 * loose.horizon_s
            }
        )
        for job in loose.jobs
    ]
    return loose.model_copy(update={"jobs": jobs, "budgets": HorizonBudgets(carbon_g=20_000.0)})


@pytest.mark.slow
def test_a_budget_that_is_short_is_proven_and_told() -> None:
    instance = short_of_carbon()
    assert not diagnose(horizon_of(instance))
    # It ends with the proof, which on a busy machine takes a while.
    result = solve(instance, time_limit=300)
    assert result.termination.reason == "infeasible"
    assert (result.objective, result.bound, result.decision) == (None, None, None)
    told = result.termination.detail
    assert told.startswith("carbon_g is short by at least ")
    short_by = float(told.split()[6])
    least = solve(
        instance.model_copy(update={"objective": "carbon", "budgets": HorizonBudgets()}), time_limit=30
    )
    assert least.objective is not None
    assert 0.99 * (least.objective - 20_000) <= short_by <= least.objective - 20_000
    verdict = verdict_on(instance, json.loads(answer_text(result)))
    assert (verdict.faults, verdict.infeasible) == ([], True)


def test_a_proof_that_proves_nothing_is_found() -> None:
    loose = shifting_horizon(jobs=5, slots=12, seed=2)
    instance = loose.model_copy(update={"budgets": HorizonBudgets(carbon_g=1.0)})
    document: dict[str, Any] = json.loads(answer_text(solve(instance)))
    assert verdict_on(instance, document).infeasible
    roomy = instance.model_copy(update={"budgets": HorizonBudgets(carbon_g=30_000.0)})
    assert verdict_on(roomy, document).faults
    assert not verdict_on(roomy, document).infeasible
    weak = {name: 1e-9 * price for name, price in document["certificate"]["prices"].items()}
    document["certificate"] = {"prices": weak, "bound": 0.0}
    verdict = verdict_on(instance, document)
    assert not verdict.infeasible
    assert "which leaves room for a decision" in verdict.faults[0]


def test_gpus_that_are_too_few() -> None:
    """Six jobs of an hour, which all must end in the first two hours, on two GPUs."""
    options = {"gpus": [1], "pool": ["a"], "power_w": [300.0], "rate": [1.0]}
    job = {"options": options, "remaining_work": 3600.0, "deadline_s": 7200.0}
    document = {
        "problem": "shifting",
        "slots": 48,
        "pools": {"a": {"gpus": 2}},
        "jobs": [{"name": f"job{j}", **job} for j in range(6)],
    }
    instance = ShiftingInstance.model_validate(document)
    prices = {"gpus:a@0": -1.0, "gpus:a@1": -1.0}
    proof = refute(horizon_of(instance), prices)
    assert proof is not None
    assert proof.detail == "the GPUs of a are too few for the work that must end in time"
    fewer = instance.model_copy(update={"jobs": instance.jobs[:4]})
    assert refute(horizon_of(fewer), prices) is None
    assert solve(fewer).solved
    assert solve(instance).termination.reason == "infeasible"


@pytest.mark.parametrize("objective", ["mean-completion", "carbon", "energy"])
@pytest.mark.parametrize("budget", ["carbon_g", "energy_j", "average_completion_s"])
def test_one_budget_that_is_too_small_is_proven(objective: str, budget: str) -> None:
    """The quick look says so in words, and prices of that budget alone prove it."""
    loose = shifting_horizon(jobs=5, slots=12, seed=2)
    small = HorizonBudgets(**{budget: 1.0})
    instance = loose.model_copy(update={"objective": objective, "budgets": small})
    result = solve(instance)
    assert result.termination.reason == "infeasible"
    assert f"{budget} is short" in result.termination.detail
    verdict = verdict_on(instance, result.model_dump(mode="json"))
    assert verdict.infeasible
    assert not verdict.claimed


def capped_jobs(
    n_jobs: int, slots: int, caps_w: list[float], gpus: int = 8, **fields: Any
) -> ShiftingInstance:
    """Jobs on four GPUs each, which draw 200 W at their slowest and 1,000 W at their fastest."""
    limits = {"gpus": [4] * 3, "pool": ["a"] * 3, "power_limit_w": [150.0, 250.0, 400.0]}
    options = limits | {"power_w": [200.0, 600.0, 1000.0], "rate": [0.4, 0.8, 1.0]}
    fields = {"options": "t", "remaining_work": 1e5, "restart_s": 60.0} | fields
    document = {
        "problem": "shifting",
        "slots": slots,
        "slot_s": 600.0,
        "pools": {"a": {"gpus": gpus}},
        "power_w": caps_w,
        "tables": {"t": options},
        "jobs": [{"name": f"j{number}"} | fields for number in range(n_jobs)],
    }
    return ShiftingInstance.model_validate(document)


def test_check_says_by_itself_how_many_watts_are_missing() -> None:
    """Two jobs may draw 1,300 W for a while in which they need 1,400 W; what a result tells is its own."""
    instance = capped_jobs(2, 24, [1300.0] * 24, least_progress=0.85)
    result = solve(instance, conflict=0.0)
    document = json.loads(answer_text(result))
    document["termination"]["detail"] = "power_w is short by at least 1e+06 W in slot 3"
    verdict = verdict_on(instance, document)
    assert (verdict.faults, verdict.infeasible) == ([], True)
    assert verdict.proof is not None
    assert verdict.proof.short == result.termination.detail
    found = re.search(r"power_w is short by at least ([\d.]+) W in slots 0 to 23", verdict.proof.short)
    assert found is not None
    missing_w = float(found[1])
    assert 50 < missing_w <= 100
    enough = capped_jobs(2, 24, [1300.0 + missing_w * (1 - 1e-6)] * 24, least_progress=0.85)
    assert solve(enough, time_limit=3.0).decision is None


def test_pauses_that_leave_too_little_time_are_told() -> None:
    """Half of the time at full speed would be just enough, but jobs restart after the event."""
    caps = [5000.0] * 2 + [100.0] * 12 + [5000.0] * 10
    holds = {"current": {"gpus": 4, "pool": "a"}}
    instance = capped_jobs(3, 24, caps, gpus=12, least_progress=0.5, **holds)
    told = "job 'j0' cannot do its work in time under the caps, even alone"
    assert solve(instance).termination.detail.startswith(told)
    assert verdict_on(instance, json.loads(answer_text(solve(instance)))).infeasible
    free = [job.model_copy(update={"restart_s": 0.0}) for job in instance.jobs]
    assert solve(instance.model_copy(update={"jobs": free})).decision is not None


def test_cases_prove_that_jobs_do_not_fit_together() -> None:
    """Fractions of schedules would: each of three jobs draws 1,000 W in one slot, 200 W in the other."""
    table = {"gpus": [4] * 2, "pool": ["a"] * 2, "power_limit_w": [150.0, 400.0]}
    options = table | {"power_w": [200.0, 1000.0], "rate": [0.4, 1.0]}
    instance = capped_jobs(3, 2, [1900.0] * 2, gpus=12, least_progress=0.7, options=options)
    result = solve(instance)
    assert result.termination.reason == "infeasible"
    verdict = verdict_on(instance, json.loads(answer_text(result)))
    assert (verdict.faults, verdict.infeasible) == ([], True)
