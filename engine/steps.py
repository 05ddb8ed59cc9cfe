"""The steps of one call: what is tried one after the other until there is an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.answer import Evidence, refuted
from wattsched.call import EARLIER, IN_PLACE, Call, Candidate, StoppedError
from wattsched.certificates import Priced
from wattsched.deadline import nothing, on_time
from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.instances.digest import digest_of
from wattsched.result import Result
from wattsched.solvers.registry import PYOMO_PREFIX
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import (
    Solution,
    Start,
    Termination,
    conclude,
    listening,
    read_by,
    relative_gap,
    with_announced,
)
from wattsched.verification.report import Report

if TYPE_CHECKING:
    from wattsched.formulations.kinds import KindProgram
    from wattsched.formulations.model import Model
    from wattsched.topology.arrays import FloatArray

SMALL = 5_000
"""Up to this many columns the LP relaxation is solved about as soon as the safety net has its decision placed
and checked, and is often the answer."""

IN_THREAD = 5_000
"""Up to this many columns a solver that may be given up runs in a thread instead of a process."""

CHECKED_AT_ONCE, QUICKLY_CHECKED = 250, 25_000
"""Decisions about up to so many jobs are checked in no time, and in the moment that a stopped call has."""

_NET_SHARE, _MOST_NET_SHARE = 0.3, 0.8
# An instance that takes as long to expand makes a large program: the process loads while we build.
_LONG_S = 0.05
# What the solver of a call that is to stop may take to end: what is left is for the decision it ends with.
_ENDING_S = 0.1
_ROUNDING = 1e-6
# The safety net takes about as long as it takes to come to it. Where so many times that are left, it may come
# after the solver, which leaves it some of them.
_AMPLE, _NET_TIMES = 10.0, 3.0


def decide(call: Call, earlier: Any) -> Result:
    """Expand, build, solve and conclude."""
    call.digest = "" if call.brief else digest_of(call.instance)
    with call.timer.phase("expand"):
        call.data = call.problem.expand(call.instance)
        reasons = call.problem.diagnose(call.data)
    if reasons:
        with call.timer.phase("prove"):
            proof = call.problem.refute(call.data, {})
        found = InfeasibleError("; ".join(reasons), proof and replace(proof, detail="; ".join(reasons)))
        return refuted(call, found)
    call.set_aside()
    known = [] if earlier is None else [_earlier_candidate(call, earlier)]
    if call.exact and call.timer.phase_s["expand"] > _LONG_S:
        with suppress(MemoryError, OSError):  # it is asked for again when there is a program
            call.worker()
    known += _by_heuristic(call)
    if call.held is not None and call.timer.over():
        return call.in_hand(limit="time")
    # Somebody else's formulation may take all the time there is.
    early = call.watched and call.formulation != call.problem.default and _net_is_a_solver(call)
    try:
        known += _by_net(call, Start()) if early else []
        model = call.model(call.formulation)
    except InfeasibleError as error:
        call.check_what_is_known()
        return refuted(call, error)
    if model.cut and model.program.n_columns == 0:
        return call.in_hand("the formulation could not be built in time", "time")
    known = [_carried(call, model, one) if one.of == EARLIER else one for one in known]
    if model.start is not None and not call.by_heuristic:
        begun = call.of_solution(call.formulation, model, Solution(Termination("feasible"), model.start))
        known += _in_hand(call, begun)
    start = _start(call, model, known)
    late = not early and _net_comes_late(call, model)
    # By kind, with a point and prices already, it needs no safety net.
    in_reach = model.program.by_kind and start.x is not None and start.prices is not None
    if not late and not early and not in_reach:
        known += _by_net(call, start)
        start = _start(call, model, known)
    asked = _ask(call, model, replace(start, rule=_ascend) if late else start, late)
    known += _in_place(call, model, asked)
    if late and asked.termination.reason == "optimal":
        result = Evidence(call, model, asked, known).answer()
        if result.termination.reason != "error":
            return result
    if late:
        # Now the net is needed after all.
        known += _by_net(call, start)
    return Evidence(call, model, asked, known).answer()


def _earlier_candidate(call: Call, decision: Any) -> Candidate:
    """An earlier decision; that of a session is only to be a point, where there is time to check it later.

    Nobody is told there what it lacks.
    """
    if not (call.brief and _soon_checked(call)):
        return _looked_over(call, decision)
    known = Candidate(EARLIER, np.inf, decision=decision)
    call.unchecked.append(known)
    return known


def _looked_over(call: Call, decision: Any) -> Candidate:
    """An earlier decision, checked; that of another round, with other jobs, need not be any further."""
    strange = call.problem.strangers(call.instance, decision)
    if strange:
        return Candidate(EARLIER, np.inf, decision=decision, report=Report(strange))
    return call.checked(EARLIER, decision)


def _soon_checked(call: Call) -> bool:
    """True if what is known can still be checked in the moment in which the call is given up."""
    most = QUICKLY_CHECKED if call.limits.time_s is None else CHECKED_AT_ONCE
    return call.problem.size(call.instance) <= most


def _carried(call: Call, model: Model[Any], known: Candidate) -> Candidate:
    """As much of an earlier decision as is possible now, where it is not as a whole."""
    if known.report is None:
        # A small round without a limit is solved before this could be of use.
        hurried = model.program.by_kind or call.limits.time_s is not None
        point = (model.nearest if hurried and model.nearest else model.encode)(known.decision)
        return _of_point(call, model, point) or _looked_over(call, known.decision)
    if known.report.faults and model.nearest is not None:
        return _of_point(call, model, model.nearest(known.decision)) or known
    return known


def _of_point(call: Call, model: Model[Any], point: Any) -> Candidate | None:
    """An earlier decision as a point of the program, None where it is none."""
    if point is None or model.program.violation(point) > _ROUNDING:
        return None
    begun = call.of_solution(EARLIER, model, Solution(Termination("feasible"), point))
    return _in_hand(call, begun)[0]


def _by_heuristic(call: Call) -> list[Candidate]:
    """Decision of the heuristic that is asked for, or is the safety net."""
    name = call.solver if call.by_heuristic else call.problem.safety_net
    if name not in call.problem.heuristics:
        return []
    with call.timer.phase("safety"):
        rule = call.problem.heuristics[name]
        decision = rule(call.data, call.instance.objective, call.timer.share(_NET_SHARE))
    found = [] if decision is None else [call.checked(name, decision)]
    call.set_aside()
    return found


def _net_is_a_solver(call: Call) -> bool:
    return call.exact and call.problem.safety_net not in call.problem.heuristics


def _net_comes_late(call: Call, model: Model[Any]) -> bool:
    """True if the safety net runs only when the solver fails: what stops it leaves time for the net.

    Where nodes are cut up, too, an LP relaxation is no answer, and the net takes longer.
    """
    left_s = call.timer.remaining_s()
    ample = left_s is None or left_s > _AMPLE * call.timer.elapsed_s()
    small = ample and model.program.n_columns <= SMALL and not _supplies(model.program)
    return small and _net_is_a_solver(call) and find_solver(call.solver).relaxes


def _supplies(program: Program | KindProgram) -> bool:
    """True if columns supply rows."""
    return isinstance(program, Program) and program.supply > 0


def _by_net(call: Call, start: Start) -> list[Candidate]:
    """Point that the safety net finds, where it is a solver and an exact one is asked for."""
    if not _net_is_a_solver(call):
        return []
    model, net = call.model(call.problem.default), call.problem.safety_net
    if call.formulation != call.problem.default:
        start = Start()
    with call.timer.phase("safety"):
        solution = find_solver(net)(model.program, call.limits_left(_net_share(call, model)), start)
    call.bound = max(call.bound, min(solution.bound, model.outside))
    found = _in_hand(call, call.of_solution(net, model, solution))
    if call.watched and solution.prices is not None and model.lagrangian:
        priced = Priced.best(call, model, [solution.prices])
        call.certificate = None if priced is None else priced.certificate
    # Without a point its prices and its bound are still worth something.
    return found or [Candidate(net, np.inf, model, solution)]


def _net_share(call: Call, model: Model[Any]) -> float:
    """Share of the time for the net: where it takes long and little is left, most of it."""
    left_s = call.timer.remaining_s()
    if not left_s or not _supplies(model.program):
        return _NET_SHARE
    return max(_NET_SHARE, min(_MOST_NET_SHARE, _AMPLE * call.timer.elapsed_s() / left_s))


def _in_hand(call: Call, found: list[Candidate]) -> list[Candidate]:
    """Decode and check what is known at once where the call may be given up: there may be no time later.

    For few jobs there is.
    """
    if not call.watched:
        return found
    if _soon_checked(call):
        call.unchecked += found
        return found
    checked = []
    for candidate in found:
        decision, report = call.decided(candidate)
        checked.append(replace(candidate, decision=decision, report=report))
        call.set_aside()
    return checked


def _start(call: Call, model: Model[Any], known: list[Candidate]) -> Start:
    """Best point of a model's program that is known, and prices."""
    program = model.program
    x = min(_points(model, known), key=program.objective, default=None)
    for candidate in known:
        if candidate.model is model and candidate.solution is not None and candidate.of != EARLIER:
            return Start(x, candidate.solution.prices, dual=candidate.solution.dual)
    if not call.prices or not model.lagrangian:
        return Start(x)
    return Start(x, np.array([call.sign * call.prices.get(name, 0.0) for name in program.row_names()]))


def _points(model: Model[Any], known: list[Candidate]) -> Iterator[Any]:
    """Points of candidates that violate nothing; of one that was carried over that is known."""
    for candidate in known:
        x = candidate.point_of(model)
        carried = candidate.of == EARLIER and candidate.solution is not None
        if x is not None and (carried or model.program.violation(x) <= _ROUNDING):
            yield x


def _ask(call: Call, model: Model[Any], start: Start, late: bool) -> Solution:
    """Ask the solver, unless a heuristic decides, or the formulation has found the optimum itself.

    It leaves time for a net that comes late.
    """
    with call.timer.phase("solve"):
        if call.by_heuristic:
            from wattsched.solvers.dual import dual_prices

            prices, bound = dual_prices(model.program, call.timer.remaining_s())
            return Solution(Termination("feasible"), bound=max(bound, model.bound), prices=prices)
        if model.optimum is not None:
            return conclude(model.program, call.limits, model.optimum, model.bound)
        if call.timer.over():
            return Solution(Termination("no_solution", "time"))
        try:
            left_s = call.timer.remaining_s()
            net_s = _NET_TIMES * call.timer.elapsed_s() if late else 0.0
            share = 1.0 - net_s / left_s if left_s else 1.0
            asked = _by_solver(call, model.program, start, share)
            asked = replace(asked, bound=asked.bound - model.rounded * find_solver(call.solver).rounding)
        except (MemoryError, OSError, RuntimeError, ImportError) as error:
            return Solution(Termination("no_solution", detail=lacking(error)))
    call.bound = max(call.bound, min(asked.bound, model.outside))
    return asked


def _by_solver(call: Call, program: Program | KindProgram, start: Start, share: float) -> Solution:
    """Let the solver run until its share of the time that is left is over, whether it keeps limits or not.

    A small program is solved here, sooner than a process would have it, and so are all by rules and those by
    kind, which look at the time; a thread that is given up may go on for a while. A large program, or one of
    somebody else's, is killed with its process.
    """
    call.say(f"solver '{call.solver}'")
    solver = find_solver(call.solver)
    if (solved := solver.at_once(program, call.limits_left(share))) is not None:
        return solved
    if not call.watched:
        with read_by(call.log), listening(call.hear if call.log else None):
            return solver(program, call.limits, start)
    left = call.limits_left(share)
    limits, grace_s = left.with_grace()
    large = call.exact and program.n_columns > IN_THREAD
    if isinstance(program, Program) and (large or call.solver.startswith(PYOMO_PREFIX)):
        with read_by(call.log), listening(call.hear if call.log else None):
            return call.worker().solve(call.solver, program, limits, start, grace_s)
    heard: list[Solution] = []

    def hear(found: Solution) -> None:
        heard.append(found)
        call.hear(found)

    def ask() -> Solution:
        with read_by(call.log), listening(hear):
            return solver(program, limits, start)

    try:
        asked = on_time(ask, left.time_s, nothing, call.timer.stopped, stopping_s=_ENDING_S)
    except MemoryError as error:
        asked = Solution(Termination("no_solution", detail=lacking(error)))
    late = Solution(Termination("no_solution", "time", "the solver did not stop in time"))
    return with_announced(program, limits, late if asked is None else asked, heard)


def _in_place(call: Call, model: Model[Any], asked: Solution) -> list[Candidate]:
    """The solver's decision, checked, and one without moves if they cost more than its program says."""
    if asked.x is None or call.in_place is None:
        return []
    [claimed] = call.of_solution(call.solver, model, asked)
    own = _valid(call, claimed)
    if not own or relative_gap(own[0].cost, claimed.cost) <= max(call.limits.gap, _ROUNDING):
        return own
    if call.timer.over() or (calm := call.model_in_place()) is None:
        return own
    with call.timer.phase("solve"):
        answer = _by_solver(call, calm.program, Start(), 1.0)
    stays = _valid(call, Candidate(IN_PLACE, np.inf, calm, answer))
    # Its bound is none of those that may move.
    return own + [replace(one, model=None, solution=None) for one in stays]


def _valid(call: Call, candidate: Candidate) -> list[Candidate]:
    """A candidate with its decision, and what that really costs; none where it breaks a rule."""
    decision, report = call.decided(candidate)
    if decision is None or report.faults or report.objective is None:
        return []
    return [replace(candidate, cost=call.sign * report.objective, decision=decision, report=report)]


def _ascend(program: Program, prices: FloatArray) -> FloatArray | None:
    from wattsched.solvers.greedy import ascend

    return ascend(program, prices, Timer())


def lacking(error: Exception) -> str:
    """Name the resource that an error says is lacking; any other error is raised again.

    Threads, processes and libraries have words of their own for it.
    """
    if isinstance(error, StoppedError):
        return ""
    number = error.errno if isinstance(error, OSError) else None
    told = any(words in str(error) for words in ("new thread", "failed to map segment"))
    if isinstance(error, MemoryError) or number == ENOMEM or told:
        return f"out of memory: {error}".rstrip(": ")
    if number not in (EAGAIN, ENOSPC, EMFILE, ENFILE):
        raise error
    return f"no process for the solver could be started: {error}"
