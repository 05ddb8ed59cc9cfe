"""The steps of one call: what is tried one after the other until there is an answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from errno import EAGAIN, EMFILE, ENFILE, ENOMEM, ENOSPC
from typing import TYPE_CHECKING, Any

import numpy as np

from wattsched.formulations.infeasibility import InfeasibleError
from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.instances.digest import digest_of
from wattsched.results.result import Result
from wattsched.solvers.effort import measured
from wattsched.solvers.registry import get as find_solver
from wattsched.solvers.solution import (
    Limits,
    Listener,
    Solution,
    Start,
    Termination,
    conclude,
    listening,
    read_by,
    relative_gap,
    with_announced,
)
from wattsched.solving.answer import Answer, refuted
from wattsched.solving.call import EARLIER, IN_PLACE, Call, Candidate, StoppedError
from wattsched.solving.certificates import Priced
from wattsched.solving.deadline import on_time
from wattsched.solving.families import decide_family
from wattsched.verification.report import Report

if TYPE_CHECKING:
    from wattsched.formulations.kinds import KindProgram
    from wattsched.formulations.model import Model
    from wattsched.topology.arrays import FloatArray

SMALL = 5_000
"""Up to this many columns the LP relaxation is solved about as soon as the heuristic's decision is placed and
checked, and is often the answer; a solver that may be given up runs in a thread instead of a process."""

CHECKED_AT_ONCE, QUICKLY_CHECKED = 250, 25_000
"""Decisions about up to so many jobs are checked in no time, and in the moment that a stopped call has."""

_HEURISTIC_SHARE, _MOST_HEURISTIC_SHARE = 0.3, 0.8
# Expanding for longer than this announces a large program: its process is started while we build.
_LONG_S = 0.05
# Seconds that a solver gets to end once its call is stopped; the rest is for checking its decision.
_ENDING_S = 0.1
_ROUNDING = 1e-6
_MOVING = 0.7
"""Part of the time for the program that knows no price of moves: the rest is for a decision without moves."""
_ALL_DECISIONS_S = 60.0
"""Seconds for all decisions where the columns hold none and the call has no limit."""
_CLOSE = 0.8
"""Part of the gap to which a program that bounds nothing by itself is solved: prices prove a little less."""
# The heuristic takes about as long as the call has taken so far. Where more than `_AMPLE` times that is left,
# it may come after the solver, which leaves it `_HEURISTIC_TIMES` times that.
_AMPLE, _HEURISTIC_TIMES = 10.0, 3.0


def decide(call: Call, earlier: Any) -> Result:
    """Expand and build, run the safety net's heuristic and the solver, check, certify.

    `earlier` is an earlier decision, None where there is none.
    """
    call.digest = "" if call.of_session else digest_of(call.instance)
    with call.timer.phase("expand"):
        call.data = call.problem.expand(call.instance)
        reasons = call.problem.diagnose(call.data)
    if reasons:
        with call.timer.phase("prove"):
            proof = call.problem.refute(call.data, {})
        detail = "; ".join(reasons)
        return refuted(call, InfeasibleError(detail, proof and replace(proof, detail=detail)))
    call.set_aside()
    found = [] if earlier is None else [_earlier_candidate(call, earlier)]
    if (family := call.problem.family(call.data, call.instance.objective)) is not None:
        return decide_family(call, family)
    if call.watched and call.exact and call.timer.phase_s["expand"] > _LONG_S:
        with suppress(MemoryError, OSError):  # it is asked for again when there is a program
            call.worker()
    found += _by_rule(call)
    if call.incumbent is not None and call.timer.over():
        return call.result_now(limit="time")
    # Before it is built: somebody else's formulation may take all the time there is.
    heuristic_early = call.watched and call.formulation != call.problem.default and _relies_on_a_solver(call)
    try:
        found += _by_heuristic(call, Start()) if heuristic_early else []
        model = call.model(call.formulation)
    except InfeasibleError as error:
        call.check_candidates()
        return refuted(call, error)
    if model.cut and model.program.n_columns == 0:
        return call.result_now("the formulation could not be built in time", "time")
    found = [_carried(call, model, one) if one.source == EARLIER else one for one in found]
    if model.start is not None and not call.by_heuristic:
        begun = call.of_solution(call.formulation, model, Solution(Termination("feasible"), model.start))
        found += _checked_if_slow(call, begun)
    if call.watched and not call.timer.over() and (priced := Priced.of_model(call, model)) is not None:
        call.certificate = priced.certificate  # the call may be given up before the solver ends
    start = _start(call, model, found)
    heuristic_late = not heuristic_early and _heuristic_comes_late(call, model)
    # By kind, with a point and prices already, it needs no heuristic.
    started = model.program.by_kind and start.x is not None and start.prices is not None
    if not heuristic_late and not heuristic_early and not started and (more := _by_heuristic(call, start)):
        found += more
        start = _start(call, model, found)
    rule = _ascend if heuristic_late else start.rule
    solution = _solved(call, model, replace(start, rule=rule), heuristic_late)
    found += _in_place(call, model, solution)
    if heuristic_late and solution.termination.reason == "optimal":
        result = Answer(call, model, solution, found).result()
        if result.termination.reason != "error":
            return result
    if heuristic_late:
        found += _by_heuristic(call, start)
    result = Answer(call, model, solution, found).result()
    if result.termination.reason != "no_solution" or call.timer.over():
        return result
    return _by_all_decisions(call, found) or result


def _by_all_decisions(call: Call, found: list[Candidate]) -> Result | None:
    """Result of the formulation that holds all decisions, where the default one held none; else None."""
    name = call.problem.all_decisions(call.data) if call.formulation == call.problem.default else None
    if name is None or call.solver != "auto":
        return None
    call.formulation = name
    if call.limits.time_s is None:
        call.limits = replace(call.limits, time_s=_ALL_DECISIONS_S)
    model = call.model(name)
    result = Answer(call, model, _solved(call, model, Start(), heuristic_late=False), found).result()
    return None if result.termination.reason == "no_solution" else result


def _earlier_candidate(call: Call, decision: Any) -> Candidate:
    """Return an earlier decision as a candidate, checked now, or later in a session of small rounds.

    A session reports no faults of it: there it is a starting point, and checked if nothing else is found.
    """
    if not (call.of_session and _soon_checked(call)):
        return _checked_earlier(call, decision)
    found = Candidate(EARLIER, np.inf, decision=decision)
    call.unchecked.append(found)
    return found


def _checked_earlier(call: Call, decision: Any) -> Candidate:
    """Check an earlier decision; if it says nothing of some job of this round, that is its only fault."""
    unmentioned = call.problem.strangers(call.instance, decision)
    if unmentioned:
        return Candidate(EARLIER, np.inf, decision=decision, report=Report(unmentioned))
    return call.checked(EARLIER, decision)


def _soon_checked(call: Call) -> bool:
    """True if the instance is so small that candidates can still be checked once the call is stopped."""
    most = QUICKLY_CHECKED if call.limits.time_s is None else CHECKED_AT_ONCE
    return call.problem.size(call.instance) <= most


def _carried(call: Call, model: Model[Any], earlier: Candidate) -> Candidate:
    """Carry an earlier decision over to the program: as it is, or else its nearest point that is feasible."""
    if earlier.report is None:
        # A small round without a limit is solved before this could be of use.
        hurried = model.program.by_kind or call.limits.time_s is not None
        point = (model.nearest if hurried and model.nearest else model.encode)(earlier.decision)
        return _of_point(call, model, point) or _checked_earlier(call, earlier.decision)
    if earlier.report.faults and model.nearest is not None:
        return _of_point(call, model, model.nearest(earlier.decision)) or earlier
    return earlier


def _of_point(call: Call, model: Model[Any], point: Any) -> Candidate | None:
    """An earlier decision as a point of the program, None where it is none."""
    if point is None or model.program.violation(point) > _ROUNDING:
        return None
    begun = call.of_solution(EARLIER, model, Solution(Termination("feasible"), point))
    [candidate] = _checked_if_slow(call, begun)
    return candidate


def _by_rule(call: Call) -> list[Candidate]:
    """Run the heuristic that is requested, or that is the safety net, if it is a rule without a program."""
    name = call.solver if call.by_heuristic else call.problem.safety_net
    if (rule := call.problem.rule(name)) is None:
        return []
    with call.timer.phase("safety"):
        decision = rule(call.data, call.instance.objective, call.timer.share(_HEURISTIC_SHARE))
    found = [] if decision is None else [call.checked(name, decision)]
    call.set_aside()
    return found


def _relies_on_a_solver(call: Call) -> bool:
    """True if the safety net is a solver of the default program, and an exact one is requested."""
    return call.exact and call.problem.safety_net not in call.problem.heuristics


def _heuristic_comes_late(call: Call, model: Model[Any]) -> bool:
    """True if the safety net need run only after the solver has failed, as time is left for it then.

    Where columns supply rows, an LP relaxation is no answer, and the safety net takes longer.
    """
    left_s = call.timer.remaining_s()
    ample = left_s is None or left_s > _AMPLE * call.timer.elapsed_s()
    small = ample and model.program.n_columns <= SMALL and not _supplies(model.program)
    return small and _relies_on_a_solver(call) and find_solver(call.solver).relaxes


def _supplies(program: Program | KindProgram) -> bool:
    """True if columns supply rows."""
    return isinstance(program, Program) and program.supply > 0


def _by_heuristic(call: Call, start: Start) -> list[Candidate]:
    """Run the safety net where it is a solver of the default program and an exact solver is requested."""
    if not _relies_on_a_solver(call):
        return []
    model, heuristic = call.model(call.problem.default), call.problem.safety_net
    if call.formulation != call.problem.default:
        start = Start()
    with call.timer.phase("safety"):
        limits = call.limits_left(_heuristic_share(call, model))
        solution = find_solver(heuristic)(model.program, limits, start)
    call.bound = max(call.bound, min(solution.bound, model.outside))
    found = _checked_if_slow(call, call.of_solution(heuristic, model, solution))
    if call.watched and solution.prices is not None and model.lagrangian:
        priced = Priced.best(call, model, [solution.prices])
        call.certificate = None if priced is None else priced.certificate
    # Even without a point, its prices and its bound are of use.
    return found or [Candidate(heuristic, np.inf, model, solution)]


def _heuristic_share(call: Call, model: Model[Any]) -> float:
    """Share of the time for the safety net: where it takes long and little is left, most of it."""
    left_s = call.timer.remaining_s()
    if not left_s or not _supplies(model.program):
        return _HEURISTIC_SHARE
    return max(_HEURISTIC_SHARE, min(_MOST_HEURISTIC_SHARE, _AMPLE * call.timer.elapsed_s() / left_s))


def _checked_if_slow(call: Call, found: list[Candidate]) -> list[Candidate]:
    """Decode and check at once what takes long, where the call may be given up: later may be too late."""
    if not call.watched:
        return found
    if _soon_checked(call):
        call.unchecked += found
        return found
    checked = []
    for candidate in found:
        checked.append(call.decided(candidate))
        call.set_aside()
    return checked


def _start(call: Call, model: Model[Any], found: list[Candidate]) -> Start:
    """Start of the solver: the best point so far of a model's program, and prices if there are any."""
    program = model.program
    x = min(_points(model, found), key=program.objective, default=None)
    for candidate in found:
        if candidate.model is model and candidate.solution is not None and candidate.source != EARLIER:
            return Start(x, candidate.solution.prices, dual=candidate.solution.dual)
    if not call.prices or not model.lagrangian:
        return Start(x)
    return Start(x, np.array([call.sign * call.prices.get(name, 0.0) for name in program.row_names()]))


def _points(model: Model[Any], found: list[Candidate]) -> Iterator[Any]:
    """Yield the candidates' feasible points; that of a carried-over decision was tested before."""
    for candidate in found:
        x = candidate.point_of(model)
        carried = candidate.source == EARLIER and candidate.solution is not None
        if x is not None and (carried or model.program.violation(x) <= _ROUNDING):
            yield x


def _solved(call: Call, model: Model[Any], start: Start, heuristic_late: bool) -> Solution:
    """Run the solver, unless a heuristic decides, or the formulation has found the optimum itself.

    `heuristic_late` leaves time for a safety net that comes after it.
    """
    with call.timer.phase("solve"), measured() as effort:
        if call.trajectory is not None:
            call.trajectory.effort = effort
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
            kept_s = _HEURISTIC_TIMES * call.timer.elapsed_s() if heuristic_late else 0.0
            share = 1.0 - kept_s / left_s if left_s else 1.0
            share *= (1.0 if call.in_place is None else _MOVING) * (1.0 - model.proving)
            # A program that bounds nothing by itself is a little above what prices prove.
            close = _CLOSE if model.outside == -np.inf else 1.0
            allowed = model.rounded * find_solver(call.solver).rounding

            def record(found: Solution) -> None:
                if call.trajectory is not None:
                    lowered = replace(found, bound=found.bound - allowed)
                    call.trajectory.hear(call.timer.seconds(), lowered, model.outside)

            solution = _by_solver(call, model.program, start, share, close * call.limits.gap, record)
            record(solution)
            solution = replace(solution, bound=solution.bound - allowed)
        except (MemoryError, OSError, RuntimeError, ImportError) as error:
            return Solution(Termination("no_solution", detail=lacking(error)))
    call.bound = max(call.bound, min(solution.bound, model.outside))
    return solution


def _by_solver(
    call: Call,
    program: Program | KindProgram,
    start: Start,
    share: float,
    gap: float,
    record: Listener = lambda found: None,
) -> Solution:
    """Run the solver to a gap, or until its `share` of the time that is left is over; `record` hears it.

    A small program is solved here, sooner than a process would have it, and so are all by rules and those by
    kind, which look at the time; a thread that is given up may go on for a while. A large program, or one of
    somebody else's, is killed with its process.
    """
    call.say(f"solver '{call.solver}'")
    solver = find_solver(call.solver)
    left = replace(call.limits_left(share), gap=gap)
    if (solved := solver.at_once(program, left)) is not None:
        return solved
    announced: list[Solution] = []

    def hear(found: Solution) -> None:
        call.hear(found)
        record(found)

    def keep(found: Solution) -> None:
        announced.append(found)
        hear(found)

    followed = call.log is not None or call.trajectory is not None

    def run(limits: Limits) -> Solution:
        with read_by(call.log), listening(keep if call.watched or followed else None):
            return solver(program, limits, start)

    if not call.watched:
        return run(replace(call.limits, gap=gap))
    limits, grace_s = left.with_grace()
    large = call.exact and program.n_columns > SMALL
    if isinstance(program, Program) and (large or solver.through):
        with read_by(call.log), listening(hear if followed else None):
            return call.worker().solve(call.solver, program, limits, start, grace_s)
    late = Solution(Termination("no_solution", "time", "the solver did not stop in time"))
    try:
        stop = call.timer.stopped
        ended = on_time(lambda: run(limits), left.time_s, lambda: late, stop, stopping_s=_ENDING_S)
    except MemoryError as error:
        ended = Solution(Termination("no_solution", detail=lacking(error)))
    return with_announced(program, limits, ended, announced)


def _in_place(call: Call, model: Model[Any], solution: Solution) -> list[Candidate]:
    """The solver's decision, checked, and one without moves if they cost more than its program says."""
    if solution.x is None or call.in_place is None:
        return []
    [claimed] = call.of_solution(call.solver, model, solution)
    own = call.decided(claimed)
    if not own.valid:
        return []
    as_claimed = relative_gap(own.cost, claimed.cost) <= max(call.limits.gap, _ROUNDING)
    if as_claimed or call.timer.over() or (calm := call.model_in_place()) is None:
        return [own]
    with call.timer.phase("solve"):
        without_moves = _by_solver(call, calm.program, Start(), 1.0, call.limits.gap)
    stays = call.decided(Candidate(IN_PLACE, np.inf, calm, without_moves))
    # Its bound does not hold for decisions with moves, so it is dropped.
    return [own, *([replace(stays, model=None, solution=None)] if stays.valid else [])]


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
    no_room = any(words in str(error) for words in ("new thread", "failed to map segment"))
    if isinstance(error, MemoryError) or number == ENOMEM or no_room:
        return f"out of memory: {error}".rstrip(": ")
    if number not in (EAGAIN, ENOSPC, EMFILE, ENFILE):
        raise error
    return f"no process for the solver could be started: {error}"
