"""What a formulation hands over: a program, and the way back from a solution to a decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from wattsched.formulations.program import Program
from wattsched.formulations.sizing.data import Options
from wattsched.instances.sizing.decision import Decision
from wattsched.topology.arrays import FloatArray, IntArray


@dataclass(frozen=True)
class Model:
    """A program built from an instance.

    Attributes
    ----------
    program : Program
    dropped : int
        Options left out because another option of the same job dominates them.
    choose : callable
        Point of the program to the chosen option of each job, shape (n_jobs,).
    place : callable
        Point, interval starts and chosen options to a decision with concrete GPUs.
    point : callable
        Chosen options to a point of the program, None where an option has no column or there is no way.
    """

    program: Program
    dropped: int
    choose: Callable[[FloatArray], IntArray]
    place: Callable[[FloatArray, dict[int, int], IntArray], Decision]
    point: Callable[[IntArray], FloatArray | None] = lambda chosen: None


class Formulation(Protocol):
    """A way to write a problem as a Program."""

    name: str
    description: str

    def __call__(self, options: Options, objective: str) -> Model:
        """Build the model of a round for an objective."""
        ...
