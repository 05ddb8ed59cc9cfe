"""What formulations of problems with decisions of their own hand over."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from wattsched.formulations.program import Program
from wattsched.topology.arrays import FloatArray


class UnsuitableError(ValueError):
    """An instance, valid in itself, is not one that a formulation takes."""


@dataclass(frozen=True)
class Plan:
    """A program built from an instance, and the way back.

    Attributes
    ----------
    program : Program
    decide : callable
        Point of the program to a decision of the problem.
    point : callable
        Decision to a point of the program, None where a part of it has no column.
    priced : callable
        Row prices of the program to prices of capacities and budgets under the names that certificates use;
        None where they do not say what a certificate needs.
    bound : float, optional
        Lower bound on the cost of every decision, for a program that holds only generated columns and so
        bounds nothing by itself; in the program's sense, its offset included.
    prices : mapping of str to float, optional
        Certificate prices that prove that bound, in the objective's sense.
    outside : float
        Without `bound`, what decisions cost at least that the program does not hold.
    """

    program: Program
    decide: Callable[[FloatArray], Any]
    point: Callable[[Any], FloatArray | None] = lambda decision: None
    priced: Callable[[FloatArray], dict[str, float] | None] = lambda prices: None
    bound: float | None = None
    prices: Mapping[str, float] | None = None
    outside: float = math.inf
