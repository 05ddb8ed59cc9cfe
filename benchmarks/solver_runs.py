"""Runs of solvers on programs, each in a process of its own, with one thread; answers are verified."""

from __future__ import annotations

import json
import multiprocessing
import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import wattsched
from benchmarks.harness import say, timed
from benchmarks.peers import TOLERANCE, missing, solver_of
from wattsched.formulations.program import Program
from wattsched.solvers.solution import Limits, relative_gap
from wattsched.solving.engine import model_of

GAP = 1e-4
"""Asked of all solvers: HiGHS's default."""
MEMBERS = ("price", "highs", "cpsat")
"""Solvers that `auto` chooses from."""
KILL_AFTER = 1.5
"""Times the limit, and a minute: building a model is under no solver's limit."""
SHORT_S, REPETITIONS = 1.0, 10
"""A run that is short is repeated for that long, at most so often; the least time counts."""
KEY = ("case", "seed", "solver", "gap_asked", "limit_s")
LIBRARIES = ("scipy.sparse.linalg", "highspy", "ortools.sat.python.cp_model", "pyscipopt")

Run = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A family of programs.

    Attributes
    ----------
    prepared : callable
        From a seed, a function that builds the program.
    asked : sequence of pairs
        Solvers, and the relative gap that is asked of each.
    least_limit_s : float
        Seconds for each run, where the common limit is smaller.
    """

    name: str
    prepared: Callable[[int], Callable[[], Program]]
    asked: Sequence[tuple[str, float]]
    least_limit_s: float = 0.0


def generated(
    family: str, jobs: int, formulation: str = "mckp", **options: Any
) -> Callable[[int], Callable[[], Program]]:
    """Programs of the families that `wattsched generate` knows."""

    def prepared(seed: int) -> Callable[[], Program]:
        return partial(program_of, wattsched.generate(family, jobs=jobs, seed=seed, **options), formulation)

    return prepared


def program_of(instance: Any, formulation: str = "mckp") -> Program:
    """Expand an instance of any problem, and build its program, with every column written out."""
    return model_of(instance, formulation=formulation).listed


def run_all(cases: Iterable[Case], seeds: Iterable[int], limit_s: float, file: str = "") -> list[Run]:
    """Run all solvers on all programs; runs that the file has are taken from there, others are added."""
    for library in LIBRARIES:
        if find_spec(library.partition(".")[0]):
            import_module(library)
    kept = Path(file).read_text(encoding="utf-8").splitlines() if file and Path(file).exists() else []
    known = {tuple(run[part] for part in KEY): run for run in map(json.loads, kept)}
    runs = []
    for case in cases:
        asked = [(solver, gap) for solver, gap in case.asked if _can_run(solver)]
        for seed in seeds:
            limit = max(limit_s, case.least_limit_s)
            keys = [(case.name, seed, solver, gap, limit) for solver, gap in asked]
            if any(key not in known for key in keys):
                program, build_s = timed(case.prepared(seed))
            for key in keys:
                if key not in known:
                    known[key] = {**_run(program, *key), "build_s": build_s}
                    say(known[key])
                    if file:
                        with Path(file).open("a", encoding="utf-8") as out:
                            out.write(json.dumps(known[key]) + "\n")
                runs.append(known[key])
    return runs


def _can_run(solver: str) -> bool:
    if why := missing(solver):
        say(f"{solver}: left out, {why}")
    return not why


def _run(program: Program, case: str, seed: int, solver: str, gap: float, limit_s: float) -> Run:
    """Run a solver in a process of its own, which is killed long after the limit."""
    context = multiprocessing.get_context("fork")  # the program is there, and so are the libraries
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(theirs, program, solver, gap, limit_s))
    process.start()
    theirs.close()
    found: Run = {"ended": "killed", "cpu_s": limit_s, "wall_s": limit_s, "objective": None, "bound": None}
    try:
        if ours.poll(KILL_AFTER * limit_s + 60):
            found = ours.recv()
    except EOFError:
        found["ended"] = "error"
    process.kill()
    process.join()
    sizes = {"columns": program.n_columns, "rows": program.n_rows, "nonzeros": program.nonzeros}
    return dict(zip(KEY, (case, seed, solver, gap, limit_s), strict=True)) | sizes | found


def _send(connection: Connection, program: Program, solver: str, gap: float, limit_s: float) -> None:
    limits = Limits(gap=gap, time_s=limit_s)
    runs = [solved(program, solver, limits)]
    while len(runs) < REPETITIONS and sum(run["wall_s"] for run in runs) < SHORT_S:
        runs.append(solved(program, solver, limits))
    connection.send(runs[0] | {name: min(run[name] for run in runs) for name in ("cpu_s", "wall_s")})


def solved(program: Program, solver: str, limits: Limits) -> Run:
    """Run a solver, and verify its point. Objective and bound are in the direction of the instance's."""
    begin_s = cpu_s()
    solution, wall_s = timed(lambda: solver_of(solver)(program, limits))
    spent_s = cpu_s() - begin_s
    ended, faults = solution.termination, []
    if solution.x is not None and solution.objective is not None:
        if (violation := program.violation(solution.x)) > TOLERANCE:
            faults.append(f"the point violates the program by {violation:g}")
        if abs(program.objective(solution.x) - solution.objective) > 1e-9 * max(1.0, abs(solution.objective)):
            faults.append("the point has another objective than stated")
    bounded = np.isfinite(solution.bound)
    return {
        "ended": ended.reason,
        "limit": ended.limit,
        "detail": ended.detail,
        "cpu_s": spent_s,
        "wall_s": wall_s,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "sense": program.sense,
        "objective": None if solution.objective is None else program.reported(solution.objective),
        "bound": program.reported(float(solution.bound)) if bounded else None,
        "faults": faults,
    }


def cpu_s() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def faults_of(runs: Sequence[Run]) -> list[str]:
    """List the faults of the answers: points, bounds beyond another's point, gaps that were not reached."""
    least: dict[tuple[str, int], float] = {}
    for run in runs:
        if run["objective"] is not None:
            key = run["case"], run["seed"]
            least[key] = min(least.get(key, np.inf), _cost(run, "objective"))
    found = []
    for run in runs:
        name = f"{run['case']}, seed {run['seed']}, {run['solver']} at {run['gap_asked']:g}"
        best = least.get((run["case"], run["seed"]), np.inf)
        found += [f"{name}: {fault}" for fault in _faults(run, best)]
    return found


def _cost(run: Run, field: str) -> float:
    """Objective or bound of a minimisation."""
    value: float = run[field]
    return -value if run.get("sense") == "max" else value


def _faults(run: Run, best: float) -> list[str]:
    """Faults of a run of a program with a point of cost `best`."""
    found: list[str] = list(run.get("faults", []))
    if run["ended"] == "error":
        found.append(run.get("detail") or "the process ended by itself")
    if run["bound"] is not None and _cost(run, "bound") > best + TOLERANCE * max(1.0, abs(best)):
        found.append(f"a bound of {_cost(run, 'bound'):.9g} above a point of {best:.9g}")
    if run["ended"] == "infeasible" and best < np.inf:
        found.append(f"called infeasible, but there is a point of {best:.9g}")
    # Differences that are rounding count as closed, and so they do for the solvers.
    optimal = run["ended"] == "optimal" and run["objective"] is not None
    if optimal and relative_gap(run["objective"], run["bound"]) > run["gap_asked"] + 1e-9:
        found.append("called optimal above the gap asked for")
    return found


def shown_gap(gap: float) -> str:
    """Gap in a table; ``-`` where there is none."""
    return "-" if not np.isfinite(gap) else "0" if gap < 1e-12 else f"{gap:.1e}"
