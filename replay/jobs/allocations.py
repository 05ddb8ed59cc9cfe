r"""GPUs that the jobs of a replay hold, alone or shared, and the segments of work that come of them.

Every decision passes a gate first, so that no power cap is exceeded (`within_caps`).

A segment begins when a job gets a row, or a delay in it, and ends with the next one. Nothing is summed up in
between, so work and energy are exact however many rounds a segment lasts.

The utilisation of a configuration is its draw above idle over that of a GPU at its highest,

.. math:: u = \frac{P - P_{idle}}{P_{max} - P_{idle}},

and where jobs share GPUs, utilisations add up to L, as EaCO measured (`perfmodels.co_location`). Each of n
jobs then takes :math:`\max(L, \sigma(n, \min(L, 1)))` times as long as alone, with EaCO's fitted law
:math:`\sigma`: beyond full GPUs they take turns. The GPUs draw :math:`P_{idle} + (P_{max} - P_{idle})
\min(L, 1)`. Each job counts for an equal part of the GPUs and of their idle watts, and for the rest in
proportion to its utilisation. One that restarts already counts among those that share.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.perfmodels.co_location import EACO_SLOWDOWN
from wattsched.replay.jobs.accounts import Carbon, Sleep
from wattsched.replay.jobs.outcome import JobRecords, SegmentLog
from wattsched.replay.jobs.policy import Decision, State
from wattsched.replay.jobs.pools import Placement
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import FloatArray, IntArray


class Sharing:
    """Slowdown and draw of jobs that share GPUs; `utilisation` of a trace's configurations is (n_rows,)."""

    def __init__(self, trace: Trace) -> None:
        rows = trace.configurations
        self._range_w = rows.gpus * trace.highest_w[rows.pool] - trace.idle_w
        above = np.maximum(trace.busy_w, 0.0)
        used = np.divide(above, self._range_w, out=np.ones(len(rows)), where=self._range_w > 0)
        self.utilisation: FloatArray = np.minimum(used, 1.0)

    def of(self, rows: IntArray, sets: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Run time over that alone, part of the GPUs and part of the draw above idle of jobs by their sets.

        Parameters
        ----------
        rows : int array, shape (n,)
            Configurations; those of a set have the same pool and GPU count.
        sets : int array, shape (n,)
            Number of the set that each belongs to; all members of a set are there.
        """
        _, of_job, jobs = np.unique(sets, return_inverse=True, return_counts=True)
        used = self.utilisation[rows]
        load = np.bincount(of_job, used)[of_job].astype(float)
        busy_w = used * np.maximum(self._range_w[rows], 0.0) / np.maximum(load, 1.0)
        return slowdown(jobs[of_job].astype(float), load), 1.0 / jobs[of_job], busy_w


def slowdown(jobs: float | FloatArray, load: float | FloatArray) -> FloatArray:
    """Run time over that alone of so many jobs that share GPUs, by the sum of their utilisations."""
    return np.maximum(EACO_SLOWDOWN.of(jobs, np.minimum(load, 1.0)), load)


class Segments:
    """Current segment of every job of a trace, and records and a log of those that have ended.

    Attributes
    ----------
    row : int array, shape (n_jobs,)
        Configuration of each job, -1 where it runs in none.
    works_s, finish_s : float arrays, shape (n_jobs,)
        When it works, and when it is complete if it keeps its row.
    """

    def __init__(self, trace: Trace, carbon: Carbon) -> None:
        n = len(trace)
        self.records, self.log = JobRecords.empty(n), SegmentLog()
        self.row = np.full(n, WAIT, dtype=np.int64)
        self.works_s = np.zeros(n)
        self.finish_s = np.full(n, np.inf)
        self._since_s = np.zeros(n)
        self._first = np.zeros(n, dtype=np.int64)
        self._left = trace.work.copy()
        self._carbon = carbon
        self._trace = trace
        self.sharing = Sharing(trace)
        # Of what each job holds; nothing where it holds no row.
        self._rate, self._gpus, self._power_w, self._idle_w = np.zeros((4, n))

    def remaining(self, jobs: IntArray, time_s: float) -> FloatArray:
        """Work left of jobs; above 0 also where one is due at this very moment."""
        done = self._rate[jobs] * np.maximum(time_s - self.works_s[jobs], 0.0)
        return np.asarray(np.maximum(self._left[jobs] - done, 1e-12 * self._trace.work[jobs]))

    def served_gpu_s(self, jobs: IntArray, time_s: float) -> FloatArray:
        """GPU seconds held so far; jobs that share GPUs hold equal parts."""
        held = self._gpus[jobs] * (time_s - self._since_s[jobs])
        return np.asarray(self.records.gpu_s[jobs] + held)

    def draw(self, running: IntArray, time_s: float) -> tuple[float, float, int]:
        """Watts of the GPUs that jobs hold, what they would draw when idle, and their number."""
        idle_w = self._idle_w[running]
        watts = np.where(self.works_s[running] <= time_s, self._power_w[running], idle_w)
        return float(watts.sum()), float(idle_w.sum()), round(float(self._gpus[running].sum()))

    def extra_w_of_pools(self, running: IntArray, time_s: float) -> FloatArray:
        """Watts of the GPUs that jobs hold beyond their idle draw, by pool."""
        works = running[self.works_s[running] <= time_s]
        pool, extra_w = self._trace.configurations.pool[self.row[works]], self._power_w - self._idle_w
        return np.bincount(pool, extra_w[works], len(self._trace.pools)).astype(float)

    def close(self, jobs: IntArray, time_s: float) -> None:
        """End the segments of jobs that run."""
        jobs = jobs[self.row[jobs] != WAIT]
        records, since = self.records, self._since_s[jobs]
        works, left = np.minimum(self.works_s[jobs], time_s), self.remaining(jobs, time_s)
        idle_w, power_w = self._idle_w[jobs], self._power_w[jobs]
        records.held_s[jobs] += time_s - since
        records.gpu_s[jobs] += (time_s - since) * self._gpus[jobs]
        records.energy_j[jobs] += idle_w * (works - since) + power_w * (time_s - works)
        grams = self._carbon.per_watt
        records.carbon_g[jobs] += idle_w * grams(since, works) + power_w * grams(works, time_s)
        records.done[jobs] += self._rate[jobs] * (time_s - works)
        self.log.add(
            since < time_s,
            job=jobs,
            row=self.row[jobs],
            start_s=since,
            end_s=np.full(len(jobs), time_s),
            first=self._first[jobs],
            works_s=works,
            idle_w=idle_w,
            power_w=power_w,
        )
        self._left[jobs], self._since_s[jobs] = left, time_s

    def open(
        self,
        jobs: IntArray,
        time_s: float,
        delay_s: FloatArray,
        first: IntArray,
        sets: IntArray | None = None,
    ) -> None:
        """Begin segments in the present rows, on GPUs from `first` on; jobs of a set share them."""
        rows, of = self.row[jobs], self._trace.configurations
        rate, gpus, power_w, idle_w = (c[rows] for c in (of.rate, of.gpus, of.power_w, self._trace.idle_w))
        if sets is not None:
            slower, part, busy_w = self.sharing.of(rows, sets)
            rate, gpus, idle_w = rate / slower, gpus * part, idle_w * part
            power_w = idle_w + busy_w
        self._rate[jobs], self._gpus[jobs] = rate, gpus
        self._power_w[jobs], self._idle_w[jobs] = power_w, idle_w
        self._since_s[jobs], self.works_s[jobs], self._first[jobs] = time_s, time_s + delay_s, first
        self.finish_s[jobs] = self.works_s[jobs] + self._left[jobs] / rate
        np.minimum.at(self.records.first_start_s, jobs, time_s)

    def stop(self, jobs: IntArray) -> None:
        """Stop jobs."""
        self.row[jobs], self.finish_s[jobs] = WAIT, np.inf
        for held in (self._rate, self._gpus, self._power_w, self._idle_w):
            held[jobs] = 0.0


class Allocations:
    """Segments and places of the jobs of a trace, and the `running` jobs in the order of their arrival."""

    def __init__(self, trace: Trace, carbon: Carbon, sleep: Sleep | None, time_s: float) -> None:
        self.segments = Segments(trace, carbon)
        self.placement = Placement(trace, sleep, time_s)
        self.running: IntArray = np.empty(0, dtype=np.int64)

    def complete(self, time_s: float) -> IntArray:
        """End the jobs that are complete by now, and return them."""
        held, placement = self.segments, self.placement
        done = self.running[held.finish_s[self.running] <= time_s]
        if not len(done):
            return done
        # Those that share GPUs with them go on faster.
        company = placement.company(done)
        held.close(np.append(done, company), time_s)
        held.records.end_s[done] = time_s
        self._vacate(done, time_s)
        if len(company):
            restarting_s = np.maximum(held.works_s[company] - time_s, 0.0)
            self._open(company, time_s, restarting_s, placement.host[company])
        self.running = self.running[~np.isin(self.running, done)]
        return done

    def apply(self, state: State, decision: Decision) -> None:
        """Close the segments that end, place the jobs, and open new segments."""
        row, held, placement, time_s = decision.row, self.segments, self.placement, state.time_s
        sets = decision.sets(state) if decision.host is not None or placement.shared else None
        changed = row != state.row
        if sets is not None:
            # Whoever shares GPUs, or did, has other segments when anybody comes or goes.
            _, number, size = np.unique(sets, return_inverse=True, return_counts=True)
            changed |= placement.shares(state.jobs) | ((sets >= 0) & (size[number] > 1))
        if not changed.any():
            return
        jobs, new, ran = state.jobs[changed], row[changed], state.ran[changed]
        delay_s = state.delay_s(np.flatnonzero(changed), new)
        runs, stays = new != WAIT, state.trace.same_gpus(held.row[jobs], new)
        alone, joins = runs & ~stays, list[tuple[int, int]]()
        if sets is not None:
            stays, alone, joins = placement.arrange(jobs, sets[changed], stays)
            delay_s[~stays & ran] = state.restart_s
        held.close(jobs, time_s)
        self._vacate(jobs[~stays & (held.row[jobs] != WAIT)], time_s)
        held.row[jobs] = new
        self.running = state.jobs[row != WAIT]
        held.records.preemptions[jobs[~runs]] += 1
        held.records.restarts[jobs[runs & ~stays & ran]] += 1
        moved, wake_s = placement.settle(jobs[alone], new[alone], time_s)
        for job, other in joins:
            placement.join(job, other)
            wake_s[job] = wake_s[other]
        held.records.migrations[moved] += 1
        delay_s[np.isin(jobs, moved)] = state.restart_s
        together = None if sets is None else placement.host[jobs[runs]]
        self._open(jobs[runs], time_s, delay_s[runs] + wake_s[jobs[runs]], together)
        # Those whose row stays but whose GPUs others needed restart on GPUs that are as good.
        others = moved[~np.isin(moved, jobs)]
        held.close(others, time_s)
        self._open(others, time_s, state.restart_s + wake_s[others])

    def _open(self, jobs: IntArray, time_s: float, delay_s: FloatArray, sets: IntArray | None = None) -> None:
        first = self.placement.first(jobs, self.segments.row[jobs])
        self.segments.open(jobs, time_s, delay_s, first, sets)

    def _vacate(self, jobs: IntArray, time_s: float) -> None:
        self.placement.vacate(jobs, self.segments.row[jobs], time_s)
        self.segments.stop(jobs)


def within_caps(state: State, decision: Decision, sharing: Sharing) -> Decision:
    """Return the decision without the changes with which a power cap would be exceeded.

    What draws less passes first, then jobs that run and would draw more, then those that start, both in the
    order of arrival. A job whose change does not pass keeps its configuration where its GPUs are left to it,
    and waits where they are not.
    """
    caps, trace, of = state.caps, state.trace, state.configurations
    if not caps.names:
        return decision

    def fits(row: IntArray) -> bool:
        runs = row != WAIT
        extra_w = trace.extra_w[row[runs]]
        if decision.host is not None:
            extra_w = sharing.of(row[runs], replace(decision, row=row).sets(state)[runs])[2]
        return bool(np.all(caps.use_w(of.pool[row[runs]], extra_w).sum(axis=0) <= state.room_w))

    wanted, now = decision.row, state.row
    if fits(wanted):
        return decision
    row = np.full(len(state), WAIT)
    if decision.host is None:
        both = (wanted != WAIT) & (now != WAIT) & (of.pool[wanted] == of.pool[now])
        falls = both & (trace.extra_w[wanted] <= trace.extra_w[now])
        stays = both & ~falls & (of.block[now] <= of.block[wanted])
        kept = np.where(falls, wanted, np.where(stays, now, WAIT))
        row = kept if fits(kept) else row
    for job in np.argsort(now == WAIT, kind="stable"):
        if row[job] != wanted[job]:
            changed = row.copy()
            changed[job] = wanted[job]
            row = changed if fits(changed) else row
    return replace(decision, row=row)
