"""The answer to an instance of a problem besides `sizing`."""

from __future__ import annotations

from typing import Any, Literal

from wattsched.result import Certificate, Finite, TerminationReport
from wattsched.topology.cluster import Strict


class PlanSize(Strict):
    """Size of the program that was solved; choice groups are not rows."""

    columns: int
    rows: int
    nonzeros: int


class PlanResult(Strict):
    """Result of `wattsched.plan`; the file format ``wattsched-result/1``.

    Attributes
    ----------
    objective, bound : float, optional
        In the objective's own sense; for ``min`` the bound is from below, for ``max`` from above.
    gap : float, optional
        ``|objective - bound| / max(1e-9, |objective|)``.
    declined : str
        Why the solver could not take the program at all.
    faults : list of str
        What was wrong with answers that are not used.
    checked : bool
        The independent checker found the decision valid.
    prices : dict of str to float
        What one more unit of a capacity or budget would improve the objective by, never negative. Rows of
        single jobs (``job:NAME``), which the proof needs too, have prices of either sign.
    time_s : dict of str to float
        Seconds by phase.
    totals : dict of str to float
        What the decision uses, as the checker recomputes it; units are in the names.
    decision : object, optional
        A decision of the problem; as it stands in the file when the result was read from one.
    """

    format: Literal["wattsched-result/1"] = "wattsched-result/1"
    instance: str
    problem: str
    formulation: str
    solver: str
    objective_name: str
    termination: TerminationReport
    sense: Literal["min", "max"]
    objective: Finite | None = None
    bound: Finite | None = None
    gap: Finite | None = None
    declined: str = ""
    faults: list[str] = []
    checked: bool = False
    prices: dict[str, Finite] = {}
    time_s: dict[str, Finite] = {}
    size: PlanSize | None = None
    totals: dict[str, Finite] = {}
    certificate: Certificate | None = None
    decision: Any = None

    @property
    def solved(self) -> bool:
        """Whether there is a checked decision."""
        return self.decision is not None and self.checked
