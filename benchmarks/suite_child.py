"""What one process of the suite does: build a program, run one solver, or solve small rounds whole.

python benchmarks/suite_child.py TASK.json ANSWER.json
"""

from __future__ import annotations

import importlib
import json
import pickle
import resource
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

import wattsched


def peak_mib() -> float:
    """Largest resident size of this process so far.

    On Linux from /proc: what getrusage says includes the size of the process that started this one.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def build(task: dict[str, Any]) -> dict[str, Any]:
    """Generate and expand a round, build its program, and keep it in a file."""
    from wattsched.formulations.program import Block
    from wattsched.formulations.sizing.jobs import jobs_of
    from wattsched.formulations.sizing.mckp import written_out

    importlib.import_module("scipy.sparse")  # it is no part of building

    instance = wattsched.generate(task["family"], jobs=task["jobs"], seed=task["seed"], **task["options"])
    begin = time.perf_counter()
    known = jobs_of(instance)
    expanded = time.perf_counter()
    model = written_out(known, instance.objective)
    program = model.listed
    built = time.perf_counter()
    # Names may be functions, which cannot be pickled, and no solver needs them.
    object.__setattr__(program, "rows", (Block("row", program.n_rows),))
    object.__setattr__(program, "columns", (Block("column", program.n_columns),))
    with Path(task["program"]).open("wb") as file:
        pickle.dump(program, file, protocol=5)
    return {
        "jobs": len(instance.jobs),
        "gpus": instance.cluster.total_gpus,
        "options": model.options,
        "columns": program.n_columns,
        "rows": program.n_rows,
        "nonzeros": int(program.matrix.nnz),
        "sense": program.sense,
        "expand_s": expanded - begin,
        "build_s": built - expanded,
        "peak_mib": peak_mib(),
    }


def solve(task: dict[str, Any]) -> dict[str, Any]:
    """Run one solver on a program from a file."""
    from peers import repeated, timed

    from wattsched.solvers.solution import Limits

    with Path(task["program"]).open("rb") as file:
        program = pickle.load(file)
    loaded = peak_mib()
    limits = Limits(gap=task["gap"], time_s=task["limit_s"], threads=task["threads"], seed=task["seed"])
    runs = repeated(lambda: (*timed(task["solver"], program, limits), peak_mib()), lambda run: run[1])
    solution, _, peak = runs[0]

    def stated(value: float | None) -> float | None:
        return None if value is None or not np.isfinite(value) else program.reported(value)

    return {
        "status": solution.termination.reason,
        "limit": solution.termination.limit,
        "detail": solution.termination.detail,
        "objective": stated(solution.objective),
        "bound": stated(solution.bound),
        "solve_s": min(seconds for _, seconds, _ in runs),
        "peak_mib": peak,
        "loaded_mib": loaded,
    }


def whole(task: dict[str, Any]) -> dict[str, Any]:
    """Solve one small round again and again by `wattsched.solve`, in this process."""
    instance = wattsched.generate("sia-like", seed=task["seed"], **task["size"])
    times = []
    result = wattsched.solve(instance, solver=task["solver"], gap=task["gap"])
    for _ in range(task["repetitions"]):
        begin = time.perf_counter()
        result = wattsched.solve(instance, solver=task["solver"], gap=task["gap"])
        times.append(time.perf_counter() - begin)
    return {
        "median_s": median(times),
        "least_s": min(times),
        "repetitions": len(times),
        "objective": result.objective,
        "bound": result.bound,
        "gap": result.gap,
        "peak_mib": peak_mib(),
    }


def main() -> None:
    """Do the task of a file, and write the answer to another."""
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    answer = {"build": build, "solve": solve, "whole": whole}[task["do"]](task)
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
