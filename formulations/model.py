"""Model that a formulation hands over: a program, and the way between its points and decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from wattsched.formulations.counts import Counts
from wattsched.formulations.program import Program, ProgramBuilder
from wattsched.topology.arrays import FloatArray, IntArray

if TYPE_CHECKING:
    from wattsched.formulations.kinds import KindProgram
    from wattsched.verification.report import Proof

DecisionT = TypeVar("DecisionT")

Starts = Mapping[int, int]
"""Position on its line for each chosen column, from solvers that place intervals."""


@dataclass(frozen=True)
class Model(Generic[DecisionT]):
    """A program built from an instance, and the way back.

    Attributes
    ----------
    program : Program
    decode : callable
        Point of the program, and the starts of its intervals if it has any, to a decision. A ValueError says
        that the point is none.
    encode : callable
        Decision to a point of the program, None where a part of it has no column.
    nearest : callable, optional
        Decision of a similar instance, such as last round's, to a point that has as much of it as it can; it
        may violate rows. None where there is none.
    named_prices : callable, optional
        Row prices of the program (derivatives of its cost) to prices in the objective's sense under the names
        that certificates use; None where the rows have no such names.
    lagrangian : bool
        Every row has such a name and every decision is a point: the program's own Lagrangian bound is what
        the prices prove.
    units : mapping of str to float
        What one is, in the unit of a row's name, of rows that the program has in another.
    split : callable, optional
        Columns of one choice group, some inside and others outside, to the split of a certificate tree, and
        whether that has them the other way round; None for one that certificates cannot express. Columns of
        the group that are in neither are ruled out by the splits before.
    groups : sequence of str, optional
        Names of the choice groups, whose prices certificates may state then.
    counts : callable, optional
        What certificate trees count where they do not split groups. With neither there are no trees.
    prices : mapping of str to float, optional
        Certificate prices that are known from building the program.
    proof : Proof, optional
        What the checker says that they prove, where that was asked for while building.
    start : float array, optional
        A point that is known from building the program.
    outside : float
        What decisions cost at least that the program does not hold; infinite when it holds all of them.
    cut : bool
        Building it ran out of time: with more of it the program would hold other columns, or any.
    optimum : float array, shape (n_columns,), optional
        A point that an algorithm of the formulation's own has proved optimal: no solver is asked then.
    bound : float
        What every decision costs at least, as that algorithm proved it; -inf if there is none.
    proving : float
        Share of the solver's time, where that is limited, to keep for a certificate tree.
    rounded : float
        Terms of the cost, together, where others are so small that solvers do not tell them from nothing.
    written_out : callable, optional
        The model with every column of its program by kind, for solvers that take no other.
    columns : object, optional
        What the choice columns stand for, for branching of the problem's own.
    options, dropped : int, optional
        Options of all jobs, and those left out because another one of the same job dominates them.
    """

    program: Program | KindProgram
    decode: Callable[[Any, Starts], DecisionT]
    encode: Callable[[DecisionT], Any] = lambda decision: None
    nearest: Callable[[DecisionT], Any] | None = None
    named_prices: Callable[[FloatArray], dict[str, float]] | None = None
    lagrangian: bool = False
    units: Mapping[str, float] = field(default_factory=dict)
    split: Callable[[IntArray, IntArray], tuple[dict[str, Any], bool] | None] | None = None
    groups: Sequence[str] | None = None
    counts: Callable[[], Counts] | None = None
    prices: Mapping[str, float] | None = None
    proof: Proof | None = None
    start: FloatArray | None = None
    outside: float = math.inf
    cut: bool = False
    optimum: FloatArray | None = None
    bound: float = -math.inf
    proving: float = 0.0
    rounded: float = 0.0
    written_out: Callable[[], Model[DecisionT]] | None = None
    columns: Any = None
    options: int | None = None
    dropped: int | None = None

    @property
    def listed(self) -> Program:
        """The program, where every column is written down; ValueError for one by kind."""
        if not isinstance(self.program, Program):
            raise ValueError("the columns are not written down")
        return self.program


def not_built() -> Model[Any]:
    """Model without columns, for when the time does not suffice to build one: nothing is known from it."""

    def decode(x: FloatArray, starts: Starts) -> Any:
        raise ValueError("the model was not built in time")

    return Model(ProgramBuilder().program(), decode, outside=-math.inf, cut=True)


class UnsuitableError(ValueError):
    """An instance, valid in itself, is not one that a formulation takes."""
