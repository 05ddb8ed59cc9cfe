"""The `sia-like` family: three GPU types and 29 configurations per job, for goodput."""

from __future__ import annotations

import numpy as np

from wattsched.instances.clusters import BASE_POWER_W, capped_power_w, known_gpu_type
from wattsched.instances.generators.kinds import (
    Choices,
    draw_kinds,
    jobs_of_kinds,
    named,
    requested_gpus,
    table_of,
)
from wattsched.instances.instance import Budgets, Instance
from wattsched.topology.cluster import Cluster, Node

MOST_KINDS = 100

TYPES = (
    # GPU type, GPUs per server, share of the GPUs, speed, GPU counts, clock, batch sizes
    ("T4", 4, 0.375, 0.14, (1, 2, 4, 8, 16, 32), 1590, (64, 128)),
    ("A40", 8, 0.375, 0.5, (1, 2, 4, 8, 16), 1740, (64, 128)),
    ("A100", 8, 0.25, 1.0, (1, 2, 4, 8, 16, 32, 64), 1410, (128,)),
)
"""12 + 10 + 7 configurations: GPU counts times batch sizes (speeds are assumed, relative to an A100)."""


def sia_round(
    *, jobs: int, gpus: int | None = None, seed: int = 0, power_fraction: float | None = None
) -> Instance:
    """Three GPU types without racks, 29 configurations per job, goodput as the objective.

    The setting of Sia (SOSP 2023): every job may move between GPU types, sizes and batch sizes. The numbers
    are made up, no published trace or profile is in them.

    Parameters
    ----------
    power_fraction : float, optional
        Caps the site's power at this fraction of the full draw (default: no cap, as in Sia).
    """
    rng = np.random.default_rng(seed)
    wanted = requested_gpus(rng, jobs, largest=32)
    gpus = max(1, int(wanted.sum()) // 2) if gpus is None else gpus
    nodes = [
        Node(
            name=f"{name.lower()}-{i:04d}",
            gpu_type=name,
            gpus=node_gpus,
            base_power_w=BASE_POWER_W * node_gpus / 8,
        )
        for name, node_gpus, share, *_ in TYPES
        for i in range(max(1, round(gpus * share / node_gpus)))
    ]
    cluster = Cluster(name="sia", gpu_types={t[0]: known_gpu_type(t[0]) for t in TYPES}, nodes=nodes)
    choices = [
        Choices(name, cluster.gpu_types[name], counts, (clock,), batches, speed, node_gpus)
        for name, node_gpus, _, speed, counts, clock, batches in TYPES
    ]
    tables = [table_of(kind, choices) for kind in draw_kinds(rng, min(jobs, MOST_KINDS), len(choices))]
    return Instance(
        name=f"sia-like-{jobs}-{seed}",
        objective="goodput",
        round_s=60.0,
        budgets=Budgets(power_w=None if power_fraction is None else capped_power_w(cluster, power_fraction)),
        cluster=cluster,
        tables=named(tables),
        jobs=jobs_of_kinds(rng, tables, wanted, restart_s=30.0),
    )
