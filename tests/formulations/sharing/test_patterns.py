"""`patterns` agrees with trying every partition, and its prices prove what they should."""

from __future__ import annotations

import pytest
from hypothesis import event, given, settings

from tests.brute_force.sharing import optimum
from tests.strategies.effort import examples
from tests.strategies.sharing import sharing_instances
from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.sharing.patterns import build
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sharing.bound import prove
from wattsched.verification.sharing.checker import check


@settings(max_examples=examples(250))
@given(sharing_instances())
def test_optimum_is_that_of_all_partitions(instance: SharingInstance) -> None:
    best = optimum(instance, instance.objective)
    plan = build(patterns_of(instance), instance.objective)
    answer = get("highs")(plan.program, Limits(gap=0.0))
    event("infeasible" if best is None else "feasible")
    if best is None:
        assert answer.termination.reason == "infeasible"
        return
    assert answer.x is not None
    decision = plan.decode(answer.x, {})
    report = check(instance, decision)
    assert report.faults == []
    assert report.objective == pytest.approx(best, rel=1e-7, abs=1e-9)
    assert plan.program.reported(plan.program.objective(answer.x)) == pytest.approx(best, rel=1e-7, abs=1e-9)
    again = plan.encode(decision)
    assert again is not None
    assert plan.program.violation(again) <= 1e-7
    assert plan.program.objective(again) == pytest.approx(answer.objective)
    assert answer.prices is not None
    assert plan.named_prices is not None
    prices = plan.named_prices(answer.prices)
    bound = prove(instance, prices).bound
    assert bound is not None
    margin = 1e-7 * max(1.0, abs(best))
    assert bound >= best - margin if plan.program.sense == "max" else bound <= best + margin
    # Nothing of what the rows between jobs and units prove is lost on the way.
    rows_bound = plan.program.reported(plan.program.lagrangian_bound(answer.prices))
    assert bound <= rows_bound + margin if plan.program.sense == "max" else bound >= rows_bound - margin
