"""Lines and points over two axes as inline SVG."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from wattsched.report.html.pictures import COLOURS
from wattsched.report.wording import number

_WIDTH, _HEIGHT = 720, 320
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 12, 44
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
    """From a value to its place in the picture."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Place of a value."""
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)

    @property
    def ticks(self) -> list[float]:
        """Round numbers, about `_TICKS` of them."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / _TICKS))
        step *= next(f for f in (1, 2, 5, 10) if (self.high - self.low) / (step * f) <= _TICKS)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [step * k for k in range(first, last + 1)]


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
    across = _axis([x for x, _ in every], _LEFT, _WIDTH - _RIGHT)
    up = _axis([y for _, y in every], _HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(across, up, x_label, y_label)]
    parts += [_line(one, k, across, up, points) for k, one in enumerate(series)]
    if mark is not None:
        x, y, told = mark
        cross = Markup(
            '<g class="mark"><title>{}</title><path d="M{:.1f} {:.1f}l-5 -5 10 10m0 -10l-10 10"/></g>'
        )
        parts.append(cross.format(told, across.at(x), up.at(y)))
    told = ", ".join(one.name for one in series)
    label = f"{y_label} against {x_label}: {told}"
    drawn = Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
        _WIDTH, _HEIGHT, label, Markup("").join(parts)
    )
    return Markup('<div class="chart" tabindex="0" role="region" aria-label="{}">{}</div>{}').format(
        label, drawn, _key(series, mark)
    )


def _axis(values: Sequence[float], begin: float, end: float) -> _Axis:
    low, high = min(values), max(values)
    room = 0.05 * (high - low) or 0.5 * abs(high) or 1.0
    return _Axis(low - room, high + room, begin, end)


def _grid(across: _Axis, up: _Axis, x_label: str, y_label: str) -> Markup:
    line = Markup('<line class="axis" x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}"/>')
    text = Markup('<text x="{:.1f}" y="{:.1f}" text-anchor="{}">{}</text>')
    drawn = Markup("")
    for value in up.ticks:
        y = up.at(value)
        drawn += line.format(_LEFT, y, _WIDTH - _RIGHT, y) + text.format(
            _LEFT - 6, y + 4, "end", number(value)
        )
    for value in across.ticks:
        drawn += text.format(across.at(value), _HEIGHT - _BOTTOM + 16, "middle", number(value))
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    drawn += text.format(middle, _HEIGHT - 6, "middle", x_label)
    turned = Markup('<text transform="translate(12 {:.1f}) rotate(-90)" text-anchor="middle">{}</text>')
    return drawn + turned.format((_TOP + _HEIGHT - _BOTTOM) / 2, y_label)


def _line(series: Series, number_of: int, across: _Axis, up: _Axis, points: bool) -> Markup:
    colour, dashes = _look(number_of)
    places = [(across.at(x), up.at(y)) for x, y in zip(series.x, series.y, strict=True)]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    drawn = Markup('<polyline class="s{} d{}" points="{}"/>').format(colour, dashes, path)
    for (x, y), of_x, of_y in zip(places if points else [], series.x, series.y, strict=False):
        told = f"{series.name}: {number(of_x)}, {number(of_y)}"
        dot = Markup('<circle class="l{}" cx="{:.1f}" cy="{:.1f}" r="4"><title>{}</title></circle>')
        drawn += dot.format(colour, x, y, told)
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
