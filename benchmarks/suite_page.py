"""The suite's results as tables and a plot."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from suite_cases import LARGEST_S, MEMBERS, SMALL
from tables import table

from wattsched.comparisons.statistics import shifted_geometric_mean
from wattsched.plot import performance_profile, save

Results = dict[str, Any]
RUN_HEADER = (
    "solver", "objective", "bound", "gap", "gap to the best bound", "solve, s", "times `price`", "peak, MiB",
    "ended",
)  # fmt: skip
UNCERTIFIED = ("pop:4", "pop:16", "lp")
"""No decision with a bound is to be expected of them, so they are in no profile."""


def content(results: Results) -> str:
    """All tables as Markdown."""
    parts = [_programs(results)]
    parts += [f"## {case['name']}\n\n{_runs(case)}" for case in results["cases"] if case["runs"]]
    parts += [part(results) for part in (_means, _auto, _growth, _small, _command, _about)]
    return "\n\n".join(part for part in parts if part)


def _programs(results: Results) -> str:
    header = (
        "round", "GPUs", "options", "columns", "rows", "nonzeros", "expand, s", "build, s", "peak, MiB",
    )  # fmt: skip
    rows = [
        (
            case["name"],
            *(f"{case[key]:,}" for key in ("gpus", "options", "columns", "rows", "nonzeros")),
            f"{case['expand_s']:.2f}",
            f"{case['build_s']:.2f}",
            f"{case['peak_mib']:,.0f}",
        )
        for case in results["cases"]
        if "columns" in case
    ]
    return f"## The programs\n\n{table(header, rows)}"


def _runs(case: Results) -> str:
    return table(RUN_HEADER, [_run(run) for run in case["runs"]])


def _run(run: Results) -> tuple[str, ...]:
    return (
        label(run),
        _number(run.get("objective")),
        _number(run.get("bound")),
        _gap(run.get("gap")),
        _gap(run.get("true_gap")),
        "-" if run.get("solve_s") is None else f"{run['solve_s']:.2f}",
        _ratio(run),
        "-" if run.get("peak_mib") is None else f"{run['peak_mib']:,.0f}",
        _ended(run),
    )


def _ratio(run: Results) -> str:
    """Multiple of the time of `price`; only a lower bound on it where time ran out."""
    if run.get("ratio") is None:
        return "-"
    return f"{'> ' if run.get('limit') == 'time' else ''}{run['ratio']:.3g}"


def label(run: Results) -> str:
    """Solver, with the gap that was asked of it where it is not the common one."""
    return f"`{run['solver']}`" + (f", gap {run['gap_asked']:g}" if run["gap_asked"] != 1e-4 else "")


def _ended(run: Results) -> str:
    if run["solver"] == "lp" and run.get("bound") is not None:
        return "bound only" + (f", {run['limit']}" if run.get("limit") else "")
    words = run["status"].replace("_", " ")
    if run.get("limit"):
        words += f", {run['limit']}"
    if run["status"] in ("error", "killed", "no_solution") and run.get("detail"):
        words += f": {run['detail']}"
    elif str(run.get("detail", "")).startswith("with "):
        words += f", {run['detail']}"
    return words


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _gap(value: float | None) -> str:
    return "-" if value is None else "0" if value < 1e-12 else f"{value:.1e}"


def solve_times(results: Results) -> dict[str, dict[str, float]]:
    """Solve seconds by solver and case, infinite where the gap was not reached in time.

    Only the cases that every solver of the first case was tried on.
    """
    cases = [case for case in results["cases"] if case["runs"]]
    if not cases:
        return {}
    everybody = {run["solver"] for run in cases[0]["runs"]}
    found: dict[str, dict[str, float]] = {}
    for case in cases:
        runs = {run["solver"]: run for run in case["runs"] if run["gap_asked"] == results["gap"]}
        if not everybody <= set(runs):
            continue
        for solver, run in runs.items():
            if solver not in UNCERTIFIED:
                closed = run["status"] == "optimal"
                found.setdefault(solver, {})[case["name"]] = run["solve_s"] if closed else np.inf
    return found


def _auto(results: Results) -> str:
    """How much slower `auto` is than the best of the solvers that it chooses from."""
    ratios = {}
    for case in results["cases"]:
        runs = {run["solver"]: run for run in case["runs"] if run["gap_asked"] == results["gap"]}
        members = [runs[name] for name in MEMBERS if name in runs]
        reached = [run["solve_s"] for run in members if run["status"] == "optimal"]
        if "auto" in runs and reached:
            ratios[case["name"]] = runs["auto"]["solve_s"] / min(reached)
    if not ratios:
        return ""
    worst = max(ratios, key=ratios.__getitem__)
    return (
        f"`auto` takes {ratios[worst]:.2f} times the seconds of the best of its members at most ({worst}), "
        f"{shifted_geometric_mean(ratios.values(), 0.0):.2f} times in the geometric mean."
    )


def _means(results: Results) -> str:
    times = solve_times(results)
    limit = results["limit_s"]
    rows = [
        (
            f"`{solver}`",
            f"{sum(np.isfinite(t) for t in by_case.values())} of {len(by_case)}",
            f"{shifted_geometric_mean(t if np.isfinite(t) else limit for t in by_case.values()):.2f}",
        )
        for solver, by_case in times.items()
    ]
    if not rows:
        return ""
    header = ("solver", "solved to the gap", "shifted geometric mean, s")
    about = (
        f"Over the cases that every solver was tried on; shift 1 s, {limit:g} s for a run that did not reach "
        "the gap, heuristics included.\n\n![performance profile](suite.svg)"
    )
    return f"## Means and profile\n\n{table(header, rows)}\n\n{about}"


def growth(results: Results) -> tuple[list[tuple[int, float]], float] | None:
    """Jobs and seconds of `price` on the uniform rounds from 1,000 jobs, and their slope on log scales."""
    points = [
        (case["jobs"], run["solve_s"])
        for case in results["cases"]
        if case["name"].startswith("uniform") and case["jobs"] >= 1_000
        for run in case["runs"]
        if run["solver"] == "price"
        and run["gap_asked"] == results["gap"]
        and run.get("objective") is not None
    ]
    if len(points) < 2:
        return None
    jobs, seconds = np.log(np.array(points, dtype=float)).T
    return points, float(np.polyfit(jobs, seconds, 1)[0])


def _growth(results: Results) -> str:
    found = growth(results)
    if found is None:
        return ""
    points, slope = found
    listed = ", ".join(f"{seconds:.2f} s at {jobs:,}" for jobs, seconds in points)
    return (
        "## Growth\n\n"
        f"`price` on uniform rounds, to the common gap, seconds over jobs: {listed}. "
        f"Slope on logarithmic scales, fitted through these {len(points)} points: **{slope:.2f}**."
    )


def _small(results: Results) -> str:
    rows = [
        (f"`{r['solver']}`", f"{1e3 * r['median_s']:.1f}", f"{1e3 * r['least_s']:.1f}", _gap(r["gap"]))
        for r in results["small"]
        if "median_s" in r
    ]
    if not rows:
        return ""
    header = ("solver", "median, ms", "least, ms", "gap")
    about = (
        f"`sia-like`, {SMALL['jobs']} jobs on {SMALL['gpus']} GPUs: whole calls of `wattsched.solve` without "
        f"a time limit, {results['small'][0].get('repetitions')} each."
    )
    return f"## A small round, solved whole\n\n{about}\n\n{table(header, rows)}"


def _command(results: Results) -> str:
    run = results["command"]
    if not run:
        return ""
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in run["time_s"].items())
    ended = run["termination"]
    return (
        "## A whole command\n\n"
        f"`wattsched solve --solver price` on a file of {run['file_mib']:.0f} MiB with {run['jobs']:,} jobs "
        f"({run['size']['options']:,} options, {run['size']['columns']:,} columns after dominance): "
        f"**{run['wall_s']:.1f} s**, {ended['reason']}"
        + (f" ({ended['limit']} limit)" if ended["limit"] else "")
        + f", gap {_gap(run['gap'])}, peak {run['peak_mib'] / 1024:.1f} GiB in all its processes. "
        f"Seconds inside: {phases}; the rest is reading, validating and writing."
    )


def _about(results: Results) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in results["versions"].items())
    return (
        f"Measured on {results['machine']} (load {results['load_before']:.1f} when it began); "
        f"{results['threads']} thread, seed {results['seed']}. Limit {results['limit_s']:g} s a run; "
        f"at least {LARGEST_S:g} s for rounds that only `price` and `greedy` take on, and for the whole "
        f"command. {versions}."
    )


def plot(results: Results, path: Path) -> None:
    """Write the performance profile, if matplotlib is installed."""
    if find_spec("matplotlib") is None:
        print("no plot: matplotlib is not installed")
        return
    times = {solver: t for solver, t in solve_times(results).items() if np.isfinite(list(t.values())).any()}
    if times:
        save(performance_profile(times, time_limit_s=results["limit_s"], gap=results["gap"]), path)
