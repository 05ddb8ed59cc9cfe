"""All solvers and their peers on the same programs.

    python -m benchmarks.suite --write [--limit 60] [--runs FILE]

FILE keeps the runs; those that it has are not run again. Peers that are not installed are left out with a
message.
"""

from __future__ import annotations

import os
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.harness import FOLDER, Asked, machine, run, say, sections, table
from benchmarks.solver_runs import GAP, Case, Run, faults_of, generated, run_all, shown_gap
from wattsched.comparisons.statistics import shifted_geometric_mean
from wattsched.plot import performance_profile, save

SEED = 1
LARGEST_S = 60.0
"""Least limit of the rounds that only our own solvers take on."""
FAST = ("price", "greedy")
LARGE = ("price", "auto", "greedy", "powerflow", "highs", "pop:16", "lp")
MANY = ("price", "auto", "greedy", "powerflow", "highs", "cpsat", "pyomo:highs", "linopy", "scip",
        "pop:4", "pop:16", "lp")  # fmt: skip
UNCERTIFIED = ("pop:4", "pop:16", "lp")
"""No decision with a bound is to be expected of them, so they are in no profile."""
LIBRARIES = ("highspy", "ortools", "pyomo", "linopy", "pyscipopt", "numpy", "scipy")
LABELS = {"racks": "{} racks", "energy_fraction": "energy at {:.0%}"}
HEADER = ("solver", "objective", "bound", "gap", "gap to the best bound", "solve, s", "times `price`",
          "peak, MiB", "ended")  # fmt: skip


def case(
    family: str, jobs: int, solvers: tuple[str, ...] = MANY, own_gap: float | None = None, **options: Any
) -> Case:
    """A generated round, its solvers, and a gap that `price` is asked for besides the common one."""
    name = f"{family}, {jobs:,} jobs"
    name += "".join(f", {LABELS[option].format(value)}" for option, value in options.items())
    asked = [(solver, GAP) for solver in solvers]
    if own_gap is not None:
        asked.insert(1, ("price", own_gap))
    return Case(name, generated(family, jobs, **options), asked, LARGEST_S if solvers == FAST else 0.0)


CASES = (
    case("uniform", 200, own_gap=1e-6),
    case("philly-like", 300),
    case("sia-like", 500),
    case("hetero", 60),
    case("uniform", 1_000, own_gap=1e-6),
    case("uniform", 5_000, own_gap=1e-6),
    case("uniform", 20_000, LARGE, own_gap=1e-6),
    case("sia-like", 4_000),
    case("hetero", 1_000, LARGE, own_gap=1e-3, racks=32),
    case("hetero", 1_000, FAST, own_gap=1e-3, racks=32, energy_fraction=0.4),
    case("hetero", 1_000, FAST, own_gap=1e-3, racks=32, energy_fraction=0.8),
    case("hetero", 5_000, FAST, own_gap=1e-3, racks=16, energy_fraction=0.4),
    case("uniform", 100_000, FAST, own_gap=1e-5),
)
QUICK = (
    case("uniform", 20, ("price", "greedy", "highs", "pop:4", "lp", "nonsense"), own_gap=1e-6),
    case("sia-like", 12, ("price", "highs", "pop:4", "lp")),
)


def by_case(runs: list[Run]) -> dict[str, list[Run]]:
    """Runs of each case."""
    return {
        name: [one for one in runs if one["case"] == name] for name in dict.fromkeys(r["case"] for r in runs)
    }


def content(runs: list[Run], limit_s: float) -> str:
    """All tables."""
    cases = by_case(runs)
    parts = {"The programs": _programs(cases)}
    parts |= {name: table(HEADER, _rows(some)) for name, some in cases.items()}
    parts["Means and profile"] = _means(cases, limit_s)
    return sections(parts)


def _programs(cases: dict[str, list[Run]]) -> str:
    rows = [
        (
            name,
            *(f"{some[0][size]:,}" for size in ("columns", "rows", "nonzeros")),
            f"{some[0]['build_s']:.2f}",
        )
        for name, some in cases.items()
    ]
    return table(("round", "columns", "rows", "nonzeros", "expand and build, s"), rows)


def _rows(runs: list[Run]) -> list[list[str]]:
    frame = pd.DataFrame(runs)
    objective, bound = frame["objective"].astype(float), frame["bound"].astype(float)
    best = bound.min() if frame["sense"].iloc[0] == "max" else bound.max()
    scale = objective.abs().clip(lower=1e-9)
    gap, true_gap = (objective - bound).abs() / scale, (objective - best).abs() / scale
    ours_s = frame["wall_s"][(frame["solver"] == "price") & (frame["gap_asked"] == GAP)].iloc[0]
    rows = []
    for number, one in enumerate(runs):
        ratio = f"{'> ' if one.get('limit') == 'time' else ''}{one['wall_s'] / ours_s:.3g}"
        values = ["-" if value is None else f"{value:,.2f}" for value in (one["objective"], one["bound"])]
        gaps = [shown_gap(float(of[number])) for of in (gap, true_gap)]
        peak = "-" if "peak_mib" not in one else f"{one['peak_mib']:,.0f}"
        rows.append([_label(one), *values, *gaps, f"{one['wall_s']:.2f}", ratio, peak, _ended(one)])
    return rows


def _label(one: Run) -> str:
    """Solver, with the gap that was asked of it where it is not the common one."""
    return f"`{one['solver']}`" + (f", gap {one['gap_asked']:g}" if one["gap_asked"] != GAP else "")


def _ended(one: Run) -> str:
    bound_only = one["solver"] == "lp" and one["bound"] is not None
    words = "bound only" if bound_only else one["ended"].replace("_", " ")
    if one.get("limit"):
        words += f", {one['limit']}"
    detail = one.get("detail") or ""
    if one["ended"] in ("error", "no_solution") and detail and not bound_only:
        return f"{words}: {detail}"
    return f"{words}, {detail}" if detail.startswith("with ") else words


def solve_times(cases: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """Solve seconds by solver and case, infinite where the gap was not reached in time.

    Only the cases that every solver of the first case was tried on.
    """
    at_gap = {
        name: {one["solver"]: one for one in some if one["gap_asked"] == GAP} for name, some in cases.items()
    }
    everybody = set(next(iter(at_gap.values())))
    times: dict[str, dict[str, float]] = {}
    for name, by_solver in at_gap.items():
        if everybody <= set(by_solver):
            for solver in by_solver.keys() - set(UNCERTIFIED):
                one = by_solver[solver]
                times.setdefault(solver, {})[name] = one["wall_s"] if one["ended"] == "optimal" else np.inf
    return times


def _means(cases: dict[str, list[Run]], limit_s: float) -> str:
    times = solve_times(cases)
    rows = []
    for solver in (name for name in MANY if name in times):
        seconds = np.array(list(times[solver].values()))
        closed = np.isfinite(seconds)
        mean_s = shifted_geometric_mean(np.where(closed, seconds, limit_s))
        rows.append((f"`{solver}`", f"{closed.sum()} of {len(seconds)}", f"{mean_s:.2f}"))
    about = (
        f"Over the cases that every solver was tried on; shift 1 s, {limit_s:g} s for a run that did not "
        "reach the gap, heuristics included.\n\n![performance profile](suite.svg)"
    )
    means = table(("solver", "solved to the gap", "shifted geometric mean, s"), rows)
    return f"{means}\n\n{about}"


def draw(runs: list[Run], limit_s: float) -> None:
    """Write the performance profile, if matplotlib is installed."""
    if find_spec("matplotlib") is None:
        say("no plot: matplotlib is not installed")
        return
    times = {
        solver: of
        for solver, of in solve_times(by_case(runs)).items()
        if np.isfinite(list(of.values())).any()
    }
    save(performance_profile(times, time_limit_s=limit_s, gap=GAP), FOLDER / "suite.svg")


def suite(asked: Asked) -> str:
    """Run everything."""
    load = os.getloadavg()[0]
    runs = run_all(QUICK if asked.quick else CASES, [SEED], asked.limit, asked.runs)
    if wrong := faults_of(runs):
        raise SystemExit("\n".join(wrong))
    versions = ", ".join(f"{library} {version(library)}" for library in LIBRARIES if find_spec(library))
    if asked.write:
        draw(runs, asked.limit)
    return (
        f"{content(runs, asked.limit)}\n\nMeasured on {machine()} (load {load:.1f} when it began); 1 thread, "
        f"seed {SEED}. Limit {asked.limit:g} s a run; at least {LARGEST_S:g} s for rounds that only `price` "
        f"and `greedy` take on. {versions}."
    )


TABLES = {"suite": suite}

if __name__ == "__main__":
    run(__doc__, TABLES, limit=60.0, runs="")
