"""The best point and the best bound of a program while they approach each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from wattsched.formulations.kinds import KindProgram
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.solvers.points import feasible
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Solution,
    announce,
    conclude,
    infeasible,
    relative_gap,
    rounding,
    unsupported,
)
from wattsched.topology.arrays import FloatArray


class Incumbent:
    """The best point and the best bound of a program, by kind or not, while they approach each other.

    The point `x` costs `objective`; `prices` prove the bound `priced`, and `bound` is the best so far, which
    may be higher. Points that cost more than the target are of no use.
    """

    def __init__(
        self, program: Program | KindProgram, limits: Limits, timer: Timer, target: float = np.inf
    ) -> None:
        self._whole, self.limits, self.timer, self.target = program, limits, timer, target
        self.x: Any = None
        self.objective = np.inf
        self.prices = np.zeros(program.n_rows)
        self.priced = self.bound = -np.inf
        self.cut = False  # time for a part of the search was up, though some is left
        self.failure = ""  # what HiGHS said when it failed on all open columns

    def offer(self, x: Any) -> None:
        """Take a point if it is feasible and better."""
        if x is not None and feasible(self._whole, x):
            objective = self._whole.objective(x)
            if objective < self.objective:
                self.x, self.objective = x, objective
                announce(self.bound, self.prices, x, objective)

    def take_prices(self, prices: FloatArray, bound: float) -> None:
        """Take prices, and the bound that they prove."""
        self.prices, self.priced = prices, bound
        self.bound = max(self.bound, bound)

    def raise_bound(self, proven: float) -> None:
        """Take a bound on all points better than the best one."""
        raised = min(self.objective, proven)
        if raised > self.bound:
            self.bound = raised
            if raised < np.inf:
                announce(raised)

    def enough(self, bound: float) -> float:
        """Cost of a point that closes the gap to a bound."""
        return bound + self.limits.gap * abs(bound)

    def bound_asked(self) -> float:
        """Bound that closes the gap of the best point; infinite without one."""
        return np.inf if self.x is None else self.objective - self.limits.gap * abs(self.objective)

    def margin(self, priced: float) -> float:
        """Reduced cost above its group's least that no column of a better point exceeds.

        The prices of the reduced costs prove the bound `priced`.
        """
        return self.objective - priced + rounding(self._whole, self.objective)

    def done(self) -> bool:
        """True if the gap is closed or cannot be, a kernel has failed, or time is up."""
        closed = self.x is not None and relative_gap(self.objective, self.bound) <= self.limits.gap
        hopeless = self.bound == np.inf or self.bound > self.target
        return closed or hopeless or bool(self.failure) or self.timer.over()

    def conclude(self) -> Solution:
        """Solution as it stands."""
        if self.bound == np.inf:
            return infeasible(self.prices, "no decision satisfies the rows")
        if self.failure and self.x is None:
            return unsupported(self.failure)
        limit: Limit | None = "time" if self.cut or self.timer.over() else None
        return conclude(self._whole, self.limits, self.x, self.bound, self.prices, limit)
