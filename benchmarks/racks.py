"""Racks with a power cap each: solvers on rounds in which many rows bind.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.racks --write [--seeds 20] [--runs FILE]

Rounds of `hetero` with caps of 40 % of the full draw: 40 jobs on 9 racks, 100 on 16, 200 on 32. There `price`
decides racks as wholes (`solvers.decomposition`). Rivals run on the first five seeds. FILE keeps the figures
of all runs; those that it has are not run again. Seeds begin at 201, on which nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from benchmarks.harness import Asked, machine, run, table
from benchmarks.solver_runs import Case, Run, faults_of, generated, run_all

FIRST, GAP, OF_RIVALS = 201, 1e-4, 5
SITE = {"rack_power_fraction": 0.4}
CASES = (
    ("40 jobs, 9 racks", 30.0, generated("hetero", 40, racks=9, **SITE)),
    ("100 jobs, 16 racks", 10.0, generated("hetero", 100, racks=16, **SITE)),
    ("200 jobs, 32 racks", 10.0, generated("hetero", 200, racks=32, power_fraction=0.4, **SITE)),
)
RIVALS = ("highs", "cpsat", "scip")
HEADER = ("rounds", "limit", "solver", "seeds", "within 1e-4", "gap, mean", "worst", "CPU s, mean")


def racks(asked: Asked) -> str:
    """One row for each case and solver."""
    rows = []
    for name, usual_s, prepared in CASES[:1] if asked.quick else CASES:
        limit_s = 1.0 if asked.quick else usual_s
        for solvers, most in ((("price",), asked.seeds), (RIVALS, min(OF_RIVALS, asked.seeds))):
            case = Case(name, prepared, [(solver, GAP) for solver in solvers], limit_s)
            runs = run_all([case], range(FIRST, FIRST + most), limit_s, asked.runs)
            if wrong := faults_of(runs):
                raise SystemExit("\n".join(wrong))
            for solver in solvers:
                if own := [one for one in runs if one["solver"] == solver]:
                    rows.append([name, f"{limit_s:g} s", f"`{solver}`", str(len(own)), *_figures(own)])
    about = "A round without a decision counts with a gap of 1; the mean is the geometric one."
    return f"{table(HEADER, rows)}\n\n{about} Measured on {machine()}, seeds from {FIRST}."


def _figures(runs: Iterable[Run]) -> list[str]:
    gaps = np.array([_gap(one) for one in runs])
    seconds = np.mean([one["cpu_s"] for one in runs])
    mean = float(np.exp(np.log(np.maximum(gaps, 1e-9)).mean()))
    return [str(int((gaps <= GAP).sum())), f"{mean:.1e}", f"{gaps.max():.1e}", f"{seconds:.1f}"]


def _gap(one: Run) -> float:
    if one["objective"] is None or one["bound"] is None:
        return 1.0
    return abs(one["objective"] - one["bound"]) / max(1e-9, abs(one["objective"]))


TABLES = {"racks": racks}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20, runs="")
