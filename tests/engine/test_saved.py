"""Figures of savings: frontiers against walks along them, who is served later, and intervals."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.report.saved import Interval, Point, best_within

PARTS = st.floats(0.05, 3.0)


def points(pairs: list[tuple[float, float]]) -> list[Point]:
    return [Point(energy, completion, 1.0, 1.0, 0.0) for energy, completion in pairs]


@given(st.lists(st.tuples(PARTS, PARTS), min_size=1, max_size=6), st.floats(0.1, 2.0))
def test_a_frontier_is_the_least_of_its_points_and_lines(pairs, most) -> None:
    point = best_within(points(pairs), "completion", most)
    within = [energy for energy, completion in pairs if completion <= most]
    if point is None:
        assert not within
        return
    found = point.energy
    assert found <= min(within)
    # A dense walk along the lines between neighbours finds nothing below, and comes as close.
    by_completion = sorted((completion, energy) for energy, completion in pairs)
    seen = [energy for completion, energy in by_completion if completion <= most]
    for (x0, y0), (x1, y1) in pairwise(by_completion):
        if x0 <= most < x1:
            share = np.linspace(0.0, (most - x0) / (x1 - x0), 101)
            seen += list(y0 + share * (y1 - y0))
    assert found == pytest.approx(min(seen))
    mirrored = points([(completion, energy) for energy, completion in pairs])
    soonest = best_within(mirrored, "energy", most)
    assert soonest is not None
    assert soonest.completion == pytest.approx(found)


def test_who_is_served_later_is_told_of_the_point_that_saves() -> None:
    # Between these the mean is the baseline's a quarter of the way, and so is all else.
    left = Point(0.8, 0.9, p99=1.0, heavy=1.2, late=0.2, users={"ann": 0.8, "bo": 1.0})
    right = Point(0.6, 1.3, p99=2.0, heavy=1.6, late=0.6, users={"ann": 1.6, "bo": 1.0})
    found = best_within([right, left], "completion", 1.0)
    assert found is not None
    assert found.users == pytest.approx({"ann": 1.0, "bo": 1.0})
    figures = (found.energy, found.completion, found.p99, found.heavy, found.late)
    assert figures == pytest.approx((0.75, 1.0, 1.25, 1.3, 0.3))


def test_an_interval_is_students() -> None:
    assert Interval.of([3.0]) == Interval(3.0)
    found = Interval.of([1.0, 2.0, 3.0])
    assert (found.mean, found.low, found.high) == pytest.approx((2.0, 2.0 - 2.4841, 2.0 + 2.4841), abs=1e-4)
