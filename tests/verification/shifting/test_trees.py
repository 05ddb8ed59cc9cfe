"""Certificate trees: whatever splits and prices they have, no decision beats what their leaves prove."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from tests.brute_force.shifting import optimum, schedules
from tests.strategies.effort import examples
from tests.strategies.shifting import tiny
from tests.strategies.trees import require_proven
from wattsched import solve
from wattsched.instances.generators import generate
from wattsched.instances.shifting.instance import ShiftingInstance, ShiftingJob
from wattsched.verification.shifting import bound, least_cost
from wattsched.verification.shifting.bound import PricedInstance, Prover
from wattsched.verification.shifting.checker import CRITERIA
from wattsched.verification.shifting.least_cost import schedules_up_to
from wattsched.verification.shifting.priced import allowed_by
from wattsched.verification.tree import Taken, prove_tree

ROWS = ("completion_s", "carbon_g", "energy_j", "money")


def split(rng: random.Random, instance: ShiftingInstance, job: ShiftingJob) -> dict[str, Any]:
    """Some split of a job; ends at the edges of slots, too."""
    if rng.random() < 0.5:
        by_s = rng.choice([rng.uniform(0, 1.3 * instance.horizon_s), float(rng.choice(instance.begin_s))])
        return {"job": job.name, "ends_by_s": by_s}
    rows = range(len(instance.table_of(job).gpus))
    named = rng.sample(rows, rng.randint(0, len(rows)))
    return {"job": job.name, "slot": rng.randrange(instance.slots), "rows": named}


def least(
    instance: ShiftingInstance,
    job: ShiftingJob,
    charged: dict[str, float],
    taken: list[Taken],
    *some: tuple[Any, ...],
) -> float:
    """Least cost of a job's schedules on some sides of splits; early ends count as if they were late.

    Of `some` schedules where these are given.
    """
    weights = sum(job.weight for job in instance.jobs)
    price = {row: charged.get(row, 0.0) + (CRITERIA[instance.objective] == row) for row in ROWS}
    best = math.inf
    for choice, cells, finish_s, amounts in some or schedules(instance, job):
        for given, inside, _ in taken:
            if "rows" in given and (choice[given["slot"]] in given["rows"]) != inside:
                break
            if "rows" not in given and inside and finish_s > given["ends_by_s"] * (1 + 1e-9):
                break
            if "rows" not in given and not inside:
                finish_s = max(finish_s, given["ends_by_s"] * (1 - 1e-9))
        else:
            late_s = finish_s - job.arrival_s
            values = zip(ROWS, [job.weight / weights * late_s, *amounts], strict=True)
            cost = sum(price[row] * value for row, value in values)
            cost += sum(gpus * charged.get(f"gpus:{pool}@{slot}", 0.0) for (pool, slot), gpus in cells)
            best = min(best, cost)
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 300, 60))
def test_least_costs_are_those_of_trying_everything(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are never more, and no less where all schedules that matter are followed."""
    for number in range(seed, seed + 60):
        instance, rng = tiny(number), random.Random(number)
        sizes = dict(zip(ROWS, (1.0, 1e3, 1e-2, 1e5), strict=True))
        cells = [f"gpus:{pool}@{slot}" for pool in instance.pools for slot in range(instance.slots)]
        unit, slot_s = sizes[CRITERIA[instance.objective]], instance.horizon_s / instance.slots
        for _ in range(10):
            charged = {row: rng.random() * size / unit for row, size in sizes.items() if rng.random() < 0.3}
            charged |= {cell: rng.random() * slot_s / unit for cell in cells if rng.random() < 0.3}
            priced = PricedInstance(instance, charged)
            for job in instance.jobs:
                drawn = [split(rng, instance, job) for _ in range(rng.randint(0, 5))]
                taken = [Taken(one, rng.random() < 0.5, 0) for one in drawn]
                truth = least(instance, job, charged, taken)
                allowed = allowed_by(instance, taken).get(job.name)
                for levels, followed in ((3, 1), (64, 4), (64, 100)):
                    monkeypatch.setattr(least_cost, "FEW_LEVELS", levels)
                    monkeypatch.setattr(least_cost, "FOLLOWED", followed)
                    found = priced.least_cost(job, allowed).bound(levels)
                    assert found <= truth + 1e-8 * abs(truth), (number, taken)
                    if followed == 100 and math.isfinite(truth):
                        assert found >= truth - 1e-8 * abs(truth) - 1e-12, (number, taken)


@pytest.mark.parametrize("seed", range(0, 120, 30))
def test_all_schedules_that_cost_little_are_listed(seed: int) -> None:
    """At other prices the cheapest of them is the one that trying everything finds among those."""
    for number in range(seed, seed + examples(30)):
        instance, rng = tiny(number), random.Random(number)
        cells = [f"gpus:{pool}@{slot}" for pool in instance.pools for slot in range(instance.slots)]
        unit = {"mean-completion": 1.0, "carbon": 1e3, "energy": 1e-2}.get(instance.objective, 1e5)

        def drawn(cells: list[str] = cells, unit: float = unit, rng: random.Random = rng) -> dict[str, float]:
            return {cell: rng.random() * 10.0 / unit for cell in cells if rng.random() < 0.3}

        first, second = drawn(), drawn()
        for job in instance.jobs:
            truth = least(instance, job, first, [])
            if not math.isfinite(truth):
                continue
            most = truth + rng.random() * abs(truth)
            listed = schedules_up_to(PricedInstance(instance, first).job(job), most)
            costs = listed.costs(PricedInstance(instance, first).job(job))
            others = listed.costs(PricedInstance(instance, second).job(job))
            each = [
                (least(instance, job, first, [], one), least(instance, job, second, [], one))
                for one in schedules(instance, job)
            ]
            inside = [other for cost, other in each if cost <= most * (1 - 1e-8)]
            assert min(costs) == pytest.approx(truth, rel=1e-8)
            assert max(costs) <= most * (1 + 1e-6)
            assert min(others) <= min(inside) * (1 + 1e-8)
            about = [other for cost, other in each if cost <= most * (1 + 1e-6)]
            assert min(others) >= min(about) * (1 - 1e-8)


def test_less_work_left_is_no_merit_where_a_job_has_to_run_on() -> None:
    """It runs in all slots, so it must not be fast: slowly for three of them, and then either way."""
    table = {"pool": ["a"] * 2, "gpus": [1] * 2, "frequency_mhz": [2, 1]}
    document = {
        "problem": "shifting",
        "objective": "energy",
        "slots": 4,
        "slot_s": 10.0,
        "pools": {"a": {"gpus": 1}},
        "tables": {"t": {**table, "rate": [1.0, 0.5], "power_w": [100.0, 100.0]}},
        "jobs": [{"name": "j", "options": "t", "remaining_work": 18.0}],
    }
    instance = ShiftingInstance.model_validate(document)
    taken = [Taken({"job": "j", "slot": slot, "rows": [0, 1]}, inside=True, node=0) for slot in range(4)]
    assert Prover(instance)({}, taken).bound == pytest.approx(3300.0, rel=1e-8)


def tree(rng: random.Random, instance: ShiftingInstance) -> list[dict[str, Any]]:
    """A tree of any shape, with prices of any size."""
    rows = [f"gpus:{pool}@{slot}" for pool in instance.pools for slot in range(instance.slots)]
    rows += [n for n, field in bound.BUDGETS.items() if getattr(instance.budgets, field) is not None]
    slot_s = instance.horizon_s / instance.slots
    size = 10 ** rng.uniform(-3, 3) * (slot_s if instance.objective == "mean-completion" else 1.0)

    def prices() -> dict[str, float]:
        return {row: -size * rng.random() for row in rows if rng.random() < 0.3}

    nodes: list[dict[str, Any]] = [{}]
    for number in range(30):
        if number < len(nodes) and rng.random() < 0.75:
            children = {"inside": len(nodes), "outside": len(nodes) + 1}
            drawn = split(rng, instance, rng.choice(instance.jobs))
            if rng.random() < 0.3:
                drawn = {"prices": prices(), "within": size * rng.random() * 10}
            nodes[number] = {"split": drawn, **children}
            nodes += [{}, {}]
    for node in nodes:
        if not node:
            node["prices"] = prices()
    for node in nodes:
        # Outside of listed schedules the same prices prove more.
        if "within" in node.get("split", {}) and "prices" in nodes[node["outside"]]:
            nodes[node["outside"]]["prices"] = node["split"]["prices"]
    return nodes


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 200, 40))
def test_no_decision_beats_the_bound_of_a_tree(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by few levels, where hardly anything is followed."""
    for number in range(seed, seed + 40):
        instance, rng = tiny(number), random.Random(number)
        best = optimum(instance)
        for levels in (2, 64, 2, 64):
            monkeypatch.setattr(least_cost, "FEW_LEVELS", levels)
            monkeypatch.setattr(bound, "LEVELS_OF_LEAF", levels)
            monkeypatch.setattr(least_cost, "FOLLOWED", levels // 2)
            proof = prove_tree(Prover(instance), tree(rng, instance), "min")
            if best is not None:
                assert not proof.faults
                assert proof.bound is not None
                assert proof.bound <= best + 1e-9 * abs(best), number


@pytest.mark.slow
@pytest.mark.parametrize("formulation", ["schedules", "time-indexed"])
@pytest.mark.parametrize("seed", range(0, 100, 20))
def test_what_is_called_optimal_is_proven_in_full(seed: int, formulation: str) -> None:
    for number in range(seed, seed + 20):
        instance = tiny(number)
        result = solve(instance, formulation=formulation, prove=60.0)
        if result.termination.reason != "optimal":
            assert optimum(instance) is None
            continue
        require_proven(instance, result, 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("jobs", "seed"), [(2, 4), (3, 1)])
def test_few_jobs_under_a_tight_budget_are_solved(jobs: int, seed: int) -> None:
    """Their LP relaxation is far away: with its columns alone gaps of 15 % and 36 % remained."""
    instance = generate("shifting", jobs=jobs, seed=seed)
    result = solve(instance, prove=120.0)
    assert result.termination.reason == "optimal"
    require_proven(instance, result, 1e-4)
