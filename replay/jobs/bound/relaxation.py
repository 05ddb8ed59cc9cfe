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

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.accounts import Steps
from wattsched.replay.jobs.bound.supply import Supply, Used, worths_of
from wattsched.replay.jobs.bound.workload import Kind, Workload
from wattsched.topology.arrays import FloatArray, IntArray

POINTS = 128
"""Worths of a unit of work, for each kind of jobs, at which most work begins to pay."""


@dataclass(frozen=True)
class Prices:
    """Prices of GPU seconds, shape (n_pools, n_slots), of the budget, shape (n_periods,), and of a joule."""

    gpus: FloatArray
    budget: FloatArray
    joule: float


@dataclass(frozen=True)
class Evaluation:
    """Value of the relaxation at prices, and the resources that its cheapest schedules use.

    Attributes
    ----------
    value : float
        Lower bound: no schedule has less.
    used : Used
        By the schedules that cost least.
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

    def evaluate(self, prices: Prices, points: int = POINTS) -> Evaluation:
        """Find the schedule of each job that costs least at prices.

        Parameters
        ----------
        points : int
            Worths of work that are looked at, for each kind.
        """
        used = Used.none(len(prices.gpus), len(self.width_s), len(self.workload.work))
        joule = self.per_joule(prices)
        total = sum(self._kind(kind, prices, joule, points, used) for kind in self.workload.kinds)
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
        cost = prices.gpus[kind.pool] * kind.gpus[:, None]
        cost += joule * kind.power_w[:, None]
        beyond = (1.0 + prices.joule * kind.power_w) / kind.rate
        return cost, worths_of(kind.rate, cost, self.width_s, float(beyond.min()), points), beyond

    def _kind(self, kind: Kind, prices: Prices, joule: FloatArray, points: int, used: Used) -> float:
        """Return the cost of the jobs of a kind; what they use is added to `used`."""
        cost, worth, beyond = self._priced(kind, prices, joule, points)
        supply = Supply(kind, cost, self.width_s, worth, beyond)
        total = sum(self._job(supply, j, used) for j in kind.jobs.tolist())
        supply.add_inside(used)
        return total

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
