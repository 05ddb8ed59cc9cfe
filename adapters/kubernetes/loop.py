"""Round after round: look at the cluster, decide, evict what has to go, and then bind what has room."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from wattsched.adapters import rounds
from wattsched.adapters.budget import Budget
from wattsched.adapters.kubernetes.actions import Actions
from wattsched.adapters.kubernetes.arranging import arranged, placed, queued
from wattsched.adapters.kubernetes.load import Binding, Load, load_of
from wattsched.adapters.kubernetes.options import KubernetesOptions
from wattsched.adapters.kubernetes.plan import Plan, Round, Start, plan_of, round_of, stops_to_fit
from wattsched.adapters.kubernetes.reading import PREFIX, KubePod, Site, read
from wattsched.adapters.kubernetes.snapshot import Snapshot
from wattsched.adapters.quarantine import Clock
from wattsched.adapters.rounds import RoundLoop, tell
from wattsched.serve.journal import Journal
from wattsched.serve.recorded import RecordedSession

SESSION = "kubernetes"
"""Name of our session in the journal."""

_ATTEMPTS = 4
"""Decisions at most, after the first one, until one moves nothing, and all that it starts has room."""


@dataclass(frozen=True)
class Policy:
    """How rounds are decided and done.

    Attributes
    ----------
    scheduler_name : str
        Pods with it are ours.
    marked : bool
        Only those that ask for GPUs and have a label or an annotation of ours.
    every_s : float
        Between rounds.
    deadline_s : float
        For a decision.
    apply : bool
        Whether anything is done; else it is only told.
    """

    options: KubernetesOptions
    scheduler_name: str = "wattsched"
    objective: str = "work-value"
    every_s: float = 10.0
    deadline_s: float = 5.0
    change_cost: float = 0.0
    apply: bool = False
    marked: bool = False

    def ours(self, pod: KubePod) -> bool:
        """Whether a pod is ours."""
        named = pod.scheduler == self.scheduler_name
        return named and (not self.marked or (pod.gpus > 0 and is_marked(pod)))


@dataclass
class Report(rounds.Report):
    """What a round did, or would do.

    Attributes
    ----------
    started, stopped, joined : dict
        Jobs by name, and how; pods that were bound after others of their gang; in shadow mode what would be.
    postponed : dict of str to str
        Decided starts that cannot be yet, and why: the next round looks again.
    waiting : dict of str to str
        Why the other jobs wait, and pods that their gang has no place for.
    """

    started: dict[str, str] = field(default_factory=dict)
    stopped: dict[str, str] = field(default_factory=dict)
    joined: dict[str, str] = field(default_factory=dict)
    postponed: dict[str, str] = field(default_factory=dict)
    waiting: dict[str, str] = field(default_factory=dict)


class Rounds(RoundLoop[Report]):
    """Rounds on one cluster.

    Parameters
    ----------
    policy : Policy
    budget : Budget
    journal : Journal
    look : callable
        Takes a snapshot, such as that of a `Mirror`.
    actions : callable, optional
        Makes the actions on a journal; needed to apply.
    """

    def __init__(
        self,
        policy: Policy,
        budget: Budget,
        journal: Journal,
        look: Callable[[], Snapshot],
        actions: Callable[[RecordedSession], Actions] | None = None,
    ) -> None:
        super().__init__(policy.every_s)
        self.policy, self.budget, self.journal, self.look = policy, budget, journal, look
        self.session = self._opened()
        self.actions = actions(self.session) if actions is not None and policy.apply else None
        if self.actions is not None and self.actions.looks_at_volumes:
            options = policy.options.model_copy(update={"claims_on_any_node": True})
            self.policy = replace(policy, options=options)

    def round(self) -> Report:
        """Do one round.

        Raises
        ------
        KubernetesError
            Where the API server does not answer; nothing is taken for granted then.
        InputError
            For objects, options or budgets that cannot be used.
        """
        load = self._load()
        cap_w = self.budget.cap_w(load.site.time_s)
        if self.actions is not None and self.actions.give_way(load, cap_w):
            load = self._load()
        report = Report(0, load.site.time_s, cap_w=None if math.isinf(cap_w) else cap_w)
        report.notes += load.site.notes
        if self.actions is not None and (cut_off := self.actions.settle()):
            report.notes.append(f"{cut_off} actions were cut off; the pods tell what became of them")
        self._join(load, report)
        aside = None if self.actions is None else self.actions.aside()
        round = round_of(load, aside, Clock(self.policy.deadline_s))
        plan = self._decided(round, cap_w, report)
        self._carry_out(plan, load, report)
        return report

    # -- looking -----------------------------------------------------------------------------------------

    def _site(self) -> Site:
        if self.actions is not None:
            self.actions.wait_until_seen()
        return read(self.look(), self.policy.options.gpu_label)

    def _load(self) -> Load:
        site = self._site()
        held = self.actions.held(site) if self.actions is not None else {}
        launches = self.actions.launches if self.actions is not None else None
        return load_of(site, self.policy.options, self.policy.ours, held, launches)

    # -- deciding ----------------------------------------------------------------------------------------

    def _decided(self, round: Round, cap_w: float, report: Report) -> Plan:
        """The decision of the session; where there is none, what brings the draw below the cap."""
        self._tell(round, cap_w)
        plan = self._solved(round, report)
        for attempt in range(_ATTEMPTS):
            if plan is None or not self._mended(plan, round, last=attempt == _ATTEMPTS - 1):
                break
            plan = self._solved(round, report)
        load = round.load
        if plan is not None:
            starts, roomless = arranged(plan, load)
            report.notes += _not_stopped(round.guarded)
            plan = replace(plan, starts=starts)
            return replace(plan, reasons=queued(plan, round, cap_w) | plan.reasons | roomless)
        stops = stops_to_fit(load, cap_w)
        while self._guarded(stops, round):
            stops = stops_to_fit(load, cap_w, round.guarded)
        report.notes += _not_stopped(round.guarded)
        left_w = load.power_w - sum(load.soon_w.values())
        for name in stops:
            left_w -= sum(load.added_w(pod.node, load.launches[pod.uid]) for pod in load.ours[name].pods)
        if left_w > cap_w:
            told = f"{left_w:,.0f} W are drawn by what may not be stopped (pods, idle GPUs, nodes)"
            report.notes.append(f"{told}, and the cap is {cap_w:,.0f} W: nothing more can be done")
        waiting = [job["name"] for job in round.jobs if "current" not in job]
        return Plan([], stops, dict.fromkeys(waiting, "there is no decision") | round.left_out)

    def _mended(self, plan: Plan, round: Round, *, last: bool) -> bool:
        """Tell the session what cannot be of a plan; whether there is any. The last time, more than that."""
        if guarded := self._guarded(plan.stops, round):
            pinned = [job["name"] for job in round.jobs if job["name"] in guarded]
            self.session.upsert([{"name": name, "preemptible": False} for name in pinned])
            return True
        if plan.moved:
            # What would be moved is pinned; the last time, so is all that goes on.
            held = [job["name"] for job in round.jobs if "current" in job and job["name"] not in plan.stops]
            pinned = held if last else plan.moved
            self.session.upsert([{"name": name, "preemptible": False} for name in pinned])
            return True
        starts, roomless = arranged(plan, round.load)
        if not roomless:
            return False
        # What has no room takes no part any more; the last time, neither does what is not known to have room.
        known = {start.job.name for start in starts}
        waiting = [job["name"] for job in round.jobs if "current" not in job]
        out = {name for name in waiting if name in roomless or (last and name not in known)}
        self.session.remove(sorted(out))
        round.jobs[:] = [job for job in round.jobs if job["name"] not in out]
        round.left_out.update(dict.fromkeys(out, "others go first") | roomless)
        return True

    def _guarded(self, stops: Mapping[str, str], round: Round) -> dict[str, str]:
        """Those whose eviction would be refused; the round has them from now on."""
        if self.actions is None:
            return {}
        ours, guarded = round.load.ours, self.actions.guarded
        refused = {name: why for name in stops if (why := guarded(ours[name]))}
        round.guarded.update(refused)
        return refused

    def _solved(self, round: Round, report: Report) -> Plan | None:
        """What a decision asks for; None where there is none."""
        made = self.session.solve(deadline_s=round.clock.left_s)
        report.take(made)
        return plan_of(round, made.decision) if made.decision.solved else None

    def _tell(self, round: Round, cap_w: float) -> None:
        """Tell the session of everything as it is now."""
        policy = self.policy
        odd = tell(
            self.session,
            round.cluster,
            round.jobs,
            cap_w=cap_w,
            objective=policy.objective,
            round_s=policy.every_s,
            change_cost=policy.change_cost,
            tenants=round.tenants(policy.every_s),
            carbon_g_per_kwh=policy.options.carbon_g_per_kwh,
        )
        round.left_out.update(odd)

    def _opened(self) -> RecordedSession:
        """Our session in the journal, which is made if it is not there."""
        if SESSION in self.journal.sessions():
            return self.journal.open(SESSION)
        nothing = {
            "gpu_types": {"none": {"idle_power_w": 0.0}},
            "nodes": [{"name": "none", "gpu_type": "none", "gpus": 1}],
        }
        return self.journal.create(SESSION, {"cluster": nothing})

    # -- doing -------------------------------------------------------------------------------------------

    def _join(self, load: Load, report: Report) -> None:
        """Bind pods whose gang is on nodes already; they are counted."""
        gangs: dict[str, list[Binding]] = {}
        for one in load.due:
            gangs.setdefault(f"{one.pod.namespace}/gang:{one.pod.gang}", []).append(one)
        for name, bindings in gangs.items():
            if why := load.within(self.budget.cap_w(time.time()), bindings):
                load.stuck[name] = why
                for one in bindings:
                    load.give_back(one)
                continue
            report.joined |= {one.pod.key: one.node for one in bindings}
            if self.actions is not None:
                _, refused = self.actions.start(name, tuple(bindings))
                report.notes += [f"{name} is not complete: {refused}"] if refused else []

    def _carry_out(self, plan: Plan, load: Load, report: Report) -> None:
        """Stop first; start what has room and watts after that, by a fresh look."""
        report.waiting = plan.reasons
        if self.actions is None:
            report.stopped = plan.stops
            report.started = {start.job.name: told(start) for start in plan.starts}
            self._count(load, report)
            return
        self.actions.number = report.number
        for name, why in plan.stops.items():
            if refused := self.actions.stop(load.ours[name], why):
                report.notes.append(f"{name} was not stopped: {refused}")
            else:
                report.stopped[name] = why
        if plan.starts or plan.stops:
            # Pods of others may have come while we decided.
            load = self._load()
            self._start(plan.starts, load, report)
        self._count(load, report)

    def _start(self, starts: list[Start], load: Load, report: Report) -> None:
        """Bind the pods of each job if all have room, and everything still fits below the caps with them."""
        assert self.actions is not None  # asked by the caller
        for start in starts:
            name = start.job.name
            bindings, why = placed(start, load)
            if not why:
                # The cap may have been cut since the decision.
                why = load.within(self.budget.cap_w(time.time()), bindings)
            if why or self.stop.is_set():
                for one in bindings:
                    load.give_back(one)
                report.postponed[name] = why or "is being ended"
                continue
            bound, refused = self.actions.start(name, bindings)
            for one in bindings:
                if one not in bound:
                    load.give_back(one)
            if refused:
                report.notes.append(f"{name} was not started as a whole: {refused}")
            if bound:
                report.started[name] = told(start)
                load.ours[name] = start.job
                load.waiting.pop(name, None)

    def _count(self, load: Load, report: Report) -> None:
        report.power_w, report.running = load.power_w, len(load.ours | load.announced)
        report.queued = len(load.waiting)
        if self.actions is not None:
            self.actions.end_round(load.late | load.waiting, {**report.waiting, **report.postponed})
        if self.budget.note:
            report.notes.append(self.budget.note)


def _not_stopped(guarded: Mapping[str, str]) -> list[str]:
    return [f"{name} was not stopped: {why}" for name, why in guarded.items()]


def is_marked(pod: KubePod) -> bool:
    """Whether a pod has a label or an annotation of ours."""
    return any(name.startswith(PREFIX) for name in (*pod.labels, *pod.annotations))


def told(start: Start) -> str:
    """Where a job starts, and how."""
    gpus: dict[str, int] = {}
    for one in start.bindings:
        gpus[one.node] = gpus.get(one.node, 0) + one.launch.gpus
    launch = start.bindings[0].launch
    places = ", ".join(f"{count} of {node}" for node, count in gpus.items())
    clock = f" at {launch.frequency_mhz} MHz" if launch.frequency_mhz is not None else ""
    limit = f" at {launch.power_limit_w:g} W each" if launch.power_limit_w is not None else ""
    return f"GPUs {places}{clock}{limit}, {start.power_w:,.0f} W"
