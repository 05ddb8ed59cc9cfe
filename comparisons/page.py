"""The report of a comparison: who solved what, how closely and how soon."""

from __future__ import annotations

from wattsched.comparisons.compare import Comparison
from wattsched.comparisons.run import Run
from wattsched.comparisons.tables import NOTE, TITLES, cells, label_of, shown
from wattsched.report.html.page import Cell, Lines, Page, Part, Row, Table
from wattsched.report.wording import count, gap_text

COLUMNS = ("instance", "formulation, solver", ">objective", ">bound", ">gap", "ended", ">build s", ">solve s")


def page_of(comparison: Comparison) -> Page:
    """Report of a comparison."""
    runs = [run for run in comparison.runs if run.status != "skipped"]
    wrong = [*comparison.disagreements, *comparison.failures]
    verdict, instances = "All answers agree", len({run.instance for run in runs})
    if wrong:
        verdict = f"{count(len(wrong), 'run')} failed or contradict others"
    elif not any(run.solved or run.objective is not None for run in runs):
        verdict = "Nothing was compared: no run has a decision"
    parts: list[Part] = [Lines("Wrong", wrong)] if wrong else []
    parts += [_means(comparison)] if len({run.case for run in runs}) > 1 else []
    seeds = len({run.seed for run in runs}) > 1
    note = "what formulation and solver found by themselves"
    parts.append(Table("Runs", COLUMNS, [_row(run, seeds=seeds) for run in runs], note))
    if skipped := [run for run in comparison.runs if run.status == "skipped"]:
        told = [f"{run.formulation} {run.solver} on {run.instance}: {run.detail}" for run in skipped]
        parts.append(Lines("Skipped", told))
    return Page(
        title="Comparison",
        about=f"{count(len(runs), 'run')} on {count(instances, 'instance')}",
        verdict=verdict,
        tone="bad" if wrong else "good",
        parts=parts,
    )


def _row(run: Run, *, seeds: bool) -> Row:
    """Row of the table of runs, a cell for each of `COLUMNS`."""
    ended = "wrong" if run.faults else run.solver_status.replace("_", " ")
    return Row(
        [
            Cell(run.instance),
            Cell(label_of(run, seeds=seeds)),
            _number(run.solver_objective, "{:,.9g}"),
            _number(run.solver_bound, "{:,.9g}"),
            Cell(
                "" if run.solver_gap is None else gap_text(run.solver_gap).removeprefix("gap "),
                run.solver_gap,
            ),
            Cell(f"{ended}, {run.solver_limit}" if run.solver_limit else ended),
            _number(run.build_s, "{:.2f}"),
            _number(run.solve_s, "{:.2f}"),
        ]
    )


def _number(value: float | None, form: str) -> Cell:
    return Cell("") if value is None else Cell(form.format(value), value)


def _means(comparison: Comparison) -> Table:
    """Table of instances solved and mean seconds, by formulation and solver."""
    means = shown(comparison.summaries, comparison.virtual_best)
    return Table("Means", TITLES, [Row([Cell(text) for text in cells(one)]) for one in means], NOTE)
