r"""Kinds of training jobs with made-up but plausible scaling, as tables of options.

One iteration with batch b on g GPUs at frequency f takes

.. math:: T = \frac{b}{g}\left(a + (1 - a) \frac{f_{max}}{f}\right) + S(g)

where a is the share of time bound by memory and S the time to exchange gradients. A larger batch needs more
samples: its statistical efficiency is :math:`(\phi + b_0) / (\phi + b)` (Pollux). A GPU draws its idle watts
plus, while it computes, a share that grows with :math:`f^{2.7}` (cubic frequency scaling, a little damped).
Rates are samples in units of computing one of them on one reference GPU at its top frequency.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.instances.clusters import numbered
from wattsched.instances.sizing.job import OptionTable
from wattsched.instances.sizing.job_columns import JobColumns
from wattsched.topology.arrays import IntArray
from wattsched.topology.cluster import GpuType
from wattsched.topology.column import Coded

REQUESTED = np.array([1, 2, 4, 8, 16, 32])
REQUESTED_SHARE = np.array([0.30, 0.15, 0.20, 0.25, 0.07, 0.03])
"""GPU counts that users ask for, and their shares: a cluster for distributed training (assumed)."""


@dataclass(frozen=True)
class Choices:
    """GPU counts, frequencies and batch sizes that jobs may choose from on one GPU type.

    ``speed`` is relative to the reference GPU; ``node_gpus`` GPUs share a server.
    """

    pool: str
    gpu_type: GpuType
    gpus: tuple[int, ...]
    frequencies_mhz: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    speed: float = 1.0
    node_gpus: int = 8


@dataclass(frozen=True)
class Kind:
    """Parameters of one kind of job; times are in units of computing one sample at top frequency.

    `memory_bound` is a of the module's text, `exchange` S(2) and `noise_scale` phi, both by smallest batch;
    `intensity` is the share of the top draw when it computes, `affinity` a factor of the speed by GPU type.
    """

    memory_bound: float
    exchange: float
    noise_scale: float
    intensity: float
    affinity: tuple[float, ...]


def draw_kinds(rng: np.random.Generator, count: int, n_types: int) -> list[Kind]:
    """Draw `count` kinds of jobs, each with its own taste for each of the GPU types."""
    return [
        Kind(
            memory_bound=float(rng.uniform(0.05, 0.6)),
            exchange=float(rng.uniform(0.02, 0.25)),
            noise_scale=float(rng.uniform(1.0, 20.0)),
            intensity=float(rng.uniform(0.7, 1.0)),
            affinity=tuple(rng.lognormal(0.0, 0.2, n_types).tolist()),
        )
        for _ in range(count)
    ]


def table_of(kind: Kind, choices: list[Choices]) -> OptionTable:
    """Table of every GPU count, frequency and batch size of every GPU type."""
    smallest_batch = min(b for c in choices for b in c.batch_sizes)
    parts = [
        _columns(kind, c, taste / kind.affinity[0], smallest_batch)
        for c, taste in zip(choices, kind.affinity, strict=True)
    ]
    columns = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    return OptionTable.model_validate(columns)


def _columns(kind: Kind, c: Choices, taste: float, smallest_batch: int) -> dict[str, list[object]]:
    """Rows of the table on one GPU type, on which the kind is faster by its `taste`."""
    gpus, mhz, batch = (
        grid.ravel() for grid in np.meshgrid(c.gpus, c.frequencies_mhz, c.batch_sizes, indexing="ij")
    )
    slowdown = kind.memory_bound + (1 - kind.memory_bound) * max(c.frequencies_mhz) / mhz
    compute = batch / gpus * slowdown
    steps = np.log2(gpus) * np.where(gpus > c.node_gpus, 1.5, 1.0)
    time = compute + kind.exchange * smallest_batch * steps
    phi = kind.noise_scale * smallest_batch
    efficiency = (phi + smallest_batch) / (phi + batch)
    rate = c.speed * taste * efficiency * batch / time
    dynamic = 0.25 + 0.75 * (mhz / max(c.frequencies_mhz)) ** 2.7
    most = c.gpu_type.max_power_w or c.gpu_type.idle_power_w
    busy = kind.intensity * compute / time
    watts = gpus * (c.gpu_type.idle_power_w + (most - c.gpu_type.idle_power_w) * busy * dynamic)
    return {
        "gpus": gpus.tolist(),
        "pool": [c.pool] * len(gpus),
        # Six digits: more would only lengthen the file.
        "power_w": [float(f"{value:.6g}") for value in watts],
        "rate": [float(f"{value:.6g}") for value in rate],
        "frequency_mhz": mhz.tolist(),
        "batch_size": batch.tolist(),
    }


def requested_gpus(rng: np.random.Generator, jobs: int, largest: int) -> IntArray:
    """GPU counts that the jobs' users ask for, shape (jobs,)."""
    drawn = rng.choice(REQUESTED, size=jobs, p=REQUESTED_SHARE)
    return np.asarray(np.minimum(drawn, largest), dtype=np.int64)


def jobs_of_kinds(
    rng: np.random.Generator, requested: IntArray, choices: list[Choices], most_kinds: int, **fields: float
) -> tuple[dict[str, OptionTable], JobColumns]:
    """Tables of some kinds of jobs, and one job per requested GPU count, its kind, weight and work drawn.

    The work keeps a job busy for a median of one hour on the GPUs that its user asks for, at the best rate
    that its table has for them.

    Parameters
    ----------
    requested : int array, shape (n_jobs,)
    choices : list of Choices
        One per GPU type.
    most_kinds : int
        Where there are fewer jobs, there are as many kinds as jobs.
    **fields
        More numbers of every job.
    """
    n = len(requested)
    drawn = draw_kinds(rng, min(n, most_kinds), len(choices))
    tables = {f"kind{k:03d}": table_of(kind, choices) for k, kind in enumerate(drawn)}
    kind = rng.integers(len(tables), size=n)
    seconds = np.clip(rng.lognormal(np.log(3600.0), 1.2, size=n), 60.0, 14 * 86400.0)
    weight = rng.choice([1.0, 2.0, 4.0], size=n, p=[0.7, 0.2, 0.1])
    counts = range(REQUESTED[-1] + 1)
    best = np.array([[of.get(gpus, 0.0) for gpus in counts] for of in map(best_rates, tables.values())])
    work = seconds * best[kind, requested]
    return tables, JobColumns(
        {
            "name": numbered("job", n),
            "weight": weight,
            "options": Coded(kind, list(tables)),
            # Six digits: more would only lengthen the file.
            "remaining_work": np.array([float(f"{value:.6g}") for value in work.tolist()]),
            **{name: np.full(n, value) for name, value in fields.items()},
        }
    )


def best_rates(table: OptionTable) -> dict[int, float]:
    """Best rate of a table for each of its GPU counts."""
    best: dict[int, float] = {}
    for gpus, rate in zip(table.gpus, table.rate or [], strict=True):
        best[gpus] = max(rate, best.get(gpus, 0.0))
    return best
