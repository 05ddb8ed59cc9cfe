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

from wattsched.replay.jobs.accounts import Carbon, Meter, Sleep
from wattsched.replay.jobs.budget import Budget, Ledger
from wattsched.replay.jobs.checks import check
from wattsched.replay.jobs.fragmentation import Fragmentation
from wattsched.replay.jobs.holdings import Holdings
from wattsched.replay.jobs.outcome import BusyLog, Outcome, PowerLog, Rounds
from wattsched.replay.jobs.policy import Policy, View
from wattsched.replay.jobs.trace import Trace

Progress = Callable[[float, int], None]
_FRUITLESS = 20
"""Periods of a budget without any job running after which it is taken to be too small for one."""
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
    budget: Budget | None = None,
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
    budget : Budget, optional
        What the cluster may spend in every period; default: as much as it likes.
    progress : callable, optional
        Called after each round with the time and the number of complete jobs.

    Raises
    ------
    ValueError
        When the policy's rows are not those of the jobs, do not fit, run jobs when the budget is exhausted,
        or leave jobs waiting for ever; when its restarts take less than no time.
    """
    run = Replay(trace, policy, name=name, round_s=round_s, carbon=carbon, sleep=sleep, budget=budget)
    while run.step():
        if progress is not None:
            progress(run.time_s, run.complete)
    return run.outcome()


class Replay:
    """State of a replay: who is in the system, what each job holds, and the watts of this moment.

    The parameters are those of `simulate`. Whoever steps through it can save it in between (`checkpoint`).
    """

    def __init__(
        self,
        trace: Trace,
        policy: Policy,
        *,
        name: str = "policy",
        round_s: float = 0.0,
        carbon: Carbon | None = None,
        sleep: Sleep | None = None,
        budget: Budget | None = None,
    ) -> None:
        if not (0 <= round_s < math.inf):
            raise ValueError(f"round_s must be at least 0, got {round_s:g}")
        if not (0 <= policy.restart_s < math.inf):  # with nan no event would ever be the next
            raise ValueError(f"policy '{name}': restart_s must be at least 0, got {policy.restart_s:g}")
        carbon = carbon or Carbon.constant(0.0)
        self.trace, self.policy, self.name, self.round_s = trace, policy, name, round_s
        self.time_s = self.begin_s = float(trace.arrival_s[0]) if len(trace) else 0.0
        self.complete = 0
        self.rounds, self.power, self.busy = Rounds(), PowerLog(), BusyLog()
        self._holdings = Holdings(trace, carbon, sleep, self.time_s)
        self._segments, self._places = self._holdings.segments, self._holdings.places
        self._meter = Meter(carbon, self.time_s)
        self._nodes = self._places.nodes
        self.fragmentation = Fragmentation(trace, self._places.grounds)
        self._all_idle_w = sum(
            trace.cluster.gpu_types[pool.gpu_type].idle_power_w * int(pool.available.sum())
            for pool in trace.pools
        )
        standing_w = self._all_idle_w + float(self._nodes.base_w.sum())
        self._ledger = None if budget is None else Ledger(budget, self.time_s, standing_w)
        self._limit_s = math.inf
        self._ran_s = self.time_s
        self._arrived = 0
        self._here: list[int] = []
        self._changed = False
        self._again_s = math.inf
        self._short = False
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
            self.fragmentation.advance(moment - self.time_s)
            if self._ledger is not None:
                self._ledger.advance(moment, self._power_w, self._short and bool(self._here))
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
            self._segments.records,
            self.rounds,
            self._meter,
            self.power,
            self.busy,
            self.fragmentation,
            self.begin_s,
            self.time_s,
            None if self._ledger is None else self._ledger.budget,
            None if self._ledger is None else self._ledger.periods,
        )

    def _next_s(self) -> float:
        finish = self._segments.finish_s[self._holdings.running]
        works = self._segments.works_s[self._holdings.running]
        times = [
            float(np.min(finish, initial=math.inf)),
            float(np.min(works[works > self.time_s], initial=math.inf)),
            self._round_s(),
            self._limit_s,
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
        return self._round_s() <= self.time_s or (self._limit_s <= self.time_s and bool(self._here))

    def _complete_jobs(self) -> None:
        done = self._holdings.complete(self.time_s)
        if not len(done):
            return
        gone = set(done.tolist())
        self._here = [job for job in self._here if job not in gone]
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
        check(view, decision, self.name)
        self._holdings.apply(view, decision)
        self._changed = False
        self._again_s = max(decision.again_s, self.time_s)
        self._short = decision.short
        self._rounds_here += 1
        if self._rounds_here > _STUCK:
            raise ValueError(f"policy '{self.name}' decides again and again at {self.time_s:g} s")
        rounds = self.rounds
        rounds.time_s.append(self.time_s)
        rounds.decision_s.append(seconds)
        rounds.gap.append(decision.gap)
        rounds.running.append(len(self._holdings.running))
        rounds.waiting.append(len(view) - len(self._holdings.running))
        rounds.busy_gpus.append(self._segments.draw(self._holdings.running, self.time_s)[2])
        self.fragmentation.measure()
        rounds.fragmentation.append(self.fragmentation.now)

    def _view(self) -> View:
        jobs, held = np.array(self._here, dtype=np.int64), self._segments
        return View(
            time_s=self.time_s,
            trace=self.trace,
            jobs=jobs,
            remaining=held.remaining(jobs, self.time_s),
            row=held.row[jobs],
            ran=np.isfinite(held.records.first_start_s[jobs]),
            restarting_s=np.maximum(held.works_s[jobs] - self.time_s, 0.0),
            served_gpu_s=held.served_gpu_s(jobs, self.time_s),
            restart_s=self.policy.restart_s,
            grounds=self._places.grounds,
            shared=self._places.hosts(jobs),
            allowance=None if self._ledger is None else self._ledger.allowance(),
        )

    def _measure(self) -> None:
        """Sum up the watts and the free GPUs from now to the next event."""
        self.fragmentation.measure()
        self._jobs_w, held_idle_w, self._busy = self._segments.draw(self._holdings.running, self.time_s)
        self._base_w, spared_w = self._nodes.standing_w()
        self._free_w = self._all_idle_w - held_idle_w - spared_w
        self.power.add(self.time_s, self._power_w)
        self.busy.add(self.time_s, self._busy)
        if self._busy or not self._here:
            self._ran_s = self.time_s
        if self._ledger is not None:
            self._limit_s = self._ledger.next_s(self._power_w)
            if self.time_s > self._ran_s + _FRUITLESS * self._ledger.budget.period_s:
                raise ValueError(f"policy '{self.name}' runs no job within the budget of a period")

    @property
    def _power_w(self) -> float:
        """Draw of the whole cluster."""
        return self._jobs_w + self._free_w + self._base_w
