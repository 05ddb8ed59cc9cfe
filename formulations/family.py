"""Families of programs: one problem that is the union of ordinary programs, one for each value of parameters.

A family's problem is solved by branching on its parameters: over a box of them, one program has no less than
all their points, at no higher cost, and is the same as the member of the family where the box is a point.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

Interval = tuple[float, float]
"""Least and largest value of a parameter."""

Box = Mapping[str, Interval]
"""Interval of each parameter, by its name."""


class Family(ABC):
    """A family of programs of one problem.

    Attributes
    ----------
    root : Box
        Intervals that the parameters of every decision lie in.
    """

    root: Box

    @abstractmethod
    def within(self, box: Box) -> Any:
        """Return the problem's data restricted to a box, from which formulations build its program."""

    @abstractmethod
    def constant(self, box: Box) -> float:
        """Return the cost that every decision has within a box, besides that of its program."""

    @abstractmethod
    def parameters(self, decision: Any) -> dict[str, float]:
        """Return the parameters that suit a decision best: at these its member of the family is exact."""

    @abstractmethod
    def looseness(self, box: Box) -> dict[str, float]:
        """Return by how much, at most, the program of a box understates any worst case; see `shortfalls`."""

    @abstractmethod
    def shortfalls(self, decision: Any, box: Box) -> dict[str, float]:
        """Return by how much the program of a box understates the worst case of a decision, by parameter.

        Relative to the limit, or the size of the objective, that the parameter belongs to.
        """

    @abstractmethod
    def split(self, name: str, interval: Interval, value: float) -> tuple[float, Interval, Interval] | None:
        """Split the interval of a parameter near a value; None for a point.

        Returns
        -------
        at_most : float
            What the parameter is at most in the first part, and more than in the second.
        inside, outside : Interval
        """
