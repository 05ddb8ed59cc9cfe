"""What plots of replays have in common, with matplotlib (``pip install 'wattsched[plot]'``)."""

from __future__ import annotations

import io
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from wattsched.instances.io import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Pattern = Literal["-", "--", ":", "-."]

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
"""Colours that the colour-blind tell apart (Okabe and Ito 2008, without yellow)."""
PATTERNS: tuple[Pattern, ...] = ("-", "--", ":", "-.")


class Look(NamedTuple):
    """Colour and pattern of a line."""

    color: str
    linestyle: Pattern

    @classmethod
    def of(cls, number: int) -> Look:
        """Look of the line of a number; the first 28 differ."""
        return cls(COLOURS[number % len(COLOURS)], PATTERNS[number // len(COLOURS) % len(PATTERNS)])


def tidy(parts: Iterable[Axes]) -> None:
    """Give axes a light grid, and no frame above and on the right."""
    for axes in parts:
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
        axes.margins(x=0.01)


def save(figure: Figure, path: str | Path) -> None:
    """Write a figure to a file in one step, in the format of its ending."""
    # No date, so that equal plots are equal files.
    metadata = {"Date": None} if str(path).endswith(".svg") else None
    content = io.BytesIO()
    figure.savefig(content, format=Path(path).suffix[1:] or None, dpi=120, metadata=metadata)
    write_atomically(path, content.getvalue())
