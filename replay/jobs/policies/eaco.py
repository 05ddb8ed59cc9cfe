"""`eaco`: each job joins the fullest GPUs that take it (EaCO, arXiv 2412.08294, algorithms 1 and 2).

In the order of arrival, a job goes to the most utilised block of as many GPUs as it asked for that stays
within the limits, be other GPUs idle or not; nodes without jobs may sleep. Only when there is no such block
it gets free GPUs, where it takes the least energy, and else it waits and the next one is looked at.

Where the paper is silent: utilisation adds up to that of full GPUs at most, with four jobs at most in place
of the limit on memory; jobs have no deadlines; no set is undone, for what sharing does is known beforehand.
"""

from __future__ import annotations

import numpy as np

from wattsched.replay.jobs.menus import WAITS
from wattsched.replay.jobs.policies.requests import Room
from wattsched.replay.jobs.policy import Decision, Setting, View
from wattsched.replay.jobs.sharing import Sharing
from wattsched.topology.arrays import FloatArray, IntArray

MOST_JOBS = 4
MOST_UTILISATION = 1.0


class Eaco:
    """Co-location to save energy; running jobs stay where they are."""

    def __init__(self, setting: Setting) -> None:
        self.restart_s = setting.restarts.process_s
        self._used = Sharing(setting.trace).utilisation

    def decide(self, view: View) -> Decision:
        """Place those that wait."""
        sets, room, row = _Sets(view, self._used), Room.free(view), view.row.copy()
        full: set[bytes] = set()
        for j in np.flatnonzero(view.waits).tolist():
            # What has no room now has none later in this round.
            if (request := view.request[j].tobytes()) in full:
                continue
            row[j] = sets.join(j)
            if row[j] == WAITS:
                taken = (room.take(rows) for rows in _thriftiest(view, j)[:, None])
                row[j] = next((found for found in taken if found != WAITS), WAITS)
                sets.begin(j, int(row[j]))
            if row[j] == WAITS:
                full.add(request)
        return Decision(row, host=sets.host)


class _Sets:
    """Sets of jobs that share GPUs, by host; jobs that are alone are hosts, too."""

    def __init__(self, view: View, used: FloatArray) -> None:
        self._view, self._used = view, used
        self.host = view.hosts.copy()
        runs = np.flatnonzero(~view.waits)
        leader = np.where(self.host[runs] < 0, runs, self.host[runs])
        self._row = np.where(self.host < 0, view.row, WAITS)
        # Of no job at all, numpy counts in integers.
        self._load = np.bincount(leader, used[view.row[runs]], len(view)).astype(float)
        self._jobs = np.bincount(leader, minlength=len(view))

    def begin(self, j: int, row: int) -> None:
        """Let a job have GPUs of its own."""
        self._row[j] = row
        if row != WAITS:
            self._load[j], self._jobs[j] = self._used[row], 1

    def join(self, j: int) -> int:
        """Let a job join the fullest set that takes it; its row, -1 for none."""
        menus, request = self._view.menus, self._view.request[j]
        mine = np.where(self._row == WAITS, WAITS, request[menus.pool[self._row]])
        fits = (mine != WAITS) & (menus.gpus[mine] == menus.gpus[self._row]) & (self._jobs < MOST_JOBS)
        fits &= self._load + self._used[mine] <= MOST_UTILISATION * (1 + 1e-9)
        if not fits.any():
            return WAITS
        best = int(np.argmax(np.where(fits, self._load, -1.0)))
        self.host[j] = best
        self._load[best] += self._used[mine[best]]
        self._jobs[best] += 1
        return int(mine[best])


def _thriftiest(view: View, j: int) -> IntArray:
    """Rows that a job asked for, that of least energy first."""
    known = view.request[j][view.request[j] != WAITS]
    joules = view.menus.power_w[known] / view.menus.rate[known]
    return np.asarray(known[np.argsort(joules, kind="stable")])
