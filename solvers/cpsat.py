r"""CP-SAT on an integer relaxation of the program, with aligned intervals where the program has them.

Every column is :math:`x_j = u_j z_j` with integer :math:`z_j`: the unit :math:`u_j` is 1 for integer columns
and a small power of two for continuous ones. Rows and costs are multiplied by powers of two and rounded such
that every point of the program stays feasible at no higher cost; the optimum over the integers, less
`IntegerProgram.cost_slack`, therefore is a bound for the program. Rows of integers stay as they are.
"""

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
from scipy.sparse import csr_array, vstack

from wattsched.formulations.program import Line, Program
from wattsched.formulations.threads import begin
from wattsched.formulations.timer import Timer, stop_event
from wattsched.formulations.tolerances import LAST_DIGITS, VIOLATION
from wattsched.solvers.log import log
from wattsched.solvers.points import Answer, announce_point, solve_as_written
from wattsched.solvers.rows import allowance, group_of_choice
from wattsched.solvers.solution import (
    Limits,
    Solution,
    Start,
    Termination,
    certified,
    heard,
    infeasible,
    unsupported,
    wanted,
)
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

# Sums over what can be chosen together stay below this, and sums over all columns below the other, far from
# where 64-bit integers end.
_LARGEST_SUM = 2.0**54
_LARGEST_TOTAL = 2.0**59
# A scale that is no larger than this, whatever the costs, does not overflow.
_LARGEST_EXPONENT = 1000.0
# A continuous column is cut into at most about this many steps.
_MOST_STEPS = 2.0**40
_DIGITS = 2.0**50
# Coefficients with fewer digits than this many are short.
_SHORT = 2.0**10
_GLANCE_S = 0.05


def solve(program: Program, limits: Limits, start: Start | None = None) -> Solution:
    """Solve by CP-SAT; prices are not known to it.

    The answer is a point of the program as written; the bound accounts for all rounding.
    Declines programs with columns that nothing bounds.
    """
    timer = Timer(limits.time_s)
    hint = None if start is None else start.x

    def search(current: Program) -> Answer:
        try:
            model = _build(current, hint)
        except UnboundedError as reason:
            return Answer(verdict=unsupported(f"CP-SAT needs finite bounds: {reason}"))
        solver = _configured(limits, timer)
        with _stopped_by(solver):
            status = solver.solve(model.model, _Announcer(program, model) if wanted() else None)
        return _answer(solver, status, model)

    relaxed = Solution(Termination("no_solution"), bound=certified(program, None)[1])
    return solve_as_written(program, limits, search, timer, relaxed=relaxed)


@dataclass(frozen=True)
class _Occupation:
    """Columns of one group that need an interval of one size on one line; at most one is chosen.

    Attributes
    ----------
    place : CP-SAT variable
        The start of the interval, in multiples of its size.
    """

    columns: list[int]
    size: int
    place: Any


@dataclass(frozen=True)
class _Model:
    """The CP-SAT model of a program."""

    integers: IntegerProgram
    model: cp_model.CpModel
    variables: list[Any]
    occupations: list[_Occupation]

    def starts(self, steps: FloatArray, value: Callable[[Any], int]) -> dict[int, int]:
        """Position of every chosen column on its line, from the values of the model's variables."""
        return {
            column: occupation.size * value(occupation.place)
            for occupation in self.occupations
            for column in occupation.columns
            if steps[column] > 0.5
        }


def _build(program: Program, hint: FloatArray | None) -> _Model:
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
            model.add_bool_or([])
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
    """Add the no-overlap constraints of ``program.intervals`` to a model.

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
    """Multiples of `size` where an interval of that length fits: in a block, away from busy positions."""
    begin, end = line.blocks[:, 0], line.blocks[:, 0] + line.blocks[:, 1]
    first, last = -(-begin // size), end // size
    places = [np.arange(low, high) for low, high in zip(first, last, strict=True) if low < high]
    if not places:
        return np.zeros(0, dtype=np.int64)
    return np.setdiff1d(np.concatenate(places), line.busy // size).astype(np.int64)


@contextmanager
def _stopped_by(solver: cp_model.CpSolver) -> Iterator[None]:
    """Stop the search when an event stops what runs here."""
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
        # It says line by line, and leaves their ends out.
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
    """What CP-SAT leaves behind."""
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
        self._announce = heard(announce_point)

    def on_solution_callback(self) -> None:
        """Announce the point if it satisfies the program as written."""
        integers = self._model.integers
        steps = np.array([self.value(variable) for variable in self._model.variables], dtype=float)
        bound = integers.cost_bound(self.best_objective_bound)
        starts = self._model.starts(steps, self.value)
        self._announce(self._program, steps * integers.unit, bound, starts)


class UnboundedError(ValueError):
    """A column has no finite bounds, given or implied."""


@dataclass(frozen=True)
class IntegerProgram:
    """The relaxation.

    Attributes
    ----------
    unit : float array, shape (n_columns,)
        Value of one step of each column.
    lower, upper : int arrays, shape (n_columns,)
    matrix : csr_array of integers, shape (n, n_columns)
        ``row_lower <= matrix @ z <= row_upper``.
    row_lower, row_upper : int arrays, shape (n,)
        Beyond what sums can reach where there is no bound.
    cost : int array, shape (n_columns,)
    cost_scale : float
        ``cost @ z / cost_scale + offset - cost_slack`` is at most the program's cost of a point.
    cost_slack : float
    """

    unit: FloatArray
    lower: IntArray
    upper: IntArray
    matrix: csr_array
    row_lower: IntArray
    row_upper: IntArray
    cost: IntArray
    cost_scale: float
    cost_slack: float

    def cost_bound(self, bound: float) -> float:
        """Bound on the program's cost from one on ``cost @ z + offset * cost_scale``."""
        return bound / self.cost_scale - self.cost_slack


def integer_relaxation(program: Program) -> IntegerProgram:
    """Round a program to integers, outwards.

    Raises
    ------
    UnboundedError
        When a free column has no finite bounds and no row implies them.
    """
    lower, upper = finite_bounds(program)
    integer = program.integer
    # The costs are one more row, the last.
    table = csr_array(vstack([program.matrix, csr_array(program.cost[None, :])]))
    table.sort_indices()
    width = np.maximum(np.abs(lower), np.abs(upper))
    # What is fixed at nothing counts for nothing, and would limit no scale.
    table.data[width[table.indices] == 0.0] = 0.0
    table.eliminate_zeros()
    scale, exact = _scales(program, table, width)
    unit = _units(program, table, scale, lower, upper)
    low = np.where(integer, np.ceil(lower - VIOLATION), np.floor(lower / unit)).astype(np.int64)
    high = np.where(integer, np.floor(upper + VIOLATION), np.ceil(upper / unit)).astype(np.int64)
    # Rows of integers stay as they are; others become ``a x <= bound``, one per bound. The costs come last.
    exact = exact[:-1]
    above = np.flatnonzero(exact | np.isfinite(program.row_upper))
    below = np.flatnonzero(~exact & np.isfinite(program.row_lower))
    rows = np.concatenate([above, below, [program.n_rows]])
    sign = np.repeat([1.0, -1.0, 1.0], [len(above), len(below), 1])
    bound = np.concatenate([program.row_upper[above], -program.row_lower[below], [0.0]])
    sides = csr_array(table[rows])
    row, column = np.repeat(np.arange(len(rows)), np.diff(sides.indptr)), sides.indices
    a = sign[row] * sides.data
    scaled = a * unit[column] * scale[rows][row]
    sides.data = np.floor(scaled).astype(np.int64)
    # Half a step is the distance to the nearest one; rounding a coefficient down raises what is below zero.
    blurred = np.abs(a) * np.where(integer, 0.0, 0.5 * unit)[column]
    raised = np.where(sides.data == scaled, 0.0, np.maximum(-low, 0)[column])
    blur, raising = (np.bincount(row, v, len(rows)) for v in (blurred, raised))
    slack = blur + raising / scale[rows]
    # A continuous column can take up what rounding the data does.
    tolerance = allowance(bound, np.where(blur == 0.0, VIOLATION, LAST_DIGITS))
    with np.errstate(over="ignore"):  # of rows that nothing can break
        most = (bound + tolerance + slack) * scale[rows]
    whole = np.append(exact[above], np.zeros(len(below) + 1, dtype=bool))
    most = np.where(whole, np.floor(most), np.ceil(most))[:-1]
    demanded = np.where(exact, program.row_lower, -np.inf)[above]
    least = np.append(np.ceil(demanded - allowance(demanded)), np.full(len(below), -np.inf))
    reach = 2.0 * _LARGEST_TOTAL
    return IntegerProgram(
        unit=unit,
        lower=low,
        upper=high,
        matrix=sides[:-1],
        row_lower=np.clip(least, -reach, reach).astype(np.int64),
        row_upper=np.clip(most, -reach, reach).astype(np.int64),
        cost=sides[[-1]].toarray().ravel(),
        cost_scale=float(scale[-1]),
        cost_slack=float(slack[-1]),
    )


def _scales(program: Program, table: csr_array, width: FloatArray) -> tuple[FloatArray, BoolArray]:
    """Largest power of two per row that keeps its sums small, and where that is 1: in rows of integers."""
    row = np.repeat(np.arange(table.shape[0]), np.diff(table.indptr))
    free = program.n_groups + np.arange(program.n_columns - program.n_choices)
    owner = np.concatenate([group_of_choice(program), free])[table.indices]
    largest = np.zeros(table.shape[0])
    if len(row):
        # Of a group only one column counts.
        run = np.flatnonzero(np.diff(row, prepend=-1) | np.diff(owner, prepend=-1))
        size = np.abs(table.data) * width[table.indices]
        largest += np.bincount(row[run], np.maximum.reduceat(size, run), table.shape[0])
        total = np.bincount(row, size, table.shape[0])
        largest = np.maximum(largest, total * (_LARGEST_SUM / _LARGEST_TOTAL))
    broken = (table.data != np.round(table.data)) | ~program.integer[table.indices]
    whole = np.bincount(row[broken], minlength=table.shape[0]) == 0
    exponent = np.floor(np.log2(_LARGEST_SUM) - np.log2(np.where(largest > 0, largest, 1.0)))
    scale = np.exp2(np.minimum(exponent, _LARGEST_EXPONENT))
    exact = whole & (largest < _LARGEST_SUM)
    return np.where(exact, 1.0, scale), exact


def _units(
    program: Program, table: csr_array, scale: FloatArray, lower: FloatArray, upper: FloatArray
) -> FloatArray:
    """Steps of the continuous columns: as small as rounding their coefficients is harmless."""
    width, size = upper - lower, np.maximum(np.abs(lower), np.abs(upper))
    entry = table.tocoo()
    continuous = ~program.integer[entry.col]
    row, column, a = entry.row[continuous], entry.col[continuous], np.abs(entry.data[continuous])
    fraction, exponent = np.frexp(a)
    mantissa = fraction * _SHORT
    # A coefficient of few bits is not rounded at all when its last bit times the step is whole.
    digits = mantissa.astype(np.int64)
    exact = _SHORT / (scale[row] * np.ldexp((digits & -digits).astype(float), exponent))
    # Otherwise it costs a unit per step, and every step costs half its length.
    balanced = np.sqrt(width[column] / (scale[row] * a))
    unit = np.zeros(program.n_columns)
    np.maximum.at(unit, column, np.where(mantissa == digits, np.minimum(exact, balanced), balanced))
    # Shorter steps are not to be told apart in a double of the column's size.
    shortest = np.maximum(np.maximum(width, 1e-9) / _MOST_STEPS, size / _DIGITS)
    step = np.exp2(np.ceil(np.log2(np.maximum(unit, shortest))))
    return np.where(program.integer, 1.0, step)


def finite_bounds(program: Program) -> tuple[FloatArray, FloatArray]:
    """Bounds of the columns; a missing one is replaced by one that some optimum satisfies.

    A column that costs nothing or more and that rows only push up need not be above what they demand at most;
    the mirrored case likewise.

    Raises
    ------
    UnboundedError
    """
    lower, upper = program.lower.copy(), program.upper.copy()
    for j in np.flatnonzero(~(np.isfinite(lower) & np.isfinite(upper))):
        demanded = _demanded(program, int(j), lower, upper)
        if not np.isfinite(upper[j]) and program.cost[j] >= 0 and demanded is not None:
            upper[j] = max(demanded[1], lower[j] if np.isfinite(lower[j]) else demanded[0])
        if not np.isfinite(lower[j]) and program.cost[j] <= 0 and demanded is not None:
            lower[j] = min(demanded[0], upper[j] if np.isfinite(upper[j]) else demanded[1])
        if program.integer[j]:
            lower[j], upper[j] = np.floor(lower[j]), np.ceil(upper[j])
        if not (np.isfinite(lower[j]) and np.isfinite(upper[j])):
            raise UnboundedError(f"column {program.column_names()[j]} has no finite bounds")
    return lower, upper


def _demanded(program: Program, j: int, lower: FloatArray, upper: FloatArray) -> tuple[float, float] | None:
    """Least and greatest value that rows can demand of a column; None when they hold it from both sides."""
    by_row = csr_array(program.matrix)
    by_row.eliminate_zeros()
    from_above = np.isfinite(program.upper[j])  # the lower bound is missing
    values = [0.0]
    for r in by_row[:, [j]].tocoo().row:
        entries = slice(by_row.indptr[r], by_row.indptr[r + 1])
        columns, a = by_row.indices[entries], by_row.data[entries]
        own = float(a[columns == j][0])
        ends = np.stack([a * lower[columns], a * upper[columns]])[:, columns != j]
        at_least = (own > 0) != from_above
        bound = program.row_lower[r] if at_least else program.row_upper[r]
        other = program.row_upper[r] if at_least else program.row_lower[r]
        if np.isfinite(other):
            return None
        worst = ends.min(axis=0).sum() if at_least else ends.max(axis=0).sum()
        if np.isfinite(bound):
            values.append((bound - worst) / own)
    return float(min(values)), float(max(values))
