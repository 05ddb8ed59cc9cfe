"""The published rules give valid decisions, and do what their publications say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.brute_force.sharing import optimum
from tests.strategies.effort import examples
from tests.strategies.sharing import sharing_instances
from wattsched.formulations.sharing.data import patterns_of
from wattsched.formulations.timer import Timer
from wattsched.instances.sharing.instance import SharingInstance
from wattsched.results.problems import problem
from wattsched.verification.sharing.checker import check

PROBLEM = problem("sharing")


@settings(max_examples=examples(150))
@given(sharing_instances(), st.sampled_from(list(PROBLEM.heuristics)))
def test_decisions_are_valid_and_no_better_than_the_best(instance: SharingInstance, rule: str) -> None:
    decide = PROBLEM.heuristics[rule]
    decision = decide(patterns_of(instance), instance.objective, Timer())
    assert decision == decide(patterns_of(instance), instance.objective, Timer())
    if decision is None:
        return
    report = check(instance, decision)
    assert report.faults == []
    best = optimum(instance, instance.objective)
    assert best is not None
    assert report.objective is not None
    margin = 1e-7 * max(1.0, abs(best))
    if PROBLEM.objectives[instance.objective] == "max":
        assert report.objective <= best + margin
    else:
        assert report.objective >= best - margin


def instance_of(
    count: int, classes: dict[str, float], jobs: str, sets: list, **fields: object
) -> SharingInstance:
    """Instance with one unit type; a letter of `jobs` is a job of that class."""
    return SharingInstance.model_validate(
        {
            "problem": "sharing",
            "unit_types": [{"name": "u", "count": count, "idle_power_w": 10.0, "full_power_w": 100.0}],
            "classes": [
                {"name": c, "alone": {"u": {"epoch_s": 10.0, "utilisation_pct": load}}}
                for c, load in classes.items()
            ],
            "sets": [{"unit_type": "u", "classes": list(m), "slowdown": [s] * len(m)} for m, s in sets],
            "jobs": [{"name": f"{c}{j}", "job_class": c} for j, c in enumerate(jobs)],
            **fields,
        }
    )


def formed(rule: str, instance: SharingInstance) -> tuple[list[str], list[str]]:
    decision = PROBLEM.heuristics[rule](patterns_of(instance), "eaco", Timer())
    return ["+".join(s.jobs) for s in decision.sets], decision.waiting


def test_eaco_fills_the_fullest_set_first() -> None:
    instance = instance_of(3, {"a": 60.0, "b": 30.0, "c": 20.0}, "abcc", [])
    assert formed("eaco", instance) == (["a0+b1+c2+c3"], [])
    # Within 85 %, b no longer fits with a, and c goes to the fuller of the two.
    tight = instance_of(3, {"a": 60.0, "b": 30.0, "c": 20.0}, "abcc", [], limits={"utilisation_pct": 85.0})
    assert formed("eaco", tight) == (["a0+c2", "b1+c3"], [])


@pytest.mark.parametrize(("slowdown", "packed"), [(1.3, True), (1.4, False)])
def test_fifo_packed_needs_one_and_a_half(slowdown: float, packed: bool) -> None:
    instance = instance_of(2, {"a": 10.0}, "aaaaa", [("aa", slowdown)], unmeasured="refuse")
    assert formed("fifo", instance) == (["a0", "a1"], ["a2", "a3", "a4"])
    expected = (["a0+a2", "a1+a3"], ["a4"]) if packed else (["a0", "a1"], ["a2", "a3", "a4"])
    assert formed("fifo-packed", instance) == expected


@pytest.mark.parametrize(("slowdown", "running"), [(1.9, 4), (2.1, 2)])
def test_gandiva_pairs_when_units_are_short_and_it_helps(slowdown: float, running: int) -> None:
    instance = instance_of(2, {"a": 10.0}, "aaaa", [("aa", slowdown)], unmeasured="refuse")
    _, waiting = formed("gandiva", instance)
    assert len(waiting) == 4 - running
    crowded = instance_of(3, {"a": 10.0}, "aaaa", [("aa", slowdown)], unmeasured="refuse")
    assert sum("+" in name for name in formed("gandiva", crowded)[0]) == (2 if running == 4 else 0)
    enough = instance_of(4, {"a": 10.0}, "aaaa", [("aa", slowdown)], unmeasured="refuse")
    assert formed("gandiva", enough) == (["a0", "a1", "a2", "a3"], [])


def test_a_round_without_jobs_has_its_decision() -> None:
    instance = instance_of(2, {"a": 10.0}, "", [], limits={"jobs_per_set": 2})
    for rule in PROBLEM.heuristics.values():
        decision = rule(patterns_of(instance), "eaco", Timer())
        assert check(instance, decision).objective == 0
    for build in PROBLEM.formulations.values():
        plan = build(patterns_of(instance), "eaco", Timer())
        assert check(instance, plan.decode(np.zeros(plan.program.n_columns), {})).faults == []


def test_rows_have_names() -> None:
    instance = instance_of(2, {"a": 10.0, "b": 20.0}, "abb", [], limits={"jobs_per_set": 2})
    plan = PROBLEM.formulations["patterns"](patterns_of(instance), "eaco", Timer())
    names = plan.program.row_names()
    assert len(set(names)) == len(names) == plan.program.n_rows
    assert {"job:a0", "job:b1", "slot:u:a+b:b", "slot:u:b+b:b", "gpus:u"} <= set(names)
