"""`plan`: from an instance of a problem with decisions of its own to a checked decision with its bound."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from wattsched.arguments import limits_of, require_texts
from wattsched.formulations.problem import Impossible, Problem
from wattsched.formulations.problems import problem as find_problem
from wattsched.instances.io import read_json, require
from wattsched.instances.problems import any_instance_of, decision_of, require_sound
from wattsched.plan_result import PlanResult, PlanSize
from wattsched.result import Certificate, TerminationReport
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution, Start, Termination, relative_gap
from wattsched.stopwatch import Stopwatch
from wattsched.verification.report import PlanReport

if TYPE_CHECKING:
    from wattsched.formulations.plan import Plan
    from wattsched.solvers.worker import Worker

_ROUNDING = 1e-6
_ROUNDING_GAP = 1e-12
_WARM = "warm"
_BUILD_SHARE = 0.7
"""Share of the time limit that a formulation may take, which may generate columns for as long as it can."""


def plan(
    instance: Any,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    objective: str | None = None,
    gap: float = 1e-4,
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
    warm: PlanResult | None = None,
) -> PlanResult:
    """Decide an instance of `shifting` or `sharing`.

    Parameters
    ----------
    instance : ShiftingInstance, SharingInstance, str or Path
        An instance, or the path of an instance file.
    formulation : str, optional
        A formulation of the problem (default: its first).
    solver : str
        A name of `wattsched.solvers.registry`, or a rule of the problem.
    objective : str, optional
        Overrides the instance's objective.
    gap, time_limit, threads, seed
        As in `wattsched.solve`.
    warm : PlanResult, optional
        An earlier answer of the problem to start from, solved just now or read from a file. A decision that
        is no longer possible is told in ``faults``, and not used.

    Returns
    -------
    PlanResult
        Infeasibility and missed limits are answers, told by ``result.termination``.

    Raises
    ------
    ValueError
        For unknown names, limits that are not positive, and an earlier answer of another problem.
    TypeError
        For arguments of another type.
    wattsched.InputError
        When the file is not a valid instance, or the instance has faults that its fields do not show one by
        one; also when `warm` was read from a file and holds no decision of the problem.
    """
    limits = limits_of(gap, time_limit, threads, seed)
    require_texts(solver=solver, formulation=formulation or "", objective=objective or "")
    if isinstance(instance, str | os.PathLike):
        instance = any_instance_of(read_json(Path(instance)), source=str(instance))
    require("instance", instance, (BaseModel,), "an instance of shifting or sharing, or a path")
    problem = find_problem(instance.problem)
    require_sound(instance)
    earlier = _earlier(problem, warm)
    goal = objective or instance.objective
    name = formulation or next(iter(problem.formulations))
    require_names(problem, name, solver, goal)
    if goal != instance.objective:
        instance = instance.model_copy(update={"objective": goal})
    run = _Run(instance, problem, name, solver, limits)
    with run.phase("total"), _worker(run) as worker:
        return _answer(run, worker, earlier)


def _earlier(problem: Problem, warm: PlanResult | None) -> Any:
    """Decision of an earlier answer; from a file it comes as a plain document."""
    require("warm", warm, (PlanResult, NoneType), "a PlanResult")
    if warm is None or warm.decision is None:
        return None
    if warm.problem != problem.name:
        raise ValueError(f"warm is an answer to '{warm.problem}', the instance is of '{problem.name}'")
    return decision_of(problem.name, warm.decision) if isinstance(warm.decision, dict) else warm.decision


def require_names(problem: Problem, formulation: str, solver: str, objective: str) -> None:
    """Refuse unknown names.

    Raises
    ------
    ValueError
        Which lists the known ones.
    """
    if formulation not in problem.formulations:
        known = ", ".join(problem.formulations)
        raise ValueError(f"unknown formulation '{formulation}' of problem '{problem.name}'; known: {known}")
    if objective not in problem.objectives:
        known = ", ".join(problem.objectives)
        raise ValueError(f"unknown objective '{objective}' of problem '{problem.name}'; known: {known}")
    if solver not in problem.rules:
        try:
            find_solver(solver)
        except ValueError as error:
            rules = ", ".join(problem.rules)
            raise ValueError(f"{error}; rules of problem '{problem.name}': {rules}") from None


@dataclass
class _Run(Stopwatch):
    """What is asked for, and the seconds that each phase took."""

    instance: Any
    problem: Problem
    formulation: str
    solver: str
    limits: Limits

    def remaining_s(self, share: float = 1.0) -> float | None:
        """Seconds left of a share of the time limit, at least a few milliseconds."""
        return self.left_s(None if self.limits.time_s is None else share * self.limits.time_s)

    @property
    def sign(self) -> float:
        """What turns the objective into a cost."""
        return 1.0 if self.problem.objectives[self.instance.objective] == "min" else -1.0

    def result(self, termination: Termination, **values: object) -> PlanResult:
        """Result with everything that is known from the start."""
        return PlanResult(
            instance=self.instance.name,
            problem=self.problem.name,
            formulation=self.formulation,
            solver=self.solver,
            objective_name=self.instance.objective,
            sense=self.problem.objectives[self.instance.objective],
            termination=TerminationReport(
                reason=termination.reason, limit=termination.limit, detail=termination.detail
            ),
            time_s=self.stopped_s(),
            **values,  # type: ignore[arg-type]  # pydantic checks them
        )


@dataclass(frozen=True)
class _Checked:
    """A decision, who made it, and what the checker says."""

    decision: Any
    of: str
    report: PlanReport


@contextmanager
def _worker(run: _Run) -> Iterator[Worker | None]:
    """Start the solver's process at once when there is a limit, so that it loads while we build."""
    if run.limits.time_s is None or run.solver in run.problem.rules or not find_solver(run.solver).exact:
        yield None
        return
    from wattsched.solvers.worker import start_worker

    with start_worker() as worker:
        yield worker


def _answer(run: _Run, worker: Worker | None, earlier: Any) -> PlanResult:
    with run.phase("build"):
        short = run.problem.shortage(run.instance)
    if short:
        return run.result(Termination("infeasible", detail="; ".join(short)))
    found = [_checked(run, decision, of) for decision, of in _at_hand(run, earlier)]
    with run.phase("build"):
        build = run.problem.formulations[run.formulation]
        plan = build(run.instance, run.instance.objective, run.remaining_s(_BUILD_SHARE))
    asked = _solve(run, plan, found, worker)
    if asked.x is not None:
        with run.phase("decide"):
            decision = plan.decide(asked.x)
        found.append(_checked(run, decision, run.solver))
    return _conclude(run, plan, asked, found)


def _at_hand(run: _Run, earlier: Any) -> Iterator[tuple[Any, str]]:
    """Decisions that cost nothing to speak of: an earlier one, and that of a rule."""
    if earlier is not None:
        yield earlier, _WARM
    rules = run.problem.rules
    name = run.solver if run.solver in rules else next(iter(rules))
    with run.phase("rule"):
        decision = rules[name](run.instance, run.instance.objective)
    if decision is not None:
        yield decision, name


def _checked(run: _Run, decision: Any, of: str) -> _Checked:
    with run.phase("check"):
        return _Checked(decision, of, run.problem.check(run.instance, decision))


def _best(run: _Run, found: list[_Checked]) -> _Checked | None:
    """Valid decision of least cost, the first among equals."""
    valid = [c for c in found if not c.report.faults and c.report.objective is not None]
    return min(valid, key=lambda c: run.sign * (c.report.objective or 0.0), default=None)


def _solve(run: _Run, plan: Plan, found: list[_Checked], worker: Worker | None) -> Solution:
    """Ask the solver; of a rule, only a bound is asked."""
    if run.solver in run.problem.rules:
        from wattsched.solvers.dual import dual_prices

        with run.phase("solve"):
            prices, bound = dual_prices(plan.program, run.remaining_s())
        return Solution(Termination("feasible"), bound=bound, prices=prices)
    best = _best(run, found)
    start = Start(None if best is None else plan.point(best.decision))
    limits = replace(run.limits, time_s=run.remaining_s())
    with run.phase("solve"):
        if worker is not None:
            return worker.solve(run.solver, plan.program, limits, start)
        return find_solver(run.solver)(plan.program, limits, start)


def _conclude(run: _Run, plan: Plan, asked: Solution, found: list[_Checked]) -> PlanResult:
    program = plan.program
    size = PlanSize(columns=program.n_columns, rows=program.n_rows, nonzeros=int(program.matrix.nnz))
    certificate = _certificate(run, plan, asked)
    best = _best(run, found)
    wrong = _failed(found)
    if best is None:
        # An earlier decision that is no longer possible says nothing of this instance.
        errors = _failed([c for c in found if c.of != _WARM])
        return _without_decision(run, plan, asked, errors, certificate, size)
    assert best.report.objective is not None
    cost = run.sign * best.report.objective
    proven = [min(asked.bound, plan.outside) if plan.bound is None else plan.bound]
    proven += [] if certificate is None else [run.sign * certificate.bound]
    most = cost + _ROUNDING * max(1.0, abs(cost))
    wrong += [
        f"a decision of {run.sign * cost:g} exists, but the bound found is {run.sign * b:g}"
        for b in proven
        if b > most
    ]
    bound = min(cost, max([-np.inf, *(b for b in proven if b <= most)]))
    known = bool(np.isfinite(bound))
    gap = relative_gap(cost, bound) if known else None
    return run.result(
        _termination(run, plan, asked, best, gap),
        objective=best.report.objective,
        bound=run.sign * bound if known else None,
        gap=gap,
        declined=asked.termination.detail if asked.termination.reason == "error" else "",
        faults=wrong,
        checked=True,
        prices={} if certificate is None else _improvements(run, certificate),
        totals=best.report.totals,
        certificate=certificate,
        decision=best.decision,
        size=size,
    )


def _failed(found: list[_Checked]) -> list[str]:
    return [
        f"the decision of '{c.of}' failed its check: {c.report.faults[0]}" for c in found if c.report.faults
    ]


def _termination(run: _Run, plan: Plan, asked: Solution, best: _Checked, gap: float | None) -> Termination:
    detail = asked.termination.detail
    if best.of != run.solver:
        detail = f"{detail}; " if detail else ""
        detail += f"this is the decision of '{best.of}'"
    if gap is not None and gap <= max(run.limits.gap, _ROUNDING_GAP):
        return Termination("optimal", None, detail)
    partial = plan.bound is not None or np.isfinite(plan.outside)
    if partial and not detail and asked.termination.reason == "optimal":
        detail = "the best of the columns generated; others may be better"
    return Termination("feasible", asked.termination.limit, detail)


def _without_decision(
    run: _Run, plan: Plan, asked: Solution, wrong: list[str], certificate: Certificate | None, size: PlanSize
) -> PlanResult:
    ended = asked.termination
    if ended.reason == "infeasible" and plan.bound is None and plan.outside == np.inf:
        return run.result(Termination("infeasible", detail=_why(plan, ended.detail)), size=size)
    if wrong:
        return run.result(Termination("error", detail=wrong[0]), faults=wrong, size=size)
    if (proof := _impossible(run, plan, asked)) is not None:
        certificate = Certificate(prices=dict(proof.prices), bound=proof.bound)
        ended = Termination("infeasible", detail=proof.detail)
        return run.result(ended, certificate=certificate, size=size)
    if ended.reason in ("optimal", "feasible", "infeasible"):
        # That a program of some of the columns is infeasible says nothing of the instance.
        said = "" if ended.reason == "infeasible" else ended.detail
        ended = Termination("no_solution", ended.limit, said or "no decision was found")
    bound = None if certificate is None else certificate.bound
    return run.result(ended, bound=bound, certificate=certificate, size=size)


def _why(plan: Plan, detail: str) -> str:
    """Which budgets and pools are short, and by how much, where that can be shown."""
    from wattsched.formulations.plan_shortage import sentences

    return "; ".join(sentences(plan.program)) or detail or "no decision keeps to all limits"


def _certificate(run: _Run, plan: Plan, asked: Solution) -> Certificate | None:
    """Prices of capacities and budgets, and the bound that they prove by themselves."""
    if (prices := _prices(plan, asked)) is None:
        return None
    with run.phase("certificate"):
        bound = run.problem.prove(run.instance, prices)
    if not np.isfinite(bound):
        return None
    return Certificate(prices={name: y for name, y in prices.items() if y != 0.0}, bound=bound)


def _prices(plan: Plan, asked: Solution) -> Mapping[str, float] | None:
    if plan.prices is None and asked.prices is not None:
        return plan.priced(asked.prices)
    return plan.prices


def _impossible(run: _Run, plan: Plan, asked: Solution) -> Impossible | None:
    prices = _prices(plan, asked)
    if prices is None:
        return None
    with run.phase("certificate"):
        return run.problem.impossible(run.instance, prices)


def _improvements(run: _Run, certificate: Certificate) -> dict[str, float]:
    return {name: -run.sign * price + 0.0 for name, price in certificate.prices.items()}
