"""``wattsched what-if``: a round's decision if something of the round were otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.completion import name_option
from wattsched.cli.failures import BadInput, refusing
from wattsched.cli.files import (
    JSON_SUFFIXES,
    answer_text,
    progress,
    read_instance,
    save_plot,
    shown,
    stray_output_to_stderr,
    write,
)
from wattsched.cli.outputs import Command, json_option, output_option, plot_option
from wattsched.cli.parameters import Limits, limit_options
from wattsched.cli.solve import EXIT_CODES
from wattsched.environment.extras import late
from wattsched.report.conflicts import print_conflict
from wattsched.report.terminal import console, heading, line, table
from wattsched.report.views import view
from wattsched.report.wording import duration, listed, number, percent, spoken, total_label

if TYPE_CHECKING:
    from rich.console import Console

    from wattsched.results.result import Result
    from wattsched.solving.what_if import JobDifference, Sweep, WhatIf

MOST_JOBS = 20
TOTALS = ("power_w", "energy_j", "carbon_g", "money", "gpus_used", "restarts")
_SAME = 1e-9


@click.command("what-if", cls=Command)
@click.argument("file", metavar="ROUND")
@click.option("--power-w", metavar="CHANGE", help="Change the power cap of the site.")
@click.option("--energy-j", metavar="CHANGE", help="Change the energy budget.")
@click.option("--carbon-g", metavar="CHANGE", help="Change the carbon budget.")
@click.option("--least-goodput", metavar="CHANGE", help="Change the least goodput.")
@click.option("--carbon-g-per-kwh", metavar="CHANGE", help="Change the carbon intensity.")
@click.option("--price-per-kwh", metavar="CHANGE", help="Change the price of energy.")
@click.option("--gpus", multiple=True, metavar="POOL=CHANGE", help="Change the GPUs of a pool.")
@click.option("--remove", multiple=True, metavar="JOB", help="Take a job out.")
@click.option(
    "--sweep", metavar="NAME=FROM:TO:STEP", help="Decide for many values of a number: power_w=60:100:2kW."
)
@name_option("solver", "Who solves it.", default="auto")
@limit_options
@output_option(*JSON_SUFFIXES, help="Write both results, or all of a sweep, to a .json or .json.gz file.")
@plot_option("Draw a sweep: decisions and bounds.")
@json_option("both results, or all of a sweep")
def command(
    file: str,
    gpus: tuple[str, ...],
    remove: tuple[str, ...],
    sweep: str | None,
    solver: str,
    limits: Limits,
    output: str | None,
    plot: str | None,
    as_json: bool,
    **numbers: str | None,
) -> int:
    """Say what ROUND's decision would be after changes: who gains, who loses, what it uses.

    A CHANGE is +2kW, -10%, =5000 or none, for no limit. The exit code is that of solving the changed round;
    of a sweep 0.
    """
    from wattsched.instances.errors import sourced

    if (instance := read_instance(file)).problem != "sizing":
        raise BadInput(f"{shown(file)}: problem: must be 'sizing', got '{instance.problem}'")
    changes = {name: text for name, text in numbers.items() if text is not None}
    if bool(changes or gpus or remove) == (sweep is not None):
        raise BadInput("give changes such as --power-w +2kW, or --sweep")
    if plot is not None and sweep is None:
        raise BadInput("--plot: draws a --sweep")
    options = {"solver": solver, **vars(limits)}
    with sourced(shown(file)), refusing(), progress(f"deciding {instance.name}"), stray_output_to_stderr():
        if sweep is None:
            pairs = [_pair("--gpus", text, "POOL=CHANGE, such as A100=-8") for text in gpus]
            if len(pools := dict(pairs)) < len(pairs):
                raise BadInput(f"--gpus: one change for each pool, got {', '.join(map(shown, gpus))}")
            answer = late("solving.what_if:what_if")(instance, changes, gpus=pools, remove=remove, **options)
        else:
            answer = late("solving.what_if:sweep")(instance, *_values(sweep), **options)
    if plot is not None:
        save_plot(late("plot:frontier")(answer), plot)
    if output is not None:
        write(output, answer_text(answer))
    if as_json:
        write(None, answer_text(answer))
    elif output is None:
        (print_what_if if sweep is None else print_sweep)(console(), answer)
    return 0 if sweep is not None else EXIT_CODES[answer.after.termination.reason]


def _pair(option: str, text: str, form: str) -> tuple[str, str]:
    """Return a name and what stands after its equals sign."""
    name, _, rest = text.partition("=")
    if not (name and rest):
        raise BadInput(f"{option}: '{text:.80}' is not {form}")
    return name, rest


def _values(text: str) -> tuple[str, list[float]]:
    """Return the field of a sweep and its values, whose unit may stand after the last number."""
    from wattsched.instances.errors import require_known
    from wattsched.instances.sizing.changes import FIELDS, changed_number
    from wattsched.solving.what_if import MOST_POINTS

    form = "NAME=FROM:TO:STEP, such as power_w=60:100:2kW"
    field, told = _pair("--sweep", text, form)
    require_known("--sweep", field, FIELDS)
    if len(ends := told.split(":")) != 3:
        raise BadInput(f"--sweep: '{text:.80}' is not {form}")
    unit = ends[2].lstrip("0123456789.+-eE ")
    ends = [end if end.endswith(unit) else end + unit for end in ends]
    numbers: list[Any] = [changed_number("--sweep", None, f"={end}", FIELDS[field]) for end in ends]
    first, last, step = numbers
    if None in numbers or not step > 0 or not 0 <= (last - first) / step < MOST_POINTS:
        raise BadInput(f"--sweep: '{text:.80}' must go up by steps above 0, to {MOST_POINTS} values at most")
    return field, [first + i * step for i in range(math.floor((last - first) / step + 1e-9) + 1)]


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
        )
        for value, one in zip(found.values, found.results, strict=True)
    ]
    table(out, [f">{found.field}", f">{goal.noun}", ">bound", ">power"], rows)
