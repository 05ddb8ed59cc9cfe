"""The `uniform` family: one pool of equal GPUs, 192 options per job."""

from __future__ import annotations

from typing import Literal

import numpy as np

from wattsched.instances.clusters import capped_power_w, homogeneous_cluster
from wattsched.instances.generators.kinds import (
    Choices,
    draw_kinds,
    jobs_of_kinds,
    named,
    requested_gpus,
    table_of,
)
from wattsched.instances.instance import Budgets, Instance, Job, OptionTable

GPU_COUNTS = (1, 2, 4, 8, 16, 32)
FREQUENCIES_MHZ = (705, 810, 915, 1020, 1125, 1230, 1320, 1410)
BATCH_SIZES = (64, 128, 256, 512)
MOST_KINDS = 200


def uniform_round(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    budget: Literal["power", "energy", "both"] = "both",
    power_fraction: float = 0.55,
    energy_fraction: float = 0.15,
    round_s: float = 3600.0,
) -> Instance:
    """One pool of A100 GPUs, 192 options per job, GPUs for half of the demand, budgets that bind.

    Parameters
    ----------
    budget : {"power", "energy", "both"}
        A cap on the site's power, on the energy to completion, or on both.
    power_fraction : float
        Power cap as a fraction of the full draw.
    energy_fraction : float
        Energy budget between the least energy of all jobs (0) and the energy of their fastest options (1).
    round_s : float
        Length of the round. With short rounds waiting is cheap, and only GPUs are scarce.

    Raises
    ------
    ValueError
        For a fraction out of range.
    """
    if budget not in ("power", "energy", "both"):
        raise ValueError(f"budget: must be power, energy or both, got '{budget}'")
    if not 0 <= energy_fraction <= 1:
        raise ValueError(f"energy_fraction: must be from 0 to 1, got {energy_fraction}")
    rng = np.random.default_rng(seed)
    wanted = requested_gpus(rng, jobs, largest=GPU_COUNTS[-1])
    gpus = max(1, int(wanted.sum()) // 2) if gpus is None else gpus
    cluster = homogeneous_cluster(nodes=-(-gpus // 8), gpus_per_node=8, gpu_type="A100")
    choices = [Choices("A100", cluster.gpu_types["A100"], GPU_COUNTS, FREQUENCIES_MHZ, BATCH_SIZES)]
    tables = [table_of(kind, choices) for kind in draw_kinds(rng, min(jobs, MOST_KINDS), len(choices))]
    drawn = jobs_of_kinds(rng, tables, wanted)
    budgets = Budgets(
        power_w=None if budget == "energy" else capped_power_w(cluster, power_fraction),
        energy_j=None if budget == "power" else _energy_j(drawn, named(tables), energy_fraction),
        scope="round" if budget == "power" else "completion",
    )
    return Instance(
        name=f"uniform-{jobs}-{seed}",
        objective="completion",
        round_s=round_s,
        budgets=budgets,
        cluster=cluster,
        tables=named(tables),
        jobs=drawn,
    )


def _energy_j(jobs: list[Job], tables: dict[str, OptionTable], fraction: float) -> float:
    """Energy budget between the least energy and that of the fastest options."""
    least, fastest = {}, {}
    for name, table in tables.items():
        rate, power = np.array(table.rate), np.array(table.power_w)
        least[name] = float(np.min(power / rate))
        fastest[name] = float(power[rate.argmax()] / rate.max())
    low = sum(job.remaining_work * least[str(job.options)] for job in jobs)
    high = sum(job.remaining_work * fastest[str(job.options)] for job in jobs)
    # The margin keeps the least energy itself feasible whatever the order of the sum.
    return (low + fraction * (high - low)) * (1 + 1e-9)
