r"""Worst cases of uncertain watts and rates as the checker reads them, and what they are at least.

The *threshold* of a decision is its :math:`\lceil \Gamma \rceil`-th largest deviation, 0 if there are fewer,
or the root of the sum of their squares. If it lies between a and b, deviations d add at least
:math:`\Gamma a + \sum_{d > b} (d - a)` or :math:`z\,(ab + \sum d^2) / (a + b)` in the worst case: at most
:math:`\Gamma` jobs deviate by more than b, all of which count, as others do that deviate by a at least; the
second is the chord of a concave root. No code of formulations or solvers takes part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Any

import numpy as np

from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.verification.arithmetic import Arithmetic, Numbers

OBJECTIVE = "objective"
"""Name of the threshold of the objective; that of a power cap has the name of its row."""

FIELD = "threshold"
"""Field by which splits of thresholds are told from others."""


def quantile(uncertainty: Uncertainty) -> float:
    """Return the standard deviations that a normal number stays below with the probability asked for."""
    return 0.0 if uncertainty.confidence is None else NormalDist().inv_cdf(uncertainty.confidence)


def worst_case(uncertainty: Uncertainty, deviations: FloatArray) -> float:
    """Return what the deviations of the jobs of a decision add to their sum in the worst case."""
    if uncertainty.confidence is not None:
        return quantile(uncertainty) * math.sqrt(math.fsum((deviations**2).tolist()))
    gamma, falling = uncertainty.gamma or 0.0, sorted(deviations.tolist(), reverse=True)
    return math.fsum(min(1.0, gamma - j) * each for j, each in enumerate(falling) if j < gamma)


def drawn_in(pools: Sequence[str], watt: IntArray, uses: Mapping[Any, int]) -> BoolArray:
    """Mask of options whose use of watts, by its number among `uses`, is of some pools."""
    return np.isin(watt, [uses[use] for pool in pools if (use := ("watt", pool)) in uses])


@dataclass(frozen=True)
class Piece:
    """Use of a power cap, or of the objective, that depends on where the threshold of decisions lies.

    Attributes
    ----------
    pools : tuple of str, optional
        Whose watts the cap counts; None for the objective.
    gamma : Fraction, optional
    quantile : Fraction
    low, high : Fraction
        Ends of the threshold's interval.
    """

    pools: tuple[str, ...] | None
    gamma: Fraction | None
    quantile: Fraction
    low: Fraction
    high: Fraction

    @property
    def besides(self) -> Fraction:
        """Use of every decision."""
        if self.gamma is not None:
            return self.gamma * self.low
        return self.quantile * self.low * self.high / (self.low + self.high) if self.high else Fraction(0)

    def amounts(self, worth: Any, options: Any) -> tuple[Numbers, Numbers]:
        """Return the uses of some of the `options`, not above what they must be, and their sizes."""
        arithmetic: Arithmetic = options.arithmetic
        deviation, its_size = worth.slower, worth.slower_size
        if self.pools is not None:
            deviation = np.where(drawn_in(self.pools, worth.watt, options.uses), worth.deviation_w, 0)
            its_size = arithmetic.magnitude(deviation)
        if self.gamma is not None:
            low, high = arithmetic.number(self.low), arithmetic.number(self.high)
            beyond = deviation - arithmetic.epsilon * its_size > high
            size = its_size + arithmetic.magnitude(deviation + low)
            return np.where(beyond, deviation - low, 0), np.where(beyond, size, 0)
        factor = arithmetic.number(self.quantile / (self.low + self.high) if self.high else 0)
        amount = factor * deviation * deviation
        # The square of a number that is off by e is off by (2 d + e) e.
        return amount, factor * (2 * deviation + its_size) * its_size + arithmetic.magnitude(amount)
