"""Schedules, their pricing and its bounds against brute force and full enumeration."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.brute_force import shifting as brute_force
from tests.strategies.effort import examples
from tests.strategies.shifting import tiny
from wattsched import solve
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.model import Model
from wattsched.formulations.shifting import neighbourhoods, schedules, time_indexed
from wattsched.formulations.shifting.column_generation import Insertion, generate
from wattsched.formulations.shifting.columns import (
    Prices,
    all_schedules,
    decision_of,
    fits,
    follow,
    is_valid,
    priced_cost,
    prices_of,
    schedules_of,
)
from wattsched.formulations.shifting.data import OBJECTIVES, PAUSE, Horizon, horizon_of
from wattsched.formulations.shifting.neighbourhoods import Neighbourhoods
from wattsched.formulations.shifting.pricing import SchedulePricing
from wattsched.formulations.timer import Timer
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.decision import ShiftingDecision
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.results.documents import verdict_on
from wattsched.solvers import highs
from wattsched.solvers.solution import Limits
from wattsched.verification.shifting.bound import PricedInstance, prove
from wattsched.verification.shifting.checker import check

CASES = 200
firsts = pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in (20, 40))]
)


@pytest.mark.parametrize("first", range(0, CASES, 20))
@pytest.mark.parametrize("build", [schedules.build, time_indexed.build])
def test_equals_brute_force(build: Callable[..., Model[ShiftingDecision]], first: int) -> None:
    for seed in range(first, first + examples(20)):
        instance = tiny(seed)
        best = brute_force.optimum(instance)
        try:
            plan = build(horizon_of(instance), instance.objective)
        except InfeasibleError:
            assert best is None, seed
            continue
        solution = highs.solve(plan.program, Limits(gap=0.0))
        if best is None:
            assert solution.termination.reason == "infeasible", seed
            continue
        assert solution.x is not None, seed
        report = check(instance, plan.decode(solution.x, {}))
        assert not report.faults, (seed, report.faults)
        assert report.objective == pytest.approx(best, rel=1e-6, abs=1e-9), seed
        assert plan.program.objective(solution.x) == pytest.approx(best, rel=1e-6, abs=1e-9), seed
        assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-9), seed
        assert solution.prices is not None
        assert plan.named_prices is not None
        bound = prove(instance, plan.named_prices(solution.prices)).bound
        assert bound is not None
        assert bound <= best + 1e-9 * max(1.0, abs(best))


def generated(first: int) -> Iterator[tuple[int, ShiftingInstance, float, Model[ShiftingDecision]]]:
    """Instances with their optima, and models of `schedules`."""
    for seed in range(first, first + 20):
        if (best := brute_force.optimum(instance := tiny(seed))) is not None:
            yield seed, instance, best, schedules.build(horizon_of(instance), instance.objective)


@firsts
def test_near_optimal_schedules_prove_the_optimum(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is outside the program costs no less than it says; the rest is inside."""
    monkeypatch.setattr(schedules, "all_schedules", lambda horizon: None)
    monkeypatch.setattr(schedules, "MOST_NEAR", 200)
    monkeypatch.setattr(neighbourhoods, "IDLE", 3)
    proven = 0
    for seed, _, best, plan in generated(first):
        if plan.outside == -np.inf:
            continue
        solution = highs.solve(plan.program, Limits(gap=0.0))
        inside = np.inf if solution.x is None else plan.program.objective(solution.x)
        size = 1e-9 * max(1.0, abs(best))
        assert min(plan.outside, inside) <= best + size, seed
        assert inside >= best - 1e-6 * max(1.0, abs(best)), seed
        proven += inside <= plan.outside
    assert proven >= 10


@firsts
def test_generated_columns_come_close(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without enumeration the bound holds, and decisions are valid and seldom far from the optimum."""
    monkeypatch.setattr(schedules, "all_schedules", lambda horizon: None)
    monkeypatch.setattr(schedules, "FEW_JOBS", 0)
    monkeypatch.setattr(neighbourhoods, "IDLE", 20)
    gaps = []
    for seed, instance, best, plan in generated(first):
        assert plan.outside == -np.inf
        assert plan.prices is not None
        bound = prove(instance, plan.prices).bound
        assert bound is not None
        assert bound <= best + 1e-9 * max(1.0, abs(best)), seed
        solution = highs.solve(plan.program, Limits(gap=0.0))
        if solution.x is not None:
            report = check(instance, plan.decode(solution.x, {}))
            assert not report.faults, (seed, report.faults)
            gaps.append(((report.objective or 0.0) - best) / max(abs(best), 1e-9))
            assert plan.encode(plan.decode(solution.x, {})) is not None
    assert len(gaps) >= 8
    assert float(np.median(gaps)) < 0.02


def random_prices(instance: ShiftingInstance, horizon: Horizon, rng: np.random.Generator) -> Prices:
    """Prices of the size that they have: some cells free, some budgets cheap."""
    which = OBJECTIVES.index(instance.objective)
    typical = np.maximum(np.abs(horizon.budget), 1e-9)
    unit = 1.0 if which else float(horizon.begin_s[-1])
    limited = np.isfinite(horizon.budget)
    criteria = np.where(limited, rng.random(4) * unit / np.where(limited, typical, 1.0), 0.0)
    criteria[which] += 1.0
    cells = horizon.n_cells
    gpu = unit / horizon.slots * rng.random(cells) * (rng.random(cells) < 0.6)
    return Prices(criteria, gpu)


@firsts
def test_bounds_hold_and_are_sharp(first: int) -> None:
    """At any prices: below the sum of every job's cheapest schedule, and not by much."""
    rng = np.random.default_rng(first)
    for seed in range(first, first + 20):
        instance = tiny(seed)
        horizon, which = horizon_of(instance), OBJECTIVES.index(instance.objective)
        prices = random_prices(instance, horizon, rng)
        everything = all_schedules(horizon)
        assert everything is not None
        least = np.full(horizon.n_jobs, np.inf)
        np.minimum.at(least, everything.job, priced_cost(horizon, everything, prices))
        if not np.isfinite(least).all():
            continue
        over = prices.criteria - (np.arange(4) == which)
        charged = over > 0
        charges = over[charged] @ (horizon.budget - horizon.idle_use)[charged]
        charges += prices.cell @ horizon.free_cells
        exact = float(least.sum() + horizon.idle_use[which] - charges)
        size = float(least.sum() + abs(charges) + horizon.idle_use[which])
        found = prices.named(horizon, which)
        bound = prove(instance, found).bound
        assert bound is not None
        assert bound <= exact + 1e-9 * size, seed
        assert bound >= exact - 1e-7 * size, seed
        guided = priced_cost(horizon, SchedulePricing(horizon, 500).cheapest(prices), prices)
        assert np.all(guided >= least - 1e-9 * size)
        assert np.median(guided - least) <= 0.01 * size


@pytest.mark.parametrize("lengths", [[3600.0], [600.0, 60.0, 7200.0, 3600.0]])
@pytest.mark.parametrize("objective", ["mean-completion", "carbon"])
def test_prices_of_larger_horizons_prove_what_the_lp_promises(objective: str, lengths: list[float]) -> None:
    """Jobs of up to dozens of slots, decided in windows and between levels, against the exact least costs."""
    factor = 3.0 if objective == "carbon" else None
    instance = shifting_horizon(jobs=15, slots=24, seed=5, completion_factor=factor)
    instance = instance.model_copy(update={"slot_s": np.resize(lengths, 24).tolist()})
    horizon, which = horizon_of(instance), OBJECTIVES.index(objective)
    found = generate(horizon, which, SchedulePricing(horizon), schedules._first(horizon, which), Timer())
    lp = found.master.cost + horizon.idle_use[which]
    bound = prove(instance, found.prices.named(horizon, which)).bound
    assert bound is not None
    assert lp * (1 - 5e-3) <= bound <= lp


@pytest.mark.parametrize("seed", range(3))
def test_a_job_is_priced_among_others_as_it_is_alone(seed: int) -> None:
    """Jobs of other tables, lengths and restart times in the same group change nothing."""
    document = shifting_horizon(jobs=24, slots=24, seed=seed, carbon_fraction=None).model_dump()
    rng = np.random.default_rng(seed)
    for job in document["jobs"]:
        job["restart_s"], job["has_run"] = float(rng.choice([0.0, 60.0, 400.0])), bool(rng.random() < 0.5)
    horizon = horizon_of(ShiftingInstance.model_validate(document))
    unit, cells = float(horizon.begin_s[-1]), horizon.n_cells
    prices = Prices(np.array([1.0, 0.0, 0.0, 0.0]), unit / horizon.slots * rng.random(cells))
    pricing, free = SchedulePricing(horizon), np.full(cells, np.inf)
    together = pricing.cheapest(prices)
    for job in range(horizon.n_jobs):
        alone = pricing.cheapest_of(job, prices, free)
        assert np.array_equal(alone.option[0], together.option[job]), (seed, job)


def test_improvement_ends_within_the_gap_without_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(*_: object) -> None:
        raise AssertionError("a decision within the gap was there")

    monkeypatch.setattr(Neighbourhoods, "_chosen", attempt)
    horizon = horizon_of(shifting_horizon(jobs=60, slots=24, seed=1, carbon_fraction=None))
    assert schedules.build(horizon, "mean-completion", Timer(gap=0.2)).listed.n_columns


def test_likely_schedules_fit_beside_the_decided_ones() -> None:
    """Schedules that the LP mixes to 70 % and more may exceed a cell together; those kept at first do not."""
    for seed in range(3):
        horizon = horizon_of(shifting_horizon(jobs=60, slots=24, seed=seed, carbon_fraction=None))
        pricing = SchedulePricing(horizon)
        found = generate(horizon, 0, pricing, schedules._first(horizon, 0), Timer(gap=0.01))
        kept, jobs, by_weight = Insertion(horizon, 0, pricing, found)._start()
        assert fits(horizon, kept)
        assert sorted([*kept.job, *jobs]) == sorted([*kept.job, *by_weight]) == [*range(horizon.n_jobs)]


def power_limited(work: list[float], slots: int, **fields: object) -> ShiftingInstance:
    """Jobs that hold eight GPUs each, with three power limits; `work` is in seconds at the fastest."""
    table = {"gpus": [8] * 3, "pool": ["a"] * 3, "power_limit_w": [100.0, 200.0, 400.0]}
    table |= {"power_w": [800.0, 1600.0, 3200.0], "rate": [0.4, 0.75, 1.0]}
    held = {"options": "t", "restart_s": 300.0, "current": {"gpus": 8, "pool": "a"}}
    document = {
        "problem": "shifting",
        "slots": slots,
        "slot_s": 750.0,
        "pools": {"a": {"gpus": 8 * len(work), "idle_power_w": 50.0}},
        "tables": {"t": table},
        "jobs": [held | {"name": f"job-{n}", "remaining_work": seconds} for n, seconds in enumerate(work)],
    }
    return ShiftingInstance.model_validate(document | fields)


@pytest.mark.parametrize("price", [3.0, 30.0])
def test_a_job_with_little_to_spare_is_priced_about_right(price: float) -> None:
    """Where watts are dear for a while, it works elsewhere, however much it has to do after the horizon."""
    excess = []
    for seed in range(30):
        rng = np.random.default_rng(seed)
        instance = power_limited([float(rng.uniform(2.0, 15.0)) * 18_000.0], 24, power_w=1e6)
        job = instance.jobs[0].model_copy(update={"least_progress": float(rng.uniform(0.5, 0.97))})
        instance, first = instance.model_copy(update={"jobs": [job]}), int(rng.integers(12))
        dear = {f"power_w@{slot}": price for slot in range(first, first + int(rng.integers(2, 13)))}
        horizon = horizon_of(instance)
        prices = prices_of(horizon, 0, {row: -each for row, each in dear.items()})
        cost = priced_cost(horizon, SchedulePricing(horizon).cheapest(prices), prices)
        excess.append(float(cost[0]) / PricedInstance(instance, dear).least_cost(job).bound(16384) - 1)
    assert min(excess) > -1e-6
    assert np.mean(excess) < 0.04
    assert max(excess) < 0.25


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "seed"), [(8, 3), (8, 7), (8, 11), (16, 4)])
def test_jobs_without_a_schedule_find_one_where_caps_leave_hardly_a_watt(jobs: int, seed: int) -> None:
    """Caps are what a random plan draws, and each job has to do 98 % of what it does there."""
    rng = np.random.default_rng(seed)
    instance = power_limited([float(rng.uniform(1, 5) * 12 * 750) for _ in range(jobs)], 12)
    horizon, option = horizon_of(instance), rng.integers(PAUSE, 3, size=(jobs, 12))
    option[:, ::5] = 2
    plan = follow(horizon, np.arange(jobs), option)
    used_w = np.where(plan.option == PAUSE, 0.0, horizon.extra_w[plan.option]).sum(axis=0)
    done = horizon.work - np.maximum(0.0, plan.finish_s - horizon.begin_s[-1])
    due = np.minimum(1.0, 0.98 * done / horizon.begin_s[-1]).tolist()
    held = [
        job.model_copy(update={"least_progress": part}) for job, part in zip(instance.jobs, due, strict=True)
    ]
    caps_w = (used_w + 400.0 * jobs).tolist()
    horizon = horizon_of(instance.model_copy(update={"power_w": caps_w, "jobs": held}))
    pricing = SchedulePricing(horizon)
    found = generate(horizon, 0, pricing, schedules._first(horizon, 0), Timer())
    begun = Insertion(horizon, 0, pricing, found).decide(Timer())
    decision = Neighbourhoods(horizon, 0, found).improved(begun, Timer(gap=0.1))
    assert is_valid(horizon, decision)
    assert fits(horizon, decision)


def test_decisions_become_schedules_and_back() -> None:
    instance = shifting_horizon(jobs=12, slots=12, seed=3)
    horizon = horizon_of(instance)
    prices = Prices(np.array([1.0, 0.0, 0.0, 0.0]), np.full(horizon.n_cells, 3.0))
    found = SchedulePricing(horizon).cheapest(prices)
    again = schedules_of(horizon, decision_of(horizon, found))
    assert again is not None
    assert np.array_equal(again.option, found.option)
    assert np.allclose(again.criteria, found.criteria)
    report = check(
        instance.model_copy(update={"budgets": type(instance.budgets)()}), decision_of(horizon, found)
    )
    assert report.objective == pytest.approx(found.criteria[:, 0].sum())
    assert report.totals["carbon_g"] == pytest.approx(found.criteria[:, 1].sum() + horizon.idle_use[1])


@pytest.mark.slow
@pytest.mark.parametrize("rate", [1e-12, 1e-20, 1e-300])
def test_an_option_that_takes_longer_than_numbers_go_changes_nothing(rate: float) -> None:
    instance = shifting_horizon(jobs=3, slots=8, seed=1)
    document = instance.model_dump()
    for table in document["tables"].values():
        for column in table.values():
            if isinstance(column, list):
                column.append(column[0])
        table["rate"][-1], table["batch_size"][-1] = rate, 1
    slow = ShiftingInstance.model_validate(document)
    plain, answer = solve(instance, gap=1e-6), solve(slow, gap=1e-6)
    assert answer.objective == pytest.approx(plain.objective, rel=1e-5)
    assert verdict_on(slow, answer.model_dump(mode="json")).faults == []


@pytest.mark.parametrize("formulation", ["schedules", "time-indexed"])
def test_jobs_that_must_end_do_not_end_almost(formulation: str) -> None:
    """With least progress beyond its work a job has to end; here a little more than that allows is left."""
    table = {"gpus": [1, 1], "pool": ["p", "p"], "frequency_mhz": [1000, 1500]}
    table |= {"power_w": [100.0, 1000.0], "rate": [1.0, 2.0]}
    job = {"name": "a", "options": table, "remaining_work": 7200.00000396, "least_progress": 0.6}
    document = {"problem": "shifting", "objective": "energy", "slots": 2, "pools": {"p": {"gpus": 1}}}
    result = solve(ShiftingInstance.model_validate(document | {"jobs": [job]}), formulation=formulation)
    assert result.objective == pytest.approx(2_160_000.0)
