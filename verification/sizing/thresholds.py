"""Thresholds of uncertain watts and rates, and what splits of a certificate tree leave of them.

`uncertainty` has the definitions. No code of formulations or solvers takes part in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

import numpy as np
from pydantic import Field

from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray
from wattsched.topology.fields import Strict
from wattsched.verification.arithmetic import DOUBLES, float_above, float_below
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.rows import Row
from wattsched.verification.sizing.uncertainty import FIELD, OBJECTIVE, Piece, quantile
from wattsched.verification.tree import Taken, read_split


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
    def of(cls, deviation: FloatArray, size: FloatArray, possible: BoolArray, job: IntArray) -> Deviations:
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


def thresholds_of(uncertainty: Uncertainty, options: Options, rows: Mapping[str, Row]) -> Thresholds:
    """Thresholds of a round's power caps, which are among its rows, and of its objective.

    Parameters
    ----------
    options : Options
        All options of the round, in doubles.
    """
    listed = [*options.parts()]
    job = np.concatenate([jobs for part in listed for jobs in (part.jobs.repeat(part.counts), part.jobs)])
    worths = [worth for part in listed for worth in (part.running, part.waiting)]
    watt, possible, deviation_w, slower, size = (
        np.concatenate([getattr(worth, name) for worth in worths])
        for name in ("watt", "possible", "deviation_w", "slower", "slower_size")
    )
    watts = {
        name: tuple(options.uses[use] for use in row.uses if use[0] == "watt" and use in options.uses)
        for name, row in rows.items()
        if name.partition(":")[0] == "power_w"
    }
    inside_w = {name: np.where(np.isin(watt, uses), deviation_w, 0.0) for name, uses in watts.items()}
    deviations = {name: Deviations.of(each, each, possible, job) for name, each in inside_w.items()}
    deviations[OBJECTIVE] = Deviations.of(slower, size, possible, job)
    return Thresholds(uncertainty, deviations, watts)
