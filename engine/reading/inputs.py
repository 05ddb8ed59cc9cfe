"""Limits on what files bring in: bytes as they are expanded, text and JSON; how it is echoed."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import re
import stat
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

MOST_MB_VARIABLE = "WATTSCHED_INPUT_MB"
MOST_MB = 50
"""Most megabytes of a file once decompressed; instances of 100,000 jobs have 7 to 18, public traces 8."""
BYTES_PER_MB = 1_000_000
MOST_RATIO, FREE_BYTES = 100, 1_000_000
"""Highest compression ratio of a file, checked beyond so many bytes; real files reach 20 to 1."""
VALUES_PER_MB = 60_000
"""Most JSON fields and list entries per megabyte allowed; 100,000 jobs have 0.4 to 1.4 million in all."""
KEYS_PER_MB = 10_000
"""Most keys in one JSON object per megabyte allowed; no field takes so many."""
MOST_DIGITS = 19
DEEPEST = 200
"""Lists and objects within each other; documents have ten."""
ROWS_PER_MB = 20_000
MOST_COLUMNS = 10_000
LONGEST_LINE = 1_800
"""Characters of a fault, in which the columns of a table of zones fit."""
LONGEST_CELL = 200
"""Characters of a cell that is read, as of names in documents."""
CONTROL = r"\x00-\x1f\x7f-\x9f"
"""Characters that no name may have, as a part of a regular expression: they steer terminals, or end texts."""
MOST_NAMED = 24
"""Columns that a message lists."""
COMPANIONS = ("oracle_pair_throughputs.json", "simulation_throughputs.json")
"""Tables that are read beside Gavel's lists: of jobs on one GPU, and on all that they ask for."""

NO_ROOM = "does not fit into memory"
_TOO_DEEP = "is nested too deeply to be a document"
NO_FILE = "is no regular file, but a pipe, a socket or a device"

UNKNOWN = frozenset(
    [2**32 - 2, 2**32 - 1, 2**64 - 2, 2**64 - 1, 2**64, 2**63]
    + [blank + why for blank in (2**31 - 16, 2**47, 2**63 - 16) for why in range(4)]
)
"""Numbers that stand for none: Slurm's NO_VAL and INFINITE of 32 and 64 bits, and DCGM's blanks of integers
and doubles (blank, not found, not supported, not permitted); also as doubles."""
_YAML = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:---\s|%YAML|(?:- )?[A-Za-z_]\w*:(?:\s|\Z))")

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class NoticeWarning(UserWarning):
    """Something that the caller should know about an answer; the command line says it in a line."""


def notice(told: str) -> None:
    """Give a `NoticeWarning`, at the place from which the one who tells it was called."""
    warnings.warn(told, NoticeWarning, stacklevel=3)


@contextmanager
def naming(file: str | Path) -> Iterator[None]:
    """Name the file in what is wrong with it, a ValueError."""
    try:
        yield
    except ValueError as error:
        told = echo(error, "", LONGEST_LINE)
        joint = ", " if told.startswith("line ") else ": "
        raise ValueError(told if names_file(told, str(file)) else f"{file}{joint}{told}") from None


def names_file(message: str, file: str) -> bool:
    """True if a message names a file: at its beginning or, unless the name is a mere word, anywhere."""
    begins = message.startswith(tuple(f"{file}{end}" for end in ":, "))
    return begins or (not file.isalnum() and file in message)


class TooLargeError(ValueError):
    """A file that would take more memory than it may."""

    def __init__(self, message: str):
        super().__init__(f"{message}; {MOST_MB_VARIABLE}={2 * most_mb()} would allow twice as much")


def most_mb() -> int:
    """Megabytes that a file may have after decompression; a ValueError for a variable that says no number."""
    asked = os.environ.get(MOST_MB_VARIABLE, str(MOST_MB))
    if not re.fullmatch("[0-9]{1,7}", asked) or not int(asked):
        message = "must be a whole number of megabytes, from 1 to 9999999"
        raise ValueError(f"the environment variable {MOST_MB_VARIABLE} {message}, got {echo(asked)}")
    return int(asked)


def number_in(text: str) -> float:
    """Number as CSV files write it, in ASCII digits and without separators of thousands.

    A ValueError if it is none, or another notation of Python's.
    """
    if not text.isascii() or "_" in text:
        raise ValueError(f"{echo(text)} is not a number in digits 0 to 9")
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{echo(text)} is not a number") from None


@contextmanager
def open_file(path: str | os.PathLike[str]) -> Iterator[io.BufferedReader]:
    """Open a regular file for its bytes; a pipe or device, which might never end, is an OSError."""
    # A regular file does not change by it, and nobody waits for whoever writes into a pipe.
    mode = getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | mode)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, NO_FILE, str(path))
        yield file


def read_bytes(path: str | Path) -> bytes:
    """Bytes of a file, compressed or not; a ValueError, without its name, if it is damaged or too large."""
    most = most_mb() * BYTES_PER_MB
    content = bytearray()
    with open_file(path) as file:
        compressed = file.peek(2).startswith(_GZIP_MAGIC)
        stream: BinaryIO | gzip.GzipFile = gzip.GzipFile(fileobj=file) if compressed else file
        try:
            while chunk := stream.read(_CHUNK):
                content += chunk
                if len(content) > most:
                    raise TooLargeError(f"is larger than {most:,} bytes after decompression")
                if compressed and len(content) > max(FREE_BYTES, MOST_RATIO * file.tell()):
                    raise ValueError(f"is compressed more than {MOST_RATIO} to 1, as no real file is")
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"is a damaged gzip file: {error}") from None
    return bytes(content)


def read_text(path: str | Path) -> str:
    """Text of a file in UTF-8, with or without a byte order mark; errors as `read_bytes` and `text_of`."""
    return text_of(read_bytes(path))


def text_of(content: bytes) -> str:
    """Text of bytes in UTF-8, with or without a byte order mark; a ValueError for what is no text."""
    require_text(content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise ValueError(f"line {line}: is not UTF-8 text: byte {error.start} is 0x{byte:02x}") from None


def require_text(content: bytes) -> None:
    """Refuse bytes that are text in another encoding, or none, by a ValueError."""
    head = content[:4]
    if head.startswith((b"\xff\xfe", b"\xfe\xff")) or (b"\0" in head and b"{" in head):
        raise ValueError("is UTF-16 or UTF-32 text; save it as UTF-8")
    if (nul := content.find(0)) >= 0:
        raise ValueError(f"is a binary file, not text: byte {nul} is 0")


def json_values(text: str) -> int:
    """Fields and entries of lists, commas and brackets in names among them."""
    return sum(map(text.count, ",[{"))


def json_in(text: str, parse_constant: Callable[[str], float] = float) -> Any:
    """Parse JSON within the limits, and refuse keys that occur twice.

    Parameters
    ----------
    parse_constant : callable
        Makes numbers of NaN, Infinity and -Infinity.

    Raises
    ------
    ValueError
        For what is no JSON, too large, or nested too deeply.
    """
    if not text or text.isspace():
        raise ValueError("is empty")
    most_megabytes = most_mb()
    most = VALUES_PER_MB * most_megabytes
    # A few bytes become an object of a hundred.
    if json_values(text) > most:
        raise TooLargeError(f"has more than {most:,} fields and entries of lists")
    hook = partial(_without_duplicates, KEYS_PER_MB * most_megabytes)
    try:
        document = json.loads(
            text, object_pairs_hook=hook, parse_int=_whole_number, parse_constant=parse_constant
        )
    except json.JSONDecodeError as error:
        if _YAML.match(text):
            raise ValueError("is YAML, which is not supported: use -o json, or write JSON") from None
        end = ", where the file ends" if error.pos >= len(error.doc.rstrip()) else ""
        what = error.msg.lower().removesuffix(" at")
        place = f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"is not valid JSON: {what} at {place}{end}") from None
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except MemoryError:
        raise ValueError(NO_ROOM) from None
    if _nested_beyond(DEEPEST, document):
        raise ValueError(_TOO_DEEP)
    return document


def _nested_beyond(most: int, document: Any) -> bool:
    """True if lists and objects are nested deeper than that: newer versions of Python read such documents."""
    level = [document] if isinstance(document, dict | list) else []
    for _ in range(most):
        parts = (outer.values() if isinstance(outer, dict) else outer for outer in level)
        level = [inner for part in parts for inner in part if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def _without_duplicates(most: int, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Object of JSON from its keys and values, of which there may be `most`, no key twice."""
    if len(pairs) > most:
        raise TooLargeError(f"has an object of more than {most:,} keys")
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError(
            f"an object has the key {echo(first_repeated(key for key, _ in pairs))} more than once"
        )
    return fields


def first_repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


def _whole_number(text: str) -> float:
    """A number beyond 64 bits is no count of anything; what no field takes is told with the field's name."""
    return int(text) if len(text) <= MOST_DIGITS else float(text)


def beside(path: Path, name: str) -> list[Path]:
    """Return the paths at which a file's companion is looked for: in its folder, and the one above."""
    return [path.parent / name, path.parent.parent / name]


def require_once(files: Sequence[str | Path]) -> None:
    """Refuse a file that is named twice, under whatever names; a ValueError."""
    for number, file in enumerate(files):
        if any(os.path.realpath(file) == os.path.realpath(other) for other in files[:number]):
            raise ValueError(f"{file}: the file is named twice")


def printable(text: str) -> str:
    """Text on one line without what steers a terminal or turns what follows around, which names may hold."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def without_control(text: str) -> str:
    """Text in which control characters are escaped."""
    return re.sub(f"[{CONTROL}]", lambda found: found[0].encode("unicode_escape").decode(), text)


def echo(text: object, quote: str = "'", most: int = 60) -> str:
    """Quote a text from a file in a message: printable, and cut to a length that can be read."""
    whole = str(text)
    shown = f"{quote}{printable(whole[:most])}{quote}"
    return shown if len(whole) <= most else f"{shown}..."


def meant(name: object, known: Iterable[str]) -> str:
    """Suggest the known name nearest to an unknown one, as part of a message; empty if none is near."""
    from difflib import get_close_matches

    spelt = {one.lower(): one for one in known}
    # Of long names nothing is near, and to compare them takes its time.
    near = get_close_matches(str(name)[:80].lower(), [*spelt], n=1)
    return f" (did you mean '{spelt[near[0]]}'?)" if near else ""


def listed(names: Iterable[str], quote: str = "'", most: int = 8) -> str:
    """Names in a message, the first ones and a count when there are many."""
    names = list(names)
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(echo(name, quote) for name in names[:most]) + more
