"""Any solver that Pyomo finds: ``pyomo:cbc``, ``pyomo:glpk``, ``pyomo:highs``, ``pyomo:gurobi``...

Names that Pyomo's newer interfaces (`pyomo.contrib.solver`) know are taken from there, others from the older
ones. Pyomo is imported when the time of the call already runs: that takes a second.
"""

from __future__ import annotations

import contextlib
import io
import logging
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import highspy
import numpy as np
from scipy.sparse import csr_array

from wattsched.formulations.program import Program
from wattsched.formulations.timer import Timer
from wattsched.formulations.tolerances import VIOLATION
from wattsched.solvers.dual import dual_prices
from wattsched.solvers.lp import ScaledModel, scaled
from wattsched.solvers.points import Answer, announce_point, solve_as_written
from wattsched.solvers.rows import allowance
from wattsched.solvers.solution import (
    Limit,
    Limits,
    Say,
    Solution,
    Start,
    Termination,
    announce,
    infeasible,
    log,
    relative_gap,
    unsupported,
)
from wattsched.topology.arrays import FloatArray

_DUAL_SHARE = 0.3
# A solver that is killed takes its point with it. Writing the model, reading it there and reading the answer
# take about as long as building it, each; the solver gets what that leaves of the time, or a small share.
_SPARE_BUILDS = 3.0
_SPARE_S = 0.2
_LEAST_SHARE = 0.3
_LEAST_S = 0.01
# glpsol's limit holds for the relaxation and again for the search.
_GLPK_PHASES = 2
_GLPK_GAP_REACHED = "MIP GAP TOLERANCE REACHED"
_INFEASIBLE = {"infeasible", "provenInfeasible"}
_NO_OPTIMUM = "infeasibleOrUnbounded"
_OPTIMAL = {"optimal", "convergenceCriteriaSatisfied", "globallyOptimal"}
_OUT_OF_TIME = "maxTimeLimit"
# Option names for the relative gap, the number of threads and the seed, by the solver's family.
_OPTIONS = {
    "cbc": ("ratioGap", "threads", "randomCbcSeed"),
    "glpk": ("mipgap", None, "seed"),
    "scip": ("limits/gap", None, "randomization/randomseedshift"),
    "gurobi": ("MIPGap", "Threads", "Seed"),
    "cplex": ("mipgap", "threads", "randomseed"),
    "xpress": ("miprelstop", "threads", "randomseed"),
    "highs": ("mip_rel_gap", "threads", "random_seed"),
}

# A point that is not better by so much may be left out besides: of scaled costs, and relative to the
# objective. CBC's is an option, else 1e-5; GLPK's is the default of "tol_obj", no option of glpsol.
_CBC_INCREMENT = 1e-9
_ALWAYS: dict[str, dict[str, float]] = {
    "cbc": {"increment": _CBC_INCREMENT},
    "highs": {"mip_feasibility_tolerance": VIOLATION, "mip_abs_gap": 0.0},
}
# Preprocessing takes some programs whose limits are met exactly for infeasible: they are solved without.
_PLAIN = {"cbc": {"preprocess": "off"}, "highs": {"presolve": "off"}}
_LEFT_OUT = {"cbc": (_CBC_INCREMENT, 0.0), "glpk": (1e-7, 1e-7)}


def solve(program: Program, limits: Limits, start: Start | None = None, *, name: str) -> Solution:
    """Solve by the solver that Pyomo knows by a name; `start` is not used.

    The bound is the best of what the row prices prove, what the solver states, and, for solvers that
    state nothing reliable, what its having stopped at the gap means.
    """
    timer = Timer(limits.time_s)
    with _silence():
        interface = _find(name)
        if interface is None:
            return unsupported(f"solver '{name}' is not installed, or unknown to Pyomo")
        prices, bound = dual_prices(program, timer.share(_DUAL_SHARE).remaining_s())
        if bound == np.inf or _empty_row_fails(program):
            return infeasible(prices, "the LP relaxation is infeasible")
        relaxed = Solution(Termination("no_solution"), bound=bound, prices=prices)
        announce(bound, prices, at_root=True)

        def once(model: ScaledModel, gap: float) -> Answer:
            """Run the solver once at a relative gap; its outcome in the program's units."""
            ran = interface.run(model.program, replace(limits, gap=gap), timer)
            # Out of time, CBC calls what it has not solved infeasible.
            refuted = ran.ending in _INFEASIBLE or (ran.ending == _NO_OPTIMUM and bound > -np.inf)
            if refuted and ran.limit is None:
                detail = f"{name} proved that no integer point satisfies the rows"
                return Answer(verdict=infeasible(prices, detail))
            ending = "out of time" if ran.limit == "time" else ran.ending
            if ran.x is None:
                return Answer(limit=ran.limit, detail=f"{name} stopped: {ending}")
            x = model.point(ran.x)
            if ran.ending not in _OPTIMAL:
                detail = "" if ran.limit == "time" else f"{name} stopped: {ending}"
                return Answer(x, model.cost_of(ran.bound), ran.limit, detail)
            if ran.bound > -np.inf:
                return Answer(x, model.cost_of(ran.bound))
            return Answer(x, interface.implied_bound(program, model, x, gap, bound))

        def ask(current: Program) -> Answer:
            """Run the solver at smaller and smaller gaps until that of `limits` is proven."""
            if timer.over():
                return Answer(limit="time", detail=f"{name} stopped: out of time")
            # HiGHS as Pyomo sets it takes smaller coefficients for 0, and the others may.
            model = scaled(current, VIOLATION)
            gap = limits.gap if interface.states_bound else 0.5 * limits.gap
            answer = once(model, gap)
            while (tighter := _tighter(program, answer, limits.gap, bound)) < gap and not timer.over():
                gap = tighter
                if answer.x is not None:  # the next run may be killed, with what is known here
                    announce_point(program, answer.x, bound, {})
                second = once(model, gap)
                x = min((a.x for a in (answer, second) if a.x is not None), key=program.objective)
                answer = replace(second, x=x, bound=max(answer.bound, second.bound), verdict=None)
            return answer

        return solve_as_written(program, limits, ask, timer, relaxed=relaxed)


def _magnitude(program: Program, x: FloatArray, relaxed: float) -> float:
    """Largest value that solvers may measure a relative gap of a point against: some leave the offset out.

    `relaxed` is the bound that is known without them.
    """
    objective, offset = program.objective(x), program.offset
    against = [objective, objective - offset]
    if relaxed > -np.inf:
        against += [relaxed, relaxed - offset]
    return max(abs(value) for value in against)


def _tighter(program: Program, answer: Answer, gap: float, relaxed: float) -> float:
    """Relative gap to ask for next, infinite where nothing is left to prove or the solver was not done.

    Half of `gap` at the objective, however large the values are that the solver measures it against;
    `relaxed` is the bound that is known without it.
    """
    if answer.x is None or answer.limit is not None or answer.detail:
        return np.inf
    objective = program.objective(answer.x)
    if relative_gap(objective, min(objective, max(answer.bound, relaxed))) <= gap:
        return np.inf
    return 0.5 * gap * abs(objective) / _magnitude(program, answer.x, relaxed)


def _empty_row_fails(program: Program) -> bool:
    touched = np.bincount(program.matrix.indices, minlength=program.n_rows) > 0
    lower, upper = program.row_lower, program.row_upper
    return bool(np.any(~touched & ((lower > allowance(lower)) | (upper < -allowance(upper)))))


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Keep Pyomo's warnings and prints to itself."""
    logger = logging.getLogger("pyomo")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)


def _find(name: str) -> _Interface | None:
    """The solver of that name, if it is installed."""
    import pyomo.environ as pyo

    try:
        # Where Pyomo has an older interface to a solver too, its newer one is called so.
        newer = f"{name}_v2"
        solver = pyo.SolverFactory(newer if newer in pyo.SolverFactory else name)
        return _Interface(name, solver) if solver.available(exception_flag=False) else None
    except Exception:  # a broken or unlicensed solver is one that cannot be used
        return None


@dataclass(frozen=True)
class _Ran:
    """Scaled outcome of a run: the solver's own status, its point and, if it is to be trusted, its bound.

    `late` says that it had used up its time, whatever it calls its end.
    """

    ending: str
    x: FloatArray | None = None
    bound: float = -np.inf
    late: bool = False

    @property
    def limit(self) -> Limit | None:
        if self.ending in _OPTIMAL:
            return None
        return "time" if self.late or self.ending == _OUT_OF_TIME else None


class _Interface:
    """A solver of Pyomo, ready to be called; `states_bound` says that its own bound is reliable."""

    def __init__(self, name: str, solver: Any) -> None:
        from pyomo.contrib.solver.common.base import LegacySolverWrapper

        self._solver = solver
        self._family = next((key for key in _OPTIONS if key in name), "")
        self._newer = self.states_bound = isinstance(solver, LegacySolverWrapper)

    def implied_bound(
        self, program: Program, model: ScaledModel, x: FloatArray, gap: float, relaxed: float
    ) -> float:
        """Bound that follows from the solver's having stopped at a relative gap with the point `x`.

        -inf where it was told no gap; `relaxed` is the bound that is known without it.
        """
        if not self._family:
            return -np.inf
        absolute, relative = _LEFT_OUT.get(self._family, (0.0, 0.0))
        objective = program.objective(x)
        left_out = absolute / model.cost_factor + relative * abs(objective)
        return objective - gap * _magnitude(program, x, relaxed) - left_out

    def run(self, model: Program, limits: Limits, timer: Timer) -> _Ran:
        """Build the model and solve it in what that leaves of the time."""
        if self._family == "highs":
            # Its scheduler is global and keeps the thread count of its first use.
            highspy.Highs.resetGlobalScheduler(True)
        building = Timer()
        written = _pyomo_model(model)
        spare_s = _SPARE_S + _SPARE_BUILDS * building.elapsed_s()
        ran = self._guarded(written, self._options(limits), _solver_s(timer, spare_s))
        # Preprocessing takes some feasible programs for infeasible.
        if self._family in _PLAIN and ran.x is None and ran.limit is None:
            options = {**self._options(limits), **_PLAIN[self._family]}
            second = self._guarded(written, options, _solver_s(timer, spare_s))
            confirmed = second.x is None and second.limit is None
            return ran if confirmed and ran.ending in _INFEASIBLE else second
        return ran

    def _options(self, limits: Limits) -> dict[str, Any]:
        """Values of the solver's options, by the names that its family gives them."""
        gap, threads, seed = _OPTIONS.get(self._family, (None, None, None))
        values = {
            gap: limits.gap,
            threads: limits.threads if limits.threads > 1 or self._family != "cbc" else None,
            seed: limits.seed,
        }
        told = {key: value for key, value in values.items() if key is not None and value is not None}
        return told | _ALWAYS.get(self._family, {})

    def _guarded(self, written: Any, options: dict[str, Any], time_s: float | None) -> _Ran:
        """Run the solver on Pyomo's model; whatever it raises is the outcome's `ending`."""
        timer = Timer(time_s)
        try:
            return replace(self._run(written, options, time_s), late=timer.over())
        except subprocess.TimeoutExpired:  # Pyomo kills programs that ignore their limit
            return _Ran(_OUT_OF_TIME)
        except Exception as error:  # interfaces raise whatever they like when a solver stops early
            reason = str(error).partition("\n")[0]
            return _Ran(f"{type(error).__name__}: {reason}", late=timer.over())

    def _run(self, written: Any, options: dict[str, Any], time_s: float | None) -> _Ran:
        """Run the solver on Pyomo's model; it may raise anything."""
        if time_s is not None and self._family == "glpk":
            # glpsol takes whole seconds only, and at 0 it does not begin.
            time_s = max(1, int(time_s / _GLPK_PHASES))
        take, told = log(), dict[str, Any]()
        if take is not None and self._newer:
            told["tee"] = _LogStream(take)
        results = self._solver.solve(written, load_solutions=False, timelimit=time_s, options=options, **told)
        if take is not None and not self._newer:
            take(f"{getattr(self._solver, '_log', '')}\n")  # older interfaces tell it afterwards
        ending = str(results.solver.termination_condition)
        if self._family == "glpk" and ending == "feasible":
            reached = _GLPK_GAP_REACHED in getattr(self._solver, "_log", "")
            ending = "convergenceCriteriaSatisfied" if reached else _OUT_OF_TIME
        stated = results.problem.lower_bound if self.states_bound else None
        bound = -np.inf if stated is None or not np.isfinite(stated) else float(stated)
        if not len(results.solution) or ending in _INFEASIBLE:
            return _Ran(ending, bound=bound)
        written.solutions.load_from(results)
        values = [written.x[j].value for j in range(len(written.x))]
        return _Ran(ending, None if None in values else np.array(values, dtype=float), bound)


class _LogStream(io.TextIOBase):
    """Stream of a solver's log."""

    def __init__(self, take: Say) -> None:
        super().__init__()
        self._take = take

    def write(self, text: str) -> int:
        self._take(text)
        return len(text)


def _solver_s(timer: Timer, spare_s: float) -> float | None:
    """Time limit for the solver that leaves `spare_s` of what remains for everything around it."""
    remaining_s = timer.remaining_s()
    if remaining_s is None:
        return None
    return max(remaining_s - spare_s, _LEAST_SHARE * remaining_s, _LEAST_S)


def _pyomo_model(model: Program) -> Any:
    """Concrete model with variables ``x[j]``, rows ``row[i]`` and an objective, of a program without groups.

    Rows without entries cannot be written in Pyomo and are left out.
    """
    import pyomo.environ as pyo
    from pyomo.core.expr.numeric_expr import LinearExpression

    m = pyo.ConcreteModel()
    lower, upper, whole = model.lower.tolist(), model.upper.tolist(), model.integer.tolist()
    m.x = pyo.Var(
        range(len(whole)),
        domain=lambda _, j: pyo.Integers if whole[j] else pyo.Reals,
        bounds=lambda _, j: (lower[j], upper[j]),
    )
    x = [m.x[j] for j in range(len(whole))]
    table = csr_array(model.matrix)
    first, column, value = table.indptr.tolist(), table.indices.tolist(), table.data.tolist()
    row_lower, row_upper = model.row_lower.tolist(), model.row_upper.tolist()

    def row(_: Any, i: int) -> Any:
        entries = slice(first[i], first[i + 1])
        if not column[entries] or (row_lower[i], row_upper[i]) == (-np.inf, np.inf):
            return pyo.Constraint.Skip
        body = LinearExpression(linear_coefs=value[entries], linear_vars=[x[j] for j in column[entries]])
        if row_lower[i] == row_upper[i]:
            return body == row_lower[i]
        return (row_lower[i], body, row_upper[i])

    m.row = pyo.Constraint(range(table.shape[0]), rule=row)
    cost = model.cost.tolist()
    m.cost = pyo.Objective(expr=LinearExpression(constant=model.offset, linear_coefs=cost, linear_vars=x))
    return m
