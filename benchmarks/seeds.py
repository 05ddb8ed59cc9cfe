"""Solvers over many seeds of each family, never one seed: geometric means and the worst.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.seeds --write [--runs FILE]

FILE keeps the figures of all runs; those that it has are not run again. Seeds begin at 201, on which nothing
was chosen.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import Asked, machine, mean_and_worst, run, sections, table
from benchmarks.solver_runs import (
    GAP,
    MEMBERS,
    Case,
    Run,
    faults_of,
    generated,
    program_of,
    run_all,
    shown_gap,
)
from wattsched.comparisons.statistics import shifted_geometric_mean
from wattsched.formulations.program import Block, Program, ProgramBuilder
from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import FloatArray

FIRST = 201
GAPS = (1e-3, GAP, 1e-6)
"""Asked of `price`; all others are asked for the one in the middle."""
ASKED = (*(("price", gap) for gap in GAPS), *((rival, GAP) for rival in ("highs", "cpsat", "scip", "auto")))

Cases = Sequence[tuple[str, pd.DataFrame]]

# -- the programs ----------------------------------------------------------------------------------------


def correlated(seed: int, jobs: int, rows: int, constant: int = 100) -> Program:
    """Strongly correlated knapsacks: a job is worth its mean use of the rows, and a constant.

    Uses are whole numbers, room is half of what all jobs use (Martello and Toth 1990, section 2.10).
    """
    use = np.random.default_rng(seed).integers(1, 1_001, (rows, jobs)).astype(float)
    builder = ProgramBuilder()
    columns = builder.columns(Block("job", 2 * jobs), cost=_wait_or_run(-(use.mean(axis=0) + constant)))
    for row in range(rows):
        builder.row(f"room{row}", columns, _wait_or_run(use[row]), upper=float(use[row].sum() // 2))
    return builder.program(np.arange(0, 2 * jobs + 1, 2))


def _wait_or_run(values: FloatArray) -> FloatArray:
    return np.stack([np.zeros_like(values), values], axis=1).ravel()


GPU_COUNTS = (1, 2, 4, 8)
IDLE_W, FULL_W = 30.0, 300.0


def pairs(seed: int, jobs: int, nodes: int = 5) -> Program:
    """Rounds of `sizing` in which any two jobs may share a GPU: 7,140 sets of 120 jobs.

    Two jobs on a GPU are slower by what their loads together exceed it, and a little more.
    """
    rng = np.random.default_rng(seed)
    rate, load = rng.lognormal(0.0, 0.5, jobs), rng.uniform(0.2, 0.9, jobs)
    scaling, work = rng.uniform(0.7, 1.0, jobs), rng.lognormal(8.0, 1.0, jobs)
    tables = {
        f"job{j}": {
            "gpus": list(GPU_COUNTS),
            "pool": ["v100"] * len(GPU_COUNTS),
            "rate": [rate[j] * g ** scaling[j] for g in GPU_COUNTS],
            "power_w": [g * _watts(load[j]) for g in GPU_COUNTS],
        }
        for j in range(jobs)
    }
    sets = []
    for one, other in combinations(range(jobs), 2):
        together = load[one] + load[other]
        slowdown = max(1.0, together) * rng.uniform(1.0, 1.15)
        rates = {f"job{j}": rate[j] / slowdown for j in (one, other)}
        shared = {"pool": "v100", "gpus": 1, "power_w": _watts(together), "rates": rates}
        sets.append({"name": f"set{one}-{other}", **shared})
    cluster = {
        "gpu_types": {"v100": {"idle_power_w": IDLE_W, "max_power_w": FULL_W}},
        "nodes": [{"name": f"n{n}", "gpu_type": "v100", "gpus": 8} for n in range(nodes)],
    }
    document = {
        "objective": "goodput",
        "round_s": 3600.0,
        "cluster": cluster,
        "budgets": {"power_w": 8 * nodes * _watts(0.5)},
        "tables": tables,
        "jobs": [{"name": n, "options": n, "remaining_work": w} for n, w in zip(tables, work, strict=True)],
        "sets": sets,
    }
    return program_of(Instance.model_validate(document))


def _watts(load: float) -> float:
    return float(IDLE_W + (FULL_W - IDLE_W) * min(1.0, load))


def drawn(build: Callable[..., Program], **sizes: Any) -> Callable[[int], Callable[[], Program]]:
    """Programs that a function builds from a seed."""
    return lambda seed: partial(build, seed, **sizes)


CAPS = {"racks": 32, "power_fraction": 0.4, "rack_power_fraction": 0.4}
FAMILIES = {
    "uniform, 1,000 jobs": generated("uniform", 1_000),
    "philly-like, 300 jobs": generated("philly-like", 300),
    "sia-like, 500 jobs": generated("sia-like", 500),
    "hetero, 200 jobs, 32 racks, caps at .4": generated("hetero", 200, **CAPS),
    "correlated, 1,500 jobs, 1 row": drawn(correlated, jobs=1_500, rows=1),
    "correlated, 1,500 jobs, 2 rows": drawn(correlated, jobs=1_500, rows=2),
    "7,140 pairs of 120 jobs": drawn(pairs, jobs=120),
    "uniform, 40 jobs, `assignment`": generated("uniform", 40, "assignment"),
    "sia-like, 40 jobs, `assignment`": generated("sia-like", 40, "assignment"),
    "placement, 12 tasks, `assignment`": generated("placement", 12, "assignment"),
}
QUICK = {
    "uniform, 30 jobs": generated("uniform", 30),
    "correlated, 600 jobs": drawn(correlated, jobs=600, rows=1, constant=10),
    "uniform, 6 jobs, `assignment`": generated("uniform", 6, "assignment"),
}

# -- the tables ------------------------------------------------------------------------------------------


def content(runs: list[Run]) -> str:
    """All tables. A run that did not reach its gap counts with the limit."""
    frame = pd.DataFrame(runs)
    objective, bound = frame["objective"].astype(float), frame["bound"].astype(float)
    gap = ((objective - bound).abs() / objective.abs().clip(lower=1e-9)).fillna(np.inf)
    reached = frame["ended"].isin(["optimal", "infeasible"])
    seconds = {name: frame[name].where(reached, frame["limit_s"]) for name in ("cpu_s", "wall_s")}
    frame = frame.assign(gap=gap, reached=reached, **seconds)
    cases = [(str(name), part) for name, part in frame.groupby("case", sort=False)]
    notes = (
        "Means are geometric. A run that did not reach its gap counts with the limit; *cut* is how many did "
        "so. Where only HiGHS was cut, the ratio is a lower bound; where `price` was, it is an upper bound."
    )
    parts = {
        "The programs": _programs(cases),
        "`price` against HiGHS, CPU seconds": _against_highs(cases),
        f"All solvers at {GAP:g}": _solvers(cases),
        f"`auto` over the best of its members, wall seconds at {GAP:g}": _auto(cases),
        "Gaps: CPU seconds of `price`": _gaps(cases),
    }
    return f"{sections(parts)}\n\n{notes}"


def _mean(values: pd.Series[float]) -> float:
    return shifted_geometric_mean(values, 0.0)


def _of(case: pd.DataFrame, solver: str, gap: float, figure: str) -> pd.Series[float]:
    """A figure of the runs of a solver, by seed."""
    return case[(case["solver"] == solver) & (case["gap_asked"] == gap)].set_index("seed")[figure]


def _cut(case: pd.DataFrame, solver: str, gap: float) -> str:
    return f"{int((~_of(case, solver, gap, 'reached')).sum())}"


def _programs(cases: Cases) -> str:
    rows = [(name, *(f"{case[size].mean():,.0f}" for size in ("columns", "rows"))) for name, case in cases]
    return table(["case", "columns", "rows"], rows)


def _against_highs(cases: Cases) -> str:
    header = ["case", "gap of `price`", "CPU s, mean", "cut", f"HiGHS at {GAP:g}", "HiGHS cut",
              "times faster", "worst", "seed"]  # fmt: skip
    rows = []
    for name, case in cases:
        highs = _of(case, "highs", GAP, "cpu_s")
        for asked in GAPS[1:]:
            ours = _of(case, "price", asked, "cpu_s")
            ratio = highs / ours
            cells = [name, f"{asked:g}", f"{_mean(ours):.3f}", _cut(case, "price", asked)]
            cells += [f"{_mean(highs):.3f}", _cut(case, "highs", GAP), f"{_mean(ratio):.3g}"]
            rows.append([*cells, f"{ratio.min():.3g}", str(ratio.idxmin())])
    return table(header, rows)


def _solvers(cases: Cases) -> str:
    header = ["case", "solver", "CPU s, mean", "worst", "wall s, mean", "cut", "gap, median", "worst"]
    rows = []
    for name, case in cases:
        for solver, runs in case[case["gap_asked"] == GAP].groupby("solver", sort=False):
            seconds = (*mean_and_worst(runs["cpu_s"], 3), f"{_mean(runs['wall_s']):.3f}")
            gaps = (shown_gap(runs["gap"].median()), shown_gap(runs["gap"].max()))
            rows.append([name, f"`{solver}`", *seconds, _cut(case, str(solver), GAP), *gaps])
    return table(header, rows)


def _auto(cases: Cases) -> str:
    header = ["case", "ratio", "worst", "seed", "best there", "`auto`, s", "best, s"]
    rows = []
    for name, case in cases:
        auto = _of(case, "auto", GAP, "wall_s")
        members = pd.DataFrame({member: _of(case, member, GAP, "wall_s") for member in MEMBERS})
        ratio = auto / members.min(axis=1)
        worst, best = ratio.idxmax(), members.loc[ratio.idxmax()]
        cells = [name, *mean_and_worst(ratio), str(worst), f"`{best.idxmin()}`"]
        rows.append([*cells, f"{auto[worst]:.3f}", f"{best.min():.3f}"])
    return table(header, rows)


def _gaps(cases: Cases) -> str:
    header = ["case", *(f"{gap:g}" for gap in GAPS), "coarser over finer, worst", "seed"]
    rows = []
    for name, case in cases:
        seconds = pd.DataFrame({gap: _of(case, "price", gap, "cpu_s") for gap in GAPS})
        ratios = pd.DataFrame({coarse: seconds[coarse] / seconds[fine] for coarse, fine in pairwise(GAPS)})
        ratio = ratios.max(axis=1)
        means = [f"{_mean(seconds[gap]):.3f}" for gap in GAPS]
        rows.append([name, *means, f"{ratio.max():.2f}", str(ratio.idxmax())])
    return table(header, rows)


def seeds(asked: Asked) -> str:
    """Run all solvers on all seeds."""
    families = {name: of for name, of in (QUICK if asked.quick else FAMILIES).items() if asked.case in name}
    load, last = os.getloadavg()[0], FIRST + asked.seeds - 1
    cases = [Case(name, prepared, ASKED) for name, prepared in families.items()]
    runs = run_all(cases, range(FIRST, last + 1), asked.limit, asked.runs)
    if wrong := faults_of(runs):
        raise SystemExit("\n".join(wrong))
    return (
        f"{content(runs)}\n\nSeeds {FIRST} to {last}, limit {asked.limit:g} s a run, one thread. "
        f"Measured on {machine()} (load {load:.1f} when it began)."
    )


TABLES = {"seeds": seeds}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20, limit=10.0, case="", runs="")
