"""Answers and checks of `sharing` against the brute force that was written from its page."""

from functools import partial
from math import ceil

import wattsched
from tests.pages import pages_answers as pages
from tests.pages import pages_sharing as brute
from tests.strategies.effort import examples
from wattsched.instances.sharing.instance import SharingInstance

EXACT = [("patterns", solver) for solver in ("auto", "highs", "cpsat", "price")] + [("matching", "auto")]
HEURISTICS = [("patterns", rule) for rule in ("greedy", "eaco", "fifo", "fifo-packed", "gandiva")]
CAMPAIGN_ONLY = [("patterns", "pyomo:highs")]


def examine(seed):
    formulation, solver, gap, exact = pages.way_of(seed, EXACT, HEURISTICS, CAMPAIGN_ONLY)
    instance, rng = brute.random_case(seed, 5 if pages.CASES else 4, pairs=formulation == "matching")
    how = f"--formulation {formulation} --solver {solver} --gap {gap}"
    model = SharingInstance.model_validate(instance)
    request = {"formulation": formulation, "solver": solver, "gap": gap, "time_limit": 60}
    result, faults = pages.answer(wattsched.solve, model, brute.refused(instance), **request)
    if result is None:
        return instance, how, faults
    strict = brute.without_tolerances(instance)
    sense = brute.SENSE[instance["objective"]]
    faults += pages.answer_faults(result, brute.optimum(instance), brute.optimum(strict), sense, exact)
    faults += [f"check: {text}" for text in wattsched.check(model, result).faults]
    if result.termination.reason == "infeasible":
        # "the answer names the jobs that can neither run nor wait, or says how much budgets, pools and unit
        # types lack at least if no other limit is changed"
        detail = result.termination.detail
        faults += pages.shortage_faults(
            detail, partial(relaxed, strict), lambda i: brute.optimum(i) is not None
        )
    if result.decision is not None:
        faults += report_faults(instance, result.decision.model_dump(), result.objective, result.totals)
        faults += check_faults(instance, strict, model, type(result.decision), rng)
    return instance, how, faults


def relaxed(instance, name, amount):
    """The instance with almost so much more of one limit, or with the limits of one job alone."""
    if amount is None:
        jobs = [
            job if job["name"] == name else job | {"can_wait": True, "deadline_s": 1e12}
            for job in instance["jobs"]
        ]
        return instance | {"jobs": jobs, "budgets": {}}
    of = name.partition(":")[2]
    if not of:
        budgets = instance["budgets"]
        return instance | {"budgets": budgets | {name: budgets[name] + amount * (1 - 1e-5)}}
    more = ceil(amount - 1e-6) - 1
    if of in [pool["name"] for pool in instance.get("pools", [])]:
        return instance | {"pools": [pool | {"gpus": pool["gpus"] + more} for pool in instance["pools"]]}
    types = [u | {"count": u["count"] + more * (u["name"] == of)} for u in instance["unit_types"]]
    return instance | {"unit_types": types}


def report_faults(instance, document, objective, totals):
    """Whether objective and totals of a decision are those of the page."""
    found = brute.evaluate_document(instance, document)
    if found is None:
        return [f"the page forbids {document}"]
    faults = [f"{document} is worth {found[0]!r}, not {objective!r}"] * pages.differs(objective, found[0])
    named = [(k, x) for k, x in found[1].items() if k in totals and pages.differs(totals[k], x, 1e-3)]
    return faults + [f"totals.{k} {totals[k]!r} is {x!r}" for k, x in named]


def check_faults(instance, strict, model, decision_type, rng):
    """Whether `check` accepts just those of some random decisions that keep all rules of the page."""
    decisions, faults = list(brute.decisions(instance)), []
    for sets, waiting in rng.sample(decisions, min(4, len(decisions))):
        right = brute.evaluate(instance, sets, waiting) is not None
        if right != (brute.evaluate(strict, sets, waiting) is not None):
            continue  # within the tolerances
        document = brute.document_of(instance, sets, waiting)
        verdict = wattsched.check(model, decision_type.model_validate(document))
        if right == bool(verdict.faults):
            faults.append(f"check of {document} says {verdict.faults}")
        elif right:
            faults += report_faults(instance, document, verdict.report.objective, verdict.report.totals)
    return faults


def test_answers_are_those_of_the_page():
    pages.examine_all(examples(60), examine)
