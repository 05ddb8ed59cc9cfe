"""Style of plots: colours that the colour-blind tell apart, axes, legends, units of time, files."""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from wattsched.environment.extras import missing
from wattsched.instances.errors import require
from wattsched.instances.io import write_atomically
from wattsched.instances.units import S_PER_DAY, S_PER_H
from wattsched.reading.arguments import require_types
from wattsched.reading.inputs import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:
    # Signatures are read at run time, where matplotlib may be missing.
    Axes = Figure = Any

Pattern = str | tuple[int, tuple[int, ...]]

BLUE, VERMILION, GREEN, SKY, BLACK, YELLOW = "#0072B2", "#D55E00", "#009E73", "#56B4E9", "#000000", "#F0E442"
COLOURS = (BLUE, VERMILION, GREEN, SKY, BLACK)
"""Colours of lines: from the palette of Okabe and Ito (2008), those that stay apart without one cone."""
FILLS = (BLUE, VERMILION, GREEN, SKY, YELLOW)
"""Colours of areas: yellow, too pale for lines, instead of black, in which a name is hard to read."""
LIMIT = "#404040"
"""Colour of caps and budgets."""
NEUTRAL = "#BBBBBB"
"""Colour of GPUs that nobody may use, and of what is not stated."""
FAINT = "#E6E6E6"
"""Colour of lines between GPUs and nodes, which only guide the eye."""
PATTERNS: tuple[Pattern, ...] = (
    "-", "--", ":", "-.", (0, (6, 1)), (0, (1, 3)), (0, (4, 1, 1, 1, 1, 1)), (0, (8, 2, 3, 2)),
)  # fmt: skip
HATCHES = ("", "///", "...", "xxx", "\\\\\\")

SIZE_IN = (6.4, 3.8)
HANDLE_IN, CHARACTER_IN, LINE_IN = 0.48, 0.068, 0.17
"""Width of an entry of a legend without its name, and of a character, and height of a line, about."""
LETTER_IN = 0.072
"""Width of a character of a label."""
LEGEND: dict[str, Any] = {"frameon": False, "fontsize": "small", "columnspacing": 1.2}


class Look(NamedTuple):
    """Colour and pattern of a line."""

    color: str
    linestyle: Pattern

    @classmethod
    def of(cls, number: int) -> Look:
        """Look of the line of a number; the first 40 differ."""
        turn = number // len(COLOURS)
        return cls(COLOURS[number % len(COLOURS)], PATTERNS[turn % len(PATTERNS)])


class Fill(NamedTuple):
    """Colour and hatch of an area."""

    facecolor: str
    hatch: str

    @classmethod
    def of(cls, number: int) -> Fill:
        """Fill of the areas of a number; the first 25 differ."""
        turn = number // len(FILLS)
        return cls(FILLS[number % len(FILLS)], HATCHES[turn % len(HATCHES)])

    @property
    def ink(self) -> str:
        """Colour of a text on it, black or white, whichever has more contrast."""
        return "white" if self.facecolor == BLUE else "black"


def axes_for(ax: Axes | None, size_in: tuple[float, float] = SIZE_IN) -> Axes:
    """Give the axes that a plot is drawn into.

    Raises
    ------
    ImportError
        Without matplotlib.
    TypeError
        When `ax` is anything else than axes or None.
    """
    if message := missing("plot"):
        raise ImportError(f"plots need {message}")
    from matplotlib import axes
    from matplotlib.figure import Figure

    require("ax", ax, (axes.Axes, type(None)), "axes of matplotlib, or None")
    return Figure(figsize=size_in, layout="constrained").subplots() if ax is None else ax


def tidy(axes: Axes) -> None:
    """Give axes a light grid, and no frame above and on the right."""
    axes.grid(alpha=0.3)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def logarithmic(axes: Axes) -> None:
    """Make the lower axis logarithmic, with plain numbers, also between powers of ten where these are few."""
    from matplotlib.ticker import LogFormatter, StrMethodFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))


def size_in(axes: Axes) -> tuple[float, float]:
    """Width and height of axes, in inches, as far as the layout is known."""
    figure, extent = axes.get_figure(root=True), axes.get_window_extent()
    assert figure is not None
    return extent.width / figure.dpi, extent.height / figure.dpi


def label(axes: Axes, x: str, y: str, *notes: str) -> None:
    """Label both axes with their units, in lines that fit; notes, such as on how many runs, stand below."""
    wide_in, high_in = size_in(axes)
    below = ", ".join(note for note in notes if note)
    axes.set_xlabel("\n".join(wrap(x, int(wide_in / LETTER_IN)) + wrap(below, int(wide_in / LETTER_IN))))
    axes.set_ylabel("\n".join(wrap(y, int(high_in / LETTER_IN))))


def legend(axes: Axes, handles: Sequence[Any] | None = None, title: str | None = None) -> None:
    """Name what is drawn above the axes, or on the right where that takes less of them."""
    if handles is None:
        handles, _ = axes.get_legend_handles_labels()
    if not handles:
        return
    wide_in, high_in = size_in(axes)
    entry_in, columns = _columns(wide_in, [str(handle.get_label()) for handle in handles])
    lines, beside = math.ceil(len(handles) / columns), math.ceil(len(handles) * LINE_IN / high_in)
    shown: dict[str, Any] = {"title": title, "title_fontsize": "small", "alignment": "left"}
    if lines * LINE_IN / high_in <= beside * entry_in / wide_in:
        shown |= {"loc": "lower left", "bbox_to_anchor": (0.0, 1.0), "borderaxespad": 0.2, "ncols": columns}
    else:
        shown |= {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0), "ncols": beside}
    axes.legend(handles=handles, **LEGEND, **shown)


def finished(
    axes: Axes, across: str, up: str, *notes: str, x: float | None = None, y: float | None = None
) -> Axes:
    """Label axes in which all is drawn, with margins of `x` and `y`, tidy them, and name what is in them."""
    tidy(axes)
    axes.margins(x=x, y=y)
    label(axes, across, up, *notes)
    legend(axes)
    return axes


def over_seeds(seeds: int) -> str:
    """Say what lines and bars of several seeds are."""
    return f"mean, least and most of {seeds} seeds" if seeds > 1 else ""


def shared_legend(figure: Figure, parts: Iterable[Axes]) -> None:
    """Put one legend on a figure instead of those of its parts, which name the same."""
    named: dict[str, Any] = {}
    for axes in parts:
        handles, labels = axes.get_legend_handles_labels()
        named |= dict(zip(labels, handles, strict=True))
        if (own := axes.get_legend()) is not None:
            own.remove()
    _, columns = _columns(figure.get_figwidth(), list(named))
    figure.legend(handles=[*named.values()], loc="outside upper left", ncols=columns, **LEGEND)


def _columns(wide_in: float, names: Sequence[str]) -> tuple[float, int]:
    """Width of an entry of a legend, and columns that fit, as equal in length as they can be."""
    entry_in = HANDLE_IN + CHARACTER_IN * max(map(len, names))
    lines = math.ceil(len(names) / max(1, int(wide_in / entry_in)))
    return entry_in, math.ceil(len(names) / lines)


def unit_of_time(longest_s: float) -> tuple[str, float]:
    """Unit in which times up to this one are no small fractions and no large numbers, and its seconds."""
    if longest_s > 3 * S_PER_DAY:
        return "days", S_PER_DAY
    if longest_s > 2 * S_PER_H:
        return "hours", S_PER_H
    return ("minutes", 60.0) if longest_s > 120.0 else ("seconds", 1.0)


def save(axes: Axes | Figure, path: str | Path) -> None:
    """Write a plot to a file in one step, in the format of its ending.

    Parameters
    ----------
    axes : matplotlib axes or figure
        Of axes, the whole figure that they belong to is written.
    path : str or Path
        Such as ``plot.png`` (120 dots per inch), ``plot.svg`` or ``plot.pdf``. Equal plots are equal files.

    Raises
    ------
    TypeError
        For what is neither axes nor a figure.
    ValueError
        For an ending that matplotlib does not know.
    OSError
        When the file cannot be written; an old one is then as it was.
    """
    require_types(save, {"path": path})
    axes_for(None)  # says what is missing
    from matplotlib import axes as axes_module
    from matplotlib.figure import Figure

    require("axes", axes, (axes_module.Axes, Figure), "axes or a figure of matplotlib")
    figure = axes if isinstance(axes, Figure) else axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    kind = Path(path).suffix[1:].lower()
    known = sorted(figure.canvas.get_supported_filetypes())
    if kind not in known:
        raise ValueError(f"path: '{path}' must end in one of {', '.join(known)}")
    write_atomically(path, _written(figure, kind))


def inline_svg(axes: Axes) -> str:
    """SVG of a plot for a page: its text is text, its paper is clear, and it says nothing of who made it."""
    from matplotlib import rc_context

    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.patch.set_visible(False)
    axes.patch.set_visible(False)
    unsaid = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with rc_context({"svg.fonttype": "none"}):
        return _written(figure, "svg", unsaid).decode()


def _written(figure: Figure, kind: str, metadata: dict[str, None] | None = None) -> bytes:
    """Content of a file of a plot; of SVG, which has the text of names, printable."""
    from matplotlib import rc_context

    # No date, and no names at random, so that equal plots are equal files.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "wattsched"}):
        figure.savefig(content, format=kind, dpi=120, metadata=metadata or undated)
    if kind != "svg":
        return content.getvalue()
    return "\n".join(map(printable, content.getvalue().decode().split("\n"))).encode()


def literal(name: str) -> str:
    """Text in which matplotlib finds no formulas."""
    return name.replace("$", r"\$")
