"""Jobs without an option that may wait do so; the rest of the round is decided as if they were not there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

import tests.brute_force.sizing as brute_force
import wattsched
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances
from wattsched.formulations.sizing.left_out import decided_jobs
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.generators import generate
from wattsched.instances.sizing.instance import Instance
from wattsched.instances.sizing.validity import faults_of
from wattsched.perfmodels.profile import find
from wattsched.replay.jobs.trace import trace_of
from wattsched.results.problems import problem
from wattsched.verification.sizing.left_out import decided
from wattsched.verification.verdict import check_result

ROW = {"gpus": [1, 4], "pool": ["A", "A"], "completion_s": [900.0, 400.0], "power_w": [200.0, 800.0]}
LARGE = {**ROW, "gpus": [8, 16]}
CLUSTER = {
    "gpu_types": {"A": {"idle_power_w": 50.0}},
    "nodes": [{"name": "n", "gpu_type": "A", "gpus": 4, "base_power_w": 100.0}],
}
SOLVERS = [
    ("mckp", "auto"), ("mckp", "price"), ("mckp", "highs"), ("mckp", "greedy"), ("mckp", "powerflow"),
    ("assignment", "highs"), ("intervals", "cpsat"),
]  # fmt: skip


def round_of(*jobs: dict[str, Any], **fields: Any) -> Instance:
    named = [{"name": f"j{j}", "options": ROW, **job} for j, job in enumerate(jobs)]
    return Instance.model_validate({"cluster": CLUSTER, "jobs": named, **fields})


@settings(max_examples=examples(300))
@given(instance=small_instances() | instances_with_sets())
def test_formulations_checker_and_documentation_agree_on_who_is_left_out(instance: Instance) -> None:
    here = decided_jobs(instance)
    rest = {job.name for job in brute_force.decided(instance).jobs}
    expected = {job.name for job in instance.jobs} - rest
    event(f"{len(expected)} of {len(instance.jobs)}")
    assert here.left_out.keys() == expected
    assert decided(instance).left_out == expected
    assert set(here.jobs.names) == {job.name for job in decided(instance).instance.jobs} == rest


@settings(max_examples=examples(80))
@given(
    instance=small_instances() | instances_with_sets(),
    objective=st.sampled_from(sorted(OBJECTIVES)),
    how=st.sampled_from(SOLVERS),
    forged=st.booleans(),
)
def test_the_rest_is_decided_as_if_they_were_not_there(
    instance: Instance, objective: str, how: tuple[str, str], forged: bool
) -> None:
    rest = brute_force.decided(instance)
    assume(len(rest.jobs) < len(instance.jobs))
    formulation, solver = how
    options: dict[str, Any] = {"objective": objective, "formulation": formulation, "solver": solver}
    whole, part = (wattsched.solve(one, gap=1e-9, **options) for one in (instance, rest))
    assert whole.termination == part.termination
    assert (whole.objective, whole.bound) == (pytest.approx(part.objective), pytest.approx(part.bound))
    assert whole.totals == pytest.approx(part.totals)
    out = {job.name for job in instance.jobs} - {job.name for job in rest.jobs}
    assert whole.dropped.keys() == (out if whole.decision is not None else set())
    document = whole.model_dump(mode="json")
    assert check_result(problem("sizing"), instance, document).faults == []
    if whole.decision is None:
        told = {**document, "dropped": {sorted(out)[0]: "nowhere"}}
        assert "dropped: cannot be claimed" in check_result(problem("sizing"), instance, told).faults[0]
        return
    assert out <= set(whole.decision.waiting)
    if forged:
        some = sorted(out)[0]
        others = {name: why for name, why in whole.dropped.items() if name != some}
        said = f"dropped: job '{some}' has no option, which the result does not say"
        assert check_result(problem("sizing"), instance, {**document, "dropped": others}).faults == [said]
        strange = {**document, "dropped": {**whole.dropped, "nobody": "of this name"}}
        assert "no such job" in check_result(problem("sizing"), instance, strange).faults[0]


def test_reasons_say_what_is_lacking() -> None:
    found = wattsched.solve(
        round_of(
            {}, {"options": LARGE}, {"deadline_s": 60.0}, {"min_gpus": 5}, {"pools": [], "options": LARGE}
        )
    )
    assert found.termination.reason == "optimal"
    assert found.dropped == {
        "j1": "needs at least 8 GPUs in one block but the largest block is 4",
        "j2": "cannot meet its deadline of 60 s",
        "j3": "has no option in its pools and within its min_gpus and max_gpus",
        "j4": "has no option in its pools and within its min_gpus and max_gpus",
    }
    assert (len(found.decision.jobs), found.decision.waiting) == (1, ["j1", "j2", "j3", "j4"])
    assert "left out: j1: needs at least 8 GPUs" in str(found)


@pytest.mark.parametrize("how", SOLVERS)
@pytest.mark.parametrize("power_w", [None, 1000.0])
@pytest.mark.parametrize("tenant", [False, True])
def test_a_set_in_which_one_job_would_be_late_keeps_no_other_in(
    how: tuple[str, str], power_w: float | None, tenant: bool
) -> None:
    """`a` is in time in a set alone that `b` would be late in, or beyond its tenant's joules or watts."""
    one = {"gpus": [1], "pool": ["A"], "power_w": [100.0], "rate": [1.0]}
    jobs = [{"name": "a", "deadline_s": 5.0}, {"name": "b"}]
    jobs = [{**job, "options": one, "remaining_work": 10.0} for job in jobs]
    slow = {"name": "slow", "pool": "A", "gpus": 1, "power_w": 100.0, "rates": {"a": 5.0, "b": 0.01}}
    greedy = {**slow, "name": "greedy", "power_w": 500.0, "rates": {"a": 5.0, "b": 5.0}}
    sets, tenants = [slow], {}
    if tenant:
        jobs[1]["tenant"], sets, tenants = "t", [greedy], {"t": {"power_w": 200.0}}
        if how[1] in ("price", "highs"):
            tenants, sets = {"t": {"energy_j": 2000.0}}, [slow]
    else:
        jobs[1]["deadline_s"] = 100.0
    fields = {"jobs": jobs, "sets": sets, "tenants": tenants, "budgets": {"power_w": power_w}}
    instance = Instance.model_validate({"cluster": CLUSTER, "objective": "goodput", **fields})
    result = wattsched.solve(instance, formulation=how[0], solver=how[1])
    assert (result.termination.reason, result.objective) == ("optimal", pytest.approx(1.0))
    assert result.dropped == {"a": "cannot meet its deadline of 5 s"}
    assert not result.claimed
    assert wattsched.check(instance, result).faults == []
    formed = [
        {"job": name, "gpus": 1, "pool": "A", "set": sets[0]["name"], "nodes": {"n": [0]}} for name in "ab"
    ]
    forged = problem("sizing").decision.model_validate({"jobs": formed, "waiting": []})
    assert wattsched.check(instance, forged).faults


@pytest.mark.parametrize("max_power_w", [80.0, 100.0, 400.0])
@pytest.mark.parametrize("bounds", [{}, {"min_gpus": 128}])
def test_jobs_that_no_board_can_hold_are_told_so(max_power_w: float, bounds: dict[str, int]) -> None:
    gpu_types = {"A40": {"idle_power_w": 30.0, "max_power_w": max_power_w}}
    nodes = [{"name": "n", "gpu_type": "A40", "gpus": 4}]
    job = {"name": "j", "model": "bert", "remaining_work": 1e6, **bounds}
    cluster = {"gpu_types": gpu_types, "nodes": nodes}
    instance = Instance.model_validate({"cluster": cluster, "jobs": [job], "round_s": 300.0})
    profile = find("bert", "A40")
    assert profile is not None
    held = len(profile.configurations(8, max_power_w=max_power_w)) > 0
    dropped = wattsched.solve(instance).dropped
    if bounds:
        assert dropped == {"j": "has no option in its pools and within its min_gpus and max_gpus"}
    elif held:
        assert dropped == {}
    else:
        told = f"has no option that keeps GPUs within their max_power_w: A40 {max_power_w:g} W"
        assert dropped == {"j": told}
    if dropped:
        with pytest.raises(ValueError, match=f"job 'j' {dropped['j']}"):
            trace_of(instance.cluster, instance.jobs, [0.0], [1])


def test_who_may_not_wait_is_not_left_out() -> None:
    large = round_of({"options": LARGE, "can_wait": False})
    assert faults_of(large) == ["job 'j0' needs at least 8 GPUs in one block but the largest block is 4"]
    late = round_of({"deadline_s": 60.0, "can_wait": False}, {"deadline_s": 60.0})
    assert faults_of(late) == []
    found = wattsched.solve(late)
    assert found.termination.reason == "infeasible"
    assert "job 'j0' can be used: its deadline of 60 s cannot be met" in found.termination.detail
    assert found.dropped == {}


def test_sets_of_jobs_that_are_left_out_cannot_be_formed_and_others_follow() -> None:
    """Job 1 is in time in a set with job 0 alone, which is in time nowhere."""
    slow = {"deadline_s": 300.0}
    sets = [{"name": "s", "pool": "A", "gpus": 1, "power_w": 9.0, "rates": {"j0": 1 / 350, "j1": 1 / 250}}]
    instance = round_of(slow, slow, {}, sets=sets)
    assert decided_jobs(instance).left_out.keys() == decided(instance).left_out == {"j0", "j1"}
    found = wattsched.solve(instance)
    assert (found.termination.reason, found.decision.waiting) == ("optimal", ["j0", "j1"])


def test_a_round_of_nobody_else_is_empty() -> None:
    for objective in OBJECTIVES:
        priced = {"carbon_g_per_kwh": 400.0, "price_per_kwh": 0.25}
        found = wattsched.solve(round_of({"options": LARGE}, objective=objective, **priced))
        assert (found.termination.reason, found.objective, found.decision.waiting) == ("optimal", 0.0, ["j0"])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["uniform", "hetero"])
def test_large_rounds_leave_jobs_out_and_begin_the_next_one(family: str) -> None:
    every = generate(family, jobs=12_000, seed=5)
    jobs = every.by_column()
    deadline_s = np.where(np.arange(len(jobs)) % 100 == 7, 1e-3, np.nan)
    late = type(jobs)({**jobs.columns, "deadline_s": deadline_s})
    instance = every.model_copy(update={"jobs": late})
    first = wattsched.solve(instance, gap=1e-3)
    assert len(first.dropped) == 120
    verdict = check_result(problem("sizing"), instance, first.model_dump())
    assert (verdict.faults, verdict.claimed) == ([], False)
    again = wattsched.solve(instance, gap=1e-3, initial_solution=first)
    assert (again.termination.reason, again.dropped) == ("optimal", first.dropped)
