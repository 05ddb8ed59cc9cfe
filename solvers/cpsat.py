"""CP-SAT on an integer relaxation of the program, with aligned intervals where the program has them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from wattsched.formulations.program import Line, Program
from wattsched.formulations.threads import begin
from wattsched.formulations.timer import Timer, stop_event
from wattsched.solvers.effort import spend
from wattsched.solvers.integer_program import IntegerProgram, UnboundedError, integer_relaxation
from wattsched.solvers.points import Answer, announce_point, solve_as_written
from wattsched.solvers.rows import group_of_choice
from wattsched.solvers.solution import (
    Limits,
    Solution,
    Start,
    Termination,
    announce,
    certified,
    has_listener,
    infeasible,
    log,
    unsupported,
    with_listener,
)
from wattsched.topology.arrays import FloatArray, IntArray

_GLANCE_S = 0.05


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution:
    """Solve by CP-SAT; prices are not known to it.

    The answer is a point of the program as written; the bound accounts for all rounding.
    Declines programs with columns that nothing bounds.
    """
    timer = Timer(limits.time_s)
    hint = None if start is None else start.x

    def search(current: Program) -> Answer:
        """Run CP-SAT on the program, or on one with tighter rows."""
        try:
            model = _build(current, hint)
        except UnboundedError as reason:
            return Answer(verdict=unsupported(f"CP-SAT needs finite bounds: {reason}"))
        solver = _configured(limits, timer)
        if has_listener() and current is program:
            solver.best_bound_callback = with_listener(
                lambda bound: announce(model.integers.cost_bound(bound))
            )
        with _stopped_by(solver):
            status = solver.solve(model.model, _Announcer(program, model) if has_listener() else None)
        spend(nodes=solver.num_branches)
        return _answer(solver, status, model)

    _, bound = certified(program, None)
    relaxed = Solution(Termination("no_solution"), bound=bound)
    return solve_as_written(program, limits, search, timer, relaxed=relaxed)


@dataclass(frozen=True)
class _Occupation:
    """Columns of one group that need an interval of one size on one line; at most one is chosen."""

    columns: list[int]
    size: int
    place: Any  # variable: the start of the interval, in multiples of its size


@dataclass(frozen=True)
class _Model:
    """CP-SAT's model of a program."""

    integers: IntegerProgram
    model: cp_model.CpModel
    variables: list[Any]
    occupations: list[_Occupation]

    def starts(self, steps: FloatArray, value: Callable[[Any], int]) -> dict[int, int]:
        """Position of every chosen column on its line; `steps` has the columns' values, `value` reads one."""
        return {
            column: occupation.size * value(occupation.place)
            for occupation in self.occupations
            for column in occupation.columns
            if steps[column] > 0.5
        }


def _build(program: Program, hint: FloatArray | None) -> _Model:
    """Model of the program's integer relaxation; `hint` is a point to begin at."""
    integers = integer_relaxation(program)
    model = cp_model.CpModel()
    variables = [
        model.new_int_var(low, high, "")
        for low, high in zip(integers.lower.tolist(), integers.upper.tolist(), strict=True)
    ]
    for first, last in itertools.pairwise(program.group_start.tolist()):
        model.add_exactly_one(variables[first:last])
    rows = zip(integers.row_lower.tolist(), integers.row_upper.tolist(), strict=True)
    parts = (integers.matrix.indptr, integers.matrix.indices, integers.matrix.data)
    first, column, coefficient = (array.tolist() for array in parts)
    for r, (low, high) in enumerate(rows):
        entries = slice(first[r], first[r + 1])
        chosen = [variables[j] for j in column[entries]]
        if chosen:
            use = cp_model.LinearExpr.weighted_sum(chosen, coefficient[entries])
            model.add_linear_constraint(use, low, high)
        elif not low <= 0 <= high:
            model.add_bool_or([])  # nothing satisfies it
    model.minimize(cp_model.LinearExpr.weighted_sum(variables, integers.cost.tolist()))
    # CP-SAT measures its gap against an objective of at least one: one of the integers' steps, which is small
    # whatever the program's costs are.
    model.proto.objective.offset = program.offset * integers.cost_scale
    if hint is not None:
        steps = np.clip(np.round(hint / integers.unit), integers.lower, integers.upper)
        for variable, value in zip(variables, steps.astype(np.int64).tolist(), strict=True):
            model.add_hint(variable, value)
    return _Model(integers, model, variables, _occupy(model, variables, program))


def _occupy(model: cp_model.CpModel, variables: list[Any], program: Program) -> list[_Occupation]:
    """Add the no-overlap constraints of ``program.intervals`` to a model; return its optional intervals.

    Busy positions and the ends of blocks are left out of the starts' domains, so they need no intervals.
    """
    intervals = program.intervals
    if intervals is None:
        return []
    group = group_of_choice(program)
    members: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    for column in np.flatnonzero(intervals.line[: program.n_choices] >= 0).tolist():
        key = (int(intervals.line[column]), int(group[column]), int(intervals.size[column]))
        members[key].append(column)
    occupations = []
    by_line: dict[int, list[tuple[Any, Any, int]]] = defaultdict(list)
    domains: dict[tuple[int, int], IntArray] = {}
    for (line, _, size), columns in sorted(members.items()):
        if (line, size) not in domains:
            domains[line, size] = free_places(intervals.lines[line], size)
        places = domains[line, size]
        chosen = [variables[column] for column in columns]
        if len(places) == 0:
            model.add(cp_model.LinearExpr.sum(chosen) == 0)
            continue
        present = chosen[0]
        if len(chosen) > 1:
            present = model.new_bool_var("")
            model.add(cp_model.LinearExpr.sum(chosen) == present)
        place = model.new_int_var_from_domain(cp_model.Domain.from_values(places.tolist()), "")
        held = model.new_optional_fixed_size_interval_var(place * size, size, present, "")
        by_line[line].append((held, present, size))
        occupations.append(_Occupation(columns, size, place))
    for line, parts in by_line.items():
        places_held, presences, sizes = zip(*parts, strict=True)
        model.add_no_overlap(places_held)
        # Implied, but it gives the linear relaxation a bound.
        room = len(free_places(intervals.lines[line], 1))
        model.add_linear_constraint(cp_model.LinearExpr.weighted_sum(presences, sizes), 0, room)
    return occupations


def free_places(line: Line, size: int) -> IntArray:
    """Integers k so that an interval of `size` fits at k * `size`: in a block, off busy positions."""
    begin, end = line.blocks[:, 0], line.blocks[:, 0] + line.blocks[:, 1]
    first, last = -(-begin // size), end // size
    places = [np.arange(low, high) for low, high in zip(first, last, strict=True) if low < high]
    if not places:
        return np.zeros(0, dtype=np.int64)
    return np.setdiff1d(np.concatenate(places), line.busy // size).astype(np.int64)


@contextmanager
def _stopped_by(solver: cp_model.CpSolver) -> Iterator[None]:
    """Stop CP-SAT's search, while this block runs, soon after the context's stop event is set."""
    if (stop := stop_event()) is None:
        yield
        return
    done = Event()

    def watch() -> None:
        while not done.wait(_GLANCE_S):
            if stop.is_set():
                solver.stop_search()

    begin(Thread(target=watch, daemon=True))
    try:
        yield
    finally:
        done.set()


def _configured(limits: Limits, timer: Timer) -> cp_model.CpSolver:
    """CP-SAT with these limits, the time that the timer leaves, and the log for this context's reader."""
    solver = cp_model.CpSolver()
    parameters = solver.parameters
    parameters.num_workers = limits.threads
    parameters.interleave_search = limits.threads > 1  # the same answer whatever the threads' timing
    parameters.random_seed = limits.seed
    parameters.relative_gap_limit = limits.gap
    parameters.absolute_gap_limit = 0.0
    take = log()
    parameters.log_search_progress = take is not None
    parameters.log_to_stdout = False
    if take is not None:
        # CP-SAT passes whole lines, without their ends.
        solver.log_callback = lambda line: take(f"{line}\n")
    # The presolve of linear rows that include a choice group's columns makes OR-Tools 9.15 prove wrong
    # optima (its issue 5293): 57 of 24,000 small random programs were wrong, and none without it.
    parameters.presolve_inclusion_work_limit = 0
    parameters.catch_sigint_signal = False  # it would leave Python without its own handler
    remaining_s = timer.remaining_s()
    if remaining_s is not None:
        parameters.max_time_in_seconds = remaining_s
    return solver


def _answer(solver: cp_model.CpSolver, status: Any, model: _Model) -> Answer:
    """Return the outcome of a CP-SAT run: point, bound and limit, or a verdict on the program."""
    if status == cp_model.MODEL_INVALID:
        return Answer(verdict=unsupported(f"CP-SAT rejects the model: {model.model.validate()}"))
    if status == cp_model.INFEASIBLE:
        return Answer(verdict=infeasible(detail="CP-SAT proved that no integer point satisfies the rows"))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        # Stopped before it knew anything, it reports a bound of 0 all the same.
        return Answer(limit="time", detail=f"CP-SAT stopped: {solver.status_name(status).lower()}")
    integers = model.integers
    steps = np.array(solver.response_proto.solution, dtype=float)[: len(integers.unit)]
    return Answer(
        x=steps * integers.unit,
        bound=integers.cost_bound(solver.best_objective_bound),
        limit=None if status == cp_model.OPTIMAL else "time",
        starts=model.starts(steps, solver.value),
    )


class _Announcer(cp_model.CpSolverSolutionCallback):
    """Announces improving points of the program."""

    def __init__(self, program: Program, model: _Model) -> None:
        super().__init__()
        self._program = program
        self._model = model
        self._announce = with_listener(announce_point)

    def on_solution_callback(self) -> None:
        """Announce the point if it satisfies the program as written."""
        integers = self._model.integers
        steps = np.array([self.value(variable) for variable in self._model.variables], dtype=float)
        bound = integers.cost_bound(self.best_objective_bound)
        starts = self._model.starts(steps, self.value)
        self._announce(self._program, steps * integers.unit, bound, starts)
