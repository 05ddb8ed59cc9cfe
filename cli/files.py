"""Files on the command line: reading and writing them, ``-`` included; progress of long work."""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from wattsched.cli.failures import BadInput, reason
from wattsched.environment.extras import late
from wattsched.reading.inputs import BYTES_PER_MB, MOST_MB_VARIABLE, TooLargeError, most_mb
from wattsched.report.wording import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pydantic import BaseModel


progress = late("report.terminal:progress")
problem = late("results.problems:problem")

STANDARD = "-"
JSON_SUFFIXES = (".json", ".json.gz")
PARQUET = ".parquet"
PIPE_WAIT_S = 10.0
"""Seconds within which somebody has to open a named pipe to write into it."""
DOCUMENT_SUFFIXES = (*JSON_SUFFIXES, PARQUET)
_STEERING = re.compile("[\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def written(target: str) -> None:
    """Say on standard error that a file is complete."""
    click.echo(f"Written to {printable(target)}", err=True)


def write(target: str | None, content: str | bytes) -> None:
    """Write to a file in one step and say so, or to standard output for ``-`` and None.

    Characters of text that steer a terminal, which names may hold, are written as JSON escapes them.
    """
    if isinstance(content, str):
        content = _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", content)
    data = content.encode() if isinstance(content, str) else content
    if target is None or target == STANDARD:
        click.echo(data, nl=False)
        return
    from wattsched.instances.io import needed_mb, write_atomically

    try:
        write_atomically(target, data)
    except OSError as error:
        raise BadInput(f"cannot write '{target}': {reason(error)}") from None
    written(target)
    if isinstance(content, str) and target.endswith(JSON_SUFFIXES) and (mb := needed_mb(content)) > most_mb():
        click.echo(f"note: too large to be read, unless {MOST_MB_VARIABLE}={mb} is set", err=True)


def write_json(document: Any, target: str | None = None, indent: int | None = None) -> None:
    """Write a document of plain values, on lines of their own with an indent."""
    write(target, json.dumps(document, indent=indent) + "\n")


def read_document(name: str) -> Any:
    """Parse a file, JSON or Parquet, or standard input for ``-``; errors as `documents.read_document`."""
    with named_input(name) as path:
        return late("results.documents:read_document")(path)


def read_instance(name: str) -> Any:
    """Read an instance of any problem from a file or standard input."""
    with named_input(name) as path:
        return late("results.documents:read_instance")(path)


class _Copy(PosixPath):
    """Path of a copy of standard input or a pipe; as a str, for messages, it is the name `source`."""

    source = ""

    def __str__(self) -> str:
        return self.source or super().__str__()

    def __fspath__(self) -> str:
        return super().__str__()


@contextmanager
def named_input(name: str) -> Iterator[str | Path]:
    """A file to read, by the name that messages give it; of standard input (``-``) and pipes a copy."""
    if not name:
        raise BadInput("the file name is empty")
    if not is_piped(name):
        yield name
        return
    with tempfile.NamedTemporaryFile() as copy:
        try:
            with _stream(name) as stream:
                while chunk := stream.read(BYTES_PER_MB):
                    copy.write(chunk)
                    if copy.tell() > (most := most_mb() * BYTES_PER_MB):
                        raise TooLargeError(f"is larger than {most:,} bytes")
        except (OSError, ValueError) as error:
            told = reason(error) if isinstance(error, OSError) else str(error)
            raise BadInput(f"{shown(name)}: {told}") from None
        copy.flush()
        path = _Copy(copy.name)
        path.source = shown(name)
        yield path


def is_piped(name: str) -> bool:
    """True for standard input (``-``) and pipes, as of ``<(command)``, which can be read only once."""
    try:
        return name == STANDARD or stat.S_ISFIFO(os.stat(name).st_mode)
    except (OSError, ValueError):
        return False  # whoever opens it says what is wrong


@contextmanager
def _stream(name: str) -> Iterator[BinaryIO]:
    """Standard input, or a pipe as soon as somebody writes into it."""
    if name == STANDARD:
        if sys.stdin is None:
            raise ValueError("is closed")
        yield sys.stdin.buffer
        return
    with open(name, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as pipe:
        readable, _, _ = select.select([pipe], [], [], PIPE_WAIT_S)
        if not readable:
            with suppress(BlockingIOError):  # somebody is there, and has not written so far
                os.read(pipe.fileno(), 1)  # reads nothing where nobody is
                raise ValueError(f"is a pipe into which nobody writes, for {PIPE_WAIT_S:g} s")
        os.set_blocking(pipe.fileno(), True)
        yield pipe


def save_plot(figure: Figure, file: str) -> None:
    """Write a plot and say so."""
    from wattsched.plot import save

    try:
        save(figure, file)
    except OSError as error:
        raise BadInput(f"cannot write '{file}': {reason(error)}") from None
    written(file)


def shown(name: str) -> str:
    """Name of a file in messages."""
    return "standard input" if name == STANDARD else name


@contextmanager
def counting() -> Iterator[Callable[[str, int, int], None]]:
    """Progress bar on standard error, on a terminal only; yields ``show(what, done, total)``."""
    from wattsched.report.terminal import counted_progress

    with counted_progress() as bar:
        if bar is None:
            yield lambda what, done, total: None
            return
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(
            task, description=printable(what), completed=done, total=total
        )


@contextmanager
def stray_output_to_stderr() -> Iterator[None]:
    """Send what native libraries print to file descriptor 1 to standard error meanwhile.

    HiGHS prints a line now and then even when it is told not to.
    """
    sys.stdout.flush()
    try:
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        # One of the two is closed: there is nothing to keep apart.
        yield
        return
    try:
        yield
    finally:
        sys.stdout.flush()
        # The C library has a buffer of its own, which must go out before descriptor 1 is back.
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, 1)
        os.close(kept)


def content_of(model: BaseModel, target: str | None) -> str | bytes:
    """Return the content of an instance's or answer's file: Parquet where its name ends so, else JSON."""
    if target is not None and target.endswith(PARQUET):
        from wattsched.instances.parquet import parquet_bytes

        return parquet_bytes(model)
    from wattsched.instances.io import document_text

    answer: Any = model
    return answer_text(answer) if hasattr(model, "termination") else document_text(model)


def answer_text(answer: BaseModel) -> str:
    """JSON of a result with one field per line, and one job, set or point per line."""
    fields = [(name, getattr(answer, name)) for name in type(answer).model_fields]
    return "{\n" + ",\n".join(f' "{name}": {_laid_out(value)}' for name, value in fields) + "\n}\n"


def _laid_out(value: Any, *, sparse: bool = False) -> str:
    """JSON of a field, the entries of a list of models on lines of their own.

    With `sparse`, as in a decision, their fields that are None are left out.
    """
    from pydantic import BaseModel
    from pydantic_core import to_json

    from wattsched.topology.columns import RecordColumns

    if isinstance(value, RecordColumns):
        columns = value.document().items()
        return "{\n" + ",\n".join(f'   "{n}": {to_json(c).decode()}' for n, c in columns) + "\n  }"
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        lines = (entry.model_dump_json(exclude_none=sparse) for entry in value)
        return "[\n" + ",\n".join(f"   {line}" for line in lines) + "\n  ]"
    if not isinstance(value, BaseModel) or not any(
        isinstance(part, (list, RecordColumns)) for _, part in value
    ):
        return to_json(value).decode()
    parts = [f'  "{name}": {_laid_out(part, sparse=True)}' for name, part in value]
    return "{\n" + ",\n".join(parts) + "\n }"
