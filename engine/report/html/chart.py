"""Lines and points over two axes as inline SVG.

A chart is as wide as the page, so that places are in percent of the width, and in pixels from the top: text
and strokes have the same size on a telephone and on a desk.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from wattsched.report.html.pictures import COLOURS
from wattsched.report.wording import number

_HEIGHT = 264
"""Pixels from the top of the picture to its lower axis; the style sheet leaves room for labels around it."""
_TICKS = 8
_DASHES = 4


@dataclass(frozen=True)
class Series:
    """Points that a line joins.

    Attributes
    ----------
    name : str
    x, y : sequences of float
        Finite, of the same length.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True)
class _Axis:
    """Linear map from values to places in the picture."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Place of a value."""
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    @property
    def step(self) -> float:
        """Distance between ticks: a round number, so that there are about `_TICKS` of them."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / _TICKS))
        return step * next(f for f in (1, 2, 5, 10) if (self.high - self.low) / (step * f) <= _TICKS)

    @property
    def ticks(self) -> range:
        """Multiples of the step."""
        first, last = (math.ceil(self.low / self.step - 1e-9), math.floor(self.high / self.step + 1e-9))
        return range(first, last + 1)


def chart(
    series: Sequence[Series],
    x_label: str,
    y_label: str,
    *,
    points: bool = False,
    mark: tuple[float, float, str] | None = None,
) -> Markup:
    """Draw series over common axes, with a key.

    Parameters
    ----------
    points : bool
        Draw the points, too.
    mark : tuple of two floats and a str, optional
        A point of its own, and what it is.

    Raises
    ------
    ValueError
        Where there is no point at all.
    """
    every = [(x, y) for one in series for x, y in zip(one.x, one.y, strict=True)]
    every += [] if mark is None else [mark[:2]]
    if not every:
        raise ValueError("series: there is no point to draw")
    across, up = _axis([x for x, _ in every], 0.0, 100.0), _axis([y for _, y in every], _HEIGHT, 0.0)
    parts = [_grid(across, up, x_label, y_label), _lines(series, across, up)]
    parts += [_points(one, k, across, up) for k, one in enumerate(series) if points]
    if mark is not None:
        x, y, told = mark
        cross = Markup('<svg class="mark" x="{:.2f}%" y="{:.1f}"><title>{}</title><path d="{}"/></svg>')
        parts.append(cross.format(across.at(x), up.at(y), told, "M-5-5 5 5M-5 5 5-5"))
    label = f"{y_label} against {x_label}: {', '.join(one.name for one in series)}"
    drawn = Markup('<div class="chart"><svg role="img" aria-label="{}" height="{}">{}</svg></div>{}')
    return drawn.format(label, _HEIGHT, Markup("").join(parts), _key(series, mark))


def _axis(values: Sequence[float], begin: float, end: float) -> _Axis:
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    return _Axis(low - room, high + room, begin, end)


def _grid(across: _Axis, up: _Axis, x_label: str, y_label: str) -> Markup:
    """Axes with their names; narrow pages hide every second tick."""
    line = Markup('<line class="axis" x2="100%" y1="{0:.1f}" y2="{0:.1f}"/>')
    value = Markup('<text class="up" x="-6" y="{:.1f}" dy="4">{}</text>')
    drawn = Markup("")
    for k in up.ticks:
        y = up.at(k * up.step)
        drawn += line.format(y) + value.format(y, number(k * up.step))
    for k in across.ticks:
        text = Markup('<text{} x="{:.2f}%" y="{}">{}</text>')
        second = Markup(' class="second"') if k % 2 else ""
        drawn += text.format(second, across.at(k * across.step), _HEIGHT + 16, number(k * across.step))
    named = Markup('<text x="50%" y="{}">{}</text><text transform="translate(-64 {}) rotate(-90)">{}</text>')
    return drawn + named.format(_HEIGHT + 38, x_label, _HEIGHT // 2, y_label)


def _lines(series: Sequence[Series], across: _Axis, up: _Axis) -> Markup:
    """Lines, stretched to the width."""
    drawn = Markup("")
    for k, one in enumerate(series):
        path = " ".join(f"{across.at(x):.2f},{up.at(y):.1f}" for x, y in zip(one.x, one.y, strict=True))
        drawn += Markup('<polyline class="s{} d{}" points="{}"/>').format(*_look(k), path)
    stretched = Markup('<svg viewBox="0 0 100 {}" preserveAspectRatio="none">{}</svg>')
    return stretched.format(_HEIGHT, drawn)


def _points(series: Series, number_of: int, across: _Axis, up: _Axis) -> Markup:
    colour, _ = _look(number_of)
    dot = Markup('<circle class="l{}" cx="{:.2f}%" cy="{:.1f}" r="4"><title>{}: {}, {}</title></circle>')
    drawn = Markup("")
    for x, y in zip(series.x, series.y, strict=True):
        drawn += dot.format(colour, across.at(x), up.at(y), series.name, number(x), number(y))
    return drawn


def _look(number_of: int) -> tuple[int, int]:
    """Colour and dashes of a line."""
    return number_of % COLOURS, number_of // COLOURS % _DASHES


def _key(series: Sequence[Series], mark: tuple[float, float, str] | None) -> Markup:
    line = Markup('<svg class="stroke" aria-hidden="true"><path class="s{} d{}" d="M0 6h24"/></svg>{}')
    named = [line.format(*_look(k), one.name) for k, one in enumerate(series)]
    if mark is not None:
        named.append(Markup('<span class="cross" aria-hidden="true">&times;</span> {}').format(mark[2]))
    items = Markup("").join(Markup("<li>{}</li>").format(one) for one in named)
    return Markup('<ul class="keys">{}</ul>').format(items)
