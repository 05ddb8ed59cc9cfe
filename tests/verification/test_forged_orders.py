"""Objectives in order, and the k best decisions, that were changed: none is accepted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import wattsched
from wattsched.results.documents import verdict_on
from wattsched.solving.k_best import k_best_of, verdict_on_k_best

Document = dict[str, Any]


@pytest.fixture(scope="module")
def instance() -> Any:
    return wattsched.generate("uniform", jobs=4, seed=2)


@pytest.fixture(scope="module")
def in_order(instance: Any) -> Document:
    names = ["total-completion", "energy", "makespan"]
    found = wattsched.solve(instance, objective=names, tolerance=0.02)
    return found.model_dump(mode="json")


@pytest.fixture(scope="module")
def best(instance: Any) -> Document:
    return wattsched.k_best(instance, 3, differ=2).model_dump(mode="json")


def copied(document: Any) -> Any:
    if isinstance(document, dict):
        return {name: copied(value) for name, value in document.items()}
    return [copied(value) for value in document] if isinstance(document, list) else document


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(tolerance=0.5),
        lambda d: d.update(tolerance=-0.1),
        lambda d: d.update(tolerance=None),
        lambda d: d.update(limits={}),
        lambda d: d["limits"].update(energy=1e12),
        lambda d: d["limits"].update(goodput=1.0),
        lambda d: d.update(stages=[]),
        lambda d: d["stages"].pop(),
        lambda d: d["stages"].reverse(),
        lambda d: d["stages"].append(d["stages"][0]),
        lambda d: d.update(stages=[1]),
        lambda d: d["stages"][1].update(limits={}),
        lambda d: d["stages"][1].update(objective=d["stages"][1]["objective"] * 1.1),
        lambda d: d["stages"][0].update(bound=d["stages"][0]["bound"] * 1.01),
        lambda d: d["stages"][0].update(decision=None),
        lambda d: d["stages"][0].update(objective_name="makespan"),
        lambda d: d["stages"][1].update(stages=[d["stages"][0]]),
        lambda d: d.update(decision=d["stages"][0]["decision"]),
    ],
)
def test_objectives_in_order(instance: Any, in_order: Document, change: Callable[[Document], Any]) -> None:
    assert verdict_on(instance, in_order).faults == []
    forged = copied(in_order)
    change(forged)
    assert verdict_on(instance, forged).faults != []


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(differ=1),
        lambda d: d.update(differ=8),
        lambda d: d["results"].reverse(),
        lambda d: d["results"].pop(0),
        lambda d: d["results"].insert(1, d["results"][0]),
        lambda d: d["results"][2].update(decision=d["results"][1]["decision"]),
        lambda d: d["results"][1].update(bound=d["results"][1]["bound"] * 0.5),
        lambda d: d.update(instance="other"),
    ],
)
def test_the_k_best(instance: Any, best: Document, change: Callable[[Document], Any]) -> None:
    assert verdict_on_k_best(instance, k_best_of(copied(best))).faults == []
    forged = copied(best)
    change(forged)
    assert verdict_on_k_best(instance, k_best_of(forged)).faults != []


def test_each_stage_is_proven_to_a_gap_that_is_required(instance: Any, in_order: Document) -> None:
    assert verdict_on(instance, in_order).requiring(1e-3).faults == []
    bare = copied(in_order)
    claims = {"certificate": None, "proven_gap": None, "claimed": True, "prices": {}}
    bare["stages"][0] |= claims
    verdict = verdict_on(instance, bare)
    assert (verdict.faults, verdict.claimed) == ([], True)
    assert verdict.requiring(1e-3).faults != []
