"""The rows that jobs hold: how much work is left of each, until when, and what its segments cost.

A segment begins when a job gets a row, or a delay in it, and ends with the next one. Nothing is summed up in
between, so work and energy are exact however many rounds a segment lasts.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.accounts import Carbon
from wattsched.replay.jobs.menus import WAITS, Booleans, Floats, Integers
from wattsched.replay.jobs.outcome import JobRecords
from wattsched.replay.jobs.trace import Trace


class Segments:
    """Current segment of every job of a trace.

    Attributes
    ----------
    row : int array, shape (n_jobs,)
        -1 for a job that holds none.
    works_s, finish_s : float arrays, shape (n_jobs,)
        When it works, and when it is complete if it keeps its row.
    records : JobRecords
        What the segments that have ended come to.
    """

    def __init__(self, trace: Trace, carbon: Carbon) -> None:
        n = len(trace)
        self.records = JobRecords.empty(n)
        self.row = np.full(n, WAITS, dtype=np.int64)
        self.works_s = np.zeros(n)
        self.finish_s = np.full(n, np.inf)
        self._since_s = np.zeros(n)
        self._left = trace.work.copy()
        self._work = trace.work
        self._carbon = carbon
        menus = self._menus = trace.menus
        # One more entry, of a job that holds no row.
        self._rate = np.append(menus.rate, 0.0)
        self._gpus = np.append(menus.gpus, 0)
        self._power_w = np.append(menus.power_w, 0.0)
        self._idle_w = np.append(trace.idle_w, 0.0)

    def remaining(self, jobs: Integers, time_s: float) -> Floats:
        """Work left; a last digit for a job that is due at this very moment but for rounding."""
        done = self._rate[self.row[jobs]] * np.maximum(time_s - self.works_s[jobs], 0.0)
        return np.asarray(np.maximum(self._left[jobs] - done, 1e-12 * self._work[jobs]))

    def served_gpu_s(self, jobs: Integers, time_s: float) -> Floats:
        """GPU seconds held so far."""
        held = self._gpus[self.row[jobs]] * (time_s - self._since_s[jobs])
        return np.asarray(self.records.gpu_s[jobs] + held)

    def same_place(self, jobs: Integers, rows: Integers) -> Booleans:
        """Whether rows differ from those held in clock or power limit only."""
        menus, old = self._menus, self.row[jobs]
        same = (menus.gpus[old] == menus.gpus[rows]) & (menus.pool[old] == menus.pool[rows])
        batch = menus.batch_size
        same &= (batch[old] == batch[rows]) | (np.isnan(batch[old]) & np.isnan(batch[rows]))
        return np.asarray(same & (old != WAITS) & (rows != WAITS))

    def draw(self, running: Integers, time_s: float) -> tuple[float, float, int]:
        """Watts of the GPUs that jobs hold, what they would draw when idle, and their number."""
        rows = self.row[running]
        idle_w = self._idle_w[rows]
        watts = np.where(self.works_s[running] <= time_s, self._power_w[rows], idle_w)
        return float(watts.sum()), float(idle_w.sum()), int(self._gpus[rows].sum())

    def close(self, jobs: Integers, time_s: float) -> None:
        """End the segments of those of the jobs that hold a row."""
        jobs = jobs[self.row[jobs] != WAITS]
        rows, records, since = self.row[jobs], self.records, self._since_s[jobs]
        works = np.minimum(self.works_s[jobs], time_s)
        left = self.remaining(jobs, time_s)
        records.held_s[jobs] += time_s - since
        records.gpu_s[jobs] += (time_s - since) * self._gpus[rows]
        idle_w, power_w = self._idle_w[rows], self._power_w[rows]
        records.energy_j[jobs] += idle_w * (works - since) + power_w * (time_s - works)
        begin, turn, end = (self._carbon.per_watt(at) for at in (since, works, time_s))
        records.carbon_g[jobs] += idle_w * (turn - begin) + power_w * (end - turn)
        records.done[jobs] += self._rate[rows] * (time_s - works)
        self._left[jobs] = left
        self._since_s[jobs] = time_s

    def open(self, jobs: Integers, time_s: float, delay_s: Floats) -> None:
        """Begin segments in the rows that the jobs hold now."""
        self._since_s[jobs] = time_s
        self.works_s[jobs] = time_s + delay_s
        self.finish_s[jobs] = self.works_s[jobs] + self._left[jobs] / self._rate[self.row[jobs]]
        first = self.records.first_start_s
        first[jobs] = np.minimum(first[jobs], time_s)

    def stop(self, jobs: Integers) -> None:
        """Take the rows of jobs away."""
        self.row[jobs] = WAITS
        self.finish_s[jobs] = np.inf
