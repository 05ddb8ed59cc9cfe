"""The `hetero` family: racks of different GPU types, each rack with its own power feed."""

from __future__ import annotations

import numpy as np

from wattsched.instances.clusters import (
    BASE_POWER_W,
    capped_power_w,
    idle_power_w,
    known_gpu_type,
    with_rack_caps,
)
from wattsched.instances.generators.kinds import (
    Choices,
    draw_kinds,
    jobs_of_kinds,
    named,
    requested_gpus,
    table_of,
)
from wattsched.instances.instance import Budgets, Instance, Job, OptionTable
from wattsched.topology.cluster import Cluster, Group, Node

GPU_COUNTS = (1, 2, 4, 8, 16, 32)
BATCH_SIZES = (64, 128, 256)
MOST_KINDS = 100
NODE_GPUS = 8
MOST_RACKS = 10_000

TYPES = {
    "A100": (1.0, (825, 1020, 1215, 1410)),
    "V100": (0.45, (900, 1110, 1320, 1530)),
    "T4": (0.14, (885, 1110, 1335, 1590)),
}
"""GPU type to its speed against an A100 (assumed, near published training throughputs) and its clocks."""


def hetero_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    racks: int | None = None,
    power_fraction: float = 0.8,
    rack_power_fraction: float = 0.75,
    energy_fraction: float | None = None,
    unavailable: float = 0.02,
    round_s: float = 3600.0,
) -> Instance:
    """Racks of A100, V100 and T4 GPUs with a power cap each, 72 options per job and type of rack.

    Broken GPUs break the racks into buddy blocks of different sizes, and a fifth of the jobs has a deadline
    that it can still meet when it waits for this round.

    Parameters
    ----------
    racks : int, optional
        Number of racks, the types in turn (default: one for about 64 GPUs, from 3 to 32).
    power_fraction, rack_power_fraction : float
        Caps of the site and of each rack as fractions of their full draws.
    energy_fraction : float, optional
        Energy budget of the round, between that of the idle site (0) and that of the power cap (1).
    unavailable : float
        Share of GPUs that are broken.
    round_s : float
        Length of the round.

    Raises
    ------
    ValueError
        For a fraction or a number of racks out of range.
    """
    if racks is not None and racks < 1:
        raise ValueError(f"racks: must be at least 1, got {racks}")
    if racks is not None and racks > MOST_RACKS:
        raise ValueError(f"racks: must be at most {MOST_RACKS:,}, got {racks:,}")
    if not 0 <= unavailable < 1:
        raise ValueError(f"unavailable: must be at least 0 and below 1, got {unavailable}")
    if energy_fraction is not None and not 0 <= energy_fraction <= 1:
        raise ValueError(f"energy_fraction: must be from 0 to 1, got {energy_fraction}")
    rng = np.random.default_rng(seed)
    wanted = requested_gpus(rng, jobs, largest=GPU_COUNTS[-1])
    gpus = max(1, int(wanted.sum()) // 2) if gpus is None else gpus
    racks = min(32, max(len(TYPES), gpus // 64)) if racks is None else racks
    cluster = with_rack_caps(_cluster(rng, racks, gpus, unavailable), rack_power_fraction)
    choices = [
        Choices(name, cluster.gpu_types[name], GPU_COUNTS, clocks, BATCH_SIZES, speed, NODE_GPUS)
        for name, (speed, clocks) in TYPES.items()
        if name in cluster.gpu_types
    ]
    tables = [table_of(kind, choices) for kind in draw_kinds(rng, min(jobs, MOST_KINDS), len(choices))]
    drawn = jobs_of_kinds(rng, tables, wanted)
    cap_w, idle_w = capped_power_w(cluster, power_fraction), idle_power_w(cluster, cluster.nodes)
    energy_w = None if energy_fraction is None else idle_w + energy_fraction * (cap_w - idle_w)
    return Instance(
        name=f"hetero-{jobs}-{seed}",
        objective="completion",
        round_s=round_s,
        budgets=Budgets(power_w=cap_w, energy_j=None if energy_w is None else energy_w * round_s),
        cluster=cluster,
        tables=named(tables),
        jobs=_with_deadlines(rng, drawn, named(tables), round_s),
    )


def _cluster(rng: np.random.Generator, racks: int, gpus: int, unavailable: float) -> Cluster:
    nodes_per_rack = max(1, -(-gpus // (racks * NODE_GPUS)))
    names = list(TYPES)
    groups = [Group(name="site", level="site")]
    nodes = []
    for r in range(racks):
        groups.append(Group(name=f"rack{r:03d}", level="rack", parent="site"))
        for i in range(nodes_per_rack):
            broken = np.flatnonzero(rng.random(NODE_GPUS) < unavailable)
            nodes.append(
                Node(
                    name=f"rack{r:03d}-node{i:04d}",
                    gpu_type=names[r % len(names)],
                    gpus=NODE_GPUS,
                    parent=f"rack{r:03d}",
                    base_power_w=BASE_POWER_W / 2,
                    unavailable=broken.tolist(),
                )
            )
    used = {node.gpu_type: known_gpu_type(node.gpu_type) for node in nodes}
    return Cluster(name="hetero", gpu_types=used, nodes=nodes, groups=groups)


def _with_deadlines(
    rng: np.random.Generator, jobs: list[Job], tables: dict[str, OptionTable], round_s: float
) -> list[Job]:
    """Give a fifth of the jobs a deadline, 1.5 to 6 times what waiting and then 1 GPU would need."""
    one = {
        name: max(r for r, g in zip(table.rate or [], table.gpus, strict=True) if g == 1)
        for name, table in tables.items()
    }
    has, slack = rng.random(len(jobs)) < 0.2, rng.uniform(1.5, 6.0, len(jobs))
    return [
        job.model_copy(
            update={"deadline_s": round(slack[j] * (round_s + job.remaining_work / one[str(job.options)]), 1)}
        )
        if has[j]
        else job
        for j, job in enumerate(jobs)
    ]
