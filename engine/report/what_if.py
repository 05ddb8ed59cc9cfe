"""What differs between two decisions, and a sweep over a number, on a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from wattsched.report.conflicts import print_conflict
from wattsched.report.summary import verdict_of
from wattsched.report.terminal import heading, line, table
from wattsched.report.views import view
from wattsched.report.wording import duration, listed, number, percent, quantity, spoken, total_label

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.results.result import Result
    from wattsched.solving.what_if import JobDifference, Sweep, WhatIf

MOST_JOBS = 20
TOTALS = ("power_w", "energy_j", "carbon_g", "money", "gpus_used", "restarts", "migrations")
_SAME = 1e-9


def print_what_if(out: Console, found: WhatIf) -> None:
    """Print both decisions beside each other, and the jobs that do something else."""
    changes = [f"{name} {text}" for name, text in found.changes.items()]
    line(out, (found.instance, "bold"), f": what if {', '.join(changes) or 'nothing changes'}")
    goal = view("sizing").goal(found.after.objective_name, found.after.sense)
    heading(out, "Decisions")
    both = (found.before, found.after)
    rows = [("", *(_ended(result) for result in both), "")]
    if all(result.objective is not None for result in both):
        before, after = (result.objective or 0.0 for result in both)
        rows.append((goal.noun, goal.amount(before), goal.amount(after), _by(before, after)))
    for name in TOTALS:
        if all(name in result.totals for result in both):
            amounts = [float(result.totals[name]) for result in both]
            rows.append((total_label(name), *(spoken(name, one) for one in amounts), _by(*amounts)))
    table(out, ["", ">before", ">after", ""], rows)
    for result in both:
        if result.decision is None:
            line(out, ("none", "bold red"), f": {verdict_of(result, goal).detail}", indent=2)
        if result.conflict is not None:
            print_conflict(out, result.conflict)
    if found.jobs:
        _print_jobs(out, found.jobs)
    elif all(result.decision is not None for result in both):
        line(out, "every job does the same", indent=2)


def _ended(result: Result) -> str:
    return result.termination.reason.replace("_", " ")


def _by(before: float, after: float) -> str:
    """Say by how much an amount differs; nothing of one that is the same."""
    if abs(after - before) <= _SAME * max(abs(before), abs(after)):
        return ""
    if before == 0:
        return f"+{number(after)}"
    return f"{'+' if after > before else '-'}{percent(abs((after - before) / before))}"


def _print_jobs(out: Console, jobs: list[JobDifference]) -> None:
    """Print who gains and who loses, and a row for each job."""
    better = [one.job for one in jobs if one.gains]
    worse = [one.job for one in jobs if one.gains is False]
    heading(out, f"Jobs: {len(jobs):,}", "that do something else")
    for word, names in (("gain", better), ("lose", worse)):
        if names:
            line(out, (f"{len(names):,} {word}", "bold"), f": {listed(names, 8)}", indent=2)
    rows = [(one.job, one.change, one.before, one.after, _done(one)) for one in jobs]
    table(out, ["job", "change", "before", "after", "done in"], rows, most=MOST_JOBS, hint="with --json")


def _done(job: JobDifference) -> str:
    times = [one for one in (job.done_before_s, job.done_after_s) if one is not None]
    return ", now ".join(dict.fromkeys(duration(one) for one in times))


def print_sweep(out: Console, found: Sweep) -> None:
    """Print a row for every value."""
    first = found.points[0].result if found.points else None
    line(out, (found.instance, "bold"), f": {found.field} from value to value")
    if first is None:
        return
    goal = view("sizing").goal(first.objective_name, first.sense)
    rows = [
        (
            value_text(found.field, point.value),
            _ended(point.result) if point.result.objective is None else goal.amount(point.result.objective),
            "" if point.result.bound is None else goal.amount(point.result.bound),
            spoken("power_w", point.result.totals["power_w"]) if point.result.totals else "",
            f"{len(point.result.decision.jobs):,}" if point.result.decision is not None else "",
        )
        for point in found.points
    ]
    table(out, [f">{found.field}", f">{goal.noun}", ">bound", ">power", ">jobs run"], rows)
    if found.missing:
        line(out, (f"no time for {found.missing} more", "yellow"), indent=2)


def value_text(field: str, value: float) -> str:
    """Value of a field with its unit."""
    units = {"power_w": "W", "energy_j": "J", "carbon_g": "g", "caps": "W"}
    unit = units.get(field.partition(".")[0])
    return quantity(value, unit) if unit else number(value)
