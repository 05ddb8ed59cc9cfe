"""Ways to forge an answer: each changes one thing that it says, and what would give that away at once.

A forgery takes an instance, the document of its result (a copy) and a source of choices. It returns the two
as forged, or None where there is nothing of the kind to forge.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

Forged = tuple[Any, dict[str, Any]] | None
Forgery = Callable[[Any, dict[str, Any], Random], Forged]

AMOUNTS = {
    "sizing": ("jobs", "weight", 1e-12),
    "shifting": ("jobs", "weight", 1e-12),
    "sharing": ("jobs", "remaining_epochs", 1e-12),
    "placement": ("tasks", "cpu_milli", 1),
}
"""Of what an instance of each problem can have a little more."""

DECIDED = ("optimal", "feasible")


def restated(document: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The document with changes, and gaps and `claimed` as they honestly follow."""
    document = {**document, **changes}
    objective, bound, certificate = document["objective"], document["bound"], document["certificate"]
    proven = None if certificate is None else certificate["bound"]
    sign = 1.0 if document["sense"] == "min" else -1.0
    document["gap"] = None if bound is None else _gap(objective, bound)
    document["proven_gap"] = None if proven is None else _gap(objective, proven)
    document["claimed"] = bound is not None and (
        proven is None or sign * (bound - proven) > 1e-9 * abs(proven)
    )
    return document


def _gap(objective: float, bound: float) -> float:
    return abs(objective - bound) / max(1e-9, abs(objective))


def _better(document: dict[str, Any], value: float, share: float) -> float:
    """A value that is better by a share of it."""
    return value - (1.0 if document["sense"] == "min" else -1.0) * share * abs(value)


def _decided(document: dict[str, Any]) -> bool:
    return document["decision"] is not None and abs(document["objective"]) > 1e-3


def _without_decision(document: dict[str, Any], reason: str, **changes: Any) -> dict[str, Any]:
    nothing = dict.fromkeys(("objective", "bound", "gap", "proven_gap", "decision"))
    ended = {"reason": reason, "limit": None, "detail": "there is none"}
    empty: dict[str, Any] = {"totals": {}, "prices": {}, "checked": False, "claimed": False}
    return {**document, **nothing, **empty, "termination": ended, **changes}


def _one(content: dict[str, Any], choice: Random) -> str:
    return choice.choice(sorted(content))


def infeasible_without_a_proof(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    return instance, _without_decision(document, "infeasible", certificate=None)


def infeasible_by_prices_that_leave_room(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document) or document["certificate"] is None:
        return None
    return instance, _without_decision(document, "infeasible")


def optimal_above_the_gap_asked(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document) or document["certificate"] is None:
        return None
    gap = choice.choice([0.9, 0.5, 0.2])
    bound = _better(document, document["objective"], gap)
    if document["proven_gap"] > gap:
        return None
    forged = restated(document, bound=bound, certificate={**document["certificate"], "bound": bound})
    return instance, forged | {
        "termination": {"reason": "optimal", "limit": None, "detail": ""},
        "gap_asked": choice.choice([0.5, 0.99, 1 - 1e-6]) * gap,
    }


def an_empty_certificate(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document) or not (document["certificate"] or {}).get("prices"):
        return None
    objective = document["objective"]
    forged = restated(document, bound=objective, certificate={"prices": {}, "bound": objective}, prices={})
    return instance, forged


def no_certificate(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if document["bound"] is None:
        return None
    return instance, document | {"certificate": None, "prices": {}, "proven_gap": None, "claimed": False}


def a_bound_beyond_the_proof(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document) or document["certificate"] is None:
        return None
    less = _better(document, document["certificate"]["bound"], choice.choice([1e-7, 1e-3, 0.3]))
    forged = restated(document, certificate={**document["certificate"], "bound": less})
    forged = restated(forged, bound=document["objective"]) if forged["bound"] is None else forged
    return (instance, forged | {"claimed": False}) if forged["claimed"] else None


def a_certificate_that_claims_more(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document) or document["certificate"] is None:
        return None
    more = _better(document, document["certificate"]["bound"], -choice.choice([1e-4, 0.01, 1.0, 1e9]))
    if abs(more - document["certificate"]["bound"]) < 1e-4:
        return None
    return instance, restated(document, certificate={**document["certificate"], "bound": more})


def a_bound_on_the_wrong_side(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document):
        return None
    bound = _better(document, document["objective"], -choice.choice([0.01, 1.0]))
    return instance, restated(document, bound=bound)


def a_digest_of_nothing(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    made_up = "".join(choice.choice("0123456789abcdef") for _ in range(64))
    return instance, document | {"digest": choice.choice([made_up, made_up[:40], "0", None])}


def no_digest(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    return (
        None if document["termination"]["reason"] == "no_solution" else (instance, document | {"digest": ""})
    )


def of_another_instance(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    """A job or task has a little more to do."""
    if not document["digest"]:
        return None
    named, field, more = AMOUNTS[instance.problem]
    items = list(getattr(instance, named))
    place = choice.randrange(len(items))
    items[place] = items[place].model_copy(update={field: getattr(items[place], field) + more})
    return instance.model_copy(update={named: items}), document


def an_invented_price(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document):
        return None
    name = choice.choice(["gpus:none", "power", "", "worst:none", "gpus:A100@99"])
    return instance, document | {"prices": document["prices"] | {name: choice.choice([0.0, 1.0])}}


def a_price_of_no_row(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if document["certificate"] is None:
        return None
    prices = document["certificate"]["prices"] | {choice.choice(["none", "gpus:none", "job:none"]): 0.0}
    return instance, document | {"certificate": {**document["certificate"], "prices": prices}}


def another_price(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    priced = {name: price for name, price in document["prices"].items() if price > 1e-6}
    if not priced:
        return None
    name = _one(priced, choice)
    return instance, document | {
        "prices": document["prices"] | {name: choice.choice([0.0, 1.01]) * priced[name]}
    }


def a_price_left_out(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not document["prices"]:
        return None
    name = _one(document["prices"], choice)
    return instance, document | {"prices": {n: y for n, y in document["prices"].items() if n != name}}


def an_invented_total(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    return instance, document | {"totals": document["totals"] | {choice.choice(["joy", "watts", ""]): 0.0}}


def a_false_total(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    totals = {name: value for name, value in document["totals"].items() if abs(value) > 1e-3}
    if not totals:
        return None
    name = _one(totals, choice)
    return instance, document | {
        "totals": document["totals"] | {name: choice.choice([0.99, -1]) * totals[name]}
    }


def a_missing_total(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not document["totals"]:
        return None
    name = _one(document["totals"], choice)
    left = {other: value for other, value in document["totals"].items() if other != name}
    return instance, document | {"totals": choice.choice([left, {}, None])}


def no_totals(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not document["totals"]:
        return None
    return instance, {name: value for name, value in document.items() if name != "totals"}


def an_invented_phase(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    return instance, document | {"time_s": document["time_s"] | {choice.choice(["coffee", "Solve", ""]): 0.1}}


def negative_seconds(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    name = _one(document["time_s"], choice)
    return instance, document | {"time_s": document["time_s"] | {name: choice.choice([-1.0, -1e-9])}}


def no_total_time(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    others = {name: s for name, s in document["time_s"].items() if name != "total"}
    return instance, document | {"time_s": choice.choice([others, {}])}


def an_unknown_field(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    within = choice.choice(
        ["", *(n for n in ("termination", "certificate", "size") if document[n] is not None)]
    )
    if not within:
        return instance, document | {"proved": True}
    return instance, document | {within: document[within] | {"trust": "me"}}


def a_missing_field(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    name = choice.choice(
        ["digest", "proven_gap", "gap_asked", "claimed", "termination", "instance", "solver"]
    )
    return instance, {other: value for other, value in document.items() if other != name}


def no_finite_number(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    number = choice.choice([float("nan"), float("inf"), -float("inf"), 10**400, "12", True, [1.0]])
    fields = ["objective", "bound", "gap", "proven_gap", "gap_asked", "prices", "totals", "time_s"]
    field = choice.choice(fields)
    if isinstance(document[field], dict):
        return instance, document | {
            field: document[field] | {_one(document[field] or {"x": 0}, choice): number}
        }
    return instance, document | {field: number}


def a_false_proven_gap(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    gap = document["proven_gap"]
    if gap is None:
        return instance, document | {"proven_gap": 0.0}
    others = [None, gap + 1e-6, 2 * gap + 0.5, *([0.0] if gap > 1e-9 else [])]
    return instance, document | {"proven_gap": choice.choice(others)}


def a_false_gap(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    gap = document["gap"]
    if gap is None:
        return instance, document | {"gap": 0.0}
    return instance, document | {"gap": choice.choice([None, gap + 1e-4, -gap - 1e-4])}


def a_gap_asked_out_of_range(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    return instance, document | {
        "gap_asked": choice.choice([-1e-4, 1.0, 2.0, None][: 4 if document["digest"] else 3])
    }


def a_better_objective(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if not _decided(document) or abs(document["objective"]) < 0.1:
        return None
    objective = _better(document, document["objective"], choice.choice([1e-4, 0.5]))
    return instance, restated(document, objective=objective)


def a_job_twice_or_from_nowhere(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if document["decision"] is None:
        return None
    named = instance.tasks if hasattr(instance, "tasks") else instance.jobs
    extra = choice.choice(["stranger", *(one.name for one in named)])
    waiting = [*document["decision"]["waiting"], extra]
    return instance, document | {"decision": document["decision"] | {"waiting": waiting}}


def a_decision_of_nothing(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if document["decision"] is None:
        return None
    empty = {name: [] for name in document["decision"]}
    return instance, document | {"decision": choice.choice([empty, {}, [], None])}


def an_unchecked_decision(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    return instance, document | {"checked": not document["checked"]}


def proven_in_spite_of_a_limit(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if document["termination"]["reason"] not in ("optimal", "infeasible"):
        return None
    limit = choice.choice(["time", "gap", "nodes", "patience"])
    return instance, document | {"termination": document["termination"] | {"limit": limit}}


def another_reason(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    decided = document["termination"]["reason"] in DECIDED
    reason = choice.choice(["infeasible", "no_solution", "error", "best"] if decided else [*DECIDED, "best"])
    return instance, document | {"termination": {"reason": reason, "limit": None, "detail": ""}}


def of_something_else(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    sense = "max" if document["sense"] == "min" else "min"
    others = {"sense": sense, "instance": "another", "format": "wattsched-result/3", "objective_name": "joy"}
    name = _one(others, choice)
    return instance, document | {name: others[name]}


def a_program_of_negative_size(instance: Any, document: dict[str, Any], choice: Random) -> Forged:
    if document["size"] is None:
        return None
    name = choice.choice(["columns", "rows", "nonzeros"])
    return instance, document | {"size": document["size"] | {name: -1}}


FORGERIES: tuple[Forgery, ...] = (
    infeasible_without_a_proof, infeasible_by_prices_that_leave_room, optimal_above_the_gap_asked,
    an_empty_certificate, no_certificate, a_bound_beyond_the_proof, a_certificate_that_claims_more,
    a_bound_on_the_wrong_side, a_digest_of_nothing, no_digest, of_another_instance, an_invented_price,
    a_price_of_no_row, another_price, a_price_left_out, an_invented_total, a_false_total, a_missing_total,
    no_totals, an_invented_phase, negative_seconds, no_total_time, an_unknown_field, a_missing_field,
    no_finite_number, a_false_proven_gap, a_false_gap, a_gap_asked_out_of_range, a_better_objective,
    a_job_twice_or_from_nowhere, a_decision_of_nothing, an_unchecked_decision, proven_in_spite_of_a_limit,
    another_reason, of_something_else, a_program_of_negative_size,
)  # fmt: skip
