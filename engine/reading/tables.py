"""Rows of CSV files, and their cells, which are converted on demand; faults name file, line and column."""

from __future__ import annotations

import codecs
import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from wattsched.reading.inputs import (
    LONGEST_CELL,
    MOST_COLUMNS,
    MOST_NAMED,
    ROWS_PER_MB,
    TooLargeError,
    echo,
    first_repeated,
    listed,
    most_mb,
    naming,
    notice,
    number_in,
    read_bytes,
    require_text,
    text_of,
    without_control,
)

LARGEST, SMALLEST = 1e12, 1e-12
"""Range of sizes of numbers in tables, but for 0: beyond, sums lose their seconds, and quotients overflow."""
CUT = "doubtful: the last line does not end; the file may be cut"
HEAD_BYTES = 1 << 20
"""Beginning of a file in which the line of its header is looked for."""

ValueT = TypeVar("ValueT")
Read = Callable[[str], float]
_THOUSANDS = re.compile(r"[-+]?(?:\d{1,3}|[1-9]\d{0,2}([.,]\d{3}))(?![\d.,])")
"""Beginning of a cell with a number that may be written with marks for thousands; the group, with one."""
Forms = dict[str, tuple[str | None, str]]
"""Each column has the last number that may have a mark for thousands, empty without one, None if it cannot be
one in all; and its mark of decimals."""
_DECIMALS = re.compile(r"([-+]?\d+)([.,])(\d+)(?![\d.,])")
_COMMENTS = re.compile(rb"\A(?:\xef\xbb\xbf)?((?:#(?: [^\n]*|\r?)\n)+)")
"""Lines before the header of a table that are a number sign, alone or with a blank and a text."""


def csv_lines(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """Lines of a CSV file and their numbers, the header first; empty lines are skipped.

    Cells are separated by commas, or in the header and from there on by semicolons or tabs alone. Comments
    before the header are skipped (`comments_of`). Anything else is a ValueError with the file and line.
    """
    with naming(path):
        yield from _csv_lines(_table_in(path))


def _table_in(path: str | Path) -> bytes:
    """Content of a CSV file, empty lines in place of the comments before its header, so that numbers stay."""
    content = read_bytes(path)
    require_text(content)
    tell_cut(content, path)
    return _COMMENTS.sub(lambda found: b"\n" * found[1].count(b"\n"), content)


def tell_unread(path: str | Path, names: Iterable[str], more: str = "") -> None:
    """Name the columns of a table that are not read, and `more` on them."""
    if found := [*filter(None, names)]:
        notice(f"{path}: not read: the columns {listed(found, most=MOST_NAMED)}{more}")


def tell_cut(content: bytes | str, path: str | Path) -> None:
    """Point at a table whose last line does not end: its last number may be a part of one."""
    if content and content[-1:] not in (b"\n", b"\r", "\n", "\r"):
        notice(f"{path}: {CUT}")


def comments_of(path: str | Path) -> list[str]:
    """Comments before the header of a CSV file, which say where it is from; errors as `read_bytes`."""
    found = _COMMENTS.match(read_bytes(path))
    return [] if found is None else [line[2:].strip() for line in text_of(found[1]).split("\n")[:-1]]


def _csv_lines(content: bytes) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a file's content, a text, as `csv_lines`; its errors do not name the file."""
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
    begin = content[:HEAD_BYTES].removeprefix(codecs.BOM_UTF8).lstrip(b"\r\n")
    header = re.split(rb"[\r\n]", begin, maxsplit=1)[0]
    return next((found for found in ",;\t" if found.encode() in header), ",")


def _require_header(line: int, names: list[str]) -> None:
    """Refuse a header in which a name occurs twice, or that has too many, by a ValueError."""
    if len(names) > MOST_COLUMNS:
        raise ValueError(f"line {line}: {len(names):,} columns, at most {MOST_COLUMNS:,} are read")
    if (name := first_repeated(filter(None, names))) is not None:
        raise ValueError(f"line {line}: the column {echo(name)} occurs twice")


def _with_point(text: str, column: str, forms: Forms) -> str:
    """Return a cell with a point before its decimals; a ValueError where a column has commas, too."""
    (last, mark), found, decimals = forms.get(column, ("", "")), _THOUSANDS.match(text), _DECIMALS.match(text)
    last = None if last is None or not found else text if found[1] else last
    forms[column] = last, mark or (decimals[2] if decimals else "")
    if decimals and mark and decimals[2] != mark:
        raise ValueError(f"{echo(text)} has a '{decimals[2]}', others a '{mark}'")
    return _DECIMALS.sub(r"\1.\3", text, count=1) if decimals else text


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
        try:
            if self.forms is not None and text and read is not text_in:
                text = _with_point(text, column, self.forms)
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


def rows_of(
    path: str | Path, columns: tuple[str, ...], optional: tuple[str, ...] = (), *, tell: bool = False
) -> Iterator[Row]:
    """Rows of a CSV file that has at least these columns; all that are missing are a ValueError.

    `optional` are others that are read, for the message; `tell` names the rest in a notice. Errors of the
    file are those of `csv_lines`.
    """
    with naming(path):
        content = _table_in(path)
        lines = _csv_lines(content)
        _, header = next(lines)
        if missing := [column for column in columns if column not in header]:
            which = f"column {listed(missing)} is" if len(missing) == 1 else f"columns {listed(missing)} are"
            read = listed((*columns, *optional), quote="", most=MOST_NAMED)
            known = f"; read are {read}" if optional else ""
            found = listed(header, most=MOST_NAMED)
            raise ValueError(f"line 1: the {which} missing, found {found}{known}")
        if tell:
            tell_unread(path, (name for name in header if name not in (*columns, *optional)))
        forms: Forms | None = {} if _separator(content) == ";" else None
        for number, cells in lines:
            if cells != header:  # which comes again where files were joined
                yield Row(dict(zip(header, cells, strict=True)), f"{path}, line {number}", forms)
        for column, (text, _) in (forms or {}).items():
            if text:
                told = f"{echo(text)} may be thousands: write 1.5 or 1500"
                raise ValueError(f"{path}, column {echo(column)}: {told}")
