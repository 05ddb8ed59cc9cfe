"""One call of `solve`: what is asked for, what has been made of it so far, and the best decision in hand."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.model import Model
from wattsched.formulations.timer import Timer
from wattsched.results.problems import Problem
from wattsched.results.problems import problem as find_problem
from wattsched.results.result import Certificate, Result, TerminationReport
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limit, Limits, Reason, Solution, Termination, relative_gap, rounding
from wattsched.solving.trajectory import Trajectory
from wattsched.verification.certificates import self_evident
from wattsched.verification.claims import INTERNAL, beyond_proof
from wattsched.verification.report import Report
from wattsched.verification.tree import ProveLeaf

if TYPE_CHECKING:
    from wattsched.solvers.worker import Worker

EARLIER = "initial_solution"
"""Source, in messages, of an earlier decision."""

BRANCHING = "branching"
"""Source of a decision that was found when another one was to be proven."""

IN_PLACE = "in place"
"""Source of a decision in which no job moves, where moves have a price that options do not say."""

ROUNDING = 1e-6
"""A bound may be so much beyond a decision's cost, relative to it, by rounding."""

UNCHECKED = {
    "time": "no decision was checked in time",
    "stopped": "no decision was checked before the call was stopped",
}
"""Default messages, by limit, for calls that end without a decision."""

_BUILD_SHARE = 0.9
"""Share of the time limit that a formulation may take, which may generate columns for as long as it can."""
# Decoding and checking look at one option of each job: they take a few times as long as expanding did where
# jobs have few. The second time they take about as long as before.
_EXPANSIONS, _PER_JOB_S = 3.0, 0.0002
# By so much do equal decisions differ that were counted otherwise.
_LAST_DIGITS = 1e-9
_MARGIN = 1.3
_LEAST_SHARE = 0.02


class StoppedError(RuntimeError):
    """The call was given up, or is to stop."""


@dataclass(frozen=True)
class Candidate:
    """A decision that was found: as a point of a model's program, or spelled out and checked.

    Attributes
    ----------
    source : str
        Name of the solver or heuristic that produced it.
    cost : float
        As claimed, to be minimised.
    """

    source: str
    cost: float
    model: Model[Any] | None = None
    solution: Solution | None = None
    decision: Any = None
    report: Report | None = None

    @property
    def valid(self) -> bool:
        """True if the checker has accepted the decision."""
        checked = self.report is not None and not self.report.faults and self.report.objective is not None
        return checked and self.decision is not None

    def point_of(self, model: Model[Any]) -> Any:
        """Point of a model's program, None where it has none."""
        if self.solution is not None:
            return self.solution.x if self.model is model else None
        return model.encode(self.decision)


@dataclass
class Call:
    """State of one `solve` call: its request, models, incumbent and bound; its timer runs from here.

    Attributes
    ----------
    instance : object
        As it was given, and sound once the call has begun.
    names : tuple of str
        Requested formulation, solver and objective; None for the default.
    stop : threading.Event, optional
        Ends the call when it is set.
    prove_s : float, optional
        Seconds for a certificate tree.
    spread : callable, optional
        A model to the same with passes over its program done elsewhere.
    of_session : bool
        Whether the instance is known to be sound, and the caller adds what is not needed for the decision,
        such as the digest.
    log : callable, optional
        Reads what is done, and what solvers say, line by line.
    trajectory : Trajectory, optional
        Where improvements of the requested solver are recorded.
    answer : Result, optional
        Result of the call, once it is complete.
    begun : bool
        Whether the instance was read: `problem`, `formulation` and the earlier answer's `prices` are set.
    data : object
        The instance in arrays, as the problem expands it.
    timer : Timer
        Over when only what is set aside for decoding and checking is left.
    models : dict of str to Model
        By formulation; each is built once.
    bound : float
        Best lower bound on the cost that solvers have found so far.
    incumbent : Candidate, optional
        Best decision that the checker has accepted.
    unchecked : list of Candidate
        Others that were found, and are quickly checked.
    certificate : Certificate, optional
        What is proven so far, by the prices of the safety net.
    partial_result : callable, optional
        Builds the result to return if the call is stopped now, once a solver has ended.
    digest : str
        Of the instance, once that is computed.
    """

    instance: Any
    names: tuple[str | None, str, str | None]
    limits: Limits
    initial_solution: Any = None
    stop: Event | None = None
    prove_s: float | None = None
    spread: Callable[[Model[Any]], Model[Any]] | None = None
    of_session: bool = False
    log: Callable[[str], None] | None = None
    trajectory: Trajectory | None = None
    answer: Result | None = None
    begun: bool = False
    problem: Problem[Any, Any, Any] = field(init=False)
    prices: Mapping[str, float] = field(default_factory=dict)
    data: Any = None
    models: dict[str, Model[Any]] = field(default_factory=dict)
    bound: float = -math.inf
    incumbent: Candidate | None = None
    unchecked: list[Candidate] = field(default_factory=list)
    certificate: Certificate | None = None
    partial_result: Callable[[], Result] | None = None
    digest: str = ""
    _least_logged: float = math.inf
    _open: ExitStack = field(default_factory=ExitStack)
    _worker: Worker | None = None
    _closing: Lock = field(default_factory=Lock)

    def __post_init__(self) -> None:
        self.timer = Timer(self.limits.time_s, gap=self.limits.gap)
        formulation, self.solver, _ = self.names
        self.formulation = formulation or ""

    def begin(self, instance: Any, problem: Problem[Any, Any, Any], prices: Mapping[str, float]) -> None:
        """Begin with a sound instance, and the prices of an earlier answer."""
        self.instance, self.problem, self.prices = instance, problem, prices
        self.formulation = problem.formulation_of(instance, self.formulation)
        self.begun = True

    def give_up(self) -> None:
        """End whatever still runs."""
        self.timer.stop()
        self.close()

    @property
    def watched(self) -> bool:
        """True if the call may be given up at any moment."""
        return self.limits.time_s is not None or self.stop is not None

    @property
    def sign(self) -> float:
        """Factor that turns the objective into a cost."""
        return 1.0 if self.problem.objectives[self.instance.objective] == "min" else -1.0

    @cached_property
    def prover(self) -> ProveLeaf:
        """Function that proves certificates of the instance."""
        return self.problem.prover(self.instance)

    def say(self, line: str) -> None:
        """Log what is done, and when."""
        if self.log is not None:
            self.log(f"{self.timer.elapsed_s():8.2f} s  {line}")

    def hear(self, found: Solution) -> None:
        """Log a solver's decision if it is better than all before, with its gap."""
        if self.log is None or found.objective is None or found.objective >= self._least_logged:
            return
        self._least_logged = found.objective - _LAST_DIGITS * abs(found.objective)
        bound = max(self.bound, found.bound)
        line = f"decision of {self.sign * found.objective:.9g}"
        if math.isfinite(bound):
            line += f", bound {self.sign * bound:.9g}, gap {relative_gap(found.objective, bound):.2e}"
        self.say(line)

    @property
    def by_heuristic(self) -> bool:
        """True if a heuristic of the problem is requested; solvers then find only a bound."""
        return self.problem.rule(self.solver) is not None

    @property
    def exact(self) -> bool:
        """True if the solver finds the optimum when it has the time."""
        return not self.by_heuristic and find_solver(self.solver).exact

    def limits_left(self, share: float = 1.0) -> Limits:
        """Limits with a share of what is left of the time, at least a few milliseconds."""
        left_s = self.timer.remaining_s()
        return self.limits if left_s is None else replace(self.limits, time_s=max(0.01, share * left_s))

    def model(self, formulation: str) -> Model[Any]:
        """Model of a formulation, which is built when it is first asked for."""
        if formulation not in self.models:
            with self.timer.phase("build" if formulation == self.formulation else "reference"):
                model = self.built(formulation, self.data)
            if self.spread is not None:
                with self.timer.phase("spread"):
                    model = self.spread(model)
            self.models[formulation] = model
            if self.log is not None:
                program = model.program
                self.say(f"{formulation}: {program.n_columns:,} columns, {program.n_rows:,} rows")
        return self.models[formulation]

    def built(self, formulation: str, data: Any) -> Model[Any]:
        """Model of a formulation for some data, as the solver takes it."""
        build = self.problem.formulation(formulation)
        model = build(data, self.instance.objective, self.timer.until(_BUILD_SHARE))
        takes_kinds = self.by_heuristic or find_solver(self.solver).by_kind
        return model if model.written_out is None or takes_kinds else model.written_out()

    @cached_property
    def in_place(self) -> Any:
        """Data in which no job moves; None where moves have no price, or that is not tried.

        A user's formulation may have rules of its own.
        """
        if self.by_heuristic or self.spread or self.formulation not in self.problem.formulations:
            return None
        return self.problem.in_place(self.data)

    def model_in_place(self) -> Model[Any] | None:
        """Model of these data, by the default formulation; None where there is no decision without moves."""
        with self.timer.phase("build"), suppress(InfeasibleError):
            return self.built(self.problem.default, self.in_place)
        return None

    def checked(self, source: str, decision: Any) -> Candidate:
        """Candidate of a decision, with what the checker says of it."""
        with self.timer.phase("check"):
            report = self.problem.check(self.instance, decision)
        valid = not report.faults and report.objective is not None
        cost = self.sign * (report.objective or 0.0) if valid else math.inf
        found = Candidate(source, cost, decision=decision, report=report)
        if self.log is not None:
            value = f"{report.objective:.9g}" if valid else f"refused: {'; '.join(report.faults[:1])}"
            self.say(f"decision of '{source}', checked: {value}")
        if valid and (self.incumbent is None or cost < self.incumbent.cost):
            self.incumbent = found
        return found

    def decided(self, candidate: Candidate) -> Candidate:
        """The candidate with its decision, what the checker says of it, and what it really costs."""
        solution = candidate.solution
        if candidate.report is not None:
            return candidate
        if candidate.decision is None and (candidate.model is None or solution is None or solution.x is None):
            return replace(candidate, report=Report([]))  # without objective: nothing that could be checked
        decision = candidate.decision
        if decision is None and candidate.model is not None and solution is not None:
            try:
                with self.timer.phase("decode"):
                    decision = candidate.model.decode(solution.x, solution.starts)
            except ValueError as error:  # a formulation may let through what does not fit
                return replace(candidate, report=Report([str(error)]))
        checked = self.checked(candidate.source, decision)
        cost = checked.cost if checked.valid else candidate.cost
        return replace(candidate, cost=cost, decision=decision, report=checked.report)

    def check_candidates(self) -> None:
        """Check what was found where there is no incumbent yet."""
        if self.incumbent is None:
            for candidate in list(self.unchecked):
                self.decided(candidate)

    def set_aside(self) -> None:
        """Keep time back for decoding and checking, as long as they took before or are expected to take."""
        took = self.timer.phase_s
        known_s = took.get("decode", took.get("check", 0.0)) + took.get("check", 0.0)
        expected_s = min(_EXPANSIONS * took["expand"], _PER_JOB_S * self.problem.size(self.instance))
        estimate_s = _MARGIN * known_s if known_s else expected_s
        self.timer.set_aside(max(estimate_s, _LEAST_SHARE * (self.limits.time_s or 0.0)))

    def result_now(self, why: str = "", limit: Limit | None = None) -> Result:
        """Result when the call cannot go on, for a limit or why else: the best checked decision, or none."""
        if self.answer is not None:
            return self.answer
        if not self.begun:
            return self._unread()
        if self.partial_result is None:
            self.check_candidates()
        incumbent, made = self.incumbent, self.partial_result  # another thread may better them meanwhile
        latest = None if made is None else made()
        if incumbent is not None and (
            latest is None or self.sign * (latest.objective or 0.0) > incumbent.cost
        ):
            latest = self._of_incumbent(incumbent)
        if latest is None:
            return self.result(Termination("no_solution", limit, why or (UNCHECKED["time"] if limit else "")))
        ended = latest.termination
        # Nothing limits what is known to be optimal or infeasible: only its proof was given up.
        if ended.reason == "feasible":
            detail = "; ".join(text for text in (why, ended.detail) if text)
            ended = self._ended(Termination("feasible", limit, detail))
        return latest.model_copy(update={"termination": ended, "time_s": self._time_s()})

    def _unread(self) -> Result:
        """Result of a call whose instance was not read, or not looked over."""
        known, ended = self.instance, self._ended(Termination("no_solution", "time", UNCHECKED["time"]))
        if isinstance(known, str | os.PathLike):
            detail = ended.detail.replace("no decision was checked", "the instance was not read")
            ended = ended.model_copy(update={"detail": detail})
        problem, (_, _, objective) = getattr(known, "problem", "sizing"), self.names
        objective = str(objective or getattr(known, "objective", ""))
        return Result(
            instance=getattr(known, "name", None) or Path(str(known)).name,
            digest="",
            problem=problem,
            formulation=self.formulation,
            solver=self.solver,
            objective_name=objective,
            sense=find_problem(problem).objectives.get(objective, "min"),
            termination=ended,
            proven_gap=None,
            gap_asked=self.limits.gap,
            claimed=False,
            time_s={"total": self.timer.elapsed_s()},
        )

    def _of_incumbent(self, best: Candidate) -> Result:
        """Result of a checked decision, with the best bound so far."""
        assert best.report is not None
        bound = min(best.cost, self.bound)
        # A bound beyond the decision is wrong, and nothing of it is claimed.
        known = math.isfinite(bound) and self.bound <= best.cost + ROUNDING * max(1.0, abs(best.cost))
        bound = self.rounded(best.cost, bound)
        gap = relative_gap(best.cost, bound) if known else None
        reason: Reason = "optimal" if gap is not None and gap <= self.limits.gap else "feasible"
        own = best.source == self.solver
        return self.result(
            Termination(reason, None, "" if own else f"this is the decision of '{best.source}'"),
            objective=best.report.objective,
            bound=self.sign * bound if known else None,
            gap=gap,
            decided_by="" if own else best.source,
            checked=True,
            totals=best.report.totals,
            certificate=self.certificate if known else None,
            decision=best.decision,
        )

    def rounded(self, cost: float, bound: float) -> float:
        """A bound, or a decision's cost where the gap between them is the rounding of costs."""
        if relative_gap(cost, bound) <= self.limits.gap:
            return bound
        allowed = [rounding(model.program, cost) for model in self.models.values()]
        return cost if 0.0 < cost - bound <= max(allowed, default=0.0) else bound

    def worker(self) -> Worker:
        """Process for solvers, which the call borrows when it first needs one."""
        from wattsched.solvers.worker import borrowed

        if self.timer.stopped.is_set():
            raise StoppedError  # nobody would return the process
        if self._worker is None:
            self._worker = self._open.enter_context(borrowed())
        return self._worker

    def close(self) -> None:
        """Return the process, or kill it where it still works."""
        with self._closing:
            self._open.close()

    def of_solution(self, source: str, model: Model[Any], solution: Solution) -> list[Candidate]:
        """Candidate of a solver's point, if it has one."""
        if solution.x is None:
            return []
        cost = model.program.objective(solution.x) if solution.objective is None else solution.objective
        return [Candidate(source, cost, model, solution)]

    def result(self, termination: Termination, **values: Any) -> Result:
        """Result with these values, all that is known from the start, and what its certificate proves."""
        sense = self.problem.objectives[self.instance.objective]
        objective, certificate = values.get("objective"), values.get("certificate")
        proven = None if certificate is None else certificate.bound
        claimed = beyond_proof(termination.reason, values.get("bound"), proven, sense)
        if claimed and termination.reason == "infeasible" and not self.timer.over():
            claimed = self_evident(self.prover) is None
        return Result(
            instance=self.instance.name,
            digest=self.digest,
            problem=self.problem.name,
            formulation=self.formulation,
            solver=self.solver,
            objective_name=self.instance.objective,
            sense=sense,
            termination=self._ended(termination),
            proven_gap=None if objective is None or proven is None else relative_gap(objective, proven),
            gap_asked=self.limits.gap,
            claimed=claimed,
            prices={} if objective is None or certificate is None else self._worth(certificate),
            dropped={} if objective is None else dict(self.problem.left_out(self.data)),
            time_s=self._time_s(),
            **values,
        )

    def _ended(self, ended: Termination) -> TerminationReport:
        """Why the call ended; what a stop cut short has not reached its time limit."""
        limit, detail = ended.limit, ended.detail
        stopped = self.stop is not None and self.stop.is_set()
        if stopped and (limit == "time" or ended.reason == "no_solution"):
            limit, detail = "stopped", detail.replace(UNCHECKED["time"], UNCHECKED["stopped"])
            # A stopped call's timer is over, which HiGHS takes for its time limit.
            detail = detail.replace("time limit reached", "stopped")
        return TerminationReport(reason=ended.reason, limit=limit, detail=detail)

    def _worth(self, certificate: Certificate) -> dict[str, float]:
        """Improvement of the objective per unit, for the rows that are capacities."""
        priced = certificate.prices.items()
        return {name: -self.sign * y + 0.0 for name, y in priced if not name.startswith(INTERNAL)}

    def _time_s(self) -> dict[str, float]:
        return {**self.timer.seconds(), "total": self.timer.elapsed_s()}
