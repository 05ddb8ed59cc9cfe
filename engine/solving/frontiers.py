"""Between two objectives of any problem: the least of one within limits on the other, evenly spaced."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import numpy as np
from pydantic import BaseModel, Field

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError, require_range, validated
from wattsched.reading.arguments import require_types
from wattsched.results.documents import result_of
from wattsched.results.problems import Problem
from wattsched.results.problems import problem as find_problem
from wattsched.results.result import Finite, Result
from wattsched.solving.engine import seconds_of, solve, sound_instance
from wattsched.solving.orders import LEAST_S, in_order, require_order
from wattsched.topology.fields import Strict
from wattsched.verification.report import TOLERANCE
from wattsched.verification.verdict import Verdict, check_result

FORMAT: Literal["wattsched-frontier/2"] = "wattsched-frontier/2"
MOST_POINTS = 200
ValueT = TypeVar("ValueT")
Pair = Annotated[list[ValueT], Field(min_length=2, max_length=2)]


class FrontierPoint(Strict):
    """A decision on a frontier.

    Attributes
    ----------
    values : list of float
        In both objectives.
    result : Result
        Of one of them within a limit on the other, which is among its `limits`.
    """

    values: Pair[Finite]
    result: Result


class Frontier(Strict):
    """Result of `frontier`; the file format ``wattsched-frontier/2``.

    Attributes
    ----------
    objectives : list of two str
    points : list of FrontierPoint
        From the best of the first objective to the best of the second one, none worse than another in both.
    missing : int
        Points that were asked for, and not found in time.
    failed : Result, optional
        The result that says why there are no points.
    """

    format: Literal["wattsched-frontier/2"] = FORMAT
    instance: str
    problem: str
    objectives: Pair[str]
    points: list[FrontierPoint]
    missing: int = 0
    failed: Result | None = None


def frontier(
    instance: BaseModel | str | Path,
    objectives: Sequence[str],
    points: int,
    *,
    tolerance: float | None = None,
    gap: float = 1e-4,
    time_limit: float | None = None,
    **options: Any,
) -> Frontier:
    """Trade one objective against another: the best of the first within evenly spaced limits on the second.

    Parameters
    ----------
    instance : model of an instance, str or Path
    objectives : two names of objectives
    points : int
        From 2 to 200, both ends among them; dominated ones are left out.
    tolerance : float, optional
        Share of its value by which the best objective may be worse at either end, so that the other one is
        good there. Default: the gap.
    gap, time_limit, **options
        As for `wattsched.solve`; points to come share what is left of the time.

    Raises
    ------
    ValueError, TypeError, wattsched.InputError
        For unknown objectives, or such as cannot be limited, and as of `solve`.
    """
    require_types(frontier, {"points": points, "tolerance": tolerance, "time_limit": time_limit})
    require_range(2 <= points <= MOST_POINTS, "points", f"from 2 to {MOST_POINTS}", points)
    require_range(len(objectives) == 2, "objectives", "two names", len(objectives))
    timer = Timer(seconds_of("time_limit", time_limit))
    sound, problem = sound_instance(instance)
    one, other = require_order(problem, objectives)
    again: Callable[..., Result] = partial(solve, gap=gap, **{"conflict": 0.0, **options})
    results, failed = list[Result](), None
    for place, order in enumerate([(one, other), (other, one)]):
        # Two solves for an end, one for each point between.
        share = timer.share(2.0 / (points + 2 - 2 * place))
        end = in_order(problem, sound, order, gap if tolerance is None else tolerance, again, share)
        if end.decision is None:
            failed = end
            break
        results.append(end)
    if failed is None:
        most, least = (values_of(problem, sound, (one, other), end.decision)[1] for end in results)
        start = results[-1]
        limits = np.linspace(least, most, points)[1:-1].tolist()
        for left, limit in zip(range(points - 2, 0, -1), limits, strict=True):
            share = timer.share(1.0 / left)
            limit_s = None if share.limit_s is None else max(LEAST_S, share.remaining_s() or 0.0)
            of = problem.with_limits(sound, {other: limit})
            point = again(of, objective=one, time_limit=limit_s, initial_solution=start)
            if point.decision is not None:
                start = point.model_copy(update={"limits": {other: limit}})
                results.append(start)
    return Frontier(
        instance=sound.name,
        problem=problem.name,
        objectives=[one, other],
        points=_undominated(problem, sound, (one, other), results),
        missing=points - len(results),
        failed=failed,
    )


def _undominated(
    problem: Problem[Any, Any, Any], instance: Any, objectives: tuple[str, str], results: list[Result]
) -> list[FrontierPoint]:
    """Return the points that no other is as good as in both objectives, the best of the first one first."""
    signs = [1.0 if problem.objectives[name] == "min" else -1.0 for name in objectives]

    def costs(point: FrontierPoint) -> list[float]:
        return [sign * value for sign, value in zip(signs, point.values, strict=True)]

    points = [
        FrontierPoint(values=[*values_of(problem, instance, objectives, one.decision)], result=one)
        for one in results
    ]
    kept = list[FrontierPoint]()
    for point in sorted(points, key=costs):
        if not kept or costs(point)[1] < costs(kept[-1])[1]:
            kept.append(point)
    return kept


def values_of(problem: Any, instance: Any, objectives: Sequence[str], decision: Any) -> tuple[float, float]:
    """Return the values of a sound decision in two objectives, as the checker computes them."""
    one, other = (
        problem.check(instance.model_copy(update={"objective": name}), decision).objective
        for name in objectives
    )
    return float(one), float(other)


def is_frontier(document: Any) -> bool:
    """True if a parsed document is a frontier of two objectives."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def frontier_of(document: dict[str, Any], source: str = "") -> Frontier:
    """Validate a parsed document as a frontier; an `InputError` has one line per fault."""
    points = document.get("points")
    if isinstance(points, list) and all(isinstance(point, dict) for point in points):
        try:
            read = [point | {"result": result_of(point.get("result"))} for point in points]
        except InputError as error:
            raise InputError([f"points: {fault}" for fault in error.faults], source) from None
        document = document | {"points": read}
    return validated(Frontier, document, source)


def verdict_on_frontier(instance: Any, found: Frontier, require_gap: float | None = None) -> Verdict:
    """Check every point: its decision, values and claims, within the limits that it states."""
    rules, faults, verdicts = find_problem(instance.problem), list[str](), list[Verdict]()
    if found.instance != instance.name or found.problem != instance.problem:
        return Verdict([f"instance: the frontier is of '{found.instance}', not of '{instance.name}'"])
    for number, point in enumerate(found.points):
        result, where = point.result, f"points[{number}]"
        document = result.model_dump(mode="json", exclude={"decision"}) | {"decision": result.decision}
        limits = {} if result.stages else result.limits
        verdict = check_result(rules, instance, document, limits).requiring(require_gap)
        faults += [f"{where}.{fault}" for fault in verdict.faults]
        if not verdict.faults and result.decision is not None:
            values = values_of(rules, instance, found.objectives, result.decision)
            pairs = zip(found.objectives, point.values, values, strict=True)
            faults += [
                f"{where}.values: '{name}' is {value:.9g}, the frontier says {said:.9g}"
                for name, said, value in pairs
                if not math.isclose(said, value, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
            ]
        elif result.decision is None:
            faults.append(f"{where}: has no decision")
        verdicts.append(verdict)
    if not found.points and require_gap is not None:
        faults.append("points: there are none, and so nothing is proven")
    return Verdict(faults, claimed=any(verdict.claimed for verdict in verdicts))
