"""All plots: colours that the colour-blind tell apart, and nothing that covers or leaves something out."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched import plot
from wattsched.plot.style import COLOURS, FAINT, FILLS, HATCHES, LIMIT, NEUTRAL, PATTERNS, Fill, Look

from .cases import CASES, outcome

pytest.importorskip("matplotlib")

LEAST = 20.0
"""Distance in CIELAB of two colours that are seen at a glance; the smallest that is seen at all is 2.3."""
WHITE = (1.0, 1.0, 1.0)
# What people without one kind of cones see, on linear sRGB: the matrices of severity 1 of Machado, Oliveira
# and Fernandes, "A physiologically-based model for simulation of color vision deficiency" (IEEE TVCG 15,
# 2009); and linear sRGB to XYZ under D65.
PROTANOPE = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
DEUTERANOPE = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
]
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(rgb: Any) -> np.ndarray:
    """Light of a colour of sRGB."""
    srgb = np.array(rgb[:3])
    return np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)


def distance(first: tuple[float, ...], second: tuple[float, ...]) -> float:
    """The smaller of the distances that a protanope and a deuteranope see between two colours of sRGB."""

    def seen(matrix: Any, rgb: tuple[float, ...]) -> np.ndarray:
        relative = TO_XYZ @ np.clip(np.array(matrix) @ linear(rgb), 0, 1) / TO_XYZ.sum(axis=1)
        f = np.where(relative > 216 / 24389, np.cbrt(relative), (24389 / 27 * relative + 16) / 116)
        return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])

    return min(float(np.linalg.norm(seen(m, first) - seen(m, second))) for m in (PROTANOPE, DEUTERANOPE))


def colours_of(axes: Any) -> set[tuple[float, ...]]:
    """Colours of what is drawn, and of the page; not of guides, nor of bands, which let others through."""
    from matplotlib.colors import to_rgba

    drawn = [line.get_color() for line in axes.lines]
    for patch in axes.patches:
        drawn.append(patch.get_facecolor() if patch.get_fill() else patch.get_edgecolor())
    for collection in axes.collections:
        drawn += [*collection.get_facecolor(), *collection.get_edgecolor()]
    opaque = {tuple(rgba[:3]) for rgba in map(to_rgba, drawn) if rgba[3] == 1.0}
    return (opaque | {WHITE}) - {tuple(to_rgba(FAINT)[:3])}


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(st.sampled_from(sorted(CASES)), st.integers(1, 45))
def test_any_two_colours_of_a_plot_stay_apart(name: str, n: int) -> None:
    colours = colours_of(CASES[name](n, None))
    assert len(colours) > 1
    for pair in combinations(sorted(colours), 2):
        assert distance(*pair) >= LEAST, (name, pair)


@pytest.mark.parametrize("fill", [*map(Fill.of, range(len(FILLS))), Fill(NEUTRAL, "")])
def test_names_can_be_read_on_every_fill(fill: Fill) -> None:
    """Contrast of 4.5 and more, as WCAG asks for."""
    from matplotlib.colors import to_rgb

    def luminance(colour: str) -> float:
        return float(linear(to_rgb(colour)) @ [0.2126, 0.7152, 0.0722])

    bright, dark = sorted([luminance(fill.facecolor), luminance(fill.ink)], reverse=True)
    assert (bright + 0.05) / (dark + 0.05) >= 4.5


def test_looks_do_not_repeat_early() -> None:
    assert len({Look.of(i) for i in range(40)}) == 40 == len(COLOURS) * len(PATTERNS)
    assert len({Fill.of(i) for i in range(25)}) == 25 == len(FILLS) * len(HATCHES)
    assert LIMIT not in COLOURS


SIZES = {"as it comes": None, "a column of a paper": (3.5, 2.6), "a slide": (12.0, 6.0)}


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("n", [1, 5, 13])
@pytest.mark.parametrize("name", sorted(CASES))
def test_nothing_is_cut_off_or_covered(name: str, n: int, size: str) -> None:
    """Legends lie beside the axes, ticks beside each other, all of it on the page, and units are named."""
    from matplotlib.figure import Figure

    if size == "a column of a paper" and n > 5:
        pytest.skip("the legend would leave no plot")
    given = None if SIZES[size] is None else Figure(figsize=SIZES[size], layout="constrained").subplots()
    axes = CASES[name](n, given)
    assert given is None or axes is given
    figure = axes.get_figure()
    figure.draw_without_rendering()
    page, inside = figure.bbox.padded(1.0), axes.get_window_extent()
    assert min(inside.width / page.width, inside.height / page.height) > 0.25
    if (legend := axes.get_legend()) is not None:
        extent = legend.get_window_extent()
        assert not _overlap(extent, inside)
        assert page.containsx(extent.x1)
        assert page.containsy(extent.y1)
    if not axes.axison:
        return
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        every = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        ticks = [tick.label1 for tick in every if low <= tick.get_loc() <= high]
        shown = [text.get_window_extent() for text in ticks if text.get_text()]
        assert len(shown) > 1
        assert not any(_overlap(a, b) for a, b in combinations(shown, 2))
        told = axis.label.get_window_extent()
        assert axis.label.get_text()
        assert not any(_overlap(told, tick) for tick in shown)
        assert all(page.contains(x, y) for x, y in told.corners())


def _overlap(first: Any, second: Any) -> bool:
    """Whether two boxes share more than their edges."""
    wide = min(first.x1, second.x1) - max(first.x0, second.x0)
    return bool(wide > 1 and min(first.y1, second.y1) - max(first.y0, second.y0) > 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ["schedule", "schedule of users", "cluster map"])
def test_names_stand_within_their_blocks(name: str, size: str) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.figure import Figure

    given = None if SIZES[size] is None else Figure(figsize=SIZES[size], layout="constrained").subplots()
    axes = CASES[name](4, given)
    axes.get_figure().draw_without_rendering()
    blocks = [
        path.get_extents(axes.transData)
        for collection in axes.collections
        if isinstance(collection, PolyCollection)
        for path in collection.get_paths()
    ]
    known = {name for name in (*outcome().trace.names, *(f"job{i}" for i in range(100)))}
    texts = [text.get_window_extent() for text in axes.texts if text.get_text() in known]
    assert texts or size == "a column of a paper"
    for text in texts:
        assert any(
            block.x0 - 1 <= text.x0 and text.x1 <= block.x1 + 1 and block.y0 - 2 <= text.y0 <= block.y1
            for block in blocks
        )


def test_plots_are_written_alike(tmp_path: Path) -> None:
    axes = CASES["gap profile"](2, None)
    for name in ("a.png", "a.svg", "a.pdf"):
        plot.save(axes, tmp_path / name)
        before = (tmp_path / name).read_bytes()
        plot.save(axes.get_figure(), tmp_path / name)
        assert (tmp_path / name).read_bytes() == before
        assert len(before) > 1000
    with pytest.raises(ValueError, match=r"path: 'a.txt' must end in one of .*png"):
        plot.save(axes, "a.txt")
    with pytest.raises(FileNotFoundError) as told:
        plot.save(axes, tmp_path / "none" / "a.png")
    assert told.value.filename == str(tmp_path / "none" / "a.png")
    with pytest.raises(TypeError, match="axes must be axes or a figure of matplotlib, got int"):
        plot.save(3, tmp_path / "a.png")


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_missing_matplotlib_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wattsched.environment.extras.find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r"plots need matplotlib.*pip install 'wattsched\[plot\]'"):
        CASES[name](1, None)


def test_matplotlib_is_imported_with_the_first_plot() -> None:
    script = (
        "import sys, wattsched; wattsched.plot.schedule, wattsched.plot.power, wattsched.plot.gap_profile;"
    )
    script += "wattsched.plot.cluster_map, wattsched.plot.frontier, wattsched.plot.price_history;"
    script += "wattsched.plot.placement_curves, wattsched.plot.save; print('matplotlib' in sys.modules)"
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
