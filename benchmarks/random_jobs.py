"""Jobs at random, of which duration and GPU count are known."""

from __future__ import annotations

import numpy as np

from wattsched.instances.traces.recorded import TraceJob

GPU_COUNTS = {1: 0.4, 2: 0.25, 4: 0.2, 8: 0.15}
"""Shares of the generated jobs that ask for so many GPUs."""


def poisson_jobs(
    n: int,
    seed: int,
    *,
    gap_s: float = 300.0,
    median_s: float = 1800.0,
) -> list[TraceJob]:
    """Jobs with exponential gaps between them and log-normal durations.

    Parameters
    ----------
    gap_s : float
        Mean seconds between two arrivals.
    median_s : float
        Of the durations on the GPUs asked for.
    """
    draw = np.random.default_rng(seed)
    submitted_s = np.cumsum(draw.exponential(gap_s, n))
    duration_s = draw.lognormal(np.log(median_s), 1.0, n)
    gpus = draw.choice(list(GPU_COUNTS), n, p=list(GPU_COUNTS.values()))
    rows = zip(submitted_s.tolist(), duration_s.tolist(), gpus.tolist(), strict=True)
    return [TraceJob(f"job{i}", *row) for i, row in enumerate(rows)]
