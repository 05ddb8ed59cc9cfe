"""Run the benchmark suite: every solver on the same programs, each run in a process of its own.

    python benchmarks/suite.py [--limit S] [--write] [--dask [ADDRESS]]

prints the tables; with ``--write`` they go into docs/tables, with a plot, and all figures
into benchmarks/results.json. Peers that are not installed are left out with a message. With
``--dask`` the workers of a cluster, who need this folder under the same name, do a case each.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from peers import missing
from process_memory import peak_mib_of
from suite_cases import (
    CASES,
    GAP,
    LARGEST_S,
    QUICK,
    SEED,
    SMALL,
    SMALL_SOLVERS,
    WHOLE_GAP,
    WHOLE_JOBS,
    Case,
)
from suite_page import content, plot
from tables import FOLDER
from tables import write as write_table

from wattsched.dask_clusters import LOCAL, dask_executor
from wattsched.executors import ClusterError, Executor, SerialExecutor, in_order
from wattsched.solvers.solution import relative_gap

HERE = Path(__file__).resolve().parent
KILL_AFTER = 1.5
"""Times the limit, and a minute: building a model is under no solver's limit."""
PLOT = "suite.svg"
LIBRARIES = ("wattsched", "highspy", "ortools", "pyomo", "linopy", "pyscipopt", "numpy", "scipy")


@dataclass(frozen=True)
class Suite:
    """Where the suite works, and what every run may spend."""

    folder: Path
    limit_s: float
    threads: int

    def child(self, **task: Any) -> dict[str, Any]:
        """Do a task in a process of its own."""
        asked, answer = self.folder / "task.json", self.folder / "answer.json"
        asked.write_text(json.dumps(task), encoding="utf-8")
        answer.unlink(missing_ok=True)
        command = [sys.executable, str(HERE / "suite_child.py"), str(asked), str(answer)]
        patience_s = KILL_AFTER * task.get("limit_s", self.limit_s) + 60
        begin = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)
        except subprocess.TimeoutExpired:
            seconds = time.perf_counter() - begin
            return {"status": "killed", "solve_s": seconds, "detail": f"killed after {seconds:.0f} s"}
        if not answer.exists():
            last = done.stderr.strip().splitlines()[-1:] or [f"ended with {done.returncode}"]
            return {"status": "error", "detail": last[0]}
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found

    def case(self, case: Case) -> dict[str, Any]:
        """Build a program once and run all its solvers on it."""
        program = str(self.folder / "program.pickle")
        built = self.child(
            do="build", family=case.family, jobs=case.jobs, seed=SEED, options=case.options, program=program
        )
        say(f"{case.name}: {built}")
        asked = [(solver, GAP) for solver in case.solvers]
        if case.own_gap is not None:
            asked.insert(1, ("price", case.own_gap))
        runs = []
        for solver, gap in asked:
            if why := missing(solver):
                say(f"  {solver}: left out, {why}")
                continue
            run = self.child(
                do="solve",
                program=program,
                solver=solver,
                gap=gap,
                limit_s=case.limit_s(self.limit_s),
                threads=self.threads,
                seed=SEED,
            )
            runs.append({"solver": solver, "gap_asked": gap, **run})
            say(f"  {solver}: {run}")
        return {"name": case.name, **built, "runs": with_gaps(runs, built.get("sense", "min"))}

    def small(self, repetitions: int) -> list[dict[str, Any]]:
        """Whole solves of a small round."""
        rows = []
        for solver in SMALL_SOLVERS:
            if why := missing(solver):
                say(f"small round, {solver}: left out, {why}")
                continue
            asked = {"do": "whole", "solver": solver, "gap": GAP, "seed": SEED, "size": SMALL}
            rows.append({"solver": solver, **self.child(**asked, repetitions=repetitions)})
            say(f"small round: {rows[-1]}")
        return rows

    def command(self, jobs: int) -> dict[str, Any]:
        """Time a whole `wattsched solve`, from the file to the result, and its memory."""
        if why := missing("price"):
            say(f"whole command: left out, {why}")
            return {}
        file, result = self.folder / "round.json", self.folder / "result.json"
        wattsched = [sys.executable, "-P", "-m", "wattsched"]
        limit_s = max(self.limit_s, LARGEST_S)
        size = ["--jobs", str(jobs), "--seed", str(SEED)]
        subprocess.run([*wattsched, "generate", "uniform", *size, "-o", str(file)], check=True)
        options = ["--solver", "price", "--gap", f"{WHOLE_GAP:g}", "--time-limit", f"{limit_s:g}"]
        begin = time.perf_counter()
        process = subprocess.Popen(
            [*wattsched, "solve", str(file), *options, "--threads", str(self.threads), "-o", str(result)],
            stdout=subprocess.DEVNULL,
        )
        peak = peak_mib_of(process)
        wall_s = time.perf_counter() - begin
        if process.returncode != 0:
            say(f"whole command: ended with {process.returncode}")
            return {}
        answer = json.loads(result.read_text(encoding="utf-8"))
        kept = {key: answer[key] for key in ("objective", "bound", "gap", "termination", "time_s", "size")}
        return {
            "jobs": jobs,
            "wall_s": wall_s,
            "peak_mib": peak,
            "file_mib": file.stat().st_size / 2**20,
            **kept,
        }


def measured(here: str, part: str, value: Any, limit_s: float, threads: int) -> tuple[str, Any]:
    """Do a part of the suite, and say which machine did; with imports of its own, for workers elsewhere."""
    import sys
    from pathlib import Path
    from tempfile import TemporaryDirectory

    if here not in sys.path:
        sys.path.insert(0, here)
    from suite import Suite
    from suite_cases import Case
    from tables import machine

    with TemporaryDirectory() as folder:
        suite = Suite(Path(folder), limit_s, threads)
        return machine(), getattr(suite, part)(Case(**value) if part == "case" else value)


def all_parts(
    executor: Executor, cases: list[Case], limit_s: float, threads: int, quick: bool
) -> dict[str, Any]:
    """Everything that the suite measures, and the machines that did it."""
    parts: list[tuple[str, Any]] = [("case", asdict(case)) for case in cases]
    parts += [("small", 3 if quick else 30), ("command", 50 if quick else WHOLE_JOBS)]
    tasks = ((str(HERE), part, value, limit_s, threads) for part, value in parts)
    machines, found = zip(*in_order(executor.completed(measured, tasks)), strict=True)
    *done, small, command = found
    return {"machine": " and ".join(sorted(set(machines))), "cases": done, "small": small, "command": command}


def with_gaps(runs: list[dict[str, Any]], sense: str) -> list[dict[str, Any]]:
    """Add each run's own gap, the gap to the best bound of all, and its time as a multiple of `price`'s."""
    bounds = [run["bound"] for run in runs if run.get("bound") is not None]
    best = (min(bounds) if sense == "max" else max(bounds)) if bounds else None
    ours = next((r.get("solve_s") for r in runs if r["solver"] == "price" and r["gap_asked"] == GAP), None)
    for run in runs:
        objective, bound = run.get("objective"), run.get("bound")
        run["gap"] = None if objective is None or bound is None else relative_gap(objective, bound)
        run["true_gap"] = None if objective is None or best is None else relative_gap(objective, best)
        seconds = run.get("solve_s")
        run["ratio"] = None if not ours or seconds is None else seconds / ours
    return runs


def versions() -> dict[str, str]:
    """Versions of everything that solves."""
    found = {"python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = version(library)
        except PackageNotFoundError:
            continue
    return found


def say(text: str) -> None:
    """Tell on standard error how far the suite is."""
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--limit", type=float, default=60.0, metavar="S", help="seconds for each run")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="two small cases, for the tests")
    parser.add_argument("--case", action="append", help="only cases whose name contains this; repeatable")
    parser.add_argument("--write", action="store_true", help="write the tables, the plot and results.json")
    parser.add_argument(
        "--again", action="store_true", help="write tables and plot from results.json, run nothing"
    )
    parser.add_argument("--folder", type=Path, help="write results.json and the plot here instead")
    parser.add_argument(
        "--dask",
        nargs="?",
        const=LOCAL,
        metavar="ADDRESS",
        help="of a scheduler, or local[:N]; default: local",
    )
    arguments = parser.parse_args()
    if arguments.again:
        write(json.loads((HERE / "results.json").read_text(encoding="utf-8")))
        return
    cases = [
        case
        for case in (QUICK if arguments.quick else CASES)
        if not arguments.case or any(part in case.name for part in arguments.case)
    ]
    begin = time.perf_counter()
    load_before = os.getloadavg()[0]
    here = nullcontext(SerialExecutor())
    try:
        with here if arguments.dask is None else dask_executor(arguments.dask) as executor:
            found = all_parts(executor, cases, arguments.limit, arguments.threads, arguments.quick)
    except ClusterError as error:
        parser.error(f"--dask: {error}")
    results = {
        "load_before": load_before,
        "versions": versions(),
        "limit_s": arguments.limit,
        "threads": arguments.threads,
        "gap": GAP,
        "seed": SEED,
        **found,
    }
    results["seconds"] = time.perf_counter() - begin
    print(content(results))
    if arguments.write:
        write(results)
    elif arguments.folder is not None:
        save(results, arguments.folder)
        plot(results, arguments.folder / PLOT)


def write(results: dict[str, Any]) -> None:
    """Put the results where the documentation shows them."""
    save(results, HERE)
    write_table("suite", content(results))
    plot(results, FOLDER / PLOT)


def save(results: dict[str, Any], folder: Path) -> None:
    """Write all figures."""
    (folder / "results.json").write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
