"""Between the soonest completion and the least carbon, energy or money: `pareto`, for `shifting`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, Field

from wattsched.arguments import require_types
from wattsched.documents import result_of
from wattsched.engine import seconds_of, solve, sound_instance
from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError, require, require_known, require_range, validated
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.problems import problem
from wattsched.result import Finite, Result, TerminationReport
from wattsched.topology.fields import Strict
from wattsched.verification.claims import Verdict
from wattsched.verification.shifting.pareto import TOTALS, bounded, check_pareto, require_forecast

Tradeoff = Literal["carbon", "energy", "money"]

FORMAT = "wattsched-frontier/1"
ROOM = 1e-6
"""What a limit leaves, relative to it, so that an end keeps its own total."""
_LEAST_S = 1e-3


class ParetoPoint(Strict):
    """A decision of least average completion time within a limit, or one of the two ends.

    Attributes
    ----------
    limit : float, optional
        On the criterion that completion is traded against, instead of the instance's budget; None at the
        ends.
    result : Result
        Its totals hold both criteria.
    """

    limit: Finite | None
    result: Result


class ParetoResult(Strict):
    """Result of `pareto`; the file format ``wattsched-frontier/1``.

    Attributes
    ----------
    tradeoff : {"carbon", "energy", "money"}
        What completion is traded against.
    points : list of ParetoPoint
        From the soonest completion to the least of the other criterion, none dominated.
    termination : TerminationReport, optional
        Why there are no points.
    missing : int
        Points that were asked for, and not found in time.
    """

    format: Literal["wattsched-frontier/1"] = "wattsched-frontier/1"
    instance: str
    problem: Literal["shifting"] = "shifting"
    tradeoff: Tradeoff = Field(validation_alias=AliasChoices("tradeoff", "against"))
    points: list[ParetoPoint]
    termination: TerminationReport | None = None
    missing: Annotated[int, Field(ge=0)] = 0


def pareto(
    instance: ShiftingInstance | str | Path,
    points: int,
    *,
    tradeoff: Tradeoff | None = None,
    time_limit: float | None = None,
    solve: Callable[..., Result] = solve,
    **options: Any,
) -> ParetoResult:
    """Least average completion time for totals of another criterion, evenly spaced from end to end.

    Parameters
    ----------
    instance : ShiftingInstance, str or Path
        With the forecast that the criterion needs. Its budgets hold besides; those of the two criteria are
        replaced.
    points : int
        Number of points, at least 2. Dominated ones are left out, and so are there fewer where solutions
        coincide.
    tradeoff : {"carbon", "energy", "money"}, optional
        Default: the instance's objective, or carbon.
    time_limit : float, optional
        Wall-clock seconds for all points together; those to come share what is left.
    solve : callable
        Takes an instance, a time limit and `options`.
    **options
        As for `solve`.

    Raises
    ------
    ValueError
        For an unknown trade-off, if there are less than 2 points, or the instance has no forecast of the
        criterion.
    """
    require_types(pareto, {"points": points, "tradeoff": tradeoff, "time_limit": time_limit, "solve": solve})
    timer = Timer(seconds_of("time_limit", time_limit))
    horizon, _ = sound_instance(instance)
    require("instance", horizon, (ShiftingInstance,), "of the problem 'shifting'")
    objective = horizon.objective
    against: Tradeoff = objective if objective in get_args(Tradeoff) else "carbon"
    against = against if tradeoff is None else tradeoff
    require_known("tradeoff", against, get_args(Tradeoff))
    require_range(points >= 2, "points", "at least 2", points)
    require_forecast(horizon, against)
    ended: list[TerminationReport] = []
    late = 0

    def point(objective: str, limit: float | None = None) -> ParetoPoint | None:
        """A decision within a limit; of an end, which all others need, in more than its share of time."""
        shares = [points - len(ended)] if limit is not None else [points - len(ended), 2 - len(ended)]
        for share in shares:
            if (left_s := timer.share(1.0 / share).limit_s) is not None:
                options["time_limit"] = max(_LEAST_S, left_s)
            result = solve(bounded(horizon, objective, against, limit), **options)
            if result.termination.reason != "no_solution" or left_s is None or timer.over():
                break
        ended.append(result.termination)
        return None if result.decision is None else ParetoPoint(limit=limit, result=result)

    ends = [point("mean-completion")]
    if ends[0] is not None:
        ends.append(point(against))
    found = [one for one in ends if one is not None]
    if len(found) == 2:
        quick, clean = (one.result.totals[TOTALS[against]] for one in found)
        for i in range(1, points - 1):
            if timer.over():
                late += 1
                continue
            limit = quick + (clean - quick) * i / (points - 1)
            between = point("mean-completion", limit * (1 + ROOM)) if limit > 0 else None
            found += [] if between is None else [between]
    return ParetoResult(
        instance=horizon.name,
        tradeoff=against,
        points=_undominated(found, TOTALS[against]),
        # Without a point there was one answer alone.
        termination=None if found else ended[0],
        # Without its second end a frontier has no points between.
        missing=points - 1 if len(found) == 1 else late + sum(one.reason == "no_solution" for one in ended),
    )


def _undominated(points: list[ParetoPoint], total: str) -> list[ParetoPoint]:
    def criteria(point: ParetoPoint) -> tuple[float, float]:
        return point.result.totals["average_completion_s"], point.result.totals[total]

    kept: list[ParetoPoint] = []
    for point in sorted(points, key=criteria):
        if not kept or criteria(point)[1] < criteria(kept[-1])[1]:
            kept.append(point)
    return kept


def is_pareto(document: Any) -> bool:
    """Whether a parsed document is a Pareto result."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def pareto_of(document: Any, source: str = "") -> ParetoResult:
    """Validate a parsed document as a Pareto result, its decisions included.

    Raises
    ------
    InputError
        With one line per fault.
    """
    known = validated(ParetoResult, _with_results(document, source), source)
    wanted = ("average_completion_s", TOTALS[known.tradeoff])
    for number, point in enumerate(known.points):
        if lacking := [name for name in wanted if name not in point.result.totals]:
            raise InputError([f"points[{number}].result.totals: '{lacking[0]}' is missing"], source)
    return known


def _with_results(document: dict[str, Any], source: str) -> dict[str, Any]:
    """The document with its results validated, where it has some."""
    points = document.get("points")
    if not isinstance(points, list):
        return document
    read = []
    for number, point in enumerate(points):
        if isinstance(point, dict) and isinstance(point.get("result"), dict):
            try:
                point = {**point, "result": result_of(point["result"])}
            except InputError as error:
                raise InputError([f"points[{number}].result.{f}" for f in error.faults], source) from None
        read.append(point)
    return {**document, "points": read}


def verdict_on_pareto(
    instance: ShiftingInstance, found: ParetoResult, require_gap: float | None = None
) -> Verdict:
    """Check a Pareto result: decision and claims of every point, and their order.

    Raises
    ------
    ValueError
        If the instance has no forecast of the criterion.
    """
    return check_pareto(problem("shifting"), instance, found.model_dump(mode="json"), require_gap)
