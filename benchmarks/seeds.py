"""Solvers over many seeds of each family, never one seed: geometric means and the worst.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/seeds.py [--seeds A B] [--runs FILE] [--write]

Every run has a process of its own, with one thread; what takes less than a second is repeated, and the least
counts. Points and bounds are verified. ``--runs`` keeps the figures of all runs in a file; those that it has
are not run again. ``--write`` puts the tables into docs/tables.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from peers import TOLERANCE, missing, repeated, timed
from seed_cases import CASES, QUICK, Case
from seed_page import content
from tables import machine, write

from wattsched.formulations.program import Program
from wattsched.solvers.solution import Limits, relative_gap

GAP = 1e-4
GAPS = (1e-3, GAP, 1e-6)
"""Asked of `price`; all others are asked for the one in the middle."""
RIVALS = ("highs", "cpsat", "scip", "auto")
KILL_AFTER = 1.5
"""Times the limit, and ten seconds: building a model is under no solver's limit."""
KEY = ("case", "seed", "solver", "gap_asked", "limit_s")
LIBRARIES = ("scipy.sparse.linalg", "highspy", "ortools.sat.python.cp_model", "pyscipopt")

Run = dict[str, Any]


@dataclass(frozen=True)
class Seeds:
    """Which runs there are to be, and what each may take."""

    cases: tuple[Case, ...]
    seeds: range
    limit_s: float
    file: Path | None = None

    def runs(self) -> list[Run]:
        """All runs, those that the file has taken from there."""
        asked = [("price", gap) for gap in GAPS]
        for rival in RIVALS:
            if why := missing(rival):
                say(f"{rival}: left out, {why}")
            else:
                asked.append((rival, GAP))
        known, runs = self._known(), []
        for case in self.cases:
            for seed in self.seeds:
                keys = [(case.name, seed, solver, gap, self.limit_s) for solver, gap in asked]
                if any(key not in known for key in keys):
                    program = case.program(seed)
                runs += [known[key] if key in known else self._run(program, key) for key in keys]
        return runs

    def _known(self) -> dict[tuple[Any, ...], Run]:
        if self.file is None or not self.file.exists():
            return {}
        runs = [json.loads(line) for line in self.file.read_text(encoding="utf-8").splitlines()]
        return {tuple(run[part] for part in KEY): run for run in runs}

    def _run(self, program: Program, key: tuple[Any, ...]) -> Run:
        named = dict(zip(KEY, key, strict=True))
        found = apart(program, named["solver"], Limits(gap=named["gap_asked"], time_s=self.limit_s))
        run = {**named, "columns": program.n_columns, "rows": program.n_rows, **found}
        say(json.dumps(run))
        if self.file is not None:
            with self.file.open("a", encoding="utf-8") as file:
                file.write(json.dumps(run) + "\n")
        return run


def apart(program: Program, solver: str, limits: Limits) -> Run:
    """Run a solver in a process of its own, which is ended long after the limit."""
    assert limits.time_s is not None
    context = multiprocessing.get_context("fork")  # the program is there, and so are the libraries
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_tell, args=(theirs, program, solver, limits))
    process.start()
    theirs.close()
    seconds = {"cpu_s": limits.time_s, "wall_s": limits.time_s}
    run: Run = {"ended": "killed", **seconds, "objective": None, "bound": None}
    try:
        if ours.poll(KILL_AFTER * limits.time_s + 10):
            run = ours.recv()
    except EOFError:
        run["ended"] = "error"
    process.kill()
    process.join()
    return run


def _tell(connection: Connection, program: Program, solver: str, limits: Limits) -> None:
    runs = repeated(lambda: solved(program, solver, limits), lambda run: float(run["wall_s"]))
    least = {key: min(run[key] for run in runs) for key in ("cpu_s", "wall_s")}
    connection.send({**runs[0], **least})


def solved(program: Program, solver: str, limits: Limits) -> Run:
    """Run a solver, and verify its point."""
    begin_s = cpu_s()
    solution, wall_s = timed(solver, program, limits)
    spent_s = cpu_s() - begin_s
    ended = solution.termination
    faults = []
    if solution.x is not None and solution.objective is not None:
        if (violation := program.violation(solution.x)) > TOLERANCE:
            faults.append(f"the point violates the program by {violation:g}")
        if abs(program.objective(solution.x) - solution.objective) > 1e-9 * max(1.0, abs(solution.objective)):
            faults.append("the point has another objective than stated")
    return {
        "ended": ended.reason,
        "detail": ended.detail,
        "cpu_s": spent_s,
        "wall_s": wall_s,
        "objective": solution.objective,
        "bound": solution.bound if np.isfinite(solution.bound) else None,
        "faults": faults,
    }


def cpu_s() -> float:
    """Processor seconds of this process and of those that it started and that have ended."""
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)


def faults(runs: list[Run]) -> list[str]:
    """What is wrong with the answers: points, bounds above somebody's point, gaps that were not reached."""
    found = []
    least: dict[tuple[str, int], float] = {}
    for run in runs:
        if run["objective"] is not None:
            key = run["case"], run["seed"]
            least[key] = min(least.get(key, np.inf), run["objective"])
    for run in runs:
        name = f"{run['case']}, seed {run['seed']}, {run['solver']} at {run['gap_asked']:g}"
        best = least.get((run["case"], run["seed"]), np.inf)
        found += [f"{name}: {fault}" for fault in _faults_of(run, best)]
    return found


def _faults_of(run: Run, best: float) -> list[str]:
    """Faults of a run of a program with a point of cost `best`."""
    found: list[str] = run.get("faults", [])
    if run["ended"] == "error":
        found = [*found, run.get("detail") or "the process ended by itself"]
    bound = run["bound"]
    if bound is not None and bound > best + TOLERANCE * max(1.0, abs(best)):
        found = [*found, f"a bound of {bound:.9g} above a point of {best:.9g}"]
    if run["ended"] == "infeasible" and best < np.inf:
        found = [*found, f"called infeasible, but there is a point of {best:.9g}"]
    # Differences that are rounding count as closed, and so they do for the solvers.
    if run["ended"] == "optimal" and relative_gap(run["objective"], bound) > run["gap_asked"] + 1e-9:
        found = [*found, "called optimal above the gap asked for"]
    return found


def say(text: str) -> None:
    """Tell on standard error how far it is."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, nargs=2, default=(201, 220), metavar=("FIRST", "LAST"))
    parser.add_argument("--limit", type=float, default=10.0, metavar="S", help="seconds for each run")
    parser.add_argument("--case", action="append", help="only cases whose name contains this; repeatable")
    parser.add_argument("--runs", type=Path, metavar="FILE", help="keep the figures of all runs here")
    parser.add_argument("--quick", action="store_true", help="small cases, for the tests")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tables")
    arguments = parser.parse_args()
    cases = tuple(
        case
        for case in (QUICK if arguments.quick else CASES)
        if not arguments.case or any(part in case.name for part in arguments.case)
    )
    first, last = arguments.seeds
    if arguments.write and (arguments.case or arguments.quick):
        parser.error("--write needs all cases")
    if last < first or not cases:
        parser.error("there is nothing to run")
    for library in LIBRARIES:
        if find_spec(library.partition(".")[0]):
            import_module(library)
    load = os.getloadavg()[0]
    runs = Seeds(cases, range(first, last + 1), arguments.limit, arguments.runs).runs()
    text = (
        f"{content(runs, GAPS)}\n\nSeeds {first} to {last}, limit {arguments.limit:g} s a run, one thread. "
        f"Measured on {machine()} (load {load:.1f} when it began)."
    )
    print(text)
    if wrong := faults(runs):
        raise SystemExit("\n".join(wrong))
    if arguments.write:
        write("seeds", text)


if __name__ == "__main__":
    main()
