"""Answers and checks of `placement` against the brute force that was written from its page."""

import wattsched
from tests.pages import pages_answers as pages
from tests.pages import pages_placement as brute
from tests.strategies.effort import examples
from wattsched.instances.placement.instance import PlacementInstance

EXACT = [(f, s) for s in ("auto", "highs", "price") for f in ("patterns", "assignment")] + [
    ("patterns", "cpsat")
]
RULES = (
    "greedy",
    "pwr+fgd",
    "fgd",
    "pwr",
    "best-fit",
    "dot-product",
    "gpu-packing",
    "gpu-clustering",
    "random",
)
HEURISTICS = [("patterns", rule) for rule in RULES]
CAMPAIGN_ONLY = [("assignment", "cpsat"), ("assignment", "pyomo:highs"), ("patterns", "pyomo:highs")]


def examine(seed):
    instance, rng = brute.random_case(seed, 5 if pages.CASES else 4)
    formulation, solver, gap, exact = pages.way_of(seed, EXACT, HEURISTICS, CAMPAIGN_ONLY)
    how = f"--formulation {formulation} --solver {solver} --gap {gap}"
    model = PlacementInstance.model_validate(instance)
    request = {"formulation": formulation, "solver": solver, "gap": gap, "time_limit": 60}
    result, faults = pages.answer(wattsched.solve, model, False, **request)
    if result is None:
        return instance, how, faults
    best = brute.optimum(instance)
    faults += pages.answer_faults(result, best, best, exact=exact, terms=brute.terms(instance))
    faults += [f"check: {text}" for text in wattsched.check(model, result).faults]
    if result.decision is not None:
        value = brute.evaluate(instance, result.decision.model_dump())
        if value is None:
            faults.append("the page forbids the decision")
        elif pages.differs(result.objective, value):
            faults.append(f"the decision is worth {float(value)!r}, not {result.objective!r}")
        else:
            totals = brute.totals(instance, result.decision.model_dump())
            named = [(k, float(x)) for k, x in totals.items() if pages.differs(result.totals[k], x, 1.0)]
            faults += [f"totals.{k} {result.totals[k]!r} is {x!r}" for k, x in named]
        faults += check_faults(instance, model, type(result.decision), rng)
    return instance, how, faults


def check_faults(instance, model, decision_type, rng):
    """Whether `check` accepts just those of some random decisions that keep all rules of the page."""
    faults = []
    for _ in range(4):
        document = brute.random_decision(rng, instance)
        value = brute.evaluate(instance, document)
        verdict = wattsched.check(model, decision_type.model_validate(document))
        if (value is None) != bool(verdict.faults):
            faults.append(f"check of {document} says {verdict.faults}")
        elif value is not None and pages.differs(verdict.report.objective, value):
            faults.append(f"{document} is worth {float(value)!r}, not {verdict.report.objective!r}")
    return faults


def test_answers_are_those_of_the_page():
    pages.examine_all(examples(45), examine)
