"""Clock times without a zone: of the moments that they may stand for, those that fit together are found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import accumulate
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.strategies.effort import examples
from wattsched.reading.clocks import fitting, in_order_s, moments_s

CHANGES = {
    "Europe/Berlin": "2026-10-25T03:00+02:00",
    "America/New_York": "2026-11-01T02:00-04:00",
    "Australia/Lord_Howe": "2027-04-04T02:00+11:00",
}
"""When clocks go back, by an hour or, in the last, by half of one."""


def shown_s(moment_s: float, zone: str) -> float:
    """Return the date that the clocks of a zone show, in seconds as if it were in UTC."""
    return datetime.fromtimestamp(moment_s, ZoneInfo(zone)).replace(tzinfo=UTC, fold=0).timestamp()


@given(
    st.sampled_from(sorted(CHANGES)),
    st.integers(-7_200, 0),
    st.lists(st.integers(0, 3_600), min_size=1, max_size=3),
)
def test_successive_times_around_the_change_are_found_again(
    zone: str, first_s: int, gaps_s: list[int]
) -> None:
    change_s = datetime.fromisoformat(CHANGES[zone]).timestamp()
    true = [change_s + after_s for after_s in accumulate([first_s, *gaps_s])]
    readings = [moments_s(shown_s(moment_s, zone), ZoneInfo(zone)) for moment_s in true]
    found, ambiguous = fitting(readings, gaps_s[-1])
    assert found == sorted(found)
    assert found[-1] - found[-2] == gaps_s[-1]
    assert ambiguous or found == true


@pytest.mark.parametrize(("minute", "count"), [(0, 1), (60, 2), (119, 2), (120, 1)])
def test_an_hour_comes_twice_in_autumn_and_is_skipped_in_spring(minute: int, count: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    autumn, spring = (
        (datetime(2026, month, day, 1, tzinfo=UTC) + timedelta(minutes=minute)).timestamp()
        for month, day in ((10, 25), (3, 29))
    )
    assert len(moments_s(autumn, zone)) == count
    if count == 1:
        assert len(moments_s(spring, zone)) == 1
        return
    with pytest.raises(ValueError, match=r"the clocks of Europe/Berlin skip 2026-03-29 02:\d\d:00 in spring"):
        moments_s(spring, zone)


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, float, float, list[np.ndarray]]:
    """Draw logs around a change of clocks: zone, change, seconds that come twice, and moments of each log."""
    zone = draw(st.sampled_from(sorted(CHANGES)))
    change_s = datetime.fromisoformat(CHANGES[zone]).timestamp()
    twice_s = shown_s(change_s - 1, zone) + 1 - shown_s(change_s, zone)
    every_s, jitter_s = draw(st.integers(2, int(twice_s / 4))), draw(st.sampled_from((0.0, 1.5, 4.0)))
    rng, moments = np.random.default_rng(draw(st.integers(0, 999))), []
    begin_s = change_s - draw(st.floats(0, 2.5)) * twice_s
    for _ in range(draw(st.integers(1, 2))):
        logged_s = np.arange(begin_s, begin_s + draw(st.floats(0, 3)) * twice_s + 1, every_s)
        moments.append(np.round(logged_s + rng.uniform(0, jitter_s, len(logged_s)), 3))
        begin_s = moments[-1].max() + draw(st.integers(5, 600))
    return zone, change_s, twice_s, moments


def order_tells(true_s: np.ndarray, change_s: float, twice_s: float) -> bool:
    """True if a log steps back, or reaches beyond the hour that comes twice."""
    hours = {*np.floor((true_s - change_s) / twice_s).tolist()}
    return len(hours) > 1 or not hours <= {-1.0, 0.0}


@settings(max_examples=examples(400))
@given(logs(), st.booleans(), st.permutations(range(2)))
def test_the_order_of_a_log_tells_the_hours_that_come_twice_apart(log, joined, order):
    """Two logs are joined in any order, as of one GPU or of one each."""
    zone, change_s, twice_s, moments = log
    parts = [moments[k] for k in order if k < len(moments)]
    of = np.repeat(np.array(["a", "b"][: len(parts)], dtype=object), [len(part) for part in parts])
    true_s = np.concatenate(parts)
    clock_s = np.array([shown_s(moment_s, zone) for moment_s in true_s])
    found_s, doubtful = in_order_s(clock_s, np.full(len(of), "a", object) if joined else of, ZoneInfo(zone))
    known = [order_tells(part, change_s, twice_s) for part in parts]
    if all(known):
        np.testing.assert_allclose(found_s, true_s, rtol=0, atol=1e-3)
        assert not doubtful
    elif not joined:
        assert doubtful
        for part, told, name in zip(parts, known, "ab", strict=False):
            late_s = 0.0 if told or part[0] < change_s else twice_s
            np.testing.assert_allclose(found_s[of == name], part - late_s, rtol=0, atol=1e-3)


def test_rows_of_several_gpus_without_names_are_read_in_spite_of_jitter():
    true_s = datetime.fromisoformat(CHANGES["Europe/Berlin"]).timestamp() + np.arange(-4000, 4000, 5.0)
    rows_s = (true_s[:, None] + np.array([0.0, 3.0, -2.0, 7.0])).ravel()
    clock_s = np.array([shown_s(moment_s, "Europe/Berlin") for moment_s in rows_s])
    found_s, doubtful = in_order_s(clock_s, np.full(len(rows_s), "", object), ZoneInfo("Europe/Berlin"))
    assert (found_s.tolist(), doubtful) == (rows_s.tolist(), False)


def test_a_log_that_never_steps_back_is_doubtful_where_its_clock_should_have():
    noon_s = datetime(2026, 10, 25, tzinfo=UTC).timestamp() + np.arange(0, 5 * 3600, 10.0)
    _, doubtful = in_order_s(noon_s, np.full(len(noon_s), "", object), ZoneInfo("Europe/Berlin"))
    assert doubtful, "it is of another zone, or has a gap of an hour somewhere"
