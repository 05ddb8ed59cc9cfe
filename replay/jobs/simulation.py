"""Event-driven, round-based replay of a trace under a policy.

Events are arrivals, completions, the ends of restarts, nodes that fall asleep, and rounds. A round takes
place after an arrival or a completion, at the next multiple of the round length (at once when that is 0), and
when the policy asked for it. Between events every watt is constant, so energy is exact.

A job that gets another GPU count, pool or batch size, is moved, or starts again after a pause, holds its GPUs
for the policy's `restart_s` without working; they draw their idle watts then. Other changes are immediate.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np

from wattsched.replay.jobs.accounts import Carbon, Meter, Nodes, Sleep
from wattsched.replay.jobs.ground import Ground
from wattsched.replay.jobs.menus import WAITS, Booleans, Floats, Integers
from wattsched.replay.jobs.outcome import JobRecords, Outcome, PowerLog, Rounds
from wattsched.replay.jobs.policy import Decision, Policy, View
from wattsched.replay.jobs.trace import Trace

Progress = Callable[[float, int], None]
_STUCK = 1000
"""Rounds in a row at one moment after which a policy is taken to go round in circles."""


def simulate(
    trace: Trace,
    policy: Policy,
    *,
    name: str = "policy",
    round_s: float = 0.0,
    carbon: Carbon | None = None,
    sleep: Sleep | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Replay a trace until all its jobs are complete.

    Parameters
    ----------
    round_s : float
        Seconds between the moments at which decisions are possible; 0: at any moment.
    carbon : Carbon, optional
        Default: no carbon at all.
    sleep : Sleep, optional
        Default: nodes never sleep.
    progress : callable, optional
        Called after each round with the time and the number of complete jobs.

    Raises
    ------
    ValueError
        When the policy's rows are not those of the jobs, do not fit, or leave jobs waiting for ever.
    """
    if not (0 <= round_s < math.inf):
        raise ValueError(f"round_s must be at least 0, got {round_s:g}")
    run = _Replay(trace, policy, name, round_s, carbon or Carbon.constant(0.0), sleep)
    while run.step():
        if progress is not None:
            progress(run.time_s, run.complete)
    return run.outcome()


class _Replay:
    """State of a replay: arrays over all jobs of the trace, and the numbers of those in the system."""

    def __init__(
        self, trace: Trace, policy: Policy, name: str, round_s: float, carbon: Carbon, sleep: Sleep | None
    ) -> None:
        n = len(trace)
        self.trace, self.policy, self.name, self.round_s = trace, policy, name, round_s
        self.time_s = self.begin_s = float(trace.arrival_s[0]) if n else 0.0
        self.complete = 0
        self.records = JobRecords.empty(n)
        self.rounds, self.power = Rounds(), PowerLog()
        self._meter = Meter(carbon, self.time_s)
        self._carbon = carbon
        self._nodes = Nodes(trace.cluster, trace.pools, sleep, self.time_s)
        self._grounds = [Ground(pool) for pool in trace.pools]
        idle = [trace.cluster.gpu_types[pool.gpu_type].idle_power_w for pool in trace.pools]
        self._idle_w = np.array([*idle, 0.0])
        gpus = sum(watts * int(p.available.sum()) for watts, p in zip(idle, trace.pools, strict=True))
        self._all_idle_w = float(gpus)
        self._arrived = 0
        self._here: list[int] = []
        self._row = np.full(n, WAITS, dtype=np.int64)
        # A job's segment: since when it holds this row, when it works, and what was left of it then.
        self._since = np.zeros(n)
        self._works = np.zeros(n)
        self._left = trace.work.copy()
        self._finish = np.full(n, np.inf)
        self._running: Integers = np.empty(0, dtype=np.int64)
        self._changed = False
        self._again_s = math.inf
        self._rounds_here = 0
        self._jobs_w = self._free_w = self._base_w = 0.0
        self._busy = 0
        self._measure()

    def step(self) -> bool:
        """Go to the next event; False when there is none."""
        moment = self._next_s()
        if moment == math.inf:
            if self._here:
                waiting = self.trace.names[self._here[0]]
                raise ValueError(f"policy '{self.name}' leaves job '{waiting}' waiting for ever")
            return False
        if moment > self.time_s:
            self._rounds_here = 0
            self._meter.advance(moment, self._jobs_w, self._free_w, self._base_w, self._busy)
            self.time_s = moment
        self._complete_jobs()
        self._receive_jobs()
        if self._round_due():
            self._decide()
        self._nodes.doze(self.time_s)
        self._measure()
        return True

    def outcome(self) -> Outcome:
        """Take what is recorded."""
        return Outcome(
            self.trace,
            self.name,
            self.records,
            self.rounds,
            self._meter,
            self.power,
            self.begin_s,
            self.time_s,
        )

    def _next_s(self) -> float:
        finish = self._finish[self._running]
        works = self._works[self._running]
        times = [
            float(np.min(finish, initial=math.inf)),
            float(np.min(works[works > self.time_s], initial=math.inf)),
            self._round_s(),
        ]
        if self._arrived < len(self.trace):
            times.append(float(self.trace.arrival_s[self._arrived]))
        elif not self._here:
            return math.inf
        times.append(max(self.time_s, self._nodes.next_s()))
        return min(times)

    def _round_s(self) -> float:
        """Time of the next round as far as it is known."""
        if not self._here:
            return math.inf
        wanted = self.time_s if self._changed else self._again_s
        if self.round_s == 0 or wanted == math.inf:
            return wanted
        return math.ceil(wanted / self.round_s - 1e-9) * self.round_s

    def _round_due(self) -> bool:
        return self._round_s() <= self.time_s

    def _complete_jobs(self) -> None:
        done = self._running[self._finish[self._running] <= self.time_s]
        if not len(done):
            return
        self._close(done)
        self.records.end_s[done] = self.time_s
        self._vacate(done)
        gone = set(done.tolist())
        self._here = [job for job in self._here if job not in gone]
        self._running = self._running[~np.isin(self._running, done)]
        self.complete += len(done)
        self._changed = True

    def _receive_jobs(self) -> None:
        while self._arrived < len(self.trace) and self.trace.arrival_s[self._arrived] <= self.time_s:
            self._here.append(self._arrived)
            self._arrived += 1
            self._changed = True

    def _decide(self) -> None:
        view = self._view()
        begin = time.perf_counter()
        decision = self.policy.decide(view)
        seconds = time.perf_counter() - begin
        self._check(view, decision)
        self._apply(view, decision.row)
        self._changed = False
        self._again_s = max(decision.again_s, self.time_s)
        self._rounds_here += 1
        if self._rounds_here > _STUCK:
            raise ValueError(f"policy '{self.name}' decides again and again at {self.time_s:g} s")
        rounds = self.rounds
        rounds.time_s.append(self.time_s)
        rounds.decision_s.append(seconds)
        rounds.gap.append(decision.gap)
        rounds.running.append(len(self._running))
        rounds.waiting.append(len(view) - len(self._running))
        rounds.busy_gpus.append(int(self.trace.menus.gpus[self._row[self._running]].sum()))

    def _view(self) -> View:
        jobs = np.array(self._here, dtype=np.int64)
        return View(
            time_s=self.time_s,
            trace=self.trace,
            jobs=jobs,
            remaining=self._remaining(jobs),
            row=self._row[jobs],
            ran=np.isfinite(self.records.first_start_s[jobs]),
            restarting_s=np.maximum(self._works[jobs] - self.time_s, 0.0),
            served_gpu_s=self.records.gpu_s[jobs] + self._held_gpus(jobs) * (self.time_s - self._since[jobs]),
            restart_s=self.policy.restart_s,
            grounds=self._grounds,
        )

    def _remaining(self, jobs: Integers) -> Floats:
        rate = np.append(self.trace.menus.rate, 0.0)[self._row[jobs]]
        left = self._left[jobs] - rate * np.maximum(self.time_s - self._works[jobs], 0.0)
        # A job that is due at this very moment but for rounding.
        return np.asarray(np.maximum(left, 1e-12 * self.trace.work[jobs]))

    def _held_gpus(self, jobs: Integers) -> Integers:
        return np.append(self.trace.menus.gpus, 0)[self._row[jobs]]

    def _check(self, view: View, decision: Decision) -> None:
        row, menus = decision.row, self.trace.menus
        if row.shape != view.jobs.shape:
            raise ValueError(f"policy '{self.name}' gives {row.shape} rows for {len(view)} jobs")
        first, end = menus.start[view.kind], menus.start[view.kind + 1]
        wrong = (row != WAITS) & ((row < first) | (row >= end))
        if wrong.any():
            job = self.trace.names[view.jobs[wrong][0]]
            raise ValueError(f"policy '{self.name}' gives job '{job}' a row of another kind")

    def _apply(self, view: View, row: Integers) -> None:
        """Close the segments that end, place the jobs, and open new segments."""
        changed = row != view.row
        if not changed.any():
            return
        jobs, new = view.jobs[changed], row[changed]
        delay = view.delay_s(np.flatnonzero(changed), new)
        stays = self._keeps_place(view.row[changed], new)
        moves = jobs[~stays]
        left = self._remaining(jobs)
        self._close(jobs)
        self._vacate(moves[self._row[moves] != WAITS])
        self._left[jobs] = left
        self._row[jobs] = new
        self._running = view.jobs[row != WAITS]
        runs = new != WAITS
        again = runs & ~stays & view.ran[changed]
        self.records.restarts[jobs[again]] += 1
        moved, wake_s = self._settle(moves[self._row[moves] != WAITS])
        self._migrate(moved[~np.isin(moved, jobs)], wake_s)
        delay[np.isin(jobs, moved)] = self.policy.restart_s
        self.records.migrations[moved] += 1
        started = jobs[runs]
        self._open(started, delay[runs] + wake_s[started])
        first = self.records.first_start_s
        first[started] = np.minimum(first[started], self.time_s)

    def _keeps_place(self, old: Integers, new: Integers) -> Booleans:
        menus = self.trace.menus
        same = (menus.gpus[old] == menus.gpus[new]) & (menus.pool[old] == menus.pool[new])
        batch = menus.batch_size
        same &= (batch[old] == batch[new]) | (np.isnan(batch[old]) & np.isnan(batch[new]))
        return np.asarray(same & (old != WAITS) & (new != WAITS))

    def _settle(self, jobs: Integers) -> tuple[Integers, Floats]:
        """Give jobs GPUs.

        Returns
        -------
        moved : int array
            Other jobs that had to move for them.
        wake_s : float array, shape (n_jobs,)
            Seconds that each job waits for its nodes to wake.
        """
        menus, row = self.trace.menus, self._row
        everyone_moved: list[int] = []
        wake_s = np.zeros(len(self.trace))
        for p, ground in enumerate(self._grounds):
            mine = jobs[menus.pool[row[jobs]] == p]
            if not len(mine):
                continue
            items = zip(
                mine.tolist(), menus.gpus[row[mine]].tolist(), menus.block[row[mine]].tolist(), strict=True
            )
            before = dict(ground.blocks)
            moved = ground.place(list(items))
            for job in moved:
                self._leave(p, before[job].start, before[job].gpus)
            for job in [*mine.tolist(), *moved]:
                block = ground.blocks[job]
                wake_s[job] = self._nodes.enter(self._nodes.of(p, block.start, block.gpus))
            everyone_moved += moved
        return np.array(everyone_moved, dtype=np.int64), wake_s

    def _migrate(self, jobs: Integers, wake_s: Floats) -> None:
        """Restart jobs on GPUs that are as good as those that others needed."""
        if len(jobs):
            left = self._remaining(jobs)
            self._close(jobs)
            self._left[jobs] = left
            self._open(jobs, self.policy.restart_s + wake_s[jobs])

    def _open(self, jobs: Integers, delay: Floats) -> None:
        """Begin segments in the rows that the jobs have now."""
        self._since[jobs] = self.time_s
        self._works[jobs] = self.time_s + delay
        self._finish[jobs] = self._works[jobs] + self._left[jobs] / self.trace.menus.rate[self._row[jobs]]

    def _close(self, jobs: Integers) -> None:
        """Book the segments of jobs that hold a row until now."""
        jobs = jobs[self._row[jobs] != WAITS]
        menus, records, rows = self.trace.menus, self.records, self._row[jobs]
        since, works = self._since[jobs], np.minimum(self._works[jobs], self.time_s)
        idle_w = menus.gpus[rows] * self._idle_w[menus.pool[rows]]
        held = self.time_s - since
        records.held_s[jobs] += held
        records.gpu_s[jobs] += held * menus.gpus[rows]
        power_w = menus.power_w[rows]
        records.energy_j[jobs] += idle_w * (works - since) + power_w * (self.time_s - works)
        begin, turn, end = (self._carbon.per_watt(t) for t in (since, works, np.full(len(jobs), self.time_s)))
        records.carbon_g[jobs] += idle_w * (turn - begin) + power_w * (end - turn)
        records.done[jobs] += menus.rate[rows] * (self.time_s - works)

    def _vacate(self, jobs: Integers) -> None:
        """Take jobs off their GPUs."""
        for job, p in zip(jobs.tolist(), self.trace.menus.pool[self._row[jobs]].tolist(), strict=True):
            block = self._grounds[p].blocks[job]
            self._grounds[p].release(job)
            self._leave(p, block.start, block.gpus)
        self._row[jobs] = WAITS
        self._finish[jobs] = np.inf

    def _leave(self, pool: int, start: int, gpus: int) -> None:
        self._nodes.leave(self._nodes.of(pool, start, gpus), self.time_s)

    def _measure(self) -> None:
        """Sum up the watts from now to the next event."""
        menus, rows = self.trace.menus, self._row[self._running]
        gpus = menus.gpus[rows]
        idle_w = gpus * self._idle_w[menus.pool[rows]]
        works = self._works[self._running] <= self.time_s
        self._jobs_w = float(np.where(works, menus.power_w[rows], idle_w).sum())
        self._base_w, spared_w = self._nodes.standing_w()
        self._free_w = self._all_idle_w - float(idle_w.sum()) - spared_w
        self._busy = int(gpus.sum())
        self.power.add(self.time_s, self._jobs_w + self._free_w + self._base_w)
