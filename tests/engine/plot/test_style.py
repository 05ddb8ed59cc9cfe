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
from .colour_vision import ciede2000, distance

pytest.importorskip("matplotlib")

LEAST = 15.0
"""Distance of two colours that are seen at a glance, in CIEDE2000."""
WHITE = (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 0, 0), (50, -1, 2), 2.3669),
        ((50, 2.5, 0), (50, 0, -2.5), 4.3065),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_distances_are_those_of_the_published_pairs(first: Any, second: Any, expected: float) -> None:
    assert ciede2000(np.array(first), np.array(second)) == pytest.approx(expected, abs=5e-5)
    assert ciede2000(np.array(second), np.array(first)) == pytest.approx(expected, abs=5e-5)


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
        rgb = np.array(to_rgb(colour))
        linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

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
    monkeypatch.setattr("wattsched.extras.find_spec", lambda name: None)
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


def test_every_plot_is_documented_with_its_units() -> None:
    for name in plot.__all__:
        told = getattr(plot, name).__doc__
        assert "Parameters\n" in told
        assert "Raises\n" in told
