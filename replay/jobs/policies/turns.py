"""Taking turns: the round mechanism of Gavel (Narayanan et al., OSDI 2020, section 5).

Shares of time become rounds by priorities: the share that a job should have of a pool over the share that it
has received. In every round the highest priorities run, as far as there is room.

Gavel counts what was received from the last change of the shares on, and hands the difference over. Here it
is forgotten by halves instead, so that shares may change in every round.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policy import Decision, View
from wattsched.topology.arrays import FloatArray, IntArray

ROUND_S = 360.0
"""Gavel's round."""

MEMORY_ROUNDS = 10.0
"""Rounds after which what was received counts half."""


class Rounds:
    """Rounds of a fixed length; between them everything stays as it is.

    Parameters
    ----------
    round_s : float
    """

    def __init__(self, round_s: float) -> None:
        self._round_s = round_s
        self._next_s = -np.inf

    def kept(self, view: View) -> Decision | None:
        """Decision before the next round has come; None when it has, and begins."""
        # Rounds of the replay may come a rounding error early.
        if view.time_s < self._next_s - 1e-6 * self._round_s:
            return Decision(view.row.copy(), again_s=self._next_s, host=view.shared)
        self._next_s = view.time_s + self._round_s
        return None

    @property
    def next_s(self) -> float:
        """Time of the next round."""
        return self._next_s


class Received:
    """Share of its time that each job had of each pool, of late.

    Parameters
    ----------
    n_jobs, n_pools : int
    """

    def __init__(self, n_jobs: int, n_pools: int) -> None:
        self._held_s = np.zeros((n_jobs, n_pools))
        self._here_s = np.zeros(n_jobs)
        self._since_s = 0.0

    def share(self, view: View) -> FloatArray:
        """Count the time since the last call, in which rows did not change; shape (n, n_pools)."""
        seconds, self._since_s = view.time_s - self._since_s, view.time_s
        jobs = view.jobs
        here_s = np.minimum(seconds, view.time_s - view.trace.arrival_s[jobs])
        keep = 0.5 ** (here_s / (MEMORY_ROUNDS * ROUND_S))
        self._here_s[jobs] = self._here_s[jobs] * keep + here_s
        self._held_s[jobs] *= keep[:, None]
        runs = view.row != WAITS
        self._held_s[jobs[runs], view.menus.pool[view.row[runs]]] += here_s[runs]
        return self._held_s[jobs] / np.maximum(self._here_s[jobs], 1e-12)[:, None]


def by_priority(target: FloatArray, received: FloatArray) -> list[tuple[int, int]]:
    """Jobs and pools by the share that they should have over the one received, the highest first.

    Those that have received nothing come before all others, the largest share first. Shares of zero are left
    out.

    Parameters
    ----------
    target, received : float arrays, shape (n, n_pools)
    """
    job, pool = np.nonzero(target > 1e-9)
    wanted, had = target[job, pool], received[job, pool]
    none: IntArray = np.flatnonzero(had <= 0)
    priority = wanted / np.where(had > 0, had, 1.0)
    priority[none] = np.inf
    order = np.lexsort((-wanted, -priority))
    return list(zip(job[order].tolist(), pool[order].tolist(), strict=True))
