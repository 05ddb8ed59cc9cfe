"""Files on the command line: what ``FILE`` and ``-o FILE`` take, ``-`` included."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattsched.cli.failures import BadInput, printable, reason

if TYPE_CHECKING:
    from pydantic import BaseModel

    from wattsched.instances.sizing.decision import Decision
    from wattsched.instances.sizing.instance import Instance
    from wattsched.result import Result

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")

STANDARD = "-"
JSON_SUFFIXES = (".json", ".json.gz")


def output_option(*suffixes: str, help: str, required: bool = False) -> Callable[[FC], FC]:
    """``-o FILE`` of a command; the name's ending and folder are checked before any work is done."""

    def checked(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
        if name is None or name == STANDARD:
            return name
        if not name.endswith(suffixes):
            raise click.BadParameter(f"'{name}' must end in {' or '.join(suffixes)}", ctx, param)
        if Path(name).is_dir():
            raise click.BadParameter(f"'{name}' is a folder", ctx, param)
        if not Path(name).parent.is_dir():
            raise click.BadParameter(f"the folder '{Path(name).parent}' does not exist", ctx, param)
        return name

    return click.option("-o", "--output", metavar="FILE", callback=checked, required=required, help=help)


def refuse_overwriting(output: str | None, *inputs: str | None) -> None:
    """Refuse an output that is one of the input files, under whatever name."""
    for name in inputs:
        if None not in (output, name) and STANDARD not in (output, name) and _same(str(output), str(name)):
            raise BadInput(f"-o '{output}' would replace the input '{name}'; choose another name")


def _same(one: str, other: str) -> bool:
    try:
        return Path(one).samefile(other)
    except OSError:
        # One of them does not exist.
        return False


def written(target: str) -> None:
    """Say on standard error that a file is complete."""
    click.echo(f"Written to {printable(target)}", err=True)


def write(target: str | None, content: str | bytes) -> None:
    """Write to a file in one step and say so, or to standard output for ``-`` and None."""
    data = content.encode() if isinstance(content, str) else content
    if target is None or target == STANDARD:
        click.echo(data, nl=False)
        return
    from wattsched.instances.io import write_atomically

    try:
        write_atomically(target, data)
    except OSError as error:
        raise BadInput(f"cannot write '{target}': {reason(error)}") from None
    written(target)


def read_document(name: str) -> Any:
    """Parse a JSON file, or standard input for ``-``.

    Raises
    ------
    InputError
        As `instances.files.read_json`.
    """
    from wattsched.instances.io import InputError, read_json

    if not name:
        raise BadInput("the file name is empty")
    if name != STANDARD:
        return read_json(name)
    if sys.stdin is None:
        raise BadInput("standard input is closed")
    with tempfile.NamedTemporaryFile(suffix=".json") as copy:
        shutil.copyfileobj(sys.stdin.buffer, copy)
        copy.flush()
        try:
            return read_json(copy.name)
        except InputError as error:
            raise InputError(error.faults, shown(name)) from None


def read_instance(name: str) -> Instance:
    """Read an instance file, or standard input for ``-``."""
    from wattsched.instances.io import instance_of

    return instance_of(read_document(name), source=shown(name))


def read_any_instance(name: str) -> Any:
    """Read an instance file of any problem, or standard input for ``-``."""
    from wattsched.instances.problems import any_instance_of

    return any_instance_of(read_document(name), source=shown(name))


def read_answer(name: str) -> Result | Decision:
    """Read a result file or a bare decision, or standard input for ``-``."""
    return answer_of(read_document(name), shown(name))


def is_answer(document: Any) -> bool:
    """Whether a parsed document is a result or a bare decision rather than an instance."""
    return isinstance(document, dict) and (
        str(document.get("format", "")).startswith("wattsched-result/")
        or ("waiting" in document and "cluster" not in document)
    )


def answer_of(document: Any, source: str) -> Result | Decision:
    """Validate a parsed document as a result, or as a bare decision.

    Raises
    ------
    InputError
        With one line per fault.
    """
    from pydantic import ValidationError

    from wattsched.instances.io import InputError, lines_of
    from wattsched.instances.sizing.decision import Decision
    from wattsched.result import Result

    if not is_answer(document):
        raise InputError(["is neither a result ('format': 'wattsched-result/1') nor a decision"], source)
    model = Result if "format" in document else Decision
    try:
        return model.model_validate(document)
    except ValidationError as error:
        raise InputError(lines_of(error, document), source) from None


def shown(name: str) -> str:
    """Name of a file in messages."""
    return "standard input" if name == STANDARD else name


def result_text(result: Result) -> str:
    """JSON of a result with one field, and one job, per line."""
    import json

    fields = result.model_dump(mode="json", exclude={"decision"})
    lines = [
        f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in fields.items()
    ]
    lines.append(f' "decision": {_decision_text(result.decision)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _decision_text(decision: Decision | None) -> str:
    if decision is None:
        return "null"
    import json

    jobs: list[BaseModel] = [*decision.jobs]
    rows = ",\n".join("   " + job.model_dump_json(exclude_none=True) for job in jobs)
    return (
        f'{{\n  "jobs": [\n{rows}\n  ],\n  "waiting": {json.dumps(decision.waiting, ensure_ascii=False)}\n }}'
    )
