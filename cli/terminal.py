"""How text reaches a person: tables without boxes, colours only where a terminal wants them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from wattsched.cli.failures import printable

LONGEST_NAME = 28
NARROWEST = 72

Justify = Literal["left", "right"]


def console(*, stderr: bool = False) -> Console:
    """Console that shows text as it is: names in a file are no markup."""
    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    # Below this a table says nothing any more; let the terminal break the lines.
    made.width = max(made.width, NARROWEST)
    return made


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Say on standard error what takes so long, while it takes, on a terminal only."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(Text(printable(what))):
        yield


def heading(out: Console, title: str, note: str = "") -> None:
    """Print the title of a section."""
    out.print()
    line(out, (title, "bold"), (f"  {note}" if note else "", "dim"))


def line(out: Console, *parts: str | tuple[str, str], indent: int = 0) -> None:
    """Print one paragraph of text, parts with a style as pairs."""
    text = Text.assemble(*(printable(p) if isinstance(p, str) else (printable(p[0]), p[1]) for p in parts))
    _print(out, text, indent)


def table(
    out: Console,
    columns: Sequence[tuple[str, Justify]],
    rows: Sequence[Sequence[str]],
    *,
    header: bool = True,
) -> None:
    """Print rows under column titles; columns in which no row has anything are left out.

    Where the width is short, the last column gives way; the first one, which names the row, hardly ever.
    """
    if not rows:
        return
    used = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    grid = Table(box=None, show_header=header, header_style="dim", pad_edge=False, padding=(0, 2, 0, 0))
    for i in used:
        title, justify = columns[i]
        longest = max(len(title), *(len(row[i]) for row in rows))
        name = i == used[0]
        grid.add_column(
            Text(title),
            justify=justify,
            overflow="fold",
            no_wrap=not name and i != used[-1],
            min_width=min(longest, LONGEST_NAME) if name else None,
        )
    for row in rows:
        grid.add_row(*(Text(printable(row[i])) for i in used))
    _print(out, grid, indent=2)


def _print(out: Console, content: RenderableType, indent: int) -> None:
    """Print without the blanks that rich leaves at the ends of lines."""
    for segments in out.render_lines(Padding(content, (0, 0, 0, indent)), pad=False):
        text = Text.assemble(*((segment.text, segment.style or "") for segment in segments))
        text.rstrip()
        out.print(text, soft_wrap=True)


def bar(share: float, width: int = 10) -> str:
    """Share as a bar of that many characters."""
    full = round(max(0.0, min(1.0, share)) * width)
    return "█" * full + "░" * (width - full)
