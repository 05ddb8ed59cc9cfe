"""Policies with the protocol of Gavel's simulator (Narayanan et al., OSDI 2020), none of whose code is used.

A policy has a ``name``, by which the simulator tells what to ask it with, and ``get_allocation``, which
returns the share of time of every job on every type of workers. The shares are those of
`wattsched.time_shares`. Throughputs are of single jobs; pairs that share GPUs are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from wattsched.formulations.time_shares import TIES, Ties
from wattsched.instances.errors import require_known
from wattsched.solving.shares import TimeShares, time_shares
from wattsched.topology.arrays import FloatArray

Throughputs = Mapping[Any, Mapping[str, float]]
"""Steps per second of every job on every type of workers."""

Allocation = dict[Any, dict[str, float]]
"""Share of time of every job on every type of workers."""


class _SharePolicy:
    """Base of the policies: it computes shares of time.

    Attributes
    ----------
    name : str
        Gavel's simulator asks by its beginning.
    last : TimeShares, optional
        The last answer, with its bound and prices.
    """

    name: str

    def __init__(self, ties: Ties = "goodput") -> None:
        require_known("ties", ties, TIES)
        self._ties = ties
        self.last: TimeShares | None = None

    def _allocation(
        self,
        throughputs: Throughputs,
        scale_factors: Mapping[Any, int],
        cluster_spec: Mapping[str, int],
        **asked: Any,
    ) -> Allocation | None:
        """Shares by `time_shares`, which takes `asked`, too; None without jobs, as of Gavel's policies."""
        jobs = list(throughputs)
        if not jobs:
            return None
        types = list(cluster_spec)
        n, m = len(jobs), len(types)
        self.last = time_shares(
            cluster_spec,
            [str(job) for job in jobs],
            start=np.arange(n + 1) * m,
            pool=types * n,
            gpus=np.repeat(_in_order("scale_factors", scale_factors, jobs), m),
            rate=[_single(throughputs[job], kind, job) for job in jobs for kind in types],
            ties=self._ties,
            **asked,
        )
        table = self.last.share.reshape(n, m).tolist()
        return {job: dict(zip(types, row, strict=True)) for job, row in zip(jobs, table, strict=True)}


class MaxMinFairness(_SharePolicy):
    """Largest least throughput over that of an equal share of the cluster (section 4.1).

    Jobs count by their priority over the workers that they take.
    """

    name = "MaxMinFairness_Perf"

    def get_allocation(
        self,
        unflattened_throughputs: Throughputs,
        scale_factors: Mapping[Any, int],
        unflattened_priority_weights: Mapping[Any, float],
        cluster_spec: Mapping[str, int],
    ) -> Allocation | None:
        """Share of time of every job on every type of workers."""
        jobs = list(unflattened_throughputs)
        weight = _in_order("priority_weights", unflattened_priority_weights, jobs)
        weight = weight / _in_order("scale_factors", scale_factors, jobs)
        return self._allocation(unflattened_throughputs, scale_factors, cluster_spec, weight=weight)


class MinTotalDuration(_SharePolicy):
    """Least makespan of the jobs that are there; exact, where Gavel's is found by bisection to 5 %."""

    name = "MinTotalDuration_Perf"

    def get_allocation(
        self,
        unflattened_throughputs: Throughputs,
        scale_factors: Mapping[Any, int],
        num_steps_remaining: Mapping[Any, float],
        cluster_spec: Mapping[str, int],
    ) -> Allocation | None:
        """Share of time of every job on every type of workers."""
        left = _in_order("num_steps_remaining", num_steps_remaining, unflattened_throughputs)
        # Nobody waits for the millionth part of the longest job.
        left = np.maximum(left, max(1.0, 1e-6 * left.max(initial=0.0)))
        return self._allocation(
            unflattened_throughputs, scale_factors, cluster_spec, objective="makespan", remaining_work=left
        )


class MaxSumThroughput(_SharePolicy):
    """Largest sum of throughputs."""

    name = "ThroughputSumWithPerf"

    def get_allocation(
        self,
        unflattened_throughputs: Throughputs,
        scale_factors: Mapping[Any, int],
        cluster_spec: Mapping[str, int],
    ) -> Allocation | None:
        """Share of time of every job on every type of workers."""
        return self._allocation(unflattened_throughputs, scale_factors, cluster_spec, objective="goodput")


def _in_order(name: str, values: Mapping[Any, float], jobs: Iterable[Any]) -> FloatArray:
    """Values in the order of `jobs`; `name` is that of the argument, for messages."""
    wanted = list(jobs)
    for job in wanted:
        if isinstance(job, tuple):
            raise ValueError(f"throughputs: {job} is a pair of jobs, which these policies do not take")
        if job not in values:
            raise ValueError(f"{name}: job {job} is missing")
    return np.array([float(values[job]) for job in wanted])


def _single(throughputs: Mapping[str, Any], kind: str, job: object) -> float:
    """Steps per second of a job that has its workers, of type `kind`, to itself."""
    if kind not in throughputs:
        raise ValueError(f"throughputs: job {job} has none on '{kind}'")
    if isinstance(throughputs[kind], Sequence):
        raise ValueError(f"throughputs: job {job} is a pair of jobs, which these policies do not take")
    return float(throughputs[kind])
