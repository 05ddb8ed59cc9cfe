r"""Distributions of how long jobs run, learned from runs of which some have not ended yet.

A run's duration falls into intervals that grow by a constant factor. For each group of runs, such as those of
a user on so many GPUs, the hazard of an interval is the share of the runs that reach it which end in it.
Runs that have not ended count as far as they have come (Kaplan and Meier 1958). Few runs tell little, so each
group is shrunk towards the coarser one that it is part of: with :math:`d_b` ends in interval b, :math:`n_b`
runs at risk, and the coarser group's survival :math:`S^0_b` and hazard :math:`h^0_b`,

.. math:: h_b = \frac{d_b + \kappa S^0_b h^0_b}{n_b + \kappa S^0_b},

which is the posterior mean of a beta process whose prior is worth :math:`\kappa` runs of the coarser group
(Hjort 1990; Susarla and Van Ryzin 1976). The coarsest group is shrunk towards Lomax's distribution
:math:`S(t) = (1 + t/s)^{-2}`, under which a run of age t lasts for another s + t on average.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

FIRST_S, GROWTH, INTERVALS = 10.0, 1.1, 150
"""End of the first interval, ratio of the end of each to that of the one before, and their number: to 170
days, after which nothing is known."""

EDGES_S = np.concatenate([[0.0], FIRST_S * GROWTH ** np.arange(INTERVALS - 1)])
"""Begins of the intervals, shape (INTERVALS,); the last one has no end in truth."""

LENGTHS_S = np.diff(EDGES_S, append=EDGES_S[-1] * GROWTH)
HALF_LIFE_S = 14 * 86_400.0
"""Age at which a run counts half."""
PRIOR_RUNS, ROOT_RUNS, SCALE_S = 20.0, 1.0, 600.0
"""Runs that a coarser group counts for, those that Lomax's distribution counts for, and its scale s."""


def _place(duration_s: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the interval in which each duration ends, and the part of it that it reaches."""
    found = np.searchsorted(EDGES_S, duration_s, side="left") - 1
    interval = np.clip(found, 0, INTERVALS - 1).astype(np.int64)
    return interval, np.clip((duration_s - EDGES_S[interval]) / LENGTHS_S[interval], 0.0, 1.0)


@dataclass(frozen=True)
class Durations:
    """Distribution of the duration of the runs of some groups.

    Attributes
    ----------
    survival : float array, shape (n_groups, INTERVALS + 1)
        Probability that a run lasts beyond the begin of each interval, and the end of the last.
    """

    survival: FloatArray

    @classmethod
    def unknown(cls) -> Durations:
        """Return one group of which nothing is known: Lomax's distribution."""
        return cls(((1.0 + np.append(EDGES_S, EDGES_S[-1] * GROWTH) / SCALE_S) ** -2.0)[None])

    @classmethod
    def fit(
        cls, duration_s: FloatArray, ended: BoolArray, since_s: FloatArray, groups: Sequence[IntArray]
    ) -> Durations:
        """Learn the distributions of the finest groups from runs.

        Parameters
        ----------
        duration_s : float array, shape (n_runs,)
            How long each ran, or has run so far.
        ended : bool array, shape (n_runs,)
        since_s : float array, shape (n_runs,)
            How long ago each began: they count half as much for every `HALF_LIFE_S`, and below 0 not at all.
        groups : sequence of int arrays
            Numbers from 0 on of the group of each run, from the coarsest partition to the finest; each group
            is a part of one of the partition before.
        """
        survival = cls.unknown().survival
        weight = np.where(since_s < 0, 0.0, 0.5 ** (np.maximum(since_s, 0.0) / HALF_LIFE_S))
        of, runs = np.zeros(len(duration_s), dtype=np.int64), ROOT_RUNS
        interval, reached = _place(duration_s)
        for number in [np.zeros_like(of), *groups]:
            n_groups = int(number.max(initial=0)) + 1
            above = np.zeros(n_groups, dtype=np.int64)
            above[number] = of
            at, size = number * INTERVALS + interval, n_groups * INTERVALS
            ends, came, missed = (
                np.bincount(at, weight * part, size).reshape(n_groups, -1)
                for part in (ended, np.ones_like(weight), ~ended * (1.0 - reached))
            )
            # Who has not ended was at risk for the part of its interval that it has reached.
            reach = np.cumsum(came[:, ::-1], axis=1)[:, ::-1] - missed
            prior = runs * survival[above]
            hazard = (ends - np.diff(prior)) / (reach + prior[:, :-1])
            lasting = np.hstack([np.ones((n_groups, 1)), 1.0 - hazard])
            survival = np.asarray(np.cumprod(lasting, axis=1), dtype=float)
            of, runs = number, PRIOR_RUNS
        return cls(survival)

    def gittins_s(self, group: IntArray, age_s: FloatArray) -> FloatArray:
        r"""Return the reciprocals of the Gittins indices of runs of some ages, shape (n,), in seconds.

        The expected service for each run that ends, if runs are set aside after a time that makes it least,
        :math:`\min_\Delta E[\min(T - a, \Delta)] / P(T - a \le \Delta)`. To serve in its order has the
        least mean completion time on one machine (Gittins 1979). If durations are known, it is the rest.
        """
        interval, part = _place(age_s)
        later = np.minimum(interval + 1, INTERVALS - 1)
        here_s = self._gittins_s(group, interval)
        return np.asarray(here_s + (self._gittins_s(group, later) - here_s) * part)

    def _gittins_s(self, group: IntArray, begin: IntArray) -> FloatArray:
        """Return the same at the begins of intervals."""
        survival, run = self.survival[group], np.arange(len(group))
        spans_s = LENGTHS_S * (survival[:, :-1] + survival[:, 1:]) / 2
        served_s = np.cumsum(np.hstack([np.zeros((len(group), 1)), spans_s]), axis=1)
        ending = survival[run, begin][:, None] - survival
        served_s -= served_s[run, begin][:, None]
        possible = np.arange(INTERVALS + 1) > begin[:, None]
        least_s = np.where(possible & (ending > 0), served_s / np.where(ending > 0, ending, 1.0), np.inf)
        return np.asarray(least_s.min(axis=1))

    def quantile_s(self, group: IntArray, age_s: FloatArray, share: float) -> FloatArray:
        """Return the durations that a share of the runs of some ages does not exceed, shape (n,)."""
        survival, run, (interval, part) = self.survival[group], np.arange(len(group)), _place(age_s)
        here, later = survival[run, interval], survival[run, interval + 1]
        target = (here + (later - here) * part) * (1.0 - share)
        end = np.minimum((survival > target[:, None]).sum(axis=1) - 1, INTERVALS - 1)
        high, low = survival[run, end], survival[run, end + 1]
        part = np.clip((high - target) / np.where(high > low, high - low, 1.0), 0.0, 1.0)
        return np.asarray(EDGES_S[end] + LENGTHS_S[end] * part)


class Coverage:
    """Level of a quantile that as many runs do not exceed as were asked for, however their durations change.

    Each run that lasts longer than the quantile raises the level by a constant times the share, and each
    other one lowers it by that times the rest, so that over n runs the share that is covered cannot be
    further from that asked for than in proportion to 1/n (adaptive conformal inference: Gibbs and Candes,
    NeurIPS 2021, here of the level's logarithmic odds).

    Attributes
    ----------
    share : float
        Share of the runs that is asked for.
    """

    STEP = 0.05

    def __init__(self, share: float) -> None:
        self.share = share
        self._odds = float(np.log(share / (1.0 - share)))

    @property
    def level(self) -> float:
        """The level at which to take the quantile of a distribution (`Durations.quantile_s`)."""
        return float(1.0 / (1.0 + np.exp(-self._odds)))

    def saw(self, *, covered: bool) -> None:
        """Take in whether a run lasted no longer than its quantile, as soon as that is known."""
        self._odds += self.STEP * (self.share - covered)
