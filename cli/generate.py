"""``wattsched generate``: instances of known families; a family's parameters are its options."""

from __future__ import annotations

from typing import Any

import click

from wattsched.cli.failures import refusing
from wattsched.cli.files import JSON_SUFFIXES, output_option, write
from wattsched.cli.parameters import Whole, descriptions, option_name, parameter_option

GPUS = "GPUs of the cluster (default: half of the demand)."
"""Where the family says nothing of its own."""


class Families(click.Group):
    """One command per family, made from the parameters of its function."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the families."""
        from wattsched.instances.generators import families

        return list(families())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command:
        """Command that generates a family."""
        known = self.list_commands(ctx)
        if cmd_name not in known:
            raise click.UsageError(f"unknown family '{cmd_name}'; known: {', '.join(known)}", ctx)
        return _family(cmd_name)


def _family(family: str) -> click.Command:
    from wattsched.instances.generators import builder, families, parameters_of

    told = descriptions(builder(family))
    options = [parameter_option(parameter, told.get(parameter.name)) for parameter in parameters_of(family)]
    common = [
        click.Option(["--jobs"], type=Whole(), default=100, show_default=True, help="Number of jobs."),
        click.Option(["--gpus"], type=Whole(), help=told.get("gpus", GPUS)),
        click.Option(
            ["--seed"], type=Whole(), default=0, show_default=True, help="Equal seeds give equal files."
        ),
    ]
    made = click.Command(
        family, params=[*common, *options], callback=_generate(family), help=families()[family]
    )
    return output_option(*JSON_SUFFIXES, help="The instance file (default: standard output).")(made)


def _generate(family: str) -> Any:
    def callback(output: str | None, **parameters: Any) -> None:
        from wattsched.instances.generators import generate
        from wattsched.instances.io import document_text
        from wattsched.report.terminal import progress

        with progress(f"generating {family}"):
            with refusing(options={name: option_name(name) for name in parameters}):
                instance = generate(family, **parameters)
            text = document_text(instance)
        write(output, text)

    return callback


@click.command(
    "generate", cls=Families, subcommand_metavar="FAMILY [OPTIONS]...", invoke_without_command=True
)
@click.option("--list", "as_list", is_flag=True, help="List the families with their options.")
@click.pass_context
def command(ctx: click.Context, as_list: bool) -> None:
    """Generate an instance of a family.

    Every family takes --jobs, --gpus, --seed and -o; 'wattsched generate FAMILY --help' shows the others.
    """
    if not as_list:
        if ctx.invoked_subcommand is None:
            raise click.UsageError("a family is missing, 'wattsched generate --list' lists them", ctx)
        return
    from wattsched.instances.generators import families, options_of
    from wattsched.report.terminal import console, table

    rows = []
    for name, summary in families().items():
        rows.append((name, summary))
        if options := [option_name(option) for option in options_of(name)]:
            rows.append(("", ", ".join(options)))
    table(console(), ["family", "what it is"], rows)
    ctx.exit()
