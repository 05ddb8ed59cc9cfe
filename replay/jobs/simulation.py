"""Event-driven, round-based replay of a trace under a policy.

Events are arrivals, completions, the ends of restarts, nodes that fall asleep, and rounds. A round takes
place after an arrival or a completion, at the next multiple of the round length (at once when that is 0), at
once when a power cap falls below the draw, and when the policy asked for it. Between events every watt is
constant, so energy is exact.

A job that gets another GPU count, pool or batch size, is moved, or starts again after a pause, holds its GPUs
for the policy's `restart_s` without working; they draw their idle watts then. Other changes are immediate.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from wattsched.formulations.sizing.configurations import WAIT
from wattsched.reading.inputs import naming
from wattsched.replay.jobs.accounts import Carbon, Flows, Meter, PerKwh, Sleep, StepLog, require_finite
from wattsched.replay.jobs.allocations import Allocations, within_caps
from wattsched.replay.jobs.budget import Budget, Ledger
from wattsched.replay.jobs.caps import CapError, Caps
from wattsched.replay.jobs.knowledge import Knows, knowledge_of
from wattsched.replay.jobs.outcome import Outcome, Rounds
from wattsched.replay.jobs.policy import Decision, Policy, State, require_valid
from wattsched.replay.jobs.pools import fragments
from wattsched.replay.jobs.trace import Trace
from wattsched.report.wording import spoken
from wattsched.topology.arrays import FloatArray, IntArray

_FRUITLESS = 20
"""Periods of a budget, or decisions under a cap, without any job running after which it is taken to be too
small for one."""
_STUCK = 1000
"""Rounds in a row at one moment after which a policy is taken to go round in circles."""


def simulate(trace: Trace, policy: Policy, **settings: Any) -> Outcome:
    """Replay a trace under a policy until all its jobs are complete; settings are those of `Replay`."""
    run = Replay(trace, policy, **settings)
    while run.step():
        pass
    return run.outcome()


@dataclass(eq=False)
class Replay:
    """A replay under way, which can be saved between its steps (`checkpoint`).

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
    tariff : PerKwh, optional
        Price of energy, to count the money.
    caps : Caps, optional
        What the cluster and its power domains may draw at any moment; default: as much as they like.
    knows : {"exact", "limit", "history", "nothing"}
        What the policy knows of the work that jobs have left (`replay.jobs.knowledge`).

    Attributes
    ----------
    time_s : float
        Time of the last event.
    complete : int
        Number of complete jobs.

    Raises
    ------
    ValueError
        When the policy's rows are not those of the jobs, do not fit, run jobs when the budget is exhausted,
        or leave jobs waiting for ever; when its restarts take less than no time.
    """

    trace: Trace
    policy: Policy
    name: str = "policy"
    round_s: float = 0.0
    carbon: Carbon | None = None
    sleep: Sleep | None = None
    budget: Budget | None = None
    tariff: PerKwh | None = None
    caps: Caps | None = None
    knows: Knows = "exact"

    def __post_init__(self) -> None:
        trace, carbon = self.trace, self.carbon or Carbon.constant(0.0)
        if not (0 <= self.round_s < math.inf):
            raise ValueError(f"round_s must be at least 0, got {self.round_s:g}")
        # With nan no event would ever be the next.
        require_finite(f"policy '{self.name}'", {"restart_s": self.policy.restart_s})
        first_s, last_s = trace.arrival_s[[0, -1]].tolist() if len(trace) else (0.0, 0.0)
        self.time_s = self._begin_s = self._ran_s = first_s
        self.complete = self._arrived = self._rounds_here = self._fruitless = 0
        self._rounds = Rounds()
        self._held = Allocations(trace, carbon, self.sleep, self.time_s)
        self._nodes = self._held.placement.nodes
        self._caps = self.caps or Caps()
        self._knowledge = knowledge_of(self.knows, trace)
        self._meter = Meter(carbon, self.time_s, self.tariff, capped=[StepLog() for _ in self._caps.names])
        budget, idle_w = self.budget, self._nodes.idle_cluster_w
        self._ledger = None if budget is None else Ledger(budget, first_s, idle_w, last_s)
        self._here: list[int] = []
        self._changed = self._short = False
        self._again_s = math.inf
        self._cap_s = self._caps.next_s(self.time_s)
        self._measure()

    def step(self) -> bool:
        """Go to the next event; False when there is none."""
        moment = self._next_s()
        if moment == math.inf:
            if self._here:
                waiting = self.trace.names[self._here[0]]
                told = f"policy '{self.name}' leaves job '{waiting}' waiting for ever"
                raise CapError(f"{self._caps.told_as[0]}: {told}") if self._caps.names else ValueError(told)
            return False
        if moment > self.time_s:
            self._advance(moment)
        self._complete_jobs()
        while self._arrived < len(self.trace) and self.trace.arrival_s[self._arrived] <= self.time_s:
            self._here.append(self._arrived)
            self._arrived += 1
            self._changed = True
        changes = self._cap_s <= self.time_s
        if changes:
            self._cap_s = self._caps.next_s(self.time_s)
            self._changed |= bool(self._here)
        must_stop = changes and bool(self._here) and self._is_above_caps()
        decides = self._round_s() <= self.time_s or must_stop or (self._limit_s <= self.time_s and self._here)
        if decides and self._decide():
            self._decide()  # Who was stopped leaves watts to others, of which the decision did not know.
        self._nodes.doze(self.time_s)
        self._measure()
        self._require_progress()
        return True

    def outcome(self) -> Outcome:
        """Outcome recorded so far."""
        return Outcome(
            trace=self.trace,
            policy=self.name,
            jobs=self._held.segments.records,
            rounds=self._rounds,
            meter=self._meter,
            begin_s=self._begin_s,
            end_s=self.time_s,
            ledger=self._ledger,
            segments=self._held.segments.log,
            caps=self._caps,
            knows=self.knows,
        )

    def _next_s(self) -> float:
        """Time of the next event, infinite when there is none."""
        segments, running = self._held.segments, self._held.running
        if self._arrived == len(self.trace) and not self._here:
            return math.inf
        works = segments.works_s[running]
        arrival_s: list[float] = self.trace.arrival_s[self._arrived : self._arrived + 1].tolist()
        return min(
            float(np.min(segments.finish_s[running], initial=math.inf)),
            float(np.min(works[works > self.time_s], initial=math.inf)),
            self._round_s(),
            self._limit_s,
            self._cap_s,
            *arrival_s,
            max(self.time_s, self._nodes.next_s()),
        )

    def _round_s(self) -> float:
        """Time of the next round as far as it is known."""
        if not self._here:
            return math.inf
        wanted = self.time_s if self._changed else self._again_s
        if self.round_s == 0 or wanted == math.inf:
            return wanted
        return math.ceil(wanted / self.round_s - 1e-9) * self.round_s

    def _advance(self, until_s: float) -> None:
        self._meter.advance(until_s)
        if self._ledger is not None:
            self._ledger.advance(until_s, self._meter.now.power_w, self._short and bool(self._here))
        self._rounds_here, self.time_s = 0, until_s

    def _measure(self) -> None:
        """Sum up the watts and the free GPUs from now to the next event, and when a budget ends that."""
        jobs_w, held_idle_w, busy = self._held.segments.draw(self._held.running, self.time_s)
        base_w, awake_idle_w = self._nodes.draw()
        free = fragments(self.trace, self._held.placement.pools)
        self._meter.measure(Flows(jobs_w, awake_idle_w - held_idle_w, base_w, busy, *free))
        if self._caps.names:
            extra_w = self._held.segments.extra_w_of_pools(self._held.running, self.time_s)
            watts = self._caps.beside_w + (extra_w + self._nodes.draw_of_pools()) @ self._caps.inside
            for log, watt in zip(self._meter.capped, watts.tolist(), strict=True):
                log.add(self.time_s, watt)
        self._limit_s = math.inf if self._ledger is None else self._ledger.next_s(self._meter.now.power_w)

    def _complete_jobs(self) -> None:
        if len(done := self._held.complete(self.time_s)):
            gone = set(done.tolist())
            self._here = [job for job in self._here if job not in gone]
            self.complete += len(done)
            self._changed = True

    def _is_above_caps(self) -> bool:
        extra_w = self._held.segments.extra_w_of_pools(self._held.running, math.inf)
        return bool(np.any(extra_w @ self._caps.inside > self._caps.room_w(self.time_s)))

    def _decide(self) -> bool:
        """Ask the policy, and apply its decision as far as the caps allow; True if they stop a job."""
        state = self._state()
        begin = time.perf_counter()
        decision = self.policy.decide(state)
        seconds = time.perf_counter() - begin
        require_valid(state, decision, self.name)
        asked, decision = decision, within_caps(state, decision, self._held.segments.sharing)
        with naming(f"policy '{self.name}' at {self.time_s:g} s"):
            self._held.apply(state, decision)
        self._require_room()
        self._changed, self._short = False, decision.short
        self._again_s = max(decision.again_s, self.time_s)
        if self._knowledge is not None:
            self._again_s = min(self._again_s, self.time_s + self._knowledge.review_s)
        self._rounds_here += 1
        if self._rounds_here > _STUCK:
            raise ValueError(f"policy '{self.name}' decides again and again at {self.time_s:g} s")
        self._record(decision, seconds)
        return bool(np.any((state.row != WAIT) & (asked.row != WAIT) & (decision.row == WAIT)))

    def _state(self) -> State:
        jobs, held = np.array(self._here, dtype=np.int64), self._held.segments
        return State(
            time_s=self.time_s,
            trace=self.trace,
            jobs=jobs,
            remaining=self._remaining(jobs),
            row=held.row[jobs],
            ran=np.isfinite(held.records.first_start_s[jobs]),
            restarting_s=np.maximum(held.works_s[jobs] - self.time_s, 0.0),
            served_gpu_s=held.served_gpu_s(jobs, self.time_s),
            restart_s=self.policy.restart_s,
            pools=self._held.placement.pools,
            shared=self._held.placement.hosts(jobs),
            allowance=None if self._ledger is None else self._ledger.allowance(),
            caps=self._caps,
        )

    def _remaining(self, jobs: IntArray) -> FloatArray:
        """Work left of jobs, as far as the policy knows it."""
        left = self._held.segments.remaining(jobs, self.time_s)
        if self._knowledge is None:
            return left
        rate = self.trace.requested_rate[jobs]
        age_s = np.maximum(self.trace.work[jobs] - left, 0.0) / rate
        return self._knowledge.left_s(jobs, age_s, self.time_s) * rate

    def _record(self, decision: Decision, seconds: float) -> None:
        rounds, running = self._rounds, self._held.running
        free, lost = fragments(self.trace, self._held.placement.pools)
        rounds.time_s.append(self.time_s)
        rounds.decision_s.append(seconds)
        rounds.gap.append(decision.gap)
        rounds.running.append(len(running))
        rounds.waiting.append(len(self._here) - len(running))
        rounds.busy_gpus.append(self._held.segments.draw(running, self.time_s)[2])
        rounds.fragmentation.append(lost / free if free else 0.0)

    def _require_room(self) -> None:
        """Refuse caps under which jobs wait and the policy runs none, decision after decision."""
        stays = bool(self._caps.names) and self._cap_s == math.inf
        waits = stays and self._ledger is None and not len(self._held.running)
        self._fruitless = self._fruitless + 1 if waits and not self._changed else 0
        if self._fruitless > _FRUITLESS:
            cap, job = self._caps.names[0], self.trace.names[self._here[0]]
            raise CapError(f"{cap}: policy '{self.name}' runs neither job '{job}' nor any other within it")

    def _require_progress(self) -> None:
        """Refuse a budget under which jobs wait and none ever runs."""
        if len(self._held.running) or not self._here:
            self._ran_s = self.time_s
        budget, ledger = self.budget, self._ledger
        if budget and ledger and self.time_s > self._ran_s + _FRUITLESS * budget.period_s:
            given, left = (spoken(budget.quantity, amount) for amount in (budget.amount, ledger.whole))
            told = f"of {given} the idle cluster leaves {left}"
            raise ValueError(f"policy '{self.name}' runs no job within the budget of a period: {told}")
