"""The solvers by name; adding one is one file and one line here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

from wattsched.solvers.solution import conclude, infeasible, unsupported

if TYPE_CHECKING:
    from wattsched.formulations.program import Program
    from wattsched.solvers.solution import Limits, Solution, Start

PYOMO_PREFIX = "pyomo:"


@dataclass(frozen=True)
class Solver:
    """A solver that is imported when it is first called.

    Attributes
    ----------
    name : str
    target : str
        ``module:function`` inside this package.
    description : str
    exact : bool
        Finds the optimum, and proves infeasibility, when it has the time.
    takes_intervals : bool
        Can place the aligned intervals of `Program.intervals`.
    relaxes : bool
        Solves a small program's LP relaxation first, which is often the answer, and builds a point by
        `Start.rule` only when it is not.
    """

    name: str
    target: str
    description: str
    exact: bool = False
    takes_intervals: bool = False
    relaxes: bool = False

    def __call__(self, program: Program, limits: Limits, start: Start | None = None) -> Solution:
        """Solve the program; one that this solver cannot take is answered with an error."""
        if program.intervals is not None and not self.takes_intervals:
            return unsupported(f"solver '{self.name}' cannot place intervals on lines")
        if program.n_columns == 0:
            return _without_columns(program, limits)
        module, function = self.target.split(":")
        solve = getattr(import_module(f"wattsched.solvers.{module}"), function)
        if self.name.startswith(PYOMO_PREFIX):
            solve = functools.partial(solve, name=self.name.removeprefix(PYOMO_PREFIX))
        return cast("Callable[..., Solution]", solve)(program, limits, start)


def _without_columns(program: Program, limits: Limits) -> Solution:
    """Answer for a round without jobs, which most solvers do not accept."""
    x = program.cost[:0]
    if (program.row_lower > 0).any() or (program.row_upper < 0).any():
        return infeasible(detail="a row demands something but there are no columns")
    return conclude(program, limits, x, program.offset)


_SOLVERS = {
    solver.name: solver
    for solver in (
        Solver(
            "auto",
            "auto:solve",
            "what suits the size, or a race where threads allow",
            exact=True,
            takes_intervals=True,
            relaxes=True,
        ),
        Solver(
            "price",
            "price:solve",
            "row prices, small kernels, branching on lumpy jobs",
            exact=True,
            relaxes=True,
        ),
        Solver("highs", "highs:solve", "HiGHS branch and cut on the whole program", exact=True, relaxes=True),
        Solver("cpsat", "cpsat:solve", "CP-SAT on scaled integers", exact=True, takes_intervals=True),
        Solver("greedy", "greedy:solve", "steepest ascent along the jobs' efficient frontiers"),
        Solver("powerflow", "powerflow:solve", "PowerFlow's rule: time saved per energy spent"),
    )
}


def names() -> list[str]:
    """Names of the solvers; ``pyomo:NAME`` stands for any solver that Pyomo finds."""
    return list(_SOLVERS)


def get(name: str) -> Solver:
    """Solver of that name.

    Raises
    ------
    ValueError
        When there is none; the message lists the known names.
    """
    if name in _SOLVERS:
        return _SOLVERS[name]
    if name.startswith(PYOMO_PREFIX) and name != PYOMO_PREFIX:
        plugin = name.removeprefix(PYOMO_PREFIX)
        return Solver(name, "pyomo:solve", f"Pyomo's interface to '{plugin}'", exact=True)
    known = ", ".join([*names(), f"{PYOMO_PREFIX}NAME"])
    raise ValueError(f"unknown solver '{name}'; known solvers: {known}")
