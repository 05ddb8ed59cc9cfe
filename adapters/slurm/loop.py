"""Round after round: look at Slurm, decide, stop what has to stop, and then start what has room."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from wattsched.adapters import rounds
from wattsched.adapters.budget import Budget
from wattsched.adapters.quarantine import Clock
from wattsched.adapters.rounds import RoundLoop, tell
from wattsched.adapters.slurm.actions import Actions
from wattsched.adapters.slurm.load import Load, load_of
from wattsched.adapters.slurm.options import Ours, SiteOptions, launch_of
from wattsched.adapters.slurm.plan import Plan, Round, Start, plan_of, round_of, stops_to_fit
from wattsched.adapters.slurm.queued import queued, unclear
from wattsched.adapters.slurm.reading import Site, SlurmJob, read
from wattsched.adapters.slurm.snapshot import Snapshot
from wattsched.report.wording import listed
from wattsched.serve.journal import Journal
from wattsched.serve.recorded import RecordedSession

SESSION = "slurm"
"""Name of our session in the journal."""

_SETTLE_S, _LOOK_S = 20.0, 0.5
"""How long a round waits for the jobs that it stopped to leave, and how often it looks."""
_ASIDE_S = 60.0
"""So long others go first at least, where a job did not start that was to."""
_IMPOSSIBLE = "BadConstraints"
"""Why Slurm holds what it can start nowhere, for a reason that we did not see."""
_SLACK_W = 1e-6


@dataclass(frozen=True)
class Policy:
    """How rounds are decided and done.

    Attributes
    ----------
    every_s : float
        Between rounds.
    deadline_s : float
        For a decision.
    start_s : float
        A job that was released and has not started after that long is held again.
    recount_s : float, optional
        GPUs that Slurm has counted as used for so long, though no job has them, are counted anew.
    apply : bool
        Whether anything is done; else it is only told.
    """

    ours: Ours
    options: SiteOptions
    objective: str = "work-value"
    every_s: float = 30.0
    deadline_s: float = 5.0
    start_s: float = 60.0
    recount_s: float | None = None
    change_cost: float = 0.0
    apply: bool = False


@dataclass
class Report(rounds.Report):
    """What a round did, or would do.

    Attributes
    ----------
    started, stopped, held_again : dict
        Jobs by id, and how; in shadow mode what would be.
    postponed : dict of int to str
        Decided starts that have no room yet, and why: the next round looks again.
    waiting : dict of int to str
        Why the other jobs wait.
    """

    started: dict[int, str] = field(default_factory=dict)
    stopped: dict[int, str] = field(default_factory=dict)
    held_again: dict[int, str] = field(default_factory=dict)
    postponed: dict[int, str] = field(default_factory=dict)
    waiting: dict[int, str] = field(default_factory=dict)


class Rounds(RoundLoop[Report]):
    """Rounds on one cluster.

    Parameters
    ----------
    policy : Policy
    budget : Budget
    journal : Journal
    actions : callable
        Makes the actions on a journal.
    look : callable
        Takes a snapshot, such as `snapshot.take`.
    """

    def __init__(
        self,
        policy: Policy,
        budget: Budget,
        journal: Journal,
        actions: Callable[[RecordedSession], Actions],
        look: Callable[[float], Snapshot],
    ) -> None:
        super().__init__(policy.every_s)
        self.policy, self.budget, self.journal, self.look = policy, budget, journal, look
        self._make_actions = actions
        self._session: RecordedSession | None = None
        self._actions: Actions | None = None
        self._mislaid_since_s = math.inf
        self._aside: dict[int, tuple[float, str]] = {}

    def round(self) -> Report:
        """Do one round.

        Raises
        ------
        SlurmError
            Where Slurm does not answer; nothing is taken for granted then.
        InputError
            For answers, options or budgets that cannot be used.
        """
        site = self._site()
        cap_w = self.budget.cap_w(site.time_s)
        report = Report(0, site.time_s, cap_w=None if math.isinf(cap_w) else cap_w)
        load = load_of(site, self.policy.options, self.policy.ours)
        report.notes += load.site.notes
        if late := self._late(load):
            self._hold(late, load, report)
            load = self._load() if self.policy.apply else load
        aside = self._put_aside(load)
        round = round_of(load, self.policy.ours, self.policy.every_s, aside, Clock(self.policy.deadline_s))
        plan = self._decided(round, cap_w, report)
        report.waiting = unclear(load.site, self.policy.ours) | queued(plan, round, cap_w) | plan.reasons
        self._carry_out(plan, round.load, report)
        return report

    # -- looking -----------------------------------------------------------------------------------------

    def _site(self) -> Site:
        return read(self.look(time.time()))

    def _load(self) -> Load:
        return load_of(self._site(), self.policy.options, self.policy.ours)

    def _late(self, load: Load) -> dict[int, str]:
        """Released jobs that do not start, by why."""
        late = dict.fromkeys(load.stranded, "its GPUs are gone")
        late |= dict.fromkeys(load.astray, "Slurm requeued it, and may start it at any moment")
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
        self._aside = {number: one for number, one in self._aside.items() if one[0] > now_s}
        return {number: f"{why}; others go first" for number, (_, why) in self._aside.items()}

    def _let_wait(self, number: int, now_s: float, why: str) -> None:
        self._aside[number] = now_s + max(_ASIDE_S, self.policy.start_s), why

    # -- deciding ----------------------------------------------------------------------------------------

    def _decided(self, round: Round, cap_w: float, report: Report) -> Plan:
        """The decision of the session; where there is none, what brings the draw below the cap."""
        session = self._told(round, cap_w)
        made = session.solve(deadline_s=round.clock.left_s)
        report.take(made)
        if made.decision.solved:
            return plan_of(round, made.decision)
        stops = stops_to_fit(round.load, cap_w)
        left_w = round.load.power_w - sum(
            round.load.added_w(round.load.ours[number].launch) for number in stops
        )
        if left_w > cap_w:
            told = f"{left_w:,.0f} W are drawn by what may not be stopped (other jobs, idle GPUs, nodes)"
            report.notes.append(f"{told}, and the cap is {cap_w:,.0f} W: nothing more can be done")
        for domain in round.load.options.power_domains:
            if (drawn_w := round.load.domain_w(domain)) > domain.power_cap_w:
                told = f"{drawn_w:,.0f} W are drawn behind '{domain.name}', and its cap"
                report.notes.append(f"{told} is {domain.power_cap_w:,.0f} W: no decision keeps to it")
        return Plan([], stops, round.left_out)

    def _told(self, round: Round, cap_w: float) -> RecordedSession:
        """The session, told of everything as Slurm has it now."""
        policy = self.policy
        if self._session is None:
            self._session = self._opened(round)
            self._actions = self._make_actions(self._session)
        odd = tell(
            self._session,
            round.cluster,
            round.jobs,
            cap_w=cap_w,
            objective=policy.objective,
            round_s=policy.every_s,
            change_cost=policy.change_cost,
            tenants=round.tenants(policy.every_s),
            carbon_g_per_kwh=policy.options.carbon_g_per_kwh,
        )
        round.left_out.update({int(name): why for name, why in odd.items()})
        return self._session

    def _opened(self, round: Round) -> RecordedSession:
        """Our session in the journal, which is made if it is not there."""
        if SESSION in self.journal.sessions():
            return self.journal.open(SESSION)
        return self.journal.create(SESSION, {"cluster": round.cluster})

    # -- doing -------------------------------------------------------------------------------------------

    def _hold(self, late: dict[int, str], load: Load, report: Report) -> None:
        report.held_again = late
        for number in late.keys() & load.ours.keys():
            self._let_wait(number, load.site.time_s, "it has not started where it was to")
        if self.policy.apply and self._actions is not None:
            for number, why in late.items():
                if refused := self._actions.hold(load.site.jobs[number], why):
                    report.notes.append(f"job {number} was not held again: {refused}")

    def _carry_out(self, plan: Plan, load: Load, report: Report) -> None:
        """Stop first; start what has room and watts after that, by a fresh look."""
        if not self.policy.apply:
            report.stopped = plan.stops
            report.started = {start.job.id: _told(start) for start in plan.starts}
            self._count(load, report)
            return
        actions = self._actions
        assert actions is not None  # made with the session
        actions.number = report.number
        if cut_off := actions.settle():
            report.notes.append(f"{cut_off} actions were cut off; the queue tells what became of them")
        for number, why in plan.stops.items():
            if refused := actions.stop(load.site.jobs[number], why):
                report.notes.append(f"job {number} was not stopped: {refused}")
            else:
                report.stopped[number] = why
        # Also without stops: jobs of others may have started while we decided.
        if plan.starts or plan.stops:
            before, load = load.site.jobs, self._after_stops(set(report.stopped))
            for number in [number for number in report.stopped if _ended(number, before, load.site.jobs)]:
                del report.stopped[number]
                report.notes.append(f"job {number} was not stopped: has ended by itself")
        self._start(plan.starts, load, report)
        actions.forget(load.site.jobs)
        actions.tell(load.site.jobs, {**report.waiting, **report.postponed})
        self._count(load, report)
        self._recount(actions, load, report)

    def _recount(self, actions: Actions, load: Load, report: Report) -> None:
        """Have Slurm count its GPUs anew where it has miscounted for long, and once in that time at most."""
        now_s, after_s = load.site.time_s, self.policy.recount_s
        self._mislaid_since_s = min(self._mislaid_since_s, now_s) if load.mislaid else math.inf
        if after_s is not None and now_s - self._mislaid_since_s >= after_s:
            refused = actions.recount()
            report.notes.append(f"Slurm does not count anew: {refused}" if refused else "Slurm counts anew")
            self._mislaid_since_s = now_s

    def _after_stops(self, stopped: set[int]) -> Load:
        """The cluster when the jobs that were stopped have left, or after a while."""
        until = time.monotonic() + _SETTLE_S
        while True:
            load = self._load()
            staying = stopped & (load.ours.keys() | load.leaving.keys())
            if not staying or time.monotonic() > until or self.stop.wait(_LOOK_S):
                return load

    def _start(self, starts: list[Start], load: Load, report: Report) -> None:
        """Release jobs one by one, each only if everything still fits below the cap with it."""
        assert self._actions is not None  # made with the session
        power_w = load.power_w
        for start in starts:
            number, launch = start.job.id, start.launch
            job = load.site.jobs.get(number)
            ready = job is not None and job.pending and job.held and job.restarts == launch.run
            # The cap may have been cut since the decision.
            cap_w = self.budget.cap_w(time.time())
            more_w = load.added_w(launch)
            fits = load.has_room(launch) and (more_w <= 0 or power_w + more_w <= cap_w + _SLACK_W)
            scarce = load.lacks(job, launch) if job is not None and ready and fits else ""
            if scarce:
                self._let_wait(number, load.site.time_s, f"{scarce} are taken")
            if job is None or not ready or not fits or scarce or self.stop.is_set():
                report.postponed[number] = f"waits for room: {scarce}" if scarce else "has no room yet"
            elif refused := self._actions.start(Start(job, launch)):
                report.notes.append(f"job {number} was not released: {refused}")
            else:
                load.take(job, launch)
                power_w += more_w
                report.started[number] = _told(start)

    def _count(self, load: Load, report: Report) -> None:
        if load.mislaid:
            told = f"GPUs of {listed(load.mislaid)} as used that no job has, and starts nothing on them"
            report.notes.append(f"Slurm counts {told}")
        report.power_w, report.running = load.power_w, len(load.ours)
        waiting = [job for job in load.site.jobs.values() if job.pending and self.policy.ours.has(job)]
        report.queued = len([job for job in waiting if job.id not in load.ours])
        if self.budget.note:
            report.notes.append(self.budget.note)


def _ended(number: int, before: dict[int, SlurmJob], now: dict[int, SlurmJob]) -> bool:
    """Whether a job that was to be stopped had ended: Slurm counts no new run of it."""
    job = now.get(number)
    return job is None or (not job.on_nodes and job.restarts == before[number].restarts)


def _told(start: Start) -> str:
    """Where a job starts, and how."""
    launch = start.launch
    told = ", ".join(f"{gpus} of {node}" for node, gpus in launch.nodes.items())
    clock = f" at {launch.frequency_mhz} MHz" if launch.frequency_mhz is not None else ""
    limit = f" at {launch.power_limit_w:g} W each" if launch.power_limit_w is not None else ""
    return f"GPUs {told}{clock}{limit}, {launch.power_w:,.0f} W"
