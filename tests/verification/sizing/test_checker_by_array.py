"""The checker, which looks at all jobs at once, against judging one job after the other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.brute_force.sizing_decisions import Judge
from tests.strategies.decisions import decisions
from tests.strategies.effort import examples
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from tests.strategies.priced import OBJECTIVE, with_objective
from wattsched.instances.sizing.decision import AssignmentColumns, Decision
from wattsched.instances.sizing.instance import Budgets, Instance
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.verification.sizing.checker import check

ROUNDS = small_instances(max_jobs=5) | instances_with_sets() | sleeping(small_instances(max_jobs=5))


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), instance=ROUNDS, objective=OBJECTIVE)
def test_sound_decisions_pass_and_no_others(data: st.DataObject, instance: Instance, objective: str) -> None:
    instance = with_objective(instance, objective)
    if data.draw(st.booleans()):
        instance = instance.model_copy(update={"budgets": Budgets(scope=instance.budgets.scope)})
    decision = data.draw(decisions(instance))
    report = check(instance, decision)
    worth = Judge(instance).objective(decision)
    assert (report.faults == []) == (worth is not None), report.faults
    if worth is not None:
        assert report.objective == pytest.approx(worth, rel=1e-9, abs=1e-12)


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), instance=ROUNDS)
def test_both_forms_of_a_round_and_its_decision_are_judged_alike(
    data: st.DataObject, instance: Instance
) -> None:
    decision = data.draw(decisions(instance))
    by_column = instance.model_copy(update={"jobs": JobColumns.from_records(instance.jobs)})
    assert check(by_column, decision) == check(instance, decision)
    if all(a.gpus == sum(map(len, a.nodes.values())) for a in decision.jobs):
        listed = AssignmentColumns.from_records(decision.jobs)
        columns = Decision(jobs=listed, waiting=decision.waiting)
        assert check(by_column, columns) == check(instance, decision)


@settings(max_examples=examples(200), deadline=None)
@given(data=st.data(), instance=ROUNDS)
def test_the_order_in_which_gpus_are_listed_does_not_matter(data: st.DataObject, instance: Instance) -> None:
    decision = data.draw(decisions(instance))
    shuffled = []
    for one in decision.jobs:
        listed = data.draw(st.permutations(list(one.nodes.items())))
        nodes = {name: data.draw(st.permutations(gpus)) for name, gpus in listed}
        shuffled.append(one.model_copy(update={"nodes": nodes}))
    other = check(instance, Decision(jobs=shuffled, waiting=decision.waiting))
    report = check(instance, decision)
    assert (other.totals, other.objective, sorted(other.faults)) == (
        report.totals,
        report.objective,
        sorted(report.faults),
    )
