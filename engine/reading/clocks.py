"""Clock times without a zone: the moments that they may stand for, and which of these fit together."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo
from itertools import pairwise, product


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
