"""What docs/model.md (gap and termination, certificates) says of every answer, held against a brute force."""

import json
import os
import re

CASES, SEED = int(os.environ.get("PAGES_CASES", "0")), int(os.environ.get("PAGES_SEED", "0"))
TOLERANCE = 1e-9  # "up to 1e-9 of the terms"
GAPS = (1e-6, 0.0, 1e-4, 1e-9)
DECIDED = ("optimal", "feasible")


def way_of(seed, exact, heuristics, campaign_only=()):
    """Formulation, solver, gap and whether the solver is exact, in rotation."""
    ways = [*exact, *heuristics, *(campaign_only if CASES else ())]
    formulation, solver = ways[seed % len(ways)]
    return formulation, solver, GAPS[seed // len(ways) % len(GAPS)], (formulation, solver) not in heuristics


def examine_all(cases, examine):
    """Examines instances; `examine(seed)` returns the instance, how it was solved, and its faults."""
    wrong = []
    for seed in range(SEED, SEED + (CASES or cases)):
        instance, how, faults = examine(seed)
        if faults:
            wrong.append(f"seed {seed}, {how}: {'; '.join(faults)}\n{json.dumps(instance)}")
            print(wrong[-1], flush=True)
    assert not wrong, f"{len(wrong)} wrong answers:\n" + "\n".join(wrong[:5])


def answer(solve, model, refused, **request):
    """The result of a call, or None and what is wrong with that; `refused` files raise an `InputError`."""
    try:
        return solve(model, **request), []
    except Exception as error:
        right = refused and type(error).__name__ == "InputError"
        return None, [] if right else [f"{type(error).__name__}: {error}"]


def answer_faults(result, best, strict, sense="min", exact=True, terms=1e-9):
    """Sentences on what is wrong with a result.

    `best` is the value of the best decision that keeps every limit up to its tolerance, `strict` that without
    tolerances; None where there is no such decision. Answers between the two are right. `terms` is the
    size of what the value is a sum of.
    """
    reason, value, faults = result.termination.reason, result.objective, []
    sign = 1 if sense == "min" else -1
    # "a decision that failed its check, a bound that is disproved": there should be none
    faults += [f"fault of the solver: {text}" for text in result.faults]
    if reason == "error":
        faults.append(f"error: {result.termination.detail}")
    # "`infeasible`: no decision satisfies the instance"
    if reason == "infeasible" and strict is not None:
        faults.append(f"infeasible, but {float(strict)!r} can be had: {result.termination.detail}")
    if reason in DECIDED and best is None:
        return [*faults, f"{reason} with {value!r}, but there is no decision"]
    if reason in DECIDED and sign * (value - float(best)) < -TOLERANCE * max(terms, abs(value)):
        faults.append(f"{value!r} is better than any decision, {float(best)!r}")
    # "`optimal`: a checked decision, and the gap is at most the one asked for"
    asked = result.gap_asked * abs(value or 0.0) + TOLERANCE * max(terms, abs(value or 0.0))
    if reason == "optimal" and strict is not None and sign * (value - float(strict)) > asked:
        faults.append(f"optimal with {value!r}, but {float(strict)!r} can be had")
    # "Exact solvers find the optimum and prove infeasibility, given enough time."
    if exact and reason in ("feasible", "no_solution") and result.gap_asked >= 1e-6:
        faults.append(f"{reason}, {value!r} with the bound {result.bound!r}, of {best and float(best)!r}")
    # "The bound is below the objective for `min`, above for `max`": of decisions that keep the limits
    certified = result.certificate.bound if result.certificate else None
    for name, bound in (("bound", result.bound), ("certificate.bound", certified)):
        if bound is None or strict is None or reason == "infeasible":
            continue
        if sign * (bound - float(strict)) > TOLERANCE * max(terms, abs(bound)):
            faults.append(f"{name} {bound!r} is beyond the best decision, {float(strict)!r}")
    return faults


def shortage_faults(detail, relaxed, possible):
    """Whether what an infeasible answer says of a limit or job holds "if no other limit is changed".

    `relaxed(name, amount)` is the instance with a little less than so much more of a limit, and with
    None for the amount that without the other jobs' limits; None where the name is not known.
    """
    claims = [(n, float(x)) for n, x in re.findall(r"(\S+) is short by at least ([-+.\de]+)", detail)]
    claims += [(job, None) for job in re.findall(r"job '(\w+)' (?:can|has) n", detail)]
    claims += [(job, None) for job in re.findall(r"job '(\w+)' (?:cannot|can do)", detail)]
    if not claims:
        return [f"infeasible, and nothing is said of limits and jobs: {detail}"]
    return [f"infeasible, {n} {x}: not so" for n, x in claims if possible(relaxed(n, x))]


def differs(stated, right, least=0.0):
    """Whether two numbers differ by more than rounding of their terms."""
    return abs(float(stated) - float(right)) > TOLERANCE * max(least, abs(float(right)))
