"""Between the soonest completion and the least carbon, energy or money: `pareto`, for `shifting`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, Field

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError, require, require_known, require_range, validated
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.reading.arguments import require_types
from wattsched.results.documents import result_of
from wattsched.results.problems import problem
from wattsched.results.result import Finite, Result, TerminationReport
from wattsched.solving.engine import seconds_of, sound_instance
from wattsched.solving.engine import solve as _solve
from wattsched.topology.fields import Strict
from wattsched.verification.shifting.pareto import (
    NOTHING,
    TOTALS,
    bounded,
    check_pareto,
    is_more,
    other_than,
    require_forecast,
)
from wattsched.verification.verdict import Verdict

Tradeoff = Literal["carbon", "energy", "money"]

FORMAT = "wattsched-frontier/1"
_LEAST_S = 1e-3
_RESULTS = ("result", "before")


class ParetoPoint(Strict):
    """A decision that no other is as good as in both criteria, and better in one.

    Attributes
    ----------
    limit : float, optional
        On the criterion that `result` does not minimise, instead of the instance's budget; None for none.
    result : Result
        Its totals hold both criteria.
    before_limit : float, optional
        Likewise of `before`.
    before : Result, optional
        Minimises the other criterion, and so shows that nothing less than `limit` is possible within the
        point's own total. None at the ends, where `ParetoResult.ends` show it, and where there was no time
        for `result` to follow from it: the point itself is then the first of the two.
    """

    limit: Finite | None
    result: Result
    before_limit: Finite | None = None
    before: Result | None = None

    @property
    def results(self) -> list[Result]:
        """The results that show that nothing dominates the point."""
        return [self.result] if self.before is None else [self.before, self.result]

    @property
    def gap(self) -> float | None:
        """The larger gap of the results; None where one has none."""
        return _largest([result.gap for result in self.results])

    @property
    def proven_gap(self) -> float | None:
        """The larger gap that their certificates prove; None where one proves none."""
        return _largest([result.proven_gap for result in self.results])


def _largest(gaps: list[float | None]) -> float | None:
    known = [gap for gap in gaps if gap is not None]
    return max(known) if len(known) == len(gaps) else None


class ParetoResult(Strict):
    """Result of `pareto`; the file format ``wattsched-frontier/1``.

    Attributes
    ----------
    tradeoff : {"carbon", "energy", "money"}
        What completion is traded against.
    points : list of ParetoPoint
        From the soonest completion to the least of the other criterion, none dominated.
    ends : list of Result
        The least of each criterion alone; one or none where there was no time for them.
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
    ends: list[Result] = []
    termination: TerminationReport | None = None
    missing: Annotated[int, Field(ge=0)] = 0


def pareto(
    instance: ShiftingInstance | str | Path,
    points: int,
    *,
    tradeoff: Tradeoff | None = None,
    time_limit: float | None = None,
    solve: Callable[..., Result] = _solve,
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
    require_range(horizon.scenarios is None, "instance", "one without scenarios", horizon.name)
    objective = horizon.objective
    against: Tradeoff = objective if objective in get_args(Tradeoff) else "carbon"
    against = against if tradeoff is None else tradeoff
    require_known("tradeoff", against, get_args(Tradeoff))
    require_range(points >= 2, "points", "at least 2", points)
    require_forecast(horizon, against)
    if solve is _solve:
        options.setdefault("conflict", 0.0)
    ended: list[TerminationReport] = []
    ends: list[Result] = []

    def least(objective: str, limit: float | None) -> Result | None:
        """Least of a criterion within a limit on the other; an end, which all need, may take longer."""
        # Calls to come that share the time: two for each point, or, the second time, the ends alone.
        calls_left = [2 * points - len(ended), *([2 - len(ends)] if limit is None else [])]
        for calls in calls_left:
            if (left_s := timer.share(1.0 / max(1, calls)).limit_s) is not None:
                options["time_limit"] = max(_LEAST_S, left_s)
            result = solve(bounded(horizon, objective, against, limit), **options)
            if result.termination.reason != "no_solution" or left_s is None or timer.over():
                break
        ended.append(result.termination)
        return None if result.decision is None else result

    def point(objective: str, limit: float | None = None) -> ParetoPoint | None:
        """Return the least of a criterion within a limit, with the least of the other among those."""
        if (first := least(objective, limit)) is None:
            return None
        if limit is None:
            ends.append(first)
        other = other_than(objective, against)
        # A limit of nothing would be none.
        most = first.totals[TOTALS[objective]] or NOTHING * ends[0].totals[TOTALS[objective]]
        second = least(other, most) if most != 0 and not timer.over() else None
        if second is None or any(more(second, first, one) for one in (objective, other)):
            return ParetoPoint(limit=limit, result=first)
        before = None if limit is None else first
        return ParetoPoint(limit=most, result=second, before_limit=limit, before=before)

    def more(one: Result, two: Result, criterion: str) -> bool:
        """True if a result has more of a criterion than another."""
        value, other, largest = (found.totals[TOTALS[criterion]] for found in (one, two, ends[0]))
        return is_more(value, other, abs(largest))

    found, late = [point("mean-completion")], 0
    if found[0] is not None:
        found.append(point(against))
    if len(ends) == 2:
        quick, clean = (end.totals[TOTALS[against]] for end in ends)
        for i in range(1, points - 1):
            limit = quick + (clean - quick) * i / (points - 1)
            if timer.over():
                late += 1
            elif limit != 0:
                found.append(point("mean-completion", limit))
    return ParetoResult(
        instance=horizon.name,
        tradeoff=against,
        points=_undominated([one for one in found if one is not None], against),
        ends=ends,
        # Without a point there was one answer alone.
        termination=None if ends else ended[0],
        # Without its second end a frontier has no points between.
        missing=points - 1 if len(ends) == 1 else late + sum(one is None for one in found[1:]),
    )


def _undominated(points: list[ParetoPoint], against: str) -> list[ParetoPoint]:
    """Points, the soonest completion first, without those that another one is as good as in both criteria."""

    def amount(point: ParetoPoint, criterion: str) -> float:
        return point.result.totals[TOTALS[criterion]]

    most = {
        one: max((abs(amount(point, one)) for point in points), default=0.0)
        for one in ("mean-completion", against)
    }

    def more(one: ParetoPoint, other: ParetoPoint, criterion: str) -> bool:
        return is_more(amount(one, criterion), amount(other, criterion), most[criterion])

    kept: list[ParetoPoint] = []
    for point in sorted(points, key=lambda point: [amount(point, one) for one in most]):
        if not kept or more(kept[-1], point, against):
            while kept and not more(point, kept[-1], "mean-completion"):
                kept.pop()
            kept.append(point)
    return kept


def is_pareto(document: Any) -> bool:
    """True if a parsed document is a Pareto result."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def pareto_of(document: Any, source: str = "") -> ParetoResult:
    """Validate a parsed document as a Pareto result; an `InputError` has one line per fault."""
    known = validated(ParetoResult, _with_results(document, source), source)
    wanted = (TOTALS["mean-completion"], TOTALS[known.tradeoff])
    found = {f"ends[{k}]": end for k, end in enumerate(known.ends)}
    for k, point in enumerate(known.points):
        found |= {
            f"points[{k}].{name}": one for name in _RESULTS if (one := getattr(point, name)) is not None
        }
    for where, result in found.items():
        if lacking := [name for name in wanted if result.decision is not None and name not in result.totals]:
            raise InputError([f"{where}.totals: '{lacking[0]}' is missing"], source)
    return known


def _with_results(document: dict[str, Any], source: str) -> dict[str, Any]:
    """The document with its results validated, where it has some."""

    def read(result: Any, where: str) -> Any:
        """Result of its part of the document, whose faults say where it is."""
        if not isinstance(result, dict):
            return result
        try:
            return result_of(result)
        except InputError as error:
            raise InputError([f"{where}.{fault}" for fault in error.faults], source) from None

    points, ends = document.get("points"), document.get("ends")
    if isinstance(points, list):
        points = [
            point
            if not isinstance(point, dict)
            else {n: read(v, f"points[{k}].{n}") if n in _RESULTS else v for n, v in point.items()}
            for k, point in enumerate(points)
        ]
        document = document | {"points": points}
    if isinstance(ends, list):
        document = document | {"ends": [read(end, f"ends[{k}]") for k, end in enumerate(ends)]}
    return document


def verdict_on_pareto(
    instance: ShiftingInstance, found: ParetoResult, require_gap: float | None = None
) -> Verdict:
    """Check a Pareto result: decision and claims of every point, and their order."""
    return check_pareto(problem("shifting"), instance, found.model_dump(mode="json"), require_gap)
