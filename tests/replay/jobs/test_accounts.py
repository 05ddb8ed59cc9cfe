"""Carbon over time, nodes that sleep, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.replay.jobs.accounts import Carbon, Sleep
from wattsched.replay.jobs.policy import Restarts

STEPS = st.lists(st.tuples(st.floats(1.0, 1e4), st.floats(0.0, 900.0)), min_size=1, max_size=6)


@given(STEPS, st.floats(0.0, 1e5), st.floats(0.0, 1e5))
def test_grams_are_the_integral_of_the_intensity(
    steps: list[tuple[float, float]], begin: float, length: float
) -> None:
    times = np.cumsum([seconds for seconds, _ in steps])
    carbon = Carbon(times, np.array([intensity for _, intensity in steps]))
    ends = np.unique(np.concatenate([[begin, begin + length], times]))
    ends = ends[(ends >= begin) & (ends <= begin + length)]
    middle = (ends[1:] + ends[:-1]) / 2
    here = np.maximum(np.searchsorted(times, middle, side="right") - 1, 0)
    expected = float(np.diff(ends) @ carbon.values[here]) / 3.6e6
    grams = float(carbon.per_watt(begin, begin + length))
    assert grams == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(
    ("times", "intensities", "fault"),
    [
        ([], [], "at least one"),
        ([0.0, 0.0], [1.0, 1.0], "times must ascend"),
        ([0.0], [-1.0], "g_per_kwh must be at least 0"),
        ([0.0], [np.nan], "g_per_kwh must be at least 0"),
        ([0.0, 1.0], [1.0], "one value for each time"),
    ],
)
def test_bad_intensities(times: list[float], intensities: list[float], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        Carbon(np.array(times), np.array(intensities))


def test_negative_seconds_are_refused() -> None:
    with pytest.raises(ValueError, match="sleep: after_s must be at least 0, got -1"):
        Sleep(-1.0)
    with pytest.raises(ValueError, match="restarts: pod_s must be at least 0, got nan"):
        Restarts(1.0, float("nan"))
