"""`elastic-makespan`: short jobs first, as far as the last job ends no later than under SideCar's rule.

At every decision the jobs present are simulated to their ends (`projection`), under the rule and under plans:
`rank` of `worth`, with weights of the jobs' own. Again and again the weight of the job that ends last grows,
and the plan is simulated anew (squeaky wheel optimisation: Joslin and Clements, JAIR 1999), once from equal
weights and once from those of the last decision. Of all that end no later than the rule would, and in no
longer total time, the first step of the best is taken: a roll-out, which without arrivals is never worse than
its base (Bertsekas, Tsitsiklis and Wu, J. Heuristics 1997). For that, what the rule promised at the last
arrival holds until the next one. Best is the least product of total time and makespan to the power of `TAUT`:
a plan that ends early has room for those who come.

Simulations take time by the square of the number of jobs. Where a budget of effort does not allow a few of
them, the sizing program decides instead, with a penalty for late jobs (`worth.in_time`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policies.elastic import Elastic
from wattsched.replay.jobs.policies.gains import counts
from wattsched.replay.jobs.policies.projection import Crowd, Kind, Projection, Rule, crowd_of, grow, project
from wattsched.replay.jobs.policies.worth import HOLD_S, SLACK, in_time, rank, rank_weights
from wattsched.replay.jobs.policy import Decision, Setting, View

STEP = 1.1
"""By how much the weight of the last job grows."""

TRIES = 24
"""Simulations from each beginning."""

TAUT = 2.0
"""What a percent of makespan is worth in percents of total time."""

FEWEST = 3
"""With fewer simulations from each beginning, the program decides."""

EFFORT = 300_000
"""Jobs times configurations of all jobs, over all simulations of a decision: some tenths of a second."""

_ROUNDING = 1e-9


class Rollout:
    """Plans a decision by simulations of the jobs present, where these are few enough."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s
        self._selection = counts(setting)
        self._kinds: dict[int, Kind] = {}
        self._many = Elastic(setting, worth=in_time(rank, SLACK))
        self._weights: dict[int, float] = {}
        self._promise = _Promise()

    def decide(self, view: View) -> Decision:
        """Take the first step of the best plan that keeps the promise."""
        crowd = crowd_of(view, self._selection, self._kinds)
        tries = min(TRIES, _affordable(crowd) // 2)
        if tries < FEWEST:
            return self._many.decide(view)
        first = self._plan(view, crowd, tries).first
        row = [WAITS if k == WAITS else kind.row[k] for kind, k in zip(crowd.kind, first, strict=True)]
        return Decision(np.array(row, dtype=np.int64))

    def _plan(self, view: View, crowd: Crowd, tries: int) -> Projection:
        """Raise the weight of the last job, from two beginnings; the best that is found."""
        base, former = project(crowd, seconds_saved), project(crowd, ranked(self._weights))
        makespan_s, total_s = self._promise.at(view, base)
        # Moves, which no simulation knows, may have broken the promise.
        makespan_s = max(makespan_s, min(base.makespan_s, former.makespan_s)) * (1.0 + _ROUNDING)
        total_s = max(total_s, min(base.total_s, former.total_s)) * (1.0 + _ROUNDING)
        found, least = base, math.inf
        if base.makespan_s <= makespan_s and base.total_s <= total_s:
            least = _score(base)
        for weights in ({}, dict(self._weights)):
            for _ in range(tries):
                plan = project(crowd, ranked(weights))
                if plan.total_s > total_s:
                    break
                if plan.makespan_s <= makespan_s and _score(plan) < least:
                    found, least, self._weights = plan, _score(plan), dict(weights)
                weights[plan.last] = STEP * weights.get(plan.last, 1.0)
        return found


class _Promise:
    """What the rule would have made of the jobs present when the last one arrived."""

    def __init__(self) -> None:
        self._newest, self._present = -1, 0
        self._time_s = self._makespan_s = self._total_s = 0.0

    def at(self, view: View, base: Projection) -> tuple[float, float]:
        """Seconds until the last job ends, and the sum over all, from now."""
        passed_s, self._time_s = view.time_s - self._time_s, view.time_s
        self._makespan_s -= passed_s
        self._total_s -= passed_s * self._present
        self._present = len(view)
        if (newest := int(view.jobs[-1])) > self._newest:
            self._newest, self._makespan_s, self._total_s = newest, base.makespan_s, base.total_s
        return self._makespan_s, self._total_s


def _score(plan: Projection) -> float:
    """Product of total time and makespan to a power."""
    return plan.total_s * math.pow(plan.makespan_s, TAUT)


def _affordable(crowd: Crowd) -> int:
    """Simulations that the budget of effort allows."""
    return EFFORT // (len(crowd) * sum(len(kind.rate) for kind in crowd.kind))


def seconds_saved(crowd: Crowd) -> list[int]:
    """SideCar's rule (`sidecar`)."""
    value = [
        [-(work / rate + delay_s) for rate, delay_s in zip(kind.rate, crowd.delays_s(j), strict=True)]
        for j, (kind, work) in enumerate(zip(crowd.kind, crowd.work, strict=True))
    ]
    alone_s = [work / rate for work, rate in zip(crowd.work, crowd.rate_asked, strict=True)]
    return grow(crowd, sorted(range(len(crowd)), key=alone_s.__getitem__), value)


def ranked(weights: Mapping[int, float]) -> Rule:
    """Value of `worth.rank` times a weight by job, 1 where none is given."""

    def rule(crowd: Crowd) -> list[int]:
        size_s = [work / kind.slowest for work, kind in zip(crowd.work, crowd.kind, strict=True)]
        value: list[list[float]] = [[]] * len(crowd)
        largest_first = sorted(range(len(crowd)), key=size_s.__getitem__, reverse=True)
        for j, share in zip(largest_first, _shares(len(crowd)), strict=True):
            kind, work, value[j] = crowd.kind[j], crowd.work[j], []
            share *= weights.get(crowd.job[j], 1.0) / kind.slowest
            for rate, delay_s in zip(kind.rate, crowd.delays_s(j), strict=True):
                kept_s = min(HOLD_S, work / rate + delay_s)
                value[j].append(share * rate * max(0.0, 1.0 - delay_s / kept_s))
        return grow(crowd, (), value)

    return rule


@cache
def _shares(n: int) -> tuple[float, ...]:
    """Weights of n jobs by heSRPT, the largest first."""
    return tuple(rank_weights(np.arange(n, 0.0, -1.0)).tolist())
