"""Frontiers against every decision there is: lexicographic ends, and no point that a decision dominates."""

from __future__ import annotations

from typing import Any

import pytest

import wattsched
from tests.brute_force.shifting import WHICH, outcomes
from tests.strategies.shifting import tiny
from wattsched.instances.shifting.instance import HorizonBudgets
from wattsched.results.documents import instance_of
from wattsched.solving.tradeoffs import ParetoResult, Tradeoff, verdict_on_pareto
from wattsched.verification.shifting.checker import TOTALS

SAME = 1e-6


def amounts(found: ParetoResult) -> list[tuple[float, float]]:
    totals = [point.result.totals for point in found.points]
    return [(total["average_completion_s"], total[TOTALS[found.tradeoff]]) for total in totals]


@pytest.mark.parametrize("tradeoff", ["carbon", "energy", "money"])
@pytest.mark.parametrize("seed", [1, 4, 9, 12])
def test_no_decision_dominates_a_point_and_none_is_beyond_the_ends(seed: int, tradeoff: Tradeoff) -> None:
    instance = tiny(seed).model_copy(update={"budgets": HorizonBudgets()})
    known = {(sums[0], sums[WHICH[tradeoff]]) for sums in outcomes(instance)}
    found = wattsched.pareto(instance, 3, tradeoff=tradeoff, gap=1e-6)
    points = amounts(found)
    soonest, least = (min(values) for values in zip(*known, strict=True))
    quick = min(amount for time_s, amount in known if time_s <= soonest * (1 + SAME))
    slow = min(time_s for time_s, amount in known if amount <= least * (1 + SAME))
    assert points[0] == pytest.approx((soonest, quick), rel=SAME)
    assert points[-1] == pytest.approx((slow, least), rel=SAME)
    for time_s, amount in points:
        assert not [
            better
            for better in known
            if better[0] <= time_s * (1 + 1e-9) and better[1] <= amount * (1 + 1e-9)
            if better[0] < time_s * (1 - SAME) or better[1] < amount * (1 - SAME)
        ]
    assert verdict_on_pareto(instance, found).faults == []


def test_what_coincides_is_one_point() -> None:
    """Waiting for the horizon's end costs as many joules: two ends of one total, and one of them later."""
    table = {"pool": ["a"], "gpus": [2], "power_w": [311.3], "rate": [1.7]}
    job = {"name": "j", "options": "t", "remaining_work": 7777.7}
    instance = one(objective="energy", slots=1, pools={"a": {"gpus": 2}}, tables={"t": table}, jobs=[job])
    found = wattsched.pareto(instance, 2, gap=1e-6)
    assert len(found.points) == 1
    assert found.points[0].result.totals["average_completion_s"] == pytest.approx(7777.7 / 1.7)
    verdict = verdict_on_pareto(instance, found, 1e-6)
    assert (verdict.faults, verdict.claimed) == ([], False)


def test_the_least_of_a_total_may_be_nothing() -> None:
    """In the second slot the grid is clean: the job waits for it, and no longer."""
    rows = {"pool": ["a", "a"], "gpus": [1, 1], "frequency_mhz": [1400, 700]}
    options = {**rows, "power_w": [90.0, 60.0], "rate": [1.0, 0.5]}
    job = {"name": "j", "options": options, "remaining_work": 50.0, "must_finish": True}
    cluster = {"pools": {"a": {"gpus": 1}}, "carbon_g_per_kwh": [100.0, 0.0, 0.0, 0.0]}
    instance = one(slots=4, slot_s=100.0, jobs=[job], **cluster)
    found = wattsched.pareto(instance, 2, gap=1e-6)
    assert [time_s for time_s, _ in amounts(found)] == pytest.approx([50.0, 150.0])
    assert verdict_on_pareto(instance, found).faults == []


def test_without_the_results_that_show_it_a_frontier_is_taken_on_trust() -> None:
    instance = wattsched.generate("shifting", jobs=2, slots=4, seed=1)
    found = wattsched.pareto(instance, 3)
    assert not verdict_on_pareto(instance, found).claimed
    lacking = (
        found.model_copy(update={"ends": found.ends[:1]}),
        found.model_copy(update={"ends": []}),
        found.model_copy(update={"points": [p.model_copy(update={"before": None}) for p in found.points]}),
    )
    for less in lacking:
        verdict = verdict_on_pareto(instance, less)
        assert (verdict.faults, verdict.claimed) == ([], True)
        assert verdict_on_pareto(instance, less, 0.5).faults != []


def one(**fields: Any) -> Any:
    return instance_of({"problem": "shifting", "name": "one", "slot_s": 3600.0} | fields)


def test_a_schedule_may_use_any_multiple_of_a_budget() -> None:
    """HiGHS takes no columns with numbers that large."""
    rows = {"gpus": [2, 1], "pool": ["p", "p"], "power_w": [250.0, 0.0], "rate": [1.0, 3e5]}
    job = {"name": "j", "options": rows, "remaining_work": 3e8}
    instance = one(slots=1, pools={"p": {"gpus": 10}}, jobs=[job], budgets={"energy_j": 1e-9})
    result = wattsched.solve(instance, gap=0.0)
    assert (result.termination.reason, result.objective) == ("optimal", pytest.approx(1000.0))
