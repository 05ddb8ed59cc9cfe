"""`solve` and `check` of problems with decisions of their own: what is refused, and what is found out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.strategies.forgeries import restated
from wattsched.cli.failures import ON_TRUST

from .conftest import Run, refused


@pytest.fixture
def solved(run: Run, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Path of a sharing instance, and its result."""
    instance, result = tmp_path / "round.json", tmp_path / "result.json"
    run("generate", "sharing", "--jobs", 6, "-o", instance, code=0)
    run("solve", instance, "-o", result, code=0)
    run("check", instance, result, code=0)
    return instance, json.loads(result.read_text())


@pytest.mark.parametrize(
    ("changes", "code", "told"),
    [
        ({"sense": "max"}, 1, "sense: 'eaco' is a min objective"),
        ({"sense": 3}, 2, "changed.json: sense: must be 'min' or 'max', got 3"),
        ({"objective_name": "foo"}, 1, "objective_name: 'foo'"),
        ({"prices": {"job:job0": 1e6}}, 1, "prices: 'job:job0'"),
        ({"totals": []}, 2, "changed.json: totals: must be an object"),
        ({"termination": "x", "decision": None}, 2, "changed.json: termination: must be an object, got 'x'"),
        ({"decision": {"sets": []}}, 2, "changed.json: decision: waiting: is missing"),
        ({"decision": "x"}, 2, "changed.json: decision: must be an object, got 'x'"),
        ({"format": "other"}, 2, "format: expected 'wattsched-result/2', found 'other'"),
        ({"extra": 1}, 2, "extra: is not a known field"),
    ],
)
def test_check_tells_what_was_changed(run, solved, write, changes, code, told):
    instance, result = solved
    assert told in run("check", instance, write(result | changes, "changed.json"), code=code).output


def test_check_says_what_is_taken_on_trust(run, solved, write):
    instance, result = solved
    unproven = restated(result, certificate=None, prices={})
    bare = run("check", instance, write(unproven, "bare.json"), code=ON_TRUST)
    assert "no certificate proves it: it is taken on trust, and so is 'optimal'" in bare.output
    low = result | {"bound": result["objective"] / 2, "gap": 0.5}
    assert "trust" not in run("check", instance, write(low, "low.json")).output


def test_check_does_not_pass_a_bound_without_a_decision_over(run, solved, write):
    instance, result = solved
    nothing = dict.fromkeys(("decision", "objective", "gap", "proven_gap", "certificate"))
    nothing |= {"totals": {}, "checked": False, "prices": {}, "claimed": True}
    ended = {"termination": {"reason": "no_solution", "limit": None, "detail": ""}}
    answer = run(
        "check", instance, write(result | nothing | ended | {"bound": 1e9}, "nothing.json"), code=ON_TRUST
    )
    assert "and nothing here proves that" in answer.output
    assert "claimed, no certificate proves it: it is taken on trust" in answer.output


def test_check_takes_a_bare_decision(run, solved, write):
    instance, result = solved
    assert "bound" not in run("check", instance, write(result["decision"], "decision.json"), code=0).output
    sets = [{"unit_type": s["unit_type"], "jobs": s["jobs"] * 2} for s in result["decision"]["sets"]]
    twice = run("check", instance, write(result["decision"] | {"sets": sets}, "twice.json"), code=1)
    assert "is named 2 times among those that run" in twice.output
    refused(run("check", instance, write({"waiting": []}, "cut.json")), "cut.json: sets: is missing")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--formulation", "matching"),
            "--formulation matching: matching takes at most 2 jobs per set, not 4",
        ),
        (
            ("--solver", "pyomo:foo"),
            "--solver pyomo:foo --formulation patterns: solver 'foo' is not installed",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(run, solved, options, told):
    refused(run("solve", solved[0], *options), told)


def test_an_earlier_decision_that_cannot_be_used_is_told(run, solved, write):
    instance, result = solved
    stale = result | {"decision": {"sets": [], "waiting": []}}
    answer = run("solve", instance, "--warm", write(stale, "stale.json"), code=0)
    assert (
        "not used: the decision of 'initial_solution' failed its check: job 'job0' neither runs nor waits"
        in answer.output
    )


def test_an_answer_to_another_problem_is_refused(run, solved, tmp_path):
    horizon, answer = tmp_path / "horizon.json", tmp_path / "answer.json"
    run("generate", "shifting", "--jobs", 2, "-o", horizon, code=0)
    run("solve", horizon, "--solver", "greedy", "-o", answer, code=0)
    refused(
        run("solve", solved[0], "--warm", answer), "is of the problem 'shifting', the instance of 'sharing'"
    )
    assert "problem: the result is of 'shifting'" in run("check", solved[0], answer, code=1).output


def test_every_command_takes_every_problem(run, solved, tmp_path):
    run("export", solved[0], "-o", tmp_path / "m.mps", code=0)
    assert "All answers agree" in run("compare", solved[0], "--solvers", "auto,highs,eaco", code=0).output
    replay = run("replay", "no.csv", "--cluster", solved[0], code=2)
    assert "an instance of 'sharing' has no cluster" in replay.output
    assert len(replay.output.splitlines()) == 1


@pytest.mark.parametrize(
    "fields", [{"deadline_s": 1e-3, "arrival_s": 0.0}, {"must_finish": True, "remaining_work": 1e7}]
)
def test_a_job_that_cannot_end_in_time_leaves_no_decision(run, write, fields):
    instance = json.loads(run("generate", "shifting", "--jobs", 3, "--slots", 12).stdout)
    for job in instance["jobs"]:
        job |= fields
    path = write(instance)
    result = run("solve", path, "--time-limit", 20, "--json", code=3)
    assert json.loads(result.stdout)["termination"]["reason"] == "infeasible"


def test_the_help_of_solve_lists_the_names_of_every_problem(run: Run) -> None:
    told = run("solve", "--help").output
    assert all(name in told for name in ("time-indexed", "carbon-blind", "matching", "eaco", "throughput"))
