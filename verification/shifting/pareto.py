"""Between average completion time and another criterion: the instances of Pareto points, and their claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.claims import WITHOUT_DECISION
from wattsched.verification.report import ROUNDING
from wattsched.verification.shifting.checker import BUDGETS, CRITERIA
from wattsched.verification.verdict import Rules, Verdict, check_result

TOTALS = {name: BUDGETS[row] for name, row in CRITERIA.items()}
"""Criterion to the name of its budget and total."""
FORECASTS = {"carbon": "carbon_g_per_kwh", "money": "price_per_kwh"}
NOTHING = 1e-12
"""Amount that counts as nothing, relative to the largest total of a frontier: the rounding of sums."""


def require_forecast(instance: ShiftingInstance, against: str) -> None:
    """Refuse a criterion that the instance has no forecast of; a ValueError names the forecast."""
    forecast = FORECASTS.get(against)
    if forecast is not None and getattr(instance, forecast) is None:
        raise ValueError(f"frontier: completion against {against} needs the forecast '{forecast}'")


def other_than(objective: str, against: str) -> str:
    """Return the criterion of a frontier that the objective does not minimise."""
    return against if objective == "mean-completion" else "mean-completion"


def bounded(
    instance: ShiftingInstance, objective: str, against: str, limit: float | None
) -> ShiftingInstance:
    """Return the instance of a point: with an objective, and a limit on the other criterion only."""
    limits = {"average_completion_s": None, TOTALS[against]: None}
    budgets = instance.budgets.model_copy(update=limits | {TOTALS[other_than(objective, against)]: limit})
    return instance.model_copy(update={"objective": objective, "budgets": budgets})


def is_more(value: float, other: float, largest: float) -> bool:
    """True if a total exceeds another by more than rounding; `largest` is the largest size of a total."""
    return value > other + ROUNDING * abs(other) + NOTHING * largest


def check_pareto(
    rules: Rules[Any, Any],
    instance: ShiftingInstance,
    frontier: dict[str, Any],
    require_gap: float | None = None,
) -> Verdict:
    """Check a Pareto result: decisions, claims and order, and that it ends where nothing is less.

    That no decision dominates a point, and that none is beyond the ends, rests on the solver's claim
    where the results that prove it are missing; with `require_gap` that is a fault.

    Parameters
    ----------
    frontier : dict
        Parsed ``wattsched-frontier/1``, free of faults in its fields.
    require_gap : float, optional
        Gap to which every point has to be proven.
    """
    against, faults, claims = frontier["tradeoff"], list[str](), list[bool]()
    require_forecast(instance, against)
    if frontier["instance"] != instance.name:
        faults.append(f"instance: the frontier is of '{frontier['instance']}', not of '{instance.name}'")
    if not frontier["points"]:
        reason = "" if frontier["termination"] is None else frontier["termination"]["reason"]
        if reason not in WITHOUT_DECISION or require_gap is not None:
            faults.append("points: there are none, and so nothing is proven")
        claims.append(reason == "infeasible")
    least: dict[str, float] = {}

    def totals_of(where: str, result: dict[str, Any], limit: float | None) -> Mapping[str, float]:
        """Return the recomputed totals of a result; without a limit its objective is a minimum."""
        objective = result["objective_name"]
        if objective not in ("mean-completion", against):
            faults.append(f"{where}: minimises '{objective}', which is no end of this frontier")
            return {}
        verdict = check_result(rules, bounded(instance, objective, against, limit), result)
        verdict = verdict.requiring(require_gap)
        claims.append(verdict.claimed)
        faults.extend(f"{where}.{fault}" for fault in verdict.faults)
        if result["decision"] is None:
            faults.append(f"{where}: has no decision")
        elif limit is None and TOTALS[objective] in verdict.totals:
            least.setdefault(objective, verdict.totals[TOTALS[objective]])
        return verdict.totals

    ends = [totals_of(f"ends[{k}]", end, None) for k, end in enumerate(frontier["ends"])]
    points = [totals_of(f"points[{k}]", p["result"], p["limit"]) for k, p in enumerate(frontier["points"])]
    before = [
        p["before"] and totals_of(f"points[{k}].before", p["before"], p["before_limit"])
        for k, p in enumerate(frontier["points"])
    ]
    if faults or not points:
        return Verdict(faults, claimed=any(claims))
    criteria = ("mean-completion", against)
    largest = {name: max(abs(totals[TOTALS[name]]) for totals in [*ends, *points]) for name in criteria}
    amounts = [{name: totals[TOTALS[name]] for name in criteria} for totals in points]
    first_and_last = (0, len(points) - 1)
    faults += _order_faults(amounts, against, largest)
    unproven = []
    for criterion, k in zip(criteria, first_and_last, strict=True):
        amount, total = amounts[k][criterion], TOTALS[criterion]
        if criterion not in least:
            unproven.append(f"ends: nothing shows the least {total}")
        elif is_more(amount, least[criterion], largest[criterion]):
            detail = f"its {total} is {amount:.12g}, the least is {least[criterion]:.12g}"
            faults.append(f"points[{k}]: is no end of the frontier: {detail}")
    for k, (point, first) in enumerate(zip(frontier["points"], before, strict=True)):
        other = other_than(point["result"]["objective_name"], against)
        minima = least if first is None else {other: first[TOTALS[other]]}
        if not _is_undominated(point, amounts[k], other, minima, largest):
            fault = f"points[{k}]: nothing shows that no decision dominates it"
            (unproven if first is None else faults).append(fault)
    faults += unproven if require_gap is not None else []
    return Verdict(faults, claimed=any(claims) or bool(unproven))


def _is_undominated(
    point: dict[str, Any],
    amounts: Mapping[str, float],
    other: str,
    minima: Mapping[str, float],
    largest: Mapping[str, float],
) -> bool:
    """True if the results prove that no decision dominates a point.

    Parameters
    ----------
    point : dict
        Of the frontier's file.
    amounts, largest : mappings of str to float
        By criterion, the point's totals, and the largest size of a total in the frontier.
    other : str
        The criterion that the point's result does not minimise.
    minima : mapping of str to float
        Proven minima of the criteria; with a result ``before``, that of `other` under its ``before_limit``.
    """

    def equal(value: float, reference: float, name: str) -> bool:
        return not is_more(value, reference, largest[name]) and not is_more(reference, value, largest[name])

    if minima.keys() == amounts.keys() and all(equal(amounts[name], minima[name], name) for name in minima):
        return True
    objective, limit, before = point["result"]["objective_name"], point["limit"], point["before"]
    if before is not None and before["objective_name"] != other:
        return False
    before_limit = amounts[objective] if point["before_limit"] is None else point["before_limit"]
    return (
        limit is not None
        and other in minima
        and equal(limit, minima[other], other)
        and not is_more(amounts[other], limit, largest[other])
        and not is_more(amounts[objective], before_limit, largest[objective])
    )


def _order_faults(
    amounts: Sequence[Mapping[str, float]], against: str, largest: Mapping[str, float]
) -> Iterator[str]:
    """Yield a fault for points that do not complete later, with less of `against`, than the one before."""
    for number, (one, later) in enumerate(pairwise(amounts), start=1):
        if not is_more(later["mean-completion"], one["mean-completion"], largest["mean-completion"]) or (
            not is_more(one[against], later[against], largest[against])
        ):
            yield f"points[{number}]: is no later with less {TOTALS[against]} than the one before"
