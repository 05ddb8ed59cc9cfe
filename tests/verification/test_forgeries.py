"""A thousand forged answers of all problems are refused; the honest ones that they are made of pass."""

from __future__ import annotations

from copy import deepcopy
from random import Random
from threading import Event
from typing import Any

import pytest

from tests.strategies.forgeries import FORGERIES, Forgery
from tests.strategies.priced import SIX, THRIFTY
from wattsched import generate, solve
from wattsched.instances.errors import InputError
from wattsched.instances.shifting.instance import HorizonBudgets
from wattsched.instances.sizing.instance import Budgets
from wattsched.results.documents import answer_of, verdict_on

FORGED = 1_000
Answer = tuple[Any, dict[str, Any]]


def is_refused(instance: Any, document: dict[str, Any]) -> bool:
    """Whether `wattsched check` refuses a document, as no result or as a forged one."""
    try:
        answer_of(document, instance.problem)
    except InputError:
        return True
    return bool(verdict_on(instance, document).faults)


def honest() -> list[Answer]:
    """Answers of all problems and reasons: optimal, feasible, infeasible, none in time."""
    stopped = Event()
    stopped.set()
    hetero = generate("hetero", jobs=3, seed=2)
    shifting = generate("shifting", jobs=3, slots=6, seed=0)
    capped = shifting.model_copy(update={"power_w": [4000.0, 1500.0, 1500.0, 4000.0, 4000.0, 4000.0]})
    least = [job.model_copy(update={"least_progress": 0.5}) for job in shifting.jobs]
    sharing = generate("sharing", jobs=5, seed=0)
    placement = generate("placement", jobs=3, seed=1)
    alone = [job.model_copy(update={"exclusive": True, "can_wait": False}) for job in sharing.jobs]
    asked: list[tuple[Any, tuple[str, ...], str]] = [
        (SIX, ("total-completion", "work-value", "max-min"), "greedy"),
        (hetero, ("total-completion", "goodput"), "greedy"),
        (THRIFTY, ("energy", "total-completion"), "greedy"),
        (shifting, ("carbon", "mean-completion"), "greedy"),
        (capped, ("mean-completion", "energy"), "greedy"),
        (sharing, ("eaco", "throughput"), "fifo"),
        (placement, (placement.objective,), "greedy"),
    ]
    none = (
        SIX.model_copy(update={"budgets": Budgets(power_w=250.0)}),
        shifting.model_copy(update={"budgets": HorizonBudgets(energy_j=1.0)}),
        capped.model_copy(update={"jobs": least}),
        sharing.model_copy(update={"jobs": alone}),
    )
    return [
        *((one, answer(one, objective=objective)) for one, goals, _ in asked for objective in goals),
        *((one, answer(one, gap=0.0, solver=rule)) for one, _, rule in asked),
        *((one, answer(one, stop=stopped)) for one, _, _ in asked),
        *((one, answer(one)) for one in none),
    ]


def answer(instance: Any, **asked: Any) -> dict[str, Any]:
    content: dict[str, Any] = solve(instance, **asked).model_dump(mode="json")
    return content


@pytest.fixture(scope="module")
def answers() -> list[Answer]:
    return honest()


def test_honest_answers_pass(answers: list[Answer]) -> None:
    for instance, document in answers:
        assert not is_refused(instance, document), verdict_on(instance, document).faults
        assert verdict_on(instance, document).claimed == document["claimed"]
    reasons = {document["termination"]["reason"] for _, document in answers}
    assert reasons == {"optimal", "feasible", "infeasible", "no_solution"}
    assert {instance.problem for instance, _ in answers} == {"sizing", "shifting", "sharing", "placement"}


@pytest.mark.slow
@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forged_answers_are_refused(forge: Forgery, answers: list[Answer]) -> None:
    choice, forged = Random(forge.__name__), 0
    while forged * len(FORGERIES) < FORGED:
        tried = [forge(instance, deepcopy(document), choice) for instance, document in answers]
        for made in tried:
            if made is not None:
                assert is_refused(*made), made[1]
                forged += 1
        assert any(made is not None for made in tried)
