"""`solve` and `check` of problems with decisions of their own: what is refused, and what is found out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.strategies.forgeries import restated
from wattsched.cli.failures import ON_TRUST

Run = Callable[..., Result]


@pytest.fixture
def solved(run: Run, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """Path of a sharing instance, and its result."""
    instance, result = tmp_path / "round.json", tmp_path / "result.json"
    assert run("generate", "sharing", "--jobs", 6, "-o", instance).exit_code == 0
    assert run("solve", instance, "-o", result).exit_code == 0
    assert run("check", instance, result).exit_code == 0
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
def test_check_tells_what_was_changed(
    run: Run,
    solved: tuple[Path, dict[str, Any]],
    write: Callable[..., Path],
    changes: dict[str, Any],
    code: int,
    told: str,
) -> None:
    instance, result = solved
    answer = run("check", instance, write(result | changes, "changed.json"))
    assert answer.exit_code == code, answer.output
    assert told in answer.output


def test_check_says_what_is_taken_on_trust(
    run: Run, solved: tuple[Path, dict[str, Any]], write: Callable[..., Path]
) -> None:
    instance, result = solved
    unproven = restated(result, certificate=None, prices={})
    bare = run("check", instance, write(unproven, "bare.json"))
    assert bare.exit_code == ON_TRUST, bare.output
    assert "no certificate proves it: it is taken on trust, and so is 'optimal'" in bare.output
    low = result | {"bound": result["objective"] / 2, "gap": 0.5}
    assert "trust" not in run("check", instance, write(low, "low.json")).output


def test_check_does_not_pass_a_bound_without_a_decision_over(
    run: Run, solved: tuple[Path, dict[str, Any]], write: Callable[..., Path]
) -> None:
    instance, result = solved
    nothing = dict.fromkeys(("decision", "objective", "gap", "proven_gap", "certificate"))
    nothing |= {"totals": {}, "checked": False, "prices": {}, "claimed": True}
    ended = {"termination": {"reason": "no_solution", "limit": None, "detail": ""}}
    answer = run("check", instance, write(result | nothing | ended | {"bound": 1e9}, "nothing.json"))
    assert answer.exit_code == ON_TRUST, answer.output
    assert "and nothing here proves that" in answer.output
    assert "claimed, no certificate proves it: it is taken on trust" in answer.output


def test_check_takes_a_bare_decision(
    run: Run, solved: tuple[Path, dict[str, Any]], write: Callable[..., Path]
) -> None:
    instance, result = solved
    answer = run("check", instance, write(result["decision"], "decision.json"))
    assert answer.exit_code == 0, answer.output
    assert "bound" not in answer.output
    sets = [{"unit_type": s["unit_type"], "jobs": s["jobs"] * 2} for s in result["decision"]["sets"]]
    twice = run("check", instance, write(result["decision"] | {"sets": sets}, "twice.json"))
    assert twice.exit_code == 1
    assert "is named 2 times among those that run" in twice.output
    cut = run("check", instance, write({"waiting": []}, "cut.json"))
    assert cut.exit_code == 2
    assert "cut.json: sets: is missing" in cut.output


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
def test_what_cannot_be_used_is_refused(
    run: Run, solved: tuple[Path, dict[str, Any]], options: tuple[str, str], told: str
) -> None:
    answer = run("solve", solved[0], *options)
    assert answer.exit_code == 2
    assert told in answer.output


def test_an_earlier_decision_that_cannot_be_used_is_told(
    run: Run, solved: tuple[Path, dict[str, Any]], write: Callable[..., Path]
) -> None:
    instance, result = solved
    stale = result | {"decision": {"sets": [], "waiting": []}}
    answer = run("solve", instance, "--warm", write(stale, "stale.json"))
    assert answer.exit_code == 0, answer.output
    assert (
        "not used: the decision of 'initial_solution' failed its check: job 'job0' neither runs nor waits"
        in answer.output
    )


def test_an_answer_to_another_problem_is_refused(
    run: Run, solved: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    horizon, answer = tmp_path / "horizon.json", tmp_path / "answer.json"
    assert run("generate", "shifting", "--jobs", 2, "-o", horizon).exit_code == 0
    assert run("solve", horizon, "--solver", "greedy", "-o", answer).exit_code == 0
    warm = run("solve", solved[0], "--warm", answer)
    assert warm.exit_code == 2
    assert "is of the problem 'shifting', the instance of 'sharing'" in warm.output
    checked = run("check", solved[0], answer)
    assert checked.exit_code == 1
    assert "problem: the result is of 'shifting'" in checked.output


def test_every_command_takes_every_problem(
    run: Run, solved: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    exported = run("export", solved[0], "-o", tmp_path / "m.mps")
    assert exported.exit_code == 0, exported.output
    compared = run("compare", solved[0], "--solvers", "auto,highs,eaco")
    assert compared.exit_code == 0, compared.output
    assert "All answers agree" in compared.output
    replay = run("replay", "no.csv", "--cluster", solved[0])
    assert replay.exit_code == 2
    assert "an instance of 'sharing' has no cluster" in replay.output
    assert len(replay.output.splitlines()) == 1


@pytest.mark.parametrize(
    "fields", [{"deadline_s": 1e-3, "arrival_s": 0.0}, {"must_finish": True, "remaining_work": 1e7}]
)
def test_a_job_that_cannot_end_in_time_leaves_no_decision(
    run: Run, write: Callable[..., Path], fields: dict[str, Any]
) -> None:
    instance = json.loads(run("generate", "shifting", "--jobs", 3, "--slots", 12).stdout)
    for job in instance["jobs"]:
        job |= fields
    path = write(instance)
    result = run("solve", path, "--time-limit", 20, "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout)["termination"]["reason"] == "infeasible"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--carbon", ""), "--carbon: the file name is empty"),
        (("--zone", "DE"), "--zone: 'DE' is a column of a file of carbon intensities"),
        (("--units", "rows"), "no such option"),
    ],
)
def test_options_of_shifting_that_mean_nothing_are_refused(
    run: Run, options: tuple[str, str], told: str
) -> None:
    result = run("generate", "shifting", "--jobs", 2, *options)
    assert result.exit_code == 2
    assert told in result.stderr


def test_the_help_of_solve_lists_the_names_of_every_problem(run: Run) -> None:
    told = run("solve", "--help").output
    assert all(name in told for name in ("time-indexed", "carbon-blind", "matching", "eaco", "throughput"))
