r"""`elastic`: the sizing program, solved whenever a job arrives or ends, restart costs included.

What a round minimises is the cost of every option, for example an objective of `sizing`, or `rank`: the
derivative of the optimal total completion time by a job's remaining work, times the work done per second. For
m jobs of sizes :math:`x_1 \ge \dots \ge x_m` with speed-up :math:`k^p` on k GPUs, the optimal total is linear
in the sizes (heSRPT: Berg, Vesilo, Harchol-Balter, Performance 2020), with

.. math:: v_k = \left(k^{1/(1-p)} - (k-1)^{1/(1-p)}\right)^{1-p},

so short jobs count more, but no job for everything. A size is the GPU seconds that the job still takes in its
most efficient configuration, so that no job counts more because slow GPUs would take it, too. The work that a
restart costs is deducted, spread over the time that a configuration is expected to be kept.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from wattsched.formulations.sizing.objectives import HOLD_S, OBJECTIVES, useful_share
from wattsched.replay.jobs.policies.rounds import RoundOptions, RoundSolver, fastest
from wattsched.replay.jobs.policy import Decision, PolicyContext, State
from wattsched.topology.arrays import FloatArray

Cost = Callable[[RoundOptions], FloatArray]
"""Options to the cost of each, to be minimised."""

CONCAVITY = 0.3
"""p of `rank`. Completion times are flat from 0.2 to 0.7; small values spread the GPUs more evenly."""

SLACK = 1.0
"""Slack of `elastic-makespan`: share by which the last of many jobs may end later than it must."""

_BEYOND = 10.0
_BISECTIONS = 40


def rank(options: RoundOptions) -> FloatArray:
    """Cost of heSRPT's value per second."""
    return np.asarray(-values(options)[options.job] * options.rate * useful(options))


def values(options: RoundOptions) -> FloatArray:
    """Value of a unit of work of each job, shape (n_jobs,): heSRPT's, of the GPU seconds that it takes."""
    per_work = options.least_gpu_s
    return rank_weights(options.work * per_work) * per_work


def useful(options: RoundOptions) -> FloatArray:
    """Share of the time that a configuration is expected to be kept in which the job works."""
    return useful_share(options, np.minimum(HOLD_S, np.maximum(options.completion_s, 1e-9)))


def rank_weights(size: FloatArray, concavity: float = CONCAVITY) -> FloatArray:
    """Weights of jobs by the rank of their sizes, the largest job first; ties in the order given."""
    place = np.empty(len(size))
    place[np.argsort(-size, kind="stable")] = np.arange(1, len(size) + 1)
    # k^e - (k - 1)^e with k taken out, for its power may be huge.
    power = 1.0 / (1.0 - concavity)
    return np.asarray(place * (1.0 - (1.0 - 1.0 / place) ** power) ** (1.0 - concavity))


def in_time(options: RoundOptions, slack: float = SLACK) -> FloatArray:
    """Cost of `rank` with a penalty for options with which the last job would end late.

    Late is beyond (1 + slack) times the shortest time in which all jobs of the state fit into the cluster, by
    their GPU seconds. A job that ends in time in its smallest configuration may do what it wants, even wait.
    """
    plain, late_s = rank(options), (1.0 + slack) * horizon_s(options)
    seconds = np.where(options.waiting, np.inf, options.completion_s)
    late = (seconds[options.start[:-1]] > late_s)[options.job] & (seconds > late_s)
    excess = np.minimum(np.log(np.maximum(seconds / late_s, 1.0)), 3.0)
    return np.asarray(plain + np.where(late, _BEYOND * np.ptp(plain) * excess, 0.0))


def horizon_s(options: RoundOptions) -> float:
    """Shortest time in which all jobs can end, as far as their GPU seconds and best speeds tell."""
    seconds = np.where(options.waiting, np.inf, options.completion_s)
    gpu_s = options.gpus * options.completion_s
    start = options.start[:-1]
    capacity = int(options.state.trace.available.sum())
    low = float(np.minimum.reduceat(seconds, start).max())
    high = max(low, float(seconds[start].sum()))

    def fit(within_s: float) -> bool:
        area = np.where(seconds <= within_s, gpu_s, np.inf)
        return float(np.minimum.reduceat(area, start).sum()) <= capacity * within_s

    for _ in range(_BISECTIONS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if fit(middle) else (middle, high)
    return high


class Elastic:
    """Chooses every job's GPU count anew at least cost, at default batch size, clock and power limit."""

    def __init__(self, context: PolicyContext, cost: Cost = rank) -> None:
        self.restart_s = context.restarts.process_s
        self._counts = fastest(context.trace, context.trace.standard)
        self._wait_s = max(context.round_s, 1.0)
        self._cost = cost
        self._solver = RoundSolver("elastic", context.gap)

    def decide(self, state: State) -> Decision:
        """Solve the round to the gap asked for."""
        options = RoundOptions.of(state, self._counts, self._wait_s)
        return self._solver.decide(options, options.program(self._cost(options)))


progress = partial(Elastic, cost=OBJECTIVES["progress"].cost)
completion = partial(Elastic, cost=OBJECTIVES["total-completion"].cost)
