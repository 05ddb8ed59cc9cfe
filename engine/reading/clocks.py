"""Times as files write them, and of clock times without a zone the moments that they may stand for."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from wattsched.reading.inputs import echo, number_in

Floats = NDArray[np.float64]
SECONDS, LOCAL, ZONED = "seconds", "a date", "a date with a time zone"
MS_PER_S = 1000.0
BACKWARDS, ALIKE = 100.0, 2.0
"""Seconds forwards that are as unlikely as one backwards; a difference of roots that tells nothing."""
TWICE = "assumed: of hours that come twice in autumn the likelier one, or else the first"
_CLOCK = re.compile(r"(?:([0-9]{1,6})-)?([0-9]{1,6}):([0-5][0-9]):([0-5][0-9](?:\.[0-9]{1,9})?)")


def is_since_1970(seconds: float) -> bool:
    """True for numbers that are taken for seconds since 1970."""
    return 1e8 <= seconds <= 1e11


def moment_s(text: str) -> tuple[float, str]:
    """Convert a time to seconds; tell how it was written: seconds, or a date with or without a zone.

    Milliseconds since 1970 are converted, as nobody counts so many seconds.
    A date, also with slashes, counts from 1970 on, in its zone; one without a zone is read as UTC.

    Raises
    ------
    ValueError
        If it is neither.
    """
    try:
        if math.isfinite(seconds := number_in(text)):
            return seconds / (MS_PER_S if is_since_1970(seconds / MS_PER_S) else 1.0), SECONDS
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(text.strip().replace("/", "-") if text.isascii() else "")
        zone, form = (UTC, LOCAL) if found.tzinfo is None else (found.tzinfo, ZONED)
        return found.replace(tzinfo=zone).timestamp(), form
    except (ValueError, OverflowError):
        expected = "a number of seconds nor a date like 2026-11-03 08:30:00"
        raise ValueError(f"{echo(text)} is neither {expected}") from None


def clock_s(text: str) -> float | None:
    """Seconds of ``[D-]HH:MM:SS``; None for another text."""
    if (found := _CLOCK.fullmatch(text)) is None:
        return None
    days, hours, minutes, seconds = found.groups(default="0")
    return ((int(days) * 24 + int(hours)) * 60 + int(minutes)) * 60 + float(seconds)


def moments_s(shown_s: float, zone: tzinfo | None) -> list[float]:
    """Return the moments at which clocks show a date, itself in seconds as if it were in UTC.

    They are two in the hour that comes twice in autumn, the earlier first. Without a zone the clocks are this
    machine's. A time that they skip in spring is a ValueError.
    """
    clock = datetime.fromtimestamp(shown_s, UTC).replace(tzinfo=None)
    both = {clock.replace(tzinfo=zone, fold=fold).timestamp() for fold in (0, 1)}
    shown = [s for s in sorted(both) if datetime.fromtimestamp(s, zone).replace(tzinfo=None, fold=0) == clock]
    if not shown:
        raise ValueError(f"the clocks of {zone or 'this machine'} skip {clock} in spring")
    return shown


def in_order_s(shown_s: Floats, series: NDArray[np.object_], zone: tzinfo) -> tuple[Floats, bool]:
    """Return the moments of dates that a clock showed one after the other, and whether others are as likely.

    Hours that come twice are read with few long gaps: the least sum of square roots of a series' gaps, where
    a second backwards counts as `BACKWARDS`, and no gap as more than a day, as logs may be joined. `shown_s`
    are dates in seconds as if they were in UTC, `series` tells the series of each; these follow one another.
    """
    # Both readings of each date, (n + 1, 2), often equal; zones change by quarters of an hour.
    quarters, place = np.unique(shown_s // 900, return_inverse=True)
    both = [(moments_s(900 * quarter, zone) * 2)[:2] for quarter in quarters.tolist()]
    both_s = np.append(np.reshape(both, (-1, 2))[place] + shown_s[:, None] % 900, [[np.nan] * 2], axis=0)
    ends = np.append(series[1:] != series[:-1], True)
    twice = both_s[:, 0] < both_s[:, 1]
    # A shortest path by dynamic programming through the dates that are doubtful, or follow such a date:
    # roots[i, a, b] is the least cost up to reading b of date near[i], by reading a of the date before.
    near = np.flatnonzero(twice[1:] | twice[:-1]) + 1
    gap_s = both_s[near, :, None] - both_s[near - 1, None, :]
    gap_s[ends[near - 1]] = 0.0
    roots = np.sqrt(np.clip(gap_s, -BACKWARDS * gap_s, 86_400.0))
    for sums, onwards in pairwise(roots):
        onwards += sums.min(axis=1)
    margins = np.abs(np.diff(roots[twice[near - 1] & (~twice[near] | ends[near - 1]), 0]))
    second = np.zeros(len(both_s), dtype=np.int64)  # 1: the later reading; traced back from the end
    for k, before in zip(near[::-1], roots.argmin(axis=2)[::-1], strict=True):
        second[k - 1] = before[second[k]]
    return both_s[np.arange(len(shown_s)), second[:-1]], bool((margins < ALIKE).any())


def fitting(times: Sequence[Sequence[float]], lasted_s: float | None = None) -> tuple[list[float], bool]:
    """Return the readings of successive times that fit best, and whether others fit as well.

    They fit where none is before its predecessor, and the last two are `lasted_s` apart; of equals the first.
    """

    def misfit_s(chosen: Sequence[float]) -> tuple[float, float]:
        backwards_s = sum(max(0.0, before - after) for before, after in pairwise(chosen))
        return backwards_s, 0.0 if lasted_s is None else abs(chosen[-1] - chosen[-2] - lasted_s)

    ranked = sorted(product(*times), key=misfit_s)
    return list(ranked[0]), len(ranked) > 1 and misfit_s(ranked[0]) == misfit_s(ranked[1])
