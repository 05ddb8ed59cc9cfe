"""Rows of CSV files, plain or compressed, with errors that name line and column."""

from __future__ import annotations

import csv
import gzip
import io
import math
import zlib
from collections.abc import Iterator
from pathlib import Path


class Row:
    """One row: its cells by column name, converted on demand."""

    def __init__(self, cells: dict[str, str], place: str):
        self.cells = cells
        self.place = place

    def text(self, column: str) -> str:
        """Cell as it stands; it must not be empty."""
        value = self.cells[column].strip()
        if not value:
            raise self.fault(column, "is empty")
        return value

    def number(self, column: str, least: float = 0.0) -> float:
        """Cell as a finite number."""
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            raise self.fault(column, f"'{text}' is not a number") from None
        if not math.isfinite(value) or value < least:
            raise self.fault(column, f"must be at least {least:g}, got {text}")
        return value

    def count(self, column: str, least: int = 0) -> int:
        """Cell as a whole number."""
        value = self.number(column, least)
        if value != int(value):
            raise self.fault(column, f"'{self.text(column)}' is not a whole number")
        return int(value)

    def fault(self, column: str, what: str) -> ValueError:
        """Error that says where it is."""
        return ValueError(f"{self.place}, column '{column}': {what}")


def rows_of(path: str | Path, columns: tuple[str, ...]) -> Iterator[Row]:
    """Rows of a CSV file that has at least these columns; empty lines are skipped.

    Raises
    ------
    ValueError
        For a column that is missing or occurs twice, a row of another length, with its line, and for what is
        no text.
    OSError
        When the file cannot be read.
    """
    # Not through `csv.DictReader`: it hides rows that are too long or too short.
    reader = csv.reader(io.StringIO(_text(Path(path)), newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
        for column in header:
            if column and header.count(column) > 1:
                raise ValueError(f"{path}, line 1: the column '{column}' occurs twice")
        for column in columns:
            if column not in header:
                raise ValueError(f"{path}, line 1: the column '{column}' is missing, found {header}")
        for cells in reader:
            place = f"{path}, line {reader.line_num}"
            if not cells:
                continue
            if len(cells) != len(header):
                raise ValueError(f"{place}: {len(cells)} cells, the header has {len(header)} columns")
            yield Row(dict(zip(header, cells, strict=True)), place)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from None


def _text(path: Path) -> str:
    content = path.read_bytes()
    try:
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ValueError(f"{path}, line {line}: is not UTF-8 text") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path}: is a damaged gzip file: {error}") from None
