"""Forged plans, bounds and shortfalls under caps that change, whose truth is known by trying all.

``FORGED_SIGNALS=200`` makes as many. Each claims what is not so: a plan that exceeds a cap, a bound that a
plan beats, or that there is none where there is one. Most are honest answers to another instance.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from functools import cached_property
from random import Random
from typing import Any

import pytest

import wattsched
from tests.pages import pages_shifting as brute
from tests.strategies.effort import examples
from tests.strategies.forgeries import restated
from tests.strategies.shifting import capped
from wattsched.instances.digest import digest_of
from wattsched.instances.shifting.instance import HorizonBudgets, ShiftingInstance, faults_of
from wattsched.results.documents import verdict_on
from wattsched.results.problems import problem

FORGED = int(os.environ.get("FORGED_SIGNALS", examples(200)))
LEAST = 1e-5
"""Least amount by which forged bounds are too good, relative to the optimum."""


class Event:
    """An instance with caps, the truth about it, and its honest answer."""

    def __init__(self, instance: ShiftingInstance):
        self.instance = instance.model_copy(update={"objective": "mean-completion"})

    @cached_property
    def best(self) -> float | None:
        """Least objective of all decisions, by brute force; None without any."""
        document = self.instance.model_dump(mode="json")
        best, _ = brute.optimum(document, brute.decisions(document))
        return None if best is None else float(best)

    @cached_property
    def honest(self) -> dict[str, Any]:
        result: dict[str, Any] = wattsched.solve(self.instance, gap=0.0).model_dump(mode="json")
        assert verdict_on(self.instance, result).faults == []
        return result

    def answered_by(self, other: dict[str, Any]) -> dict[str, Any] | None:
        """The answer to another instance as one to this; None where it says nothing false of this one."""
        forged = deepcopy(other) | {"digest": digest_of(self.instance), "instance": self.instance.name}
        if forged["decision"] is None:
            return (
                forged if other["termination"]["reason"] == "infeasible" and self.best is not None else None
            )
        decision = problem("shifting").decision.model_validate(forged["decision"])
        report = problem("shifting").check(self.instance, decision)
        assert report.objective is not None
        forged |= {"objective": report.objective, "totals": report.totals}
        bound = forged["bound"]
        if not report.faults and self.best is not None and bound <= self.best + LEAST * abs(self.best):
            return None
        if report.faults:
            bound = min(bound, report.objective)
            forged |= {"bound": bound, "certificate": forged["certificate"] | {"bound": bound}}
        return restated(forged | {"gap_asked": 0.999})


Forgery = Callable[[Event, Random], dict[str, Any] | None]


def another(change: Callable[[dict[str, Any], Random], bool]) -> Forgery:
    """Forge by answering an instance that was changed; `change` says whether it did so."""

    def forge(event: Event, choice: Random) -> dict[str, Any] | None:
        document = event.instance.model_dump(mode="json")
        if not change(document, choice):
            return None
        changed = ShiftingInstance.model_validate(document)
        return None if faults_of(changed) else event.answered_by(Event(changed).honest)

    forge.__name__ = change.__name__
    return forge


@another
def a_limit_of_a_slot(document: dict[str, Any], choice: Random) -> bool:
    """One slot's cap is another, down to what leaves no decision."""
    slot, factor = choice.randrange(document["slots"]), choice.choice([0.1, 0.5, 0.8, 1.5, 10.0])
    watts = document["power_w"]
    document["power_w"] = [*watts] if isinstance(watts, list) else [watts] * document["slots"]
    document["power_w"][slot] *= factor
    return True


@another
def a_cap_ignored(document: dict[str, Any], choice: Random) -> bool:
    """The site's cap is not there, or a domain's."""
    if document["power_domains"] and choice.random() < 0.5:
        document["power_domains"] = {}
    else:
        document["power_w"] = None
    return True


@another
def swapped_slots(document: dict[str, Any], choice: Random) -> bool:
    """The event is at another time."""
    if isinstance(document["power_w"], list):
        document["power_w"] = [*document["power_w"][1:], document["power_w"][0]]
        return True
    return False


@another
def swapped_domains(document: dict[str, Any], choice: Random) -> bool:
    """The limit of a domain is on the other pool."""
    for domain in document["power_domains"].values():
        domain["pools"] = [name for name in document["pools"] if name not in domain["pools"]]
    return bool(document["power_domains"])


@another
def another_least_progress(document: dict[str, Any], choice: Random) -> bool:
    """Least progress is ignored, or more is asked for."""
    least = choice.choice([0.0, 0.0, 0.9, 1.0])
    for job in document["jobs"]:
        job["least_progress"] = least
    return True


@another
def restarts_that_cost_nothing(document: dict[str, Any], choice: Random) -> bool:
    for job in document["jobs"]:
        job["restart_s"] = 0.0
    return True


@another
def work_left_out(document: dict[str, Any], choice: Random) -> bool:
    choice.choice(document["jobs"])["remaining_work"] *= choice.choice([0.5, 3.0])
    return True


def a_slot_above_its_cap(event: Event, choice: Random) -> dict[str, Any] | None:
    """A run has faster settings than the cap allows in a slot, and all totals follow."""
    if event.best is None or event.honest["decision"] is None:
        return None
    forged = deepcopy(event.honest)
    for schedule in choice.sample(forged["decision"]["jobs"], len(forged["decision"]["jobs"])):
        job = next(job for job in event.instance.jobs if job.name == schedule["job"])
        table, run = event.instance.table_of(job), choice.choice(schedule["runs"])
        assert table.frequency_mhz is not None
        alike = [m for m in table.frequency_mhz if m > run["frequency_mhz"]]
        if not alike:
            continue
        run["frequency_mhz"] = choice.choice(alike)
        found = problem("shifting").check(
            event.instance, problem("shifting").decision.model_validate(forged["decision"])
        )
        if any("under the cap" in fault for fault in found.faults):
            return event.answered_by(forged)
    return None


def _priced(event: Event, prices: dict[str, Any], choice: Random) -> dict[str, Any]:
    """Prices with those of caps changed: moved, swapped between domains, scaled, or of another sign."""
    caps = sorted(name for name in prices if name.startswith("power_w"))
    names = [f"{cap}@{t}" for cap in ("power_w", "power_w:feed") for t in range(event.instance.slots)]
    changed = dict(prices)
    match choice.randrange(5):
        case 0 if caps:
            changed[choice.choice(names)] = changed.pop(choice.choice(caps))
        case 1 if caps:
            name = choice.choice(caps)
            other = name.replace("power_w:feed", "power_w") if ":" in name else f"power_w:feed@{name[8:]}"
            changed[other] = changed.pop(name)
        case 2:
            scale = choice.choice([0.5, 1.01, 10.0, 1e6, -1.0])
            changed = {name: price * scale for name, price in changed.items()}
        case 3:
            changed[choice.choice(names)] = -(10.0 ** choice.uniform(-6, 9))
        case _ if changed:
            del changed[choice.choice(sorted(changed))]
    return changed


def _changed(event: Event, certificate: dict[str, Any], choice: Random) -> dict[str, Any]:
    """A certificate with other prices, or another tree."""
    forged = deepcopy(certificate) | {"prices": _priced(event, certificate["prices"], choice)}
    for node in forged["tree"] or []:
        if node["prices"] is not None and choice.random() < 0.5:
            node["prices"] = _priced(event, node["prices"], choice)
        elif node["split"] is not None and choice.random() < 0.3:
            node["inside"], node["outside"] = node["outside"], node["inside"]
        elif node["split"] is not None and choice.random() < 0.3 and "rows" in node["split"]:
            node["split"] = node["split"] | {"rows": []}
    return forged


def a_bound_by_changed_prices(event: Event, choice: Random) -> dict[str, Any] | None:
    """A decision is called optimal by prices or a tree that were changed, and another is better."""
    if event.best is None or event.honest["certificate"] is None:
        return None
    slow = event.instance.model_copy(update={"objective": "energy"})
    decision = wattsched.solve(slow).decision or event.honest["decision"]
    report = problem("shifting").check(
        event.instance, problem("shifting").decision.model_validate(decision, from_attributes=True)
    )
    if report.faults or report.objective is None or report.objective < event.best * (1 + 10 * LEAST):
        return None
    bound = event.best + choice.choice([0.01, 0.5, 1.0]) * (report.objective - event.best)
    certificate = _changed(event, event.honest["certificate"], choice) | {"bound": bound}
    prices = {name: 0.0 - price for name, price in certificate["prices"].items()}
    dumped = decision if isinstance(decision, dict) else decision.model_dump(mode="json")
    forged = {"decision": dumped, "objective": report.objective, "totals": report.totals, "bound": bound}
    return restated(
        event.honest | forged | {"certificate": certificate, "prices": prices, "gap_asked": 0.999}
    )


def a_shortfall_told_larger(event: Event, choice: Random) -> dict[str, Any] | None:
    """A proof that there is no decision states a bound beyond what its prices prove."""
    certificate = event.honest["certificate"]
    if certificate is None or event.honest["decision"] is not None:
        return None
    bound = certificate["bound"] * (1 + choice.choice([1e-6, 0.01, 1.0, 1e6]))
    return event.honest | {"certificate": certificate | {"bound": bound}}


def a_shortfall_where_there_is_none(event: Event, choice: Random) -> dict[str, Any] | None:
    """Prices, changed and dear, are to prove that there is no decision."""
    if event.best is None or event.honest["certificate"] is None:
        return None
    certificate = _changed(event, event.honest["certificate"], choice)
    bound = choice.choice([-1e9, 0.0, 10.0 ** choice.uniform(0, 15)])
    certificate |= {"bound": bound, "price_bound": bound if certificate["tree"] else None}
    nothing = dict.fromkeys(("objective", "bound", "gap", "proven_gap", "decision"))
    empty: dict[str, Any] = {"totals": {}, "prices": {}, "checked": False, "claimed": False}
    ended = {"reason": "infeasible", "limit": None, "detail": "power_w is short by at least 100 W in slot 0"}
    return event.honest | nothing | empty | {"certificate": certificate, "termination": ended}


FORGERIES: tuple[Forgery, ...] = (
    a_limit_of_a_slot, a_cap_ignored, swapped_slots, swapped_domains, another_least_progress,
    restarts_that_cost_nothing, work_left_out, a_slot_above_its_cap, a_bound_by_changed_prices,
    a_shortfall_told_larger, a_shortfall_where_there_is_none,
)  # fmt: skip
"""Ways to forge an answer to an event; None where there is nothing of the kind to forge."""


@pytest.fixture(scope="module")
def events() -> list[Event]:
    """Small instances with caps, without budgets; of a third all jobs have to make progress, if they can."""
    return [
        Event(strict(seed) if seed % 3 == 0 else without_budgets(seed))
        for seed in range(max(120, FORGED // 2))
    ]


def without_budgets(seed: int) -> ShiftingInstance:
    return capped(seed).model_copy(update={"budgets": HorizonBudgets()})


def strict(seed: int) -> ShiftingInstance:
    instance = without_budgets(seed)
    jobs = [job.model_copy(update={"least_progress": 0.6}) for job in instance.jobs]
    return instance.model_copy(update={"jobs": jobs})


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_no_forged_answer_to_an_event_is_accepted(forge: Forgery, events: list[Event]) -> None:
    choice, forged = Random(forge.__name__), 0
    for event in choice.sample(events, len(events)):
        if forged * len(FORGERIES) >= FORGED:
            return
        if (document := forge(event, choice)) is not None:
            assert verdict_on(event.instance, document).faults, (event.instance, document)
            forged += 1
    assert forged, "nothing was forged"
