"""Text for a terminal: tables without boxes, colours only where a terminal wants them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from wattsched.report.wording import listed, printable

if TYPE_CHECKING:
    from rich.progress import Progress

INDENT = 2
GAP = 2
NARROWEST = 72
PAGE = 100
"""Columns of a page that is no terminal."""
NARROWEST_CELL = 8


def rest_in(instance: object) -> str:
    """Say where unprinted rows are: `solve`, which prints with the instance, has options for it."""
    return ", all are in the JSON" if instance is None else ", use --json or -o"


TIE = "\ue000"
"""Stands for a blank at which no line is broken; rich would break at a no-break space."""

NUMBER_AND_WORD = re.compile(r"(?<!\S)([+-]?[\d,.]*\d) (?=\S)")

Cell = str | tuple[str, str] | Text
"""Text, with a style or without."""

Told = tuple[str, str, list[str], list[list[str]]]
"""A table in words: title, note, column titles (``>`` before those of numbers) and rows."""


class _PipeConsole(Console):
    """Console that leaves a reader who has gone to `failures.exit_code_of`."""

    def on_broken_pipe(self) -> None:
        """Raise again, where rich would exit with code 1."""
        raise BrokenPipeError


def console(*, stderr: bool = False) -> Console:
    """Console that shows text as it is: names in a file are no markup."""
    made = _PipeConsole(stderr=stderr, highlight=False, markup=False, emoji=False)
    # Below this a table says nothing any more; let the terminal break the lines.
    made.width = max(made.width, NARROWEST)
    return made


def recorded(show: Callable[[Console], None], *, html: bool = False) -> str:
    """Return what a function prints, as text or as HTML with its colours."""
    out = Console(file=io.StringIO(), record=True, highlight=False, markup=False, emoji=False, width=PAGE)
    show(out)
    if html:
        return out.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
    return out.export_text()


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on standard error what takes so long, while it takes, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(Text(printable(what))):
        yield


@contextmanager
def counted_progress() -> Iterator[Progress | None]:
    """Bar on standard error that counts tasks, None where that is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        MofNCompleteColumn(),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        yield bar


def heading(out: Console, title: str, note: str = "") -> None:
    """Print the title of a section."""
    out.print()
    line(out, (title, "bold"), (f"  {note}" if note else "", "dim"))


def line(out: Console, *parts: str | tuple[str, str], indent: int = 0) -> None:
    """Print one paragraph of text, parts with a style as pairs."""
    text = Text.assemble(*(printable(p) if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts))
    for part in _folded(out, text, _room(out, indent)):
        _print(out, part, indent)


def print_skipped(out: Console, skipped: Mapping[tuple[str, str], Sequence[str]]) -> None:
    """Print which instances were skipped, by formulation with solver and by reason."""
    for (pair, why), instances in skipped.items():
        line(out, (f"skipped: {pair} on {listed(instances)}: {why}", "dim"))


def table(
    out: Console,
    columns: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    *,
    header: bool = True,
    most: int | None = None,
    beyond: int = 0,
    hint: str = "",
    gives_way: Sequence[str] = (),
) -> None:
    """Print rows under column titles; columns in which no row has anything are left out.

    No cell is ever cut. Where a terminal is too narrow, the last column is folded between its words; where
    even that would break a word, the first column, which names the row, gets a line of its own; and where
    that does not help, the columns go into several tables, each with the first one.

    Parameters
    ----------
    columns : sequence of str
        Titles, with ``>`` before those of columns that are aligned on the right.
    rows : sequence of sequences of cells
        A row of one cell is a heading for those below it.
    most : int, optional
        Print these many rows and count the others (default: all).
    beyond : int
        How many rows there are besides; nothing is said of none.
    hint : str
        Where these are found.
    gives_way : sequence of str
        Titles of columns that are left out, one after the other, where the terminal is too narrow.
    """
    shown = [[_text(cell) for cell in row] for row in rows[:most]]
    beyond += len(rows) - len(shown)
    titles = [Text(title.removeprefix(">"), "dim") for title in columns]
    full = [titles, *(row for row in shown if len(row) == len(columns))]
    room = _room(out, INDENT)
    used = [i for i in range(len(columns)) if any(row[i].plain for row in full[1:])]
    widths = [max(row[i].cell_len for row in full) for i in range(len(columns))]
    for title in gives_way:
        if room is not None and _width(used, widths) > room:
            used = [i for i in used if titles[i].plain != title]
    if not used:
        return
    stacked, parts = _laid_out(used, widths, full, room)
    for number, part in enumerate(parts):
        if number:
            out.print()
        for row in [titles, *shown] if header else shown:
            if len(row) < len(columns):
                _print(out, row[0], 0)
                continue
            if stacked:
                _print(out, row[used[0]], INDENT)
            cells = [(row[i], widths[i], columns[i].startswith(">")) for i in part]
            _print_cells(out, cells, 2 * INDENT if stacked else INDENT)
    if beyond > 0:
        line(out, (f"... {beyond:,} more{hint}", "dim"), indent=INDENT)


def _laid_out(
    used: list[int], widths: list[int], rows: list[list[Text]], room: int | None
) -> tuple[bool, list[list[int]]]:
    """Choose whether the first column stands on lines of its own, and the columns of each table."""
    if room is None or len(used) <= 2:
        return False, [used]
    first, last = used[0], used[-1]
    words = [word for row in rows for word in _tied(row[last].plain).split(" ")]
    folded = [*widths[:last], min(widths[last], max(map(cell_len, words))), *widths[last + 1 :]]
    if _width(used, folded) <= room:
        return False, [used]
    if _width(used[1:], folded) + INDENT <= room:
        return True, [used[1:]]
    parts = [[first]]
    for i in used[1:]:
        if len(parts[-1]) > 1 and _width([*parts[-1], i], folded) > room:
            parts.append([first])
        parts[-1].append(i)
    return False, parts


def _width(columns: Sequence[int], widths: list[int]) -> int:
    return sum(widths[i] for i in columns) + GAP * (len(columns) - 1)


def _text(cell: Cell) -> Text:
    if isinstance(cell, Text):
        return cell
    return Text(printable(cell)) if isinstance(cell, str) else Text(printable(cell[0]), cell[1])


def _print_cells(out: Console, cells: list[tuple[Text, int, bool]], indent: int) -> None:
    """Print one row, its last cell folded where the terminal ends."""
    *before, (last, width, right) = cells
    row = Text()
    for cell, size, on_right in before:
        row += _aligned(cell, size, on_right) + Text(" " * GAP)
    room = _room(out, indent + row.cell_len)
    width = width if room is None else min(width, room)
    for i, part in enumerate(_folded(out, last, room)):
        part = _aligned(part, width, right)
        _print(out, (row if i == 0 else Text(" " * row.cell_len)) + part, indent)


def _aligned(cell: Text, width: int, right: bool) -> Text:
    blanks = Text(" " * (width - cell.cell_len))
    return blanks + cell if right else cell + blanks


def _room(out: Console, taken: int) -> int | None:
    """Columns that are left on a terminal; a file or a pipe has no end."""
    return max(out.width - taken, NARROWEST_CELL) if out.is_terminal else None


def _folded(out: Console, text: Text, room: int | None) -> Iterable[Text]:
    """Lines of a text, broken between words, but not between a number and its unit."""
    if room is None or text.cell_len <= room:
        return [text]
    text.plain = _tied(text.plain)
    lines = text.wrap(out, room, overflow="fold")
    for part in lines:
        part.plain = part.plain.replace(TIE, " ")
    return lines


def _tied(text: str) -> str:
    """Text in which no blank stands between a number and its unit."""
    return NUMBER_AND_WORD.sub(rf"\1{TIE}", text)


def _print(out: Console, text: Text, indent: int) -> None:
    """Print one line as it is, without blanks at its end."""
    text = Text(" " * indent) + text
    text.rstrip()
    out.print(text, soft_wrap=True)


def bar(share: float) -> str:
    """Share as a bar of ten characters."""
    full = round(10 * max(0.0, min(1.0, share)))
    return "█" * full + "░" * (10 - full)
