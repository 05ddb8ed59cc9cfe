"""Failures in readable lines on standard error, and the exit code that goes with each."""

from __future__ import annotations

import errno
import io
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

from wattsched.environment.interrupts import interrupted
from wattsched.reading.inputs import echo, names_file
from wattsched.report.wording import printable

CHECK_FAILED = 1
BAD_INPUT = 2
INFEASIBLE = 3
NO_SOLUTION = 4
ON_TRUST = 5
INTERNAL_ERROR = 70
INTERRUPTED = 130
BROKEN_PIPE = 141

EXIT_CODES = {
    0: "solved or valid",
    CHECK_FAILED: "a check failed",
    BAD_INPUT: "bad usage or bad input",
    INFEASIBLE: "infeasible",
    NO_SOLUTION: "no solution within the limit",
    ON_TRUST: "valid, but on the solver's word",
    INTERNAL_ERROR: "internal error",
    INTERRUPTED: "interrupted (Ctrl-C)",
    BROKEN_PIPE: "nobody reads the output any more",
}
"""All that a command ever ends with, and what each means."""

WRITING = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)

NO_ROOM = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
"""Phrases of the loader for a library for which there is no memory; numpy repeats them among much else."""

ROOM_MIB = 500
"""Address space below which libraries fail while they are loaded: some hang, or end the process."""

DEBUG = "WATTSCHED_DEBUG"
LONGEST_LINE = 1_900
"""Characters of a message; names of files have up to 4,096."""

NOTES = {"FormerNameWarning": "note: ", "NoticeWarning": ""}
"""Prefixes of the warnings for users of a command, by category; other warnings are not for them."""


def exit_code_of(run: Callable[[], Any]) -> int:
    """Run a command; report what it raises, and return the exit code.

    A command returns its exit code, or None for 0.
    """
    if sys.stdout is None:
        # The next file opened would take its place, and be written to by whoever prints.
        return _refuse(["standard output is closed; send it to /dev/null if nobody wants it"])
    try:
        code = run()
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except BaseException as error:  # SystemExit, too, whose code would be anything
        return _exception(error)


def _comes_of_interrupt(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, KeyboardInterrupt | click.Abort):
            return True
        error = error.__cause__ or error.__context__
    return False


def _exception(error: BaseException) -> int:
    """Say in a line what a command raised, and return its exit code."""
    if isinstance(error, BrokenPipeError | ReaderGoneError):
        _forget_output()
        return BROKEN_PIPE
    if _comes_of_interrupt(error) or interrupted():
        _say(["interrupted"])
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return _refuse([_usage(error) if isinstance(error, click.UsageError) else error.format_message()])
    if isinstance(error, OSError):
        _forget_output()
        # Files have names; what fails without one while it writes is standard output.
        name = error.filename or ("standard output" if error.errno in WRITING else "")
        return _refuse([f"{name}: {reason(error)}" if name else reason(error)])
    # Nothing has been read yet when the module of `InputError` is not loaded.
    errors = sys.modules.get("wattsched.instances.errors")
    if errors is not None and isinstance(error, errors.InputError):
        return _refuse(f"{error.source}: {line}" if error.source else line for line in error.faults)
    if isinstance(error, MemoryError):
        _say([f"error: out of memory: {error}".rstrip(": ")])
        return NO_SOLUTION
    if isinstance(error, ImportError) and any(words in str(error) for words in NO_ROOM):
        _say(["error: out of memory: a library could not be loaded"])
        return NO_SOLUTION
    if os.environ.get(DEBUG):
        traceback.print_exc()
        return INTERNAL_ERROR
    summary = f"{type(error).__name__}: {error}".rstrip(": ")
    _say([f"internal error: {summary}; run again with {DEBUG}=1 for the traceback"])
    return INTERNAL_ERROR


def require_room() -> None:
    """Refuse to begin, with a MemoryError, where ``ulimit -v`` leaves too little for the libraries."""
    try:
        import resource
    except ImportError:  # not on Windows, which has no such limit
        return
    allowed, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= allowed < ROOM_MIB * 2**20:
        told = f"'ulimit -v' allows {allowed // 2**20} MiB of address space"
        raise MemoryError(f"{told}, and every command needs {ROOM_MIB}")


def leave_at_once(code: int) -> None:
    """End the process now if a thread that was given up still runs: it would not let the interpreter end."""
    deadline = sys.modules.get("wattsched.solving.deadline")
    if deadline is not None and deadline.left():
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


class ReaderGoneError(Exception):
    """Nobody reads standard output any more."""


@contextmanager
def noticing_broken_pipes() -> Iterator[None]:
    """Keep a broken pipe from click, which would exit with code 1; that code says that a check failed."""
    try:
        yield
    except BrokenPipeError:
        raise ReaderGoneError from None


class BadInput(click.ClickException):
    """Bad usage or bad input; the message is one readable sentence."""

    exit_code = BAD_INPUT


@contextmanager
def refusing(source: str = "", options: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn what the library raises on bad values and unreadable files into `BadInput`.

    Only for calls that raise ValueError for their input alone; anything else is an internal error.

    Parameters
    ----------
    source : str
        The file that is read, for messages.
    options : mapping, optional
        Names of fields on the command line besides those of the command's parameters: what is wrong with
        ``round_s``, or names it in backticks, is said of ``--round``. With a source, what a message begins
        with is of the file.
    """
    try:
        yield
    except OSError as error:
        name = error.filename or source
        raise BadInput(f"{name}: {reason(error)}" if name else reason(error)) from None
    except ValueError as error:
        names = {**option_names(), **(options or {})}
        told = re.sub(r"`(\w+)`", lambda field: names.get(field[1], field[1]), _message(error))
        if options is not None or not source:
            told = re.sub(r"^\w+(?=: )", lambda field: names.get(field[0], field[0]), told)
        raise BadInput(_from(source, told)) from None


def option_names() -> dict[str, str]:
    """Parameters of the command that runs, and their names on the command line."""
    context = click.get_current_context(silent=True)
    known = [] if context is None else context.command.params
    return {
        one.name: one.opts[0] if isinstance(one, click.Option) else one.human_readable_name
        for one in known
        if one.name is not None
    }


def _from(source: str, message: str) -> str:
    """Message with its file once, as `source` names it; the message may begin with the file's bare name."""
    if names_file(message, source):
        return message
    name = os.path.basename(source)
    begins = re.match(rf"{re.escape(name)}[:, ]", message)
    return source + message.removeprefix(name) if begins else f"{source}: {message}"


def _message(error: ValueError) -> str:
    """Message of an error, and in our words that of a validation by pydantic."""
    from pydantic import ValidationError

    if not isinstance(error, ValidationError):
        return str(error)
    from wattsched.instances.errors import lines_of

    return "; ".join(lines_of(error, None))


def reason(error: OSError) -> str:
    """Return the reason of the operating system, in lower case like the other messages."""
    return (error.strerror or str(error)).lower()


def readable_streams() -> None:
    """Let a terminal that knows only ASCII show names in any script, escaped, instead of failing on them.

    A standard error that is closed takes everything and keeps nothing.
    """
    if sys.stderr is None:
        sys.stderr = io.StringIO()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def telling_notices() -> Iterator[None]:
    """Say each notice once, in one line: what is called otherwise now, or what `solve` wants to be known."""
    told = set[str]()

    def tell(message: Warning | str, category: type[Warning], *where: object, **more: object) -> None:
        if category.__name__ in NOTES and str(message) not in told:
            told.add(str(message))
            _say([NOTES[category.__name__] + str(message)])

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = tell
        yield


@contextmanager
def noticed() -> Iterator[list[str]]:
    """Yield a list that gathers the notices of this context; they are said as always."""
    lines, say = list[str](), warnings.showwarning

    def gather(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
        if category.__name__ == "NoticeWarning":
            lines.append(str(message))
        say(message, category, *where, **more)

    with warnings.catch_warnings():
        warnings.showwarning = gather
        yield lines


def _usage(error: click.UsageError) -> str:
    """Message of click in our style, with a hint at the command's help."""
    message = error.format_message().rstrip(".").replace("\n", " ")
    hint = f"; see '{error.ctx.command_path} --help'" if error.ctx is not None else ""
    return message[:1].lower() + message[1:] + hint


def _refuse(lines: Iterable[str]) -> int:
    _say([f"error: {line}" for line in lines])
    return BAD_INPUT


def _say(lines: Iterable[str]) -> None:
    # Where nobody listens on standard error either, the exit code has to do.
    with suppress(OSError):
        for line in lines:
            click.echo(printable(echo(line, quote="", most=LONGEST_LINE)), err=True)


def _forget_output() -> None:
    """Drop what standard output could not take, or the interpreter would complain about it at exit."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
