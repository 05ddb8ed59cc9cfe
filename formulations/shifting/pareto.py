"""The frontier between average completion time and carbon, or another criterion, from end to end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from wattsched.instances.shifting.instance import ShiftingInstance
from wattsched.verification.shifting.pareto import TOTALS, bounded, require_forecast

ROOM = 1e-6
"""What a bound leaves, relative to it, so that an end of the frontier keeps its own total."""


class Answer(Protocol):
    """What a solve returns, as `wattsched.plan` does."""

    @property
    def objective(self) -> float | None:
        """None without a decision."""

    @property
    def totals(self) -> Mapping[str, float]:
        """What the decision uses, by name."""


@dataclass(frozen=True)
class Point:
    """A point of the frontier: totals of its decision, its answer, and the limit that it keeps."""

    average_completion_s: float
    total: float
    answer: Any
    limit: float | None = None


def trace(
    instance: ShiftingInstance,
    n: int,
    solve: Callable[[ShiftingInstance], Answer],
    against: str = "carbon",
) -> list[Point]:
    """Least average completion time for totals of another criterion, evenly spaced from end to end.

    Parameters
    ----------
    instance : ShiftingInstance
        With the forecast that the criterion needs. Its budgets hold besides; those of the two criteria are
        replaced.
    n : int
        Number of points, at least 2.
    solve : callable
        Instance to an answer with ``objective`` and ``totals``; an ``objective`` of None is left out.
    against : {"carbon", "energy", "money"}

    Returns
    -------
    list of Point
        By ascending average completion time; dominated points are left out, and so are there fewer than `n`
        where solutions coincide.

    Raises
    ------
    ValueError
        If `n` is below 2, the criterion is unknown, or the instance has no forecast of it.
    """
    if n < 2:
        raise ValueError(f"frontier: needs at least 2 points, got {n}")
    if against not in TOTALS:
        raise ValueError(f"frontier: unknown criterion '{against}'; known: {', '.join(TOTALS)}")
    require_forecast(instance, against)

    def point(objective: str, limit: float | None = None) -> Point | None:
        answer = solve(bounded(instance, objective, against, limit))
        if answer.objective is None:
            return None
        totals = answer.totals
        return Point(totals["average_completion_s"], totals[TOTALS[against]], answer, limit)

    quick = point("completion")
    if quick is None:
        return []
    clean = point(against)
    if clean is None:
        return [quick]
    found = [quick, clean]
    for i in range(1, n - 1):
        limit = quick.total + (clean.total - quick.total) * i / (n - 1)
        if limit > 0 and (between := point("completion", limit * (1 + ROOM))) is not None:
            found.append(between)
    return _undominated(found)


def _undominated(points: list[Point]) -> list[Point]:
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.average_completion_s, p.total)):
        if not kept or point.total < kept[-1].total:
            kept.append(point)
    return kept
