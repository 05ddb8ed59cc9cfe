"""What checking a decision of any problem finds."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class PlanReport:
    """Faults of a decision, and what it amounts to.

    Attributes
    ----------
    faults : list of str
        One line each; the decision is valid when there is none.
    objective : float, optional
        Recomputed; None when it has no meaning because of the faults.
    totals : dict of str to float
        Quantities with units in their names, such as ``carbon_g``, for people and for result files.
    """

    faults: list[str]
    objective: float | None
    totals: dict[str, float] = field(default_factory=dict)
