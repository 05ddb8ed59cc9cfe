"""Between the best of one objective and the best of another: `pareto`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

from pydantic import AliasChoices, BaseModel, Field

from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError, require, require_known, require_range, validated
from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.reading.arguments import require_types
from wattsched.results.documents import result_of
from wattsched.results.problems import Problem
from wattsched.results.problems import problem as find_problem
from wattsched.results.result import Finite, Result, TerminationReport
from wattsched.solving.engine import seconds_of, sound_instance
from wattsched.solving.engine import solve as _solve
from wattsched.solving.orders import LEAST_S, require_order
from wattsched.topology.fields import Strict
from wattsched.verification.frontiers import (
    FIRST,
    NOTHING,
    bounded,
    check_pareto,
    is_more,
    require_forecast,
    values_of,
)
from wattsched.verification.shifting.checker import TOTALS
from wattsched.verification.verdict import Verdict

Tradeoff = Literal["carbon", "energy", "money"]

FORMAT = "wattsched-frontier/1"
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
    values : dict of str to float
        In both objectives; empty in files of earlier versions, where totals hold them.
    """

    limit: Finite | None
    result: Result
    before_limit: Finite | None = None
    before: Result | None = None
    values: dict[str, Finite] = {}

    def value(self, objective: str) -> float:
        """Value in one of the two objectives."""
        if objective in self.values:
            return self.values[objective]
        return self.result.totals[TOTALS[objective]]

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
    first, tradeoff : str
        The objective that is traded, and what against.
    points : list of ParetoPoint
        From the best of the first objective to the best of the other one, none dominated.
    ends : list of Result
        The least of each criterion alone; one or none where there was no time for them.
    termination : TerminationReport, optional
        Why there are no points.
    missing : int
        Points that were asked for, and not found in time.
    """

    format: Literal["wattsched-frontier/1"] = "wattsched-frontier/1"
    instance: str
    problem: str = "shifting"
    first: str = FIRST
    tradeoff: str = Field(validation_alias=AliasChoices("tradeoff", "against"))
    points: list[ParetoPoint]
    ends: list[Result] = []
    termination: TerminationReport | None = None
    missing: Annotated[int, Field(ge=0)] = 0


def pareto(
    instance: BaseModel | str | Path,
    points: int,
    *,
    tradeoff: Tradeoff | None = None,
    objectives: Sequence[str] | None = None,
    time_limit: float | None = None,
    solve: Callable[..., Result] = _solve,
    **options: Any,
) -> ParetoResult:
    """Best of one objective within limits on another one, evenly spaced from end to end.

    Parameters
    ----------
    instance : model of an instance, str or Path
        With the forecasts that the objectives need. Its budgets hold besides; those of `shifting` on the two
        objectives are replaced.
    points : int
        Number of points, at least 2. Dominated ones are left out, and so are there fewer where solutions
        coincide.
    tradeoff : {"carbon", "energy", "money"}, optional
        Of `shifting`, what average completion is traded against. Default: the instance's objective, or
        carbon.
    objectives : sequence of two str, optional
        The objective that is traded, and what against, of any problem.
    time_limit : float, optional
        Wall-clock seconds for all points together; those to come share what is left.
    solve : callable
        Takes an instance, a time limit and `options`.
    **options
        As for `solve`.

    Raises
    ------
    ValueError
        For unknown objectives, if there are less than 2 points, or the instance has no forecast of an
        objective or limits one of them in `budgets.objectives`.
    """
    given = {"points": points, "tradeoff": tradeoff, "objectives": objectives, "time_limit": time_limit}
    require_types(pareto, {**given, "solve": solve})
    timer = Timer(seconds_of("time_limit", time_limit))
    sound, problem = sound_instance(instance)
    pair = _objectives(problem, sound, tradeoff, objectives)
    require_range(points >= 2, "points", "at least 2", points)
    require_forecast(sound, pair)
    if solve is _solve:
        options.setdefault("conflict", 0.0)
    ended: list[TerminationReport] = []
    ends: list[Result] = []
    signs = {name: 1.0 if problem.objectives[name] == "min" else -1.0 for name in pair}
    known: dict[int, dict[str, float]] = {}

    def values(result: Result) -> dict[str, float]:
        """Values of a result in both objectives, which are computed once."""
        if id(result) not in known:
            known[id(result)] = values_of(problem, sound, pair, result.decision)
        return known[id(result)]

    def least(objective: str, limit: float | None) -> Result | None:
        """Best of an objective within a limit on the other; an end, which all need, may take longer."""
        # Calls to come that share the time: two for each point, or, the second time, the ends alone.
        calls_left = [2 * points - len(ended), *([2 - len(ends)] if limit is None else [])]
        for calls in calls_left:
            if (left_s := timer.share(1.0 / max(1, calls)).limit_s) is not None:
                options["time_limit"] = max(LEAST_S, left_s)
            other = pair[pair[0] == objective]
            result = solve(bounded(problem, sound, objective, other, limit), **options)
            if result.termination.reason != "no_solution" or left_s is None or timer.over():
                break
        ended.append(result.termination)
        return None if result.decision is None else result

    def point(objective: str, limit: float | None = None) -> ParetoPoint | None:
        """Return the best of an objective within a limit, with the best of the other among those."""
        if (first := least(objective, limit)) is None:
            return None
        if limit is None:
            ends.append(first)
        other = pair[pair[0] == objective]
        most = values(first)[objective]
        if FIRST in pair:  # of a horizon a limit of nothing would be none
            most = most or NOTHING * values(ends[0])[objective]
        possible = most != 0 or FIRST not in pair
        second = least(other, most) if possible and not timer.over() else None
        if second is None or any(more(second, first, one) for one in (objective, other)):
            return ParetoPoint(limit=limit, result=first, values=values(first))
        before = None if limit is None else first
        return ParetoPoint(
            limit=most, result=second, before_limit=limit, before=before, values=values(second)
        )

    def more(one: Result, two: Result, objective: str) -> bool:
        """True if a result is worse in an objective than another."""
        value, other, largest = (signs[objective] * values(each)[objective] for each in (one, two, ends[0]))
        return is_more(value, other, abs(largest))

    found, late = [point(pair[0])], 0
    if found[0] is not None:
        found.append(point(pair[1]))
    if len(ends) == 2:
        quick, clean = (values(end)[pair[1]] for end in ends)
        for i in range(1, points - 1):
            limit = quick + (clean - quick) * i / (points - 1)
            if timer.over():
                late += 1
            elif limit != 0:
                found.append(point(pair[0], limit))
    return ParetoResult(
        instance=sound.name,
        problem=problem.name,
        first=pair[0],
        tradeoff=pair[1],
        points=_undominated([one for one in found if one is not None], signs),
        ends=ends,
        # Without a point there was one answer alone.
        termination=None if ends else ended[0],
        # Without its second end a frontier has no points between.
        missing=points - 1 if len(ends) == 1 else late + sum(one is None for one in found[1:]),
    )


def _objectives(
    problem: Problem[Any, Any, Any],
    instance: Any,
    tradeoff: Tradeoff | None,
    objectives: Sequence[str] | None,
) -> tuple[str, str]:
    """Return the objective that is traded, and what against; a ValueError where there are no such."""
    if objectives is not None:
        require_range(len(objectives) == 2 and tradeoff is None, "objectives", "two names", str(objectives))
        first, against = require_order(problem, objectives)
        return first, against
    require("instance", instance, (ShiftingInstance,), "of the problem 'shifting', or two objectives named")
    require_range(instance.scenarios is None, "instance", "one without scenarios", instance.name)
    own = instance.objective if instance.objective in get_args(Tradeoff) else "carbon"
    against = own if tradeoff is None else tradeoff
    require_known("tradeoff", against, get_args(Tradeoff))
    return FIRST, against


def _undominated(points: list[ParetoPoint], signs: Mapping[str, float]) -> list[ParetoPoint]:
    """Points, the best of the first objective first, without those that another one is as good as in both."""
    first, against = signs

    def cost(point: ParetoPoint, objective: str) -> float:
        return signs[objective] * point.values[objective]

    most = {name: max((abs(cost(point, name)) for point in points), default=0.0) for name in signs}

    def more(one: ParetoPoint, other: ParetoPoint, objective: str) -> bool:
        return is_more(cost(one, objective), cost(other, objective), most[objective])

    kept: list[ParetoPoint] = []
    for point in sorted(points, key=lambda point: [cost(point, name) for name in signs]):
        if not kept or more(kept[-1], point, against):
            while kept and not more(point, kept[-1], first):
                kept.pop()
            kept.append(point)
    return kept


def is_pareto(document: Any) -> bool:
    """True if a parsed document is a Pareto result."""
    return isinstance(document, dict) and document.get("format") == FORMAT


def pareto_of(document: Any, source: str = "") -> ParetoResult:
    """Validate a parsed document as a Pareto result; an `InputError` has one line per fault."""
    known = validated(ParetoResult, _with_results(document, source), source)
    try:
        require_order(find_problem(known.problem), [known.first, known.tradeoff])
    except ValueError as error:
        raise InputError([f"tradeoff: {error}"], source) from None
    for k, point in enumerate(known.points):
        for name in (known.first, known.tradeoff):
            if name not in point.values and (total := TOTALS.get(name)) not in point.result.totals:
                raise InputError([f"points[{k}].result.totals: '{total or name}' is missing"], source)
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


def verdict_on_pareto(instance: Any, found: ParetoResult, require_gap: float | None = None) -> Verdict:
    """Check a Pareto result: decision and claims of every point, and their order."""
    decisions = {f"ends[{k}]": end.decision for k, end in enumerate(found.ends)}
    for k, point in enumerate(found.points):
        decisions[f"points[{k}]"] = point.result.decision
        if point.before is not None:
            decisions[f"points[{k}].before"] = point.before.decision
    document = found.model_dump(mode="json")
    return check_pareto(find_problem(found.problem), instance, document, decisions, require_gap)
