"""What the jobs of a replay hold, their GPUs and their segments, changed together."""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.accounts import Carbon, Sleep
from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.places import Places
from wattsched.replay.jobs.policy import Decision, View
from wattsched.replay.jobs.segments import Segments
from wattsched.replay.jobs.trace import Trace
from wattsched.topology.arrays import BoolArray, IntArray


class Holdings:
    """Segments and places of the jobs of a trace.

    Attributes
    ----------
    segments : Segments
    places : Places
    running : int array, shape (n_running,)
        Jobs that hold GPUs, in the order of their arrival.
    """

    def __init__(self, trace: Trace, carbon: Carbon, sleep: Sleep | None, time_s: float) -> None:
        self.segments = Segments(trace, carbon)
        self.places = Places(trace, sleep, time_s)
        self.running: IntArray = np.empty(0, dtype=np.int64)

    def complete(self, time_s: float) -> IntArray:
        """Take what they hold from the jobs that are complete by now, and return these."""
        held, places = self.segments, self.places
        done = self.running[held.finish_s[self.running] <= time_s]
        if not len(done):
            return done
        # Those that share GPUs with them go on faster.
        company = places.company(done)
        held.close(np.append(done, company), time_s)
        held.records.end_s[done] = time_s
        self._vacate(done, time_s)
        if len(company):
            restarting_s = np.maximum(held.works_s[company] - time_s, 0.0)
            held.open(company, time_s, restarting_s, places.host[company])
        self.running = self.running[~np.isin(self.running, done)]
        return done

    def apply(self, view: View, decision: Decision) -> None:
        """Close the segments that end, place the jobs, and open new segments."""
        row, held, places, time_s = decision.row, self.segments, self.places, view.time_s
        sets = decision.sets(view) if decision.host is not None or places.shared else None
        changed = row != view.row
        if sets is not None:
            # Whoever shares GPUs, or did, has other segments when anybody comes or goes.
            changed |= places.shares(view.jobs) | _shared(sets)
        if not changed.any():
            return
        jobs, new, ran = view.jobs[changed], row[changed], view.ran[changed]
        delay_s = view.delay_s(np.flatnonzero(changed), new)
        runs, stays = new != WAITS, held.same_place(jobs, new)
        alone, joins = runs & ~stays, list[tuple[int, int]]()
        if sets is not None:
            stays, alone, joins = places.arrange(jobs, sets[changed], stays)
            delay_s[~stays & ran] = view.restart_s
        held.close(jobs, time_s)
        self._vacate(jobs[~stays & (held.row[jobs] != WAITS)], time_s)
        held.row[jobs] = new
        self.running = view.jobs[row != WAITS]
        held.records.preemptions[jobs[~runs]] += 1
        held.records.restarts[jobs[runs & ~stays & ran]] += 1
        moved, wake_s = places.settle(jobs[alone], new[alone], time_s)
        for job, other in joins:
            places.join(job, other)
            wake_s[job] = wake_s[other]
        held.records.migrations[moved] += 1
        delay_s[np.isin(jobs, moved)] = view.restart_s
        together = None if sets is None else places.host[jobs[runs]]
        held.open(jobs[runs], time_s, delay_s[runs] + wake_s[jobs[runs]], together)
        # Those whose row stays but whose GPUs others needed restart on GPUs that are as good.
        others = moved[~np.isin(moved, jobs)]
        held.close(others, time_s)
        held.open(others, time_s, view.restart_s + wake_s[others])

    def _vacate(self, jobs: IntArray, time_s: float) -> None:
        """Take jobs off their GPUs."""
        self.places.vacate(jobs, self.segments.row[jobs], time_s)
        self.segments.stop(jobs)


def _shared(sets: IntArray) -> BoolArray:
    """Which jobs are in a set with others; those that wait are in none."""
    _, number, size = np.unique(sets, return_inverse=True, return_counts=True)
    return np.asarray((sets >= 0) & (size[number] > 1))
