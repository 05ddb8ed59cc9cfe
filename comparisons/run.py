"""One run of a comparison: what was asked, what came out."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter

from wattsched.environment.version import __version__
from wattsched.formulations.external import source_of
from wattsched.report.wording import printable
from wattsched.results.problems import problem
from wattsched.results.result import SolverAnswer
from wattsched.solvers.effort import Effort
from wattsched.solvers.solution import UNBOUNDED, Limit
from wattsched.solving.trajectory import Improvement, Trajectory

if TYPE_CHECKING:
    from wattsched.results.result import Result

Number = TypeVar("Number", int, float)
Status = Literal["optimal", "feasible", "infeasible", "no_solution", "error", "skipped"]
AtLeastZero = Annotated[Number, Field(ge=0)]


def _require_printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("has control characters")
    return text


Line = Annotated[str, AfterValidator(_require_printable)]

LIBRARIES = ("highspy", "ortools", "pyomo", "pyscipopt")
IMPORTED_LATE = ("scipy.sparse", "pyomo.environ")
"""Modules that formulations import while they build: imported first, so that no run is charged for it."""


@dataclass(frozen=True)
class Settings:
    """Options that all runs of a comparison share; `time_limit_s` None is none."""

    objective: str | None = None
    gap: float = 1e-4
    time_limit_s: float | None = 60.0
    threads: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Case:
    """An instance of a comparison: its file, a short name that no other has, a hash of its content.

    `formulation` decides it where none is named. One that was made in Python is held as `instance`; its file
    is then its name and place among the others.
    """

    file: str | Path
    label: str
    content: str
    problem: str
    objective: str
    formulation: str
    instance: Any = None


@dataclass(frozen=True)
class Run:
    """One instance by one formulation and one solver.

    Attributes
    ----------
    key : str
        Hash of the instance's content, all options and the versions: equal keys, equal runs.
    status : str
        As `Result.termination.reason`, or ``skipped`` when the solver cannot take the program.
    solver_status, solver_limit, solver_objective, solver_bound, solver_gap
        As `Result.solver_answer`: what formulation and solver found by themselves. `objective`, `bound` and
        `gap` are of the best decision and the best bound that `solve` had of anybody.
    decided_by : str
        As `Result.decided_by`: empty where the solver asked for made the decision.
    faults : list of str
        What was wrong with the answer.
    build_s, solve_s, total_s : float
        Building the program, the solver, everything.
    cpu_s : float, optional
        Processor seconds of the solver, of all its threads and processes.
    nodes : int, optional
        Nodes that the solver branched into (branches of CP-SAT); None where it does not count them.
    root_bound : float, optional
        Best bound before it branched; None where it does not say so.
    trajectory : tuple of (float, float or None, float or None)
        Seconds of building and solving after which the solver's own decision or bound became better, with
        the objective and the bound from then on.
    primal_integral_s : float, optional
        See `comparisons.trajectories.primal_integral`; of runs in a comparison.
    """

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    key: str
    instance: str
    content: str
    formulation: str
    solver: str
    objective_name: str
    gap_asked: float
    time_limit_s: float | None
    threads: int
    seed: int
    version: str
    status: Status
    solver_status: Status
    sense: Literal["min", "max"] = "min"
    limit: Limit | None = None
    detail: Line = ""
    decided_by: Line = ""
    objective: float | None = None
    bound: float | None = None
    gap: AtLeastZero[float] | None = None
    solver_limit: Limit | None = None
    solver_objective: float | None = None
    solver_bound: float | None = None
    solver_gap: AtLeastZero[float] | None = None
    checked: bool = False
    build_s: AtLeastZero[float] | None = None
    solve_s: AtLeastZero[float] | None = None
    total_s: AtLeastZero[float] | None = None
    options: AtLeastZero[int] | None = None
    columns: AtLeastZero[int] | None = None
    rows: AtLeastZero[int] | None = None
    nonzeros: AtLeastZero[int] | None = None
    cpu_s: AtLeastZero[float] | None = None
    nodes: AtLeastZero[int] | None = None
    root_bound: float | None = None
    primal_integral_s: AtLeastZero[float] | None = None
    trajectory: tuple[Improvement, ...] = ()
    faults: tuple[Line, ...] = ()

    @property
    def pair(self) -> str:
        """Formulation and solver in one word."""
        return f"{self.formulation} {self.solver}"

    @property
    def question(self) -> tuple[str, str]:
        """Content of the instance and objective: runs with the same ones have the same optimum."""
        return self.content, self.objective_name

    @property
    def case(self) -> str:
        """Instance and seed in one word."""
        return f"{self.instance} seed {self.seed}"

    @property
    def solved(self) -> bool:
        """True if formulation and solver reached the gap by themselves, or proved infeasibility."""
        return self.solver_status in ("optimal", "infeasible") and not self.faults

    def as_dict(self) -> dict[str, Any]:
        """Fields as plain values, for JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, text: bytes) -> Run:
        """Run from the JSON of what `as_dict` gave.

        A ValueError if it has other fields or types, numbers that are not finite, or control characters.
        """
        return _adapter().validate_json(text)


@cache
def _adapter() -> TypeAdapter[Run]:
    return TypeAdapter(Run)


def content_of(instance: BaseModel) -> str:
    """Hash of an instance's content, whatever the file's layout."""
    return hashlib.sha256(instance.model_dump_json().encode()).hexdigest()


def key_of(case: Case, formulation: str, solver: str, settings: Settings) -> str:
    """Hash of everything that a run depends on, a user's formulation and solver included."""
    files = [file for file in map(source_of, (formulation, solver)) if file is not None]
    parts = {
        "content": case.content,
        "formulation": formulation,
        "code": "".join(map(_code_of, files)),
        "solver": solver,
        **asdict(settings),
        "objective": case.objective if settings.objective is None else settings.objective,
        "versions": versions(),
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:24]


def _code_of(own: Path) -> str:
    """Hash of a user's file, and of what it may import from its folder."""
    known = hashlib.sha256()
    for file in sorted({own, *own.parent.glob("*.py")}):
        known.update(f"{file.name}\0".encode() + hashlib.sha256(file.read_bytes()).digest())
    return known.hexdigest()


@cache
def versions() -> dict[str, str]:
    """Versions of wattsched and of the libraries that solve, by name; ``none`` of those that are missing."""
    installed = {name: version(name) if find_spec(name) else "none" for name in LIBRARIES}
    return {"wattsched": __version__, **installed}


def execute(case: Case, instance: Any, formulation: str, solver: str, settings: Settings) -> Run:
    """Solve once; a solver or a user's formulation that fails is an outcome too."""
    from wattsched.formulations.model import UnsuitableError
    from wattsched.instances.errors import InputError
    from wattsched.solving.call import Call
    from wattsched.solving.engine import answered, limits_of, undisturbed

    asked = asked_of(case, formulation, solver, settings)
    names, trajectory = (formulation, solver, settings.objective), Trajectory()
    for module in IMPORTED_LATE:
        import_module(module)
    try:
        limits = limits_of(settings.gap, settings.time_limit_s, settings.threads, settings.seed)
        with undisturbed(limits):
            result = answered(Call(instance, names, limits, trajectory=trajectory))
    # One failure must not end the comparison of the others.
    except InputError as error:  # in a user's formulation, or the instance is too odd to be solved
        return _without_answer(asked, "error", "; ".join(error.faults))
    except UnsuitableError as error:
        return _without_answer(asked, "skipped", str(error))
    except Exception as error:
        return _without_answer(asked, "error", f"{type(error).__name__}: {error}")
    return _outcome(result, asked, trajectory)


def asked_of(case: Case, formulation: str, solver: str, settings: Settings) -> dict[str, Any]:
    """Fields of a run that are known before it."""
    rules = problem(case.problem)
    objective_name = rules.objective(case.objective if settings.objective is None else settings.objective)
    return {
        "key": key_of(case, formulation, solver, settings),
        "instance": case.label,
        "content": case.content,
        "formulation": formulation,
        "solver": solver,
        "objective_name": objective_name,
        "sense": rules.objectives[objective_name],
        "gap_asked": settings.gap,
        "time_limit_s": settings.time_limit_s,
        "threads": settings.threads,
        "seed": settings.seed,
        "version": __version__,
    }


def _without_answer(asked: dict[str, Any], status: Status, detail: str) -> Run:
    return Run(**asked, status=status, solver_status=status, detail=printable(detail))


def _outcome(result: Result, asked: dict[str, Any], trajectory: Trajectory) -> Run:
    """Run of what was asked, with what `solve` has answered, and the solver's way there."""
    own, ended = result.solver_answer, result.termination
    if own is not None and own.reason == "error" and not result.faults:
        # A solver may be unable to take a program; one that has no optimum is wrong.
        return _without_answer(asked, "error" if own.detail == UNBOUNDED else "skipped", own.detail)
    if own is None:  # there is no decision, by the formulation's own proof, or time ended before the solver
        proven = ended.reason == "infeasible"
        own = SolverAnswer(
            reason="infeasible" if proven else "no_solution", limit=None if proven else ended.limit or "time"
        )
    size = result.size.model_dump(exclude={"dropped"}) if result.size is not None else {}
    known: dict[str, Any] = {
        "status": ended.reason,
        "solver_status": own.reason,
        "limit": ended.limit,
        "detail": printable(ended.detail),
        "decided_by": printable(result.decided_by),
        **{name: getattr(result, name) for name in ("objective", "bound", "gap", "checked")},
        **{f"solver_{name}": getattr(own, name) for name in ("limit", "objective", "bound", "gap")},
        **{f"{part}_s": result.time_s.get(part) for part in ("build", "solve", "total")},
        "faults": tuple(map(printable, result.faults)),
    }
    ended_s = (known["build_s"] or 0.0) + (known["solve_s"] or 0.0)
    return Run(**asked, **known, **size, **_story(trajectory, own, asked["sense"], ended_s))


def _story(trajectory: Trajectory, own: SolverAnswer, sense: str, ended_s: float) -> dict[str, Any]:
    """Fields on a solver's way to its answer, in the objective's own sense; the answer itself comes last."""
    sign = -1.0 if sense == "max" else 1.0

    def stated(cost: float | None) -> float | None:
        return None if cost is None else sign * cost

    told = [(time_s, stated(cost), stated(bound)) for time_s, cost, bound in trajectory.improvements]
    if (own.objective, own.bound) != (told[-1][1:] if told else (None, None)):
        told.append((max(ended_s, told[-1][0] if told else 0.0), own.objective, own.bound))
    effort = trajectory.effort or Effort()
    return {
        "cpu_s": None if trajectory.effort is None else effort.cpu_s,
        "nodes": effort.nodes,
        "root_bound": stated(trajectory.root_bound),
        "trajectory": tuple(told),
    }
