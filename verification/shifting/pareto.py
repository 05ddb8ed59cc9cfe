"""Between average completion time and another criterion: the instances of Pareto points, and their claims."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.claims import WITHOUT_DECISION, Rules, Verdict, check_result
from wattsched.verification.shifting.outcomes import BUDGETS, CRITERIA

TOTALS = {name: BUDGETS[row] for name, row in CRITERIA.items() if name != "mean-completion"}
"""Criterion to the name of its budget and total."""
FORECASTS = {"carbon": "carbon_g_per_kwh", "money": "price_per_kwh"}


def require_forecast(instance: ShiftingInstance, against: str) -> None:
    """Refuse a criterion that the instance has no forecast of.

    Raises
    ------
    ValueError
        Which names the forecast.
    """
    forecast = FORECASTS.get(against)
    if forecast is not None and getattr(instance, forecast) is None:
        raise ValueError(f"frontier: completion against {against} needs the forecast '{forecast}'")


def bounded(
    instance: ShiftingInstance, objective: str, against: str, limit: float | None
) -> ShiftingInstance:
    """The instance of a point: another objective, and a limit on the criterion instead of both budgets."""
    budgets = instance.budgets.model_copy(update={"average_completion_s": None, TOTALS[against]: limit})
    return instance.model_copy(update={"objective": objective, "budgets": budgets})


def check_pareto(
    rules: Rules[Any, Any],
    instance: ShiftingInstance,
    frontier: dict[str, Any],
    require_gap: float | None = None,
) -> Verdict:
    """Check a Pareto result: decision and claims of every point, and their order.

    Parameters
    ----------
    frontier : dict
        Parsed ``wattsched-frontier/1``, free of faults in its fields.
    require_gap : float, optional
        Gap to which every point has to be proven.

    Raises
    ------
    ValueError
        If the instance has no forecast of the criterion.
    """
    against, faults, claimed = frontier["tradeoff"], [], False
    require_forecast(instance, against)
    if frontier["instance"] != instance.name:
        faults.append(f"instance: the frontier is of '{frontier['instance']}', not of '{instance.name}'")
    if not frontier["points"]:
        reason = "" if frontier["termination"] is None else frontier["termination"]["reason"]
        if reason not in WITHOUT_DECISION or require_gap is not None:
            faults.append("points: there are none, and so nothing is proven")
        claimed = reason == "infeasible"
    for number, point in enumerate(frontier["points"]):
        result = point["result"]
        objective = result["objective_name"]
        if objective not in ("mean-completion", against):
            faults.append(f"points[{number}]: minimises '{objective}', which is no end of this frontier")
            continue
        verdict = check_result(rules, bounded(instance, objective, against, point["limit"]), result)
        verdict = verdict.requiring(require_gap)
        claimed = claimed or verdict.claimed
        faults += [f"points[{number}].{fault}" for fault in verdict.faults]
        if result["decision"] is None:
            faults.append(f"points[{number}]: has no decision")
    faults = faults or list(_of_order(frontier["points"], TOTALS[against]))
    return Verdict(faults, claimed=claimed)


def _of_order(points: list[dict[str, Any]], total: str) -> Iterator[str]:
    """Later completion has to buy something."""
    totals = [point["result"]["totals"] for point in points]
    for number, (one, other) in enumerate(pairwise(totals), start=1):
        if not one["average_completion_s"] < other["average_completion_s"] or not one[total] > other[total]:
            yield f"points[{number}]: is no later with less {total} than the one before"
