"""The state of one call of `solve`: what is asked for, and what has been made of it so far."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from wattsched.formulations.timer import Timer
from wattsched.problems import Problem
from wattsched.result import Result, TerminationReport
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution, Termination

if TYPE_CHECKING:
    from wattsched.formulations.model import Model
    from wattsched.topology.arrays import FloatArray
    from wattsched.verification.report import Report

EARLIER = "initial_solution"
"""Who made an earlier decision, in messages."""

_BUILD_SHARE = 0.7
"""Share of the time limit that a formulation may take, which may generate columns for as long as it can."""


@dataclass(frozen=True)
class Candidate:
    """A decision that is known: as a point of a model's program, or spelled out and checked.

    Attributes
    ----------
    of : str
        Who made it.
    cost : float
        As claimed, to be minimised.
    """

    of: str
    cost: float
    model: Model[Any] | None = None
    solution: Solution | None = None
    decision: Any = None
    report: Report | None = None

    def point_of(self, model: Model[Any]) -> FloatArray | None:
        """Point of a model's program, None where it has none."""
        if self.solution is not None:
            return self.solution.x if self.model is model else None
        x: FloatArray | None = model.encode(self.decision)
        return x


@dataclass
class Call:
    """What is asked for, and what has been made of it so far.

    Attributes
    ----------
    prices : mapping of str to float
        Certificate prices of an earlier answer.
    data : object
        The instance in arrays, as the problem expands it.
    models : dict of str to Model
        By formulation; each is built once.
    """

    instance: Any
    problem: Problem[Any, Any, Any]
    formulation: str
    solver: str
    limits: Limits
    prices: Mapping[str, float] = field(default_factory=dict)
    timer: Timer = field(init=False)
    data: Any = None
    models: dict[str, Model[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.timer = Timer(self.limits.time_s)

    @property
    def sign(self) -> float:
        """What turns the objective into a cost."""
        return 1.0 if self.problem.objectives[self.instance.objective] == "min" else -1.0

    @property
    def by_heuristic(self) -> bool:
        """Whether a heuristic of the problem is asked for, and of solvers only a bound."""
        return self.solver in self.problem.heuristics

    @property
    def exact(self) -> bool:
        """Whether the solver finds the optimum when it has the time."""
        return not self.by_heuristic and find_solver(self.solver).exact

    def limits_left(self, share: float = 1.0) -> Limits:
        """Limits with a share of what is left of the time, at least a few milliseconds."""
        left_s = self.timer.remaining_s()
        return self.limits if left_s is None else replace(self.limits, time_s=max(0.01, share * left_s))

    def model(self, formulation: str) -> Model[Any]:
        """Model of a formulation."""
        if formulation not in self.models:
            build = self.problem.formulation(formulation)
            with self.timer.phase("build" if formulation == self.formulation else "reference"):
                model = build(self.data, self.instance.objective, self.timer.until(_BUILD_SHARE))
            self.models[formulation] = model
        return self.models[formulation]

    def checked(self, of: str, decision: Any) -> Candidate:
        """Candidate of a decision, with what the checker says of it."""
        with self.timer.phase("check"):
            report = self.problem.check(self.instance, decision)
        valid = not report.faults and report.objective is not None
        cost = self.sign * (report.objective or 0.0) if valid else math.inf
        return Candidate(of, cost, decision=decision, report=report)

    def of_solution(self, of: str, model: Model[Any], solution: Solution) -> list[Candidate]:
        """Candidate of a solver's point, if it has one."""
        if solution.x is None:
            return []
        cost = model.program.objective(solution.x) if solution.objective is None else solution.objective
        return [Candidate(of, cost, model, solution)]

    def result(self, termination: Termination, **values: object) -> Result:
        """Result with everything that is known from the start."""
        return Result(
            instance=self.instance.name,
            problem=self.problem.name,
            formulation=self.formulation,
            solver=self.solver,
            objective_name=self.instance.objective,
            sense=self.problem.objectives[self.instance.objective],
            termination=TerminationReport(**asdict(termination)),
            time_s={**self.timer.phase_s, "total": self.timer.elapsed_s()},
            **values,  # type: ignore[arg-type]  # pydantic checks them
        )
