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

import numpy as np

from wattsched.instances.time_shares import TimeShareInstance
from wattsched.topology.arrays import IntArray
from wattsched.verification.arithmetic import RATIONALS, Numbers

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
    x = _array(share)
    if len(x) != len(exact.rate) or len(progress) != len(exact.demand) or len(gpus) != len(exact.available):
        return ShareVerdict(["the shares or prices are of another round"], 0.0, 0.0)
    worth = exact.worth(exact.of_jobs(exact.rate * x) / exact.demand)
    proven = exact.bound(_array(progress), _array(gpus), Fraction(power_w))
    found = (float("nan") if value is None else _rounded(value) for value in (worth, proven))
    if instance.objective == "makespan" and exact.served.any():
        # One over the least progress: work is done in this time.
        found = (1.0 / value if value else float("inf") for value in found)
    return ShareVerdict(list(exact.faults(x)), *found)


def _rounded(value: Fraction) -> float:
    """Nearest number; infinite beyond all of them, where prices prove nothing."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


_array = RATIONALS.array


class _Exact:
    """A round in rational numbers; `demand`, and the mask `served` of jobs that can progress, are by job."""

    def __init__(self, instance: TimeShareInstance) -> None:
        self._instance, self._job, self._type = instance, instance.job, instance.type_of
        self.rate, self._gpus, self._power = map(_array, (instance.rate, instance.gpus, instance.power_w))
        self.demand, self.available = _array(instance.demand), _array(instance.available)
        cap_w = instance.power_cap_w
        self._cap = None if cap_w == math.inf else Fraction(cap_w)
        within = True if self._cap is None else self._power <= self._cap
        self._usable = (self.rate > 0) & within & (self._gpus <= self.available[self._type])
        self.served = np.zeros(len(self.demand), dtype=bool)
        self.served[self._job[self._usable]] = True

    def of_jobs(self, values: Numbers) -> Numbers:
        """Return the sum of the options of each job."""
        return _summed(self._job, values, len(self.demand))

    def faults(self, x: Numbers) -> Iterator[str]:
        """Yield the limits that the shares of options exceed."""
        for o in np.flatnonzero((x < 0) | ((x > 0) & ~self._usable)).tolist():
            yield f"option {o} has the share {float(x[o])}, and must have none"
        total = self.of_jobs(x)
        for j in np.flatnonzero(total > 1 + TOLERANCE).tolist():
            yield f"job '{self._instance.jobs[j]}' has {float(total[j])} of its time"
        used, limit = _summed(self._type, self._gpus * x, len(self.available)), self.available
        for k in np.flatnonzero(used > limit * (1 + TOLERANCE)).tolist():
            yield f"type '{self._instance.types[k]}' gives {float(used[k])} of {float(limit[k])} GPUs"
        drawn = sum(self._power * x, Fraction(0))
        if self._cap is not None and drawn > self._cap * (1 + TOLERANCE):
            yield f"{float(drawn)} W are drawn of {float(self._cap)} W"

    def worth(self, progress: Numbers) -> Fraction:
        """Return the least progress of jobs that can have any or, for goodput, the sum of all."""
        if self._instance.objective == "goodput":
            return sum(progress, Fraction(0))
        return min(progress[self.served], default=Fraction(0))

    def bound(self, y: Numbers, p: Numbers, q: Fraction) -> Fraction | None:
        """Return the bound on `worth` that prices of progress, GPUs and watts prove; None if they do not."""
        if min([*y, *p, q]) < 0 or (self._cap is None and q > 0):
            return None
        if not self.served.any():
            return Fraction(0)
        summed = self._instance.objective == "goodput"
        y = np.where(self.served, _array([1] * len(y)) if summed else y, 0)
        gains = (y / self.demand)[self._job] * self.rate - self._gpus * p[self._type] - self._power * q
        best, paid = np.zeros(len(y), dtype=object), self._usable & (y[self._job] > 0)
        np.maximum.at(best, self._job[paid], gains[paid])
        total = sum([*best, *(p * self.available), q * (self._cap or 0)], Fraction(0))
        if summed:
            return total
        return total / sum(y) if sum(y) else None


def _summed(group: IntArray, values: Numbers, groups: int) -> Numbers:
    """Return the sum of the values of each group."""
    found = _array([0] * groups)
    np.add.at(found, group, values)
    return found
