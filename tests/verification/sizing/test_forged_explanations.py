"""Explanations of which one thing is forged: none is accepted."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from pydantic import ValidationError

import wattsched
from tests.brute_force.sizing_explanations import random_round
from tests.strategies.effort import examples
from wattsched.instances.sizing.explanation import Explanation
from wattsched.instances.sizing.instance import Instance
from wattsched.results.documents import verdict_on_explanation

Document = dict[str, Any]
Forgery = Callable[[Document, Instance], Document | None]

FORGERIES: dict[str, Forgery] = {}
SEEDS = range(int(os.environ.get("EXPLAINED_CASES", examples(40))))
MOST = 2
"""Explanations in which one kind of forgery is tried."""


def forgery(forge: Forgery) -> Forgery:
    """Add a way to forge an explanation, which changes a copy of it, or returns None where it cannot."""
    FORGERIES[forge.__name__] = forge
    return forge


def _with(document: Document, **fields: Any) -> Document:
    return {**document, **fields}


def _alternative(document: Document, field: str) -> Document | None:
    """The first alternative that changes a field."""
    return next((one for one in document.get("alternatives", []) if one["change"][field]), None)


# -- whose it is, and what it says of the job ------------------------------------------------------------


@forgery
def another_instance(document: Document, instance: Instance) -> Document:
    return _with(document, digest="0" * 64)


@forgery
def another_name(document: Document, instance: Instance) -> Document:
    return _with(document, instance="another")


@forgery
def another_objective(document: Document, instance: Instance) -> Document:
    return _with(document, objective_name="energy")


@forgery
def no_such_objective(document: Document, instance: Instance) -> Document:
    return _with(document, objective_name="happiness")


@forgery
def no_such_job(document: Document, instance: Instance) -> Document:
    return _with(document, job="nobody")


@forgery
def of_another_job(document: Document, instance: Instance) -> Document | None:
    others = [job.name for job in instance.jobs if job.name != document["job"]]
    return _with(document, job=others[0]) if document["alternatives"] or document["cost"] else None


@forgery
def it_runs(document: Document, instance: Instance) -> Document:
    return _with(document, state="runs", alternatives=[], cost=None)


@forgery
def it_never_runs(document: Document, instance: Instance) -> Document | None:
    return None if document["state"] == "never" else _with(document, state="never")


@forgery
def it_never_runs_by_a_proof_of_something_else(document: Document, instance: Instance) -> Document | None:
    proofs = [proof for one in document["alternatives"] for proof in one["proofs"]]
    return _with(document, state="never", proof=proofs[0]) if proofs else None


@forgery
def it_never_runs_by_prices_that_leave_room(document: Document, instance: Instance) -> Document | None:
    if document["cost"] is None:
        return None
    proof = {"round": "forced", "change": {}, "certificate": {"prices": {}, "bound": 0.0}}
    return _with(document, state="never", proof=proof)


@forgery
def a_reason(document: Document, instance: Instance) -> Document | None:
    return None if document["reason"] else _with(document, reason="is not wanted here")


@forgery
def another_sentence(document: Document, instance: Instance) -> Document:
    return _with(document, sentence=document["sentence"] + "; ask somebody else")


# -- changes and their decisions --------------------------------------------------------------------------


@forgery
def without_a_change(document: Document, instance: Instance) -> Document | None:
    one = next((a for a in document["alternatives"] if a["least"]), None)
    if one is None:
        return None
    return _with(document, alternatives=[{"change": {}, "decision": one["decision"]}])


@forgery
def fewer_watts(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "power_w")) is None or one["change"]["power_w"] < 1.0:
        return None
    one["change"]["power_w"] *= 0.5
    return document


@forgery
def more_watts_proven(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "power_w")) is None or "power_w" not in one["least"]:
        return None
    one["change"]["power_w"] = one["change"]["power_w"] * 1.2 + 10.0
    one["least"]["power_w"] = one["change"]["power_w"]
    return document


@forgery
def a_better_bound_on_watts(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "power_w")) is None or "power_w" not in one["least"]:
        return None
    one["change"]["power_w"] = one["change"]["power_w"] * 1.2 + 10.0
    one["least"]["power_w"] = one["change"]["power_w"]
    for proof in one["proofs"]:
        proof["certificate"]["bound"] *= 1.3
    return document


@forgery
def fewer_gpus(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "gpus")) is None:
        return None
    ((pool, gpus),) = one["change"]["gpus"].items()
    one["change"]["gpus"] = {pool: gpus - 1} if gpus > 1 else {}
    return document


@forgery
def more_gpus_proven(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "gpus")) is None or "gpus" not in one["least"]:
        return None
    ((pool, gpus),) = one["change"]["gpus"].items()
    one["change"]["gpus"], one["least"]["gpus"] = {pool: gpus + 1}, gpus + 1
    return document


@forgery
def more_gpus_proven_by_a_proof_of_as_many(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "gpus")) is None or "gpus" not in one["least"]:
        return None
    ((pool, gpus),) = one["change"]["gpus"].items()
    one["change"]["gpus"], one["least"]["gpus"] = {pool: gpus + 1}, gpus + 1
    for proof in one["proofs"]:
        proof["change"]["gpus"] = {pool: gpus}
    return document


@forgery
def gpus_of_no_pool(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "gpus")) is None:
        return None
    one["change"]["gpus"] = {"H900": 1}
    return document


@forgery
def a_million_gpus(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "gpus")) is None:
        return None
    one["change"]["gpus"] = dict.fromkeys(one["change"]["gpus"], 1_000_000)
    return document


@forgery
def a_quota_of_nobody(document: Document, instance: Instance) -> Document | None:
    jobs = {job.name: job for job in instance.jobs}
    if not document["alternatives"] or jobs[document["job"]].tenant is not None:
        return None
    document["alternatives"][0]["change"]["tenant_gpus"] = 1
    return document


@forgery
def asks_for_more(document: Document, instance: Instance) -> Document | None:
    if not document["alternatives"]:
        return None
    document["alternatives"][0]["change"]["min_gpus"] = 4000
    return document


@forgery
def an_earlier_deadline(document: Document, instance: Instance) -> Document | None:
    if not document["alternatives"]:
        return None
    document["alternatives"][0]["change"]["deadline_s"] = 1e-3
    return document


@forgery
def a_smaller_size_than_needed(document: Document, instance: Instance) -> Document | None:
    if (one := _alternative(document, "min_gpus")) is None or one["change"]["min_gpus"] == 1:
        return None
    one["change"]["min_gpus"] = one["least"]["min_gpus"] = 1
    return document


@forgery
def proofs_of_another_round(document: Document, instance: Instance) -> Document | None:
    one = next((a for a in document["alternatives"] if "gpus" in a["least"] or "power_w" in a["least"]), None)
    if one is None:
        return None
    for proof in one["proofs"]:
        proof["round"] = "forced"
    return document


@forgery
def no_proofs(document: Document, instance: Instance) -> Document | None:
    one = next((a for a in document["alternatives"] if any(a["least"].values())), None)
    if one is None:
        return None
    one["proofs"] = []
    return document if any(v > 1e-3 * 500 for v in one["least"].values()) or "gpus" in one["least"] else None


@forgery
def proofs_without_prices(document: Document, instance: Instance) -> Document | None:
    one = next((a for a in document["alternatives"] if "gpus" in a["least"]), None)
    if one is None or not any(proof["certificate"]["prices"] for proof in one["proofs"][:1]):
        return None
    for proof in one["proofs"]:
        proof["certificate"] = {"prices": {}, "bound": 0.0}
    return document


@forgery
def prices_of_the_other_sign(document: Document, instance: Instance) -> Document | None:
    proofs = [proof for one in document["alternatives"] for proof in one["proofs"]]
    priced = next((proof for proof in proofs if proof["certificate"]["prices"]), None)
    if priced is None:
        return None
    prices = priced["certificate"]["prices"]
    priced["certificate"]["prices"] = {name: -price for name, price in prices.items()}
    return document


@forgery
def a_certificate_that_is_none(document: Document, instance: Instance) -> Document | None:
    proofs = [proof for one in document["alternatives"] for proof in one["proofs"]]
    if not proofs:
        return None
    proofs[0]["certificate"] = {"prices": [1, 2], "bound": "low"}
    return document


@forgery
def a_least_amount_of_nothing(document: Document, instance: Instance) -> Document | None:
    one = next((a for a in document["alternatives"] if not a["change"]["carbon_g"]), None)
    if one is None:
        return None
    one["least"]["carbon_g"] = 5.0
    return document


@forgery
def the_job_is_left_out(document: Document, instance: Instance) -> Document | None:
    if not document["alternatives"]:
        return None
    decision = document["alternatives"][0]["decision"]
    decision["jobs"] = [one for one in decision["jobs"] if one["job"] != document["job"]]
    return document


@forgery
def the_job_runs_twice(document: Document, instance: Instance) -> Document | None:
    if not document["alternatives"]:
        return None
    decision = document["alternatives"][0]["decision"]
    decision["jobs"] += [one for one in decision["jobs"] if one["job"] == document["job"]]
    return document


@forgery
def another_job_stops(document: Document, instance: Instance) -> Document | None:
    running = document["_running"]
    if not document["alternatives"] or not running:
        return None
    decision = document["alternatives"][0]["decision"]
    decision["jobs"] = [one for one in decision["jobs"] if one["job"] != running[0]]
    decision["waiting"] = [*decision["waiting"], running[0]]
    return document


@forgery
def on_gpus_that_there_are_not(document: Document, instance: Instance) -> Document | None:
    if not document["alternatives"]:
        return None
    for one in document["alternatives"][0]["decision"]["jobs"]:
        one["nodes"] = {"nowhere": list(range(one["gpus"]))}
    return document


# -- what it costs others ---------------------------------------------------------------------------------


def _cost(document: Document) -> Document | None:
    found: Document | None = document["cost"]
    return found


@forgery
def a_lower_cost(document: Document, instance: Instance) -> Document | None:
    if (cost := _cost(document)) is None or abs(cost["objective"]) < 1e-3:
        return None
    cost["objective"] *= 0.9
    return document


@forgery
def a_better_bound_on_the_cost(document: Document, instance: Instance) -> Document | None:
    if (cost := _cost(document)) is None or cost["bound"] is None or abs(cost["bound"]) < 1e-3:
        return None
    better = 1.1 if instance.objective in ("total-completion", "proportional", "makespan") else 0.9
    cost["bound"] = cost["certificate"]["bound"] = cost["bound"] * better
    return document


@forgery
def another_bound_than_the_certificate(document: Document, instance: Instance) -> Document | None:
    if (cost := _cost(document)) is None or cost["bound"] is None:
        return None
    cost["bound"] += 1.0
    return document


@forgery
def nobody_is_later(document: Document, instance: Instance) -> Document | None:
    if (cost := _cost(document)) is None or not cost["later"]:
        return None
    cost["later"] = cost["later"][1:]
    return document


@forgery
def somebody_else_is_later(document: Document, instance: Instance) -> Document | None:
    if (cost := _cost(document)) is None:
        return None
    cost["later"] = [*cost["later"], document["job"]] if document["job"] not in cost["later"] else ["x"]
    return document


@forgery
def a_smaller_weight(document: Document, instance: Instance) -> Document | None:
    own = next(job.weight for job in instance.jobs if job.name == document["job"])
    if (cost := _cost(document)) is None or cost["weight"] is None or cost["weight"] < 1.01 * own:
        return None
    cost["weight"] = (cost["weight"] + own) / 2
    return document


@forgery
def a_weight_where_none_is_proven(document: Document, instance: Instance) -> Document | None:
    if (cost := _cost(document)) is None or instance.objective not in ("work-value", "makespan", "max-min"):
        return None
    cost["weight"] = 2.0
    return document


@forgery
def it_waits_in_the_cost(document: Document, instance: Instance) -> Document | None:
    if (cost := _cost(document)) is None:
        return None
    cost["decision"] = {"jobs": [], "waiting": []}
    return document


@cache
def explained() -> list[tuple[Instance, Document, Document]]:
    """Rounds with a result and an explanation of each job that waits."""
    found = []
    for seed in SEEDS:
        instance = Instance.model_validate(random_round(random.Random(seed)))
        try:
            result = wattsched.solve(instance, gap=1e-6)
        except wattsched.InputError:
            continue
        for name in [] if result.decision is None else result.decision.waiting[:2]:
            explanation = wattsched.explain(instance, result, name)
            found.append(
                (instance, json.loads(result.model_dump_json()), json.loads(explanation.model_dump_json()))
            )
    return found


@pytest.mark.parametrize("name", FORGERIES)
def test_none_is_accepted(name: str) -> None:
    forged = 0
    for instance, result, explanation in explained():
        document = copy.deepcopy(explanation)
        document["_running"] = [one["job"] for one in result["decision"]["jobs"]]
        changed = FORGERIES[name](document, instance)
        if changed is None:
            continue
        document = changed
        document.pop("_running")
        forged += 1
        try:
            read = Explanation.model_validate(document)
        except ValidationError:
            continue
        assert verdict_on_explanation(instance, copy.deepcopy(result), read).faults, (name, explanation)
        if forged == MOST:
            break
    assert forged or len(SEEDS) < 60, "nothing of the kind could be forged"


def test_the_honest_ones_are() -> None:
    for instance, result, explanation in explained()[::4]:
        read = Explanation.model_validate(explanation)
        assert verdict_on_explanation(instance, copy.deepcopy(result), read).faults == []
