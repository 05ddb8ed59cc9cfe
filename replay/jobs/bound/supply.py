"""Work of jobs of a kind at each worth of a unit of it, and the resources that it uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.replay.jobs.bound.workload import Kind
from wattsched.topology.arrays import FloatArray, IntArray

COARSE, EVENLY = 64, 24
"""Worths at which work is looked at to find where it begins to pay, and those over the whole range."""


@dataclass(frozen=True)
class Used:
    """Resources that schedules use, and the worth of work to them.

    Attributes
    ----------
    gpu_s : float array, shape (n_pools, n_slots)
    joules : float array, shape (n_slots + 1,)
        At last those after the last slot.
    completing : int array, shape (n_slots + 1,)
        Number of them that complete in each slot, and after the last.
    worth : float array, shape (n_jobs,)
        Worth of a unit of each job's work.
    """

    gpu_s: FloatArray
    joules: FloatArray
    completing: IntArray
    worth: FloatArray

    @classmethod
    def none(cls, pools: int, slots: int, jobs: int) -> Used:
        """Nothing, so far."""
        ending = np.zeros(slots + 1, dtype=np.int64)
        return cls(np.zeros((pools, slots)), np.zeros(slots + 1), ending, np.zeros(jobs))


class Supply:
    """Work of a kind of jobs that pays at each worth of a unit and in each slot; (n_worths, n_slots).

    Attributes
    ----------
    worth : float array, shape (n_worths,)
        Ascending.
    beyond : int
        Number of the worth of work after the last slot.
    profit, last : float arrays
        Of a second: h, and where it counts for completion, too.
    earned : float array, shape (n_worths, n_slots + 1)
        Profits of all slots before.
    """

    def __init__(
        self, kind: Kind, cost: FloatArray, width_s: FloatArray, worth: FloatArray, beyond: FloatArray
    ) -> None:
        self.worth, self._width_s = worth, width_s
        self._row, profit = _best(worth, kind.rate, cost)
        self._runs, self._ends = profit > 0, profit > 1
        self.profit, self.last = np.maximum(profit, 0.0), np.maximum(profit - 1.0, 0.0)
        self.earned = _before(self.profit * width_s)
        self._kind, self._rate = kind, np.where(self._runs, kind.rate[self._row], 0.0)
        self._done = _before(self._rate * width_s)
        self._whole = np.zeros((len(worth), len(width_s) + 1))
        self.beyond = int(np.searchsorted(worth, beyond.min()))
        self._cheapest = int(beyond.argmin())

    def use(self, worth: int, first: int, k: int, begun_s: float, work: float, used: Used) -> None:
        """Add the schedule of a job that begins in slot `first` and completes in slot k.

        Between two worths it does less than its work at one, and more at the other: it takes part of each.
        """
        done = self._work(worth, first, k, begun_s)
        low = worth if done < work else worth - 1
        low = min(max(low, 0), len(self.worth) - 2)
        less, more = self._work(low, first, k, begun_s), self._work(low + 1, first, k, begun_s)
        share = float(np.clip((work - less) / (more - less), 0.0, 1.0)) if more > less else 1.0
        for at, part in ((low, 1.0 - share), (low + 1, share)):
            if part:
                last_s = begun_s if k == first else float(self._width_s[k])
                self._add(at, k, part * last_s * self._ends[at, k], used)
                if k > first:
                    self._between(at, first, k, begun_s, part, used)
        used.completing[k] += 1

    def use_beyond(self, worth: int, first: int, begun_s: float, work: float, used: Used) -> None:
        """Add the schedule of a job that completes after the last slot."""
        slots = len(self._width_s)
        self._between(worth, first, slots, begun_s, 1.0, used)
        done = begun_s * self._rate[worth, first] + self._done[worth, slots] - self._done[worth, first + 1]
        rest_s = max(0.0, work - done) / self._kind.rate[self._cheapest]
        used.joules[slots] += rest_s * self._kind.power_w[self._cheapest]
        used.completing[slots] += 1

    def add_inside(self, used: Used) -> None:
        """Add what jobs use of whole slots."""
        running_s = np.cumsum(self._whole, axis=1)[:, :-1] * self._width_s * self._runs
        pool = self._kind.pool[self._row]
        for p in range(len(used.gpu_s)):
            used.gpu_s[p] += (running_s * self._kind.gpus[self._row] * (pool == p)).sum(axis=0)
        used.joules[:-1] += (running_s * self._kind.power_w[self._row]).sum(axis=0)

    def _work(self, worth: int, first: int, k: int, begun_s: float) -> float:
        """Work that a job does at a worth."""
        last = self._kind.rate[self._row[worth, k]] * self._ends[worth, k]
        if k == first:
            return float(begun_s * last)
        whole = self._done[worth, k] - self._done[worth, first + 1]
        return float(begun_s * self._rate[worth, first] + whole + self._width_s[k] * last)

    def _between(self, worth: int, first: int, k: int, begun_s: float, part: float, used: Used) -> None:
        """Add a part of what a job does in its first slot, and in all others before k."""
        self._add(worth, first, part * begun_s * self._runs[worth, first], used)
        self._whole[worth, first + 1] += part
        self._whole[worth, k] -= part

    def _add(self, worth: int, slot: int, seconds: float, used: Used) -> None:
        row = self._row[worth, slot]
        used.gpu_s[self._kind.pool[row], slot] += seconds * self._kind.gpus[row]
        used.joules[slot] += seconds * self._kind.power_w[row]


def _best(worth: FloatArray, rate: FloatArray, cost: FloatArray) -> tuple[IntArray, FloatArray]:
    """Row that earns most in a second at each worth and in each slot, and what it earns."""
    row = np.zeros((len(worth), cost.shape[1]), dtype=np.int64)
    most = np.full(row.shape, -np.inf)
    for c in range(len(rate)):
        profit = worth[:, None] * rate[c] - cost[c]
        better = profit > most
        most[better], row[better] = profit[better], c
    return row, most


def _before(values: FloatArray) -> FloatArray:
    """Sums of all slots before each, and at last of all."""
    sums = np.zeros((values.shape[0], values.shape[1] + 1))
    np.cumsum(values, axis=1, out=sums[:, 1:])
    return sums


def worths_of(
    rate: FloatArray, cost: FloatArray, width_s: FloatArray, beyond: float, points: int
) -> FloatArray:
    """Worths of a unit of work at which much work begins to pay, and some over the whole range; ascending."""
    highest = 1.05 * float(((cost.max(axis=1) + 1.0) / rate).max())
    lowest = min(1e-4 / float(rate.max()), beyond)
    coarse = np.geomspace(lowest, highest, COARSE)
    row, profit = _best(coarse, rate, cost)
    begins, weight = [], []
    for least, more in ((0.0, 0.0), (1.0, 1.0)):
        pays = profit > least
        speed = np.where(pays, rate[row], 0.0)
        paid = np.where(pays, np.take_along_axis(cost, row, axis=0) + more, 0.0)
        faster, dearer = np.diff(speed, axis=0), np.diff(paid, axis=0)
        # Of the last slots only where work begins to pay: above that they change with the others.
        grows = (faster > 0) & ((speed[:-1] == 0) | (least == 0.0))
        begins.append(dearer[grows] / faster[grows])
        weight.append((faster * width_s)[grows])
    at, much = np.concatenate(begins), np.concatenate(weight)
    order = np.argsort(at)
    grown = np.cumsum(np.sqrt(much[order] * at[order]))
    worths = np.append(np.geomspace(lowest, highest, EVENLY), beyond)
    if len(grown):
        chosen = np.searchsorted(grown, np.linspace(0.0, grown[-1], points) * (1 - 1e-12))
        worths = np.append(worths, at[order][chosen])
    return np.unique(worths)
