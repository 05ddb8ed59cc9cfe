"""Answers, checks and frontiers of `shifting` against the brute force that was written from its page."""

import re
from collections import Counter
from functools import partial
from itertools import pairwise
from math import ceil

import pytest

import wattsched
from tests.pages import pages_answers as pages
from tests.pages import pages_shifting as brute
from tests.pages import shifting_cases
from tests.strategies.effort import examples
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.solving.tradeoffs import verdict_on_pareto

EXACT = [(f, s) for s in ("auto", "highs", "cpsat", "price") for f in ("schedules", "time-indexed")]
HEURISTICS = [("schedules", "greedy"), ("schedules", "carbon-blind")]
CAMPAIGN_ONLY = [("time-indexed", "pyomo:highs"), ("schedules", "pyomo:highs")]


def examine(seed, negative=False):
    instance, rng = shifting_cases.random_case(seed, bool(pages.CASES) and seed % 2 == 0, negative)
    formulation, solver, gap, exact = pages.way_of(seed, EXACT, HEURISTICS, CAMPAIGN_ONLY)
    how = f"--formulation {formulation} --solver {solver} --gap {gap}"
    model = ShiftingInstance.model_validate(instance)
    request = {"formulation": formulation, "solver": solver, "gap": gap, "time_limit": 60}
    result, faults = pages.answer(wattsched.solve, model, brute.refused(instance), **request)
    if result is None:
        return instance, how, faults
    answers = brute.decisions(instance)
    best, strict = brute.optimum(instance, answers)
    # Money that cancels to nothing has no gap in parts of it.
    faults += pages.answer_faults(result, best, strict, exact=exact and not (negative and best == 0))
    faults += [f"check: {text}" for text in wattsched.check(model, result).faults]
    if result.termination.reason == "infeasible":
        # "the answer then names the job, or what is missing", "says how much each budget lacks at least if no
        # other limit is changed, or which pools are too small"
        faults += infeasible_faults(instance, result.termination.detail)
    if result.decision is not None:
        found = brute.totals_of(instance, result.decision.model_dump())
        faults += totals_faults(result.totals, *found) if found else ["the decision is no schedule"]
        faults += check_faults(instance, model, type(result.decision), rng)
    return instance, how, faults


def infeasible_faults(instance, detail):
    idle = re.findall(r"power_w(?::(\w+))? is short by ([\d.e+-]+) W in slot (\d+), though all GPUs", detail)
    faults = [f"{text}: not so" for text in map(partial(idle_faults, instance), idle) if text]
    # "Other small infeasible instances are proven infeasible by their program": of caps and progress
    limits = "power_w" in instance or "power_domains" in instance
    limits = limits or any(job.get("least_progress") for job in instance["jobs"])
    by_program = limits and re.fullmatch(r"\S+ proved that no decision exists", detail)
    if by_program or (idle and "at least" not in detail):
        return faults
    return faults + pages.shortage_faults(detail, partial(relaxed, instance), possible)


def idle_faults(instance, claim):
    """What is wrong where a cap is said to be below the draw of idle GPUs: the spare watts are too few."""
    name, watts, slot = claim
    cap = instance["power_domains"][name] if name else {"power_w": instance["power_w"]}
    alone = {key: value for key, value in instance.items() if key not in ("power_w", "power_domains")}
    alone |= {"power_domains": {"d": {"pools": list(instance["pools"])} | cap}}
    (_, spare) = brute.spare_watts(alone)[0]
    short = -float(spare[int(slot)])
    return f"{claim}, but {short} W" if abs(float(watts) - short) > 1e-5 * short else ""


def possible(relaxation):
    instance, more = relaxation
    return brute.optimum(instance, brute.decisions(instance, more))[1] is not None


def relaxed(instance, name, amount):
    """The instance with almost so much more of one limit, or with one job alone; and more GPUs of a slot."""
    if amount is None:
        # "if a job would be late ... even if every job could have all GPUs"
        return instance | {
            "jobs": [job for job in instance["jobs"] if job["name"] == name],
            "budgets": {},
        }, {}
    if name.startswith("power_w"):
        return higher_cap(instance, name, amount * (1 - 1e-5)), {}
    if "@" in name:
        pool, slot = name.removeprefix("gpus:").split("@")
        return instance, {(int(slot), pool): ceil(amount - 1e-6) - 1}
    budgets = instance["budgets"]
    return instance | {"budgets": budgets | {name: budgets[name] + amount * (1 - 1e-5)}}, {}


def higher_cap(instance, name, watts):
    """The instance with more watts under one cap, in the slot that the name ends with or in all."""
    name, _, slot = name.partition("@")
    domain = name.partition(":")[2]
    cap = instance["power_domains"][domain] if domain else instance
    per_slot = cap["power_w"]
    per_slot = list(per_slot) if isinstance(per_slot, list) else [per_slot] * instance["slots"]
    per_slot = [cap_w + watts * (slot in ("", str(number))) for number, cap_w in enumerate(per_slot)]
    if not domain:
        return instance | {"power_w": per_slot}
    domains = instance["power_domains"]
    return instance | {"power_domains": domains | {domain: cap | {"power_w": per_slot}}}


def totals_faults(stated, totals, chosen):
    counts = {"unfinished": sum(not s.finished for s in chosen), "restarts": sum(s.restarts for s in chosen)}
    right = counts | dict(zip(brute.CRITERIA, map(float, totals), strict=True))
    named = [(k, x) for k, x in right.items() if k in stated and pages.differs(stated[k], x)]
    return [f"totals.{k} {stated[k]!r} is {x!r}" for k, x in named]


def check_faults(instance, model, decision_type, rng):
    """Whether `check` accepts just those of some random decisions that keep all rules of the page."""
    jobs = instance["jobs"]
    # "A job can restart only in a slot that is longer than its `restart_s`": some restart in shorter ones
    lax = [{"least_progress": 0.0} | rng.choice([{}, {"restart_s": 0.0}]) for _ in jobs]
    choices = [brute.schedules(instance, job | fields) for job, fields in zip(jobs, lax, strict=True)]
    own = [{s.rows: s for s in brute.schedules(instance, job)} for job in jobs]
    faults = []
    for _ in range(3 if all(choices) else 0):
        chosen = [rng.choice(schedules) for schedules in choices]
        document = brute.decision_of(instance, chosen)
        kept = [found.get(s.rows) for found, s in zip(own, chosen, strict=True)]
        chosen = [s or other for s, other in zip(kept, chosen, strict=True)]
        used = Counter()
        for schedule in chosen:
            used.update({(t, held[0]): held[1] for t, held in enumerate(schedule.gpus) if held})
        totals = tuple(map(sum, zip(brute.standing_costs(instance), *(s.costs for s in chosen), strict=True)))
        right = brute.within_budgets(instance, totals) and brute.keeps_caps(instance, chosen)
        right = right and all(kept)
        right = right and all(n <= instance["pools"][pool]["gpus"] for (_, pool), n in used.items())
        verdict = wattsched.check(model, decision_type.model_validate(document))
        if right == bool(verdict.faults):
            faults.append(f"check of {document} says {verdict.faults}")
        elif right:
            faults += totals_faults(verdict.report.totals, totals, chosen)
    return faults


def test_answers_are_those_of_the_page():
    pages.examine_all(examples(50), examine)


def test_answers_at_negative_prices_are_those_of_the_page():
    pages.examine_all(examples(150), partial(examine, negative=True))


def examine_frontier(seed, negative=False):
    instance, _ = shifting_cases.random_case(seed, bool(pages.CASES) and seed % 2 == 0, negative)
    points, gap = (2, 3, 5)[seed % 3], (0.0, 1e-6)[seed // 3 % 2]
    formulation = ("schedules", "time-indexed")[seed // 6 % 2]
    how = f"--frontier {points} --formulation {formulation} --gap {gap}"
    no_criterion = instance["objective"] == "mean-completion" and "carbon_g_per_kwh" not in instance
    if no_criterion or brute.refused(instance):
        return instance, how, []
    model = ShiftingInstance.model_validate(instance)
    request = {"gap": gap, "time_limit": 30, "formulation": formulation}
    found, faults = pages.answer(partial(wattsched.pareto, points=points), model, False, **request)
    if found is None:
        return instance, how, faults
    # "from the soonest completion to the least carbon, energy or money": that of the objective
    criterion = brute.CRITERION_OF[found.tradeoff]
    faults += [f"against {found.tradeoff}"] * (
        instance["objective"] not in ("mean-completion", found.tradeoff)
    )
    # The page does not say which budgets count: those of both criteria do not.
    without = (criterion, "average_completion_s")
    front = brute.frontier(instance, brute.decisions(instance), found.tradeoff, without)
    got = [(p.result.totals["average_completion_s"], p.result.totals[criterion]) for p in found.points]
    faults += frontier_faults(got, [tuple(map(float, point)) for point in front], gap, points)
    # "`result` is the second solve with its limit": on what that one does not minimise
    for p, amounts in zip(found.points, got, strict=True):
        limited = amounts[1 if p.result.objective_name == "mean-completion" else 0]
        faults += [f"{amounts} is above {p.limit}"] * bool(p.limit and limited > above(p.limit, 1e-6))
    faults += verdict_on_pareto(model, found).faults
    return instance, how, faults


def above(amount, part):
    return amount + part * abs(amount)


def frontier_faults(got, front, gap, points):
    if not got or not front:
        return [f"{len(got)} points of {len(front)}"] * (bool(got) != bool(front))
    # "`--frontier N` finds N decisions on the Pareto frontier": fewer where limits have the same decision
    faults, near = ["more points than asked for"] * (len(got) > points), gap + 1e-9
    for point in got:
        no_worse = [x for x in front if x[0] <= point[0] * (1 + 1e-13) and x[1] <= above(point[1], 1e-9)]
        if not any(x[0] <= point[0] * (1 + 1e-9) and x[1] <= above(point[1], 1e-9) for x in front):
            faults.append(f"{point} is better than any decision")
        # "`points`: From the soonest completion to the least of the other criterion, none dominated" (schema)
        better = [x for x in no_worse if x[0] < point[0] * (1 - near) or x[1] < above(point[1], -near)]
        faults += [f"{point} is dominated by {x}" for x in better[:1]]
    # "from the least average completion time to the least carbon"
    for end, criterion in ((0, 0), (-1, 1)):
        if got[end][criterion] > above(front[end][criterion], near) + 1e-12:
            faults.append(f"the end {got[end]} is not {front[end]}")
    # "each is later than the one before and has less of the total"
    pairs = pairwise(got)
    return faults + [f"{b} after {a}" for a, b in pairs if not (a[0] < b[0] and a[1] > b[1])]


@pytest.mark.slow
@pytest.mark.parametrize("negative", [False, True])
def test_frontiers_are_those_of_the_page(negative):
    pages.examine_all(25, partial(examine_frontier, negative=negative))
