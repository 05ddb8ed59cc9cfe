"""Prices that make no sense are refused; the bound is the exact one where enough is followed."""

from __future__ import annotations

import math
import random
from itertools import chain, pairwise, repeat

import pytest

from tests.brute_force.shifting import optimum
from tests.strategies.shifting import tiny
from wattsched.instances.generators.shifting import shifting_horizon
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.shifting import bound, least_cost


def proven(instance: ShiftingInstance, prices: dict[str, float]) -> float:
    """Bound that prices prove; infinite where a job has no schedule."""
    proof = bound.prove(instance, prices)
    assert proof.bound is not None or "no schedule" in proof.faults[0]
    return math.inf if proof.bound is None else proof.bound


def test_a_job_that_no_schedule_ends_in_time_proves_that_there_is_no_decision() -> None:
    instance = shifting_horizon(jobs=3, slots=4)
    late = instance.jobs[1].model_copy(update={"deadline_s": 1e-3})
    jobs = [instance.jobs[0], late, instance.jobs[2]]
    assert bound.prove(instance.model_copy(update={"jobs": jobs}), {}).excess == math.inf


def test_bounds_hold_where_little_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few levels and few schedules prove less than the exact least costs, and more of them reach these."""
    instance = shifting_horizon(jobs=8, slots=12, seed=2)
    prices = {f"gpus:A100@{slot}": -50.0 for slot in range(6)} | {"carbon_g": -0.5}
    bounds = []
    for levels, followed in ((4, 1), (16, 4), (64, 100), (1024, 100_000)):
        monkeypatch.setattr(bound, "LEVELS", (levels, levels))
        monkeypatch.setattr(least_cost, "FOLLOWED", followed)
        bounds.append(proven(instance, prices))
    assert bounds[0] < bounds[1] < bounds[2]
    assert bounds[2] == pytest.approx(bounds[3], rel=1e-9)


def test_groups_of_gpus_prove_what_gpus_alone_do_not() -> None:
    """Of two jobs that need two of three GPUs for a slot, one waits: 100 and 200 s instead of 100 each."""
    table = {"gpus": [2], "pool": ["a"], "power_w": [0.0], "rate": [1.0]}
    job = {"options": table, "remaining_work": 100.0}
    pools = {"a": {"gpus": 3, "idle_power_w": 0.0}}
    document = {"problem": "shifting", "slots": 2, "slot_s": 100.0, "pools": pools}
    instance = ShiftingInstance.model_validate(
        document | {"jobs": [job | {"name": name} for name in ("one", "other")]}
    )
    assert optimum(instance) == pytest.approx(150.0)
    assert proven(instance, {"groups:a:2@0": -50.0}) == pytest.approx(150.0)
    most = max(proven(instance, {"gpus:a@0": -price}) for price in range(60))
    assert most == pytest.approx(125.0)
    # Three GPUs are one group of three, or none of four; no job holds groups of one.
    for row in ("groups:a:3@0", "groups:a:4@0", "groups:a:1@0", "groups:a:2@2", "groups:b:2@0"):
        assert "no row of that name" in bound.prove(instance, {row: -1.0}).faults[0]
    assert "positive" in bound.prove(instance, {"groups:a:2@0": 1.0}).faults[0]


def test_a_bound_is_there_when_the_time_is_over() -> None:
    """It is no higher than the proof that had its time, of all jobs and of some."""
    for number in range(40):
        instance, rng = tiny(number), random.Random(number)
        prover = bound.Prover(instance)
        prices = {row: -(10 ** rng.uniform(-3, 3)) for row in prover.limits if rng.random() < 0.5}
        exact = prover(prices).bound
        overs = repeat(True), chain([False], repeat(True))
        some = [prover.in_time(prices, over.__next__).bound for over in overs]
        for less, more in pairwise([*some, exact]):
            assert less <= more + 1e-9 * abs(more), number
        assert prover.in_time(prices, lambda: False).bound == exact


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(0, 200, 40))
def test_high_prices_lose_the_objective_but_prove_a_bound(seed: int) -> None:
    for number in range(seed, seed + 40):
        instance, rng = tiny(number), random.Random(number)
        rows = [*bound.Prover(instance).limits]
        best = optimum(instance)
        for _ in range(10):
            prices = {row: -(10 ** rng.uniform(0, 18)) for row in rows if rng.random() < 0.5}
            found = proven(instance, prices)
            assert not math.isnan(found)
            assert best is None or found <= best + 1e-9 * abs(best), number
