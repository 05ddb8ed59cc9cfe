r"""The least that any schedule of a trace comes to at prices of GPUs and of a budget, and what it uses then.

Time is cut into slots. A GPU second of pool p costs :math:`\lambda_{pi}` in slot i, a unit of the budget
:math:`\mu_m` in period m, and a joule q whenever. At prices jobs do not interact any more. A job with work w
that arrives at r and completes in slot k does so no sooner than its time in that slot after the slot begins:

.. math:: C \ge e_k + \sum_c \theta_{kc}, \qquad
   \min_\theta \; e_k - r + \sum_c \theta_{kc} + \sum_{i \le k} \sum_c \kappa_{ic} \theta_{ic}
   \quad \text{with} \quad \sum_{i \le k} \sum_c s_c \theta_{ic} = w,\ \sum_c \theta_{ic} \le \Delta_i,

where :math:`\theta_{ic}` is its time in configuration c in slot i and :math:`\kappa` what a second of that
costs. This is a continuous knapsack, whose dual has one variable, the worth :math:`\nu` of a unit of work:

.. math:: \max_{\nu \ge 0} \; e_k - r + \nu w - \sum_{i < k} \Delta_i h_i(\nu) - \Delta_k (h_k(\nu) - 1)^+,
   \qquad h_i(\nu) = \max_c (\nu s_c - \kappa_{ic})^+.

Every worth gives a bound, and jobs of a kind have :math:`h` in common: it is tabulated once, at worths where
much work begins to pay, and summed up over the slots. The least over k of what a job costs, summed over the
jobs, less what the GPUs and the budget are worth at their prices, is not above
:math:`\sum_j (C_j - r_j) + q E` of any schedule: preempted, moved and resized at will, knowing the future.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from wattsched.instances.clairvoyant import PeriodBudget, RunOptions, TraceJobs
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.accounts import Steps
from wattsched.solvers.greedy import efficient_columns
from wattsched.topology.arrays import FloatArray, IntArray, alike

POINTS = 128
"""Worths of a unit of work, for each kind of jobs, at which most work begins to pay."""

COARSELY, EVENLY = np.linspace(0.0, 1.0, 64), np.linspace(0.0, 1.0, 24)
"""Worths at which work is looked at to find where it begins to pay, and those over the whole range.

Each is a share of the way, in logarithms, from the lowest to the highest.
"""


@dataclass(frozen=True)
class Kind:
    """Jobs, by number, that have the same options: arrays of shape (n_rows,), as `RunOptions`."""

    name: str
    pool: IntArray
    gpus: FloatArray
    rate: FloatArray
    power_w: FloatArray
    jobs: IntArray

    def efficient(self, *, watts: bool) -> Kind:
        """Leave out rows that never earn most, whatever GPUs cost, and with `watts` joules, too.

        Those are below a mixture of doing nothing and of others: of the same pool by their GPUs, or of the
        same pool and GPU count by their watts.
        """
        group = alike([self.pool, self.gpus])[1] if watts else self.pool
        use, every = self.power_w if watts else self.gpus, np.ones(len(self.rate), dtype=bool)
        rows = efficient_columns(use, self.rate, group, every)
        power_w = self.power_w[rows] if watts else np.zeros(len(rows))
        return Kind(self.name, self.pool[rows], self.gpus[rows], self.rate[rows], power_w, self.jobs)


@dataclass(frozen=True)
class Workload:
    """Problem of a bound: jobs in the order of their arrival, their options, GPUs and a budget.

    Attributes
    ----------
    gpus : float array, shape (n_pools,)
    arrival_s, work : float arrays, shape (n_jobs,)
    standing_w : float
        Least draw of the cluster besides its jobs.
    """

    pools: tuple[str, ...]
    gpus: FloatArray
    arrival_s: FloatArray
    work: FloatArray
    kinds: tuple[Kind, ...]
    standing_w: float = 0.0
    budget: PeriodBudget | None = None

    def efficient(self, *, watts: bool) -> Workload:
        """Return the workload with the rows of `Kind.efficient` alone."""
        return replace(self, kinds=tuple(kind.efficient(watts=watts) for kind in self.kinds))

    @classmethod
    def of(
        cls,
        pools: Mapping[str, int],
        options: Mapping[str, RunOptions],
        jobs: TraceJobs,
        standing_w: float = 0.0,
        budget: PeriodBudget | None = None,
    ) -> Workload:
        """Workload of the parts of a `ClairvoyantBound`."""
        number, used = {name: p for p, name in enumerate(pools)}, np.array(jobs.options)
        kinds = [
            Kind(
                name,
                np.array([number[pool] for pool in rows.pool]),
                np.array(rows.gpus, dtype=float),
                np.array(rows.rate),
                np.array(rows.power_w),
                np.flatnonzero(used == name),
            )
            for name, rows in options.items()
        ]
        return cls(
            tuple(pools),
            np.array(list(pools.values()), dtype=float),
            np.array(jobs.arrival_s),
            np.array(jobs.work),
            tuple(kind for kind in kinds if len(kind.jobs)),
            standing_w,
            budget,
        )


@dataclass(frozen=True)
class Used:
    """Resources that schedules use, and the worth of work to them.

    Attributes
    ----------
    gpu_s : float array, shape (n_pools, n_slots)
    joules, completing : arrays, shape (n_slots + 1,)
        Energy in each slot, number of jobs that complete in it, and at last those after the last slot.
    worth : float array, shape (n_jobs,)
        Worth of a unit of each job's work.
    """

    gpu_s: FloatArray
    joules: FloatArray
    completing: IntArray
    worth: FloatArray

    @classmethod
    def none(cls, pools: int, slots: int, jobs: int) -> Used:
        """Return resources of no schedule."""
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
        """Work that a job does at a worth until the end of slot k."""
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
        np.copyto(most, profit, where=better)
        np.copyto(row, c, where=better)
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
    span = np.log(highest) - np.log(lowest)
    coarse = lowest * np.exp(span * COARSELY)
    row, profit = _best(coarse, rate, cost)
    each = cost[row, np.arange(cost.shape[1])]
    begins, weight = [], []
    for least, more in ((0.0, 0.0), (1.0, 1.0)):
        pays = profit > least
        speed = np.where(pays, rate[row], 0.0)
        paid = np.where(pays, each + more, 0.0)
        faster, dearer = np.diff(speed, axis=0), np.diff(paid, axis=0)
        # Of the last slots only where work begins to pay: above that they change with the others.
        grows = (faster > 0) & ((speed[:-1] == 0) | (least == 0.0))
        begins.append(dearer[grows] / faster[grows])
        weight.append((faster * width_s)[grows])
    at, much = np.concatenate(begins), np.concatenate(weight)
    order = np.argsort(at)
    grown = np.cumsum(np.sqrt(much[order] * at[order]))
    worths = np.append(lowest * np.exp(span * EVENLY), beyond)
    if len(grown):
        chosen = np.searchsorted(grown, np.linspace(0.0, grown[-1], points) * (1 - 1e-12))
        worths = np.append(worths, at[order][chosen])
    return np.unique(worths)


@dataclass(frozen=True)
class Prices:
    """Prices of GPU seconds, shape (n_pools, n_slots), of the budget, shape (n_periods,), and of a joule."""

    gpus: FloatArray
    budget: FloatArray
    joule: float


@dataclass(frozen=True)
class Evaluation:
    """Value of the relaxation at prices, a lower bound, and what the schedules that cost least use.

    Attributes
    ----------
    spent : float array, shape (n_periods,)
        Amounts of the budget that they take.
    completion_s : float
        Sum over their jobs.
    """

    value: float
    used: Used
    spent: FloatArray
    completion_s: float


class Relaxation:
    """A workload in slots.

    Attributes
    ----------
    edge_s : float array, shape (n_slots + 1,)
    width_s : float array, shape (n_slots,)
    spare : float array, shape (n_periods,)
        Amount of the budget left to jobs in the periods in which slots begin.
    """

    def __init__(self, workload: Workload, edge_s: FloatArray) -> None:
        self.workload, self.edge_s, self.width_s = workload, edge_s, np.diff(edge_s)
        self._first = np.searchsorted(edge_s, workload.arrival_s, side="right") - 1
        self.period, self.cost, self.spare = _periods(workload, edge_s)

    def worths(self, prices: Prices, points: int) -> dict[str, FloatArray]:
        """Worths of a unit of work that `evaluate` looks at, by the name of the kind."""
        joule = self.per_joule(prices)
        kinds = self.workload.kinds
        return {kind.name: self._priced(kind, prices, joule, points)[1] for kind in kinds}

    def evaluate(self, prices: Prices) -> Evaluation:
        """Find the schedule of each job that costs least at prices."""
        used = Used.none(len(prices.gpus), len(self.width_s), len(self.workload.work))
        joule, total = self.per_joule(prices), 0.0
        for kind in self.workload.kinds:
            cost, worth, beyond = self._priced(kind, prices, joule, POINTS)
            supply = Supply(kind, cost, self.width_s, worth, beyond)
            total += sum(self._job(supply, j, used) for j in kind.jobs.tolist())
            supply.add_inside(used)
        owed = float((prices.gpus * self.workload.gpus[:, None] * self.width_s).sum())
        value = total - owed - float(prices.budget @ self.spare)
        spent = np.zeros(len(self.spare))
        if len(spent):
            np.add.at(spent, self.period, used.joules[:-1] * self.cost)
        paid = float((prices.gpus * used.gpu_s).sum())
        paid += float(np.append(joule, prices.joule) @ used.joules)
        return Evaluation(value, used, spent, total - paid)

    def per_joule(self, prices: Prices) -> FloatArray:
        """Price of a joule in each slot."""
        budget = np.append(prices.budget, 0.0)[self.period] * self.cost
        return np.asarray(budget + prices.joule)

    def _priced(
        self, kind: Kind, prices: Prices, joule: FloatArray, points: int
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the cost of a second in each row by slot, worths of work, and the costs of work beyond."""
        cost = prices.gpus[kind.pool] * kind.gpus[:, None] + joule * kind.power_w[:, None]
        beyond = (1.0 + prices.joule * kind.power_w) / kind.rate
        return cost, worths_of(kind.rate, cost, self.width_s, float(beyond.min()), points), beyond

    def _job(self, supply: Supply, j: int, used: Used) -> float:
        """Return the least cost of a job; the schedule that has it is added to `used`."""
        edge_s, width_s, first = self.edge_s, self.width_s, int(self._first[j])
        arrival_s, work = float(self.workload.arrival_s[j]), float(self.workload.work[j])
        begun_s = float(edge_s[first + 1]) - arrival_s
        paid = supply.worth * work
        before = paid - begun_s * supply.profit[:, first] + supply.earned[:, first + 1]
        later = slice(first + 1, len(width_s))
        cost = np.empty((len(paid), len(width_s) - first))
        cost[:, 0] = paid - begun_s * supply.last[:, first]
        cost[:, 1:] = (
            edge_s[later] - arrival_s - supply.earned[:, later] - width_s[later] * supply.last[:, later]
        )
        cost[:, 1:] += before[:, None]
        by_slot = cost.max(axis=0)
        k = int(by_slot.argmin())
        # After the last slot there are no prices, so that no worth above that of work there bounds anything.
        after = edge_s[-1] - arrival_s + (before - supply.earned[:, -1])[: supply.beyond + 1]
        if after.max() < by_slot[k]:
            at = int(after.argmax())
            supply.use_beyond(at, first, begun_s, work, used)
        else:
            at = int(cost[:, k].argmax())
            supply.use(at, first, first + k, begun_s, work, used)
        used.worth[j] = supply.worth[at]
        return float(min(by_slot[k], after.max()))


def _periods(workload: Workload, edge_s: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Period of each slot, the least that a joule takes of the budget in it, and what periods leave to jobs.

    Slots begin where periods do.
    """
    slots, budget = len(edge_s) - 1, workload.budget
    if budget is None:
        return np.zeros(slots, dtype=np.int64), np.zeros(slots), np.zeros(0)
    per_kwh = Steps(np.array(budget.time_s), np.array(budget.per_kwh))
    begin_s = np.arange(budget.begin_s, edge_s[-1], budget.period_s)
    period = np.searchsorted(begin_s, edge_s[:-1], side="right") - 1
    taken = (per_kwh.integral(begin_s + budget.period_s) - per_kwh.integral(begin_s)) / J_PER_KWH
    cost = [per_kwh.values[_within(per_kwh.time_s, *ends)].min() for ends in pairwise(edge_s.tolist())]
    spare = np.maximum(budget.amount - workload.standing_w * taken, 0.0)
    return period, np.array(cost) / J_PER_KWH, spare


def _within(time_s: FloatArray, begin_s: float, end_s: float) -> slice:
    """Values that count between two times."""
    first = max(0, int(np.searchsorted(time_s, begin_s, side="right")) - 1)
    return slice(first, max(first + 1, int(np.searchsorted(time_s, end_s, side="left"))))
