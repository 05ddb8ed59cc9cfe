"""Random rounds of `sizing` against the brute force that was written from the pages.

PAGES_CASES=10000 PAGES_SEED=7 pytest tests/pages/test_pages_sizing.py is a campaign.
"""

import json
import math
import os
import random

import pytest

import wattsched
from tests.pages.pages_cluster import UnclearError
from tests.pages.pages_sizing import Round
from tests.pages.pages_sizing_search import Search
from tests.pages.sizing_rounds import a_round, at_a_negative_price, tighten
from tests.strategies.effort import examples

CASES, SEED = int(os.environ.get("PAGES_CASES", examples(150))), int(os.environ.get("PAGES_SEED", "0"))
WAYS = (
    ("mckp", "auto"),
    ("mckp", "auto"),
    ("mckp", "highs"),
    ("mckp", "price"),
    ("mckp", "cpsat"),
    ("assignment", "highs"),
    ("assignment", "auto"),
    ("assignment", "cpsat"),
    ("intervals", "cpsat"),
    ("mckp", "pyomo:highs"),
)


def pools_of(document: dict) -> dict[str, str]:
    return Round(document).pool_of


def uses_of(document: dict, r: random.Random) -> dict[str, float]:
    """What the budgets of a document are used by a random decision."""
    round_ = Round(document)
    chosen = [r.choice(choices) for choices in round_.choices.values() if choices]
    used = [row[2] + sum(c.uses[i] for c in chosen) for i, row in enumerate(round_.limits)]
    names = iter(used[i] for i, row in enumerate(round_.limits) if row[0] == "energy")
    found = {}
    for name in document["budgets"]:
        if name in ("energy_j", "carbon_g"):
            found[name] = next(names)
        elif name == "power_w":
            found[name] = used[0]
        elif name == "least_goodput":
            found[name] = next(-used[i] for i, row in enumerate(round_.limits) if row[0] == "goodput")
    return found


def a_case(seed: int, *, negative: bool = False) -> dict:
    document = a_round(seed, pools_of)
    document = at_a_negative_price(seed, document) if negative else document
    try:
        return tighten(seed, document, uses_of) if seed % 3 == 0 else document
    except UnclearError:
        return document


def judge(document: dict, formulation: str = "mckp", solver: str = "auto", prove: float = 0.2) -> list[str]:
    """What is wrong with the answer to an instance; those that are refused or unclear have a line on it."""
    try:
        instance = wattsched.Instance.model_validate(document)
        result = wattsched.solve(instance, formulation=formulation, solver=solver, gap=0.0, prove=prove)
    except (wattsched.InputError, ValueError) as error:
        return [f"refused: {str(error)[:300]}"]
    if result.unsupported:
        return [f"unsupported: {result.unsupported}"]
    try:
        round_ = Round(document)
        search = Search(round_)
        best = search.best()
        if any(not rows for name, rows in round_.own.items() if name not in round_.dropped):
            # In a file this "is an error"; of an `Instance` it is infeasible, too.
            return [] if result.termination.reason == "infeasible" else ["a job that must run cannot"]
        return compare(document, instance, result, round_, search, best)
    except UnclearError:
        return ["unclear"]


def compare(document, instance, result, round_, search, best) -> list[str]:
    wrong = [f"result.faults: {fault}" for fault in result.faults]
    reason = result.termination.reason
    verdict = wattsched.check(instance, result)
    wrong += [f"check: {fault}" for fault in verdict.faults]
    sign = -1.0 if result.sense == "max" else 1.0
    if reason == "infeasible":
        return wrong + (
            [f"infeasible, but {sign * best.strict} is possible"] if best.strict is not None else []
        )
    if reason not in ("optimal", "feasible"):
        return [*wrong, f"{reason}: {result.termination.detail}, but the best is {best.strict}"]
    if best.loose is None:
        return [*wrong, f"{reason} {result.objective}, but nothing is possible"]
    if {*result.dropped} != round_.dropped:
        wrong.append(f"dropped: {[*result.dropped]}, not {sorted(round_.dropped)}")
    decision = json.loads(result.model_dump_json())["decision"]
    totals = result.totals if isinstance(result.totals, dict) else dict(result.totals)
    faults, value = search.faults(decision, totals)
    wrong += [f"decision: {fault}" for fault in faults]
    cost = sign * result.objective
    # "Rounding is ... 1e-12 of the largest cost otherwise"
    dearest = max((round_.change_cost(name) for name in round_.jobs), default=0.0)
    tolerance = 1e-6 * max(abs(cost), abs(best.strict or 0.0)) + 1e-12 * (1.0 + dearest)
    if not faults and not math.isclose(value, cost, rel_tol=1e-7, abs_tol=tolerance * 1e-3):
        wrong.append(f"objective: {result.objective}, but the decision is worth {sign * value}")
    if cost < best.loose - tolerance:
        wrong.append(f"better than possible: {result.objective}, but the best is {sign * best.loose}")
    if best.strict is None:
        return wrong
    unmoved = best.unmoved if best.unmoved is not None else best.strict
    # "With sets of jobs that share GPUs, and with nodes that sleep, moves are counted and paid, and not
    # looked for."
    if (document.get("sets") or round_.sleepers) and totals.get("change_cost"):
        unmoved = -math.inf
    bound = sign * result.bound if result.bound is not None else -math.inf
    if bound > best.strict + tolerance:
        wrong.append(f"bound: {result.bound} is beyond the best, {sign * best.strict}")
    if reason == "optimal" and cost > best.strict + tolerance:
        wrong.append(f"optimal {result.objective}, but the best is {sign * best.strict}")
    if reason == "feasible" and cost > best.strict + tolerance and unmoved >= best.strict - tolerance:
        wrong.append(
            f"feasible {result.objective} ({result.termination.limit}), the best is {sign * best.strict}"
        )
    elif reason == "feasible" and unmoved >= best.strict - tolerance and bound < unmoved - tolerance:
        wrong.append(f"not proven: {result.objective}, bound {result.bound} ({result.termination.limit})")
    return wrong


# Seeds whose answers were wrong once: coefficients that HiGHS dropped, presolve that lost points whose limits
# are met exactly, a job that moved though another one moves for nothing, limits of which idle nodes leave the
# last digits alone.
FOUND = (7002365, 7004859, 12004129, 13001409, 13006020, 14006475, 21005190, 52003221)


@pytest.mark.parametrize("seed", FOUND)
def test_answers_that_were_wrong_are_right(seed: int) -> None:
    assert judge(a_case(seed), *WAYS[seed % len(WAYS)]) == []


def cases() -> range:
    return range(SEED * 1_000_000, SEED * 1_000_000 + CASES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("negative", [False, True])
def test_answers_are_those_of_the_pages(negative: bool):
    clear, faults = 0, list[str]()
    for seed in cases():
        document = a_case(seed, negative=negative)
        formulation, solver = WAYS[seed % len(WAYS)]
        wrong = judge(document, formulation, solver)
        if wrong and wrong[0].startswith(("refused", "unclear", "unsupported")):
            continue
        clear += 1
        faults += [f"seed {seed}, {formulation}, {solver}: {wrong}\n{json.dumps(document)}"] * bool(wrong)
    assert not faults, f"{len(faults)} wrong answers:\n" + "\n".join(faults[:5])
    assert clear > 0.8 * CASES
