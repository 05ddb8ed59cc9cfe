"""Clock times without a zone: of the moments that they may stand for, those that fit together are found."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import accumulate
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wattsched.reading.clocks import fitting, moments_s

CHANGES = {
    "Europe/Berlin": "2026-10-25T03:00+02:00",
    "America/New_York": "2026-11-01T02:00-04:00",
    "Australia/Lord_Howe": "2027-04-04T02:00+11:00",
}
"""When clocks go back, by an hour or, in the last, by half of one."""


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
    clocks = [datetime.fromtimestamp(s, ZoneInfo(zone)).replace(tzinfo=None, fold=0) for s in true]
    found, ambiguous = fitting([moments_s(clock, ZoneInfo(zone)) for clock in clocks], gaps_s[-1])
    assert found == sorted(found)
    assert found[-1] - found[-2] == gaps_s[-1]
    assert ambiguous or found == true


@pytest.mark.parametrize(("minute", "count"), [(0, 1), (60, 2), (119, 2), (120, 1)])
def test_an_hour_comes_twice_in_autumn_and_is_skipped_in_spring(minute: int, count: int) -> None:
    zone = ZoneInfo("Europe/Berlin")
    autumn, spring = (
        datetime(2026, month, day, 1) + timedelta(minutes=minute) for month, day in ((10, 25), (3, 29))
    )
    assert len(moments_s(autumn, zone)) == count
    if count == 1:
        assert len(moments_s(spring, zone)) == 1
        return
    with pytest.raises(ValueError, match="the clocks of Europe/Berlin skip this time in spring"):
        moments_s(spring, zone)
