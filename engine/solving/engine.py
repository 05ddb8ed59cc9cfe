"""`solve`: from an instance of any problem to a checked decision with its bound and prices."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from numbers import Integral, Real
from pathlib import Path
from threading import Event
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer, stoppable
from wattsched.instances.errors import InputError, require, require_range
from wattsched.results.documents import read_instance
from wattsched.results.problems import PROBLEMS, Problem
from wattsched.results.problems import problem as find_problem
from wattsched.results.result import Result
from wattsched.running.executors import ClusterError, Executor
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import Limits
from wattsched.solving import conflicts
from wattsched.solving.call import Call
from wattsched.solving.certificates import LARGEST
from wattsched.solving.deadline import Uncollected, on_time
from wattsched.solving.orders import in_order
from wattsched.solving.steps import CHECKED_AT_ONCE, decide, lacking
from wattsched.verification.certificates import proofs_of

if TYPE_CHECKING:
    from wattsched.formulations.model import Model

SLACK_S = 0.02
"""Seconds beyond its time limit after which a call that keeps its own time is given up."""

CALM_S = 10.0
"""Calls with a shorter limit are not interrupted by Python's search for cyclic garbage."""

FAMILY = (
    "the instance has uncertain watts or rates: it is a family of programs, and no single one stands for it"
)

# Python's own come first: to ask an abstract class takes ten times as long.
_NUMBER, _WHOLE = (float, int, Real), (int, Integral)
# Shards for each worker: what is lost with one is made again by several.
_SHARDS = 2
# Share of the time that is left for why there is no decision, and a gap at which any decision will do.
_EXPLAINING, _ANY_GAP = 0.8, 0.9
_UNTOLD = "limits that contradict each other were not found"
# What a call that is to stop may take to end by itself.
_STOPPING_S = 0.25
# A small round is done in a part of that but for its solver, which looks at the time, or is watched.
_AMPLE_S = 1.0


def solve(
    instance: BaseModel | str | Path,
    *,
    formulation: str | None = None,
    solver: str = "auto",
    objective: str | Sequence[str] | None = None,
    tolerance: float | None = None,
    gap: float = 1e-4,
    time_limit: float | None = None,
    threads: int = 1,
    seed: int = 0,
    initial_solution: Result | BaseModel | None = None,
    stop: Event | None = None,
    prove: float | None = None,
    conflict: float | None = None,
    executor: Executor | None = None,
    log: Callable[[str], None] | None = None,
) -> Result:
    """Decide an instance of any problem.

    Parameters
    ----------
    instance : model of an instance, str or Path
        An instance, or the path of an instance file.
    formulation : str, optional
        A formulation of the problem (default: its first), or ``FILE.py:NAME`` where it takes users' own.
    solver : str
        A solver, ``pyomo:NAME`` for one that Pyomo finds, or a heuristic of the problem.
    objective : str or sequence of str, optional
        Overrides the instance's objective. Of several, each is optimised among the decisions that give up no
        more than the `tolerance` of those before.
    tolerance : float, optional
        Share of its value by which an objective may be worse after those that follow it. Default: the gap.
    gap : float
        Relative gap at which a decision counts as optimal.
    time_limit : float, optional
        Wall-clock seconds for the whole call, from reading to proving. What does not end by then is given up;
        the best checked decision is returned, with its bound.
    threads, seed : int
        For the solver; equal values give equal answers. There are never more threads than processors.
    initial_solution : Result or model of a decision, optional
        An earlier answer to start from, for example last round's: its decision where it is still possible,
        and its prices.
    stop : threading.Event, optional
        Ends the call within .25 s when it is set, from another thread; the limit is then called "stopped".
    prove : float, optional
        Seconds, within the time limit, for a certificate tree where prices alone do not prove the gap asked
        for; 0 for none. Default: about half a second, counted in nodes so that it is the same everywhere.
    conflict : float, optional
        Seconds, within the time limit, for the limits that contradict each other where there is no decision;
        0 for none. Default: 2, and none for more than 5,000 jobs.
    executor : Executor, optional
        Holds the jobs of a large round of sizing in shards (`wattsched.dask_executor`), and computes there
        what row prices ask of all of them. The answer is the same. Default: this process.
    log : callable, optional
        Is told line by line what is done, every better decision with its gap, and what the solver says; from
        threads other than the caller's, too.

    Returns
    -------
    Result
        Infeasibility and missed limits are answers, told by ``result.termination``.

    Raises
    ------
    ValueError
        For unknown names, limits that are not positive, an earlier answer of another problem, and an instance
        that the formulation does not take; a `ClusterError` for one that is not solved in shards, and where
        an executor cannot go on.
    TypeError
        For arguments of another type.
    wattsched.InputError
        When the file is not a valid instance, or the instance has faults that have no answer.
    """
    limits = limits_of(gap, time_limit, threads, seed)
    require("solver", solver, (str,), "a name")
    require("formulation", formulation, (str, NoneType), "a name")
    share = gap if tolerance is None else tolerance
    require("tolerance", share, _NUMBER, "a number")
    require_range(0.0 <= share < np.inf, "tolerance", "at least 0 and finite", share)
    if objective is not None and not isinstance(objective, str):
        given: dict[str, Any] = {"formulation": formulation, "solver": solver, "gap": gap, "seed": seed}
        given |= {"threads": threads, "stop": stop, "prove": prove, "conflict": conflict}
        given |= {"executor": executor, "log": log}
        return _in_order(instance, objective, float(share), time_limit, initial_solution, given)
    require("objective", objective, (str, NoneType), "a name, or several")
    require("stop", stop, (Event, NoneType), "a threading.Event")
    require("executor", executor, (Executor, NoneType), "what dask_executor gives")
    if log is not None and not callable(log):
        raise TypeError(f"log must be a function of a line, got {type(log).__name__}")
    prove, explain_s = proof_seconds(prove), proof_seconds(conflict, "conflict")
    spread = None if executor is None else partial(_in_shards, executor)
    names = formulation, solver, objective
    call = Call(instance, names, limits, initial_solution, stop, prove, spread, log=log)
    with undisturbed(call.limits):
        result = answered(call)
        if result.termination.reason == "infeasible" and explain_s != 0.0:
            result = explained(call, result, explain_s)
        listed = find_problem(result.problem).listed(result.decision)
        return result if listed is result.decision else result.model_copy(update={"decision": listed})


def undisturbed(limits: Limits) -> AbstractContextManager[object]:
    """Context of a call with these limits: Python's search for cyclic garbage does not stop a short one."""
    hurried = limits.time_s is not None and limits.time_s < CALM_S
    return Uncollected() if hurried else nullcontext()


def _in_order(
    instance: Any,
    objectives: Sequence[str],
    tolerance: float,
    time_limit: float | None,
    initial_solution: Any,
    given: Mapping[str, Any],
) -> Result:
    """Solve for objectives in order; arguments as of `solve`."""
    require("objective", objectives, (list, tuple), "a name, or several")
    for name in objectives:
        require("objective", name, (str,), "a name, or several")
    require_range(len(objectives) > 0, "objective", "one name at least", "none")
    timer = Timer(seconds_of("time_limit", time_limit))
    sound, problem = sound_instance(instance)
    require_names(problem, given["formulation"], given["solver"], objectives[0])
    again = partial(solve, **given)
    return in_order(problem, sound, objectives, tolerance, again, timer, initial_solution)


def answered(call: Call) -> Result:
    """Answer a call by its deadline, or soon after it is stopped; errors as of `solve`."""
    if not call.watched:
        return _decided(call)
    if call.stop is not None and _polls_its_deadline(call):
        call.timer.stopped = call.stop
        return _decided(call)
    time_s = call.limits.time_s
    last_s = None if time_s is None else time_s + SLACK_S
    work, otherwise = partial(_decided, call), partial(call.result_now, limit="time")
    return on_time(
        work,
        last_s,
        otherwise,
        stop=call.stop,
        afterwards=call.give_up,
        on_stop=call.timer.stop,
        stopping_s=_STOPPING_S,
    )


def explained(call: Call, result: Result, seconds: float | None) -> Result:
    """Return an infeasible result with the limits that contradict each other, if they are found in time."""
    began_s, large = time.monotonic(), call.problem.size(call.instance) > conflicts.MOST_JOBS
    timer = call.timer.share(_EXPLAINING).at_most(conflicts.USUAL_S if seconds is None else seconds)
    if timer.over() or (seconds is None and large):
        return result
    again = partial(solve, gap=_ANY_GAP, seed=call.limits.seed, conflict=0.0, stop=call.stop)
    found, ended = None, result.termination
    try:
        found = conflicts.conflict_of(result, call.instance, call.problem, again, timer)
    except conflicts.CutError:
        ended = ended.model_copy(update={"detail": f"{ended.detail}; {_UNTOLD}"})
    spent_s = time.monotonic() - began_s
    update: dict[str, Any] = {"conflict": found, "termination": ended}
    update["time_s"] = result.time_s | {"conflict": spent_s, "total": result.time_s["total"] + spent_s}
    if result.claimed and found is not None and found.certificate is not None:
        # The contradicting limits alone may be simpler to refute than all.
        proofs = proofs_of(call.prover, result.sense, found.certificate.model_dump())
        if not proofs["bound"].faults and proofs["bound"].excess > 0:
            proven = {n: float(np.clip(one.bound or 0.0, -LARGEST, LARGEST)) for n, one in proofs.items()}
            update |= {"certificate": found.certificate.model_copy(update=proven), "claimed": False}
    return result.model_copy(update=update)


def _polls_its_deadline(call: Call) -> bool:
    """True if a call checks its time limit and stop requests often enough to run without a watchdog.

    Small rounds of a session do so, unless they have little time.
    """
    time_s = call.limits.time_s
    ours = call.of_session and not call.formulation and (time_s is None or time_s >= _AMPLE_S)
    return ours and find_problem(call.instance.problem).size(call.instance) <= CHECKED_AT_ONCE


def _decided(call: Call) -> Result:
    """Read what is asked for, decide it, and return the worker process."""
    known, (formulation, solver, objective) = call.instance, call.names
    try:
        sound, problem = (known, find_problem(known.problem)) if call.of_session else sound_instance(known)
        goal = require_names(
            problem, formulation, solver, sound.objective if objective is None else objective
        )
        earlier, prices = _earlier(problem, call.initial_solution, goal)
        call.begin(with_objective(problem, sound, goal), problem, prices)
        with stoppable(call.timer.stopped) if call.watched else nullcontext():
            call.answer = decide(call, earlier)
    except (MemoryError, OSError, RuntimeError, ImportError) as error:
        if not call.begun:
            raise
        call.answer = call.result_now(lacking(error))
    finally:
        call.close()
    return call.answer


def _in_shards(executor: Executor, model: Model[Any]) -> Model[Any]:
    """The model, whose groups an executor holds in shards."""
    program = model.program
    if isinstance(program, Program):
        message = "large rounds of sizing, by 'mckp' and a solver that takes jobs by kind"
        raise ClusterError(f"this cannot be spread over a cluster: only {message}, can")
    shards = program.shards(_SHARDS * executor.workers())
    return replace(model, program=replace(program, spread=executor.kept(shards)))


def with_objective(problem: Problem[Any, Any, Any], instance: Any, goal: str) -> Any:
    """The instance with an objective; an InputError where it does not say what that needs."""
    if goal == instance.objective:
        return instance
    changed = instance.model_copy(update={"objective": goal})
    if faults := problem.lacking(changed):
        raise InputError(faults)
    return changed


def sound_instance(instance: Any) -> tuple[Any, Problem[Any, Any, Any]]:
    """Read an instance, or look over one made in Python; and its problem. Faults are an `InputError`."""
    if isinstance(instance, str | os.PathLike):
        instance = read_instance(instance if isinstance(instance, Path) else Path(instance))
        return instance, find_problem(instance.problem)
    require("instance", instance, (BaseModel,), "an instance or a path")
    problem = find_problem(getattr(instance, "problem", type(instance).__name__))
    require("instance", instance, (problem.instance,), "an instance or a path")
    if faults := problem.faults_in(instance, made=True):
        raise InputError(faults)
    return instance, problem


def require_names(
    problem: Problem[Any, Any, Any], formulation: str | None, solver: str, objective: str
) -> str:
    """Refuse unknown names by a ValueError that lists the known ones; the objective's name as it is today."""
    problem.formulation(problem.default if formulation is None else formulation)
    goal = problem.objective(objective)
    if problem.rule(solver) is not None:
        return goal
    try:
        find_solver(solver)
    except ValueError as error:
        theirs = [f"'{name}'" for name in PROBLEMS if solver in find_problem(name).heuristics]
        of_others = f"; '{solver}' is a heuristic of problem {' and '.join(theirs)}" if theirs else ""
        own = f"; heuristics of problem '{problem.name}': {', '.join(problem.heuristics)}"
        raise ValueError(f"{error}{of_others}{own if problem.heuristics else ''}") from None
    return goal


def model_of(
    instance: BaseModel | str | Path,
    *,
    formulation: str | None = None,
    objective: str | None = None,
    timer: Timer | None = None,
) -> Model[Any]:
    """Model that `solve` would hand to a solver, with its program.

    Parameters
    ----------
    instance, formulation, objective
        As for `solve`.
    timer : Timer, optional
        Of a formulation that generates columns for as long as it can.

    Raises
    ------
    ValueError, TypeError, wattsched.InputError
        As `solve`.
    InfeasibleError
        When the instance has no decision, and so no program.
    """
    sound, problem = sound_instance(instance)
    goal = problem.objective(sound.objective if objective is None else objective)
    build = problem.formulation(problem.formulation_of(sound, formulation))
    data = problem.expand(with_objective(problem, sound, goal))
    if reasons := problem.diagnose(data):
        raise InfeasibleError("; ".join(reasons))
    if problem.family(data, goal) is not None:
        raise ValueError(FAMILY)
    model = build(data, goal, timer or Timer())
    return model if model.written_out is None else model.written_out()


def _earlier(problem: Problem[Any, Any, Any], answer: Any, goal: str) -> tuple[Any, Mapping[str, float]]:
    """Decision and named prices of an earlier answer; what is none to the problem is refused.

    Prices under another objective are in other units, and may be of the other sign.
    """
    prices: Mapping[str, float] = {}
    if isinstance(answer, Result):
        if answer.problem != problem.name:
            raise ValueError(
                f"initial_solution is an answer to '{answer.problem}', the instance is of '{problem.name}'"
            )
        if answer.certificate is not None and answer.objective_name == goal:
            prices = answer.certificate.prices
        answer = answer.decision
    expected = f"a Result or a decision of {problem.name}"
    require("initial_solution", answer, (problem.decision, NoneType), expected)
    return answer, prices


def seconds_of(name: str, limit: float | None) -> float | None:
    """Seconds of a limit, None for none or an infinite one; a ValueError or TypeError names a wrong one."""
    require(name, limit, (NoneType, *_NUMBER), "a number of seconds")
    if limit is None:
        return None
    seconds = _float(name, limit)
    if not seconds > 0.0:
        raise ValueError(f"{name} must be positive, got {limit}")
    return None if seconds == np.inf else seconds


def proof_seconds(seconds: float | None, name: str = "prove") -> float | None:
    """Seconds for a proof, None for as many as is usual; errors as of `seconds_of`."""
    require(name, seconds, (NoneType, *_NUMBER), "a number of seconds")
    if seconds is not None and not 0.0 <= (seconds := _float(name, seconds)) < np.inf:
        raise ValueError(f"{name} must be at least 0 and finite, got {seconds}")
    return seconds


def _float(name: str, value: float) -> float:
    """Python's own number: those of numpy warn when they are compared with larger ones than they can be."""
    try:
        return float(value)
    except OverflowError:
        raise ValueError(f"{name} must be below 1.8e308, the largest number") from None


def limits_of(gap: float, time_limit: float | None, threads: int = 1, seed: int = 0) -> Limits:
    """Limits of a call, its time in s, checked: a ValueError or TypeError names one that is wrong."""
    require("gap", gap, _NUMBER, "a number")
    require("threads", threads, _WHOLE, "a whole number")
    require("seed", seed, _WHOLE, "a whole number")
    if not 0.0 <= gap < 1.0:
        raise ValueError(f"gap must be at least 0 and below 1, got {gap}")
    if threads < 1:
        raise ValueError(f"threads must be at least 1, got {threads}")
    if not 0 <= seed < 2**31:
        raise ValueError(f"seed must be between 0 and {2**31 - 1}, got {seed}")
    time_s = seconds_of("time_limit", time_limit)
    # More threads than processors only fight each other; counting them takes a while.
    useful = 1 if threads == 1 else min(threads, os.cpu_count() or 1)
    # Numbers of numpy become Python's: not every solver takes them.
    return Limits(gap=float(gap), time_s=time_s, threads=int(useful), seed=int(seed))
