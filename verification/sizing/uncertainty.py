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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.topology.arrays import FloatArray, IntArray
from wattsched.topology.fields import Strict
from wattsched.verification.arithmetic import DOUBLES, Arithmetic, Numbers, float_above, float_below
from wattsched.verification.tree import Taken, read_split

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


class ThresholdSplit(Strict):
    """A split on whether a decision's threshold in a power cap, or in the objective, is at most so much."""

    threshold: str
    at_most: Annotated[float, Field(ge=0, allow_inf_nan=False)]


@dataclass(frozen=True)
class Deviations:
    """Deviations of all options in a power cap or in the objective, in doubles, with what these are off by.

    Attributes
    ----------
    low, high : float arrays, shape (n_options,)
        Not above and not below the deviation of each option; 0 for those that are not possible.
    job : int array, shape (n_options,)
    """

    low: FloatArray
    high: FloatArray
    job: IntArray

    @classmethod
    def of(cls, deviation: FloatArray, size: FloatArray, possible: Any, job: IntArray) -> Deviations:
        """Deviations that were computed in doubles with numbers of some size."""
        error = DOUBLES.epsilon * size
        low, high = (np.where(possible, np.maximum(0.0, deviation + off), 0.0) for off in (-error, error))
        return cls(low, high, job)

    def next_above(self, value: float) -> float:
        """Return a number not above the least deviation above a value; infinite where there is none."""
        above = self.low[self.high > value]
        return max(value, float(above.min())) if len(above) else math.inf

    @property
    def _largest(self) -> FloatArray:
        """Largest deviation of every job."""
        largest = np.zeros(int(self.job.max(initial=-1)) + 1)
        np.maximum.at(largest, self.job, self.high)
        return largest

    def most(self) -> Fraction:
        """Return a number not below the sum of the largest deviation of every job."""
        return -DOUBLES.sum_below(-self._largest)

    def largest_root(self) -> float:
        """Return a number not below the root of the sum of squares of the jobs' largest deviations."""
        squares = -DOUBLES.sum_below(-(self._largest**2))
        return math.sqrt(float_above(squares)) * (1.0 + DOUBLES.epsilon)


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


class Thresholds:
    """Intervals that splits leave to the thresholds of decisions.

    Parameters
    ----------
    uncertainty : Uncertainty
    deviations : mapping of str to Deviations
        Of power caps by the names of their rows, and of the objective.
    watts : mapping of str to tuple of int
        As in `Piece`, of power caps.
    """

    def __init__(
        self,
        uncertainty: Uncertainty,
        deviations: Mapping[str, Deviations],
        watts: Mapping[str, tuple[int, ...]],
    ):
        self._deviations = {name: each for name, each in deviations.items() if each.high.any()}
        self._watts = watts
        self._gamma = None if uncertainty.gamma is None else Fraction(uncertainty.gamma)
        z = 0.0 if uncertainty.confidence is None else quantile(uncertainty.confidence)
        self._quantile = Fraction(float_below(Fraction(z)))

    def pieces(self, taken: Sequence[Taken]) -> dict[str, Piece] | None:
        """Return the piece of each power cap, and of the objective; None where splits leave no decision.

        A ValueError says what a split lacks.
        """
        low = dict.fromkeys(self._deviations, 0.0)
        high: dict[str, float | None] = dict.fromkeys(self._deviations, None)
        if self._gamma is None:
            high |= {name: each.largest_root() for name, each in self._deviations.items()}
        for split, inside, _ in taken:
            if FIELD not in split:
                continue
            known = read_split(ThresholdSplit, split)
            name, at_most = known.threshold, known.at_most
            if name not in self._deviations:
                raise ValueError(f"split.threshold: nothing uncertain is called {name!r:.80}")
            if inside:
                end = high[name]
                high[name] = at_most if end is None else min(end, at_most)
            else:
                above = at_most if self._gamma is None else self._deviations[name].next_above(at_most)
                low[name] = max(low[name], above)
        if any((end := high[name]) is not None and low[name] > end for name in low):
            return None
        if not all(map(math.isfinite, low.values())):
            return None
        return {name: self._piece(name, low[name], high[name]) for name in low}

    def _piece(self, name: str, low: float, high: float | None) -> Piece:
        end = None if high is None else Fraction(high)
        return Piece(self._watts.get(name, ()), self._gamma, self._quantile, Fraction(low), end)

    def dearest(self) -> Fraction:
        """Return a number not below what the objective's worst case adds to the cost of any decision."""
        factor = Fraction(1) if self._gamma is not None else self._quantile
        return factor * self._deviations[OBJECTIVE].most() if OBJECTIVE in self._deviations else Fraction(0)
