"""Runs contradict each other exactly when no optimum is possible for all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.comparisons.run import Run
from wattsched.comparisons.statistics import disagreements


def run(name: str, sense: str = "min", **values: Any) -> Run:
    settings = {"gap_asked": 1e-4, "time_limit_s": 60.0, "threads": 1, "seed": 0, "version": "1"}
    asked = {"key": name, "instance": "i", "content": "c", "objective_name": "o"}
    known = {"status": "optimal", "solver_status": values.get("status", "optimal"), "checked": True, **values}
    return Run(**asked, **settings, formulation="f", solver=name, sense=sense, **known)


VALUES = st.integers(-20, 20).map(float)


@given(
    optimum=VALUES,
    sense=st.sampled_from(["min", "max"]),
    above=st.lists(st.integers(0, 5), min_size=2, max_size=5),
    below=st.lists(st.integers(0, 5), min_size=5, max_size=5),
)
def test_sound_answers_agree(optimum: float, sense: str, above: list[int], below: list[int]) -> None:
    sign = 1 if sense == "min" else -1
    runs = [
        run(
            f"s{i}",
            sense,
            objective=optimum + sign * a,
            bound=optimum - sign * b,
            status="feasible" if a or b else "optimal",
        )
        for i, (a, b) in enumerate(zip(above, below, strict=False))
    ]
    assert disagreements(runs) == []


@given(objective=VALUES, beyond=st.floats(0.01, 10.0), sense=st.sampled_from(["min", "max"]))
def test_bound_beyond_a_checked_objective_is_told(objective: float, beyond: float, sense: str) -> None:
    bound = objective + (beyond if sense == "min" else -beyond)
    good = run("good", sense, objective=objective, bound=objective)
    bad = run("bad", sense, status="no_solution", bound=bound, checked=False)
    (sentence,) = disagreements([good, bad])
    assert "f bad has the bound" in sentence
    assert "f good has a checked" in sentence


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"status": "infeasible", "checked": False}, "proved that there is no decision"),
        ({"objective": 100.1, "bound": 99.0}, "calls 100.1 optimal to a gap of 0.0001"),
        ({"objective": 100.0, "bound": 100.0, "faults": ("it is wrong",)}, "it is wrong"),
    ],
)
def test_other_contradictions(other: dict[str, Any], words: str) -> None:
    (sentence,) = disagreements([run("good", objective=100.0, bound=100.0), run("bad", **other)])
    assert words in sentence


@pytest.mark.parametrize(
    "other",
    [
        {"objective": 100.005, "bound": 99.999},
        {"status": "skipped", "checked": False},
        {"status": "no_solution", "checked": False, "bound": 90.0},
        {"objective": 90.0, "bound": 90.0, "instance": "j", "content": "d"},
        {"objective": 90.0, "bound": 90.0, "objective_name": "p"},
    ],
)
def test_no_contradictions(other: dict[str, Any]) -> None:
    good = run("good", objective=100.0, bound=100.0).as_dict()
    assert disagreements([Run(**good), Run(**{**run("other").as_dict(), **other})]) == []


CHEAP = {
    "status": "feasible",
    "objective": 100.0,
    "bound": 90.0,
    "solver_gap": 0.1,
    "formulation": "own.py:made",
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, True),
        ({"solver_gap": 1e-4}, False),
        ({"limit": "time"}, False),
        ({"detail": "out of memory"}, False),
        ({"formulation": "mckp"}, False),
        ({"solver": "greedy"}, False),
    ],
)
def test_an_optimum_below_its_own_decision_is_told(changes: dict[str, Any], told: bool) -> None:
    values = {**run("highs").as_dict(), **CHEAP, **changes}
    found = disagreements([Run(**values)])
    assert [("what the formulation minimises is not the objective" in line) for line in found] == [
        True
    ] * told
