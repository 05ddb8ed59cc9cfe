"""Numbers far from 1 beside others: answers are those of brute force, and no bound contradicts one."""

from __future__ import annotations

import pytest

import wattsched
from tests.brute_force import placement, shifting
from tests.strategies.effort import CHECK
from tests.strategies.shifting import tiny
from tests.strategies.windows import random_window
from wattsched.results.documents import instance_of, verdict_on
from wattsched.results.result import Result

SITE = {"gpu_types": {"A": {"idle_power_w": 1.0}}, "nodes": [{"name": "n", "gpu_type": "A", "gpus": 2}]}
HOW = (
    ("schedules", "auto"),
    ("schedules", "cpsat"),
    ("time-indexed", "highs"),
    ("time-indexed", "pyomo:highs"),
)


def right(instance: object, result: Result) -> Result:
    assert result.faults == []
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    return result


@pytest.mark.parametrize("how", HOW, ids="-".join)
@pytest.mark.parametrize("share", [1 - 1e-4, 1 + 1e-7])
def test_shifting_keeps_the_tiniest_budgets(how: tuple[str, str], share: float) -> None:
    """Of a ten millionth, in grams or money; what idle GPUs use is all of some."""
    tried = 0
    for seed in range(8 if CHECK else 2):
        instance = tiny(seed)
        kind = type(instance.budgets)
        free = [*shifting.outcomes(instance.model_copy(update={"budgets": kind()}))]
        least = {
            name: min((one[k] for one in free), default=0.0) for k, name in ((1, "carbon_g"), (3, "money"))
        }
        for name, forecast in (("carbon_g", "carbon_g_per_kwh"), ("money", "price_per_kwh")):
            if not least[name]:
                continue
            unit, tried = 1e-7 / least[name], tried + 1
            smaller = {forecast: [value * unit for value in getattr(instance, forecast)]}
            budgets = kind(**{name: 1e-7 * share})
            tight = instance.model_copy(update={**smaller, "budgets": budgets})
            result = right(tight, wattsched.solve(tight, formulation=how[0], solver=how[1], gap=0.0))
            if share < 1:
                assert result.termination.reason == "infeasible", (seed, name)
                continue
            assert result.objective == pytest.approx(shifting.optimum(tight), rel=1e-6, abs=1e-15)
    assert tried > 3


def test_a_budget_that_idle_gpus_use_up_is_kept_where_nobody_draws_more() -> None:
    document = {
        "problem": "shifting",
        "slots": 3,
        "slot_s": 0.125,
        "pools": {"p": {"gpus": 2, "idle_power_w": 50.0}, "q": {"gpus": 1}},
        "tables": {"free": {"gpus": [1], "pool": ["q"], "power_w": [0.0], "rate": [2.0]}},
        "jobs": [{"name": "j", "options": "free", "remaining_work": 1.0}],
        "carbon_g_per_kwh": [436.7, 210.3, 161.9],
        "objective": "mean-completion",
    }
    idle_g = wattsched.solve(instance_of(document)).totals["carbon_g"]
    instance = instance_of({**document, "budgets": {"carbon_g": idle_g * (1 - 1e-15)}})
    for formulation, solver in HOW:
        result = wattsched.solve(instance, formulation=formulation, solver=solver, gap=1e-9)
        assert right(instance, result).objective == pytest.approx(0.5)
        assert result.solver_answer.reason != "infeasible"


@pytest.mark.parametrize("solver", ["auto", "highs", "cpsat", "pyomo:highs"])
def test_sharing_says_what_a_budget_lacks_beside_jobs_of_another_size(solver: str) -> None:
    document = {
        "problem": "sharing",
        "unit_types": [{"name": "t", "count": 1, "idle_power_w": 2.0, "full_power_w": 10.0}],
        "classes": [{"name": "c", "alone": {"t": {"epoch_s": 1e6, "utilisation_pct": 0.0}}}],
        "jobs": [
            {"name": "endless", "job_class": "c", "remaining_epochs": 1e9},
            {"name": "must", "job_class": "c", "can_wait": False},
        ],
        "objective": "throughput",
        "carbon_g_per_kwh": 100.0,
        "budgets": {"carbon_g": 1.0},
    }
    result = right(instance := instance_of(document), wattsched.solve(instance_of(document), solver=solver))
    assert result.termination.reason == "infeasible"
    assert "carbon_g is short by at least" in result.termination.detail
    plenty = instance.model_copy(update={"budgets": instance.budgets.model_copy(update={"carbon_g": 56.0})})
    result = right(plenty, wattsched.solve(plenty, solver=solver))
    assert [job for one in result.decision.sets for job in one.jobs] == ["must"]


def test_sharing_names_who_has_no_place_and_keeps_deadlines_as_the_checker_does() -> None:
    document = {
        "problem": "sharing",
        "unit_types": [{"name": "t", "count": 1, "idle_power_w": 2.0, "full_power_w": 10.0}],
        "classes": [{"name": "c", "alone": {"t": {"epoch_s": 1e3, "utilisation_pct": 9.0}}}],
        "jobs": [{"name": "late", "job_class": "c", "deadline_s": 10.0}],
        "limits": {"jobs_per_set": 1},
    }
    told = wattsched.solve(instance_of(document), formulation="matching").termination
    assert (told.reason, told.detail) == ("infeasible", "job 'late' can neither run now nor wait")
    document["jobs"] = [{"name": name, "job_class": "c", "can_wait": False} for name in "abc"]
    told = wattsched.solve(instance_of(document), formulation="matching").termination
    assert told.detail == "gpus:t is short by at least 1"
    # It may wait: that is later by less than is tolerated.
    document["jobs"] = [{"name": "far", "job_class": "c", "remaining_epochs": 1e12, "deadline_s": 1e15}]
    document |= {"round_s": 1e5, "objective": "energy"}
    instance = instance_of(document)
    result = right(instance, wattsched.solve(instance))
    waits = verdict_on(instance, {"sets": [], "waiting": ["far"]})
    assert waits.faults == []
    assert result.objective is not None
    assert waits.objective is not None
    assert result.objective <= waits.objective * (1 + 1e-9)


@pytest.mark.parametrize("solver", ["highs", "price", "cpsat", "pyomo:highs"])
@pytest.mark.parametrize("waiting_w", [1e-6, 1e9])
def test_placement_is_right_beside_any_penalty(solver: str, waiting_w: float) -> None:
    for seed in range(4):
        penalties = {"waiting_w_per_gpu": waiting_w, "waiting_w": waiting_w, "fragmentation_w_per_gpu": 1e-3}
        instance = random_window(seed).model_copy(update=penalties)
        for formulation in ("assignment", "patterns"):
            result = wattsched.solve(instance, formulation=formulation, solver=solver, gap=0.0)
            truth = float(placement.optimum(instance))
            assert right(instance, result).objective == pytest.approx(truth, rel=1e-9, abs=1e-9), seed


@pytest.mark.parametrize("solver", ["highs", "pyomo:highs", "cpsat"])
def test_makespan_of_jobs_of_tiny_and_huge_weight(solver: str) -> None:
    options = [{"gpus": 1, "pool": "A", "power_w": 9.0, "rate": 1e-3}]
    jobs = [
        {"name": "light", "remaining_work": 1.0, "weight": 1e-5, "options": options},
        {"name": "heavy", "remaining_work": 1e4, "weight": 1e6, "options": options},
    ]
    instance = instance_of({"objective": "makespan", "cluster": SITE, "jobs": jobs})
    result = right(instance, wattsched.solve(instance, solver=solver, gap=0.0))
    assert result.objective == pytest.approx(1e13)
    assert result.solver_answer.reason != "infeasible"


@pytest.mark.parametrize("how", [("mckp", "auto"), ("assignment", "cpsat")])
def test_who_goes_on_keeps_a_gpu_that_another_leaves(how: tuple[str, str]) -> None:
    """Of two that shared it; the other one restarts anyway."""
    now = {"gpus": 1, "pool": "A", "nodes": {"n": [0]}, "set": "both"}
    option = {"gpus": 1, "pool": "A", "power_w": 70.0, "rate": 1.0}
    changes, stays = (
        {"name": name, "remaining_work": 4000.0, "current": now} for name in ("changes", "stays")
    )
    changes |= {"options": [{**option, "batch_size": 32}], "change_cost": 900.0, "can_wait": False}
    stays |= {"options": [option], "change_cost": 500.0, "can_wait": False}
    instance = instance_of({"objective": "proportional", "cluster": SITE, "jobs": [changes, stays]})
    result = right(instance, wattsched.solve(instance, formulation=how[0], solver=how[1], gap=0.0))
    assert result.termination.reason == "optimal"
    places = {job.job: job.nodes for job in result.decision.jobs}
    assert places == {"changes": {"n": [1]}, "stays": {"n": [0]}}


@pytest.mark.parametrize(
    ("stated", "kept"), [({}, "nodes"), ({"capacity": {}}, {}), ({"capacity": "count"}, "count")]
)
def test_another_cluster_keeps_the_capacity_unless_it_states_one(stated: dict, kept: object) -> None:
    session = wattsched.Session(SITE, capacity="nodes")
    session.update(cluster={**SITE, **stated})
    assert session.to_instance().cluster.capacity == kept
