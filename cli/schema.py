"""``wattsched schema``: the JSON Schemas of the file formats."""

from __future__ import annotations

from typing import Any

import click

from wattsched.cli.failures import refusing
from wattsched.cli.files import write_json
from wattsched.cli.outputs import Command, output_option


def _one_of_problems(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Callback of ``--problem``, which refuses unknown ones."""
    from wattsched.results.problems import PROBLEMS

    if name is not None and name not in PROBLEMS:
        raise click.BadParameter(f"'{name}' is not one of {', '.join(PROBLEMS)}", ctx, param)
    return name


@click.command("schema", cls=Command)
@click.argument(
    "document",
    type=click.Choice(["instance", "result", "frontier", "bound", "explanation"]),
    default="instance",
)
@click.option(
    "--problem",
    metavar="NAME",
    callback=_one_of_problems,
    help="The problem that the file is of (default: sizing, and of a frontier shifting).",
)
@output_option(".json", help="The schema file (default: standard output).")
def command(document: Any, problem: str | None, output: str | None) -> None:
    """Print the JSON Schema of an instance (default), a result, a frontier, a bound or an explanation."""
    from wattsched.files.exchange import json_schema

    with refusing():
        schema = json_schema(document, problem)
    write_json(schema, output, indent=2)
