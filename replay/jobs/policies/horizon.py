r"""The draw of a budget over a receding horizon, planned with the arrivals that the past foretells.

A joule is worth most when many jobs are here, since all of them wait for it. Where n jobs are here, G GPUs
work at the relative speed s and draw p watts each, and a unit of the budget is worth :math:`\lambda` seconds
of completion time, summed over jobs, the best speed is

.. math:: \max_p \; n\, s(p) - \lambda\, c\, G\, p,

with c the part of the budget that a joule takes (Bansal, Pruhs and Stein, "Speed scaling for weighted flow
time", SIAM J. Comput. 39(4), 2009). A price that stays the same spends the budget best, if it just lasts: so
the queue is simulated to the end of the period, with the jobs that are here and the arrivals of a scenario,
the shortest first, and the price is found at which the scenario takes what is left. What a unit is worth
later is its mean over the scenarios, as the price in each is the worth of a unit once it is known which one
comes true (Birge and Louveaux, "Introduction to Stochastic Programming", 2011, chapter 4).

Scenarios are drawn from the past: jobs arrive at random at the rate of the last day, mixed with that of all
days before, and are of the sizes of jobs that have ended. Days differ by far more than chance, so the rate is
drawn, too. What comes is never known well: half of the draw stays that of an even pace.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush

import numpy as np

from wattsched.instances.units import J_PER_KWH, S_PER_DAY, S_PER_H
from wattsched.replay.jobs.budget import Allowance, Budget
from wattsched.replay.jobs.policy import State
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray, IntArray

SCENARIOS, REVIEW_S, REVIEWS = 6, 1800.0, 48
"""Scenarios of a plan, and time between two plans; there are at least so many in a period."""
HORIZON_S = 2 * S_PER_DAY
"""Longest time that is planned; beyond, the budget is spent evenly."""
BEFORE_S, EVEN = 6 * S_PER_H, 0.5
"""The rate of all days before counts for so long beside that of the last day; so much of the draw is even."""
SPREAD, BURST = 0.3, 20.0
"""Shape of the gamma distribution of the rate, and arrivals of the last day by which it grows by 1."""
SIZES = 200
"""Jobs that ended last, whose sizes are drawn."""
PRICES = np.concatenate([[0.0], np.geomspace(1e-5, 1e-1, 120)])
"""Prices, of a watt for each GPU in relative speed, at which the curve of speed and draw is looked at."""
FEWEST = 20
"""Jobs of the past without which there is no plan."""
STEP, CLOSE = 4.0, 1.15
"""Ratio of prices that are tried one after the other, and the one at which the search ends."""
LEAST, MOST = 1e-6, 1e3
"""Range of prices of a joule."""

Queued = tuple[float, float]
"""GPU seconds that a job still takes at the speed asked for, and its GPUs."""
Arrival = tuple[float, float, float]
"""When a job comes, its GPU seconds and its GPUs."""


@dataclass(frozen=True)
class Curve:
    """Speed and draw of the average job of a trace at each of `PRICES`, over those it asked for.

    Attributes
    ----------
    speed, power_w : list of float
        Of a GPU asked for, on the GPUs asked for.
    wide_speed, wide_power_w, wide : list of float
        The same on any number of GPUs, and that number over the one asked for.
    """

    speed: list[float]
    power_w: list[float]
    wide_speed: list[float]
    wide_power_w: list[float]
    wide: list[float]

    @classmethod
    def of(cls, trace: Trace, rows: IntArray) -> Curve:
        """Average over kinds of jobs, by the square root of their GPU seconds, of the best of some rows."""
        of, kind = trace.configurations, trace.configurations.of_job
        gpu_s = np.bincount(kind, weights=trace.requested_gpu_s)
        total, weights = np.zeros((5, len(PRICES))), 0.0
        for number, job in zip(*np.unique(kind, return_index=True), strict=True):
            own = rows[of.kind[rows] == number]
            asked = own[of.gpus[own] == trace.requested_gpus[job]]
            if not len(asked):
                continue
            weight = math.sqrt(gpu_s[number])
            found = [best(trace, job, among) for among in (asked, own)]
            total += weight * np.vstack([found[0][:2], found[1]])
            weights += weight
        return cls(*(total / max(weights, 1e-30)).tolist())

    def at(self, price: float, room: float) -> tuple[float, float]:
        """Speed and draw of a GPU asked for, where there are `room` times as many GPUs as asked for."""
        k = min(bisect_left(_PRICES, price), len(_PRICES) - 1)
        speed, power_w = self.speed[k], self.power_w[k]
        if room > 1.0 and self.wide[k] > 1.0:
            part = min(1.0, (room - 1.0) / (self.wide[k] - 1.0))
            speed += part * (self.wide_speed[k] - speed)
            power_w += part * (self.wide_power_w[k] - power_w)
        return speed, power_w


_PRICES: list[float] = PRICES.tolist()


def best(trace: Trace, job: int, rows: IntArray) -> FloatArray:
    """Return speed, draw and GPUs, over those asked for, of a job's best row at each price; (3, n_prices)."""
    asked = float(trace.requested_gpus[job])
    columns = np.array(
        [
            trace.configurations.rate[rows] / trace.requested_rate[job],
            trace.busy_w[rows] / asked,
            trace.configurations.gpus[rows] / asked,
        ]
    )
    columns = np.hstack([columns, np.zeros((3, 1))])
    return np.asarray(columns[:, (columns[0] - PRICES[:, None] * columns[1]).argmax(axis=1)])


def spent(
    curve: Curve,
    gpus: float,
    here: Sequence[Queued],
    coming: Sequence[Arrival],
    costs: Sequence[tuple[float, float]],
    begin_s: float,
    price: float,
) -> float:
    """Simulate a queue at a price of the budget, and return what of it is spent.

    Jobs that are started run to their ends, and the shortest that waits is the next.

    Parameters
    ----------
    gpus : float
        GPUs of the cluster.
    coming : sequence
        In the order of their arrival.
    costs : sequence of (end_s, cost)
        Part of the budget that a joule takes until each time; the last is the end.
    """
    waiting, running = list(here), list[tuple[float, float]]()
    heapify(waiting)
    time_s, done, used, total, k, at = begin_s, 0.0, 0.0, 0.0, 0, 0
    while at < len(costs):
        while waiting and (not running or used + waiting[0][1] <= gpus):
            size, n = heappop(waiting)
            heappush(running, (done + size / n, n))
            used += n
        end_s, cost = costs[at]
        next_s = min(coming[k][0], end_s) if k < len(coming) else end_s
        if running:
            worth = cost * price * used / (len(running) + len(waiting))
            speed, power_w = curve.at(worth, gpus / used)
            ends_s = time_s + (running[0][0] - done) / speed if speed > 0.0 else math.inf
            done = running[0][0] if ends_s <= next_s else done + (next_s - time_s) * speed
            next_s = min(next_s, ends_s)
            total += (next_s - time_s) * cost * used * power_w
            while running and running[0][0] <= done:
                used -= heappop(running)[1]
        time_s = next_s
        while k < len(coming) and coming[k][0] <= time_s:
            heappush(waiting, coming[k][1:])
            k += 1
        at += time_s >= end_s
    return total


def lasting(spends: Callable[[float], float], amount: float, near: float, least: float, most: float) -> float:
    """Return the least price at which no more than an amount is spent, to a factor of `CLOSE`.

    Parameters
    ----------
    spends : callable
        What is spent at a price: less at higher ones.
    near, least, most : float
        Price where the search begins, and its range; the least, if it spends no more than that, either.
    """
    low = high = min(max(near, least), most)
    while high < most and spends(high) > amount:
        low, high = high, min(STEP * high, most)
    while low > least and spends(low) <= amount:
        low, high = max(low / STEP, least), low
    if low == least and spends(least) <= amount:
        return least
    while high > CLOSE * low:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if spends(middle) > amount else (low, middle)
    return high


@dataclass(frozen=True)
class Past:
    """Jobs before a trace and of it, from which arrivals are drawn.

    Attributes
    ----------
    before : int
        Number of those before the trace, which are the first.
    arrival_s, gpus, gpu_s : float arrays, shape (n_jobs,)
        Arrival, GPUs asked for, and GPU seconds on them.
    """

    before: int
    arrival_s: FloatArray
    gpus: FloatArray
    gpu_s: FloatArray

    @classmethod
    def of(cls, trace: Trace) -> Past:
        """Jobs of a trace and its history, in the order of their arrival."""
        before = sorted(trace.history, key=lambda job: job.submitted_s)
        arrived_s, gpus, gpu_s = (
            np.array([(job.submitted_s, job.gpus, job.gpus * job.duration_s) for job in before])
            .reshape(-1, 3)
            .T
        )
        return cls(
            len(before),
            np.append(arrived_s, trace.arrival_s),
            np.append(gpus, trace.requested_gpus),
            np.append(gpu_s, trace.requested_gpu_s),
        )

    def scenarios(self, state: State, until_s: float) -> list[list[Arrival]]:
        """Draw arrivals until a time, again and again; none where too little is past."""
        now_s = state.time_s
        came, begun = np.searchsorted(self.arrival_s, [now_s, now_s - S_PER_DAY], side="right").tolist()
        ended = np.setdiff1d(np.arange(came), self.before + state.jobs)[-SIZES:]
        others_s = now_s - S_PER_DAY - self.arrival_s[0]
        if others_s < 0 or len(ended) < FEWEST:
            return []
        lately, draw = came - begun, np.random.default_rng(came)
        rate = (lately + BEFORE_S * begun / max(others_s, S_PER_DAY)) / (S_PER_DAY + BEFORE_S)
        shape = SPREAD + lately / BURST
        found = list[list[Arrival]]()
        for times in draw.gamma(shape, 1.0 / shape, SCENARIOS).tolist():
            n = int(draw.poisson(times * rate * (until_s - now_s)))
            when_s, which = np.sort(draw.uniform(now_s, until_s, n)), draw.choice(ended, n)
            columns = (when_s, self.gpu_s[which], self.gpus[which])
            found.append(list(zip(*(column.tolist() for column in columns), strict=True)))
        return found


class Horizon:
    """Plan of a budget's draw, made again in the course of a period.

    Attributes
    ----------
    price : float, optional
        Seconds of completion time, summed over jobs, that a unit of the budget is worth now; None without a
        plan.
    """

    def __init__(self, trace: Trace, rows: IntArray, budget: Budget) -> None:
        self._trace, self._budget, self._past = trace, budget, Past.of(trace)
        self._curve, self._gpus = Curve.of(trace, rows), float(trace.available.sum())
        self.price: float | None = None
        self._again_s = -math.inf

    def limit_w(self, state: State, allowance: Allowance) -> float:
        """Most that the cluster may draw now, half of it the even draw beyond the idle one."""
        even_w = allowance.in_proportion_w - allowance.standing_w
        if not 0.0 < even_w < math.inf or not len(state):
            return allowance.in_proportion_w
        asked = self._trace.requested_gpus[state.jobs].astype(float)
        gpu_s = state.remaining / self._trace.requested_rate[state.jobs] * asked
        if state.time_s >= self._again_s:
            self._plan(state, allowance, list(zip(gpu_s.tolist(), asked.tolist(), strict=True)))
        if self.price is None:
            return allowance.in_proportion_w
        running = np.cumsum(asked[np.argsort(gpu_s, kind="stable")])
        used = float(running[max(int(np.searchsorted(running, self._gpus, side="right")) - 1, 0)])
        worth = self.price * allowance.per_joule * used / len(state)
        planned_w = used * self._curve.at(worth, self._gpus / used)[1]
        return allowance.standing_w + EVEN * even_w + (1.0 - EVEN) * planned_w

    def _plan(self, state: State, allowance: Allowance, here: Sequence[Queued]) -> None:
        """Find the mean over scenarios of the price at which what is left lasts."""
        now_s, left_s = state.time_s, allowance.left_s
        until_s = now_s + min(left_s, HORIZON_S)
        self._again_s = min(now_s + min(REVIEW_S, self._budget.period_s / REVIEWS), now_s + left_s)
        spans, dearest = self._costs(now_s, until_s)
        amount = allowance.spare / dearest * (until_s - now_s) / left_s
        prices = list[float]()
        for coming in self._past.scenarios(state, until_s):
            spends = partial(spent, self._curve, self._gpus, here, coming, spans, now_s)
            prices.append(lasting(spends, amount, prices[-1] if prices else 1e-2, LEAST, MOST))
        self.price = float(np.mean(prices)) / dearest if prices else None

    def _costs(self, now_s: float, until_s: float) -> tuple[list[tuple[float, float]], float]:
        """Ends of the spans in which a joule costs the same, that cost over the largest, and the largest."""
        steps = self._budget.planned
        within = steps.time_s[(steps.time_s > now_s) & (steps.time_s < until_s)]
        begins = np.append(now_s, within)
        cost = np.asarray(steps.at(begins)) / J_PER_KWH
        dearest = max(float(cost.max()), 1e-30)
        return list(zip([*within.tolist(), until_s], (cost / dearest).tolist(), strict=True)), dearest
