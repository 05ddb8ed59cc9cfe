r"""A candidate costs fixed amounts in a year, and what its jobs take, of which bounds and replays tell.

With n nodes and a cap of W a candidate costs

.. math:: H(n) + e P_0(n) Y + k W + \frac{Y}{T} \Big( e E + v \sum_j (C_j - r_j) \Big),

with hardware H, the draw of the idle cluster :math:`P_0`, the price e of energy, that of the cap k, and v of
a job's time; a replay gives the energy E of the jobs beyond idle and their completion times :math:`C_j - r_j`
over the T seconds from the first arrival to the last; Y is a year. `CapacityBound` bounds the last term from
below. Where only the mean completion time is limited, v is 0, and E is at least that of each job alone in the
configuration that takes least.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from wattsched.instances.clusters import idle_power_w
from wattsched.instances.units import S_PER_H
from wattsched.replay.jobs.bound.capacity import CapacityBound
from wattsched.replay.jobs.bound.clairvoyant import parts_of
from wattsched.replay.jobs.bound.relaxation import Workload
from wattsched.replay.jobs.outcome import Outcome
from wattsched.replay.jobs.trace import Trace
from wattsched.replaying.candidates import Candidate, Site
from wattsched.report.saved import Interval
from wattsched.topology.arrays import FloatArray
from wattsched.topology.cluster import Cluster

YEAR_S = 8766 * S_PER_H
TILT, RIDGE = 1.0, 0.1
"""Replays come to more over a bound where it is higher: so fast, in logarithms, before they tell, with so
much weight in a sum of squared logarithms of bounds. Where GPUs are scarce, the future is worth knowing."""

BINDS = 0.98
"""A cap binds where more than this part of the watts that it leaves are drawn."""


class Run(NamedTuple):
    """A replay: seconds of completion time summed over jobs, and joules and most watts beyond idle."""

    completion_s: float
    joules: float
    peak_w: float

    @classmethod
    def of(cls, outcome: Outcome, idle_w: float) -> Run:
        """Sum an outcome up."""
        idle_j = idle_w * (outcome.end_s - outcome.begin_s)
        peak_w = max(outcome.meter.power.values, default=idle_w) - idle_w
        return cls(float(outcome.jct_s.sum()), outcome.meter.energy_j - idle_j, peak_w)


class Costs:
    """Costs of candidates in a year.

    Parameters
    ----------
    site, candidates
    clusters : mapping
        Cluster by numbers of nodes.
    largest : sequence of Trace
        By seed, the jobs on a cluster that has all that any candidate has.

    Attributes
    ----------
    idle_w, fixed : float arrays, shape (n_candidates,)
        Draw of the idle cluster, and what is known at once: nodes, energy of the idle cluster, and cap.
    """

    def __init__(
        self,
        site: Site,
        candidates: Sequence[Candidate],
        clusters: Mapping[tuple[int, ...], Cluster],
        largest: Sequence[Trace],
    ) -> None:
        self.prices, self._jobs = site.prices, len(largest[0])
        seconds = float(np.ptp(largest[0].arrival_s))
        if seconds == 0:
            raise ValueError("file: all jobs arrive at once, which tells nothing of a year")
        self._times = YEAR_S / seconds
        of = [clusters[one.nodes] for one in candidates]
        self.idle_w = np.array([idle_power_w(cluster, cluster.nodes) for cluster in of])
        cap_w = np.array([np.inf if one.power_w is None else one.power_w for one in candidates])
        self._axes = np.column_stack([[one.nodes for one in candidates], cap_w])
        self._hardware = np.array([site.hardware_year(one.nodes) for one in candidates])
        self._idle = self.idle_w * self.prices.joule * YEAR_S
        self._cap = self.prices.cap_kw_year / 1e3 * np.where(np.isfinite(cap_w), cap_w, 0.0)
        self.fixed = self._hardware + self._idle + self._cap
        workloads = [Workload.of(**parts_of(trace, energy=True)) for trace in largest]
        self._pools = workloads[0].pools
        gpus = np.array([_gpus(cluster, self._pools) for cluster in of])
        # Above what all its GPUs can draw no cap binds.
        drawn_w = gpus @ np.max([_most_w(trace, self._pools) for trace in largest], axis=0)
        self._sizes = np.column_stack([gpus, np.clip(cap_w - self.idle_w, 0.0, drawn_w)])
        self._least_j = np.array([_least_j(one) for one in workloads])
        capped = bool(np.isfinite(cap_w).any())
        self._bound = CapacityBound(workloads, self.prices.joule_s, capped=capped)

    def cut(self, candidate: int) -> None:
        """Find prices for a candidate, which bound the costs of all."""
        self._bound.add(self._sizes[candidate])

    def floor(self, seeds: slice = slice(None)) -> FloatArray:
        """Mean costs over seeds that no schedule is below; infinite where jobs are too late on the mean."""
        bound_s = self._bound.at(self._sizes)[:, seeds].mean(axis=1)
        return self._cost(self.fixed, bound_s, float(self._least_j[seeds].mean()))

    def of(self, candidate: int, runs: Sequence[Run]) -> float:
        """Mean cost of a candidate over replays; infinite where jobs are too late on the mean."""
        seconds, joules, _ = np.mean(runs, axis=0).tolist()
        value_s = np.array(seconds + self.prices.joule_s * joules)
        return float(self._cost(self.fixed[candidate], value_s, joules))

    def suggested(self, runs: Mapping[int, Run]) -> tuple[FloatArray, FloatArray]:
        """Costs on the first seed as replays suggest them by their bounds, and the least that they suggest.

        The logarithm of what a replay comes to over its bound is taken as linear in that of the bound; the
        least is below that by as much as any of the replays. On fewer GPUs or watts jobs do not fare better,
        on more not worse, and above the most watts that were drawn a cap changes nothing.
        """
        bound_s = np.maximum(self._bound.at(self._sizes)[:, 0], 1.0)
        known, (seconds, joules, peak_w) = [*runs], np.array([*runs.values()]).T
        reached_s = np.maximum(seconds + self.prices.joule_s * joules, 1.0)
        over = np.log(reached_s / bound_s[known])
        size = np.log(bound_s) - np.log(bound_s[known]).mean()
        tilt = (RIDGE * TILT + size[known] @ over) / (RIDGE + size[known] @ size[known])
        line = over.mean() + max(0.0, tilt) * size
        lucky = min(0.0, float((over - line[known]).min()))
        value_s = bound_s * np.exp(np.maximum([line, line + lucky], 0.0))
        for k, own_s, most_w in zip(known, reached_s.tolist(), peak_w.tolist(), strict=True):
            smaller, larger = (
                np.all(one, axis=1) for one in (self._sizes <= self._sizes[k], self._sizes >= self._sizes[k])
            )
            value_s[:, smaller] = np.maximum(value_s[:, smaller], own_s)
            value_s[0, larger] = np.minimum(value_s[0, larger], own_s)
            same = np.all(self._sizes[:, :-1] == self._sizes[k, :-1], axis=1)
            value_s[:, same & (self._sizes[:, -1] > most_w)] = own_s
        expected, least = (self._cost(self.fixed, one, float(joules.mean())) for one in value_s)
        return expected, least

    def beside(self, candidate: int, run: Run) -> list[int]:
        """Return the next candidates of each pool and cap; a higher cap only where a replay came to it."""
        found, axes = list[int](), self._axes
        binds = run.peak_w > BINDS * self._sizes[candidate, -1]
        for axis in range(axes.shape[1]):
            others, own = np.delete(axes, axis, axis=1), axes[candidate, axis]
            line = np.flatnonzero(np.all(others == others[candidate], axis=1))
            larger, smaller = line[axes[line, axis] > own], line[axes[line, axis] < own]
            if len(larger) and (axis < axes.shape[1] - 1 or binds):
                found.append(int(larger[axes[larger, axis].argmin()]))
            if len(smaller):
                found.append(int(smaller[axes[smaller, axis].argmax()]))
        return found

    def parts(self, candidate: int, runs: Sequence[Run]) -> dict[str, Any]:
        """Return what a candidate's replays cost and the parts of it, by the fields of an `Option`."""
        seconds, joules, _ = np.array(runs).T
        hardware, cap = float(self._hardware[candidate]), float(self._cap[candidate])
        energy = self._times * self.prices.joule * joules + self._idle[candidate]
        time = self._times * self.prices.job_s * seconds
        return {
            "cost": Interval.of((energy + time + hardware + cap).tolist()),
            "parts": {
                "hardware": hardware, "energy": float(energy.mean()), "cap": cap, "time": float(time.mean()),
            },
            "mean_completion_s": float(seconds.mean()) / self._jobs,
        }  # fmt: skip

    def worth(self, candidate: int) -> dict[str, float]:
        """Return what one more GPU of each pool, and a kilowatt, saves at most in the relaxation."""
        names = [*(f"GPU of {pool}" for pool in self._pools), "kW of the cap"]
        saved = self._times * self.prices.job_s * self._bound.slope(self._sizes[candidate])
        saved[-1] *= 1e3
        return {name: amount for name, amount in zip(names, saved.tolist(), strict=True) if amount > 0}

    def _cost(self, fixed: FloatArray, value_s: FloatArray, joules: float) -> FloatArray:
        """Costs at values of completion time and energy together, in seconds summed over jobs."""
        prices = self.prices
        if prices.most_mean_h is None:
            return np.asarray(fixed + self._times * prices.job_s * value_s)
        in_time = value_s <= prices.most_mean_h * S_PER_H * self._jobs * (1 + 1e-9)
        return np.where(in_time, fixed + self._times * prices.joule * joules, math.inf)


def _gpus(cluster: Cluster, pools: Sequence[str]) -> list[float]:
    """GPUs of each pool that take jobs."""
    nodes = [(node.pool, node.gpus - len(node.unavailable)) for node in cluster.nodes]
    return [float(sum(gpus for pool, gpus in nodes if pool == name)) for name in pools]


def _most_w(trace: Trace, pools: Sequence[str]) -> list[float]:
    """Most that a GPU of each pool draws beyond idle."""
    rows, most_w = trace.configurations, np.zeros(len(trace.pools))
    np.maximum.at(most_w, rows.pool, trace.extra_w / rows.gpus)
    known = {pool.name: watts for pool, watts in zip(trace.pools, most_w.tolist(), strict=True)}
    return [known[pool] for pool in pools]


def _least_j(workload: Workload) -> float:
    """Joules of all jobs beyond idle GPUs, each in the configuration that takes least."""
    least = [workload.work[kind.jobs].sum() * (kind.power_w / kind.rate).min() for kind in workload.kinds]
    return float(sum(least))
