"""The solvers by name.

Adding one is one file with a function ``solve(program, limits, start=None) -> Solution`` and one line in
`_SOLVERS`. Its module, and whatever it imports, is loaded when the solver is first called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from shutil import which
from typing import TYPE_CHECKING, Any

from wattsched.formulations.external import find, source_of
from wattsched.formulations.program import Program
from wattsched.reading.inputs import meant
from wattsched.solvers.solution import Solution, unsupported, without_columns

if TYPE_CHECKING:
    from wattsched.formulations.kinds import KindProgram
    from wattsched.solvers.solution import Limits, Start

PYOMO_PREFIX = "pyomo:"
_THROUGH_PYOMO = 1e-5
"""Rounding of solvers whose tolerances are not ours to set."""


@dataclass(frozen=True)
class Solver:
    """The function `solve` of the module in this package that has the solver's name.

    It is imported when it is first called.

    Attributes
    ----------
    name : str
        As users give it.
    description : str
        For ``--help``.
    exact : bool
        Finds the optimum, and proves infeasibility, when it has the time.
    takes_intervals : bool
        Can place the aligned intervals of `Program.intervals`.
    relaxes : bool
        Solves a small program's LP relaxation first, which is often the answer, and builds a point by
        `Start.rule` only when it is not.
    by_kind : str
        Function of `solvers.by_kind` that takes programs by kind for it; others take none.
    chooses_first : bool
        Is made for choices alone, and leaves columns that supply rows for later (`solvers.supply`).
    through : str
        Name under which Pyomo has it, where it is called through Pyomo, in a process that can be killed.
    rounding : float
        What its tolerances may add to a bound, relative to the terms of the cost.
    """

    name: str
    description: str
    exact: bool = False
    takes_intervals: bool = False
    relaxes: bool = False
    by_kind: str = ""
    chooses_first: bool = False
    through: str = ""
    rounding: float = 1e-7

    def __call__(
        self, program: Program | KindProgram, limits: Limits, start: Start | None = None
    ) -> Solution:
        """Solve the program; one that this solver cannot take is answered with an error."""
        if program.intervals is not None and not self.takes_intervals:
            return unsupported(f"solver '{self.name}' cannot place intervals on lines")
        module, plugin = ("pyomo", self.through) if self.through else (self.name, "")
        if source_of(self.name) is not None:
            module, plugin = "own", self.name
        function = "solve"
        if program.by_kind:
            if not self.by_kind:
                return unsupported(f"solver '{self.name}' takes no program by kind")
            module, function = "by_kind", self.by_kind
        elif isinstance(program, Program) and program.n_columns == 0:
            return without_columns(program, limits)
        solve: Callable[..., Any] = getattr(import_module(f"wattsched.solvers.{module}"), function)
        if plugin:
            solve = functools.partial(solve, name=plugin)
        if isinstance(program, Program) and program.supply and self.chooses_first:
            from wattsched.solvers import highs, supply

            otherwise = highs.solve if self.exact else None
            solve = functools.partial(supply.solve_without, solver=solve, otherwise=otherwise)
        found = solve(program, limits, start)
        if not isinstance(found, Solution):
            return unsupported(f"solver '{self.name}' returned {type(found).__name__}, not a Solution")
        return found

    def at_once(self, program: Program | KindProgram, limits: Limits) -> Solution | None:
        """Solve a program that takes a moment, and need not be watched meanwhile; None for all others."""
        if self.name != "auto" or not isinstance(program, Program):
            return None
        from wattsched.solvers import labels

        return labels.solve(program, limits)


_SOLVERS = (
    Solver(
        "auto",
        "what suits the size, or a race where threads allow",
        exact=True,
        takes_intervals=True,
        relaxes=True,
        by_kind="solve",
        chooses_first=True,
    ),
    Solver(
        "price",
        "row prices, small kernels, branching on lumpy jobs",
        exact=True,
        relaxes=True,
        by_kind="solve",
        chooses_first=True,
    ),
    Solver("highs", "HiGHS branch and cut on the whole program", exact=True, relaxes=True),
    Solver("cpsat", "CP-SAT on scaled integers", exact=True, takes_intervals=True, rounding=0.0),
    Solver(
        "greedy",
        "steepest ascent along the jobs' efficient frontiers",
        by_kind="greedy_point",
        chooses_first=True,
    ),
    Solver("powerflow", "PowerFlow's rule: time saved per energy spent", chooses_first=True),
)


_OTHERS = {"scip": ("SCIP", "scip"), "cbc": ("CBC", "cbc"), "glpk": ("GLPK", "glpsol")}
"""Solvers of others that are called through Pyomo under their own names, and their programs."""


def installed(name: str) -> bool:
    """True if a solver of others, such as ``scip``, is there: its program, or SCIP's Python package."""
    _, program = _OTHERS[name]
    return which(program) is not None or (name == "scip" and find_spec("pyscipopt") is not None)


def names() -> list[str]:
    """Names of the solvers of our own; those of others are in `descriptions`."""
    return [solver.name for solver in _SOLVERS]


def descriptions() -> dict[str, str]:
    """Return a description of every solver, by name, and of ``pyomo:NAME``."""
    own = {solver.name: solver.description for solver in _SOLVERS}
    for name, (title, _) in _OTHERS.items():
        own[name] = f"{title} on the whole program; {'found' if installed(name) else 'not installed'} here"
    others = {f"{PYOMO_PREFIX}NAME": "any solver that Pyomo finds", "FILE.py:NAME": "a function of yours"}
    return {**own, **others}


def get(name: str) -> Solver:
    """Solver of that name; without one a ValueError lists the known names."""
    for solver in _SOLVERS:
        if solver.name == name:
            return solver
    if name in _OTHERS:
        # Without its Python package SCIP's program is looked for.
        through = "scip_direct" if name == "scip" and find_spec("pyscipopt") else name
        return Solver(name, _OTHERS[name][0], exact=True, through=through, rounding=_THROUGH_PYOMO)
    if name.startswith(PYOMO_PREFIX) and name != PYOMO_PREFIX:
        plugin = name.removeprefix(PYOMO_PREFIX)
        told = f"Pyomo's interface to '{plugin}'"
        return Solver(name, told, exact=True, through=plugin, rounding=_THROUGH_PYOMO)
    if source_of(name) is not None and find(name) is not None:
        return Solver(name, "a function of a file")
    known = descriptions()
    raise ValueError(f"unknown solver '{name}'{meant(name, known)}; known solvers: {', '.join(known)}")
