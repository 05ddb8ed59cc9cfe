r"""What a round of the replay minimises: the cost of every column of the sizing program.

``rank``
    The derivative of the optimal total completion time by a job's remaining work, times the work done per
    second. For m jobs of sizes :math:`x_1 \ge \dots \ge x_m` with speed-up :math:`k^p` on k GPUs, the optimal
    total is linear in the sizes (heSRPT: Berg, Vesilo, Harchol-Balter, Performance 2020), with

    .. math:: v_k = \left(k^{1/(1-p)} - (k-1)^{1/(1-p)}\right)^{1-p},

    so short jobs count more, but no job for everything. A size is the seconds that the job still takes in its
    smallest configuration. The work that a restart costs is deducted, spread over the time that a
    configuration is expected to be kept.
``progress``
    Minus the share of the remaining work done per hour, as the objective of that name of `sizing`.
``completion``
    Seconds to completion if every configuration were kept for good, waiting costing a round (`systems.md`
    5.3 with the waiting cost of `sizing`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from wattsched.replay.jobs.policies.rounds import Columns
from wattsched.replay.jobs.policy import View
from wattsched.topology.arrays import BoolArray, FloatArray

Worth = Callable[[View, Columns], FloatArray]

CONCAVITY = 0.3
"""p of `rank`. Completion times are flat from 0.2 to 0.7; small values spread the GPUs more evenly."""

HOLD_S = 600.0
"""Seconds that `rank` expects a configuration to be kept: the gap between events of a small cluster."""

SLACK = 1.0
"""By how much `elastic-makespan` lets the last of many jobs end later than it must."""

_BEYOND = 10.0
_ROUNDS = 40


def rank(view: View, columns: Columns) -> FloatArray:
    """Cost of heSRPT's value per second."""
    rate = np.where(columns.waits, 0.0, view.menus.rate[columns.row])
    return np.asarray(-values(view, columns)[columns.owner] * rate * useful_share(view, columns))


def values(view: View, columns: Columns, concavity: float = CONCAVITY, speed: float = 0.0) -> FloatArray:
    """Value of a unit of work of each job, shape (n_jobs,): heSRPT's weights.

    Parameters
    ----------
    speed : float
        The speed that a job's seconds are counted at: 0 that of its slowest configuration, 1 that of its
        fastest, in between geometrically.
    """
    rate = np.where(columns.waits, np.nan, view.menus.rate[columns.row])
    least, most = (reduce.reduceat(rate, columns.start[:-1]) for reduce in (np.fmin, np.fmax))
    typical = least ** (1.0 - speed) * most**speed
    return rank_weights(view.remaining / typical, concavity) / typical


def useful_share(view: View, columns: Columns) -> FloatArray:
    """Share of the time that a configuration is kept in which the job works, shape (n_columns,)."""
    delay_s = np.where(columns.waits, 0.0, view.delay_s(columns.owner, columns.row))
    kept_s = np.minimum(HOLD_S, np.maximum(columns.completion_s, 1e-9))
    return np.asarray(np.maximum(0.0, 1.0 - delay_s / kept_s))


def rank_weights(size: FloatArray, concavity: float = CONCAVITY) -> FloatArray:
    """Weights of jobs by the rank of their sizes, the largest job first; ties in the order given."""
    place = np.empty(len(size))
    place[np.argsort(-size, kind="stable")] = np.arange(1, len(size) + 1)
    # k^e - (k - 1)^e with k taken out, for its power may be huge.
    power = 1.0 / (1.0 - concavity)
    return np.asarray(place * (1.0 - (1.0 - 1.0 / place) ** power) ** (1.0 - concavity))


def progress(view: View, columns: Columns) -> FloatArray:
    """Cost of the share of the remaining work done per hour."""
    return np.where(columns.waits, 0.0, -3600.0 / columns.completion_s)


def completion(view: View, columns: Columns) -> FloatArray:
    """Seconds to completion."""
    return columns.completion_s


def in_time(worth: Worth, slack: float) -> Worth:
    """Add a penalty for columns with which the last job would end late.

    Late is beyond (1 + slack) times the shortest time in which all jobs of the view fit into the cluster, by
    their GPU seconds. A job that ends in time in its smallest configuration may do what it wants, even wait.
    """

    def penalised(view: View, columns: Columns) -> FloatArray:
        cost = worth(view, columns)
        late_s = (1.0 + slack) * horizon_s(view, columns)
        seconds = np.where(columns.waits, np.inf, columns.completion_s)
        smallest_s = seconds[columns.start[:-1]]
        late = (smallest_s > late_s)[columns.owner] & (seconds > late_s)
        excess = np.minimum(np.log(np.maximum(seconds / late_s, 1.0)), 3.0)
        return np.asarray(cost + np.where(late, _BEYOND * np.ptp(cost) * excess, 0.0))

    return penalised


def horizon_s(view: View, columns: Columns) -> float:
    """Shortest time in which all jobs can end, as far as their GPU seconds and best speeds tell."""
    gpus = np.where(columns.waits, 0, view.menus.gpus[columns.row])
    seconds = np.where(columns.waits, np.inf, columns.completion_s)
    start = columns.start[:-1]
    capacity = sum(int(pool.available.sum()) for pool in view.trace.pools)
    low = float(np.minimum.reduceat(seconds, start).max())
    high = max(low, float(seconds[start].sum()))

    def fit(within_s: float) -> bool:
        in_time: BoolArray = seconds <= within_s
        area = np.where(in_time, gpus * np.where(columns.waits, 0.0, columns.completion_s), np.inf)
        return float(np.minimum.reduceat(area, start).sum()) <= capacity * within_s

    for _ in range(_ROUNDS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fit(middle) else (middle, high)
    return high
