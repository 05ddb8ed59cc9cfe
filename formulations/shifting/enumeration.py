"""All schedules of all jobs, where these are few."""

from __future__ import annotations

from itertools import product

import numpy as np

from wattsched.formulations.shifting.horizon import PAUSE, Horizon
from wattsched.formulations.shifting.schedule import Schedules, follow

MOST = 60_000


def all_schedules(horizon: Horizon, most: int = MOST) -> Schedules | None:
    """Every schedule of every job, some of them more than once; None when there are too many."""
    counts = [
        float(len(horizon.options_of(job)) + 1) ** float(horizon.slots - horizon.first_slot[job])
        for job in range(horizon.n_jobs)
    ]
    if sum(counts) > most:
        return None
    jobs, options = [np.zeros(0, dtype=np.int64)], [np.zeros((0, horizon.slots), dtype=np.int64)]
    for job, count in enumerate(counts):
        first = int(horizon.first_slot[job])
        choices = [PAUSE, *horizon.options_of(job).tolist()]
        option = np.full((int(count), horizon.slots), PAUSE, dtype=np.int64)
        option[:, first:] = list(product(choices, repeat=horizon.slots - first))
        jobs.append(np.full(int(count), job))
        options.append(option)
    return follow(horizon, np.concatenate(jobs), np.concatenate(options))
