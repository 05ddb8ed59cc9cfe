"""Generated columns lose nothing of the bound, and what is decided with them is valid."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from tests.strategies.sharing import sharing_instances
from wattsched.formulations.sharing import column_generation, patterns
from wattsched.formulations.sharing.columns import all_columns, set_partitioning
from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.sharing.heuristics import eaco
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.solvers.lp import solve_lp
from wattsched.solvers.registry import get
from wattsched.solvers.solution import Limits
from wattsched.verification.sharing.bound import prove
from wattsched.verification.sharing.checker import check


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
