"""What differs between two decisions, and a sweep over a number, on a page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from wattsched.report.conflicts import print_conflict
from wattsched.report.terminal import heading, line, table
from wattsched.report.views import view
from wattsched.report.wording import duration, listed, number, percent, spoken, total_label

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.results.result import Result
    from wattsched.solving.what_if import JobDifference, Sweep, WhatIf

MOST_JOBS = 20
TOTALS = ("power_w", "energy_j", "carbon_g", "money", "gpus_used", "restarts")
_SAME = 1e-9


def print_what_if(out: Console, found: WhatIf) -> None:
    """Print both decisions beside each other, and the jobs that do something else."""
    changes = ", ".join(f"{name} {text}" for name, text in found.changes.items())
    line(out, (found.instance, "bold"), f": what if {changes or 'nothing changes'}")
    heading(out, "Decisions")
    table(out, ["", ">before", ">after", ""], list(_rows(found.before, found.after)))
    for result in (found.before, found.after):
        if result.objective is None:
            line(out, ("no decision", "bold red"), f": {result.termination.detail}", indent=2)
        if result.conflict is not None:
            print_conflict(out, result.conflict)
    if found.jobs:
        heading(out, f"Jobs: {len(found.jobs):,}", "that do something else")
    for word, sign in (("gain", -1.0), ("lose", 1.0)):
        if names := [one.job for one in found.jobs if sign * one.later_s > 0]:
            line(out, (f"{len(names):,} {word}", "bold"), f": {listed(names, 8)}", indent=2)
    rows = [(one.job, one.change, one.before, one.after, _done(one)) for one in found.jobs]
    table(out, ["job", "change", "before", "after", "done in"], rows, most=MOST_JOBS, hint="with --json")


def _rows(before: Result, after: Result) -> Iterator[tuple[str, ...]]:
    goal = view("sizing").goal(after.objective_name, after.sense)
    yield "", *(one.termination.reason.replace("_", " ") for one in (before, after)), ""
    if before.objective is not None and after.objective is not None:
        amounts = goal.amount(before.objective), goal.amount(after.objective)
        yield goal.noun, *amounts, _by(before.objective, after.objective)
        for name in (name for name in TOTALS if name in before.totals and name in after.totals):
            first, second = float(before.totals[name]), float(after.totals[name])
            yield total_label(name), spoken(name, first), spoken(name, second), _by(first, second)


def _by(before: float, after: float) -> str:
    """Say by how much an amount differs; nothing of one that is the same."""
    if abs(after - before) <= _SAME * max(abs(before), abs(after)):
        return ""
    sign = "+" if after > before else "-"
    return sign + (percent(abs((after - before) / before)) if before else number(abs(after)))


def _done(job: JobDifference) -> str:
    times = [one for one in (job.done_before_s, job.done_after_s) if one is not None]
    return ", now ".join(dict.fromkeys(duration(one) for one in times))


def print_sweep(out: Console, found: Sweep) -> None:
    """Print a row for every value."""
    line(out, (found.instance, "bold"), f": {found.field} from value to value")
    goal = view("sizing").goal(found.results[0].objective_name, found.results[0].sense)
    rows = [
        (
            spoken(found.field, value),
            one.termination.reason.replace("_", " ") if one.objective is None else goal.amount(one.objective),
            "" if one.bound is None else goal.amount(one.bound),
            spoken("power_w", one.totals["power_w"]) if one.totals else "",
            "" if one.decision is None else f"{len(one.decision.jobs):,}",
        )
        for value, one in zip(found.values, found.results, strict=True)
    ]
    table(out, [f">{found.field}", f">{goal.noun}", ">bound", ">power", ">jobs run"], rows)
