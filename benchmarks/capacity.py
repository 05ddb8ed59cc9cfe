"""Rounds on pools of blocks, of nodes and of counts: how long they take, and what jobs gain.

    OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/capacity.py --write [--seeds N]

Rounds of two families, as they are and with odd sizes: 3 GPUs instead of 4, 6 instead of 8, and so on, so
that jobs take parts of nodes that do not divide one another. Every round is solved under the three capacities
in turn, in one process; seconds are those of the call, relative to blocks. Seeds begin at 401, on which
nothing was chosen.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from scipy.stats import gmean
from suite import say
from tables import asked_over_seeds, machine, table, write

import wattsched
from wattsched import Instance, Result
from wattsched.instances.sizing.job import Job

FIRST, GAP = 401, 1e-4
FAMILIES = ("uniform", "sia-like")
CAPACITIES = ("blocks", "nodes", "count")
HEADER = (
    "round",
    "sizes",
    "capacity",
    "s, mean",
    "times blocks, mean",
    "worst",
    "gap proven, worst",
    "better than blocks, mean",
    "worst",
)


def odd(gpus: int) -> int:
    """Three quarters of a count that is 4 or more."""
    return gpus * 3 // 4 if gpus % 4 == 0 else gpus


def with_odd_sizes(instance: Instance) -> Instance:
    """The round with other GPU counts in its tables, or for its models to choose from."""

    def changed(job: Job) -> Job:
        asked = [odd(gpus) for gpus in job.gpu_counts or (1, 2, 4, 8, 16)]
        return job if job.model is None else job.model_copy(update={"gpu_counts": asked})

    tables = {
        name: kept.model_copy(update={"gpus": [odd(gpus) for gpus in kept.gpus]})
        for name, kept in instance.tables.items()
    }
    return instance.model_copy(update={"tables": tables, "jobs": [changed(job) for job in instance.jobs]})


def solved(instance: Instance, capacity: str) -> tuple[Result, float]:
    """Answer under a capacity, and its seconds."""
    cluster = instance.cluster.model_copy(update={"capacity": capacity})
    round_of = instance.model_copy(update={"cluster": cluster})
    begin = time.perf_counter()
    result = wattsched.solve(round_of, gap=GAP)
    return result, time.perf_counter() - begin


def lines_of(family: str, jobs: int, seeds: int, *, odd_sizes: bool) -> list[list[str]]:
    """Lines of the table for a family: one for each capacity."""
    found: dict[str, list[tuple[float, ...]]] = {capacity: [] for capacity in CAPACITIES}
    for seed in range(FIRST, FIRST + seeds):
        say(f"{family} {jobs} --seed {seed}{', odd sizes' if odd_sizes else ''}")
        instance: Any = wattsched.generate(family, jobs=jobs, seed=seed)
        instance = with_odd_sizes(instance) if odd_sizes else instance
        base_s = base = np.nan
        for capacity in CAPACITIES:
            result, seconds = solved(instance, capacity)
            assert result.objective is not None
            assert result.proven_gap is not None
            assert not result.faults
            if capacity == "blocks":
                base_s, base = seconds, result.objective
            gain = (result.objective / base - 1.0) * (1.0 if result.sense == "max" else -1.0)
            found[capacity].append((seconds, seconds / base_s, result.proven_gap, gain))
    told = "3, 6, 12, ..." if odd_sizes else "as generated"
    return [[f"`{family}`, {jobs:,} jobs", told, name, *cells(values)] for name, values in found.items()]


def cells(values: list[tuple[float, ...]]) -> tuple[str, ...]:
    """Geometric means of seconds and ratios, the mean gain, and the worst of each."""
    seconds, ratio, gap, gain = np.array(values).T
    times = f"{gmean(seconds):.2f}", f"{gmean(ratio):.2f}", f"{ratio.max():.2f}", f"{gap.max():.1e}"
    return *times, f"{gain.mean():.2%}", f"{gain.min():.2%}"


def main() -> None:
    """Print the table."""
    asked = asked_over_seeds(__doc__)
    wattsched.solve(wattsched.generate("uniform", jobs=300))  # modules are imported once
    jobs = 60 if asked.quick else 1_000
    rows = [
        line
        for family in FAMILIES
        for odd_sizes in (False, True)
        for line in lines_of(family, jobs, asked.seeds, odd_sizes=odd_sizes)
    ]
    text = table(HEADER, rows)
    print(text)
    if asked.write:
        write("capacity", f"{text}\n\nMeasured on {machine()}, {asked.seeds} seeds from {FIRST}.")


if __name__ == "__main__":
    main()
