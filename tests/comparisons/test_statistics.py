"""Means and profiles against their definitions; plots end up in files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.comparisons.statistics import performance_profile, shifted_geometric_mean

TIMES = st.one_of(st.floats(0.001, 1e4), st.just(math.inf))


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=20), st.floats(0.1, 10))
def test_mean_is_the_root_of_the_product(values: list[float], shift: float) -> None:
    mean = shifted_geometric_mean(values, shift)
    assert (mean + shift) ** len(values) == pytest.approx(math.prod(v + shift for v in values), rel=1e-6)
    assert min(values) - 1e-6 <= mean <= max(values) * (1 + 1e-9) + 1e-6


def test_mean_of_nothing_is_no_number() -> None:
    assert math.isnan(shifted_geometric_mean([]))


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(TIMES, min_size=n, max_size=n), min_size=1, max_size=4)
    ),
    st.floats(1.0, 1e4),
)
def test_profile_counts_the_problems_within_a_factor(table: list[list[float]], tau: float) -> None:
    measures = {f"s{s}": {f"p{p}": t for p, t in enumerate(row)} for s, row in enumerate(table)}
    profile = performance_profile(measures)
    best = [min(column) for column in zip(*table, strict=True)]
    for s, row in enumerate(table):
        within = sum(t / b <= tau for t, b in zip(row, best, strict=True) if math.isfinite(t))
        assert np.count_nonzero(profile[f"s{s}"] <= tau) == within
    solved = [p for p, b in enumerate(best) if math.isfinite(b)]
    assert sum(bool(ratios[0] == 1.0) for ratios in profile.values() if len(ratios)) >= bool(solved)


def test_plots_are_drawn_into_given_axes_and_written(tmp_path: Path) -> None:
    figures = pytest.importorskip("matplotlib.figure")
    from wattsched.comparisons.plots import plot_gaps, plot_profile, save

    measures = {
        "a": {"p": 1.0, "q": math.inf},
        "b": {"p": 2.0, "q": 3.0},
        "c": {"p": math.inf, "q": math.inf},
    }
    axes = figures.Figure().subplots()
    assert plot_profile(measures, ax=axes) is axes
    assert len(axes.get_lines()) == 3
    for name, made in (("p.png", plot_profile(measures)), ("g.svg", plot_gaps(measures))):
        save(made, tmp_path / name)
        assert (tmp_path / name).stat().st_size > 1000
