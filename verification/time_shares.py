r"""Shares of time, held against their round: are they possible, what are they worth, what can none exceed.

In exact arithmetic, and without a line of what found them. With prices :math:`y_j, p_k, q \ge 0` of progress,
GPUs and watts, no shares have a least progress above

.. math::
    \frac{\sum_j \max\{0, \max_{o \in O_j} (y_j r_o / d_j - g_o p_{k(o)} - P_o q)\} + \sum_k p_k G_k + q P}
         {\sum_j y_j},

and none a sum of progress above the numerator with :math:`y = 1`: multiply the rows with their prices and
add them up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from wattsched.instances.time_shares import TimeShareInstance

TOLERANCE = Fraction(1, 10**9)
"""Part of a limit by which sums may exceed it: shares are doubles."""


@dataclass(frozen=True)
class ShareVerdict:
    """Faults, objective and bound of shares.

    Attributes
    ----------
    faults : list of str
        One line for each limit that they exceed.
    objective : float
        Worth of the shares, recomputed.
    bound : float
        Bound that the prices prove: no shares are better.
    """

    faults: list[str]
    objective: float
    bound: float


def check_shares(
    instance: TimeShareInstance,
    share: Sequence[float],
    progress: Sequence[float],
    gpus: Sequence[float],
    power_w: float,
) -> ShareVerdict:
    """Check shares, and prove a bound from prices.

    Parameters
    ----------
    share : sequence of float, one for each option
    progress, gpus : sequences of float, one for each job and for each type
        Prices; any will do, though not for a good bound.
    power_w : float
        Price of a watt.
    """
    exact = _Exact(instance)
    x = [Fraction(value) for value in share]
    if len(x) != len(exact.rate) or len(progress) != len(exact.demand) or len(gpus) != len(exact.available):
        return ShareVerdict(["the shares or prices are of another round"], 0.0, 0.0)
    faults = list(exact.faults(x))
    worth = exact.worth(exact.progress(x))
    proven = exact.bound([Fraction(y) for y in progress], [Fraction(p) for p in gpus], Fraction(power_w))
    found = (float("nan") if value is None else _rounded(value) for value in (worth, proven))
    if instance.objective == "makespan" and any(exact.served):
        # One over the least progress: work is done in this time.
        found = (1.0 / value if value else float("inf") for value in found)
    return ShareVerdict(faults, *found)


def _rounded(value: Fraction) -> float:
    """Nearest number; infinite beyond all of them, where prices prove nothing."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


class _Exact:
    """A round in rational numbers."""

    def __init__(self, instance: TimeShareInstance) -> None:
        self._objective, self._jobs, self._types = instance.objective, instance.jobs, instance.types
        self.rate, self._gpus, self._power = (
            [Fraction(value) for value in column.tolist()]
            for column in (instance.rate, instance.gpus, instance.power_w)
        )
        self.demand, self.available = (
            [Fraction(value) for value in column.tolist()] for column in (instance.demand, instance.available)
        )
        capped = instance.power_cap_w != float("inf")
        self._cap = Fraction(instance.power_cap_w) if capped else None
        self._type_of, start = instance.type_of.tolist(), instance.start.tolist()
        self._options = [range(first, end) for first, end in pairwise(start)]
        self.served = [any(map(self._usable, options)) for options in self._options]

    def _usable(self, o: int) -> bool:
        within = self._cap is None or self._power[o] <= self._cap
        return self.rate[o] > 0 and within and self._gpus[o] <= self.available[self._type_of[o]]

    def faults(self, x: list[Fraction]) -> Iterator[str]:
        """Limits that shares exceed."""
        for o, share in enumerate(x):
            if share < 0 or (share > 0 and not self._usable(o)):
                yield f"option {o} has the share {float(share)}, and must have none"
        for j, options in enumerate(self._options):
            if (total := sum(x[o] for o in options)) > 1 + TOLERANCE:
                yield f"job '{self._jobs[j]}' has {float(total)} of its time"
        used = [Fraction(0)] * len(self.available)
        for o, share in enumerate(x):
            used[self._type_of[o]] += self._gpus[o] * share
        for k, (total, limit) in enumerate(zip(used, self.available, strict=True)):
            if total > limit * (1 + TOLERANCE):
                yield f"type '{self._types[k]}' gives {float(total)} of {float(limit)} GPUs"
        drawn = sum((p * share for p, share in zip(self._power, x, strict=True)), Fraction(0))
        if self._cap is not None and drawn > self._cap * (1 + TOLERANCE):
            yield f"{float(drawn)} W are drawn of {float(self._cap)} W"

    def progress(self, x: list[Fraction]) -> list[Fraction]:
        """Progress of every job."""
        return [
            sum((self.rate[o] * x[o] for o in options), Fraction(0)) / demand
            for options, demand in zip(self._options, self.demand, strict=True)
        ]

    def worth(self, progress: list[Fraction]) -> Fraction:
        """The least progress of those that can have any, or the sum of all."""
        if self._objective == "goodput":
            return sum(progress, Fraction(0))
        return min(
            (z for z, served in zip(progress, self.served, strict=True) if served), default=Fraction(0)
        )

    def bound(self, y: list[Fraction], p: list[Fraction], q: Fraction) -> Fraction | None:
        """Return the bound on the least progress, or on the sum, that prices prove; None if there is none."""
        if min([*y, *p, q]) < 0 or (self._cap is None and q > 0):
            return None
        if not any(self.served):
            return Fraction(0)
        if self._objective == "goodput":
            y = [Fraction(1)] * len(y)
        y = [price if served else Fraction(0) for price, served in zip(y, self.served, strict=True)]
        total = sum((price * limit for price, limit in zip(p, self.available, strict=True)), Fraction(0))
        total += q * (self._cap or 0)
        for price, options, demand in zip(y, self._options, self.demand, strict=True):
            if price:
                gains = (
                    price * self.rate[o] / demand - self._gpus[o] * p[self._type_of[o]] - self._power[o] * q
                    for o in options
                    if self._usable(o)
                )
                total += max(0, *gains)
        if self._objective == "goodput":
            return total
        return total / sum(y) if sum(y) else None
