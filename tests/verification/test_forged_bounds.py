"""Bounds that are claimed above their proofs: of all problems, frontiers, bound files and library records.

``FORGED_BOUNDS`` is how many are forged, of every kind as many. The line is 1e-9 of the terms, the numbers
that a proof is the difference of: nothing above it is accepted, and forgeries are just above it, from 2e-9
to 1e-6 of the terms. One that is taken on trust is not accepted as proven.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from random import Random
from typing import Any

import pytest

import wattsched
from tests.strategies.effort import examples
from tests.strategies.forgeries import restated
from tests.strategies.replay import clairvoyant, cluster_of, linear, trace_by_hand
from tests.strategies.shifting import capped, tiny
from wattsched import generate, solve
from wattsched.library import proofs
from wattsched.library.entries import entries
from wattsched.library.records import best_known
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem
from wattsched.solving.tradeoffs import pareto_of, verdict_on_pareto
from wattsched.verification.claims import beyond_proof
from wattsched.verification.clairvoyant import Prover, faults_of
from wattsched.verification.report import CLAIM_TOLERANCE

FORGED = int(os.environ.get("FORGED_BOUNDS", examples(300)))
Forge = Callable[[Random], bool]
"""Forges once, and says whether that was accepted."""


def shares(choice: Random) -> float:
    return 2e-9 * 500.0 ** choice.random()


def terms_of(instance: Any, document: dict[str, Any], value: float) -> float:
    """Size of the numbers that a proof of a value is the difference of."""
    size = max(abs(value), abs(document["objective"]))
    if instance.problem == "placement":  # tasks may all wait, which is what others are cheaper than
        everyone = {"placed": [], "waiting": [task.name for task in instance.tasks]}
        return size + abs(verdict_on(instance, everyone).objective or 0.0)
    if instance.problem == "sizing":  # what rows have at their prices, which jobs pay for
        gpus = float(sum(node.gpus for node in instance.cluster.nodes))
        nodes = [document["certificate"], *document["certificate"]["tree"]]
        prices = [(node["prices"] or {}).items() for node in nodes]
        return size + max(
            sum(abs(y) * (getattr(instance.budgets, name, None) or gpus) for name, y in some)
            for some in prices
        )
    return size


def answers() -> list[tuple[Any, dict[str, Any]]]:
    """Instances of all problems and objectives, with their results."""
    made = [
        *(tiny(seed) for seed in range(4)),
        *(capped(seed) for seed in (0, 2, 3, 4)),
        generate("sharing", jobs=3, seed=0),
        generate("placement", jobs=3, seed=1),
        generate("uniform", jobs=3, seed=0),
    ]
    found = []
    for instance in made:
        objectives = [o for o in problem(instance.problem).objectives if not lacks(instance, o)]
        for objective in objectives[:3]:
            result = solve(instance, objective=objective)
            if result.certificate is not None and result.objective and result.bound is not None:
                found.append((instance, result.model_dump(mode="json")))
    return found


def lacks(instance: Any, objective: str) -> bool:
    """Whether an objective needs a forecast that an instance has not."""
    field = {"carbon": "carbon_g_per_kwh", "money": "price_per_kwh"}.get(objective)
    return field is not None and getattr(instance, field, None) is None


def above(instance: Any, document: dict[str, Any], share: float, *names: str) -> dict[str, Any]:
    """A result that claims bounds above its proof by a share of the terms, and what honestly follows."""
    sign, certificate = (1.0 if document["sense"] == "min" else -1.0), dict(document["certificate"])
    for name in names:
        value = certificate[name]
        certificate[name] = value + sign * share * terms_of(instance, document, value)
    bound = certificate["bound"] if "bound" in names else document["bound"]
    forged = restated(document, certificate=certificate, bound=bound)
    proven = beyond_proof("optimal", forged["bound"], certificate["bound"], forged["sense"])
    return forged | {"claimed": proven}


@pytest.fixture(scope="module")
def campaigns() -> dict[str, Forge]:
    found = answers()
    assert {instance.problem for instance, _ in found} == {"sizing", "shifting", "sharing", "placement"}
    day = generate("shifting", jobs=2, slots=4, seed=1)
    frontier = wattsched.pareto(day, 3).model_dump(mode="json")
    jobs = (0.0, 900.0, 2, linear(4)), (50.0, 500.0, 1, {1: 1.0, 2: 1.5}), (60.0, 300.0, 4, linear(2))
    bound = clairvoyant(trace_by_hand(cluster_of(4), *jobs), completion_s=[900.0])
    names = [name for name in entries() if name.startswith("tight-15-")][:2]
    assert names
    records = best_known(None)
    instances = {name: entries()[name].instance() for name in names}

    def results(choice: Random) -> bool:
        instance, document = choice.choice(found)
        fields = ["bound", *(["price_bound"] if document["certificate"]["tree"] else [])]
        forged = above(instance, document, shares(choice), choice.choice(fields))
        verdict = verdict_on(instance, forged)
        return not verdict.faults and not verdict.claimed

    def said(choice: Random) -> bool:
        """Of the bound alone, which the certificate does not have."""
        instance, document = choice.choice(found)
        sign = 1.0 if document["sense"] == "min" else -1.0
        proven = document["certificate"]["bound"]
        beyond = proven + sign * shares(choice) * abs(proven)
        verdict = verdict_on(instance, restated(document, bound=beyond) | {"claimed": False})
        return not verdict.faults and not verdict.claimed

    def frontiers(choice: Random) -> bool:
        forged = deepcopy(frontier)
        places = [(point, name) for point in forged["points"] for name in ("result", "before") if point[name]]
        places += [(forged["ends"], k) for k in range(2)]
        place, name = choice.choice(places)
        spoilt = choice.choice(["bound", "order", "limit", "decision"])
        if spoilt == "bound":
            place[name] = above(day, place[name], shares(choice), "bound")
        elif spoilt == "order":
            choice.choice([forged["points"].reverse, forged["points"].pop, lambda: forged["points"].pop(0)])()
        elif spoilt == "limit":
            point = choice.choice(forged["points"])
            point["limit"] *= 1.0 + shares(choice)
        else:
            other = choice.choice(forged["points"])["result"]["decision"]
            if other == place[name]["decision"]:
                return False
            place[name] = place[name] | {"decision": other}
        verdict = verdict_on_pareto(day, pareto_of(forged))
        return not verdict.faults and not verdict.claimed

    def bounds(choice: Random) -> bool:
        k = choice.randrange(len(bound.proofs))
        beyond = {"bound_s": Prover(bound).enclosed(bound.proofs[k])[0] * (1.0 + shares(choice))}
        claims = [*bound.proofs]
        claims[k] = claims[k].model_copy(update=beyond)
        return not faults_of(bound.model_copy(update={"proofs": claims}))

    def library(choice: Random) -> bool:
        name = choice.choice(names)
        record = records[name]
        field = choice.choice(["objective", "bound"])
        value = getattr(record, field)
        if not value:
            return False
        forged = record.model_copy(update={field: value * (1.0 + choice.choice([-1, 1]) * shares(choice))})
        return not proofs._proven(entries()[name], instances[name], forged).faults

    return {"results": results, "said": said, "frontiers": frontiers, "bounds": bounds, "library": library}


@pytest.mark.parametrize("kind", ["results", "said", "frontiers", "bounds", "library"])
def test_no_forged_bound_is_accepted(kind: str, campaigns: dict[str, Forge]) -> None:
    choice = Random(kind)
    assert CLAIM_TOLERANCE == 1e-9
    assert [number for number in range(FORGED // 5) if campaigns[kind](choice)] == []
