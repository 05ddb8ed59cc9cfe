"""``wattsched what-if``: a round's decision if something of the round were otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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

_CHANGES = {
    "power_w": "the power cap of the site",
    "energy_j": "the energy budget",
    "carbon_g": "the carbon budget",
    "least_goodput": "the least goodput",
    "carbon_g_per_kwh": "the carbon intensity",
    "price_per_kwh": "the price of energy",
}


def _change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, what in reversed(_CHANGES.items()):
        option = click.option(f"--{name.replace('_', '-')}", metavar="CHANGE", help=f"Change {what}.")
        command = option(command)
    return command


@click.command("what-if", cls=Command)
@click.argument("file", metavar="ROUND")
@_change_options
@click.option("--gpus", multiple=True, metavar="POOL=CHANGE", help="Change the GPUs of a pool.")
@click.option("--cap", "caps", multiple=True, metavar="DOMAIN=CHANGE", help="Change a power domain's cap.")
@click.option("--remove", multiple=True, metavar="JOB", help="Take a job out.")
@click.option(
    "--sweep",
    metavar="NAME=FROM:TO:STEP",
    help="Decide the round for many values instead: power_w=60:100:2kW; gpus.POOL and caps.DOMAIN, too.",
)
@name_option("solver", "Who solves it.", default="auto")
@limit_options
@output_option(*JSON_SUFFIXES, help="Write both results, or all of a sweep, to a .json or .json.gz file.")
@plot_option("Draw a sweep: decisions and bounds.")
@json_option("both results, or all of a sweep")
def command(
    file: str,
    gpus: tuple[str, ...],
    caps: tuple[str, ...],
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
    from wattsched.solving.what_if import Sweep, WhatIf, what_if

    instance = read_instance(file)
    if instance.problem != "sizing":
        raise BadInput(
            f"{shown(file)}: is of problem '{instance.problem}', only rounds of sizing are changed"
        )
    options = {"solver": solver, "gap": limits.gap, "threads": limits.threads, "seed": limits.seed}
    changes = {name: text for name, text in numbers.items() if text is not None}
    given = bool(changes or gpus or caps or remove)
    if given == (sweep is not None):
        raise BadInput("give changes such as --power-w +2kW, or --sweep")
    if plot is not None and sweep is None:
        raise BadInput("--plot: draws a --sweep")
    answer: WhatIf | Sweep
    with sourced(shown(file)), refusing(), progress(f"deciding {instance.name}"), stray_output_to_stderr():
        if sweep is not None:
            field, values = _values(sweep)
            answer = late("solving.what_if:sweep")(
                instance, field, values, time_limit=limits.time_limit, **options
            )
        else:
            pairs = {"gpus": _pairs("--gpus", gpus), "caps": _pairs("--cap", caps), "remove": remove}
            answer = what_if(instance, **changes, **pairs, time_limit=limits.time_limit, **options)  # type: ignore[arg-type]
    if plot is not None:
        save_plot(late("plot:frontier")(answer), plot)
    if output is not None:
        write(output, answer_text(answer))
    if as_json:
        write(None, answer_text(answer))
    elif output is None:
        out = late("report.terminal:console")()
        late(f"report.what_if:print_{'sweep' if isinstance(answer, Sweep) else 'what_if'}")(out, answer)
    return EXIT_CODES[answer.after.termination.reason] if isinstance(answer, WhatIf) else 0


def _pairs(option: str, texts: tuple[str, ...]) -> dict[str, str]:
    """Return names and their changes."""
    found = dict[str, str]()
    for text in texts:
        name, equals, change = text.partition("=")
        if not (name and equals and change):
            raise BadInput(f"{option}: '{text:.80}' is not NAME=CHANGE, such as A100=-8")
        found[name] = change
    return found


def _values(text: str) -> tuple[str, list[float]]:
    """Return the field of a sweep and its values, whose unit may stand after the last number."""
    from wattsched.instances.sizing.changes import FIELDS, changed_value
    from wattsched.solving.what_if import MOST_POINTS, values_between

    field, _, told = text.partition("=")
    ends = told.split(":")
    if not field or len(ends) != 3:
        raise BadInput(f"--sweep: '{text:.80}' is not NAME=FROM:TO:STEP, such as power_w=60:100:2kW")
    unit = ends[2].lstrip("0123456789.+-eE ")
    quantity: Any = "power" if field.startswith("caps.") else FIELDS.get(field, (None, None))[1]
    with refusing():
        numbers = [
            changed_value(f"--sweep {field}", None, f"={end}{unit if end != ends[2] else ''}", quantity)
            for end in ends
        ]
    first, last, step = (0.0 if one is None else one for one in numbers)
    if not (step > 0 and first <= last):
        raise BadInput(f"--sweep: '{text:.80}' must go up by steps above 0")
    if (last - first) / step >= MOST_POINTS:
        raise BadInput(f"--sweep: '{text:.80}' has more than {MOST_POINTS} values")
    return field, list(values_between(first, last, step))
