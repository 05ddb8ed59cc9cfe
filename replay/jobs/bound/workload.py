"""Problem of a bound on every schedule of a trace, as arrays: jobs, their options, GPUs and a budget."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from wattsched.instances.clairvoyant import PeriodBudget, RunOptions, TraceJobs
from wattsched.solvers.greedy import efficient_columns
from wattsched.topology.arrays import FloatArray, IntArray, alike


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
