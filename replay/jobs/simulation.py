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

import numpy as np

from wattsched.replay.jobs.accounts import Carbon, Meter, Sleep
from wattsched.replay.jobs.allocations import Allocations
from wattsched.replay.jobs.budget import Budget, Ledger
from wattsched.replay.jobs.outcome import Outcome, Rounds, StepLog
from wattsched.replay.jobs.policy import Decision, Policy, State, require_valid
from wattsched.replay.jobs.pools import Fragmentation
from wattsched.replay.jobs.trace import Trace

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

    Raises
    ------
    ValueError
        When the policy's rows are not those of the jobs, do not fit, run jobs when the budget is exhausted,
        or leave jobs waiting for ever; when its restarts take less than no time.
    """
    run = Replay(trace, policy, name=name, round_s=round_s, carbon=carbon, sleep=sleep, budget=budget)
    while run.step():
        pass
    return run.outcome()


class Replay:
    """A replay under way: which jobs are in the system, what they hold, and when what happens next.

    The parameters are those of `simulate`. Whoever steps through it can save it in between (`checkpoint`).

    Attributes
    ----------
    time_s : float
        Time of the last event.
    complete : int
        Number of complete jobs.
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
        self.time_s = self._begin_s = self._ran_s = float(trace.arrival_s[0]) if len(trace) else 0.0
        self.complete = 0
        self._rounds = Rounds()
        self._allocations = Allocations(trace, carbon, sleep, self.time_s)
        self._draw = _Draw(self._allocations, trace, carbon, budget, self.time_s)
        self._arrived = 0
        self._here: list[int] = []
        self._changed = self._short = False
        self._again_s = math.inf
        self._rounds_here = 0

    def step(self) -> bool:
        """Go to the next event; False when there is none."""
        moment = self._next_s()
        if moment == math.inf:
            if self._here:
                waiting = self.trace.names[self._here[0]]
                raise ValueError(f"policy '{self.name}' leaves job '{waiting}' waiting for ever")
            return False
        if moment > self.time_s:
            self._draw.advance(moment, self._short and bool(self._here))
            self._rounds_here, self.time_s = 0, moment
        self._complete_jobs()
        self._receive_jobs()
        if self._round_due():
            self._decide()
        self._allocations.placement.nodes.doze(self.time_s)
        self._draw.measure(self.time_s)
        self._require_progress()
        return True

    def outcome(self) -> Outcome:
        """Take what is recorded."""
        draw = self._draw
        return Outcome(
            self.trace,
            self.name,
            self._allocations.segments.records,
            self._rounds,
            draw.meter,
            draw.power,
            draw.busy,
            draw.fragmentation,
            self._begin_s,
            self.time_s,
            None if draw.ledger is None else draw.ledger.budget,
            None if draw.ledger is None else draw.ledger.periods,
        )

    def _next_s(self) -> float:
        """Time of the next event, infinite when there is none."""
        segments, running = self._allocations.segments, self._allocations.running
        works = segments.works_s[running]
        times = [
            float(np.min(segments.finish_s[running], initial=math.inf)),
            float(np.min(works[works > self.time_s], initial=math.inf)),
            self._round_s(),
            self._draw.limit_s,
        ]
        if self._arrived < len(self.trace):
            times.append(float(self.trace.arrival_s[self._arrived]))
        elif not self._here:
            return math.inf
        times.append(max(self.time_s, self._allocations.placement.nodes.next_s()))
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
        return self._round_s() <= self.time_s or (self._draw.limit_s <= self.time_s and bool(self._here))

    def _complete_jobs(self) -> None:
        done = self._allocations.complete(self.time_s)
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
        state = self._state()
        begin = time.perf_counter()
        decision = self.policy.decide(state)
        seconds = time.perf_counter() - begin
        require_valid(state, decision, self.name)
        self._allocations.apply(state, decision)
        self._changed, self._short = False, decision.short
        self._again_s = max(decision.again_s, self.time_s)
        self._rounds_here += 1
        if self._rounds_here > _STUCK:
            raise ValueError(f"policy '{self.name}' decides again and again at {self.time_s:g} s")
        self._record(decision, seconds)

    def _state(self) -> State:
        """What the policy sees now."""
        jobs, held = np.array(self._here, dtype=np.int64), self._allocations.segments
        placement, ledger = self._allocations.placement, self._draw.ledger
        return State(
            time_s=self.time_s,
            trace=self.trace,
            jobs=jobs,
            remaining=held.remaining(jobs, self.time_s),
            row=held.row[jobs],
            ran=np.isfinite(held.records.first_start_s[jobs]),
            restarting_s=np.maximum(held.works_s[jobs] - self.time_s, 0.0),
            served_gpu_s=held.served_gpu_s(jobs, self.time_s),
            restart_s=self.policy.restart_s,
            pools=placement.pools,
            shared=placement.hosts(jobs),
            allowance=None if ledger is None else ledger.allowance(),
        )

    def _record(self, decision: Decision, seconds: float) -> None:
        rounds, running = self._rounds, self._allocations.running
        rounds.time_s.append(self.time_s)
        rounds.decision_s.append(seconds)
        rounds.gap.append(decision.gap)
        rounds.running.append(len(running))
        rounds.waiting.append(len(self._here) - len(running))
        rounds.busy_gpus.append(self._allocations.segments.draw(running, self.time_s)[2])
        self._draw.fragmentation.measure()
        rounds.fragmentation.append(self._draw.fragmentation.now)

    def _require_progress(self) -> None:
        """Refuse a budget under which jobs wait and none ever runs."""
        if len(self._allocations.running) or not self._here:
            self._ran_s = self.time_s
        ledger = self._draw.ledger
        if ledger is not None and self.time_s > self._ran_s + _FRUITLESS * ledger.budget.period_s:
            raise ValueError(f"policy '{self.name}' runs no job within the budget of a period")


class _Draw:
    """What the cluster draws between events, and what that comes to.

    Attributes
    ----------
    meter : Meter
    power, busy : StepLog
        Watts of the cluster, and GPUs that jobs hold.
    fragmentation : Fragmentation
    ledger : Ledger, optional
    limit_s : float
        When the budget ends this draw; infinite without one.
    """

    def __init__(
        self, allocations: Allocations, trace: Trace, carbon: Carbon, budget: Budget | None, begin_s: float
    ) -> None:
        self._allocations = allocations
        self.meter = Meter(carbon, begin_s)
        self.power, self.busy = StepLog(), StepLog()
        self.fragmentation = Fragmentation(trace, allocations.placement.pools)
        kinds = [trace.cluster.gpu_types[pool.gpu_type] for pool in trace.pools]
        available = trace.available.tolist()
        self._all_idle_w = sum(kind.idle_power_w * n for kind, n in zip(kinds, available, strict=True))
        standing_w = self._all_idle_w + float(allocations.placement.nodes.base_w.sum())
        self.ledger = None if budget is None else Ledger(budget, begin_s, standing_w)
        self.limit_s = math.inf
        self.measure(begin_s)

    def measure(self, time_s: float) -> None:
        """Sum up the watts and the free GPUs from now to the next event."""
        segments, running = self._allocations.segments, self._allocations.running
        self.fragmentation.measure()
        self._jobs_w, held_idle_w, self._busy = segments.draw(running, time_s)
        self._base_w, spared_w = self._allocations.placement.nodes.standing_w()
        self._free_w = self._all_idle_w - held_idle_w - spared_w
        self.power.add(time_s, self._power_w)
        self.busy.add(time_s, self._busy)
        if self.ledger is not None:
            self.limit_s = self.ledger.next_s(self._power_w)

    def advance(self, until_s: float, short: bool) -> None:
        """Count what stays the same until then; `short` says whether the budget keeps jobs from more."""
        self.fragmentation.advance(until_s - self.meter.time_s)
        self.meter.advance(until_s, self._jobs_w, self._free_w, self._base_w, self._busy)
        if self.ledger is not None:
            self.ledger.advance(until_s, self._power_w, short)

    @property
    def _power_w(self) -> float:
        """Draw of the whole cluster."""
        return float(self._jobs_w + self._free_w + self._base_w)
