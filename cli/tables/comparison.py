"""A comparison on a page: one table of all runs, means, contradictions, files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from rich.text import Text

from wattsched.comparisons.statistics import SHIFT_S
from wattsched.report.terminal import Cell, heading, line, table
from wattsched.report.wording import LONGEST, count, listed, printable

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.comparisons.compare import Comparison
    from wattsched.comparisons.run import Run

BEST = "bold green"
CLOSE = 1e-9
NO_GAP = 1e-12

OUTCOMES = ("formulation, solver", ">objective", ">bound", ">gap", "ended", ">build s", ">solve s")
SIZES = (">columns", ">rows", ">nonzeros")
GIVES_WAY = ("nonzeros", "rows", "columns", "build s")
"""Left out one after the other where the terminal is too narrow."""


def print_comparison(
    out: Console, comparison: Comparison, folder: str | None, written: Sequence[str]
) -> None:
    """Print a comparison.

    Parameters
    ----------
    folder : str, optional
        Where its files were written.
    written : sequence of str
        The names of these files.
    """
    runs = [run for run in comparison.runs if run.status != "skipped"]
    _print_runs(out, runs)
    for file, name in comparison.repeated.items():
        line(out, (f"counted once: {file} holds the same instance as {name}", "dim"))
    _print_skipped(out, comparison.runs)
    _print_summaries(out, comparison)
    _print_verdict(out, comparison)
    if folder is not None:
        again = f"; {count(comparison.resumed, 'run')} taken from there" if comparison.resumed else ""
        line(out, (f"Written to {folder}: {', '.join(written)}{again}", "dim"))
        if not any(name.endswith(".png") for name in written) and runs:
            line(out, ("no plots: matplotlib is not installed (pip install 'wattsched[plot]')", "dim"))


def _print_runs(out: Console, runs: Sequence[Run]) -> None:
    if not runs:
        return
    rows: list[list[Cell]] = []
    for (label, goal, sense), group in groupby(runs, lambda r: (r.instance, r.objective_name, r.sense)):
        mine = list(group)
        rows.append([Text.assemble((printable(label), "bold"), (f"  {goal}, {sense}", "dim"))])
        rows += [_cells(run, *_best(mine)) for run in mine]
    table(out, [*OUTCOMES, *SIZES], rows, gives_way=GIVES_WAY)
    line(out, ("* best of the instance", "dim"))


def _best(runs: Sequence[Run]) -> tuple[float | None, float | None]:
    """Best objective and best bound among the runs of one instance, as they read."""
    least, most = (max, min) if runs[0].sense == "max" else (min, max)
    sound = [run for run in runs if not run.faults]
    objectives = [run.objective for run in sound if run.objective is not None]
    bounds = [run.bound for run in sound if run.bound is not None]
    return (least(objectives) if objectives else None, most(bounds) if bounds else None)


def _cells(run: Run, objective: float | None, bound: float | None) -> list[Cell]:
    return [
        run.pair,
        _marked(run.objective, objective),
        _marked(run.bound, bound),
        "" if run.gap is None else "0" if run.gap < NO_GAP else f"{run.gap:.1e}",
        (_ended(run), "" if run.solved else "yellow" if run.status == "feasible" else "red"),
        *("" if seconds is None else f"{seconds:.2f}" for seconds in (run.build_s, run.solve_s)),
        *("" if n is None else f"{n:,}" for n in (run.columns, run.rows, run.nonzeros)),
    ]


def _ended(run: Run) -> str:
    if run.faults:
        return "wrong"
    return f"{run.status}, {run.limit}" if run.limit else run.status.replace("_", " ")


def _marked(value: float | None, best: float | None) -> Cell:
    if value is None:
        return "-"
    shown = f"{value:,.2f}" if 1 <= abs(value) < LONGEST else f"{value:.6g}"
    if best is not None and abs(value - best) <= CLOSE * max(1.0, abs(best)):
        return f"{shown}*", BEST
    return f"{shown} "


def _print_skipped(out: Console, runs: Sequence[Run]) -> None:
    skipped: dict[tuple[str, str], list[str]] = defaultdict(list)
    for run in runs:
        if run.status == "skipped":
            skipped[run.pair, run.detail].append(run.instance)
    for (pair, why), instances in skipped.items():
        line(out, (f"skipped: {pair} on {listed(instances)}: {why}", "dim"))


def _print_summaries(out: Console, comparison: Comparison) -> None:
    summaries = [summary for summary in comparison.summaries if summary.runs > summary.skipped]
    if len({run.instance for run in comparison.runs}) < 2 or not summaries:
        return
    heading(out, "Means", f"shifted geometric ({SHIFT_S:g} s), failed or stopped runs at the time limit")
    columns = ["formulation, solver", ">solved", ">build s", ">solve s", ">total s"]
    rows = [
        (
            f"{summary.formulation} {summary.solver}",
            f"{summary.solved} of {summary.runs - summary.skipped}",
            *(f"{seconds:.2f}" for seconds in (summary.build_s, summary.solve_s, summary.total_s)),
        )
        for summary in summaries
    ]
    table(out, columns, rows)


def _print_verdict(out: Console, comparison: Comparison) -> None:
    out.print()
    wrong, failures = comparison.disagreements, comparison.failures
    told = [("disagreement: ", one) for one in wrong] + [("failed: ", one) for one in failures]
    for kind, sentence in told:
        line(out, (kind, "bold red"), sentence)
    if all(run.objective is None for run in comparison.runs):
        line(out, ("Nothing was compared: no run has a decision.", "bold red"))
    elif not wrong:
        line(out, "All other answers agree." if failures else "All answers agree.")
