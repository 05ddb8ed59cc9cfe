"""Rounds on pools of blocks, of nodes and of counts: how long they take, and what jobs gain.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python -m benchmarks.capacity --write [--seeds 20]

Rounds of two families, as they are and with odd sizes: 3 GPUs instead of 4, 6 instead of 8, and so on, so
that jobs take parts of nodes that do not divide one another. Every round is solved under the three capacities
in turn, in one process; seconds are those of the call, relative to blocks. Seeds begin at 401, on which
nothing was chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import wattsched
from benchmarks.harness import Asked, machine, mean_and_worst, run, say, table, timed
from wattsched import Instance
from wattsched.instances.sizing.job import Job

FIRST, GAP = 401, 1e-4
CAPACITIES = ("blocks", "nodes", "count")
HEADER = ("round", "sizes", "capacity", "s, mean", "times blocks, mean", "worst", "gap proven, worst",
          "better than blocks, mean", "worst")  # fmt: skip


def odd(gpus: int) -> int:
    """Three quarters of a count that is 4 or more."""
    return gpus * 3 // 4 if gpus % 4 == 0 else gpus


def with_odd_sizes(instance: Instance) -> Instance:
    """The round with other GPU counts in its tables, or for its models to choose from."""

    def changed(job: Job) -> Job:
        counts = [odd(gpus) for gpus in job.gpu_counts or (1, 2, 4, 8, 16)]
        return job if job.model is None else job.model_copy(update={"gpu_counts": counts})

    tables = {
        name: kept.model_copy(update={"gpus": [odd(gpus) for gpus in kept.gpus]})
        for name, kept in instance.tables.items()
    }
    return instance.model_copy(update={"tables": tables, "jobs": [changed(job) for job in instance.jobs]})


def measured(instance: Instance) -> Iterator[tuple[float, float, float, float]]:
    """Under each capacity the seconds, those over blocks', the proven gap, and what is better than blocks."""
    base_s = base = np.nan
    for capacity in CAPACITIES:
        cluster = instance.cluster.model_copy(update={"capacity": capacity})
        of = instance.model_copy(update={"cluster": cluster})
        result, seconds = timed(lambda of=of: wattsched.solve(of, gap=GAP))
        assert result.objective is not None
        assert result.proven_gap is not None
        assert not result.faults
        if capacity == "blocks":
            base_s, base = seconds, result.objective
        better = (result.objective / base - 1.0) * (1.0 if result.sense == "max" else -1.0)
        yield seconds, seconds / base_s, result.proven_gap, better


def capacity(asked: Asked) -> str:
    """One row for each family, sizes and capacity."""
    wattsched.solve(wattsched.generate("uniform", jobs=300))  # modules are imported once
    jobs, rows = 60 if asked.quick else 1_000, []
    for family in ("uniform", "sia-like"):
        for odd_sizes in (False, True):
            found = []
            for seed in range(FIRST, FIRST + asked.seeds):
                say(f"{family} {jobs} --seed {seed}{', odd sizes' if odd_sizes else ''}")
                instance: Any = wattsched.generate(family, jobs=jobs, seed=seed)
                found.append(list(measured(with_odd_sizes(instance) if odd_sizes else instance)))
            for name, values in zip(CAPACITIES, np.array(found).transpose(1, 2, 0), strict=True):
                seconds, ratio, gap, better = values
                times = (mean_and_worst(seconds)[0], *mean_and_worst(ratio), f"{gap.max():.1e}")
                sizes = "3, 6, 12, ..." if odd_sizes else "as generated"
                gains = (f"{better.mean():.2%}", f"{better.min():.2%}")
                rows.append([f"`{family}`, {jobs:,} jobs", sizes, name, *times, *gains])
    return f"{table(HEADER, rows)}\n\nMeasured on {machine()}, {asked.seeds} seeds from {FIRST}."


TABLES = {"capacity": capacity}

if __name__ == "__main__":
    run(__doc__, TABLES, seeds=20)
