"""Jobs as traces record them, and when most of them are in the system."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from wattsched.instances.units import S_PER_DAY, S_PER_H

MOST_GPUS = 64
"""No job grows beyond this."""


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job as a trace records it: when it was submitted, how long it ran, on how many GPUs.

    Attributes
    ----------
    model, batch_size : optional
        What it trains, a model of the catalogue, and its global batch, where the trace tells.
    gpu_type : str, optional
        On which the duration was recorded (default: the cluster's reference type).
    power_w : float, optional
        Mean draw of its GPUs together, where it was measured.
    waited_s : float, optional
        From its arrival to its start, where the trace tells.
    user, account : str
        Whose it is; empty where the trace does not tell.
    time_limit_s : float, optional
        Longest run time that its user stated; None where the job had no limit, or the trace does not tell.
    job_name : str
        Name that its user gave it, which others may have as well; empty where the trace does not tell.
    min_gpus, max_gpus : int, optional
        Bounds on the GPUs that it may use, where the trace says that it is elastic.
    """

    name: str
    submitted_s: float
    duration_s: float
    gpus: int
    model: str | None = None
    batch_size: int | None = None
    gpu_type: str | None = None
    power_w: float | None = None
    user: str = ""
    account: str = ""
    time_limit_s: float | None = None
    waited_s: float | None = None
    job_name: str = ""
    min_gpus: int | None = None
    max_gpus: int | None = None

    @property
    def started_s(self) -> float:
        """Time of its start; of its arrival where the trace does not tell how long it waited."""
        return self.submitted_s + (self.waited_s or 0.0)

    @property
    def ended_s(self) -> float:
        """Time of its end."""
        return self.started_s + self.duration_s

    def bounds(self, gpus: int, elasticity: int) -> tuple[int, int]:
        """Fewest and most GPUs that it may use if it begins with so many.

        Its own bounds, or else a part and a multiple of its GPUs, at most `MOST_GPUS`.
        """
        if self.min_gpus or self.max_gpus:
            return min(self.min_gpus or gpus, gpus), max(self.max_gpus or gpus, gpus)
        return max(1, gpus // elasticity), min(elasticity * gpus, MOST_GPUS)


def using_gpus(trace: Iterable[TraceJob]) -> list[TraceJob]:
    """Jobs that use a GPU for some time; a ValueError if there is none."""
    jobs = list(trace)
    using = [job for job in jobs if job.gpus > 0 and job.duration_s > 0]
    if not using:
        raise ValueError(f"has no job that uses a GPU for longer than 0 s, of {len(jobs):,} in all")
    return using


def grown(jobs: Sequence[TraceJob], part: float, seed: int) -> list[TraceJob]:
    """Add a part of the jobs once more, drawn with replacement.

    A copy arrives in the same hour of day, on a day that is drawn and at a time in that hour that is drawn,
    between the first arrival and the last.
    """
    draw, arrival_s = np.random.default_rng(seed), np.array([job.submitted_s for job in jobs])
    drawn = draw.integers(len(jobs), size=round(part * len(jobs)))
    hour_s = np.floor(arrival_s[drawn] / S_PER_H) * S_PER_H
    first_s, last_s = arrival_s.min(), arrival_s.max()
    # Days by which the hour can be moved and still lie, in part, between the two.
    least = np.ceil((first_s - hour_s - S_PER_H) / S_PER_DAY + 1e-9)
    most = np.floor((last_s - hour_s) / S_PER_DAY)
    moved_s = hour_s + S_PER_DAY * np.floor(draw.uniform(least, most + 1))
    at_s = draw.uniform(np.maximum(moved_s, first_s), np.minimum(moved_s + S_PER_H, last_s)).tolist()
    copies = enumerate(zip(drawn.tolist(), at_s, strict=True), start=1)
    return [
        *jobs,
        *(replace(jobs[j], name=f"{jobs[j].name}+{n}", submitted_s=time_s) for n, (j, time_s) in copies),
    ]


def busiest_s(jobs: Iterable[TraceJob]) -> float:
    """First full hour of the trace's clock at which jobs that are in the system ask for most GPUs."""
    jobs = list(jobs)
    starts = np.array([job.submitted_s for job in jobs])
    ends = np.array([job.ended_s for job in jobs])
    gpus = np.array([job.gpus for job in jobs])
    # Demand can only have grown at the first full hour after a job's submission.
    grown = np.unique(np.ceil(starts / S_PER_H))
    hours = np.append(np.floor(starts.min() / S_PER_H), grown) * S_PER_H

    def gpus_until(times: np.ndarray) -> np.ndarray:
        """GPUs of the jobs whose times are up to each hour."""
        order = np.argsort(times)
        total = np.concatenate([[0], np.cumsum(gpus[order])])
        return np.asarray(total[np.searchsorted(times[order], hours, side="right")])

    return float(hours[np.argmax(gpus_until(starts) - gpus_until(ends))])
