"""``wattsched convert``: the same instance or result in another form."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from wattsched.cli.failures import BadInput
from wattsched.cli.files import DOCUMENT_SUFFIXES, PARQUET, content_of, read_document, shown, write
from wattsched.cli.outputs import Command, output_option

if TYPE_CHECKING:
    from pydantic import BaseModel

    from wattsched.topology.columns import RecordColumns


@click.command("convert", cls=Command)
@click.argument("file")
@click.option(
    "--by",
    "form",
    type=click.Choice(["column", "row"]),
    help="Jobs of JSON by column, a list for each field, or by row, an object for each job.",
)
@output_option(*DOCUMENT_SUFFIXES, required=True, help="The file to write: .json, .json.gz or .parquet.")
def command(file: str, form: str | None, output: str) -> None:
    """Write FILE, a round or its result, in another form ('-' is standard input).

    Nothing of its content changes: an instance keeps its digest, and a result its claims. Without --by JSON
    keeps the form that FILE has; Parquet is always by column.
    """
    if form is not None and output.endswith(PARQUET):
        raise BadInput(f"--by {form}: is of JSON, '{output}' is Parquet, which is by column")
    from wattsched.results.documents import instance_of, is_result, result_of

    document = read_document(file)
    source = shown(file)
    model: BaseModel = result_of(document, source) if is_result(document) else instance_of(document, source)
    if model.__dict__["problem"] != "sizing":
        told = f"the problem '{model.__dict__['problem']}' has one form only"
        raise BadInput(f"{source}: {told}, rounds (problem sizing) have several")
    write(output, content_of(model if form is None else _formed(model, by_column=form == "column"), output))


def _formed(model: Any, *, by_column: bool) -> Any:
    """The document with its jobs, nodes and groups, or the jobs of its decision, by column or by row."""
    from wattsched.instances.sizing.decision import AssignmentColumns
    from wattsched.instances.sizing.job_columns import JobColumns
    from wattsched.topology.cluster import GroupColumns, NodeColumns

    def formed(part: Any, **columns: type[RecordColumns[Any]]) -> Any:
        """Copy of a part of the document, with its fields of these names in the other form."""
        return part.model_copy(
            update={
                name: form.from_records(getattr(part, name)) if by_column else list(getattr(part, name))
                for name, form in columns.items()
            }
        )

    if hasattr(model, "jobs"):
        cluster = formed(model.cluster, nodes=NodeColumns, groups=GroupColumns)
        return formed(model.model_copy(update={"cluster": cluster}), jobs=JobColumns)
    if model.decision is None:
        return model
    return model.model_copy(update={"decision": formed(model.decision, jobs=AssignmentColumns)})
