"""Requests of `solve`, before and after the instance is read; each has an answer at any moment."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from wattsched.call import UNCHECKED, Call
from wattsched.formulations.model import Model
from wattsched.formulations.timer import Timer
from wattsched.problems import Problem
from wattsched.result import Result, TerminationReport
from wattsched.solvers.solution import Limits


@dataclass
class Request:
    """Request of a `solve` call; its timer runs from here.

    Attributes
    ----------
    names : tuple of three str
        Of formulation, solver and objective.
    call : Call, optional
        Once the instance is read.
    answer : Result, optional
        Once it is known.
    brief : bool
        Whether the instance is known to be sound, and the digest left to the caller.
    """

    instance: Any
    names: tuple[str | None, str, str | None]
    limits: Limits
    initial_solution: Any
    watched: bool
    prove_s: float | None = None
    spread: Callable[[Model[Any]], Model[Any]] | None = None
    brief: bool = False
    log: Callable[[str], None] | None = None
    call: Call | None = None
    answer: Result | None = None

    def __post_init__(self) -> None:
        self.formulation, self.solver, self.objective = self.names
        self.timer = Timer(self.limits.time_s)

    def begin(self, instance: Any, problem: Problem[Any, Any, Any], prices: Mapping[str, float]) -> Call:
        """Begin the call with a sound instance."""
        formulation = self.formulation or problem.default
        known = instance, problem, formulation, self.solver, self.limits, prices, self.timer
        self.call = Call(*known, self.watched, self.prove_s, self.spread, brief=self.brief, log=self.log)
        return self.call

    def give_up(self) -> None:
        """End whatever still runs."""
        self.timer.stop()
        self.close()

    def close(self) -> None:
        """Return the process, or kill it where it still works."""
        if self.call is not None:
            self.call.close()

    def in_hand(self, limit: Literal["time", "stopped"]) -> Result:
        """Answer when the request cannot be followed any further."""
        if self.answer is not None:
            return self.answer
        if self.call is not None:
            return self.call.in_hand(limit=limit)
        known, detail = self.instance, UNCHECKED[limit]
        if isinstance(known, str | os.PathLike):
            detail = detail.replace("no decision was checked", "the instance was not read")
        return Result(
            instance=getattr(known, "name", None) or Path(str(known)).name,
            digest="",
            problem=getattr(known, "problem", "sizing"),
            formulation=self.formulation or "",
            solver=self.solver,
            objective_name=str(self.objective or getattr(known, "objective", "")),
            sense="min",
            termination=TerminationReport(reason="no_solution", limit=limit, detail=detail),
            proven_gap=None,
            gap_asked=self.limits.gap,
            claimed=False,
            time_s={"total": self.timer.elapsed_s()},
        )
