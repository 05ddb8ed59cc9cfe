"""The `sets` family: jobs of whole numbers, pairs of which may share the same GPUs."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from wattsched.instances.clusters import homogeneous_cluster, numbered
from wattsched.instances.errors import require_range
from wattsched.instances.sizing.instance import Budgets, Instance, JobSet
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.topology.cluster import GpuType

GPU, NODE_GPUS = "G", 8
GPU_COUNTS = (1, 2, 4, 8)
RATES = (10, 19, 35, 62)
"""Alone on so many GPUs; jobs have a little less each."""
IDLE_W, NODE_W, FULL_W = 50, 200, 300
SETS_PER_JOB = 2


def sets_round(*, jobs: int, gpus: int | None = None, seed: int = 0, power_fraction: float = 0.6) -> Instance:
    """Jobs on one pool, pairs of which may share the same GPUs: slower than alone, and with fewer watts.

    Parameters
    ----------
    gpus : int, optional
        GPUs of the cluster, in whole nodes of 8 (default: one for each job).
    power_fraction : float
        Power cap as a part, above 0 and up to 1, of 300 W for each GPU; nodes draw 200 W besides.

    Raises
    ------
    ValueError
        For a fraction out of range.
    """
    require_range(0 < power_fraction <= 1, "power_fraction", "above 0 and at most 1", power_fraction)
    rng = np.random.default_rng(seed)
    tables = [_table(rng) for _ in range(jobs)]
    weights, work = rng.choice([1, 1, 2, 4], size=jobs).tolist(), rng.integers(10_000, 500_000, size=jobs)
    names = numbered("job", jobs)
    nodes = max(1, -(-(jobs if gpus is None else gpus) // NODE_GPUS))
    idle = GpuType(idle_power_w=IDLE_W)
    return Instance(
        name=f"sets-{jobs}-{seed}",
        objective="goodput",
        round_s=3600.0,
        budgets=Budgets(power_w=nodes * (NODE_W + NODE_GPUS * round(power_fraction * FULL_W))),
        cluster=homogeneous_cluster(nodes, NODE_GPUS, GPU, kind=idle, base_power_w=NODE_W),
        jobs=[
            Job(name=name, weight=weight, options=table, remaining_work=samples)
            for name, weight, table, samples in zip(names, weights, tables, work.tolist(), strict=True)
        ],
        sets=_sets(rng, names, tables),
    )


def _table(rng: np.random.Generator) -> OptionTable:
    watts, less = int(rng.integers(120, FULL_W)), rng.integers(0, 4, size=len(GPU_COUNTS)).cumsum().tolist()
    return OptionTable(
        gpus=[*GPU_COUNTS],
        pool=[GPU] * len(GPU_COUNTS),
        power_w=[watts * count for count in GPU_COUNTS],
        rate=[rate - lost for rate, lost in zip(RATES, less, strict=True)],
    )


def _sets(rng: np.random.Generator, names: list[str], tables: list[OptionTable]) -> list[JobSet]:
    """Pairs of neighbours in random orders of the jobs."""
    found: dict[str, JobSet] = {}
    for _ in range(SETS_PER_JOB):
        for pair in pairwise(rng.permutation(len(names)).tolist()):
            first, second = sorted(pair)
            row, kept = int(rng.integers(len(GPU_COUNTS))), rng.integers(55, 95, size=2).tolist()
            watts = max(tables[job].power_w[row] for job in pair)
            alone = [(tables[job].rate or [])[row] for job in (first, second)]
            name = f"{names[first]}+{names[second]}"
            found[name] = JobSet(
                name=name,
                pool=GPU,
                gpus=GPU_COUNTS[row],
                power_w=round(1.15 * watts),
                rates={
                    names[job]: rate * part / 100
                    for job, rate, part in zip((first, second), alone, kept, strict=True)
                },
            )
    return list(found.values())
