"""`matching` agrees with `patterns` and with trying every partition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from tests.brute_force.sharing import optimum
from tests.strategies.effort import examples
from tests.strategies.sharing import sharing_instances
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.sharing import matching, patterns
from wattsched.formulations.sharing.data import patterns_of
from wattsched.instances.sharing.instance import Budgets, SharingInstance
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sharing.checker import check


@settings(max_examples=examples(220))
@given(sharing_instances(most_jobs=6, most_types=1, most_per_set=2))
def test_matching_patterns_and_partitions_agree(instance: SharingInstance) -> None:
    unit = instance.unit_types[0].model_copy(update={"pool": None})
    instance = instance.model_copy(update={"budgets": Budgets(), "unit_types": [unit], "pools": []})
    best = optimum(instance, instance.objective)
    other = patterns.build(patterns_of(instance), instance.objective)
    of_patterns = get("highs")(other.program, Limits(gap=0.0))
    if best is None:
        with pytest.raises(InfeasibleError):
            matching.build(patterns_of(instance), instance.objective)
        assert of_patterns.termination.reason == "infeasible"
        return
    plan = matching.build(patterns_of(instance), instance.objective)
    answer = get("highs")(plan.program, Limits(gap=0.0))
    assert answer.x is not None
    assert of_patterns.objective is not None
    report = check(instance, plan.decode(answer.x, {}))
    assert report.faults == []
    assert report.objective == pytest.approx(best, rel=1e-9, abs=1e-12)
    assert other.program.reported(of_patterns.objective) == pytest.approx(best, rel=1e-7, abs=1e-9)
    assert plan.program.reported(plan.bound) == pytest.approx(best, rel=1e-9, abs=1e-9)
    assert plan.optimum is not None
    found = plan.decode(plan.optimum, {})
    assert check(instance, found).objective == pytest.approx(best, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"budgets": Budgets(power_w=100.0)}, "budgets.power_w"),
        ({"limits": {"jobs_per_set": 3}}, "at most 2 jobs per set"),
        (
            {"unit_types": [{"name": n, "count": 1, "idle_power_w": 1.0, "full_power_w": 2.0} for n in "ab"]},
            "one",
        ),
    ],
)
def test_what_is_no_matching_is_refused(change: dict, told: str) -> None:
    document = {
        "problem": "sharing",
        "limits": {"jobs_per_set": 2},
        "unit_types": [{"name": "a", "count": 1, "idle_power_w": 1.0, "full_power_w": 2.0}],
        "classes": [{"name": "c", "alone": {"a": {"epoch_s": 1.0, "utilisation_pct": 5.0}}}],
        "jobs": [{"name": "j", "job_class": "c"}],
    }
    with pytest.raises(ValueError, match=told):
        matching.build(patterns_of(SharingInstance.model_validate(document | change)), "eaco")
