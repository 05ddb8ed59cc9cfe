"""What holds of every problem, formulation and solver: one suite over the whole table."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from tests.brute_force import placement, sharing, shifting, sizing
from tests.strategies.effort import examples
from tests.strategies.instances import small_instances
from tests.strategies.placement import windows
from tests.strategies.sharing import sharing_instances
from tests.strategies.shifting import tiny
from wattsched import formulations, solve, verification
from wattsched.formulations.model import UnsuitableError
from wattsched.instances.errors import FormerNameWarning, InputError
from wattsched.instances.generators import generate
from wattsched.instances.io import write_json
from wattsched.results.documents import check, read_instance, read_result, verdict_on
from wattsched.results.problems import PROBLEMS, problem
from wattsched.results.result import Result
from wattsched.solvers import price
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.registry import names as solver_names
from wattsched.verification.claims import LEAST

SOLVERS = tuple(name for name in solver_names() if find_solver(name).exact)
GAP = 1e-5
LONGEST_S = 20.0
ROUNDING = 1e-6
"""Relative to the objective; the checker's own tolerance."""


@dataclass(frozen=True)
class Case:
    """Small instances of a problem, and the best objective by trying every decision.

    `named` are the lists of an instance whose order and whose names decide nothing.
    """

    instances: st.SearchStrategy[Any]
    optimum: Callable[[Any], float | None]
    named: tuple[str, ...] = ("jobs",)


CASES = {
    "sizing": Case(
        st.builds(
            lambda instance, objective: instance.model_copy(update={"objective": objective}),
            small_instances(max_jobs=3),
            st.sampled_from(sorted(problem("sizing").objectives)),
        ),
        lambda instance: sizing.optimum(instance, instance.objective),
    ),
    "shifting": Case(st.builds(tiny, st.integers(0, 10_000)), shifting.optimum),
    "sharing": Case(
        sharing_instances(most_jobs=4),
        lambda instance: sharing.optimum(instance, instance.objective),
    ),
    "placement": Case(windows(), lambda instance: float(placement.optimum(instance)), ("tasks", "nodes")),
}

problems = pytest.mark.parametrize("name", CASES)


@pytest.fixture(autouse=True, scope="module")
def _own_path() -> Any:
    """Have `price` decide small programs by itself, which it leaves to HiGHS otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(price, "SMALL", 0)
        yield


def answers(instance: Any) -> list[tuple[str, str, Result]]:
    """Answers of every solver to every formulation, and of every heuristic."""
    rules, found = problem(instance.problem), []
    for formulation in rules.formulations:
        for solver in dict.fromkeys((*solver_names(), *rules.heuristics)):
            # CP-SAT takes endlessly long for a few programs with continuous columns.
            limit = LONGEST_S if solver == "cpsat" else None
            asked: dict[str, Any] = {"formulation": formulation, "solver": solver, "time_limit": limit}
            try:
                found.append((formulation, solver, solve(instance, gap=GAP, **asked)))
            except UnsuitableError:
                continue
    return found


def test_every_problem_has_a_case() -> None:
    assert set(CASES) == set(PROBLEMS)


@problems
def test_formulations_and_checker_know_the_same_objectives(name: str) -> None:
    """Wherever a layer lists them: by name alone, with their senses, or with more."""
    known = problem(name).objectives
    for layer in (formulations, verification):
        for module in iter_modules([f"{path}/{name}" for path in layer.__path__]):
            place = f"{layer.__name__}.{name}.{module.name}"
            listed = getattr(import_module(place), "OBJECTIVES", None)
            if isinstance(listed, dict):
                assert {key: getattr(one, "sense", one) for key, one in listed.items()} == known, place
            elif listed is not None:
                assert list(listed) == list(known), place


@problems
@settings(max_examples=examples(40))
@given(data=st.data())
def test_answers_hold_and_agree_with_trying_everything(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    instance = data.draw(case.instances)
    best = case.optimum(instance)
    for formulation, solver, result in answers(instance):
        who = f"{formulation} {solver}: {result.termination}"
        verdict = verdict_on(instance, result.model_dump(mode="json"))
        assert verdict.faults == [], who
        assert verdict.claimed == result.claimed, who
        if result.proven_gap is not None:
            # Gaps of objectives near 0, such as sums of logarithms, are of as many digits less.
            room = ROUNDING / min(1.0, max(LEAST, abs(result.objective)))
            assert verdict.proven_gap == pytest.approx(result.proven_gap, abs=room), who
        assert result.faults == [], who
        if best is None:
            assert result.objective is None, who
            continue
        sign, margin = (1.0 if result.sense == "min" else -1.0), ROUNDING * max(1.0, abs(best))
        for bound in (result.bound, result.certificate and result.certificate.bound):
            assert bound is None or sign * bound <= sign * best + margin, who
        assert result.termination.reason != "infeasible", who
        if result.objective is not None:
            assert sign * result.objective >= sign * best - margin, who
        if result.termination.reason == "optimal":
            assert result.objective == pytest.approx(best, rel=2 * GAP, abs=margin), who
        exact = result.unsupported == "" and solver in SOLVERS
        in_time = result.termination.limit != "time"
        if exact and in_time and "generated" not in result.termination.detail:
            # Objectives near 0 have no gap to speak of: what is left of one is rounding.
            left = 0.0 if result.bound is None else abs((result.objective or 0.0) - result.bound)
            assert result.termination.reason == "optimal" or 0.0 < left <= margin, who


@problems
@settings(max_examples=examples(25))
@given(data=st.data())
def test_other_names_in_another_order_change_no_optimum(name: str, data: st.DataObject) -> None:
    instance = data.draw(CASES[name].instances)
    document = json.loads(instance.model_dump_json())
    for named in CASES[name].named:
        moved = data.draw(st.permutations(list(enumerate(document[named]))))
        document[named] = [one | {"name": f"renamed {i}"} for i, one in moved]
    before, after = (solve(one, solver="highs", gap=GAP) for one in (instance, type(instance)(**document)))
    assert after.termination.reason == before.termination.reason
    if before.objective is not None:
        assert after.objective == pytest.approx(before.objective, rel=2 * GAP, abs=ROUNDING)


@problems
def test_a_result_is_read_from_json_as_from_a_file(name: str) -> None:
    made = generate("uniform" if name == "sizing" else name, jobs=3)
    answer = solve(made)
    for read in (
        Result.model_validate_json(answer.model_dump_json()),
        Result.model_validate(answer.model_dump()),
    ):
        assert read == answer
        assert isinstance(read.decision, problem(name).decision)
        assert str(read) == str(answer)
        assert read.to_frame().equals(answer.to_frame())
        counted = ("gpus_", "restarts", "unfinished", "running_", "waiting_")
        assert all(isinstance(n, int) for total, n in read.totals.items() if total.startswith(counted))
    with pytest.raises(ValidationError, match=r"decision\n.*waiting: is missing"):
        Result.model_validate(answer.model_dump() | {"decision": {}})


@problems
def test_an_unknown_objective_is_a_fault_of_the_file(name: str, tmp_path: Path) -> None:
    made = generate("uniform" if name == "sizing" else name, jobs=3)
    answer, wrong = solve(made), made.model_copy(update={"objective": "foo"})
    write_json(file := tmp_path / "instance.json", wrong)
    told = f"objective: 'foo' is not known, choose one of {', '.join(problem(name).objectives)}"
    for refused in (
        lambda: read_instance(file),
        lambda: solve(file),
        lambda: check(file, answer),
        lambda: solve(wrong),
    ):
        with pytest.raises(InputError) as caught:
            refused()
        assert caught.value.faults == [told]
    for former, today in problem(name).former.items():
        write_json(file, made.model_copy(update={"objective": former}))
        with pytest.warns(FormerNameWarning):
            assert read_instance(file).objective == today


@problems
@settings(max_examples=examples(25))
@given(data=st.data())
def test_files_hold_what_they_are_written_from(name: str, data: st.DataObject) -> None:
    instance = data.draw(CASES[name].instances)
    assume(not problem(name).faults_in(instance))
    result = solve(instance, gap=GAP)
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder) / "instance.json.gz", Path(folder) / "result.json"
        for file, model in zip(files, (instance, result), strict=True):
            write_json(file, model)
        assert read_instance(files[0]) == instance
        assert read_result(files[1]) == result
        assert check(*files).faults == []


@problems
@settings(max_examples=examples(5))
@given(data=st.data())
def test_a_limit_ends_with_a_checked_answer(name: str, data: st.DataObject) -> None:
    instance = data.draw(CASES[name].instances)
    best = CASES[name].optimum(instance)
    result = solve(instance, time_limit=0.01)
    assert verdict_on(instance, result.model_dump(mode="json")).faults == []
    if best is None:
        assert result.objective is None
    assert result.termination.reason != "error"


@problems
@settings(max_examples=examples(25))
@given(data=st.data(), seed=st.integers(1, 1000))
def test_last_digits_change_no_verdict(
    name: str, data: st.DataObject, seed: int, jittered: Callable[[int], Any]
) -> None:
    instance = data.draw(CASES[name].instances)
    plain = solve(instance, solver="highs", gap=GAP)
    with jittered(seed):
        other = solve(instance, solver="highs", gap=GAP)
    assert verdict_on(instance, other.model_dump(mode="json")).faults == []
    assert (other.objective is None) == (plain.objective is None)
    if plain.objective is not None:
        assert other.objective == pytest.approx(plain.objective, rel=2 * GAP, abs=ROUNDING)


@given(instance=windows())
def test_jitter_reaches_the_watts_of_a_window(instance: Any, jittered: Callable[[int], Any]) -> None:
    expand = problem("placement").expand
    with jittered(1):
        other = expand(instance).waiting
    exact = expand(instance).waiting
    assert other == pytest.approx(exact, rel=1e-14)
    assert (other != exact)[exact > 0].all()
