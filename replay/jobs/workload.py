"""Generated traces: jobs that arrive at random, with durations and GPU counts as clusters see them."""

from __future__ import annotations

import numpy as np

from wattsched.instances.traces.snapshot import TraceJob

GPU_COUNTS = {1: 0.4, 2: 0.25, 4: 0.2, 8: 0.15}
"""Shares of the jobs that ask for so many GPUs."""


def poisson_jobs(
    n: int,
    seed: int,
    *,
    gap_s: float = 300.0,
    median_s: float = 1800.0,
    spread: float = 1.0,
    gpu_counts: dict[int, float] | None = None,
) -> list[TraceJob]:
    """Jobs with exponential gaps between them and log-normal durations.

    Parameters
    ----------
    gap_s : float
        Mean seconds between two arrivals.
    median_s, spread : float
        Median of the durations on the GPUs asked for, and standard deviation of their logarithm.
    gpu_counts : dict, optional
        GPU count to its share of the jobs (default: `GPU_COUNTS`).
    """
    shares = gpu_counts or GPU_COUNTS
    draw = np.random.default_rng(seed)
    submitted_s = np.cumsum(draw.exponential(gap_s, n))
    duration_s = draw.lognormal(np.log(median_s), spread, n)
    gpus = draw.choice(list(shares), n, p=np.array(list(shares.values())) / sum(shares.values()))
    rows = zip(submitted_s.tolist(), duration_s.tolist(), gpus.tolist(), strict=True)
    return [TraceJob(f"job{i}", *row) for i, row in enumerate(rows)]
