"""The checker finds what is wrong, and its totals are those of brute force."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tests.brute_force import shifting as brute_force
from tests.strategies.shifting import tiny
from wattsched.instances.shifting.decision import Run, Schedule, ShiftingDecision
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance
from wattsched.verification.shifting.checker import check

INSTANCE = ShiftingInstance.model_validate(
    {
        "problem": "shifting",
        "slots": 4,
        "slot_s": 100.0,
        "carbon_g_per_kwh": [3.6e6, 0.0, 7.2e6, 3.6e6],
        "pools": {"a": {"gpus": 2, "idle_power_w": 1.0}},
        "tables": {"t": {"gpus": [1, 2], "pool": ["a", "a"], "power_w": [10.0, 20.0], "rate": [1.0, 2.0]}},
        "jobs": [{"name": "x", "options": "t", "remaining_work": 250.0, "restart_s": 20.0}],
    }
)


def run(first: int, slots: int, gpus: int = 2, pool: str = "a") -> Run:
    return Run(first_slot=first, slots=slots, gpus=gpus, pool=pool)


def decided(*runs: Run) -> ShiftingDecision:
    return ShiftingDecision(jobs=[Schedule(job="x", runs=list(runs))], waiting=[])


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        (decided(run(0, 5)), "reaches slot 4"),
        (decided(run(0, 1), run(0, 1)), "overlaps"),
        (decided(run(0, 4)), "holds GPUs in slot 2, but it ends at 125"),
        (decided(run(0, 1, gpus=3)), "no row of its table"),
        (ShiftingDecision(jobs=[], waiting=[]), "job 'x' neither runs nor waits"),
        (ShiftingDecision(jobs=[], waiting=["x", "x"]), "job 'x' is named 2 times among those that wait"),
        (
            ShiftingDecision(jobs=decided(run(0, 2)).jobs * 2, waiting=[]),
            "job 'x' is named 2 times among those that run",
        ),
        (
            ShiftingDecision(jobs=decided(run(0, 2)).jobs, waiting=["x"]),
            "job 'x' runs and waits",
        ),
        (ShiftingDecision(jobs=[], waiting=["x", "y"]), "job 'y' is not in the instance"),
    ],
)
def test_faults(decision: ShiftingDecision, words: str) -> None:
    assert any(words in fault for fault in check(INSTANCE, decision).faults)


def test_capacity_budgets_deadlines_and_arrivals() -> None:
    twice = INSTANCE.model_copy(
        update={"jobs": [INSTANCE.jobs[0], INSTANCE.jobs[0].model_copy(update={"name": "y"})]}
    )
    both = ShiftingDecision(jobs=[Schedule(job=j, runs=[run(0, 2)]) for j in ("x", "y")], waiting=[])
    assert any("slot 0: 4 GPUs of pool 'a' are used, it has 2" in f for f in check(twice, both).faults)
    tight = INSTANCE.model_copy(update={"budgets": HorizonBudgets(energy_j=100.0)})
    assert any("energy_j" in f for f in check(tight, decided(run(0, 2))).faults)
    for update, words in (
        ({"deadline_s": 120.0}, "its deadline is 120"),
        ({"arrival_s": 50.0}, "begins before the job arrives"),
        ({"must_finish": True, "remaining_work": 2000.0}, "does not end within the horizon"),
    ):
        job = INSTANCE.jobs[0].model_copy(update=update)
        changed = INSTANCE.model_copy(update={"jobs": [job]})
        assert any(words in f for f in check(changed, decided(run(0, 2))).faults), words


def test_a_restart_takes_no_slot_that_is_as_short() -> None:
    """Of 20 s each: in a slot of 20 s a job can run on or pause, and start for the first time, only."""
    unequal = INSTANCE.model_copy(update={"slot_s": [50.0, 20.0, 20.5, 100.0]})
    for decision, slot in (
        (decided(run(0, 4, gpus=1)), None),
        (decided(run(1, 2, gpus=1)), None),
        (decided(run(0, 1, gpus=1), run(2, 1, gpus=1)), None),
        (decided(run(0, 1, gpus=1), run(1, 1)), 1),
        (decided(run(0, 1, gpus=1), run(1, 1, gpus=1), run(2, 1)), None),
    ):
        told = [] if slot is None else ["job 'x' restarts in slot 1, whose 20 s are too short for it"]
        assert check(unequal, decision).faults == told
    report = check(unequal, decided(run(0, 1, gpus=1), run(2, 1, gpus=1)))
    # 50 s of work, a pause, a restart and half a second; the rest after the horizon, on two GPUs.
    assert report.objective == pytest.approx(190.5 + (250 - 50.5) / 2)
    mean = (50 * 3.6e6 + 20.5 * 7.2e6 + 100 * 3.6e6) / 190.5
    grams = 50 * 11 + 20.5 * 2 * 11 + 100 * 2 + (250 - 50.5) / 2 * 20 * mean / 3.6e6
    assert report.totals["carbon_g"] == pytest.approx(grams)


def test_best_of_all_decisions_is_that_of_brute_force() -> None:
    for seed in range(40):
        instance = tiny(seed)
        if len(instance.jobs) > 2 or instance.slots > 3:
            continue
        choices = [
            list(product([None, *range(len(instance.table_of(job).gpus))], repeat=instance.slots))
            for job in instance.jobs
        ]
        sample = list(product(*choices))
        if len(sample) > 3000:
            sample = random.Random(seed).sample(sample, 1500)
        best = brute_force.optimum(instance)
        for one in sample:
            report = check(instance, brute_force.decision_of(instance, one))
            if not report.faults:
                assert best is not None
                assert report.objective is not None
                assert report.objective >= best - 2e-6 * max(1.0, abs(best))
