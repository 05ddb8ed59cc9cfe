r"""What candidates for a cluster cost in a year: what is fixed, what bounds prove and what replays suggest.

With n nodes and a cap of W a candidate costs

.. math:: H(n) + e P_0(n) Y + k W + \frac{Y}{T} \Big( e E + v \sum_j (C_j - r_j) \Big),

with hardware H, the draw of the idle cluster :math:`P_0`, the price e of energy, that of the cap k, and v of
a job's time; a replay gives the energy E of the jobs beyond idle and their completion times :math:`C_j - r_j`
over the T seconds that the trace stands for; Y is a year. `CapacityBound` bounds the last term from below.
Where a mean completion time may be at most so long instead, v is 0, and E is at least that of each job alone
in the configuration that takes least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattsched.instances.clusters import idle_power_w
from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.bound.capacity import CapacityBound, Cut
from wattsched.replay.jobs.bound.clairvoyant import parts_of
from wattsched.replay.jobs.bound.relaxation import Workload
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.trace import Submissions, Trace
from wattsched.replaying.candidates import Candidate, Site
from wattsched.replaying.price_sheet import H_PER_YEAR
from wattsched.report.saved import Interval
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster

YEAR_S = H_PER_YEAR * S_PER_H
RIDGE = 0.1
"""Doubt that replays come to another part of their bounds where these are larger, as a squared logarithm."""


@dataclass(frozen=True)
class Run:
    """A replay: seconds of completion time summed over jobs, and joules of the cluster beyond idle."""

    completion_s: float
    joules: float

    @classmethod
    def of(cls, outcome: Outcome, idle_w: float) -> Run:
        """Sum an outcome up."""
        idle_j = idle_w * (outcome.end_s - outcome.begin_s)
        return cls(float(outcome.jct_s.sum()), outcome.meter.energy_j - idle_j)


class Costs:
    """Costs of candidates in a year.

    Attributes
    ----------
    hardware, idle, cap : float arrays, shape (n_candidates,)
        Parts that are known at once: of nodes, of the energy of the idle cluster, and of the power cap.
    idle_w : float array, shape (n_candidates,)
    pools : tuple of str
        Of the bound.
    """

    def __init__(
        self,
        site: Site,
        candidates: Sequence[Candidate],
        clusters: Mapping[tuple[int, ...], Cluster],
        load: Sequence[Submissions],
        seconds: float,
    ) -> None:
        self.prices, self._times, self._jobs = site.prices, YEAR_S / seconds, len(load[0].jobs)
        of = [clusters[one.nodes] for one in candidates]
        self.idle_w = np.array([idle_power_w(cluster, cluster.nodes) for cluster in of])
        cap_w = np.array([np.inf if one.power_w is None else one.power_w for one in candidates])
        self.hardware = np.array([site.hardware_year(one.nodes) for one in candidates])
        self.idle = self.idle_w * self.prices.joule * YEAR_S
        self.cap = self.prices.cap_kw_year / 1e3 * np.where(np.isfinite(cap_w), cap_w, 0.0)
        most = [max(counts) for counts in zip(*clusters, strict=True)]
        largest = [jobs.on(site.with_nodes(most, flat=True)) for jobs in load]
        workloads = [Workload.of(**parts_of(trace, energy=True)) for trace in largest]
        self.pools = workloads[0].pools
        self._gpus = np.array([_gpus(cluster, self.pools) for cluster in of])
        # Above what all its GPUs can draw no cap binds.
        drawn_w = self._gpus @ np.max([_most_w(trace, self.pools) for trace in largest], axis=0)
        self._spare_w = np.minimum(cap_w - self.idle_w, drawn_w)
        self._least_j = np.array([_least_j(one) for one in workloads])
        capped = bool(np.isfinite(cap_w).any())
        self._bound = CapacityBound(workloads, self.prices.joule_s, capped=capped)

    @property
    def fixed(self) -> FloatArray:
        """What is known at once, shape (n_candidates,)."""
        return self.hardware + self.idle + self.cap

    def cut(self, candidate: int) -> None:
        """Find prices for a candidate, which bound the costs of all."""
        self._bound.add(self._gpus[candidate], max(0.0, float(self._spare_w[candidate])))

    def floor(self) -> FloatArray:
        """Costs that no schedule is below, shape (n_candidates, n_seeds); infinite where all are too late."""
        return self._cost(self._bound.at(self._gpus, self._spare_w), self._least_j)

    def of(self, candidate: int, runs: Sequence[Run]) -> float:
        """Mean cost of a candidate over replays; infinite where they are too late on the mean."""
        seconds, joules = np.mean([(run.completion_s, run.joules) for run in runs], axis=0).tolist()
        value_s = seconds + self.prices.joule_s * joules
        return float(self._cost(np.full((len(self.fixed), 1), value_s), joules)[candidate, 0])

    def told(self, candidate: int, runs: Sequence[Run]) -> dict[str, Any]:
        """Return the parts of a candidate's cost, over replays, by the fields of an `Option`."""
        fixed = {name: float(getattr(self, name)[candidate]) for name in ("hardware", "cap")}
        seconds, joules = [run.completion_s for run in runs] or [0.0], [run.joules for run in runs] or [0.0]
        energy = self._times * self.prices.joule * np.array(joules) + self.idle[candidate]
        time = self._times * self.prices.job_s * np.array(seconds)
        told = {"energy": float(energy.mean()), "time": float(time.mean()), "seeds": len(runs), **fixed}
        if not runs:
            return told
        cost = Interval.of((energy + time + fixed["hardware"] + fixed["cap"]).tolist())
        return told | {"cost": cost, "mean_completion_s": float(np.mean(seconds)) / self._jobs}

    def suggested(self, runs: Mapping[int, Run]) -> tuple[FloatArray, FloatArray]:
        """Costs on the first seed as replays suggest them by their bounds, and the least that they suggest.

        The logarithm of what a replay comes to over its bound is taken as linear in that of the bound; the
        least is below that by as much as any of the replays.
        """
        bound_s = np.maximum(self._bound.at(self._gpus, self._spare_w)[:, 0], 1.0)
        known, joule_s = [*runs], self.prices.joule_s
        reached_s = np.array([run.completion_s + joule_s * run.joules for run in runs.values()])
        at, over = np.log(bound_s[known]), np.log(np.maximum(reached_s, 1.0) / bound_s[known])
        middle = at - at.mean()
        tilt = middle @ over / (middle @ middle + RIDGE)
        line = over.mean() + tilt * (np.log(bound_s) - at.mean())
        spread = min(0.0, float((over - line[known]).min()))
        joules = float(np.mean([run.joules for run in runs.values()]))
        expected, least = (
            self._cost(np.maximum(bound_s, bound_s * np.exp(line + off))[:, None], joules)[:, 0]
            for off in (0.0, spread)
        )
        return expected, least

    def worth(self, candidate: int) -> tuple[dict[str, float], float]:
        """Return what one more GPU of each pool, and one more kilowatt, saves at most in the relaxation."""
        cut: Cut = self._bound.tightest(self._gpus[candidate], float(self._spare_w[candidate]))
        per_s = self._times * self.prices.job_s
        return dict(zip(self.pools, (per_s * cut.gpu_s).tolist(), strict=True)), 1e3 * per_s * cut.watt_s

    def _cost(self, value_s: FloatArray, joules: FloatArray | float) -> FloatArray:
        """Costs at values of completion time and energy together, shape (n_candidates, n)."""
        fixed, prices = self.fixed[:, None], self.prices
        if prices.most_mean_h is None:
            return np.asarray(fixed + self._times * prices.job_s * value_s)
        in_time = value_s <= prices.most_mean_h * S_PER_H * self._jobs * (1 + 1e-9)
        return np.where(in_time, fixed + self._times * prices.joule * joules, math.inf)


def _gpus(cluster: Cluster, pools: Sequence[str]) -> list[float]:
    """GPUs of each pool that take jobs."""
    found = dict.fromkeys(pools, 0.0)
    for node in cluster.nodes:
        found[str(node.pool)] += node.gpus - len(node.unavailable)
    return [*found.values()]


def _most_w(trace: Trace, pools: Sequence[str]) -> list[float]:
    """Most that a GPU of each pool draws beyond idle."""
    rows, most_w = trace.configurations, np.zeros(len(trace.pools))
    np.maximum.at(most_w, rows.pool, trace.extra_w / rows.gpus)
    known = {pool.name: float(watts) for pool, watts in zip(trace.pools, most_w, strict=True)}
    return [known[pool] for pool in pools]


def _least_j(workload: Workload) -> float:
    """Joules of all jobs beyond idle GPUs, each in the configuration that takes least."""
    return sum(
        float(workload.work[kind.jobs].sum() * (kind.power_w / kind.rate).min()) for kind in workload.kinds
    )
