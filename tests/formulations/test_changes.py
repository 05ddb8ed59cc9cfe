"""What changes of running jobs cost: jobs of a round in which nothing is new go on as they are."""

from __future__ import annotations

from typing import Any

import pytest
from brute_force.agreement import solve_by_kind
from brute_force.sizing import optimum
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies.instances import instances_with_sets, small_instances

import wattsched
from wattsched.documents import verdict_on
from wattsched.formulations.sizing.objectives import OBJECTIVES
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.result import Result

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


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
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


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(
    instance=ROUNDS,
    objectives=st.tuples(*[st.sampled_from(sorted(OBJECTIVES))] * 2),
    restart_s=st.sampled_from([0.0, 40.0]),
)
def test_a_large_price_keeps_all_as_it_is(
    instance: Instance, objectives: tuple[str, str], restart_s: float
) -> None:
    """Whatever the next round is for; a job may not keep what it has where a deadline is in the way."""
    document = priced(instance, 0.0).model_dump()
    for job in document["jobs"]:
        job |= {"deadline_s": None}
    first = decided(Instance.model_validate(document), objective=objectives[0])
    # What a running job needs at least, if it waits, includes its restart.
    document["budgets"] |= {"energy_j": None, "carbon_g": None}
    later = going_on(Instance.model_validate(document), first.decision, restart_s)
    second = decided(priced(later, 1e7), objective=objectives[1])
    running = {one.job for one in first.decision.jobs}
    assert running <= {one.job for one in second.decision.jobs}
    assert second.totals["restarts"] == 0


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
@given(instance=ROUNDS, objective=st.sampled_from(sorted(OBJECTIVES)))
def test_no_price_is_no_field(instance: Instance, objective: str) -> None:
    free, never = (decided(priced(instance, price), objective=objective) for price in (0.0, None))
    assert free.digest == never.digest
    assert free.totals == never.totals
    assert "change_cost" not in free.totals
    assert (free.objective, free.bound) == (never.objective, never.bound)


@settings(max_examples=60, suppress_health_check=[HealthCheck.filter_too_much])
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
    assume(result.totals.get("change_cost"))
    forged = result.model_dump(mode="json")
    forged["totals"]["change_cost"] *= 0.5
    assert any("totals.change_cost" in fault for fault in verdict_on(instance, forged).faults)
    if OBJECTIVES[objective].combine == "sum":
        sign = 1.0 if result.sense == "min" else -1.0
        worth = wattsched.check(priced(instance, 0.0, objective=objective), result.decision).objective
        assert worth is not None
        paid = sign * result.totals["change_cost"]
        assert result.objective == pytest.approx(worth + paid, rel=1e-9, abs=1e-9)
