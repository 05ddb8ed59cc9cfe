"""What checking a decision, and proving a bound, find."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Report:
    """Faults of a decision, and what it amounts to.

    Attributes
    ----------
    faults : list of str
        One line each; the decision is valid when there is none.
    objective : float, optional
        Recomputed; None when it has no meaning because of the faults.
    totals : dict of str to float
        What the decision uses and does, by names with their units such as ``carbon_g``.
    """

    faults: list[str]
    objective: float | None = None
    totals: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Proof:
    """What the row prices of a certificate prove.

    Attributes
    ----------
    faults : list of str
        Why the prices prove nothing, one line each.
    bound : float, optional
        Proven: no decision has a better objective; rounded to the safe side.
    reach : float, optional
        Best bound that an honest computation can have found with these prices, where that is known.
    leeway : float
        By how much a decision may beat the bound because budgets are checked with a tolerance.
    excess : float
        By how much the bound lies above what any decision could cost at most, where that is known: more than
        0 proves that there is no decision.
    exact : bool
        Whether every number was rational.
    """

    faults: list[str] = field(default_factory=list)
    bound: float | None = None
    reach: float | None = None
    leeway: float = 0.0
    excess: float = -math.inf
    exact: bool = False
