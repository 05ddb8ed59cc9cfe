"""Times as files write them, and of clock times without a zone the moments that they may stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from itertools import pairwise, product

from wattsched.reading.inputs import echo, number_in

SECONDS, LOCAL, ZONED = "seconds", "a date", "a date with a time zone"
_CLOCK = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,9})?)")


def moment_s(text: str) -> tuple[float, str]:
    """Convert a time to seconds; tell how it was written: seconds, or a date with or without a zone.

    A date, also with slashes, counts from 1970 on, in its zone; one without a zone is read as UTC.

    Raises
    ------
    ValueError
        If it is neither.
    """
    try:
        if math.isfinite(seconds := number_in(text)):
            return seconds, SECONDS
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.strip().replace("/", "-") if text.isascii() else "")
        zone, form = (UTC, LOCAL) if found.tzinfo is None else (found.tzinfo, ZONED)
        return found.replace(tzinfo=zone).timestamp(), form
    except (ValueError, OverflowError):
        expected = "a number of seconds nor a date like 2026-11-03 08:30:00"
        raise ValueError(f"{echo(text)} is neither {expected}") from None


def in_zone_s(local_s: float, zone: tzinfo) -> float:
    """Return the first moment at which the clocks of a zone show a date that was read as UTC."""
    return datetime.fromtimestamp(local_s, UTC).replace(tzinfo=zone).timestamp()


def clock_s(text: str) -> float | None:
    """Seconds of ``[D-]HH:MM:SS``; None for another text."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    days, hours, minutes, seconds = found.groups(default="0")
    return ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + float(seconds)


def moments_s(clock: datetime, zone: tzinfo | None) -> list[float]:
    """Return the moments at which clocks show a time: two in the hour that comes twice in autumn.

    They are seconds since 1970, the earlier first. Without a zone the clocks are this machine's. A time that
    they skip in spring is a ValueError.
    """
    both = {clock.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)}
    shown = [s for s in sorted(both) if datetime.fromtimestamp(s, zone).replace(tzinfo=None, fold=0) == clock]
    if not shown:
        raise ValueError(f"the clocks of {zone or 'this machine'} skip this time in spring")
    return shown


def fitting(times: Sequence[Sequence[float]], lasted_s: float | None = None) -> tuple[list[float], bool]:
    """Return the readings of successive times that fit best, and whether others fit as well.

    They fit where none is before its predecessor, and the last two are `lasted_s` apart; of equals the first.
    """

    def misfit_s(chosen: Sequence[float]) -> tuple[float, float]:
        backwards_s = sum(max(0.0, before - after) for before, after in pairwise(chosen))
        return backwards_s, 0.0 if lasted_s is None else abs(chosen[-1] - chosen[-2] - lasted_s)

    ranked = sorted(product(*times), key=misfit_s)
    return list(ranked[0]), len(ranked) > 1 and misfit_s(ranked[0]) == misfit_s(ranked[1])
