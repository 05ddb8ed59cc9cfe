"""Round after round, whoever schedules: look, keep the cap, decide, stop, look again, start, and report.

What a cut of the cap asks for is done before anything is decided, and whatever becomes of the decision.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from threading import Event
from typing import Any, ClassVar, Generic, TypeVar

from wattsched.adapters.budget import Budget, Cap
from wattsched.adapters.correction import SILENT_S, Correction
from wattsched.adapters.overdraw import (
    caps_w,
    decision_w,
    kept_w,
    left_w,
    limits_w,
    over_w,
    starts_too_much,
    stops_to_fit,
)
from wattsched.adapters.plan import left_for
from wattsched.adapters.quarantine import Clock
from wattsched.adapters.reasons import ReasonsWritten, Waiting, additions
from wattsched.adapters.rounds import Plan, Policy, Reason, Report, UnansweredError, tell
from wattsched.formulations.timer import Timer
from wattsched.instances.errors import InputError
from wattsched.serve.database import JournalError
from wattsched.serve.journal import Journal
from wattsched.serve.recorded import RecordedSession
from wattsched.sessions.session_decision import SessionDecision

_WATCH_S = 0.5
"""Seconds between two looks at the cap while a decision is made."""
_ATTEMPTS = 3
"""Decisions at most, after the first one, until the margins of what they start fit below the caps."""
_SHORT = Reason("an announced cut would stop it soon after its start: waits for the cut", "cut")
_UNKNOWN = {
    "gpu_types": {"none": {"idle_power_w": 0.0}},
    "nodes": [{"name": "none", "gpu_type": "none", "gpus": 1}],
}
"""Cluster of a new session, until a round tells it the real one."""

ReportT = TypeVar("ReportT", bound=Report)


class RoundLoop(ABC, Generic[ReportT]):
    """Rounds until `stop` is set, on the cluster of which the parameter `look` takes a snapshot.

    Attributes
    ----------
    session : RecordedSession
        This scheduler's session in the journal, created if there is none.
    actions : optional
        Object that changes the cluster, made for the session; None if rounds only report (shadow mode).
    stop : threading.Event
        Ends the rounds after the action in progress.
    """

    scheduler: ClassVar[str]
    """Name of our session in the journal."""
    report: ClassVar[Callable[[], Any]]
    """Makes an empty report."""
    job: ClassVar[str] = ""
    """Prefix of names of jobs."""
    key: ClassVar[type[int] | type[str]] = str
    """Type of our names of jobs, which a session has as texts."""

    policy: Any
    actions: Any

    def __init__(
        self,
        policy: Policy,
        budget: Budget,
        journal: Journal,
        look: Callable[..., Any],
        actions: Callable[[RecordedSession], Any] | None = None,
    ) -> None:
        self.policy, self.budget, self.journal, self.stop = policy, budget, journal, Event()
        self._snapshot = look
        known = self.scheduler in journal.sessions()
        self.session: RecordedSession = (
            journal.open(self.scheduler) if known else journal.create(self.scheduler, {"cluster": _UNKNOWN})
        )
        self.session.goes_on = True  # the cap is kept also where nothing can be written
        self.actions = actions(self.session) if actions is not None and policy.apply else None
        self.correction: Correction | None = None
        self.reasons = ReasonsWritten(policy.reasons, policy.explain_s)
        self._decision: SessionDecision | None = None  # of this round
        # Caps of the last round; infinite by the names of those that readings exceed in spite of all.
        self._kept_w, self.failing = dict[str, float](), dict[str, float]()
        # What the last decision was told of jobs, also by the process before us.
        self._records: dict[str, Mapping[str, Any]] = {
            job.name: job.model_dump(exclude_unset=True, exclude=None if job.current else {"restart_s"})
            for job in self.session.session.to_instance().jobs
        }

    def __iter__(self) -> Iterator[ReportT | UnansweredError | InputError]:
        """Do rounds until `stop`, and yield their reports; yield an error, and go on, where one fails."""
        while not self.stop.is_set():
            begun = time.monotonic()
            try:
                yield self.round()
            except (UnansweredError, InputError) as error:
                yield error
            self.stop.wait(max(0.0, self.policy.every_s - (time.monotonic() - begun)))

    def round(self) -> ReportT:
        """Do one round; an `UnansweredError` or `InputError` if the cluster or a file cannot be used."""
        begun_s, self._decision = time.monotonic(), None
        try:
            load = self.look()
        finally:
            cap = self.budget.cap()  # a cut is known also where the cluster does not answer
        report: ReportT = type(self).report()
        report.time_s, report.notes = load.site.time_s, list(load.site.notes)
        looked = load
        load = self._enforce_cap(load, cap, report)
        load = self.prepared(load, cap, report)
        plan = self._make_plan(load, cap, report)
        if self.actions is None:
            plan = self._postpone_excess(plan, load, cap, report)
            # Nothing was done for the cap: that is part of the plan.
            load, then = looked, load.after(plan.stops, plan.begins)
            plan = replace(plan, stops={**report.stopped, **plan.stops})
        if self.actions is not None and (cut := self.cut_since(cap, load)):
            load, cap = self._enforce_cap(self.look(), cut, report), cut
            plan = Plan([], {}, plan.reasons)
            report.notes.append("the cap was cut while this round was decided: nothing starts in it")
        report.waiting = dict(sorted(plan.reasons.items()))
        if self.actions is not None:
            self.actions.number = report.number or self.actions.number
            self.lower(plan.lowered, load, report)
            self._stop(plan.stops, load, report)
            if (plan.begins or report.stopped) and not self.stop.is_set():
                # Jobs of others may have come while we decided.
                load = self.look_after(report)
            self._start([*plan.raised, *plan.starts], load, report)
            self.end_round(load, report)
            then = load.without_leaving
        self._report_power(load, then, plan, cap, report)
        report.took_s = time.monotonic() - begun_s
        self._write_reasons(load, report, begun_s + self.policy.every_s)
        return report

    def _enforce_cap(self, load: Any, cap: Cap, report: ReportT) -> Any:
        """Lower settings and stop jobs until the draw is within the caps; in shadow mode, simulate that."""
        if self.actions is None:
            load = self.lowered(load, cap.now_w, report)
            report.stopped = self._stops_to_fit(load, cap.now_w, report)
            return load.after(report.stopped) if report.stopped else load
        if cut_off := self.session.settle():
            report.notes.append(f"{cut_off} actions were cut off; what became of them is seen")
        if self.actions.give_way(load, cap.now_w):
            load = self.look()
        load = self.lowered(load, cap.now_w, report)
        if stops := self._stops_to_fit(load, cap.now_w, report):
            self._stop(stops, load, report)
            load = self.look()
        return load

    def _stops_to_fit(self, load: Any, cap_w: Mapping[str, float], report: ReportT) -> dict[Any, str]:
        """Return the jobs to stop so that the draw is within the caps without a decision, each with why."""
        over = self.excess_w(load, cap_w, report)
        kept = dict[Any, str]()  # jobs whose stop would be refused
        while True:
            jobs = [one for one in load.stoppable if one.name not in kept] if over else []
            stops = stops_to_fit(over, jobs, self._records)
            if not (refused := self.refused(stops, load)):
                report.note_not_stopped(kept, self.job)
                return stops
            kept |= refused

    def corrected(self, load: Any) -> Any:
        """Return the load with the watts of our jobs as readings correct them."""
        if self.correction is None:
            return load
        model = load.corrected(lambda _: 1.0)
        self.correction.update(model)
        return replace(model.corrected(self.correction.factor), correction=self.correction)

    def excess_w(self, load: Any, cap_w: Mapping[str, float], report: ReportT) -> dict[str, float]:
        """Return the watts above each cap by the model and its margin, or by readings, with an alarm."""
        then, limits, self.failing = load.without_leaving, limits_w(load, cap_w), {}
        drawn_w = then.drawn_w
        over = over_w(drawn_w, limits)
        if load.correction is None or load.correction.source is None:
            return over
        margin_w, measured_w = load.margin_w(), then.measured_w
        for name, above_w in over_w(measured_w, {n: limits[n] + margin_w[n] for n in limits}).items():
            if measured_w[name] <= drawn_w[name]:  # the model says so already
                continue
            over[name] = max(over.get(name, 0.0), above_w)
            if measured_w[name] > self._kept_w.get(name, math.inf):  # not only of a cap that was cut just now
                self.failing[name] = math.inf
                where = f" behind '{name}'" if name else ""
                text = f"{measured_w[name]:,.0f} W are measured{where}, {above_w:,.0f} W more than the cap"
                text += ": settings go to their lowest, and jobs of ours stop until this is over"
                report.alarms += [text] if text not in report.alarms else []
        return over

    def _make_plan(self, load: Any, cap: Cap, report: ReportT) -> Plan:
        """Return the plan of a decision; without one, a plan that only stops jobs to keep the caps."""
        report.alarms += cap.alarms
        report.notes += cap.notes
        plan, why = None, "the cap is not known" if cap.unknown else "there is no decision"
        reasons = dict[Any, str]()
        if not cap.unknown:
            try:
                round = self.round_of(load, Clock(self.policy.deadline_s))
                reasons = round.left_out
                self._records = {job["name"]: job for job in round.jobs}
                self._leave_out_short(round, cap)
                self.tell(round, cap.soon_w)
                plan = self.decided(round, cap.soon_w, report)
                plan = plan and self._with_room_for_margins(plan, round, cap, report)
                plan = plan and self._stop_others(plan, round, cap.soon_w)
            except JournalError as error:
                why = f"{error}: nothing starts, and the cap is kept"
                report.alarms.append(why)
            except (UnansweredError, InputError):
                raise
            except Exception as error:
                # No failure may end the loop: later rounds have to keep the cap, too.
                why = f"there is no decision ({type(error).__name__}: {error}): nothing starts"
                report.alarms.append(why)
        if plan is not None:
            return plan
        stops = self._stops_to_fit(load, cap.soon_w, report)
        return Plan([], stops, dict.fromkeys(load.waiting, Reason(why, "undecided")) | reasons)

    def _postpone_excess(self, plan: Plan, load: Any, cap: Cap, report: ReportT) -> Plan:
        """Return a plan without the starts that would exceed a cap."""
        planned = load.after(plan.stops, plan.begins)
        if not cap.cut_later and not over_w(planned.drawn_w, left_w(planned, cap.soon_w)):
            return plan
        then = load.after(plan.stops)
        for start in plan.begins:
            later = then.after((), [start])
            if why := starts_too_much(then, later, cap.soon_w) or self._ends_soon(start, then, cap):
                report.postponed[start.name] = why
            else:
                then = later
        starts, raised = (
            [one for one in some if one.name not in report.postponed] for some in (plan.starts, plan.raised)
        )
        return replace(plan, starts=starts, raised=raised)

    def _with_room_for_margins(self, plan: Plan, round: Any, cap: Cap, report: ReportT) -> Plan:
        """Decide again, at most some times, until the margins that the starts of a plan bring fit."""
        for _ in range(0 if round.load.correction is None else _ATTEMPTS):
            before, then = (round.load.after(plan.stops, begins) for begins in ((), plan.begins))
            if not starts_too_much(before, then, cap.soon_w):
                break
            round = replace(round, then=then)
            self.tell(round, cap.soon_w)
            plan = self.decided(round, cap.soon_w, report) or plan
        return plan

    def _stop_others(self, plan: Plan, round: Any, cap_w: Mapping[str, float]) -> Plan:
        """Add stops of jobs outside the decision, as on drained nodes, where the draw exceeds a cap."""
        load = round.load
        others = [one for one in load.stoppable if one.name not in plan.stops]
        over = over_w(load.after(plan.stops, plan.begins).drawn_w, limits_w(load, cap_w)) if others else {}
        stops = stops_to_fit(over, others, self._records)
        refused = self.refused(stops, load)
        stops = {name: why for name, why in stops.items() if name not in refused}
        return replace(plan, stops={**plan.stops, **stops})

    def _leave_out_short(self, round: Any, cap: Cap) -> None:
        """Leave out jobs whose cheapest option alone is more than announced cuts leave beside what runs."""
        if not cap.cut_later:
            return
        kinds = {row[key]: row["gpu_type"] for row in round.cluster["nodes"] for key in ("pool", "gpu_type")}
        idle_w = {name: self.policy.options.gpu_type(kind).idle_power_w for name, kind in kinds.items()}
        lowest = self.lowest(round.load)
        drawn_w, left = lowest.drawn_w[""], left_w(lowest, cap.later_w)[""]
        for job in [job for job in round.jobs if "current" not in job]:
            table = job["options"]
            rows = zip(table["gpus"], table["pool"], table["power_w"], strict=True)
            added_w = min(power_w - gpus * idle_w[pool] for gpus, pool, power_w in rows)
            if added_w > 0 and drawn_w + added_w > left:
                round.jobs.remove(job)
                round.left_out[self.key(job["name"])] = _SHORT

    def _ends_soon(self, start: Any, load: Any, cap: Cap) -> str:
        """Return why a start waits for an announced cut, before which it would have to stop; '' for none.

        What runs or starts counts with the lowest settings that it can have then.
        """
        if not cap.cut_later:
            return ""
        before, after = self.lowest(load), self.lowest(load.after((), [start]))
        return _SHORT if starts_too_much(before, after, cap.later_w) else ""

    def tell(self, round: Any, cap_w: Mapping[str, float]) -> None:
        """Update the session to the current cluster, jobs and caps."""
        policy, options = self.policy, self.policy.options
        running = [job for job in round.jobs if "current" in job and job.get("preemptible", True)]
        least = self.lowest(round.load.after([self.key(job["name"]) for job in running]), now=True)
        caps = decision_w(round.load, least, cap_w, round.then)
        rows = [{**row, "power_cap_w": caps[row["name"]]} for row in round.cluster["power_domains"]]
        odd = tell(
            self.session,
            {**round.cluster, "power_domains": rows},
            round.jobs,
            cap_w=caps[""],
            objective=policy.objective,
            round_s=policy.every_s,
            change_cost=policy.change_cost,
            tenants=left_for(options.tenants, round.kept, policy.every_s, options.carbon_g_per_kwh),
            carbon_g_per_kwh=options.carbon_g_per_kwh,
        )
        round.left_out.update({self.key(name): why for name, why in odd.items()})

    def solve(self, round: Any, report: ReportT) -> Any:
        """Solve the session; None if it finds no decision. A cut of the cap, and `stop`, interrupt it."""
        with self._cancel_on_cut(round.load):
            made = self.session.solve(deadline_s=round.clock.left_s)
        report.take(made)
        self._decision = made.decision if made.decision.solved else None
        return self._decision

    @contextmanager
    def _cancel_on_cut(self, load: Any) -> Iterator[None]:
        """Cancel the solve in progress when the cap is cut, or `stop` is set."""
        before, done = self.budget.cap(), Event()

        def watch() -> None:
            while not done.wait(_WATCH_S):
                if self.stop.is_set() or self.cut_since(before, load):
                    self.session.cancel()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            done.set()
            watcher.join()

    def cut_since(self, before: Cap, load: Any) -> Cap | None:
        """Return the cap now if it was cut: below what was announced, or below what is drawn; else None."""
        if not (cap := self.budget.cap()).cuts(before):
            return None
        sudden = any(watts < before.soon_w.get(name, math.inf) for name, watts in cap.now_w.items())
        above = over_w(load.without_leaving.drawn_w, limits_w(load, cap.now_w))
        return cap if sudden or above else None

    def _stop(self, stops: Mapping[Any, str], load: Any, report: ReportT) -> None:
        """Stop jobs one by one, each for the reason that `stops` has; report what was done and refused."""
        for name, why in stops.items():
            if self.stop.is_set():
                break
            if refused := self.stop_job(name, why, load):
                report.note_not_stopped({name: refused}, self.job)
            else:
                report.stopped[name] = why

    def _start(self, starts: Collection[Any], load: Any, report: ReportT) -> None:
        """Start jobs or change settings one by one, each only if everything still fits below the caps."""
        for start in starts:
            cap = self.budget.cap()  # it may have been cut since the decision
            why = "is being ended" if self.stop.is_set() else cap.unknown and "the cap is not known"
            why = why or self.session.fault or self._ends_soon(start, load, cap)
            try:
                why = why or self.start_job(start, load, cap.soon_w, report)
            except JournalError as error:
                why = str(error)
            if why:
                report.postponed[start.name] = why

    def _write_reasons(self, load: Any, report: ReportT, until_s: float) -> None:
        """Say why jobs wait where they are looked up, as many as the policy allows, before a time."""
        waiting = {**report.waiting, **report.postponed}
        jobs = [Waiting(*one, waiting[one[1]]) for one in self.listeners(load, waiting)]

        def more(names: set[str], timer: Timer) -> Mapping[str, tuple[str, ...]]:
            known, left_s = self._decision, self.limits_s(load)
            return {} if known is None else additions(known, names, left_s, load.site.time_s, timer)

        def send(target: Any, text: str) -> bool:
            return self.actions is None or bool(self.actions.write_reason(target, text))

        if failed := self.reasons.write(jobs, more, send, until_s, self.stop):
            report.notes.append(f"when waiting jobs start is not known: {failed}")
        for job in jobs:
            if job.name in report.waiting:
                report.waiting[job.name] = self.reasons.text_of(job)

    def _report_power(self, load: Any, then: Any, plan: Plan, cap: Cap, report: ReportT) -> None:
        """Report the draw, and raise an alarm where it exceeds a cap though no more may be stopped."""
        report.power_w, report.running = load.power_w, load.running
        report.queued = len(load.waiting)
        if self.actions is None:
            report.stopped = dict(plan.stops)
            report.started = {start.name: str(start) for start in plan.starts}
            report.changed |= {change.name: str(change) for change in (*plan.lowered, *plan.raised)}
            report.planned_w = then.power_w
        if self.session.fault:
            text = f"{self.session.fault}: nothing starts, and the cap is kept"
            report.alarms += [text] if text not in report.alarms else []
        margin_w, source = then.margin_w(), self.correction and self.correction.source
        watts = {"power_w": load.drawn_w, "cap_w": caps_w(load, cap.soon_w), "margin_w": margin_w}
        measured_w = load.measured_w if source else {}
        watts |= {"measured_w": measured_w, "next_cap_s": cap.next_s, "next_cap_w": cap.next_w}
        for name in margin_w:
            row = {field: of[name] for field, of in watts.items() if name in of}
            report.domains[name] = {field: number for field, number in row.items() if number < math.inf}
        report.cap_w, report.cap_unknown = report.domains[""].get("cap_w"), bool(cap.unknown)
        report.margin_w, report.measured_w = margin_w[""], report.domains[""].get("measured_w")
        if self.correction is not None:
            report.unread_s = self.correction.silent_s if source else None
            report.notes += [f"readings: {fault}" for fault in self.correction.faults]
            if self.correction.silent_s > SILENT_S:
                report.alarms.append(f"no reading has come for {SILENT_S:.0f} s: margins widen")
        later_w = self.budget.cap().now_w  # it may have risen while jobs started
        allowed_w = {name: max(watts, later_w.get(name, math.inf)) for name, watts in cap.now_w.items()}
        caps, self._kept_w = kept_w(load, allowed_w, margin_w), caps_w(load, cap.now_w)
        for name, above_w in over_w(then.drawn_w, caps).items():
            where = f" behind '{name}'" if name else ""
            text = f"{caps[name] + above_w:,.0f} W are drawn{where} by what may not be stopped"
            text += f" (other jobs, idle GPUs, nodes), and the cap is {caps[name] + margin_w[name]:,.0f} W"
            text += f" with a margin of {margin_w[name]:,.0f} W" if margin_w[name] else ""
            report.alarms.append(f"{text}: nothing more can be done")

    @abstractmethod
    def seen(self) -> Any:
        """Return the cluster as it is now."""

    @abstractmethod
    def look(self) -> Any:
        """Return the load of the cluster now: Slurm's or Kubernetes' `Load`."""

    def look_after(self, report: ReportT) -> Any:
        """Return the load once stopped jobs have left, or after a while."""
        return self.look()

    def lowered(self, load: Any, cap_w: Mapping[str, float], report: ReportT) -> Any:
        """Lower settings of running jobs, or pause some, as far as the caps need; return the load after."""
        return load

    def lower(self, changes: Collection[Any], load: Any, report: ReportT) -> None:
        """Lower settings of running jobs; none has any where nobody sets them."""

    def lowest(self, load: Any, *, now: bool = False) -> Any:
        """Return the load with jobs at the lowest settings that they can have while they run, or `now`."""
        return load

    @abstractmethod
    def prepared(self, load: Any, cap: Cap, report: ReportT) -> Any:
        """Do what does not wait for a decision; return the load after it."""

    @abstractmethod
    def round_of(self, load: Any, clock: Clock) -> Any:
        """Return the cluster and its jobs in the form that a session takes."""

    @abstractmethod
    def decided(self, round: Any, cap_w: Mapping[str, float], report: ReportT) -> Plan | None:
        """Return the plan that the session decides; None where there is no decision."""

    def refused(self, stops: Mapping[Any, str], load: Any) -> Mapping[Any, str]:
        """Return the jobs whose stop would be refused, and why."""
        return {}

    @abstractmethod
    def stop_job(self, name: Any, why: str, load: Any) -> str:
        """Stop a job; '' or why not."""

    @abstractmethod
    def start_job(self, start: Any, load: Any, cap_w: Mapping[str, float], report: ReportT) -> str:
        """Start a job and count it, if GPUs and watts suffice; '' or why it is postponed."""

    @abstractmethod
    def give_back(self) -> dict[Any, str]:
        """Leave our jobs to the scheduler, and return them, with why where it refused."""

    def limits_s(self, load: Any) -> Mapping[str, float]:
        """Return the seconds that jobs may still run, or may once they start, by their names in a session."""
        return {}

    @abstractmethod
    def listeners(self, load: Any, waiting: Collection[Any]) -> Iterator[tuple[Any, Any, Any]]:
        """Yield whom to tell why jobs wait: a key, the job's name in `waiting`, and what its reason goes to.

        Those that have waited longest come first.
        """

    @abstractmethod
    def end_round(self, load: Any, report: ReportT) -> None:
        """See to what comes after the starts."""
