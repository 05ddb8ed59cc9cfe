"""``wattsched compare``: every instance by every formulation and solver, in one table."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from wattsched.cli.completion import name_option
from wattsched.cli.executors import dask_option, spread
from wattsched.cli.failures import BAD_INPUT, CHECK_FAILED, BadInput, refusing
from wattsched.cli.files import counting, stray_output_to_stderr, write
from wattsched.cli.outputs import folder_option, json_option, report_option, write_page
from wattsched.cli.parameters import (
    Described,
    FileName,
    Limits,
    Listed,
    limit_options,
    names_of_problems,
    refuse_given,
    seeds_option,
)
from wattsched.comparisons.tables import NOTE, TITLES, cells, label_of, shown
from wattsched.environment.extras import late, missing
from wattsched.report.terminal import Cell, console, heading, line, print_skipped, table
from wattsched.report.wording import LONGEST, count, listed, printable

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.comparisons.compare import Comparison
    from wattsched.comparisons.run import Run


@click.command("compare", cls=Described, sections=names_of_problems)
@click.argument("files", nargs=-1, required=True, metavar="FILES...", type=FileName())
@name_option(
    "formulations",
    "How to write the problem (default: its first one); FILE.py:NAME runs a file of yours.",
    metavar="A,B",
    type=Listed("formulation"),
)
@name_option("solvers", "Who solves it.", metavar="X,Y", type=Listed("solver"), default="auto")
@name_option("objective", "Instead of the instances' objectives.")
@limit_options
@seeds_option(None, "Do every run with each of these seeds, in place of --seed.")
@click.option("--features", is_flag=True, help="Also write features.csv: sizes and LP relaxations.")
@dask_option("the runs")
@folder_option("Folder for runs.csv, runs.json and the plots.")
@report_option("the runs")
@json_option("what runs.json holds")
def command(
    files: tuple[str, ...],
    formulations: list[str] | None,
    solvers: list[str],
    objective: str | None,
    limits: Limits,
    seeds: list[int] | None,
    features: bool,
    dask: str | None,
    output: str | None,
    report: str | None,
    as_json: bool,
) -> int:
    """Solve every instance in FILES by every formulation and solver, and compare the answers.

    Runs that are finished in DIR are not run again, so an interrupted comparison goes on where it was. With
    a time limit large programs are solved in a process, whose start may count as solving; 'inf' is without.
    Exit code 1 if answers contradict each other.
    """
    from wattsched.comparisons.compare import compare, document, write_report
    from wattsched.comparisons.run import Settings

    if output is None:
        refuse_given(("features",), "needs -o, the folder of its table")
    limit_s = None if math.isinf(limits.time_limit) else limits.time_limit
    settings = Settings(objective, limits.gap, limit_s, limits.threads, limits.seed)
    with counting() as show, stray_output_to_stderr(), spread(dask) as executor, refusing():
        comparison = compare(
            files,
            formulations=formulations,
            solvers=solvers,
            settings=settings,
            seeds=seeds,
            folder=output,
            features=features,
            executor=executor,
            progress=lambda at: show(f"{at.case}: {at.pair}" if at.case else "", at.done, at.total),
        )
    written: list[str] = []
    if output is not None:
        try:
            written = [*write_report(comparison, output), *_plots(comparison, Path(output))]
        except OSError as error:
            raise BadInput(f"cannot write into '{output}': {error.strerror}") from None
    write_page(report, late("comparisons.page:page_of"), comparison)
    if as_json:
        write(None, document(comparison))
    else:
        print_comparison(console(), comparison, output, written)
    if all(run.status == "skipped" for run in comparison.runs):
        return BAD_INPUT
    return CHECK_FAILED if comparison.disagreements or comparison.failures else 0


def _plots(comparison: Comparison, folder: Path) -> list[str]:
    """Draw the profiles, where matplotlib is installed and there is anything to draw."""
    if missing("plot") or all(run.status == "skipped" for run in comparison.runs):
        return []
    from wattsched.plot import gap_over_time, gap_profile, performance_profile, save

    drawn = (performance_profile(comparison), gap_profile(comparison), gap_over_time(comparison))
    for name, axes in zip(PLOTS, drawn, strict=True):
        save(axes, folder / name)
    return [*PLOTS]


PLOTS = ("time-profile.png", "gap-profile.png", "gap-over-time.png")
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
    """Print a comparison, and which files were written into a folder."""
    runs = [run for run in comparison.runs if run.status != "skipped"]
    _print_runs(out, runs)
    for file, name in comparison.repeated.items():
        line(out, (f"counted once: {file} holds the same instance as {name}", "dim"))
    skipped = defaultdict[tuple[str, str], list[str]](list)
    for run in comparison.runs:
        if run.status == "skipped" and run.instance not in (known := skipped[run.pair, run.detail]):
            known.append(run.instance)  # once, whatever the number of seeds
    print_skipped(out, skipped)
    _print_summaries(out, comparison)
    _print_verdict(out, comparison)
    if folder is not None:
        again = f"; {count(comparison.resumed, 'run')} taken from there" if comparison.resumed else ""
        line(out, (f"Written to {folder}: {', '.join(written)}{again}", "dim"))
        from wattsched.comparisons.compare import RUNS

        kept = {file.stem for file in (Path(folder) / RUNS).glob("*.json")}
        if others := kept - {run.key for run in comparison.runs}:
            line(out, (f"{count(len(others), 'other run')} in {folder}/{RUNS} are not in these files", "dim"))
        if not any(name.endswith(".png") for name in written) and runs:
            line(out, (f"no plots without {missing('plot')}", "dim"))


def _print_runs(out: Console, runs: Sequence[Run]) -> None:
    """Print a table of runs by instance, which follow one another, and who else found a better decision."""
    if not runs:
        return
    rows: list[list[Cell]] = []
    for (label, goal, sense), group in groupby(runs, lambda r: (r.instance, r.objective_name, r.sense)):
        mine = list(group)
        rows.append([Text.assemble((printable(label), "bold"), (f"  {goal}, {sense}", "dim"))])
        seeds = len({run.seed for run in runs}) > 1
        rows += [[label_of(run, seeds=seeds), *_cells(run, *_best(mine))] for run in mine]
    table(out, [*OUTCOMES, *SIZES], rows, gives_way=GIVES_WAY)
    if any(run.solver_objective is not None for run in runs):
        line(out, ("* best of the instance", "dim"))
    if names := sorted({run.decided_by for run in runs if run.decided_by}):
        told = f"the table holds what each solver found by itself; {listed(names)} had a better decision"
        line(out, (told, "dim"))


def _best(runs: Sequence[Run]) -> tuple[float | None, float | None]:
    """Best objective and tightest bound that solvers found in the runs of one instance; None without any."""
    best, tightest = (max, min) if runs[0].sense == "max" else (min, max)
    sound = [run for run in runs if not run.faults]
    objectives = [run.solver_objective for run in sound if run.solver_objective is not None]
    bounds = [run.solver_bound for run in sound if run.solver_bound is not None]
    return (best(objectives) if objectives else None, tightest(bounds) if bounds else None)


def _cells(run: Run, best_objective: float | None, tightest_bound: float | None) -> list[Cell]:
    """Figures of a run; those that equal the best of its instance's runs are marked."""
    return [
        _marked(run.solver_objective, best_objective),
        _marked(run.solver_bound, tightest_bound),
        "" if run.solver_gap is None else "0" if run.solver_gap < NO_GAP else f"{run.solver_gap:.1e}",
        (_ended(run), "" if run.solved else "yellow" if run.solver_status == "feasible" else "red"),
        *("" if seconds is None else f"{seconds:.2f}" for seconds in (run.build_s, run.solve_s)),
        *("" if n is None else f"{n:,}" for n in (run.columns, run.rows, run.nonzeros)),
    ]


def _ended(run: Run) -> str:
    """How the solver ended, the limit it ran into, and who had a better decision."""
    if run.faults:
        return "wrong"
    limit = f", {run.solver_limit}" if run.solver_limit else ""
    better = f"; {run.decided_by} better" if run.decided_by else ""
    return f"{run.solver_status.replace('_', ' ')}{limit}{better}"


def _marked(value: float | None, best: float | None) -> Cell:
    """Figure, with a star if it is the best one up to rounding."""
    if value is None:
        return "-"
    shown = f"{value:,.2f}" if 1 <= abs(value) < LONGEST else f"{value:.6g}"
    if best is not None and abs(value - best) <= CLOSE * max(1.0, abs(best)):
        return f"{shown}*", BEST
    return f"{shown} "


def _print_summaries(out: Console, comparison: Comparison) -> None:
    """Print means by formulation and solver, where there are several instances or seeds."""
    means = shown(comparison.summaries, comparison.virtual_best)
    if len({run.case for run in comparison.runs}) < 2 or not means:
        return
    heading(out, "Means", NOTE)
    table(out, TITLES, [cells(one) for one in means], gives_way=("build s", "total s"))


def _print_verdict(out: Console, comparison: Comparison) -> None:
    """Print which answers contradict each other, which runs failed, or that all answers agree."""
    out.print()
    wrong, failures = comparison.disagreements, comparison.failures
    told = [("disagreement: ", one) for one in wrong] + [("failed: ", one) for one in failures]
    for kind, sentence in told:
        line(out, (kind, "bold red"), sentence)
    if not any(run.solved or run.objective is not None for run in comparison.runs):
        line(out, ("Nothing was compared: no run has a decision.", "bold red"))
    elif not wrong:
        line(out, "All other answers agree." if failures else "All answers agree.")
