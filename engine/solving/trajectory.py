"""Trajectory of a solver: when its decision and its bound became better, and what it spent on that."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from wattsched.solvers.effort import Effort
from wattsched.solvers.solution import Solution

# Relative improvements below this are rounding.
_LEAST = 1e-9

Improvement = tuple[float, float | None, float | None]
"""Seconds, and from then on the cost of the best decision and the bound; None before there is one."""


@dataclass
class Trajectory:
    """Improvements of a solver's decision and bound, in costs, and its effort.

    Attributes
    ----------
    improvements : list of (float, float or None, float or None)
        Seconds of building the program and solving it, cost, and lower bound.
    root_bound : float, optional
        Best bound before the solver branched; None where it did not say so.
    effort : Effort, optional
        Of the solver, once it has ended; None where it was not needed.
    """

    improvements: list[Improvement] = field(default_factory=list)
    root_bound: float | None = None
    effort: Effort | None = None

    def hear(self, phase_s: Mapping[str, float], found: Solution, most: float) -> None:
        """Take what a solver announces after these seconds; `most` is the highest bound that it can prove."""
        time_s = phase_s.get("build", 0.0) + phase_s["solve"]
        bound = min(found.bound, most)
        _, best, proven = self.improvements[-1] if self.improvements else (0.0, None, None)
        lower = found.objective is not None and (best is None or found.objective < best - _LEAST * abs(best))
        best = found.objective if lower else best
        known = math.isfinite(bound)
        if known and best is not None:
            bound = min(bound, best)
        higher = known and (proven is None or bound > proven + _LEAST * abs(proven))
        if higher and found.at_root:
            self.root_bound = bound
        if lower or higher:
            self.improvements.append((time_s, best, bound if higher else proven))
