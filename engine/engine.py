"""`solve`: from an instance to a checked decision with its bound and prices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING

import numpy as np

from wattsched.arguments import limits_of, require_texts, sound_instance
from wattsched.formulations.registry import formulation as find_formulation
from wattsched.formulations.sizing.data import COMPLETION_RANGE_S, Options, expand
from wattsched.formulations.sizing.objectives import Objective
from wattsched.formulations.sizing.objectives import objective as find_objective
from wattsched.formulations.timer import Clock
from wattsched.instances.io import InputError, require
from wattsched.instances.sizing.decision import Decision
from wattsched.instances.sizing.instance import Instance
from wattsched.result import Certificate, Result, Size, TerminationReport, Totals
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits, Solution, Start, Termination, relative_gap
from wattsched.stopwatch import Stopwatch
from wattsched.verification.sizing.checker import Report, check

if TYPE_CHECKING:
    from wattsched.formulations.model import Model
    from wattsched.formulations.program import Program
    from wattsched.solvers.worker import Worker
    from wattsched.topology.arrays import FloatArray, IntArray

AGGREGATED = "mckp"
"""The formulation whose rows are what budgets' prices refer to, whichever formulation is solved."""

SAFETY = "greedy"
"""The rule that has a decision in hand before anything else is tried."""

SMALL = 1_000
"""Up to this many columns the LP relaxation is solved sooner than the rule, and is often the answer."""

_ROUNDING = 1e-6
_ROUNDING_GAP = 1e-12


def solve(
    instance: Instance | str | Path,
    *,
    formulation: str = AGGREGATED,
    solver: str = "auto",
    objective: str | None = None,
    gap: float = 1e-4,
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
    warm: Result | Decision | None = None,
) -> Result:
    """Decide a scheduling round.

    Parameters
    ----------
    instance : Instance, str or Path
        An instance, or the path of an instance file.
    formulation : str
        ``mckp``, ``assignment`` or ``intervals``; they agree on the optimum.
    solver : str
        A name of `wattsched.solvers.registry`: ``auto``, ``price``, ``highs``, ``cpsat``, ``greedy``,
        ``powerflow``, or ``pyomo:NAME`` for a solver that Pyomo finds.
    objective : str, optional
        Overrides the instance's objective.
    gap : float
        Relative gap at which a decision counts as optimal.
    time_limit : float, optional
        Wall-clock seconds for the whole call. The solver then runs in a process of its own, which is
        killed when it does not stop; the best decision known is returned, with its bound.
    threads, seed : int
        For the solver; equal values give equal answers. There are never more threads than processors.
    warm : Result or Decision, optional
        An earlier answer to start from, for example last round's: its decision where it is still possible,
        and its prices.

    Returns
    -------
    Result
        Infeasibility and missed limits are answers, told by ``result.termination``.

    Raises
    ------
    ValueError
        For unknown names and limits that are not positive.
    TypeError
        For arguments of another type.
    wattsched.InputError
        When the file is not a valid instance, or the instance names a pool that the cluster does not have.
    """
    limits = limits_of(gap, time_limit, threads, seed)
    require_texts(formulation=formulation, solver=solver, objective=objective or "")
    require("warm", warm, (Result, Decision, NoneType), "a Result or a Decision")
    find_solver(solver)
    instance = sound_instance(instance)
    goal = find_objective(objective or instance.objective)
    build = find_formulation(instance.problem, formulation)
    aggregate = find_formulation(instance.problem, AGGREGATED)
    run = _Run(instance, formulation, solver, goal, limits)
    with run.phase("total"), _worker(solver, limits) as worker:
        with run.phase("options"):
            options = expand(instance)
        if (odd := options.beyond_comparison()) is not None:
            low, high = COMPLETION_RANGE_S
            told = f"job '{odd[0]}': completion times must be from {low:g} to {high:g} s"
            raise InputError([f"{told}, remaining_work / rate is {odd[1]:g} s in one of its options"])
        late = options.jobs_without_options()
        if late:
            return run.infeasible(_why_without_options(instance, late[0]))
        with run.phase("build"):
            model = build(options, goal.name)
        aggregated = model
        if formulation != AGGREGATED:
            with run.phase("aggregate"):
                aggregated = aggregate(options, goal.name)
        candidates = _candidates(run, options, aggregated, model, worker, warm)
        return _conclude(run, options, aggregated, model, candidates)


@dataclass
class _Run(Stopwatch):
    """What is asked for, and the seconds that each phase took."""

    instance: Instance
    formulation: str
    solver: str
    objective: Objective
    limits: Limits

    def remaining_s(self) -> float | None:
        """Seconds left of the time limit, at least a few milliseconds."""
        return self.left_s(self.limits.time_s)

    def result(self, termination: Termination, **values: object) -> Result:
        """Result with everything that is known from the start."""
        return Result(
            instance=self.instance.name,
            problem=self.instance.problem,
            formulation=self.formulation,
            solver=self.solver,
            objective_name=self.objective.name,
            sense=self.objective.sense,
            termination=TerminationReport(
                reason=termination.reason, limit=termination.limit, detail=termination.detail
            ),
            time_s=self.stopped_s(),
            **values,  # type: ignore[arg-type]  # pydantic checks them
        )

    def infeasible(self, detail: str, **values: object) -> Result:
        """Answer that no decision satisfies the instance."""
        return self.result(Termination("infeasible", detail=detail), **values)


@dataclass(frozen=True)
class _Candidate:
    """A solution and the model that it is a point of."""

    model: Model
    solution: Solution


@contextmanager
def _worker(solver: str, limits: Limits) -> Iterator[Worker | None]:
    """Start the solver's process at once when there is a limit, so that it loads while we build."""
    if limits.time_s is None or not find_solver(solver).exact:
        yield None
        return
    from wattsched.solvers.worker import start_worker

    with start_worker() as worker:
        yield worker


def _candidates(
    run: _Run,
    options: Options,
    aggregated: Model,
    model: Model,
    worker: Worker | None,
    warm: Result | Decision | None,
) -> list[_Candidate]:
    """Solutions worth comparing, the solver's last; before it the safety net's, where that is needed."""
    known: list[_Candidate] = []
    warm_start = start = _warm_start(options, aggregated, warm)
    exact = find_solver(run.solver).exact
    late = _net_comes_late(run, model)
    if late:
        start = replace(start, rule=_ascend)
    elif exact:
        known.append(_safety_net(run, aggregated, start))
        safety = known[0].solution
        start = Start(_better_point(aggregated.program, start.x, safety.x), safety.prices)
    if model is not aggregated:
        start = Start(rule=start.rule)
    limits = replace(run.limits, time_s=run.remaining_s())
    with run.phase("solve"):
        if worker is not None:
            solution = worker.solve(run.solver, model.program, limits, start)
        else:
            solution = find_solver(run.solver)(model.program, limits, start)
    if late and solution.termination.reason != "optimal":
        known.append(_safety_net(run, aggregated, warm_start))
    return [*known, _Candidate(model, solution)]


def _net_comes_late(run: _Run, model: Model) -> bool:
    """Whether the safety net is for the case only that the solver fails: nothing can stop it before."""
    unhurried = run.limits.time_s is None and model.program.n_columns <= SMALL
    return unhurried and find_solver(run.solver).relaxes


def _ascend(program: Program, prices: FloatArray) -> FloatArray | None:
    from wattsched.solvers.greedy import ascend

    return ascend(program, prices, Clock(None))


def _safety_net(run: _Run, aggregated: Model, start: Start) -> _Candidate:
    with run.phase("safety"):
        return _Candidate(aggregated, find_solver(SAFETY)(aggregated.program, _share(run, 0.3), start))


def _share(run: _Run, share: float) -> Limits:
    remaining = run.remaining_s()
    return replace(run.limits, time_s=None if remaining is None else share * remaining)


def _warm_start(options: Options, aggregated: Model, warm: Result | Decision | None) -> Start:
    """What an earlier answer says about the aggregated program: a point if still possible, and prices."""
    if warm is None:
        return Start()
    program = aggregated.program
    decision = warm.decision if isinstance(warm, Result) else warm
    x = None if decision is None else aggregated.point(options.matching(decision))
    if x is not None and program.violation(x) > _ROUNDING:
        x = None
    prices = None
    if isinstance(warm, Result) and warm.certificate is not None and warm.sense == program.sense:
        sign = -1.0 if program.sense == "max" else 1.0
        known = warm.certificate.prices
        prices = np.array([sign * known.get(name, 0.0) for name in program.row_names()])
    return Start(x, prices)


def _better_point(program: Program, one: FloatArray | None, other: FloatArray | None) -> FloatArray | None:
    points = [x for x in (one, other) if x is not None]
    return min(points, key=program.objective, default=None)


def _conclude(
    run: _Run, options: Options, aggregated: Model, model: Model, candidates: list[_Candidate]
) -> Result:
    """Decode and check the best candidate, and state the best bound of all."""
    asked = candidates[-1].solution
    certificate = _certificate(run, aggregated, candidates)
    size = Size(
        options=len(options),
        dropped=model.dropped,
        columns=model.program.n_columns,
        rows=model.program.n_rows,
        nonzeros=int(model.program.matrix.nnz),
    )
    found = sorted(
        (c for c in candidates if c.solution.x is not None), key=lambda c: c.solution.objective or 0.0
    )
    if asked.termination.reason == "infeasible" and not found:
        why = _why_infeasible(options, aggregated.program)
        return run.infeasible(why or f"{run.solver} proved that no decision exists", size=size)
    if not found:
        return _without_decision(run, options, asked, aggregated, certificate, size)
    faults: list[str] = []
    instance = run.instance
    if instance.objective != run.objective.name:
        instance = instance.model_copy(update={"objective": run.objective.name})
    for candidate in found:
        try:
            decision, chosen = _decode(run, options, candidate)
        except ValueError as error:  # a formulation may let through what does not fit
            faults.append(str(error))
            continue
        with run.phase("check"):
            report = check(instance, decision)
        if not report.faults:
            objective = run.objective.of(options, chosen)
            bounds, wrong = _bounds(candidates, candidate.model.program, objective)
            answer = _answer(run, candidate, decision, objective, report, bounds, certificate, size, asked)
            told = [f"the decision of '{run.solver}' failed its check: {faults[0]}"] if faults else wrong
            return _telling(answer, told)
        faults += report.faults
    if len(candidates) == 1 and _net_comes_late(run, model):
        # Now the net is needed after all.
        candidates = [_safety_net(run, aggregated, Start()), *candidates]
        return _conclude(run, options, aggregated, model, candidates)
    failed = Termination("error", detail=f"the decision failed its check: {faults[0]}")
    return run.result(failed, size=size, faults=faults)


def _bounds(
    candidates: list[_Candidate], program: Program, objective: float
) -> tuple[list[float], list[str]]:
    """Bounds of the candidates, without those that a checked decision of this objective disproves."""
    cost = program.reported(objective)
    most = cost + _ROUNDING * max(1.0, abs(cost))
    bounds = [c.solution.bound for c in candidates]
    told = f"a decision of {objective:g} exists, but "
    wrong = [
        told + ("infeasibility was proved" if np.isinf(b) else f"the bound found is {program.reported(b):g}")
        for b in bounds
        if b > most
    ]
    return [-np.inf, *(b for b in bounds if b <= most)], wrong


def _telling(answer: Result, faults: list[str]) -> Result:
    """Tell what was wrong with an answer in whose place this one stands."""
    if not faults:
        return answer
    ended = answer.termination.model_copy(update={"detail": faults[0]})
    return answer.model_copy(update={"termination": ended, "faults": faults})


def _decode(run: _Run, options: Options, candidate: _Candidate) -> tuple[Decision, IntArray]:
    x = candidate.solution.x
    assert x is not None
    with run.phase("place"):
        chosen = candidate.model.choose(x)
        return candidate.model.place(x, candidate.solution.starts, chosen), chosen


def _answer(
    run: _Run,
    candidate: _Candidate,
    decision: Decision,
    objective: float,
    report: Report,
    bounds: list[float],
    certificate: Certificate | None,
    size: Size,
    asked: Solution,
) -> Result:
    program = candidate.model.program
    bound = program.reported(max(bounds))
    if certificate is not None:
        bound = (
            max(bound, certificate.bound) if run.objective.sense == "min" else min(bound, certificate.bound)
        )
    # Rounding in the last digits must not put the bound on the wrong side.
    bound = min(bound, objective) if run.objective.sense == "min" else max(bound, objective)
    gap = relative_gap(objective, bound) if np.isfinite(bound) else None
    return run.result(
        _termination(run, gap, asked, candidate.solution is not asked),
        objective=objective,
        bound=bound if np.isfinite(bound) else None,
        gap=gap,
        declined=_declined(asked),
        checked=True,
        prices=_prices(certificate, run.objective.sense),
        totals=_totals(run.instance, report),
        certificate=certificate,
        decision=decision,
        size=size,
    )


def _termination(run: _Run, gap: float | None, asked: Solution, fallback: bool) -> Termination:
    detail = asked.termination.detail
    if fallback and asked.x is None:
        reason = detail or "no decision in time"
        detail = f"{run.solver}: {reason}; this is the decision of '{SAFETY}'"
    # Asked for no gap at all, the last digits still differ.
    if gap is not None and gap <= max(run.limits.gap, _ROUNDING_GAP):
        return Termination("optimal", None, detail)
    return Termination("feasible", asked.termination.limit, detail)


def _without_decision(
    run: _Run,
    options: Options,
    asked: Solution,
    aggregated: Model,
    certificate: Certificate | None,
    size: Size,
) -> Result:
    """No solver found a point: infeasible if that can be shown, otherwise as the solver said."""
    why = _why_infeasible(options, aggregated.program)
    if why:
        return run.infeasible(why, size=size)
    bound = certificate.bound if certificate is not None else None
    return run.result(
        asked.termination, bound=bound, certificate=certificate, size=size, declined=_declined(asked)
    )


def _declined(asked: Solution) -> str:
    return asked.termination.detail if asked.termination.reason == "error" else ""


def _why_without_options(instance: Instance, name: str) -> str:
    job = next(job for job in instance.jobs if job.name == name)
    if job.deadline_s is not None:
        return f"no option of job '{name}' can be used: its deadline of {job.deadline_s:g} s cannot be met"
    if not job.preemptible:
        return f"no option of job '{name}' has the GPU count, pool and batch size that it holds and must keep"
    return f"no option of job '{name}' can be used: it can neither run nor wait"


def _why_infeasible(options: Options, program: Program) -> str:
    """Which budgets or pools are short, and by how much; empty when that cannot be shown."""
    from wattsched.formulations.sizing.budgets import describe
    from wattsched.solvers.infeasibility import shortfall

    return "; ".join(
        describe(options, row.row, row.needed, row.short_by, alone=row.alone) for row in shortfall(program)
    )


def _certificate(run: _Run, aggregated: Model, candidates: list[_Candidate]) -> Certificate | None:
    """Best bound that row prices of the aggregated program prove."""
    program = aggregated.program
    priced = [
        c.solution.prices for c in candidates if c.model is aggregated and c.solution.prices is not None
    ]
    if not priced:
        from wattsched.solvers.dual import dual_prices

        remaining = run.remaining_s()
        priced = [dual_prices(program, time_s=remaining)[0]]
    proven = [(program.lagrangian_bound(y), i) for i, y in enumerate(priced)]
    bound, best = max(proven)
    if not np.isfinite(bound):
        return None
    sign = -1.0 if program.sense == "max" else 1.0
    prices = {
        name: sign * float(y) for name, y in zip(program.row_names(), priced[best], strict=True) if y != 0.0
    }
    return Certificate(prices=prices, bound=program.reported(bound))


def _prices(certificate: Certificate | None, sense: str) -> dict[str, float]:
    """Improvement of the objective per unit of capacity, for the rows that are capacities."""
    if certificate is None:
        return {}
    better = -1.0 if sense == "min" else 1.0
    return {
        name: better * value
        for name, value in certificate.prices.items()
        if not name.startswith(("worst:", "share:"))
    }


def _totals(instance: Instance, report: Report) -> Totals:
    return Totals(
        power_w=report.power_w,
        energy_j=report.energy_j,
        carbon_g=report.carbon_g,
        gpus_used=report.gpus_used,
        gpus_available=instance.cluster.total_gpus,
        restarts=report.restarts,
        migrations=report.migrations,
    )
