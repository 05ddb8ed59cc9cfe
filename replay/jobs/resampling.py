"""More jobs of the kind that a trace has: `grown`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.instances.units import S_PER_DAY, S_PER_H
from wattsched.replay.jobs.trace import Submissions
from wattsched.topology.arrays import FloatArray, IntArray


def grown(submitted: Submissions, part: float, seed: int) -> Submissions:
    """Add a part of the jobs once more, drawn at random, each in the hour of day in which it came.

    A job is drawn with replacement. Its copy arrives on a day of the trace that is drawn, at a time that is
    drawn within the same hour, between the first and the last arrival. Else it is the same, but for its name.

    Parameters
    ----------
    part : float
        New jobs over those that there are; 0.2 for 20 % more.
    seed : int
        Of the draw.

    Raises
    ------
    ValueError
        For a part below 0.
    """
    if not 0 <= part < np.inf:
        raise ValueError(f"growth: must be at least 0 and finite, got {part:g}")
    draw, n = np.random.default_rng(seed), len(submitted.jobs)
    drawn = draw.integers(n, size=round(part * n))
    arrival_s = np.asarray(submitted.arrival_s, dtype=float)
    new_s = _same_hour_s(arrival_s, drawn, draw)
    names = [f"{submitted.jobs[j].name}+{number}" for number, j in enumerate(drawn.tolist(), start=1)]
    jobs = [submitted.jobs[j].model_copy(update={"name": name}) for j, name in zip(drawn, names, strict=True)]
    records = [
        replace(submitted.records[j], name=name, submitted_s=at_s)
        for j, name, at_s in zip(drawn.tolist(), names, new_s.tolist(), strict=True)
        if submitted.records
    ]
    return replace(
        submitted,
        jobs=[*submitted.jobs, *jobs],
        arrival_s=[*submitted.arrival_s, *new_s.tolist()],
        requested_gpus=[*submitted.requested_gpus, *(submitted.requested_gpus[j] for j in drawn)],
        records=[*submitted.records, *records],
    )


def _same_hour_s(arrival_s: FloatArray, drawn: IntArray, draw: np.random.Generator) -> FloatArray:
    """Draw a time in the same hour of any day of a trace, for each of some jobs."""
    first_s, last_s = arrival_s.min(initial=np.inf), arrival_s.max(initial=-np.inf)
    hour_s = np.floor(arrival_s[drawn] / S_PER_H) * S_PER_H
    # Days by which the hour can be moved and still lie, in part, within the trace.
    least = np.ceil((first_s - hour_s - S_PER_H) / S_PER_DAY + 1e-9)
    most = np.floor((last_s - hour_s) / S_PER_DAY)
    moved_s = hour_s + S_PER_DAY * np.floor(draw.uniform(least, most + 1))
    return np.asarray(draw.uniform(np.maximum(moved_s, first_s), np.minimum(moved_s + S_PER_H, last_s)))
