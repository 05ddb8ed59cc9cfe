"""Between two objectives: the instances of Pareto points, and their claims."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from wattsched.verification.claims import WITHOUT_DECISION
from wattsched.verification.report import ROUNDING, TOLERANCE
from wattsched.verification.verdict import Rules, Verdict, check_result

FORECASTS = {"carbon": "carbon_g_per_kwh", "money": "price_per_kwh"}
NOTHING = 1e-12
"""Amount that counts as nothing, relative to the largest value of a frontier: the rounding of sums."""

FIRST = "mean-completion"
"""First objective of frontiers whose file names one alone."""


def require_forecast(instance: Any, objectives: Sequence[str]) -> None:
    """Refuse an objective that the instance has no forecast of, or limits itself; a ValueError names it."""
    first, against = objectives
    for name in getattr(instance.budgets, "objectives", {}):
        if name in objectives:
            what = f"the instance limits '{name}' itself, in budgets.objectives"
            raise ValueError(f"frontier: {what}; leave that limit out, as a frontier sets its own")
    for forecast in filter(None, map(FORECASTS.get, objectives)):
        if getattr(instance, forecast, None) is None:
            what = "completion" if first == FIRST else first
            raise ValueError(f"frontier: {what} against {against} needs the forecast '{forecast}'")


def bounded(
    rules: Rules[Any, Any], instance: Any, objective: str, other: str, limit: float | None = None
) -> Any:
    """Return the instance of a point: with an objective, and of limits on both one on the other only."""
    free = rules.limited(instance, {objective: None, other: None})
    free = free if limit is None else rules.limited(free, {other: limit})
    return free.model_copy(update={"objective": objective})


def values_of(
    rules: Rules[Any, Any], instance: Any, objectives: Sequence[str], decision: Any
) -> dict[str, float]:
    """Return the values of a sound decision in both objectives, as the checker computes them."""
    found = {}
    for name, other in (objectives, reversed(objectives)):
        value = rules.check(bounded(rules, instance, name, other), decision).objective
        if value is not None:
            found[name] = value
    return found


def is_more(value: float, other: float, largest: float) -> bool:
    """True if a total exceeds another by more than rounding; `largest` is the largest size of a total."""
    return value > other + ROUNDING * abs(other) + NOTHING * largest


def check_pareto(
    rules: Rules[Any, Any],
    instance: Any,
    frontier: dict[str, Any],
    decisions: Mapping[str, Any],
    require_gap: float | None = None,
) -> Verdict:
    """Check a Pareto result: decisions, claims and order, and that it ends where nothing is better.

    That no decision dominates a point, and that none is beyond the ends, rests on the solver's claim
    where the results that prove it are missing; with `require_gap` that is a fault.

    Parameters
    ----------
    frontier : dict
        Parsed ``wattsched-frontier/1``, free of faults in its fields.
    decisions : mapping of str to model of a decision
        By the results' places, such as ``points[0]`` and ``ends[1]``.
    require_gap : float, optional
        Gap to which every point has to be proven.
    """
    objectives, faults, claims = (frontier["first"], frontier["tradeoff"]), list[str](), list[bool]()
    require_forecast(instance, objectives)
    signs = {name: 1.0 if rules.objectives[name] == "min" else -1.0 for name in objectives}
    if frontier["instance"] != instance.name:
        faults.append(f"instance: the frontier is of '{frontier['instance']}', not of '{instance.name}'")
    if not frontier["points"]:
        reason = "" if frontier["termination"] is None else frontier["termination"]["reason"]
        if reason not in WITHOUT_DECISION or require_gap is not None:
            faults.append("points: there are none, and so nothing is proven")
        claims.append(reason == "infeasible")
    least: dict[str, float] = {}

    def costs_of(where: str, result: dict[str, Any], limit: float | None) -> dict[str, float]:
        """Return the recomputed costs of a result; without a limit that of its objective is a minimum."""
        objective = result["objective_name"]
        if objective not in objectives:
            faults.append(f"{where}: minimises '{objective}', which is no end of this frontier")
            return {}
        other = objectives[objectives[0] == objective]
        document = result | {"decision": decisions.get(where)}
        verdict = check_result(rules, bounded(rules, instance, objective, other, limit), document)
        verdict = verdict.requiring(require_gap)
        claims.append(verdict.claimed)
        faults.extend(f"{where}.{fault}" for fault in verdict.faults)
        if result["decision"] is None:
            faults.append(f"{where}: has no decision")
            return {}
        known = values_of(rules, instance, objectives, document["decision"])
        costs = {name: signs[name] * value for name, value in known.items()}
        if limit is None and objective in costs:
            least.setdefault(objective, costs[objective])
        return costs

    def limit_of(result: dict[str, Any], limit: float | None) -> float | None:
        """Return a limit as a cost."""
        other = objectives[objectives[0] == result["objective_name"]]
        return None if limit is None else signs[other] * limit

    ends = [costs_of(f"ends[{k}]", end, None) for k, end in enumerate(frontier["ends"])]
    points = [costs_of(f"points[{k}]", p["result"], p["limit"]) for k, p in enumerate(frontier["points"])]
    before = [
        p["before"] and costs_of(f"points[{k}].before", p["before"], p["before_limit"])
        for k, p in enumerate(frontier["points"])
    ]
    for k, (point, costs) in enumerate(zip(frontier["points"], points, strict=True)):
        for name, said in point["values"].items():
            if name not in costs or not math.isclose(signs[name] * said, costs[name], rel_tol=TOLERANCE):
                faults.append(f"points[{k}].values: '{name}' is {said:.12g}, recomputed it is not")
    if faults or not points:
        return Verdict(faults, claimed=any(claims))
    largest = {name: max(abs(costs[name]) for costs in [*ends, *points]) for name in objectives}
    faults += _order_faults(points, objectives, largest)
    unproven = []
    for name, k in zip(objectives, (0, len(points) - 1), strict=True):
        if name not in least:
            unproven.append(f"ends: nothing shows the best '{name}'")
        elif is_more(points[k][name], least[name], largest[name]):
            amount, best = signs[name] * points[k][name], signs[name] * least[name]
            detail = f"its '{name}' is {amount:.12g}, the best is {best:.12g}"
            faults.append(f"points[{k}]: is no end of the frontier: {detail}")
    for k, (point, first) in enumerate(zip(frontier["points"], before, strict=True)):
        objective = point["result"]["objective_name"]
        other = objectives[objectives[0] == objective]
        minima = least if first is None else {other: first[other]}
        earlier = None
        if point["before"] is not None:
            earlier = limit_of(point["before"], point["before_limit"])
        limits = limit_of(point["result"], point["limit"]), earlier
        if not _is_undominated(point, points[k], other, minima, largest, limits):
            fault = f"points[{k}]: nothing shows that no decision dominates it"
            (unproven if first is None else faults).append(fault)
    faults += unproven if require_gap is not None else []
    return Verdict(faults, claimed=any(claims) or bool(unproven))


def _is_undominated(
    point: dict[str, Any],
    costs: Mapping[str, float],
    other: str,
    minima: Mapping[str, float],
    largest: Mapping[str, float],
    limits: tuple[float | None, float | None],
) -> bool:
    """True if the results prove that no decision dominates a point.

    Parameters
    ----------
    point : dict
        Of the frontier's file.
    costs, largest : mappings of str to float
        By objective, the point's costs, and the largest size of a cost in the frontier.
    other : str
        The objective that the point's result does not minimise.
    minima : mapping of str to float
        Proven minima of the costs; with a result ``before``, that of `other` under its ``before_limit``.
    limits : tuple of float or None
        That of the point, and that of the result before.
    """

    def equal(value: float, reference: float, name: str) -> bool:
        return not is_more(value, reference, largest[name]) and not is_more(reference, value, largest[name])

    if minima.keys() == costs.keys() and all(equal(costs[name], minima[name], name) for name in minima):
        return True
    objective, before, (limit, before_limit) = point["result"]["objective_name"], point["before"], limits
    if before is not None and before["objective_name"] != other:
        return False
    before_limit = costs[objective] if before_limit is None else before_limit
    return (
        limit is not None
        and other in minima
        and equal(limit, minima[other], other)
        and not is_more(costs[other], limit, largest[other])
        and not is_more(costs[objective], before_limit, largest[objective])
    )


def _order_faults(
    costs: Sequence[Mapping[str, float]], objectives: Sequence[str], largest: Mapping[str, float]
) -> Iterator[str]:
    """Yield a fault for points that are not worse in the first objective and better in the other."""
    first, against = objectives
    for number, (one, later) in enumerate(pairwise(costs), start=1):
        if not is_more(later[first], one[first], largest[first]) or (
            not is_more(one[against], later[against], largest[against])
        ):
            told = f"is not worse in '{first}' and better in '{against}' than the one before"
            yield f"points[{number}]: {told}"
