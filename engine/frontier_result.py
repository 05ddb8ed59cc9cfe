"""A frontier of `shifting` as a file: its points, each with the limit that it keeps and its whole result."""

from __future__ import annotations

from typing import Literal

from wattsched.plan_result import PlanResult
from wattsched.result import Finite, TerminationReport
from wattsched.topology.cluster import Strict


class FrontierPoint(Strict):
    """A decision of least average completion time within a limit, or one of the two ends.

    Attributes
    ----------
    limit : float, optional
        On the criterion that completion is traded against, instead of the instance's budget; None at the
        ends.
    result : PlanResult
        Its totals hold both criteria.
    """

    limit: Finite | None
    result: PlanResult


class FrontierResult(Strict):
    """Result of ``wattsched solve --frontier``; the file format ``wattsched-frontier/1``.

    Attributes
    ----------
    against : {"carbon", "energy", "money"}
        What completion is traded against.
    points : list of FrontierPoint
        From the soonest completion to the least of the other criterion, none dominated.
    termination : TerminationReport, optional
        Why there are no points.
    """

    format: Literal["wattsched-frontier/1"] = "wattsched-frontier/1"
    instance: str
    problem: Literal["shifting"] = "shifting"
    against: Literal["carbon", "energy", "money"]
    points: list[FrontierPoint]
    termination: TerminationReport | None = None
