"""A page of a report: its parts, and the HTML file that they become.

Parts are plain values, so that a problem says what is on its page and not how that looks. The file holds
style, script and pictures; it fetches nothing, follows the reader's choice of light or dark, and prints.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Literal

from markupsafe import Markup

from wattsched.environment.extras import missing
from wattsched.environment.version import __version__
from wattsched.report.html.pictures import COLOURS
from wattsched.report.wording import magnitude, printable

Tone = Literal["good", "fair", "bad", ""]
"""Tone in which a verdict is shown."""


@dataclass(frozen=True)
class Figure:
    """One figure: ``power``, ``7.9 kW``, ``of 8 kW``, and which share of it that is, where it is one."""

    label: str
    value: str
    note: str = ""
    share: float | None = None


@dataclass(frozen=True)
class Figures:
    """Figures side by side."""

    title: str
    figures: Sequence[Figure]
    note: str = ""
    kind: str = "figures"


@dataclass(frozen=True)
class Cell:
    """Text of a table, what it is sorted by where that is not the text, and a bar behind it.

    Attributes
    ----------
    bar : float, optional
        From 0 to 1.
    """

    text: str
    order: float | None = None
    bar: float | None = None


@dataclass(frozen=True)
class Row:
    """Cells of a table, and the job that they are about: pictures show where it is."""

    cells: Sequence[Cell]
    job: int | None = None


@dataclass(frozen=True)
class Table:
    """Rows that a reader can sort by any column.

    Attributes
    ----------
    columns : sequence of str
        Titles, with ``>`` before those of numbers.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Row]
    note: str = ""
    kind: str = "table"


def text_table(title: str, note: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Table of texts, without the columns in which no row has anything; amounts are sorted by their size."""
    used = [c for c in range(len(columns)) if any(row[c] for row in rows)]
    number = [column.startswith(">") for column in columns]
    cells = [Row([Cell(row[c], magnitude(row[c]) if number[c] else None) for c in used]) for row in rows]
    return Table(title, [columns[c] for c in used], cells, note)


@dataclass(frozen=True)
class Picture:
    """A picture, which is safe HTML, and what it shows."""

    title: str
    body: Markup
    note: str = ""
    kind: str = "picture"


@dataclass(frozen=True)
class Lines:
    """Sentences, or commands that are to be copied."""

    title: str
    lines: Sequence[str]
    code: bool = False
    note: str = ""
    kind: str = "lines"


Part = Figures | Table | Picture | Lines


@dataclass(frozen=True)
class Page:
    """A whole report.

    Attributes
    ----------
    title, about : str
        What it is about, and its size in words.
    verdict : str
        The one sentence that a reader may take away.
    tone : {"good", "fair", "bad", ""}
    lead : sequence of str
        What proves it, and what else is to be known.
    parts : sequence of Part
    """

    title: str
    about: str
    verdict: str
    tone: Tone = ""
    lead: Sequence[str] = ()
    parts: Sequence[Part] = field(default_factory=list)


_STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def _printable(value: object) -> object:
    """Text without what steers a terminal or turns what follows around, which names may hold."""
    return printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def rendered(page: Page, command: str = "") -> str:
    """The page as an HTML file; its last part is the command that makes it again.

    Raises
    ------
    ImportError
        Where jinja2 is not installed (the extra ``report``).
    """
    if lacking := missing("report"):
        raise ImportError(f"reports need {lacking}")
    from jinja2 import Environment, StrictUndefined

    if command:
        page = replace(page, parts=[*page.parts, Lines("Make it again", [command], code=True)])
    folder = files("wattsched.report.html")
    made = Environment(
        finalize=_printable, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    ).from_string((folder / "page.html.jinja").read_text())
    style, script = (Markup((folder / name).read_text()) for name in ("page.css", "page.js"))
    text = made.render(
        page=page, style=style, script=script, colours=COLOURS, newline=Markup("\n"), version=__version__
    )
    # Pictures have names, too, which are markup already.
    return _STEERING.sub(lambda found: printable(found[0]), text)
