"""Rounds of whole numbers: the family `adversarial`, hard by design, and `sets`, pairs that may share GPUs.

The first are the knapsacks and rounds at which branch and bound, prices or heuristics are known to fail:
Pisinger, *Where are the hard knapsack problems?* (2005); Jeroslow, *Trivial integer programs unsolvable by
branch-and-bound* (1974).
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

from wattsched.instances.clusters import homogeneous_cluster, numbered
from wattsched.instances.errors import require_range
from wattsched.instances.sizing.instance import Budgets, Instance, JobSet
from wattsched.instances.sizing.job import Job, OptionTable
from wattsched.topology.cluster import Cluster, GpuType

GPU, NODE_GPUS = "G", 8
GPU_COUNTS = (1, 2, 4, 8)
LEAST_W, MOST_W, BONUS_W = 200, 1200, 100
"""Draws of the correlated jobs, and what their worth exceeds them by."""
PARITY_W = 200
SPARE_W = 5
"""Watts by which a cap exceeds the least feasible draw in a round that is nearly too tight."""
MOST_WEIGHT_W = 1000.0
"""A weight of one stands for so many watts of worth."""


def adversarial_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    kind: Literal["correlated", "parity", "tight", "degenerate"] = "correlated",
) -> Instance:
    """Rounds of whole numbers that are hard by design: correlated, parity, tight or degenerate.

    Parameters
    ----------
    gpus : int, optional
        GPUs of the cluster, in whole nodes of 8 (default: as many as the kind needs).
    kind : {"correlated", "parity", "tight", "degenerate"}
        A knapsack of watts whose worths exceed them by a constant (correlated), or whose watts cannot add up
        to the cap (parity); jobs that all must run under a cap that hardly allows it (tight); equal jobs with
        equal options in equal racks (degenerate).
    """
    rng = np.random.default_rng(seed)
    made = {"correlated": _correlated, "parity": _parity, "tight": _tight, "degenerate": _degenerate}
    require_range(kind in made, "kind", ", ".join(made), f"'{kind}'")
    return made[kind](rng, jobs, gpus, f"{kind}-{jobs}-{seed}")


def _nodes(gpus: int) -> int:
    return max(1, -(-gpus // NODE_GPUS))


def _cluster(gpus: int) -> Cluster:
    """Nodes whose GPUs draw nothing while they idle, so that a power cap is a knapsack."""
    return homogeneous_cluster(_nodes(gpus), NODE_GPUS, GPU, kind=GpuType(idle_power_w=0.0), base_power_w=0.0)


def _round(
    name: str,
    objective: str,
    cluster: Cluster,
    cap_w: float,
    jobs: list[Job],
    tables: dict[str, OptionTable] | None = None,
) -> Instance:
    """Round of an hour under a power cap."""
    return Instance(
        name=name,
        objective=objective,
        round_s=3600.0,
        budgets=Budgets(power_w=cap_w),
        cluster=cluster,
        tables=tables or {},
        jobs=jobs,
    )


def _correlated(rng: np.random.Generator, jobs: int, gpus: int | None, name: str) -> Instance:
    """One option for each job: so many watts, worth a constant more. Half of all watts are there."""
    watts = rng.integers(LEAST_W, MOST_W, size=jobs).tolist()
    counts = rng.choice([1, 1, 1, 2], size=jobs).tolist()
    made = [
        Job(name=job, weight=(w + BONUS_W) / MOST_WEIGHT_W, options=_one(count, w))
        for job, w, count in zip(numbered("job", jobs), watts, counts, strict=True)
    ]
    cluster = _cluster(sum(counts) if gpus is None else gpus)
    return _round(name, "goodput", cluster, float(max(max(watts), sum(watts) // 2)), made)


def _one(count: int, watts: int) -> OptionTable:
    return OptionTable(gpus=[count], pool=[GPU], power_w=[float(watts)], rate=[1.0])


def _parity(rng: np.random.Generator, jobs: int, gpus: int | None, name: str) -> Instance:
    """Multiples of so many watts under a cap that is none: the relaxation fills it, and no decision can."""
    times = rng.integers(1, 6, size=jobs).tolist()
    made = [
        Job(name=job, weight=float(t), options=_one(1, t * PARITY_W))
        for job, t in zip(numbered("job", jobs), times, strict=True)
    ]
    half = sum(times) // 2
    cap_w = half * PARITY_W + PARITY_W // 2
    return _round(name, "goodput", _cluster(jobs if gpus is None else gpus), float(cap_w), made)


def _tight(rng: np.random.Generator, jobs: int, gpus: int | None, name: str) -> Instance:
    """All must run; on more GPUs they are faster and draw less, so that GPUs and watts are scarce at once."""
    made, least_w, fewest = [], 0, 0
    for job in numbered("job", jobs):
        first = int(rng.integers(300, 900))
        saved = rng.integers(1, 60, size=len(GPU_COUNTS)).cumsum()
        watts = [float(first + 100 - s) for s in saved.tolist()]
        rates = [float(r) for r in (10 + rng.integers(5, 15, size=len(GPU_COUNTS)).cumsum()).tolist()]
        table = OptionTable(gpus=[*GPU_COUNTS], pool=[GPU] * len(GPU_COUNTS), power_w=watts, rate=rates)
        work = float(rng.integers(10_000, 200_000))
        made.append(Job(name=job, can_wait=False, options=table, remaining_work=work))
        # Half of the jobs can have two GPUs: what that draws is the least that some decision draws.
        pair = len(made) % 2
        least_w, fewest = least_w + int(watts[pair]), fewest + GPU_COUNTS[pair]
    cluster = _cluster(fewest if gpus is None else max(gpus, fewest))
    return _round(name, "total-completion", cluster, float(least_w + SPARE_W), made)


def _degenerate(rng: np.random.Generator, jobs: int, gpus: int | None, name: str) -> Instance:
    """Three kinds of jobs, each with options of equal worth, on racks that are alike."""
    work = rng.integers(2, 6, size=3).tolist()
    tables = {
        f"kind{k}": OptionTable(
            gpus=[1, 2, 2, 4, 4, 8],
            pool=[GPU] * 6,
            power_w=[200.0, 400.0, 300.0, 600.0, 800.0, 1200.0],
            rate=[1.0, 2.0, 1.5, 3.0, 4.0, 6.0],
            batch_size=[1, 2, 1, 1, 2, 1],
        )
        for k in range(3)
    }
    kinds = rng.integers(3, size=jobs).tolist()
    made = [
        Job(name=job, options=f"kind{k}", remaining_work=3600.0 * work[k])
        for job, k in zip(numbered("job", jobs), kinds, strict=True)
    ]
    cluster = _cluster(2 * jobs if gpus is None else gpus)
    cap_w = 150.0 * NODE_GPUS * len(cluster.nodes)
    return _round(name, "total-completion", cluster, cap_w, made, tables)


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
    nodes = _nodes(jobs if gpus is None else gpus)
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
    """Options on every GPU count, at as many watts for each GPU."""
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
