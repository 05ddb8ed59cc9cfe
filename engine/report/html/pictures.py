"""Pictures of reports as inline SVG: who has which GPU, and lines over two axes, which matplotlib draws."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from markupsafe import Markup

from wattsched.report.wording import printable

COLOURS = 5
"""Colours of the style sheet, `c0` to `c4`, as `plot.style.FILLS`; of lines the last is the ink."""

MOST_GPUS = 4_096
"""GPUs that are drawn one by one; of more, each node is one square."""

_SIDE, _GAP = 12, 2
_SIZE_IN = (8.0, 3.6)
_INK = "#010101"
"""Black that is written down, as black itself is not: both, as limits, have the colour of the page's text."""


@dataclass(frozen=True)
class NodeMap:
    """GPUs of a node: `holders` has the number of the job on each, `gone` are those that cannot be used."""

    name: str
    gpus: int
    holders: Mapping[int, int] = field(default_factory=dict)
    gone: frozenset[int] = frozenset()


def cluster_map(nodes: Sequence[NodeMap], jobs: Sequence[str]) -> Markup:
    """Nodes with their GPUs, each in the colour of its job; of many jobs some have the same colour."""
    if not _one_by_one(nodes):
        used, gpus = sum(len(node.holders) for node in nodes), sum(node.gpus for node in nodes)
        label = f"{used:,} of {gpus:,} GPUs used on {len(nodes):,} nodes"
        return Markup('<div class="nodes" role="img" aria-label="{}">{}</div>').format(label, _squares(nodes))
    figures = Markup("").join(_node(node, jobs) for node in nodes)
    return Markup('<div class="nodes">{}</div>').format(figures)


def map_note(nodes: Sequence[NodeMap]) -> str:
    """Explain the squares of a map."""
    if not _one_by_one(nodes):
        return "each square is a node, filled as far as its GPUs are used"
    gone = ", dashed cannot be used" if any(node.gone for node in nodes) else ""
    return f"each square is a GPU, in the colour of its job; grey is free{gone}"


def _one_by_one(nodes: Sequence[NodeMap]) -> bool:
    """True if there are few enough GPUs for a square each."""
    return sum(node.gpus for node in nodes) <= MOST_GPUS


def _node(node: NodeMap, jobs: Sequence[str]) -> Markup:
    squares = Markup("").join(_gpu(node, gpu, jobs) for gpu in range(node.gpus))
    drawn = _svg(node.gpus * (_SIDE + _GAP), squares)
    return Markup('<div class="node" role="img" aria-label="{}"><span>{}</span>{}</div>').format(
        _told(node, jobs), node.name, drawn
    )


def _svg(width: int, body: Markup) -> Markup:
    return Markup('<svg width="{}" height="{}">{}</svg>').format(width, _SIDE, body)


def _gpu(node: NodeMap, gpu: int, jobs: Sequence[str]) -> Markup:
    at = Markup('x="{}" width="{}" height="{}" rx="2"').format(gpu * (_SIDE + _GAP), _SIDE, _SIDE)
    job = node.holders.get(gpu)
    if job is not None:
        title = f"{jobs[job]}: GPU {gpu} of {node.name}"
        return Markup('<rect class="c{}" data-job="{}" {}><title>{}</title></rect>').format(
            job % COLOURS, job, at, title
        )
    return Markup('<rect class="{}" {}/>').format("gone" if gpu in node.gone else "idle", at)


def _told(node: NodeMap, jobs: Sequence[str]) -> str:
    """A node in words, for who does not see it."""
    held: dict[int, int] = {}
    for job in node.holders.values():
        held[job] = held.get(job, 0) + 1
    parts = [f"{count} of {jobs[job]}" for job, count in held.items()]
    free = node.gpus - len(node.holders) - len(node.gone)
    parts += [f"{free} free"] if free else []
    parts += [f"{len(node.gone)} unavailable"] if node.gone else []
    return f"{node.name}: {', '.join(parts)}"


def _squares(nodes: Sequence[NodeMap]) -> Markup:
    """One square for each node, filled as far as its GPUs are used."""
    drawn = []
    for node in nodes:
        height = _SIDE * len(node.holders) / node.gpus if node.gpus else 0.0
        square = Markup('<rect class="{}" y="{:.1f}" width="{}" height="{:.1f}"/>')
        title = f"{node.name}: {len(node.holders)} of {node.gpus} GPUs used"
        body = Markup("<title>{}</title>{}{}").format(
            title,
            square.format("idle", 0.0, _SIDE, _SIDE),
            square.format("c0", _SIDE - height, _SIDE, height),
        )
        drawn.append(_svg(_SIDE, body))
    return Markup("").join(drawn)


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
