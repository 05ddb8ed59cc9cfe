r"""Worst cases of uncertain watts and rates as the checker reads them, and what proofs may count on.

With deviations :math:`d_1 \ge d_2 \ge \dots` of the jobs of a decision, the worst case adds the
:math:`\Gamma` largest, and of the next one the fraction that :math:`\Gamma` has; or, with quantile z,
:math:`z \sqrt{\sum_j d_j^2}`. The *threshold* of a decision is its :math:`\lceil \Gamma \rceil`-th largest
deviation, 0 where it has fewer, or the root without z. Splits of a certificate tree leave it between a and b.
Then the worst case adds at least

.. math:: \Gamma a + \sum_{j:\ d_j > b} (d_j - a) \qquad\text{or}\qquad
    \frac{z}{a + b} \Big( ab + \sum_j d_j^2 \Big) .

The first holds as fewer than :math:`\lceil \Gamma \rceil` jobs deviate by more than b, all of these are among
the :math:`\Gamma` largest, and the others of those are a at least. The second is the chord of a concave root.
No code of formulations or solvers takes part in it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np
from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.topology.arrays import FloatArray
from wattsched.verification.arithmetic import Arithmetic, Numbers

OBJECTIVE = "objective"
"""Name of the threshold of the objective; that of a power cap has the name of its row."""

FIELD = "threshold"
"""Field by which splits of thresholds are told from others."""


def quantile(confidence: float) -> float:
    """Return the standard deviations that a normal number stays below with a probability."""
    return NormalDist().inv_cdf(confidence)


def worst_case(uncertainty: Uncertainty, deviations: FloatArray) -> float:
    """Return what the deviations of the jobs of a decision add to their sum in the worst case."""
    if uncertainty.confidence is not None:
        return quantile(uncertainty.confidence) * math.sqrt(math.fsum((deviations**2).tolist()))
    left, found = uncertainty.gamma or 0.0, []
    for deviation in sorted(deviations.tolist(), reverse=True):
        if left <= 0:
            break
        found.append(min(left, 1.0) * deviation)
        left -= 1.0
    return math.fsum(found)


@dataclass(frozen=True)
class Piece:
    """Use of a power cap, or of the objective, that depends on where the threshold of decisions lies.

    Attributes
    ----------
    watts : tuple of int
        Numbers of the watts above idle that the cap counts (`job_rows`); none for the objective.
    gamma : Fraction, optional
    quantile : Fraction
    low, high : Fraction
        Ends of the threshold's interval; `high` None for no end.
    """

    watts: tuple[int, ...]
    gamma: Fraction | None
    quantile: Fraction
    low: Fraction
    high: Fraction | None

    @property
    def besides(self) -> Fraction:
        """Use of every decision."""
        if self.gamma is not None:
            return self.gamma * self.low
        assert self.high is not None
        return self.quantile * self.low * self.high / (self.low + self.high) if self.high else Fraction(0)

    def amounts(self, worth: Any, arithmetic: Arithmetic) -> tuple[Numbers, Numbers]:
        """Return the uses of options (`options.Worth`), not above what they must be, and their sizes."""
        if self.watts:
            inside = np.isin(worth.watt, self.watts)
            deviation = np.where(inside, worth.deviation_w, 0)
            its_size = arithmetic.magnitude(deviation)
        else:
            deviation, its_size = worth.slower, worth.slower_size
        low = arithmetic.number(self.low)
        if self.gamma is None:
            assert self.high is not None
            if not self.high:
                return 0 * deviation, 0 * deviation
            factor = arithmetic.number(self.quantile / (self.low + self.high))
            amount = factor * deviation * deviation
            # The square of a number that is off by e is off by (2 d + e) e.
            size = factor * (2 * deviation + its_size) * its_size + arithmetic.magnitude(amount)
            return amount, size
        if self.high is None:
            return 0 * deviation, 0 * deviation
        beyond = deviation - arithmetic.epsilon * its_size > arithmetic.number(self.high)
        amount = np.where(beyond, deviation - low, 0)
        size = its_size + arithmetic.magnitude(deviation + low)
        return amount, np.where(beyond, size, 0 * deviation)
