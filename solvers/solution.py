"""What every solver takes and returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from wattsched.formulations.program import FloatArray, Program

Reason = Literal["optimal", "feasible", "infeasible", "no_solution", "error"]
Limit = Literal["time", "gap", "nodes"]


@dataclass(frozen=True)
class Termination:
    """Why a solver stopped, and which limit made it stop."""

    reason: Reason
    limit: Limit | None = None
    detail: str = ""


@dataclass(frozen=True)
class Limits:
    """What a solver may spend.

    Attributes
    ----------
    gap : float
        Relative gap that counts as optimal.
    time_s : float, optional
        Wall-clock limit; None is none.
    threads, seed : int
    nodes : int, optional
        Nodes of branch and cut, for solvers that count them (HiGHS). Unlike seconds they are the same in
        every run.
    """

    gap: float = 1e-4
    time_s: float | None = None
    threads: int = 1
    seed: int = 0
    nodes: int | None = None


@dataclass(frozen=True)
class Start:
    """What is known before a solver begins, for example from the round before.

    Attributes
    ----------
    x : float array, shape (n_columns,), optional
        A point; it need not be feasible any more.
    prices : float array, shape (n_rows,), optional
        Row prices, as in `Solution.prices`.
    rule : callable, optional
        Builds a point from row prices, None where it finds none; for a solver that knows prices before it
        needs a point, and may never need one.
    """

    x: FloatArray | None = None
    prices: FloatArray | None = None
    rule: Callable[[Program, FloatArray], FloatArray | None] | None = None


@dataclass(frozen=True)
class Solution:
    """Answer to a Program, in its cost (always minimised, offset included).

    Attributes
    ----------
    x : float array, shape (n_columns,), optional
        Integer columns are exact integers.
    objective : float, optional
        Cost of `x`.
    bound : float
        Proven lower bound on the cost; -inf when there is none.
    prices : float array, shape (n_rows,), optional
        Row prices y (derivative of the LP's optimal cost by the row's bound).
    starts : dict of int to int
        Position on its line for each chosen column, from solvers that place intervals.
    """

    termination: Termination
    x: FloatArray | None = None
    objective: float | None = None
    bound: float = -np.inf
    prices: FloatArray | None = None
    starts: dict[int, int] = field(default_factory=dict)
