"""The rows that jobs hold: how much work is left of each, until when, and what its segments cost.

A segment begins when a job gets a row, or a delay in it, and ends with the next one. Nothing is summed up in
between, so work and energy are exact however many rounds a segment lasts.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.accounts import Carbon
from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.outcome import JobRecords
from wattsched.replay.jobs.sharing import Sharing
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray


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
        self._menus, self._trace_idle_w = trace.menus, trace.idle_w
        self._sharing = Sharing(trace)
        # Of what each job holds; nothing where it holds no row.
        self._rate, self._gpus, self._power_w, self._idle_w = np.zeros((4, n))

    def remaining(self, jobs: IntArray, time_s: float) -> FloatArray:
        """Work left; a last digit for a job that is due at this very moment but for rounding."""
        done = self._rate[jobs] * np.maximum(time_s - self.works_s[jobs], 0.0)
        return np.asarray(np.maximum(self._left[jobs] - done, 1e-12 * self._work[jobs]))

    def served_gpu_s(self, jobs: IntArray, time_s: float) -> FloatArray:
        """GPU seconds held so far; jobs that share GPUs hold equal parts."""
        held = self._gpus[jobs] * (time_s - self._since_s[jobs])
        return np.asarray(self.records.gpu_s[jobs] + held)

    def same_place(self, jobs: IntArray, rows: IntArray) -> BoolArray:
        """Whether rows differ from those held in clock or power limit only."""
        menus, old = self._menus, self.row[jobs]
        same = (menus.gpus[old] == menus.gpus[rows]) & (menus.pool[old] == menus.pool[rows])
        batch = menus.batch_size
        same &= (batch[old] == batch[rows]) | (np.isnan(batch[old]) & np.isnan(batch[rows]))
        return np.asarray(same & (old != WAITS) & (rows != WAITS))

    def draw(self, running: IntArray, time_s: float) -> tuple[float, float, int]:
        """Watts of the GPUs that jobs hold, what they would draw when idle, and their number."""
        idle_w = self._idle_w[running]
        watts = np.where(self.works_s[running] <= time_s, self._power_w[running], idle_w)
        return float(watts.sum()), float(idle_w.sum()), round(float(self._gpus[running].sum()))

    def close(self, jobs: IntArray, time_s: float) -> None:
        """End the segments of those of the jobs that hold a row."""
        jobs = jobs[self.row[jobs] != WAITS]
        records, since = self.records, self._since_s[jobs]
        works = np.minimum(self.works_s[jobs], time_s)
        left = self.remaining(jobs, time_s)
        records.held_s[jobs] += time_s - since
        records.gpu_s[jobs] += (time_s - since) * self._gpus[jobs]
        idle_w, power_w = self._idle_w[jobs], self._power_w[jobs]
        records.energy_j[jobs] += idle_w * (works - since) + power_w * (time_s - works)
        begin, turn, end = (self._carbon.per_watt(at) for at in (since, works, time_s))
        records.carbon_g[jobs] += idle_w * (turn - begin) + power_w * (end - turn)
        records.done[jobs] += self._rate[jobs] * (time_s - works)
        self._left[jobs] = left
        self._since_s[jobs] = time_s

    def open(self, jobs: IntArray, time_s: float, delay_s: FloatArray, sets: IntArray | None = None) -> None:
        """Begin segments in the rows that the jobs hold now.

        Parameters
        ----------
        sets : int array, shape (n,), optional
            Number of the set of jobs that each shares its GPUs with; default: none shares.
        """
        rows, menus = self.row[jobs], self._menus
        rate, gpus, power_w, idle_w = (
            column[rows] for column in (menus.rate, menus.gpus, menus.power_w, self._trace_idle_w)
        )
        if sets is not None:
            shares = self._sharing.of(rows, sets)
            rate, gpus, idle_w = rate / shares.slowdown, gpus * shares.part, idle_w * shares.part
            power_w = idle_w + shares.busy_w
        self._rate[jobs], self._gpus[jobs], self._power_w[jobs], self._idle_w[jobs] = (
            rate,
            gpus,
            power_w,
            idle_w,
        )
        self._since_s[jobs] = time_s
        self.works_s[jobs] = time_s + delay_s
        self.finish_s[jobs] = self.works_s[jobs] + self._left[jobs] / rate
        first = self.records.first_start_s
        first[jobs] = np.minimum(first[jobs], time_s)

    def stop(self, jobs: IntArray) -> None:
        """Take the rows of jobs away."""
        self.row[jobs] = WAITS
        self.finish_s[jobs] = np.inf
        for held in (self._rate, self._gpus, self._power_w, self._idle_w):
            held[jobs] = 0.0
