"""Forged bounds, trees and proofs that there is no decision, of rounds whose optimum is known by trying all.

``FORGERIES=10000`` makes as many; each claims something that is not so, and none may pass as proven.
"""

from __future__ import annotations

import os
from copy import deepcopy
from random import Random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

import wattsched
from tests.brute_force.sizing import MAXIMISED, decided, optimum
from tests.strategies.effort import examples
from tests.strategies.forgeries import restated
from tests.strategies.instances import instances_with_sets, sleeping, small_instances
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem
from wattsched.verification.sizing.bound import Prover
from wattsched.verification.sizing.splits import key

EACH = 20
FORGERIES = int(os.environ.get("FORGERIES", examples(400)))
TERMS = 1e-9
"""What a bound may be too good by, relative to the terms that it is the sum of."""
OBJECTIVES = ("total-completion", "goodput", "work-value", "makespan", "max-min", "energy", "proportional")
ROUNDS = small_instances() | instances_with_sets() | sleeping(small_instances())


class Rounds:
    """A round, what its best decision costs, and certificates to forge others from.

    Attributes
    ----------
    worth : list of float
        Costs of decisions that are sound, from the least on.
    """

    def __init__(self, instance: Instance, objective: str, others: list[Any], choice: Random):
        self.instance = instance.model_copy(update={"objective": objective})
        self.sign = -1.0 if objective in MAXIMISED else 1.0
        best = optimum(self.instance, objective)
        self.best = None if best is None else self.sign * best
        self.honest = wattsched.solve(self.instance, gap=0.0).model_dump(mode="json")
        found = [self.honest["decision"], *(solved.decision for solved in others)]
        reports = [(d, problem("sizing").check(self.instance, d)) for d in map(_read, found) if d is not None]
        self.sound = [(d, r) for d, r in reports if not r.faults and r.objective is not None]
        prover = Prover(self.instance)
        self.rows, self.jobs = prover.rows, [job.name for job in decided(self.instance).jobs]
        known = prover.configurations
        self.options = {
            name: [list(key(row)) for row in (*known.of(j), *known.in_sets(name))]
            for j, name in enumerate(known.jobs.names)
        }
        self.choice = choice

    def prices(self) -> dict[str, float]:
        """Prices of an honest answer with some changed, or of any rows, most of them by the right sign."""
        choice, known = self.choice, dict((self.honest["certificate"] or {}).get("prices", {}))
        if choice.random() < 0.3:
            known = {}
        for name in choice.sample(sorted(self.rows), min(len(self.rows), choice.randrange(4))):
            row = self.rows[name]
            sign = choice.choice([-1, 1]) if row.kind == "share" else 1 if row.kind == "least" else -1
            size = 10.0 ** choice.uniform(-9, 12) if choice.random() < 0.5 else choice.random()
            known[name] = self.sign * sign * size * choice.choice([1, 1, 1, 1, -1])
        scale = choice.choice([1.0, 1.0, 0.5, 1.001, 10.0, 1e6])
        return {name: price * scale for name, price in known.items()}

    def tree(self) -> list[dict[str, Any]]:
        """An honest tree with some of its leaves or splits changed, or any."""
        choice, honest = self.choice, (self.honest["certificate"] or {}).get("tree") or []
        nodes = deepcopy(honest) if choice.random() < 0.7 else []
        if not nodes and self.jobs:
            nodes = [{"split": self.split(), "inside": 1, "outside": 2}, {"prices": {}}, {"prices": {}}]
        for node in nodes:
            if choice.random() < 0.3 and node.get("prices") is not None:
                node["prices"] = self.prices()
            elif choice.random() < 0.3 and node.get("split") is not None:
                match choice.randrange(4):
                    case 0:
                        node["inside"], node["outside"] = node["outside"], node["inside"]
                    case 1:
                        node["inside"] = node["outside"]
                    case 2:
                        node["split"] = self.split()
                    case _:
                        node["split"] = node["split"] | {"options": []}
        return nodes

    def split(self) -> dict[str, Any]:
        """A split of any job by any of its options, or all that begin so."""
        name = self.choice.choice(self.jobs)
        named: list[Any] = [begin for begin in self.options[name] for begin in (begin, begin[:1], begin[:2])]
        some = self.choice.sample([*named, "wait"], self.choice.randrange(len(named) + 2))
        return {"job": name, "options": some}

    def terms(self, nodes: list[dict[str, float]]) -> float:
        """Size of the numbers that a bound at prices is the sum of, at least one."""
        worst = max((abs(r.objective) for _, r in self.sound), default=0.0)
        limits = {name: abs(float(row.limit)) + float(row.standing) for name, row in self.rows.items()}
        charged = (sum(abs(y) * limits.get(n, 0.0) for n, y in prices.items()) for prices in nodes)
        return max(1.0, worst + max(charged, default=0.0))


def _read(document: Any) -> Any:
    return problem("sizing").decision.model_validate(document) if isinstance(document, dict) else document


def certificate(of: Rounds) -> dict[str, Any]:
    """Certificate of prices or of a tree, whose bound is still to be claimed."""
    tree = of.tree() if of.choice.random() < 0.6 else []
    return {"prices": of.prices(), "bound": 0.0, "price_bound": 0.0 if tree else None, "tree": tree}


def a_bound_that_a_decision_beats(of: Rounds) -> dict[str, Any] | None:
    """A decision is called optimal, and a better one is known."""
    if of.best is None or not of.sound:
        return None
    forged = certificate(of)
    leaves = [forged["prices"], *(node["prices"] for node in forged["tree"] if node.get("prices"))]
    least = TERMS * of.terms(leaves)
    beaten = [one for one in of.sound if of.sign * one[1].objective > of.best]
    decision, report = of.choice.choice(beaten or of.sound)
    cost = of.sign * report.objective
    better = of.choice.choice([1.01 * least, 1e-6, 1e-3, 0.1, cost - of.best])
    bound = min(cost, of.best + max(better, 1.01 * least))
    if bound <= of.best + least or bound <= of.best + 1e-6 * abs(of.best):
        return None  # not enough to tell from rounding
    forged |= {"bound": of.sign * bound, "price_bound": of.choice.choice([0.0, -1e18 * of.sign])}
    forged["price_bound"] = forged["price_bound"] if forged["tree"] else None
    prices = {n: 0.0 - of.sign * y for n, y in forged["prices"].items() if not n.startswith("share:")}
    document = of.honest | {
        "objective": report.objective,
        "bound": of.sign * bound,
        "decision": decision.model_dump(mode="json"),
        "totals": report.totals,
        "certificate": forged,
        "prices": prices,
        "gap_asked": 0.999,
        "dropped": of.honest["dropped"],
        "checked": True,
        "termination": {"reason": "optimal", "limit": None, "detail": ""},
    }
    return restated(document)


def no_decision_where_there_is_one(of: Rounds) -> dict[str, Any] | None:
    """A certificate, or none, is to prove that a round has no decision."""
    if of.best is None:
        return None
    forged = certificate(of) if of.choice.random() < 0.9 else None
    if forged is not None:
        # The least that can be claimed leaves all to whether the prices leave room.
        forged |= {"bound": of.sign * of.choice.choice([-1e18, 10.0 ** of.choice.uniform(-3, 20)])}
        forged["price_bound"] = -1e18 * of.sign if forged["tree"] else None
    nothing = dict.fromkeys(("objective", "bound", "gap", "proven_gap", "decision"))
    empty: dict[str, Any] = {"totals": {}, "prices": {}, "dropped": {}, "checked": False, "claimed": False}
    ended = {"reason": "infeasible", "limit": None, "detail": "there is none"}
    return {
        **of.honest,
        **nothing,
        **empty,
        "certificate": forged,
        "termination": ended,
        "solver_answer": None,
    }


FORGED = (a_bound_that_a_decision_beats, no_decision_where_there_is_one)
"""Ways to forge an answer; None where there is nothing of the kind to forge."""


@settings(max_examples=max(1, FORGERIES // EACH))
@given(
    instance=ROUNDS,
    objective=st.sampled_from(OBJECTIVES),
    other=st.sampled_from(OBJECTIVES),
    seed=st.integers(0, 2**32),
)
def test_nothing_false_is_proven(instance: Instance, objective: str, other: str, seed: int) -> None:
    choice, forged = Random(seed), 0
    others = [wattsched.solve(instance, objective=other), wattsched.solve(instance, objective="energy")]
    of = Rounds(instance, objective, others, choice)
    assume(of.best is not None)
    assert verdict_on(of.instance, of.honest).faults == []
    for _ in range(5 * EACH):
        if forged == EACH:
            break
        if (document := choice.choice(FORGED)(of)) is not None:
            forged += 1
            assert verdict_on(of.instance, document).faults, document
