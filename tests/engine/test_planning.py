"""`plan` on problems with decisions of their own: answers are checked and lie on their side of the bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

import wattsched
from wattsched import planning
from wattsched.formulations.problems import problem as find_problem
from wattsched.instances.generators import generate
from wattsched.instances.io import InputError, write_json
from wattsched.plan_result import PlanResult
from wattsched.planning import plan
from wattsched.solvers.solution import Solution, Termination
from wattsched.verification.plan_claims import check_plan_result

SIZES: dict[str, dict[str, Any]] = {
    "shifting": {"jobs": 3, "gpus": 8, "slots": 8, "seed": 2},
    "sharing": {"jobs": 6, "seed": 2},
}


@pytest.fixture(scope="module", params=SIZES)
def instance(request: pytest.FixtureRequest) -> Any:
    return generate(request.param, **SIZES[request.param])


def hold(instance: Any, result: PlanResult) -> None:
    """The result is valid to the independent checker, and its bound is on the right side."""
    assert result.solved, result.termination
    assert result.objective is not None
    sign = 1.0 if result.sense == "min" else -1.0
    if result.bound is not None:
        assert sign * result.bound <= sign * result.objective + 1e-6 * abs(result.objective)
    verdict = check_plan_result(instance, result.model_dump(mode="json"))
    assert verdict.faults == []


@pytest.mark.parametrize("solver", ["auto", "highs"])
def test_answers_hold(instance: Any, solver: str) -> None:
    for formulation in find_problem(instance.problem).formulations:
        if formulation == "matching":
            continue  # pairs only
        hold(instance, plan(instance, formulation=formulation, solver=solver, time_limit=20))


def test_no_rule_beats_the_bound(instance: Any) -> None:
    best = plan(instance, solver="highs", time_limit=20)
    sign = 1.0 if best.sense == "min" else -1.0
    for rule in find_problem(instance.problem).rules:
        result = plan(instance, solver=rule)
        if result.decision is None:
            continue
        hold(instance, result)
        assert best.bound is not None
        assert result.objective is not None
        assert sign * result.objective >= sign * best.bound - 1e-6 * abs(best.bound)


def test_a_moment_is_enough_for_a_decision(instance: Any) -> None:
    result = plan(instance, time_limit=0.05)
    hold(instance, result)


def test_files_names_and_earlier_answers(instance: Any, tmp_path: Path) -> None:
    write_json(tmp_path / "instance.json", instance)
    first = wattsched.plan(tmp_path / "instance.json", solver="highs", time_limit=20)
    hold(instance, first)
    again = plan(instance, solver="highs", time_limit=20, warm=first)
    sign = 1.0 if first.sense == "min" else -1.0
    assert first.objective is not None
    assert again.objective is not None
    assert sign * again.objective <= sign * first.objective + 1e-9 * abs(first.objective)
    for wrong in ({"solver": "nobody"}, {"formulation": "nothing"}, {"objective": "fame"}):
        with pytest.raises(ValueError, match="unknown"):
            plan(instance, **wrong)


def test_an_answer_that_was_read_back_is_an_earlier_answer(instance: Any) -> None:
    first = plan(instance, solver="highs", time_limit=20)
    read = PlanResult.model_validate_json(first.model_dump_json())
    again = plan(instance, solver=next(iter(find_problem(instance.problem).rules)), warm=read)
    assert again.faults == []
    assert again.objective == pytest.approx(first.objective)


def test_an_earlier_decision_that_is_no_longer_possible_is_no_error(
    instance: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = plan(instance, solver="highs", time_limit=20)
    fewer = instance.model_copy(update={"jobs": instance.jobs[1:]})
    again = plan(fewer, solver="highs", time_limit=20, warm=first)
    assert again.faults == [f"the decision of 'warm' failed its check: {again.faults[0].split(': ', 1)[1]}"]
    hold(fewer, again)

    def nothing(*_: object) -> Solution:
        return Solution(Termination("no_solution", "time"))

    monkeypatch.setattr(planning, "_solve", nothing)
    problem = find_problem(instance.problem)
    without_rules = replace(problem, rules=dict.fromkeys(problem.rules, lambda *_: None))
    monkeypatch.setattr(planning, "find_problem", lambda name: without_rules)
    ended = plan(fewer, warm=first).termination
    assert (ended.reason, ended.limit) == ("no_solution", "time")


def test_what_is_no_argument_of_a_plan_is_named(instance: Any) -> None:
    other = generate("sharing" if instance.problem == "shifting" else "shifting", jobs=3)
    with pytest.raises(ValueError, match=f"warm is an answer to '{other.problem}'"):
        plan(instance, warm=plan(other, time_limit=5))
    with pytest.raises(TypeError, match="warm must be a PlanResult, got dict"):
        plan(instance, warm={})  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match="solver must be a name, got NoneType"):
        plan(instance, solver=None)  # type: ignore[arg-type]  # on purpose
    with pytest.raises(TypeError, match="instance must be an instance of shifting or sharing, or a path"):
        plan(instance.model_dump())
    with pytest.raises(ValueError, match=r"the problem 'sizing' has an engine of its own: wattsched\.solve"):
        plan(generate("uniform", jobs=3))


def test_an_instance_made_in_python_is_looked_over_as_a_file_is() -> None:
    instance = generate("sharing", **SIZES["sharing"])
    tight = instance.limits.model_copy(update={"memory_pct": 0.1})
    with pytest.raises(InputError, match=r"is above limits\.utilisation_pct or limits\.memory_pct"):
        plan(instance.model_copy(update={"limits": tight}))


def test_an_altered_answer_is_caught(instance: Any) -> None:
    document = plan(instance, solver="highs", time_limit=20).model_dump(mode="json")
    for name, value in (("objective", 0.5), ("bound", 1e9), ("gap", 0.5), ("checked", False)):
        altered = {**document, name: value}
        assert check_plan_result(instance, altered).faults, name


@pytest.mark.parametrize("formulation", ["patterns", "matching"])
def test_a_round_of_nothing(formulation: str) -> None:
    instance = generate("sharing", **SIZES["sharing"], jobs_per_set=2)
    nothing = instance.model_copy(update={"jobs": [], "classes": [], "sets": []})
    hold(nothing, plan(nothing, formulation=formulation))


def test_a_job_that_is_late_in_every_unit_is_named() -> None:
    instance = generate("sharing", **SIZES["sharing"])
    late = instance.jobs[0].model_copy(update={"deadline_s": 1.0})
    result = plan(instance.model_copy(update={"jobs": [late, *instance.jobs[1:]]}))
    assert result.termination.reason == "infeasible"
    assert f"job '{late.name}' can neither run now nor wait" in result.termination.detail


def test_a_program_of_some_columns_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = find_problem("sharing")
    build = problem.formulations["patterns"]

    def some_columns(*asked: Any) -> Any:
        whole = build(*asked)
        return replace(whole, program=replace(whole.program, upper=0 * whole.program.upper), bound=0.0)

    monkeypatch.setitem(cast("dict[str, Any]", problem.formulations), "patterns", some_columns)
    monkeypatch.setattr("wattsched.planning._at_hand", lambda run, warm: iter(()))
    termination = plan(generate("sharing", **SIZES["sharing"]), solver="highs").termination
    assert (termination.reason, termination.detail) == ("no_solution", "no decision was found")
