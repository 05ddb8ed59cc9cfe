"""How text reaches a person: tables without boxes, colours only where a terminal wants them."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from wattsched.report.wording import printable

if TYPE_CHECKING:
    from rich.progress import Progress

INDENT = 2
GAP = 2
NARROWEST = 72
PAGE = 100
"""Columns of a page that is no terminal."""
NARROWEST_CELL = 8

TIE = "\ue000"
"""Stands for a blank at which no line is broken; rich would break at a no-break space."""

NUMBER_AND_WORD = re.compile(r"(?<!\S)([+-]?[\d,.]*\d) (?=\S)")

Justify = Literal["left", "right"]


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
    """What something prints, as text or as HTML with its colours."""
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


def table(
    out: Console,
    columns: Sequence[tuple[str, Justify]],
    rows: Sequence[Sequence[str]],
    *,
    header: bool = True,
) -> None:
    """Print rows under column titles; columns in which no row has anything are left out.

    Nothing is ever cut. Where a terminal is too narrow, the last column is folded between its words; where
    even that would break a word, the first column, which names the row, gets a line of its own.
    """
    if not rows:
        return
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    shown = [[printable(row[i]) for i in used] for row in rows]
    titles = [columns[i][0] for i in used]
    widths = [max(map(cell_len, column)) for column in zip(*shown, titles, strict=True)]
    justify = [columns[i][1] for i in used]
    room = _room(out, INDENT)
    longest_word = max(len(word) for row in shown for word in row[-1].split(" "))
    fixed = sum(widths[:-1]) + GAP * (len(widths) - 1)
    stacked = room is not None and len(used) > 2 and fixed + min(longest_word, widths[-1]) > room
    for row in [titles, *shown] if header else shown:
        style = "dim" if header and row is titles else ""
        if stacked:
            _print(out, Text(row[0], style), INDENT)
            _print_cells(out, row[1:], widths[1:], justify[1:], style, 2 * INDENT)
        else:
            _print_cells(out, row, widths, justify, style, INDENT)


def _print_cells(
    out: Console, row: list[str], widths: list[int], justify: list[Justify], style: str, indent: int
) -> None:
    """Print one row, its last cell folded where the terminal ends."""
    *cells, last = (
        _aligned(cell, width, side) for cell, width, side in zip(row, widths, justify, strict=True)
    )
    before = "".join(cell + " " * GAP for cell in cells)
    room = _room(out, indent + cell_len(before))
    for i, part in enumerate(_folded(out, Text(last, style), room)):
        _print(out, Text.assemble((before if i == 0 else " " * cell_len(before), style), part), indent)


def _aligned(cell: str, width: int, side: Justify) -> str:
    blanks = " " * (width - cell_len(cell))
    return cell + blanks if side == "left" else blanks + cell


def _room(out: Console, taken: int) -> int | None:
    """Columns that are left on a terminal; a file or a pipe has no end."""
    return max(out.width - taken, NARROWEST_CELL) if out.is_terminal else None


def _folded(out: Console, text: Text, room: int | None) -> Iterable[Text]:
    """Lines of a text, broken between words, but not between a number and its unit."""
    if room is None or text.cell_len <= room:
        return [text]
    text.plain = NUMBER_AND_WORD.sub(rf"\1{TIE}", text.plain)
    lines = text.wrap(out, room, overflow="fold")
    for part in lines:
        part.plain = part.plain.replace(TIE, " ")
    return lines


def _print(out: Console, text: Text, indent: int) -> None:
    """Print one line as it is, without blanks at its end."""
    text = Text.assemble(" " * indent, text)
    text.rstrip()
    out.print(text, soft_wrap=True)


def bar(share: float, width: int = 10) -> str:
    """Share as a bar of that many characters."""
    full = round(max(0.0, min(1.0, share)) * width)
    return "█" * full + "░" * (width - full)
