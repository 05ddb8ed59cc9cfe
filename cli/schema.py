"""``wattsched schema``: the JSON Schemas of the file formats."""

from __future__ import annotations

import json

import click

from wattsched.cli.files import output_option, write


@click.command("schema")
@click.argument("document", type=click.Choice(["instance", "result"]), default="instance")
@output_option(".json", help="The schema file (default: standard output).")
def command(document: str, output: str | None) -> None:
    """Print the JSON Schema of an instance or a result file (default: instance)."""
    from wattsched.instances.files import instance_schema
    from wattsched.result import Result

    if document == "instance":
        schema = instance_schema()
    else:
        draft = "https://json-schema.org/draft/2020-12/schema"
        schema = {"$schema": draft, "$id": "wattsched-result/1", **Result.model_json_schema()}
    write(output, json.dumps(schema, indent=2) + "\n")
