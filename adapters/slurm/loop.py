"""Rounds on Slurm: what does not start where it was to is held again, and what has room is released."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from wattsched.adapters import rounds
from wattsched.adapters.budget import Cap
from wattsched.adapters.loop import RoundLoop
from wattsched.adapters.options import Row
from wattsched.adapters.overdraw import (
    Adjustable,
    left_w,
    limits_w,
    over_w,
    settings_to_fit,
    starts_too_much,
    stops_to_fit,
    too_much,
)
from wattsched.adapters.plan import Round
from wattsched.adapters.quarantine import Clock
from wattsched.adapters.rounds import Plan, Reason
from wattsched.adapters.slurm.actions import may_be_told
from wattsched.adapters.slurm.load import Load, load_of
from wattsched.adapters.slurm.options import Ours, SiteOptions, launch_of, rows_for
from wattsched.adapters.slurm.plan import plan_of, queued, round_of, unclear
from wattsched.adapters.slurm.reading import Site, SlurmJob, read
from wattsched.adapters.slurm.running import Running, Start
from wattsched.report.wording import listed
from wattsched.serve.database import JournalError

_SETTLE_S, _CONFIRM_S, _LOOK_S = 20.0, 10.0, 0.5
"""Seconds that a round waits for the jobs that it stopped to leave, and for agents to lower settings; seconds
between two looks."""
_ASIDE_S = 60.0
"""So long others go first at least, where a job did not start that was to."""
_SENT = {"suspend": "paused", "resume": "resumed", "signal": "signalled"}
"""Kinds of what is done to running jobs, and the attribute of a report that has the jobs."""
_IMPOSSIBLE = "BadConstraints"
"""Reason that Slurm gives for a job that it holds as no node can start it, for a cause we did not see."""


@dataclass(frozen=True)
class Policy(rounds.Policy):
    """Settings by which rounds are decided and done.

    Attributes
    ----------
    start_s : float
        A job that was released and has not started after that long is held again.
    recount_s : float, optional
        GPUs that Slurm has counted as used for so long, though no job has them, are counted anew.
    """

    ours: Ours
    options: SiteOptions
    start_s: float = field(default=60.0, kw_only=True)
    recount_s: float | None = field(default=None, kw_only=True)


@dataclass
class Report(rounds.Report):
    """Report of what a round did, or would do; jobs `held_again` had been released, and did not start."""

    also_done: ClassVar[Mapping[str, str]] = {
        "hold again": "held_again",
        "pause": "paused",
        "resume": "resumed",
        "signal": "signalled",
    }

    held_again: dict[int, str] = field(default_factory=dict)
    paused: dict[int, str] = field(default_factory=dict)
    resumed: dict[int, str] = field(default_factory=dict)
    signalled: dict[int, str] = field(default_factory=dict)


class Rounds(RoundLoop[Report]):
    """Rounds on one cluster; `look` takes the time, as `snapshot.take` does."""

    scheduler, job = "slurm", "job "
    report, key = Report, int

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # Since when Slurm miscounts GPUs; jobs as they were stopped in this round.
        self._mislaid_since_s = math.inf
        self._stopped: dict[int, SlurmJob] = {}
        # Until when jobs let others go first, in seconds since 1970, and why.
        self._aside: dict[int, tuple[float, str]] = {}

    def seen(self) -> Site:
        """Return the cluster as it is now."""
        return read(self._snapshot(self.budget.clock()))

    def look(self) -> Load:
        """Return the load of the cluster now."""
        load: Load = self.corrected(load_of(self.seen(), self.policy.options, self.policy.ours))
        return load

    def look_after(self, report: Report) -> Load:
        """Return the load once jobs have stopped or are lowered, or after a while; note those that ended."""
        begun, stopped = time.monotonic(), set(report.stopped)
        while True:
            load, waited_s = self.look(), time.monotonic() - begun
            staying = stopped & (load.ours.keys() | load.leaving.keys())
            awaited = any(one.awaited for one in load.ours.values())
            going_on = (staying and waited_s < _SETTLE_S) or (awaited and waited_s < _CONFIRM_S)
            if not going_on or self.stop.wait(_LOOK_S):
                break
        for number, before in list(self._stopped.items()):
            if number in report.stopped and _ended(before, load.site.jobs.get(number)):
                del report.stopped[number]
                report.notes.append(f"job {number} was not stopped: has ended by itself")
        return load

    def lowered(self, load: Load, cap_w: Mapping[str, float], report: Report) -> Load:
        """Lower settings as far as the caps need, and wait a while for agents; pause jobs for the rest."""
        if not self.excess_w(load, cap_w, report):
            return load
        awaited = [Start(one.job, one.launch) for one in load.ours.values() if one.awaited]
        over = over_w(load.after((), awaited).drawn_w, limits_w(load, cap_w)) | self.failing
        changes = [
            load.ours[job.name].changed(row, job.now.rate)
            for job, row in settings_to_fit(over, self._adjustable(load))
        ]
        if self.actions is None:
            report.changed |= {change.name: str(change) for change in changes}
            return self._paused(load.after((), changes), cap_w, report)
        if awaited:
            report.notes += self.actions.write_settings(load)
        self.lower(changes, load, report)
        load = self.look_after(Report()) if awaited or changes else load
        return self._paused(load, cap_w, report)

    def _paused(self, load: Load, cap_w: Mapping[str, float], report: Report) -> Load:
        """Pause jobs while too much is drawn, those of least weight per watt first; note what is refused."""
        weights = {name: {"weight": record.get("weight", 1.0)} for name, record in self._records.items()}
        why = stops_to_fit(self.excess_w(load, cap_w, report), load.pausable, weights)
        if not (pauses := [load.ours[number].pause() for number in why]):
            return load
        for start in pauses:
            self._send("suspend", start, why[start.name], report)
        return load.after((), pauses) if self.actions is None else self.look()

    def _resumed(self, load: Load, report: Report) -> Load:
        """Let paused jobs go on that fit below the caps again, the longest paused first."""
        for one in load.paused if not report.paused else ():
            cap, start, added_w = self.budget.cap(), one.resume(), load.pause_w(one)
            then = load.beside([start])
            # Nobody waits for watts before it.
            caps = left_w(then.after([other.job.id for other in then.paused]), cap.soon_w)
            if cap.unknown or self.stop.is_set() or too_much(then.drawn_w, added_w, caps):
                continue
            self._send("resume", start, str(start), report)
            load = then  # also where Slurm has refused: of two commands the first may be done
        return load

    def _signal_ahead(self, load: Load, report: Report) -> None:
        """Signal jobs that an announced cut will stop, a grace and a round before that."""
        silent = {number: one for number, one in load.ours.items() if one.job.running and one.silent}
        if not silent:
            return
        then = self.lowest(load, now=True)
        then = then.after((), [then.ours[one.name].pause() for one in then.pausable])
        for grace_s in {one.launch.grace_s or 0.0 for one in silent.values()}:
            least_w = self.budget.least_w(self.budget.ahead_s + self.policy.every_s + grace_s)
            stops = stops_to_fit(over_w(then.drawn_w, limits_w(then, least_w)), then.stoppable, self._records)
            for number in stops.keys() & silent.keys():
                if silent[number].launch.grace_s == grace_s:
                    self._signal(number, load, report)

    def _signal(self, number: int, load: Load, report: Report) -> None:
        """Send a job its signal; a refusal is noted."""
        one = load.ours[number]
        sent = {"signalled_run": one.job.restarts, "signalled_s": load.site.time_s}
        load.ours[number] = one = replace(one, launch=one.launch.model_copy(update=sent))
        how = f"{one.launch.checkpoint_signal}, to stop in {one.launch.grace_s:g} s"
        self._send("signal", Start(one.job, one.launch), how, report)

    def _send(self, kind: str, start: Start, why: str, report: Report) -> None:
        """Do what a kind of `_SENT` says to a job, or report it in shadow mode; a refusal is noted."""
        done = _SENT[kind]
        try:
            refused = self.actions and self.actions.send(kind, start, why)
        except JournalError as error:
            refused = str(error)
        if refused:
            report.notes.append(f"job {start.name} was not {done}: {refused}")
        else:
            getattr(report, done)[start.name] = why

    def _stop(self, stops: Mapping[int, str], load: Load, report: Report) -> None:
        """Stop jobs, those that have had no signal after it; note whose grace is cut short."""
        for number in stops:
            one = load.ours.get(number)
            if one is not None and one.job.running and one.grace_left_s > 0:
                if one.silent:
                    self._signal(number, load, report)
                text = f"grace is cut short by {one.grace_left_s:,.0f} of {one.launch.grace_s:g} s"
                report.notes.append(f"job {number} stops, and its {text}")
        super()._stop(stops, load, report)

    def _adjustable(self, load: Load) -> Iterator[Adjustable]:
        """Yield running jobs whose settings can be changed, with their rows in the last decision."""
        for number, one in load.ours.items():
            rows = self._rows(one) if one.adjustable else []
            if (now := next((row for row in rows if row.settings == one.launch.settings), None)) is None:
                continue
            # The factor of its watts is another one since the last decision.
            times = one.launch.power_w / now.power_w if load.correction else 1.0
            others = [row._replace(power_w=row.power_w * times) for row in rows if row is not now]
            now = now._replace(power_w=one.launch.power_w)
            part = load.by_cap({node: gpus / one.launch.gpus for node, gpus in one.counts.items()})
            weight = self._records[str(number)].get("weight", 1.0)
            yield Adjustable(number, weight * one.launch.gpus, part, [*others, now], now)

    def lower(self, changes: Collection[Start], load: Load, report: Report) -> None:
        """Lower settings of running jobs; what is refused is noted."""
        outcomes = self.actions.change({one.name: (load.ours[one.name], one.launch) for one in changes})
        for change in changes:
            if refused := outcomes[change.name]:
                report.notes.append(f"the settings of job {change.name} were not lowered: {refused}")
            else:
                report.changed[change.name] = str(change)

    def lowest(self, load: Load, *, now: bool = False) -> Load:
        """Return the load with jobs at the lowest settings that agents can set while they run, or `now`."""
        starts = [
            one.changed(min([Row({}, one.power_w, 0.0), *self._rows(one)], key=lambda row: row.power_w), 0.0)
            for one in load.ours.values()
            if (one.adjustable if now else one.answered and not one.paused)
        ]
        return load.after((), starts)

    def _rows(self, one: Running) -> list[Row]:
        """Rows of a running job in what the last decision was told."""
        return rows_for(self._records.get(str(one.job.id), {}).get("options") or {}, one.launch)

    def _enforce_cap(self, load: Load, cap: Cap, report: Report) -> Any:
        """Keep the caps; with jobs to be paused or signalled also those announced, as no decision does it."""
        running = [one.launch for one in load.ours.values() if one.job.running]
        if any(launch.paused_w is not None or launch.checkpoint_signal for launch in running):
            cap = cap._replace(now_w=cap.soon_w)
        return super()._enforce_cap(load, cap, report)

    def prepared(self, load: Load, cap: Cap, report: Report) -> Load:
        """Resume, signal, hold again what was released and does not start, and tell agents of GPUs."""
        load = self._resumed(load, report)
        self._signal_ahead(load, report)
        if self.actions is not None:
            report.notes += self.actions.write_settings(load)
        report.notes += [
            f"job {number}: the agent of {node} could not change its settings: {said.failed}"
            for number, one in load.ours.items()
            for node, said in zip(one.gpus, one.reports, strict=False)
            if said is not None and said.failed
        ]
        if load.mislaid:
            text = f"GPUs of {listed(load.mislaid)} as used that no job has, and starts nothing on them"
            report.notes.append(f"Slurm counts {text}")
        if late := self._late(load):
            report.held_again = late
            for number in late.keys() & load.ours.keys():
                self._let_wait(number, load.site.time_s, "it has not started where it was to")
            if self.actions is not None:
                for number, why in late.items():
                    if refused := self.actions.hold(load.site.jobs[number], why):
                        report.notes.append(f"job {number} was not held again: {refused}")
                return self.look()
        return load

    def _late(self, load: Load) -> dict[int, str]:
        """Released jobs that do not start, and why."""
        late = dict(load.astray)
        for number, running in load.ours.items():
            waited_s = load.site.time_s - running.launch.released_s
            if running.job.pending and waited_s > self.policy.start_s:
                late[number] = f"has not started within {waited_s:.0f} s"
        return late

    def _put_aside(self, load: Load) -> dict[int, str]:
        """Jobs that did not start where they were to, and let others go first for a while, and why."""
        now_s = load.site.time_s
        for job in load.site.jobs.values():
            if job.pending and job.held and job.reason == _IMPOSSIBLE and (launch := launch_of(job)):
                self._let_wait(job.id, launch.released_s, f"Slurm could start it on no node ({_IMPOSSIBLE})")
        self._aside = {n: (until_s, why) for n, (until_s, why) in self._aside.items() if until_s > now_s}
        return {number: why for number, (_, why) in self._aside.items()}

    def _let_wait(self, number: int, now_s: float, why: str) -> None:
        reason = Reason(f"{why}; others go first", "order")
        self._aside[number] = now_s + max(_ASIDE_S, self.policy.start_s), reason

    def round_of(self, load: Load, clock: Clock) -> Round:
        """The cluster and its jobs, as a session is told of them."""
        return round_of(load, self.policy.ours, self.policy.every_s, self._put_aside(load), clock)

    def decided(self, round: Round, cap_w: Mapping[str, float], report: Report) -> Plan | None:
        """Return the plan that the session decides; None where there is no decision."""
        if (decision := self.solve(round, report)) is None:
            return None
        plan = plan_of(round, decision)
        reasons = unclear(round.load.site, self.policy.ours) | queued(plan, round, cap_w) | plan.reasons
        return replace(plan, reasons=reasons)

    def stop_job(self, name: int, why: str, load: Load) -> str:
        """Requeue a job, or take its release back; '' or why not."""
        job = load.site.jobs[name]
        if job.pending:
            return str(self.actions.hold(job, why))
        self._stopped[name] = job
        return str(self.actions.stop(job, why))

    def start_job(self, start: Start, load: Load, cap_w: Mapping[str, float], report: Report) -> str:
        """Release a job if its nodes have room for it within the caps; '' or why not. A refusal is noted.

        Of a running job the settings are changed.
        """
        number, launch, job = start.job.id, start.launch, load.site.jobs.get(start.job.id)
        running = one if (one := load.ours.get(number)) is not None and one.adjustable else None
        waits = job is not None and job.pending and job.held and job.restarts == launch.run
        if job is None or not (waits or running):
            return "has changed meanwhile"
        if not running and not load.has_room(launch):
            return "has no room yet"
        start = Start(job, launch)
        if why := starts_too_much(load, load.beside([start]), cap_w):
            return why
        if not running and (scarce := load.lacks(job, launch)):
            self._let_wait(number, load.site.time_s, f"{scarce} are taken")
            return f"waits for room: {scarce}"
        if running:
            refused = self.actions.change({number: (running, launch)})[number]
        else:
            refused = self.actions.start(start)
        if refused:
            what = "keeps its settings" if running else "was not released"
            report.notes.append(f"job {number} {what}: {refused}")
            return ""
        load.take(job, launch)
        (report.changed if running else report.started)[number] = str(start)
        return ""

    def give_back(self) -> dict[int, str]:
        """Leave our jobs to Slurm; return these, each with why it refused or ''."""
        found: dict[int, str] = self.actions.give_back(self.seen().jobs.values(), self.policy.ours)
        return found

    def limits_s(self, load: Load) -> dict[str, float]:
        """Return the seconds of time limits that jobs have left; those without a limit are left out."""
        now_s, jobs = load.site.time_s, load.site.jobs.values()
        left = {job.id: job.limit_s - (now_s - job.start_s if job.on_nodes else 0.0) for job in jobs}
        return {str(number): max(0.0, seconds) for number, seconds in left.items() if seconds < math.inf}

    def listeners(self, load: Load, waiting: Collection[int]) -> Iterator[tuple[int, int, SlurmJob]]:
        """Yield the jobs that wait, each as whom to tell why; the oldest first."""
        for number in sorted(waiting):
            job = load.site.jobs.get(number)
            if job is not None and may_be_told(job):
                yield number, number, job

    def end_round(self, load: Load, report: Report) -> None:
        """Confirm settings, and have Slurm count its GPUs anew where it has miscounted for long."""
        self._stopped.clear()
        report.waiting = {**load.reasons, **report.waiting}  # also without a decision
        self.actions.forget(load.ours.keys() | load.leaving.keys())
        self.actions.confirm(load)
        # Once in that time at most.
        now_s, after_s = load.site.time_s, self.policy.recount_s
        self._mislaid_since_s = min(self._mislaid_since_s, now_s) if load.mislaid else math.inf
        if after_s is not None and now_s - self._mislaid_since_s >= after_s:
            refused = self.actions.recount()
            report.notes.append(f"Slurm does not count anew: {refused}" if refused else "Slurm counts anew")
            self._mislaid_since_s = now_s


def _ended(before: SlurmJob, now: SlurmJob | None) -> bool:
    """True if a job that was to be stopped had ended: Slurm counts no new run of it."""
    return now is None or (not now.on_nodes and now.restarts == before.restarts)
