"""Reading and writing the JSON documents, plain or compressed, without surprises."""

from __future__ import annotations

import errno
import gzip
import json
import math
import os
import re
import secrets
import signal
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pydantic_core
from pydantic import BaseModel

from wattsched.instances.errors import InputError, UnreadableError
from wattsched.reading.inputs import (
    BYTES_PER_MB,
    NO_ROOM,
    VALUES_PER_MB,
    json_in,
    json_values,
    open_file,
    read_text,
    text_of,
    without_control,
)
from wattsched.topology.columns import RecordColumns

ALWAYS_WRITTEN = ("format", "objective")
"""Fields that are written even where they have their default, which another version may not share."""

OPENED = {"format", "result"}
"""Fields of documents, and of what holds one: documents within others have their format, too."""

PARQUET = ".parquet"
"""Suffix of the names of Parquet files."""

_MOST_LINKS = 40
"""Links in a path, as Linux has it."""

ENDINGS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""Signals that ask a process to end, those of them that the system knows."""


def is_parquet(path: str | Path) -> bool:
    """True if a file begins as Parquet files do; OSError when it cannot be read."""
    with open_file(path) as file:
        return file.read(4) == b"PAR1"


def read_json(path: str | Path) -> Any:
    """Parse a JSON file (UTF-8, compressed with gzip or not) and refuse keys that occur twice.

    An `InputError` if it is no JSON, too large, or cannot be read (`UnreadableError`, an OSError, too).
    """
    source = str(path)
    try:
        return json_in(read_text(path))
    except OSError as error:
        raise UnreadableError(error, source) from None
    except (ValueError, MemoryError) as error:
        raise InputError([str(error) or NO_ROOM], source) from None


def parse_json(content: bytes) -> Any:
    """Parse JSON that is not of a file, under the same limits; NaN and Infinity are refused, too."""
    try:
        return json_in(text_of(content), parse_constant=_not_json)
    except (ValueError, MemoryError) as error:
        raise InputError([str(error) or NO_ROOM]) from None


def write_json(path: str | Path, content: str | BaseModel) -> None:
    """Write a text, or a model by `document_text`, in one step: there is the old file or the new one."""
    text = content if isinstance(content, str) else document_text(content)
    write_atomically(path, text.encode())


def write_atomically(path: str | Path, content: bytes, *, mode: int | None = None) -> None:
    """Write bytes to a file without a name in the folder, flush them to disk, name it.

    Whoever is ended by a signal meanwhile leaves the old file, or the new one, and nothing beside it: a
    signal that asks for the end waits until the file has its name. SIGKILL does not wait, and can leave a
    file of the name ``.*.tmp`` in that moment (at any, where the system knows no files without names). A
    name that ends in ``.gz`` is compressed; equal content gives equal bytes.

    Links of one's own and of the system are followed, and those of other users refused, who could choose by
    them what is overwritten. A file that is there keeps its mode and, where the system allows it, its owner.

    Parameters
    ----------
    mode : int, optional
        Of the file, whoever had which rights before.

    Raises
    ------
    OSError
        As `write_json`.
    """
    path = Path(path)
    if path.suffix == ".gz":
        content = gzip.compress(content, compresslevel=6, mtime=0)
    path = _followed(path)
    before = path.stat() if path.exists() else None
    if before is not None and not stat.S_ISREG(before.st_mode):
        # A device, a pipe; a folder raises here.
        _require_trusted(before, path)
        path.write_bytes(content)
        return
    temporary = path.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        with _nameless(path.parent) or temporary.open("xb") as file:
            file.write(content)
            file.flush()
            if mode is not None:
                os.fchmod(file.fileno(), mode)
            elif before is not None and os.name == "posix":
                with suppress(OSError):
                    os.fchown(file.fileno(), before.st_uid, before.st_gid)
                os.fchmod(file.fileno(), before.st_mode & 0o777)
            os.fsync(file.fileno())
            with _ends_wait():
                if not temporary.exists():
                    # Only so `os.link` follows the link, to the file that has no name so far.
                    os.link(f"/proc/self/fd/{file.fileno()}", temporary, src_dir_fd=file.fileno())
                temporary.replace(path)
    except OSError as error:
        # Nobody has heard of the temporary file's name.
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def _followed(path: Path) -> Path:
    """Return the path with its links resolved; OSError at a link that may not be followed."""
    real, links, parts = Path(path.anchor or os.getcwd()), 0, list(reversed(path.parts[bool(path.anchor) :]))
    while parts:
        part = parts.pop()
        step = real / part
        if part == os.pardir:
            real = real.parent
        elif not step.is_symlink():
            real = step
        else:
            _require_trusted(step.lstat(), step)
            if (links := links + 1) > _MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = Path(os.readlink(step))
            real = Path(target.anchor) if target.anchor else real
            parts += reversed(target.parts[bool(target.anchor) :])
    return real


def _require_trusted(found: os.stat_result, path: Path) -> None:
    """Raise an OSError for a link or pipe that another user made, as `found` tells."""
    if os.name == "posix" and found.st_uid not in (0, os.geteuid()):
        raise OSError(
            errno.EPERM, "another user made this link or pipe, which is not written through", str(path)
        )


@contextmanager
def _ends_wait() -> Iterator[None]:
    """Let signals that ask for the end wait; only the main thread, where Python handles them, can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []
    before = {
        one: signal.signal(one, lambda number, _: came.append(number))
        for one in ENDINGS
        if signal.getsignal(one) is not None  # not Python's, which could not be put back
    }
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
        for number in came:
            signal.raise_signal(number)


def _nameless(folder: Path) -> BinaryIO | None:
    """File in a folder that goes away with whoever writes it; None where the system has no such files."""
    if not hasattr(os, "O_TMPFILE") or not os.path.isdir("/proc/self/fd"):
        return None
    try:
        return os.fdopen(os.open(folder, os.O_TMPFILE | os.O_WRONLY, 0o666), "wb")
    except OSError:
        # If it is for another reason, opening a file with a name will tell.
        return None


def csv_text_cell(text: str) -> str:
    """Text for a cell of a CSV file: control characters escaped, an apostrophe before what would run.

    Spreadsheets run what begins as a formula does; terminals obey control characters. What has apostrophes
    before a formula gets one more, so that `inputs.Row.text` finds every name as it was.
    """
    text = without_control(text)
    if not re.match("'*[=+@-]", text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def document_text(model: BaseModel) -> str:
    """JSON of a model, one entry of its lists and mappings per line, without the defaults."""
    return _laid_out(model, depth=2) + "\n"


def needed_mb(text: str) -> int:
    """Megabytes that `inputs.MOST_MB_VARIABLE` has to allow before a document of this text is read."""
    return math.ceil(max(len(text.encode()) / BYTES_PER_MB, json_values(text) / VALUES_PER_MB))


def _not_json(constant: str) -> float:
    raise ValueError(f"is not valid JSON: {constant} is no number of it")


def _laid_out(value: Any, depth: int, indent: str = "") -> str:
    """Open objects down to `depth`, and the lists and mappings in them, onto lines of their own."""
    inner = indent + " "
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        if depth <= 0 and not fields.keys() & OPENED:
            return value.model_dump_json(exclude_defaults=True)
        lines = [
            f"{json.dumps(name)}: {_laid_out(item, depth - 1, inner)}"
            for name, item in value
            if name in ALWAYS_WRITTEN or item != fields[name].get_default(call_default_factory=True)
        ]
        return _braces(lines, "{}", indent)
    if isinstance(value, RecordColumns):
        value = value.document()
    if isinstance(value, dict):
        lines = [f"{json.dumps(key)}: {_laid_out(item, 0)}" for key, item in value.items()]
        return _braces(lines, "{}", indent)
    if isinstance(value, list) and value and isinstance(value[0], BaseModel):
        return _braces([_laid_out(item, 0, inner) for item in value], "[]", indent)
    return pydantic_core.to_json(value).decode()


def _braces(lines: list[str], pair: str, indent: str) -> str:
    """Lines, indented by one more, within the braces of a pair such as ``{}``."""
    if not lines:
        return pair
    body = ",\n".join(f"{indent} {line}" for line in lines)
    return f"{pair[0]}\n{body}\n{indent}{pair[1]}"
