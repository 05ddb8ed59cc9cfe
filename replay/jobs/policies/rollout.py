"""`elastic-makespan`: short jobs first, as far as the last job ends no later than under SideCar's rule.

At every decision the jobs present are simulated to their ends (`project`), under the rule and under plans:
`elastic.rank`, with weights of the jobs' own. Again and again the weight of the job that ends last grows,
and the plan is simulated anew (squeaky wheel optimisation: Joslin and Clements, JAIR 1999), once from equal
weights and once from those of the last decision. Of all that end no later than the rule would, and in no
longer total time, the first step of the best is taken: a roll-out, which without arrivals is never worse than
its base (Bertsekas, Tsitsiklis and Wu, J. Heuristics 1997). For that, what the rule promised at the last
arrival holds until the next one. Best is the least product of total time and makespan to the power of `TAUT`:
a plan that ends early has room for those who come.

In a simulation nobody arrives, and GPUs are counted, not placed, so nobody has to move. All else is as in a
replay: work, restarts, and a decision at every completion. It takes time by the square of the number of jobs:
where a budget of effort does not allow a few of them, the sizing program decides instead, with a penalty for
late jobs (`elastic.in_time`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.formulations.sizing.objectives import HOLD_S
from wattsched.replay.jobs.policies.elastic import Elastic, in_time, rank_weights
from wattsched.replay.jobs.policies.growth import Rule, Snapshot, Snapshots, grow, seconds_saved
from wattsched.replay.jobs.policy import Decision, PolicyContext, State

STEP = 1.1
"""Factor by which the weight of the last job grows."""

TRIES = 24
"""Simulations from each beginning."""

TAUT = 2.0
"""Weight of a percent of makespan, in percents of total time."""

FEWEST = 3
"""Least number of simulations from each beginning; with fewer, the program decides."""

EFFORT = 300_000
"""Jobs times configurations of all jobs, over all simulations of a decision: some tenths of a second."""

_ROUNDING = 1e-9
_DONE = 1e-9


class Rollout:
    """Plans a decision by simulations of the jobs present, where these are few enough."""

    def __init__(self, context: PolicyContext) -> None:
        self.restart_s = context.restarts.process_s
        self._snapshots = Snapshots(context.trace)
        self._many = Elastic(context, in_time)
        self._weights: dict[int, float] = {}
        # What the rule promised when the last job arrived, as of the last decision.
        self._newest, self._present = -1, 0
        self._time_s = self._makespan_s = self._total_s = 0.0

    def decide(self, state: State) -> Decision:
        """Take the first step of the best plan that keeps the promise."""
        now = self._snapshots.of(state)
        tries = EFFORT // (len(now) * sum(len(kind.rate) for kind in now.kind)) // 2
        if tries < FEWEST:
            return self._many.decide(state)
        return now.decision(self._plan(state, now, min(TRIES, tries)).first)

    def _plan(self, state: State, now: Snapshot, tries: int) -> Projection:
        """Best plan found by raising the weight of the last job, from two beginnings."""
        base, former = project(now, seconds_saved), project(now, ranked(self._weights))
        makespan_s, total_s = self._promised(state, base)
        # Moves, which no simulation knows, may have broken the promise.
        makespan_s = max(makespan_s, min(base.makespan_s, former.makespan_s)) * (1.0 + _ROUNDING)
        total_s = max(total_s, min(base.total_s, former.total_s)) * (1.0 + _ROUNDING)
        found, least = base, math.inf
        if base.makespan_s <= makespan_s and base.total_s <= total_s:
            least = base.score
        for weights in ({}, dict(self._weights)):
            for _ in range(tries):
                plan = project(now, ranked(weights))
                if plan.total_s > total_s:
                    break
                if plan.makespan_s <= makespan_s and plan.score < least:
                    found, least, self._weights = plan, plan.score, dict(weights)
                weights[plan.last] = STEP * weights.get(plan.last, 1.0)
        return found

    def _promised(self, state: State, base: Projection) -> tuple[float, float]:
        """Seconds until the last job ends, and sum over all jobs, as the rule promised."""
        passed_s, self._time_s = state.time_s - self._time_s, state.time_s
        self._makespan_s -= passed_s
        self._total_s -= passed_s * self._present
        self._present = len(state)
        if (newest := int(state.jobs[-1])) > self._newest:
            self._newest, self._makespan_s, self._total_s = newest, base.makespan_s, base.total_s
        return self._makespan_s, self._total_s


def ranked(weights: Mapping[int, float]) -> Rule:
    """Value of `elastic.rank` times a weight by job, 1 where none is given."""

    def rule(now: Snapshot) -> list[int]:
        size_s = [work * kind.least_gpu_s for work, kind in zip(now.work, now.kind, strict=True)]
        value: list[list[float]] = [[]] * len(now)
        largest_first = sorted(range(len(now)), key=size_s.__getitem__, reverse=True)
        for j, share in zip(largest_first, _shares(len(now)), strict=True):
            kind, work, value[j] = now.kind[j], now.work[j], []
            share *= weights.get(now.job[j], 1.0) * kind.least_gpu_s
            for rate, delay_s in zip(kind.rate, now.delays_s(j), strict=True):
                kept_s = min(HOLD_S, work / rate + delay_s)
                value[j].append(share * rate * max(0.0, 1.0 - delay_s / kept_s))
        return grow(now, (), value)

    return rule


@cache
def _shares(n: int) -> tuple[float, ...]:
    """HeSRPT's weights of n jobs, the largest job first."""
    return tuple(rank_weights(np.arange(n, 0.0, -1.0)).tolist())


class Projection:
    """First decision of a simulated rule, and seconds until each job ends, infinite if it never does.

    `last` is the job that ends last; of `score`, plans with less are better.
    """

    def __init__(self, first: list[int], end_s: dict[int, float]) -> None:
        self.first, self.end_s = first, end_s
        self.last = max(end_s, key=end_s.__getitem__)
        self.makespan_s, self.total_s = end_s[self.last], sum(end_s.values())
        self.score = self.total_s * math.pow(self.makespan_s, TAUT)


def project(of: Snapshot, rule: Rule) -> Projection:
    """Simulate the jobs to their ends."""
    now = replace(of)
    now.keep(range(len(of)))
    first: list[int] = []
    end_s: dict[int, float] = {}
    time_s = 0.0
    while len(now):
        chosen = rule(now)
        first = first or chosen
        step_s = _settle(now, chosen)
        time_s += step_s
        if step_s == math.inf:
            end_s.update(dict.fromkeys(now.job, math.inf))
            break
        left = []
        for j, k in enumerate(chosen):
            if k != WAIT:
                rate, delay_s = now.kind[j].rate[k], now.delay_s[j]
                now.work[j] -= rate * max(step_s - delay_s, 0.0)
                now.delay_s[j] = max(delay_s - step_s, 0.0)
                if now.work[j] <= _DONE * rate:
                    end_s[now.job[j]] = time_s
                    continue
            left.append(j)
        now.keep(left)
    return Projection(first, end_s)


def _settle(now: Snapshot, chosen: list[int]) -> float:
    """Give the jobs their configurations, and return the seconds until the first of them ends."""
    step_s = math.inf
    for j, k in enumerate(chosen):
        if k == WAIT:
            now.delay_s[j] = 0.0
            continue
        if k != now.held[j]:
            now.delay_s[j] = now.restart_s if now.ran[j] else 0.0
            now.ran[j] = True
        step_s = min(step_s, now.delay_s[j] + now.work[j] / now.kind[j].rate[k])
    now.held = chosen
    return step_s
