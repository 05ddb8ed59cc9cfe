r"""Bounds on every schedule of a trace for all sizes of the cluster at once: cutting planes.

At prices :math:`\lambda_{pi}` of GPU seconds and :math:`\mu_i` of joules in slots of length :math:`\Delta`,
no schedule on :math:`N_p` GPUs that draws at most W watts beyond the idle cluster has

.. math:: \sum_j (C_j - r_j) + q E < \sum_j D_j - \sum_p N_p \sum_i \lambda_{pi} \Delta
          - W \sum_i \mu_i \Delta,

where :math:`D_j` is the least that job j costs at the prices (`relaxation`). N and W are in no other term, so
that prices found for one cluster bound the schedules of all others, linearly in N and W. The maximum over
several such cuts is convex, as the relaxation itself is (Kelley 1960, Benders 1962). Jobs that a seed draws
otherwise have other :math:`D_j` at the same prices, which are as true.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattsched.instances.clairvoyant import PeriodBudget
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.bound.ascent import Bounded, bounded, first_edges
from wattsched.replay.jobs.bound.relaxation import Prices, Relaxation, Workload
from wattsched.topology.arrays import FloatArray

SLOTS = 24
"""Slots of time of a cut: with twice as many a bound is a few percent higher, and takes twice as long."""
LEAST_LEVEL = 1e-2
"""Rise of a cut at its own cluster below which its prices are good enough."""
LEAST_W, LONGEST_S = 1e-3, 1e9
"""Least watts that a cap leaves to jobs, as an amount is above 0, and a period longer than any trace."""


@dataclass(frozen=True)
class Cut:
    """A bound, in seconds, that is linear in GPUs and watts.

    Attributes
    ----------
    jobs_s : float array, shape (n_seeds,)
        What the cheapest schedules of all jobs cost at the prices.
    gpu_s : float array, shape (n_pools,)
        What a GPU of each pool costs over all slots.
    watt_s : float
        What a watt beyond the idle cluster costs.
    """

    jobs_s: FloatArray
    gpu_s: FloatArray
    watt_s: float

    def at(self, gpus: FloatArray, spare_w: FloatArray) -> FloatArray:
        """Bound for clusters, shape (n_clusters, n_seeds), with GPUs of shape (n_clusters, n_pools)."""
        return np.asarray(self.jobs_s - (gpus @ self.gpu_s + spare_w * self.watt_s)[:, None])


class CapacityBound:
    """Lower bounds on completion times and energy, for any numbers of GPUs and watts.

    Parameters
    ----------
    workloads : sequence of Workload
        Of each seed, on the same pools and with the same first and last arrival; with the options of the
        largest cluster.
    joule_price : float
        Seconds of completion time, summed over jobs, that a joule counts for.
    capped : bool
        Whether watts are limited at all.
    """

    def __init__(self, workloads: Sequence[Workload], joule_price: float, *, capped: bool) -> None:
        watts = capped or joule_price > 0
        self._workloads = [one.efficient(watts=watts) for one in workloads]
        self._joule_price, self._capped = joule_price, capped
        self.cuts: list[Cut] = []

    def at(self, gpus: FloatArray, spare_w: FloatArray) -> FloatArray:
        """Return the best bound for clusters, in seconds, shape (n_clusters, n_seeds)."""
        return np.asarray(np.max([cut.at(gpus, spare_w) for cut in self.cuts], axis=0))

    def tightest(self, gpus: FloatArray, spare_w: float) -> Cut:
        """Return the cut that is highest at a cluster, on the mean over seeds."""
        return max(self.cuts, key=lambda cut: float(cut.at(gpus[None], np.array([spare_w])).mean()))

    def add(self, gpus: FloatArray, spare_w: float) -> None:
        """Find prices for a cluster, by the jobs of the first seed; the first time also without prices."""
        whole = self._limited(self._workloads[0], gpus, spare_w, LONGEST_S)
        begin_s, *_, end_s = first_edges(whole).tolist()
        edge_s = np.linspace(begin_s, end_s, SLOTS + 1)
        slot_s = float(edge_s[1] - edge_s[0])
        relaxed = [Relaxation(self._limited(one, gpus, spare_w, slot_s), edge_s) for one in self._workloads]
        free = Prices(np.zeros((len(gpus), SLOTS)), np.zeros(len(relaxed[0].spare)), self._joule_price)
        start = Bounded(relaxed[0], free, relaxed[0].evaluate(free))
        best = bounded(relaxed[0].workload, self._joule_price, start, least_level=LEAST_LEVEL)
        for prices in (best.prices,) if self.cuts else (free, best.prices):
            self.cuts.append(_cut(relaxed, prices))

    def _limited(self, workload: Workload, gpus: FloatArray, spare_w: float, period_s: float) -> Workload:
        """Return the workload on so many GPUs, within so many watts on average over each period."""
        if not self._capped:
            return replace(workload, gpus=gpus, standing_w=0.0)
        begin_s, amount_j = float(workload.arrival_s.min()), max(spare_w, LEAST_W) * period_s
        budget = PeriodBudget(
            quantity="energy_j",
            amount=amount_j,
            begin_s=begin_s,
            period_s=period_s,
            time_s=[begin_s],
            per_kwh=[J_PER_KWH],
        )
        return replace(workload, gpus=gpus, standing_w=0.0, budget=budget)


def _cut(relaxed: Sequence[Relaxation], prices: Prices) -> Cut:
    """Make the cut of prices, for the jobs of each seed in the same slots."""
    width_s, gpus, spare_j = relaxed[0].width_s, relaxed[0].workload.gpus, relaxed[0].spare
    gpu_s = prices.gpus @ width_s
    owed_s = float(gpus @ gpu_s + prices.budget @ spare_j)
    watt_s = np.append(prices.budget, 0.0)[relaxed[0].period] @ width_s
    return Cut(np.array([one.evaluate(prices).value + owed_s for one in relaxed]), gpu_s, float(watt_s))
