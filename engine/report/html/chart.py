"""Lines and points over two axes as inline SVG, which matplotlib draws."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from markupsafe import Markup

from wattsched.report.wording import printable

_SIZE_IN = (8.0, 3.6)
_INK = "#010101"
"""Black that is written down, as black itself is not: both, as limits, have the colour of the page's text."""


@dataclass(frozen=True)
class Series:
    """Points that a line joins; `x` and `y` are finite, and of the same length."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


def chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    points: bool = False,
    mark: tuple[float, float, str] | None = None,
) -> Markup:
    """Draw series over common axes, with a key; a ValueError where there is no point at all.

    With `points` these are drawn, too; `mark` is a point of its own, and what it is.
    """
    if mark is None and not any(len(one.x) for one in series):
        raise ValueError("series: there is no point to draw")
    style, axes = _style(), blank_axes()
    marker = "o" if points else None
    for number, one in enumerate(series):
        color, pattern = style.Look.of(number)
        look = {"color": _INK if color == style.BLACK else color, "linestyle": pattern, "marker": marker}
        axes.plot(one.x, one.y, label=style.literal(one.name), markersize=4, **look)
    if mark is not None:
        x, y, name = mark
        axes.plot([x], [y], "x", color=_INK, label=style.literal(name))
    style.finished(axes, x_label, y_label)
    return picture_of(axes, [one.name for one in series])


def blank_axes() -> Any:
    """Axes of matplotlib that are as wide as a page."""
    return _style().axes_for(None, _SIZE_IN)


def picture_of(axes: Any, names: Sequence[str]) -> Markup:
    """Make a picture of axes in which lines of some names are drawn."""
    label = " ".join(f"{axes.get_ylabel()} against {axes.get_xlabel()}: {', '.join(names)}".split())
    drawn = Markup('<div class="chart" role="img" aria-label="{}" tabindex="0">{}</div>')
    return drawn.format(printable(label), _inline(_style().inline_svg(axes)))


def _style() -> Any:
    return import_module("wattsched.plot.style")  # which only who draws needs


def _inline(svg: str) -> Markup:
    """An SVG file as an element of a page, as wide as that, with names that no other picture has."""
    element = re.sub(r' (width|height)="[\d.]+pt"', "", svg[svg.index("<svg") :], count=2)
    element = re.sub(f"#000000|{_INK}|{_style().LIMIT}", "currentColor", element)
    own = hashlib.sha256(element.encode()).hexdigest()[:12]
    return Markup(re.sub(r'(id="|url\(#|href="#)', rf"\g<1>c{own}-", element))
