r"""Worst cases of uncertain watts and rates, and sums over the jobs that they are at least.

If a decision's jobs deviate by :math:`d_j` in a power cap or in the objective, the worst case adds

.. math:: \max_{S} \sum_{j \in S} d_j = \min_{\theta \ge 0} \Gamma \theta + \sum_j (d_j - \theta)^+ , \qquad
    z \sqrt{\textstyle\sum_j d_j^2} = \min_{s > 0} \frac{z}{2} \Big( s + \frac{1}{s} \sum_j d_j^2 \Big)

with a budget of uncertainty (Bertsimas and Sim, Operations Research 52(1), 2004) and with normal deviations.
At a fixed *parameter* both are sums over the jobs. The best :math:`\theta` is the
:math:`\lceil \Gamma \rceil`-th largest deviation, the best s the root. Where these lie between a and b, the
worst case adds no less than

.. math:: \Gamma a + \sum_{j:\ d_j > b} (d_j - a) , \qquad \frac{z}{a + b} \Big( ab + \sum_j d_j^2 \Big) ,

which is exact where a = b: at most :math:`\Gamma` jobs deviate by more than b, and the others that count by a
at least; the second is the chord of the concave root.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from types import SimpleNamespace
from typing import Any

import numpy as np

from wattsched.formulations.sizing.data import Options
from wattsched.formulations.sizing.objectives import Objective
from wattsched.instances.sizing.uncertainty import Uncertainty
from wattsched.topology.arrays import FloatArray, IntArray

Interval = tuple[float, float]
"""Least and largest value of a parameter."""

Box = Mapping[str, Interval]
"""Interval of the parameter of each uncertain power cap, by the name of its row, and of `OBJECTIVE`."""

OBJECTIVE = "objective"
"""Name of the objective's parameter."""


def quantile(uncertainty: Uncertainty) -> float:
    """Return the number of standard deviations that a probability asks for."""
    return NormalDist().inv_cdf(uncertainty.confidence or 0.5)


def parameter(uncertainty: Uncertainty, deviation: FloatArray) -> float:
    """Return the parameter at which the family's member is exact for deviations of the jobs of a decision."""
    if uncertainty.gamma is None:
        return math.sqrt(float(deviation @ deviation))
    place = max(1, math.ceil(uncertainty.gamma))
    return float(-np.partition(-deviation, place - 1)[place - 1]) if place <= len(deviation) else 0.0


def understated(
    uncertainty: Uncertainty, interval: Interval, deviation: FloatArray
) -> tuple[FloatArray, float]:
    """Return the terms of each deviation, and the constant, that the worst case is at least the sum of.

    Parameters
    ----------
    interval : tuple of float
        That the parameter of the decision lies in.
    """
    low, high = interval
    if uncertainty.gamma is not None:
        return np.where(deviation > high, deviation - low, 0.0), uncertainty.gamma * low
    if high == 0.0:  # no job deviates
        return np.zeros(len(deviation)), 0.0
    factor = quantile(uncertainty) / (low + high)
    return factor * deviation**2, factor * low * high


def power_deviation_w(options: Options) -> FloatArray:
    """Watts by which each option may draw more than it states, shape (n_options,)."""
    return options.instance.deviations(options.of.jobs, "power_deviation")[options.job] * options.power_w


def cost_deviation(options: Options, goal: Objective) -> FloatArray:
    """Cost by which each option may be worse than it states, as its job is slower, shape (n_options,).

    A job that waits is slower when it runs later. Reference values stay.
    """
    share = options.instance.deviations(options.of.jobs, "rate_deviation")[options.job]
    if not share.any():
        return np.zeros(len(options))
    later_s = (options.best_s - options.of.restart_s)[options.job]
    works_s = np.where(options.waiting, later_s, options.completion_s - options.lost_s)
    same = ("round_s", "job", "waiting", "lost_s", "change_cost", "weight", "work", "least_s")
    slow: Any = SimpleNamespace(**{name: getattr(options, name) for name in same})
    slow.reference_rate, slow.rate = options.reference_rate, options.rate * (1.0 - share)
    slow.completion_s = options.completion_s + works_s * share / (1.0 - share)
    return np.maximum(0.0, goal.cost(slow) - goal.cost(options))


def costs(options: Options, goal: Objective) -> FloatArray:
    """Cost of each option to be minimised, with its part of the worst case over `RoundJobs.box`."""
    cost, uncertainty = goal.cost(options), options.instance.uncertainty
    if uncertainty is None or OBJECTIVE not in options.of.box:
        return cost
    terms, _ = understated(uncertainty, options.of.box[OBJECTIVE], cost_deviation(options, goal))
    return np.asarray(cost + terms)


def uses_w(options: Options, index: IntArray, row: str, use: FloatArray) -> tuple[FloatArray, float]:
    """Return uses of a power cap with their parts of the worst case, and the watts that it takes besides.

    Parameters
    ----------
    index : int array, shape (n_columns,)
        Option of each column.
    use : float array, shape (n_columns,)
        Watts above idle.
    """
    uncertainty = options.instance.uncertainty
    if uncertainty is None or row not in options.of.box:
        return use, 0.0
    deviation = power_deviation_w(options)[index]
    terms, standing = understated(uncertainty, options.of.box[row], deviation)
    return use + terms, standing
