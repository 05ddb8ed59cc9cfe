"""Outputs of commands: where files may be written, which is never where a command reads one."""

from __future__ import annotations

import os
import shlex
import stat
from abc import abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any, TypeVar

import click

from wattsched.cli.failures import BadInput
from wattsched.cli.files import STANDARD, shown, write
from wattsched.environment.extras import missing
from wattsched.reading.inputs import COMPANIONS, beside
from wattsched.report.wording import printable

if TYPE_CHECKING:
    _ParamType = click.ParamType[Any]
else:
    # Not generic yet in older versions of click.
    _ParamType = click.ParamType

FC = TypeVar("FC", bound="Callable[..., Any] | click.Command")


GIVEN = "wattsched.given"
"""Key of the context at which the arguments of the command line are kept."""


def command_line() -> str:
    """The command that runs, as it would be typed."""
    return shlex.join(["wattsched", *map(printable, click.get_current_context().meta[GIVEN])])


class ParamType(_ParamType):
    """Type of a parameter, whose `read` raises a ValueError that says what is wrong with a value."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Read the value, or refuse it under the name of its parameter."""
        try:
            return self.read(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

    @abstractmethod
    def read(self, value: Any) -> Any:
        """Return the value of a text, or of a default."""


class Output(ParamType):
    """Name of a file or folder to write, known to be possible before any work is done.

    Parameters
    ----------
    suffixes : sequence of str
        Endings that a file may have; none for a folder, which is there or can be made.
    standard : bool
        Whether ``-`` is taken, for standard output.
    extra : str
        Extra without which nothing can write it, called as its option.
    """

    name = "output"

    def __init__(self, suffixes: Sequence[str] = (), *, standard: bool = False, extra: str = "") -> None:
        self.suffixes, self.standard, self.extra = tuple(suffixes), standard, extra

    def read(self, value: Any) -> str:
        """Refuse a name under which nothing can be written."""
        name = str(value)
        if self.standard and name == STANDARD:
            return name
        if not self.suffixes:
            if name in ("", STANDARD):
                raise ValueError(f"'{name}' is not a folder: there are several files to write")
            if os.path.lexists(name) and not os.path.isdir(name):
                raise ValueError(f"'{name}' is not a folder")
            return name
        if not name.endswith(self.suffixes):
            *others, last = self.suffixes
            told = f"{', '.join(others)} or {last}" if others else last
            raise ValueError(f"'{name}' must end in {told}")
        if os.path.isdir(name):
            raise ValueError(f"'{name}' is a folder")
        if os.path.islink(os.path.realpath(name)):
            raise ValueError(f"'{name}' is a loop of symbolic links")
        if self.extra:
            require_extra(f"--{self.extra}", self.extra)
        return name


def require_extra(what: str, extra: str) -> None:
    """Refuse what needs an extra that is not installed."""
    if told := missing(extra):
        raise BadInput(f"{what} needs {told}")


def output_option(*suffixes: str, help: str, required: bool = False) -> Callable[[FC], FC]:
    """``-o FILE`` of a command."""
    kind = Output(suffixes, standard=True)
    return click.option("-o", "--output", metavar="FILE", type=kind, required=required, help=help)


def plot_option(help: str) -> Callable[[FC], FC]:
    """``--plot FILE`` of a command."""
    kind = Output((".png", ".svg", ".pdf"), extra="plot")
    return click.option("--plot", metavar="FILE", type=kind, help=help)


def report_option(what: str) -> Callable[[FC], FC]:
    """``--report FILE`` of a command."""
    told = f"Write {what} as a page for a browser (.html), in one file."
    return click.option("--report", metavar="FILE", type=Output((".html",), extra="report"), help=told)


def write_page(file: str | None, page_of: Callable[..., Any], *told: Any, **more: Any) -> None:
    """Write the page of what is told, and of the command that runs, where a report is asked for."""
    if file is not None:
        from wattsched.report.html.page import rendered

        write(file, rendered(page_of(*told, **more), command_line()))


def folder_option(help: str, required: bool = False) -> Callable[[FC], FC]:
    """``-o DIR`` of a command."""
    return click.option("-o", "--output", metavar="DIR", type=Output(), required=required, help=help)


def json_option(what: str) -> Callable[[FC], FC]:
    """``--json`` of a command, which then prints this."""
    told = f"Print {what} as JSON, alone, on standard output."
    return click.option("--json", "as_json", is_flag=True, help=told)


class Command(click.Command):
    """A command that refuses to write over what it reads."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run it, if its outputs are none of its inputs."""
        _refuse_folders(ctx)
        _refuse_overwriting(ctx)
        return super().invoke(ctx)


def _refuse_folders(context: click.Context) -> None:
    """Refuse files in folders that are not there, or take none, but for the folder that the command makes."""
    values = [(param, context.params.get(param.name or "")) for param in context.command.params]
    outputs = [(p.opts[0], str(v), p.type.suffixes) for p, v in values if isinstance(p.type, Output) and v]
    made = {os.path.realpath(name) for _, name, suffixes in outputs if not suffixes}
    for option, name, suffixes in outputs:
        folder = Path(name).parent
        if not suffixes or name == STANDARD or os.path.realpath(folder) in made:
            continue
        if not folder.is_dir():
            told = "is a file" if folder.exists() else "does not exist"
            raise BadInput(f"{option} '{name}': the folder '{folder}' {told}")
        try:
            TemporaryFile(dir=folder).close()
        except OSError as error:
            why = error.strerror or error
            raise BadInput(f"{option} '{name}': the folder '{folder}' takes no files: {why}") from None


def _refuse_overwriting(context: click.Context) -> None:
    """Refuse outputs of a command that would replace an input of it, under whatever name.

    Whatever a parameter other than the outputs names that is a file counts as an input, the part before the
    colon of FILE.py:NAME included, a file that standard input is read from, and tables that are read because
    of their place.
    """
    outputs, inputs = [], []
    for param in context.command.params:
        value = context.params.get(param.name or "")
        if not isinstance(param.type, Output):
            inputs += [name for given in _names(value) for name in _read_with(given)]
        elif value is not None and value != STANDARD:
            outputs.append((param.opts[0], value, not param.type.suffixes))
    for option, output, folder in outputs:
        there = _files_in(output) if folder else {_identity(output)}
        for name in inputs:
            if (known := _identity(name)) is None:
                continue
            within = folder and Path(os.path.realpath(name)).is_relative_to(os.path.realpath(output))
            if within or known in there:
                other = ", which it holds; choose another folder" if folder else "; choose another name"
                raise BadInput(f"{option} '{output}' would replace the input '{shown(name)}'{other}")


def _read_with(name: str) -> list[str]:
    """Return all files that a command may read that is given a name, the name among them."""
    tables = [str(file) for table in COMPANIONS for file in beside(Path(name), table)]
    return [name, name.rpartition(":")[0], *(tables if _identity(name) else [])]


def _names(value: Any) -> list[str]:
    """Texts that a parameter has been given."""
    if isinstance(value, str):
        return [value]
    return [text for part in value for text in _names(part)] if isinstance(value, list | tuple) else []


def _identity(name: str) -> tuple[int, int] | None:
    """Return the key that all names of a file share, links included; None where it names no file."""
    try:
        found = os.fstat(0) if name == STANDARD else os.stat(name)
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISREG(found.st_mode) else None


def _files_in(folder: str) -> set[tuple[int, int] | None]:
    """Files where a command puts its own: in the folder, and in those in it."""
    return {_identity(str(file)) for pattern in ("*", "*/*") for file in Path(folder).glob(pattern)}
