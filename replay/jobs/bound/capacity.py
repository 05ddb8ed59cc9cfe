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
from dataclasses import replace

import numpy as np

from wattsched.instances.clairvoyant import PeriodBudget
from wattsched.instances.units import J_PER_KWH
from wattsched.replay.jobs.bound.ascent import Bounded, bounded, first_edges
from wattsched.replay.jobs.bound.relaxation import Prices, Relaxation, Workload
from wattsched.topology.arrays import FloatArray

SLOTS = 24
"""Slots of time of a cut: with twice as many a bound is a few percent higher, and takes twice as long."""
LEAST_LEVEL = 1e-2
"""Rise of a cut at its own cluster, relative, below which its prices are good enough."""
LEAST_W, LONGEST_S = 1e-3, 1e9
"""Least watts that a cap leaves to jobs, as an amount is above 0, and a period longer than any trace."""


class CapacityBound:
    """Lower bounds on completion times and energy for clusters of any size.

    A size is an array: GPUs of each pool, and the watts that a cap leaves beyond the idle cluster.

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
        self._cuts: list[tuple[FloatArray, FloatArray]] = []  # D of the jobs of each seed, and slopes

    def at(self, sizes: FloatArray) -> FloatArray:
        """Return the best bound for clusters, in seconds, shape (n_clusters, n_seeds)."""
        return np.asarray(np.max([jobs_s - (sizes @ slope)[:, None] for jobs_s, slope in self._cuts], axis=0))

    def slope(self, size: FloatArray) -> FloatArray:
        """Return what a GPU of each pool, and a watt, saves at most by the bound of a cluster, in seconds."""
        _, slope = max(self._cuts, key=lambda cut: float(cut[0].mean() - size @ cut[1]))
        return slope

    def add(self, size: FloatArray) -> None:
        """Find prices for a cluster, by the jobs of the first seed; the first time also without prices."""
        whole = self._limited(self._workloads[0], size, LONGEST_S)
        begin_s, *_, end_s = first_edges(whole).tolist()
        edge_s = np.linspace(begin_s, end_s, SLOTS + 1)
        slot_s = float(edge_s[1] - edge_s[0])
        relaxed = [Relaxation(self._limited(one, size, slot_s), edge_s) for one in self._workloads]
        free = Prices(np.zeros((len(size) - 1, SLOTS)), np.zeros(len(relaxed[0].spare)), self._joule_price)
        start = Bounded(relaxed[0], free, relaxed[0].evaluate(free))
        best = bounded(relaxed[0].workload, self._joule_price, start, least_level=LEAST_LEVEL)
        self._cuts += [_cut(relaxed, prices) for prices in ([] if self._cuts else [free]) + [best.prices]]

    def _limited(self, workload: Workload, size: FloatArray, period_s: float) -> Workload:
        """Return the workload on a cluster, within its watts on average over each period."""
        begin_s = float(workload.arrival_s.min())
        budget = PeriodBudget(
            quantity="energy_j",
            amount=max(float(size[-1]), LEAST_W) * period_s,
            begin_s=begin_s,
            period_s=period_s,
            time_s=[begin_s],
            per_kwh=[J_PER_KWH],
        )
        return replace(workload, gpus=size[:-1], standing_w=0.0, budget=budget if self._capped else None)


def _cut(relaxed: Sequence[Relaxation], prices: Prices) -> tuple[FloatArray, FloatArray]:
    """Return what the jobs of each seed cost at prices, and what a GPU of each pool and a watt cost."""
    first = relaxed[0]
    gpu_s = prices.gpus @ first.width_s
    owed_s = float(first.workload.gpus @ gpu_s + prices.budget @ first.spare)
    watt_s = np.append(prices.budget, 0.0)[first.period] @ first.width_s
    return np.array([one.evaluate(prices).value + owed_s for one in relaxed]), np.append(gpu_s, watt_s)
