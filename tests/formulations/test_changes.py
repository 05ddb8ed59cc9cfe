"""Costs of changes of running jobs: jobs of a round in which nothing is new go on as they are."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.agreement import solve_by_kind
from tests.brute_force.sizing import optimum
from tests.brute_force.sizing_moves import optimum_with_moves
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, small_instances
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.result import Result
from wattsched.solvers.solution import Solution, Start
from wattsched.solving import steps
from wattsched.solving.call import Call

SUMS = sorted(name for name, objective in OBJECTIVES.items() if objective.combine == "sum")
ROUNDS = st.one_of(small_instances(), instances_with_sets())


def priced(instance: Instance, price: float | None, **fields: Any) -> Instance:
    """The round at one price for all changes; None for the defaults of all fields."""
    document = {**instance.model_dump(exclude={"change_cost"}), **fields}
    for job in document["jobs"]:
        del job["change_cost"]
    return Instance.model_validate(document | ({} if price is None else {"change_cost": price}))


def going_on(instance: Instance, decision: Decision, restart_s: float) -> Instance:
    """The same round, once its decision runs."""
    document = instance.model_dump()
    held = {one.job: one.model_dump(exclude={"job"}) for one in decision.jobs}
    for job in document["jobs"]:
        job |= {"current": held.get(job["name"]), "restart_s": restart_s, "preemptible": True}
    return Instance.model_validate(document)


def decided(instance: Instance, **asked: Any) -> Result:
    result = wattsched.solve(instance, gap=0.0, **asked)
    assume(result.decision is not None)
    return result


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.filter_too_much])
@given(instance=ROUNDS, objective=st.sampled_from(SUMS), kinds=st.booleans())
def test_a_round_of_which_nothing_changed_does_not_change(
    instance: Instance, objective: str, kinds: bool
) -> None:
    instance = going_on(priced(instance, 0.0, objective=objective), Decision(jobs=[], waiting=[]), 0.0)
    with pytest.MonkeyPatch.context() as patch:
        solve_by_kind(patch, kinds)
        first = decided(instance)
        assert first.objective is not None
        price = max(1e-3, 1e-4 * abs(first.objective))
        second = decided(priced(going_on(instance, first.decision, 0.0), price))
    assert second.totals["restarts"] == 0
    assert second.totals.get("change_cost", 0.0) == 0.0
    assert second.objective == pytest.approx(first.objective, rel=1e-9, abs=1e-9)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.filter_too_much])
@given(instance=ROUNDS, objective=st.sampled_from(sorted(OBJECTIVES)))
def test_no_price_is_no_field(instance: Instance, objective: str) -> None:
    free, never = (decided(priced(instance, price), objective=objective) for price in (0.0, None))
    assert free.digest == never.digest
    assert free.totals == never.totals
    assert "change_cost" not in free.totals
    assert (free.objective, free.bound) == (never.objective, never.bound)


@pytest.mark.slow
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.filter_too_much])
@given(
    instance=ROUNDS,
    objective=st.sampled_from(sorted(OBJECTIVES)),
    solver=st.sampled_from(["auto", "price", "highs", "cpsat", "greedy", "powerflow"]),
    formulation=st.sampled_from(["mckp", "assignment"]),
)
def test_what_is_paid_is_told_and_counted(
    instance: Instance, objective: str, solver: str, formulation: str
) -> None:
    result = decided(instance, objective=objective, solver=solver, formulation=formulation)
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    best = optimum(instance, objective)
    assert best is not None
    if result.termination.reason == "optimal":
        assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-7)
    if not result.totals.get("change_cost"):
        return
    forged = result.model_dump(mode="json")
    forged["totals"]["change_cost"] *= 0.5
    assert any("totals.change_cost" in fault for fault in verdict_on(instance, forged).faults)
    if OBJECTIVES[objective].combine == "sum":
        sign = 1.0 if result.sense == "min" else -1.0
        worth = wattsched.check(priced(instance, 0.0, objective=objective), result.decision).objective
        assert worth is not None
        paid = sign * result.totals["change_cost"]
        assert result.objective == pytest.approx(worth + paid, rel=1e-9, abs=1e-9)


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.filter_too_much])
@given(
    instance=small_instances(),
    price=st.sampled_from([None, 0.1, 5.0, 300.0]),
    solver=st.sampled_from(["auto", "price", "highs", "cpsat", "greedy"]),
    formulation=st.sampled_from(["mckp", "assignment"]),
    kinds=st.booleans(),
)
def test_moves_have_a_price(
    instance: Instance, price: float | None, solver: str, formulation: str, kinds: bool
) -> None:
    """No decision is better than trying all with all that may stay, and no bound beyond that."""
    instance = instance if price is None else priced(instance, price)
    assume(not any(node.sleeps for node in instance.cluster.nodes))
    with pytest.MonkeyPatch.context() as patch:
        solve_by_kind(patch, kinds)
        result = decided(instance, solver=solver, formulation=formulation)
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    best, sign = optimum_with_moves(instance, instance.objective), 1.0 if result.sense == "min" else -1.0
    assert best is not None
    assert result.objective is not None
    rounding = 1e-6 * max(1.0, abs(best))
    assert sign * result.objective >= sign * best - rounding
    assert result.bound is None or sign * result.bound <= sign * best + rounding
    if result.termination.reason == "optimal":
        assert result.objective == pytest.approx(best, rel=1e-6, abs=1e-6)


def newcomer(capacity: str, price: float) -> Instance:
    """The newcomer is worth 4 with four GPUs, for which another job has to move, and 3 with two."""
    nodes = ["n0", "n1"] if capacity == "nodes" else ["n"]
    each = 4 if capacity == "nodes" else 8
    cluster = {
        "gpu_types": {"A100": {"idle_power_w": 50.0}},
        "capacity": capacity,
        "nodes": [{"name": name, "gpu_type": "A100", "gpus": each} for name in nodes],
    }
    small = {"gpus": [1], "pool": ["A100"], "power_w": [300.0], "rate": [1.0]}
    grows = {
        "gpus": [1, 2, 4],
        "pool": ["A100"] * 3,
        "power_w": [300.0, 600.0, 1200.0],
        "rate": [1.0, 3.0, 4.0],
    }
    held = [{nodes[0]: [0]}, {nodes[-1]: [each - 4]}]
    jobs = [
        {"name": f"runs{j}", "options": small, "current": {"gpus": 1, "pool": "A100", "nodes": where}}
        for j, where in enumerate(held)
    ]
    document = {
        "cluster": cluster, "jobs": [*jobs, {"name": "new", "options": grows}],
        "objective": "goodput", "change_cost": price,
    }  # fmt: skip
    return Instance.model_validate(document)


@pytest.mark.parametrize("capacity", ["blocks", "nodes"])
@pytest.mark.parametrize("kinds", [False, True])
@pytest.mark.parametrize(("price", "moves", "gpus"), [(0.0, 1, 4), (0.5, 1, 4), (2.0, 0, 2), (9.0, 0, 2)])
def test_who_would_move_others_takes_what_is_free(
    capacity: str, kinds: bool, price: float, moves: int, gpus: int
) -> None:
    """The newcomer is worth 4 with four GPUs, for which another job has to move, and 3 with two."""
    instance = newcomer(capacity, price)
    with pytest.MonkeyPatch.context() as patch:
        solve_by_kind(patch, kinds)
        result = wattsched.solve(instance, gap=0.0)
    assert result.decision is not None
    assert next(one.gpus for one in result.decision.jobs if one.job == "new") == gpus
    assert result.totals["migrations"] == moves
    assert result.totals.get("change_cost", 0.0) == price * moves
    assert result.objective == pytest.approx(2.0 + (4.0 if gpus == 4 else 3.0) - price * moves)
    assert result.bound == pytest.approx(6.0)
    assert (result.decided_by == "in place") == (price > 1.0)
    assert (result.termination.reason == "optimal") == (price == 0.0)
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []


def test_a_solver_that_takes_all_its_time_leaves_some_for_staying(monkeypatch: pytest.MonkeyPatch) -> None:
    solved, times_late = steps._by_solver, [1.3]  # once

    def late(call: Call, program: Any, start: Start, share: float, gap: float, *record: Any) -> Solution:
        found, left_s = solved(call, program, start, share, gap, *record), call.limits_left(share).time_s
        time.sleep((times_late.pop() if times_late else 0.0) * (left_s or 0.0))
        return found

    monkeypatch.setattr(steps, "_by_solver", late)
    result = wattsched.solve(newcomer("nodes", 9.0), gap=0.0, time_limit=1.0)
    assert (result.totals["migrations"], result.objective) == (0, pytest.approx(5.0))


@pytest.mark.parametrize("cheap", ["a", "b"])
@pytest.mark.parametrize("price", [0.0, 0.001])
def test_the_job_that_is_cheaper_to_move_makes_room(cheap: str, price: float) -> None:
    cluster = {
        "gpu_types": {"A": {"idle_power_w": 50.0}},
        "nodes": [{"name": name, "gpu_type": "A", "gpus": 2} for name in ("n0", "n1")],
    }
    one = {"gpus": [1], "pool": ["A"], "rate": [1.0], "power_w": [200.0]}
    jobs: list[dict[str, Any]] = [
        {
            "name": name,
            "remaining_work": 1e3,
            "options": one,
            "change_cost": price if name == cheap else 0.01,
            "current": {"gpus": 1, "pool": "A", "nodes": {node: [gpu]}},
        }
        for name, node, gpu in (("a", "n0", 0), ("b", "n1", 1))
    ]
    two = {"gpus": [2], "pool": ["A"], "rate": [1.9], "power_w": [400.0]}
    jobs.append({"name": "new", "remaining_work": 1e3, "options": two, "weight": 3.0})
    instance = Instance.model_validate({"cluster": cluster, "jobs": jobs, "objective": "goodput"})
    result = wattsched.solve(instance, gap=0.0)
    assert result.objective == pytest.approx(5.0 - price)
    assert result.termination.reason == ("feasible" if price else "optimal")
