"""Limits on what files bring in: bytes as they are expanded, text, JSON, rows of CSV; how it is echoed."""

from __future__ import annotations

import codecs
import csv
import errno
import gzip
import io
import json
import math
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
from typing import Any, BinaryIO, TypeVar

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
LARGEST, SMALLEST = 1e12, 1e-12
"""Range of sizes of numbers in tables, but for 0: beyond, sums lose their seconds, and quotients overflow."""
COMPANIONS = ("oracle_pair_throughputs.json", "simulation_throughputs.json")
"""Tables that are read beside Gavel's lists: of jobs on one GPU, and on all that they ask for."""

NO_ROOM = "does not fit into memory"
_TOO_DEEP = "is nested too deeply to be a document"
CUT = "doubtful: the last line does not end; the file may be cut"
NO_FILE = "is no regular file, but a pipe, a socket or a device"

ValueT = TypeVar("ValueT")
Read = Callable[[str], float]
Forms = dict[str, str | None]
"""Last number of each column whose point may separate thousands, or empty; None if it cannot in all."""
_THOUSANDS = re.compile(r"[-+]?(?:\d{1,3}|[1-9]\d{0,2}(\.\d{3}))(?![\d.])")
"""Beginning of a cell with a number that may be written with points for thousands; the group, with one."""

_COMMENTS = re.compile(rb"\A(?:\xef\xbb\xbf)?((?:#(?: [^\n]*|\r?)\n)+)")
"""Lines before the header of a table that are a number sign, alone or with a blank and a text."""
_YAML = re.compile(r"\s*(?:#[^\n]*\n\s*)*(?:---\s|%YAML|(?:- )?[A-Za-z_]\w*:(?:\s|\Z))")

_CHUNK = 1 << 20
_GZIP_MAGIC = b"\x1f\x8b"


class NoticeWarning(UserWarning):
    """Something that the caller should know about an answer; the command line says it in a line."""


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
    with open(path, "rb", opener=_without_waiting) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, NO_FILE, str(path))
        yield file


def _without_waiting(path: str, flags: int) -> int:
    """Open without waiting for somebody who writes into a pipe; of a regular file it changes nothing."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


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
    _require_text(content)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
        raise ValueError(f"line {line}: is not UTF-8 text: byte {error.start} is 0x{byte:02x}") from None


def _require_text(content: bytes) -> None:
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
        raise ValueError(f"an object has the key {echo(_repeated(key for key, _ in pairs))} more than once")
    return fields


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


def csv_lines(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Lines of a CSV file and their numbers, the header first; empty lines are skipped.

    Cells are separated by commas, or in the header and from there on by semicolons or tabs alone. Comments
    before the header are skipped (`comments_of`). Anything else is a ValueError with the file and line.
    """
    with naming(path):
        content = read_bytes(path)
        _require_text(content)
        tell_cut(content, path)
        yield from _csv_lines(content)


def tell_cut(content: bytes | str, path: str | Path) -> None:
    """Point at a table whose last line does not end: its last number may be a part of one."""
    if content and content[-1:] not in (b"\n", b"\r", "\n", "\r"):
        warnings.warn(f"{path}: {CUT}", NoticeWarning, stacklevel=3)


def comments_of(path: str | Path) -> list[str]:
    """Comments before the header of a CSV file, which say where it is from; errors as `read_bytes`."""
    found = _COMMENTS.match(read_bytes(path))
    return [] if found is None else [line[2:].strip() for line in text_of(found[1]).split("\n")[:-1]]


def _csv_lines(content: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a file's content, a text, as `csv_lines`; its errors do not name the file."""
    # Empty lines in place of comments, so that line numbers stay.
    content = _COMMENTS.sub(lambda found: b"\n" * found[1].count(b"\n"), content)
    # Decoded on the way: as one string, a table with a single rare character would take four times its size.
    text = io.TextIOWrapper(io.BytesIO(content), "utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=_separator(content), strict=True)
    columns, left, begun = 0, ROWS_PER_MB * most_mb(), 1
    try:
        for cells in reader:
            begun = reader.line_num + 1
            if not cells:
                continue
            if not columns:
                cells, columns = [name.strip() for name in cells], len(cells)
                _require_header(reader.line_num, cells)
            elif len(cells) != columns:
                message = f"{len(cells):,} cells, the header has {columns:,} columns"
                raise ValueError(f"line {reader.line_num}: {message}")
            elif not left:
                raise TooLargeError(f"has more than {ROWS_PER_MB * most_mb():,} rows")
            else:
                left -= 1
            yield reader.line_num, cells
        if not columns:
            raise ValueError("is empty")
    except csv.Error as error:
        if "unexpected end" in str(error):
            raise ValueError(f"line {begun}: a quotation mark opens a cell that does not end") from None
        raise ValueError(f"line {reader.line_num}: {error}") from None
    except UnicodeDecodeError:
        text_of(content)


def _separator(content: bytes) -> str:
    """Return the separator of the header's cells: programs in some languages write semicolons."""
    begin = content[:_CHUNK].removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    header = re.split(rb"[\r\n]", begin, maxsplit=1)[0]
    return next((found for found in ",;\t" if found.encode() in header), ",")


def _require_header(line: int, names: list[str]) -> None:
    """Refuse a header in which a name occurs twice, or that has too many, by a ValueError."""
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"line {line}: {len(names):,} columns, at most {MOST_COLUMNS:,} are read")
    if (name := _repeated(filter(None, names))) is not None:
        raise ValueError(f"line {line}: the column {echo(name)} occurs twice")


def _repeated(names: Iterable[str]) -> str | None:
    """Return the first name that occurs more than once."""
    return next((name for name, times in Counter(names).items() if times > 1), None)


class Row:
    """One row: its cells by column name, converted on demand; `forms` takes how numbers are written."""

    __slots__ = ("cells", "forms", "place")

    def __init__(self, cells: dict[str, str], place: str, forms: Forms | None = None):
        self.cells = cells
        self.place = place
        self.forms = forms

    def read(self, column: str, read: Callable[[str], ValueT]) -> ValueT:
        """Value that `read` makes of a cell; its ValueError is told with the place."""
        text = self.cells[column].strip()
        if self.forms is not None and text and read is not text_in:
            before, found = self.forms.get(column, ""), _THOUSANDS.match(text)
            self.forms[column] = None if before is None or not found else text if found[1] else before
        try:
            return read(text)
        except ValueError as error:
            raise self.fault(column, str(error)) from None

    def text(self, column: str) -> str:
        """Cell as `text_in` reads it."""
        return self.read(column, text_in)

    def number(self, column: str, least: float = 0.0, most: float = LARGEST, read: Read = number_in) -> float:
        """Cell as `bounded` reads it."""
        return self.read(column, lambda cell: bounded(cell, least, most, read))

    def count(self, column: str, least: int = 0, most: int = int(LARGEST)) -> int:
        """Cell as `count_in` reads it."""
        return self.read(column, lambda cell: count_in(cell, least, most))

    def fault(self, column: str, what: str) -> ValueError:
        """Error that says where it is."""
        return ValueError(f"{self.place}, column {echo(column)}: {what}")


def text_in(cell: str) -> str:
    """Return a cell as it stands, without the apostrophe before a formula; it must not be empty."""
    # An apostrophe of `instances.io.csv_text_cell`, which keeps spreadsheets from running the cell.
    value = cell[1:] if re.match("'+[=+@-]", cell) else cell
    if not value:
        raise ValueError("is empty")
    if len(value) > LONGEST_CELL:
        raise ValueError(f"{echo(value)} has more than {LONGEST_CELL} characters")
    if without_control(value) != value:
        raise ValueError(f"{echo(value)} has control characters")
    return value


def bounded(cell: str, least: float = 0.0, most: float = LARGEST, read: Read = number_in) -> float:
    """Finite number of a cell from `least` to `most`, as `read` makes it of the text."""
    value = read(text := text_in(cell))
    if not math.isfinite(value):
        expected = "a finite number"
    elif value < least:
        expected = f"at least {least:g}"
    elif 0 < abs(value) < SMALLEST:
        expected = f"0 or at least {SMALLEST:g}"
    elif value > most:
        expected = f"at most {most:,.0f}"
    else:
        return value
    raise ValueError(f"must be {expected}, got {echo(text, quote='')}")


def count_in(cell: str, least: int = 0, most: int = int(LARGEST)) -> int:
    """Whole number of a cell from `least` to `most`."""
    value = bounded(cell, least, most)
    if value != int(value):
        raise ValueError(f"{echo(text_in(cell))} is not a whole number")
    return int(value)


class Cells:
    """Cells of a row: what is wrong with one is noted, so that every fault of a file is told at once."""

    def __init__(self, row: Row, faults: list[str]):
        self.row, self.faults = row, faults

    def __call__(self, column: str, read: Callable[[str], ValueT], instead: ValueT) -> ValueT:
        """Value that `read` makes of a cell; `instead` for a cell with a fault, which is noted."""
        try:
            return self.row.read(column, read)
        except ValueError as error:
            self.faults.append(str(error))
            return instead

    def optional(self, column: str, read: Callable[[str], ValueT]) -> ValueT | None:
        """Value of a cell that may be empty, or of a column that may be missing."""
        stated = self.row.cells.get(column, "").strip()
        return self(column, read, None) if stated else None

    def fault(self, column: str, what: str) -> None:
        """Note what is wrong with a cell that can be read."""
        self.faults.append(str(self.row.fault(column, what)))


def rows_of(path: str | Path, columns: tuple[str, ...], optional: tuple[str, ...] = ()) -> Iterator[Row]:
    """Rows of a CSV file that has at least these columns; all that are missing are a ValueError.

    `optional` are others that are read, for the message. Errors of the file are those of `csv_lines`.
    """
    lines = csv_lines(path)
    _, header = next(lines)
    if missing := [column for column in columns if column not in header]:
        which = f"column {listed(missing)} is" if len(missing) == 1 else f"columns {listed(missing)} are"
        known = f"; read are {listed((*columns, *optional), quote='', most=MOST_NAMED)}" if optional else ""
        found = listed(header, most=MOST_NAMED)
        raise ValueError(f"{path}, line 1: the {which} missing, found {found}{known}")
    forms: Forms | None = {} if _separator(_COMMENTS.sub(b"", read_bytes(path))) == ";" else None
    for number, cells in lines:
        if cells != header:  # which comes again where files were joined
            yield Row(dict(zip(header, cells, strict=True)), f"{path}, line {number}", forms)
    for column, text in (forms or {}).items():
        if text:
            raise ValueError(
                f"{path}, column {echo(column)}: {echo(text)} may be thousands: write 1.5 or 1500"
            )


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
