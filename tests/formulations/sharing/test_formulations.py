"""`patterns`, `matching` and generated columns against trying every partition, and what prices prove."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tests.brute_force.sharing import optimum
from tests.strategies.effort import examples
from tests.strategies.sharing import sharing_instances
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.sharing import column_generation, matching, patterns
from wattsched.formulations.sharing.columns import all_columns, set_partitioning
from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.sharing.heuristics import eaco
from wattsched.instances.sharing.instance import Budgets, SharingInstance
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sharing.bound import prove
from wattsched.verification.sharing.checker import check


@settings(max_examples=examples(250))
@given(sharing_instances())
def test_optimum_is_that_of_all_partitions(instance: SharingInstance) -> None:
    best = optimum(instance, instance.objective)
    plan = patterns.build(patterns_of(instance), instance.objective)
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


@settings(max_examples=examples(50))
@given(sharing_instances(most_jobs=9, most_per_set=4), st.sampled_from([0, 5_000]))
def test_bound_is_that_of_all_columns(instance: SharingInstance, few: int) -> None:
    data = set_partitioning(patterns_of(instance), instance.objective)
    every = patterns.program_of(data, all_columns(data))
    relaxed = solve_lp(every, Limits())
    assume(relaxed.x is not None)
    with patch.object(column_generation, "FEW_PATTERNS", few), patch.object(patterns, "MOST_COLUMNS", -1):
        plan = patterns.build(data.patterns, instance.objective)
    assert plan.prices is not None
    margin = 1e-7 + 2e-5 * abs(relaxed.bound)
    assert relaxed.bound - margin <= plan.outside <= relaxed.bound + 1e-7 * max(1.0, abs(relaxed.bound))
    proven = prove(instance, plan.prices).bound
    assert proven == pytest.approx(plan.program.reported(plan.outside), rel=1e-6, abs=1e-7)
    known = eaco(patterns_of(instance), instance.objective)
    assert known is None or plan.encode(known) is not None
    answer = get("highs")(plan.program, Limits())
    if answer.x is not None:
        report = check(instance, plan.decode(answer.x, {}))
        assert report.faults == []
        assert plan.program.objective(answer.x) >= plan.outside - 1e-7
        assert report.objective == pytest.approx(
            plan.program.reported(plan.program.objective(answer.x)), rel=1e-7, abs=1e-9
        )


@pytest.mark.slow
def test_many_different_jobs_are_certified() -> None:
    rng = np.random.default_rng(4)
    loads = rng.uniform(5, 60, 6).round(1)
    instance = SharingInstance.model_validate(
        {
            "problem": "sharing",
            "unit_types": [
                {"name": "node", "count": 60, "gpus": 8, "idle_power_w": 356.0, "full_power_w": 1971.6},
                {"name": "old", "count": 60, "gpus": 8, "idle_power_w": 300.0, "full_power_w": 1500.0},
            ],
            "classes": [
                {
                    "name": f"c{c}",
                    "alone": {
                        name: {"epoch_s": speed * (600.0 + 200 * c), "utilisation_pct": load}
                        for name, speed in (("node", 1.0), ("old", 1.7))
                    },
                }
                for c, load in enumerate(loads.tolist())
            ],
            "jobs": [
                {"name": f"j{j}", "job_class": f"c{j % 6}", "remaining_epochs": work}
                for j, work in enumerate(rng.uniform(5, 90, 300).round(2).tolist())
            ],
        }
    )
    with patch.object(patterns, "MOST_COLUMNS", -1):
        plan = patterns.build(patterns_of(instance), "eaco")
    answer = get("highs")(plan.program, Limits(gap=1e-3))
    assert answer.x is not None
    report = check(instance, plan.decode(answer.x, {}))
    assert report.faults == []
    assert report.objective is not None
    assert report.objective - plan.outside <= 2e-3 * report.objective
