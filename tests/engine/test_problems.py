"""`solve` on the problems besides `sizing`: answers are checked and lie on their side of the bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from wattsched import solve
from wattsched.instances.generators import generate
from wattsched.instances.io import write_json
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem as find_problem
from wattsched.results.result import Result
from wattsched.solvers.solution import Solution, Termination
from wattsched.solving import engine, steps

SIZES: dict[str, dict[str, Any]] = {
    "shifting": {"jobs": 3, "gpus": 8, "slots": 8, "seed": 2},
    "sharing": {"jobs": 6, "seed": 2},
    "placement": {"jobs": 6, "seed": 2},
}
WORK = {"placement": "tasks"}
"""Field of what is decided about, where it is not ``jobs``."""


@pytest.fixture(scope="module", params=SIZES)
def instance(request: pytest.FixtureRequest) -> Any:
    return generate(request.param, **SIZES[request.param])


def hold(instance: Any, result: Result) -> None:
    """The result is valid to the independent checker, and its bound is on the right side."""
    assert result.solved, result.termination
    assert result.objective is not None
    sign = 1.0 if result.sense == "min" else -1.0
    if result.bound is not None:
        assert sign * result.bound <= sign * result.objective + 1e-6 * abs(result.objective)
    verdict = verdict_on(instance, result.model_dump(mode="json"))
    assert verdict.faults == []


def test_a_moment_is_enough_for_a_decision(instance: Any) -> None:
    result = solve(instance, time_limit=0.05)
    hold(instance, result)


def test_files_names_and_earlier_answers(instance: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "instance.json", instance)
    first = solve(tmp_path / "instance.json", solver="highs", time_limit=20)
    hold(instance, first)
    again = solve(instance, solver="highs", time_limit=20, initial_solution=first)
    sign = 1.0 if first.sense == "min" else -1.0
    assert first.objective is not None
    assert again.objective is not None
    assert sign * again.objective <= sign * first.objective + 1e-9 * abs(first.objective)
    for wrong in ({"solver": "nobody"}, {"formulation": "nothing"}, {"objective": "fame"}):
        with pytest.raises(ValueError, match="unknown"):
            solve(instance, **wrong)


def test_an_earlier_decision_that_is_no_longer_possible_is_no_error(
    instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = solve(instance, solver="highs", time_limit=20)
    work = WORK.get(instance.problem, "jobs")
    fewer = instance.model_copy(update={work: getattr(instance, work)[1:]})
    again = solve(fewer, solver="highs", time_limit=20, initial_solution=first)
    (fault,) = again.faults
    assert fault.startswith("the decision of 'initial_solution' failed its check: ")
    hold(fewer, again)

    def nothing(*_: object) -> Solution:
        return Solution(Termination("no_solution", "time"))

    monkeypatch.setattr(steps, "_solved", nothing)
    problem = find_problem(instance.problem)

    def nothing_known(*asked: Any) -> Any:
        return replace(problem.formulations[problem.default](*asked), start=None)

    without_rules = replace(
        problem,
        heuristics=dict.fromkeys(problem.heuristics, lambda *_: None),
        formulations={problem.default: nothing_known},
        branch=None,
        all_decisions=lambda data: None,
    )
    monkeypatch.setattr(engine, "find_problem", lambda name: without_rules)
    ended = solve(fewer, initial_solution=first).termination
    assert (ended.reason, ended.limit) == ("no_solution", "time")


def test_an_earlier_answer_of_another_problem_is_refused(instance: Any) -> None:
    other = generate("sharing" if instance.problem == "shifting" else "shifting", jobs=3)
    with pytest.raises(ValueError, match=f"initial_solution is an answer to '{other.problem}'"):
        solve(instance, initial_solution=solve(other, time_limit=5))


def test_an_altered_answer_is_caught(instance: Any) -> None:
    document = solve(instance, solver="highs", time_limit=20).model_dump(mode="json")
    for name, value in (("objective", 0.5), ("bound", 1e9), ("gap", 0.5), ("checked", False)):
        altered = {**document, name: value}
        assert verdict_on(instance, altered).faults, name


@pytest.mark.parametrize("formulation", ["patterns", "matching"])
def test_a_round_of_nothing(formulation: str) -> None:
    instance = generate("sharing", **SIZES["sharing"], jobs_per_set=2)
    nothing = instance.model_copy(update={"jobs": [], "classes": [], "sets": []})
    hold(nothing, solve(nothing, formulation=formulation))


def test_a_program_of_some_columns_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = find_problem("sharing")

    def some_columns(*asked: Any) -> Any:
        whole = problem.formulations["patterns"](*asked)
        nothing = replace(whole.program, upper=0 * whole.program.upper)
        return replace(whole, program=nothing, outside=0.0)

    partial = replace(problem, formulations={"patterns": some_columns}, heuristics={"eaco": lambda *_: None})
    monkeypatch.setattr(engine, "find_problem", lambda name: partial)
    termination = solve(generate("sharing", **SIZES["sharing"]), solver="highs").termination
    assert (termination.reason, termination.detail) == ("no_solution", "no decision was found")


def test_some_columns_of_another_formulation_prove_nothing_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is short is looked up in the default formulation's program, which may hold some columns only."""
    problem = find_problem("sizing")

    def some_columns(*asked: Any) -> Any:
        whole = problem.formulations["mckp"](*asked)
        program = whole.program
        use = np.asarray(program.matrix.sum(axis=0)).ravel()
        most = np.repeat(np.maximum.reduceat(use, program.group_start[:-1]), np.diff(program.group_start))
        dearest = replace(program, upper=np.where(use < most, 0.0, program.upper))
        return replace(whole, program=dearest, outside=0.0)

    formulations = {"mckp": some_columns, "assignment": problem.formulations["assignment"]}
    partial = replace(problem, formulations=formulations)
    monkeypatch.setattr(engine, "find_problem", lambda name: partial)
    monkeypatch.setattr(steps, "_solved", lambda *_: Solution(Termination("no_solution", "time")))
    instance = generate("uniform", jobs=6, seed=2)
    result = solve(instance, formulation="assignment", solver="highs")
    assert (result.termination.reason, result.termination.limit) == ("no_solution", "time")


def test_schedules_bound_and_decide_before_the_solver_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call may be given up while the solver runs: what column generation knows must be there by then."""
    known = []

    def nothing(call: Any, *_: object) -> Solution:
        known.append(call.certificate)
        return Solution(Termination("no_solution", "time"))

    monkeypatch.setattr(steps, "_solved", nothing)
    instance = generate("shifting", jobs=16, slots=12, seed=1, carbon_fraction=None)
    result = solve(instance, time_limit=60)
    assert known[0] is not None
    assert known[0].bound == result.bound
    assert result.decided_by == "schedules"
    assert result.gap is not None
    assert result.gap < 0.1
