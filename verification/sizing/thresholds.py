"""Thresholds of uncertain watts and rates, and what splits of a certificate tree leave of them.

`uncertainty` has the definitions. No code of formulations or solvers takes part in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Annotated, NamedTuple

import numpy as np
from pydantic import Field

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.arrays import FloatArray
from wattsched.topology.fields import Strict
from wattsched.verification.arithmetic import DOUBLES, float_above
from wattsched.verification.sizing.least_cost import NoOptionError
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.rows import Row
from wattsched.verification.sizing.uncertainty import FIELD, OBJECTIVE, Piece, drawn_in, quantile
from wattsched.verification.tree import Taken, read_split


class ThresholdSplit(Strict):
    """A split on whether a decision's threshold in a power cap, or in the objective, is at most so much."""

    threshold: str
    at_most: Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Deviations(NamedTuple):
    """Ends of the deviations of possible options, and not below the largest of each job."""

    low: FloatArray
    high: FloatArray
    largest: FloatArray


class Thresholds:
    """Intervals that splits leave to the thresholds of a round's power caps and of its objective.

    Parameters
    ----------
    near : callable
        Returns all options of the round, in doubles.
    rows : mapping of str to Row
        Power caps are among them.
    """

    def __init__(self, instance: Instance, near: Callable[[], Options], rows: Mapping[str, Row]):
        self._deviations = dict[str, Deviations]()
        if (uncertainty := instance.uncertainty) is None:
            return
        self._gamma = None if uncertainty.gamma is None else Fraction(uncertainty.gamma)
        self._quantile, options = Fraction(quantile(uncertainty)), near()
        listed = [*options.parts()]
        job = np.concatenate([jobs for one in listed for jobs in (one.jobs.repeat(one.counts), one.jobs)])
        worths = [worth for one in listed for worth in (one.running, one.waiting)]
        watt, possible, deviation_w, slower, slower_size = (
            np.concatenate([getattr(worth, name) for worth in worths])
            for name in ("watt", "possible", "deviation_w", "slower", "slower_size")
        )
        caps = {name: row for name, row in rows.items() if name.partition(":")[0] == "power_w"}
        self._pools = {n: tuple(str(use[1]) for use in row.uses) for n, row in caps.items()}
        inside = {name: drawn_in(pools, watt, options.uses) for name, pools in self._pools.items()}
        inside_w = {name: np.where(its, deviation_w, 0.0) for name, its in inside.items()}
        known = {name: (each, each) for name, each in inside_w.items()} | {OBJECTIVE: (slower, slower_size)}
        for name, (found, size) in known.items():
            error, largest = DOUBLES.epsilon * size, np.zeros(len(options.offer))
            low, high = np.where(possible, np.maximum(0.0, [found - error, found + error]), 0.0)
            np.maximum.at(largest, job, high)
            if high.any():
                self._deviations[name] = Deviations(low, high, largest)

    def pieces(self, taken: Sequence[Taken]) -> dict[str, Piece]:
        """Return what the worst case of each power cap, and of the objective, is at least.

        A ValueError says what a split lacks, a NoOptionError that splits leave no decision.
        """
        ends = {name: [0.0, self._most(each)] for name, each in self._deviations.items()}
        for split in (one for one in taken if FIELD in one.split):
            known = read_split(ThresholdSplit, split.split)
            if known.threshold not in ends:
                raise ValueError(f"split.threshold: nothing uncertain is called {known.threshold!r:.80}")
            its, at_most, of = ends[known.threshold], known.at_most, self._deviations[known.threshold]
            if split.inside:
                its[1] = min(its[1], at_most)
            elif self._gamma is None:
                its[0] = max(its[0], at_most)
            else:  # the threshold is the deviation of an option
                its[0] = max(its[0], at_most, float(of.low[of.high > at_most].min(initial=math.inf)))
        if any(low > high for low, high in ends.values()):
            raise NoOptionError
        exact = {name: (Fraction(low), Fraction(high)) for name, (low, high) in ends.items()}
        return {n: Piece(self._pools.get(n), self._gamma, self._quantile, *each) for n, each in exact.items()}

    def _most(self, deviations: Deviations) -> float:
        """Return a number not below the threshold of any decision."""
        if self._gamma is not None:
            return float(deviations.high.max())
        squares = -DOUBLES.sum_below(-(deviations.largest**2))
        return math.sqrt(float_above(squares)) * (1.0 + DOUBLES.epsilon)

    def dearest(self) -> Fraction:
        """Return a number not below what the objective's worst case adds to the cost of any decision."""
        if OBJECTIVE not in self._deviations:
            return Fraction(0)
        most = -DOUBLES.sum_below(-self._deviations[OBJECTIVE].largest)
        return most if self._gamma is not None else self._quantile * most
