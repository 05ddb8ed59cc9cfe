"""``wattsched generate``: instances of known families; a family's parameters are its options."""

from __future__ import annotations

from typing import Any

import click

from wattsched.cli.failures import refusing
from wattsched.cli.files import DOCUMENT_SUFFIXES, content_of, progress, write
from wattsched.cli.outputs import Command, output_option
from wattsched.cli.parameters import Family, Whole, descriptions, option_name, parameter_option
from wattsched.environment.extras import late

GPUS = "GPUs of the cluster (default: half of the demand)."
"""Help of ``--gpus`` where the family says nothing of its own."""
SEED = "Equal seeds give equal files."


_known = late("instances.generators:families")


def _command(family: str) -> click.Command:
    """Command of a family, made from the parameters of its function."""
    from wattsched.instances.generators import builder, parameters_of

    told = descriptions(builder(family))
    params: list[click.Parameter] = [
        click.Option(["--jobs"], type=Whole(), default=100, help="Number of jobs."),
        click.Option(["--gpus"], type=Whole(), help=told.get("gpus", GPUS)),
        click.Option(["--seed"], type=Whole(), default=0, help=SEED),
    ]
    params += [parameter_option(parameter, told.get(parameter.name)) for parameter in parameters_of(family)]

    def callback(output: str | None, **parameters: Any) -> None:
        from wattsched.instances.generators import generate

        with progress(f"generating {family}"), refusing():
            instance = generate(family, **parameters)
            content = content_of(instance, output)
        write(output, content)

    made = Command(family, params=params, callback=callback, help=_known()[family])
    return output_option(*DOCUMENT_SUFFIXES, help="The instance file (default: standard output).")(made)


def _rows() -> tuple[list[str], list[tuple[str, str]]]:
    """Titles and rows for ``--list``: each family, and below it its own options."""
    from wattsched.instances.generators import options_of

    rows = []
    for name, summary in _known().items():
        rows.append((name, summary))
        if options := [option_name(option) for option in options_of(name)]:
            rows.append(("", ", ".join(options)))
    return ["family", "what it is"], rows


command = Family(
    "generate",
    noun="family",
    known=_known,
    make=_command,
    rows=_rows,
    subcommand_metavar="FAMILY [OPTIONS]...",
    help="""Generate an instance of a family.

    Every family takes --jobs, --gpus, --seed and -o; 'wattsched generate FAMILY --help' shows the others.
    """,
)
