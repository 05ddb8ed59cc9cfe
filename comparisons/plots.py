"""Plots of a comparison, with matplotlib (``pip install 'wattsched[plot]'``).

Each function draws into `ax`, or into axes of a new figure, and returns them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from wattsched.comparisons.statistics import LEAST_GAP, MOST_GAP, performance_profile
from wattsched.instances.io import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LineStyle = Literal["-", "--", ":", "-."]

WIDTH_IN, HEIGHT_IN = 6.4, 3.8
COLOURS = 10
"""Of matplotlib's default cycle; the next lines take another pattern."""
PATTERNS: tuple[tuple[LineStyle, str], ...] = (("-", "o"), ("--", "s"), (":", "^"), ("-.", "D"))


def plot_profile(
    measures: Mapping[str, Mapping[str, float]], what: str = "solve time", ax: Axes | None = None
) -> Axes:
    """Performance profile: share of the instances within a factor of the best.

    Parameters
    ----------
    measures : mapping
        As for `statistics.performance_profile`.
    what : str
        What is measured, for the label.
    """
    axes = _new_axes() if ax is None else ax
    profile = performance_profile(measures)
    finite = [ratios[np.isfinite(ratios)] for ratios in profile.values()]
    most = 2.0 * max((float(ratios.max(initial=1.0)) for ratios in finite), default=1.0)
    for i, ((name, ratios), within) in enumerate(zip(profile.items(), finite, strict=True)):
        share = np.arange(1, len(within) + 1) / max(1, len(ratios))
        last = share[-1] if len(share) else 0.0
        colour, pattern, _ = _look(i)
        steps = [1.0, *within, most], [0.0, *share, last]
        axes.step(*steps, where="post", label=name, color=colour, linestyle=pattern)
    axes.set_xscale("log")
    axes.set_xlim(1.0, most)
    axes.set_ylim(0.0, 1.03)
    axes.set_xlabel(f"{what}, as a multiple of the best")
    axes.set_ylabel("share of the instances")
    _add_legend(axes)
    return axes


def plot_gaps(gaps: Mapping[str, Mapping[str, float]], ax: Axes | None = None) -> Axes:
    """Gap over the instances, in each line from the smallest to the largest gap."""
    axes = _new_axes() if ax is None else ax
    for i, (name, by_instance) in enumerate(gaps.items()):
        colour, pattern, marker = _look(i)
        known = np.sort(np.array([gap for gap in by_instance.values() if np.isfinite(gap)]))
        numbers = np.arange(1, len(known) + 1)
        axes.plot(numbers, known, label=name, color=colour, linestyle=pattern, marker=marker, markersize=3)
    axes.set_yscale("log")
    axes.set_ylim(bottom=LEAST_GAP / 2)
    axes.set_xlabel("instances, by gap")
    axes.set_ylabel(gap_label(gaps))
    _add_legend(axes)
    return axes


def gap_label(gaps: Mapping[str, Mapping[str, float]]) -> str:
    """Label for gaps, which says so where `statistics.gaps` has cut one."""
    values = [gap for by_instance in gaps.values() for gap in by_instance.values()]
    return f"gap ({MOST_GAP:g} stands for more)" if MOST_GAP in values else "gap"


def save(axes: Axes, path: str | Path) -> None:
    """Write the figure of some axes to a file in one step, in the format of its ending."""
    from matplotlib.figure import Figure

    figure = axes.get_figure(root=True)
    assert isinstance(figure, Figure)
    # No date, so that equal plots are equal files.
    metadata = {"Date": None} if str(path).endswith(".svg") else None
    content = io.BytesIO()
    kind = Path(path).suffix[1:] or None
    figure.savefig(content, format=kind, dpi=120, bbox_inches="tight", metadata=metadata)
    write_atomically(path, content.getvalue())


def _look(number: int) -> tuple[str, LineStyle, str]:
    """Colour, line style and marker of a line: no two alike among the first 40."""
    pattern, marker = PATTERNS[number // COLOURS % len(PATTERNS)]
    return f"C{number % COLOURS}", pattern, marker


def _add_legend(axes: Axes) -> None:
    """Add a legend beside the axes, where it covers nothing."""
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False)


def _new_axes() -> Axes:
    from matplotlib.figure import Figure

    return Figure(figsize=(WIDTH_IN, HEIGHT_IN)).subplots()
