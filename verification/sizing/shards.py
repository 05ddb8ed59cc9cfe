"""Proving the bound of a large round whose jobs are in shards elsewhere, as on the workers of a cluster.

What prices prove is a sum over the jobs, so every shard tells three numbers. They are of blocks of jobs that
do not depend on the number of shards, and rational numbers add without rounding: neither does the proof.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from wattsched.instances.sizing.instance import Instance
from wattsched.topology.cluster import Cluster
from wattsched.verification.arithmetic import DOUBLES, Enclosure
from wattsched.verification.sizing.bound import EXACT_OPTIONS, Prover
from wattsched.verification.sizing.by_kind import SUMS
from wattsched.verification.sizing.configurations import JobConfigurations
from wattsched.verification.sizing.least_cost import LeastCosts, in_range, least_costs
from wattsched.verification.sizing.options import Options
from wattsched.verification.sizing.pools import Pool
from wattsched.verification.sizing.rows import RowPrices
from wattsched.verification.sizing.splits import Allowed

BLOCK = 100_000
"""Jobs whose least costs are summed together."""

SHARDS = 2
"""For each worker: what is lost with one is made again by several."""

TOGETHER = ("work-value",)
"""Objectives for which what a job is worth depends on all others."""


class ShardedProver(Prover):
    """Proves as `Prover` does, in doubles and without splits by an `Executor` that keeps values on workers.

    A ValueError says that a round cannot be divided: what a job costs must not depend on others.
    """

    def __init__(self, workers: Any, instance: Instance):
        required = instance.budgets.objectives or instance.unlike
        if required or instance.sets or instance.objective in TOGETHER or instance.objective not in SUMS:
            which = "rounds without sets of jobs under an objective that is a sum of what each job costs"
            raise ValueError(f"only {which} are checked over a cluster")
        super().__init__(instance)
        self._workers = workers

    def least_costs(self, paid: RowPrices, allowed: Allowed) -> tuple[LeastCosts, bool]:
        """Least costs that the workers find, where `Prover` would look for them in doubles."""
        of = self.configurations
        if allowed or int(np.diff(of.start)[of.kind].sum()) <= EXACT_OPTIONS:
            return super().least_costs(paid, allowed)
        shards = _shards(self.instance, of, SHARDS * self._workers.workers())
        found = [one for shard in self._workers.kept(shards).each(_least_of, dict(paid)) for one in shard]
        costs = [one for one in found if one is not None]
        if len(costs) < len(found):
            return super().least_costs(paid, allowed)
        nothing = Fraction(0)
        total = sum((one.total for one in costs), Enclosure(nothing, nothing))
        others = ((one.size, one.dearest, one.worth) for one in costs)
        summed = (sum(terms, nothing) for terms in zip(*others, strict=True))
        return LeastCosts(total, *summed), False


class Shard(NamedTuple):
    """Rounds of a block of jobs each, without nodes, and the cluster's pools without GPUs."""

    blocks: list[Instance]
    pools: dict[str, Pool]


def _shards(instance: Instance, of: JobConfigurations, shards: int) -> list[Shard]:
    """Divide the round into about so many parts, of whole blocks of jobs."""
    n, none = len(of.jobs), np.zeros(0, dtype=np.int64)
    nothing = none.astype(float)
    pools = {
        name: replace(pool, line=none, base_power_w=nothing, reserved_w=nothing, sizes=pool.sizes[:1])
        for name, pool in of.pools.items()
    }
    cluster = Cluster.model_construct(name=instance.cluster.name, gpu_types=instance.cluster.gpu_types)
    bare = instance.model_copy(update={"cluster": cluster})
    blocks = [
        bare.model_copy(update={"jobs": of.jobs.take(np.arange(start, min(start + BLOCK, n)))})
        for start in range(0, n, BLOCK)
    ]
    ends = np.unique(np.arange(shards + 1) * len(blocks) // shards).tolist()
    return [Shard(blocks[first:last], pools) for first, last in pairwise(ends)]


def _least_of(shard: Shard, paid: RowPrices) -> list[LeastCosts | None]:
    """Least costs of the blocks of jobs of a shard in doubles, None where numbers are out of their range."""
    found: list[LeastCosts | None] = []
    for block in shard.blocks:
        options = Options(block, JobConfigurations(block, shard.pools), DOUBLES)
        found.append(least_costs(options, paid) if in_range(options, paid) else None)
    return found
