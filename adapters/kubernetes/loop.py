"""Rounds on Kubernetes: pods whose gang is on nodes join it, and what has room is bound."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from wattsched.adapters import rounds
from wattsched.adapters.budget import Cap
from wattsched.adapters.kubernetes.load import Binding, Load, Start, load_of
from wattsched.adapters.kubernetes.options import KubernetesOptions, job_key
from wattsched.adapters.kubernetes.plan import not_for_others, plan_of, round_of
from wattsched.adapters.kubernetes.reading import PREFIX, KubePod, Site, read
from wattsched.adapters.kubernetes.room import arranged, queued
from wattsched.adapters.loop import RoundLoop
from wattsched.adapters.plan import Round
from wattsched.adapters.quarantine import Clock
from wattsched.adapters.rounds import Plan, Reason
from wattsched.serve.database import JournalError

_ATTEMPTS = 4
"""Decisions at most, after the first one, until one moves nothing, and all that it starts has room."""


@dataclass(frozen=True)
class Policy(rounds.Policy):
    """Settings by which rounds are decided and done.

    Attributes
    ----------
    scheduler_name : str
        Pods with it are ours.
    marked : bool
        Only those that ask for GPUs and have a label or an annotation of ours.
    """

    options: KubernetesOptions
    scheduler_name: str = "wattsched"
    every_s: float = field(default=10.0, kw_only=True)
    marked: bool = field(default=False, kw_only=True)

    def ours(self, pod: KubePod) -> bool:
        """True if a pod is ours."""
        named = pod.scheduler == self.scheduler_name
        return named and (not self.marked or (pod.gpus > 0 and is_marked(pod)))


@dataclass
class Report(rounds.Report):
    """Report of what a round did, or would do; pods that `joined` were bound after others of their gang."""

    also_done: ClassVar[Mapping[str, str]] = {"join": "joined"}

    joined: dict[str, str] = field(default_factory=dict)


class Rounds(RoundLoop[Report]):
    """Rounds on one cluster."""

    scheduler = "kubernetes"
    report = Report

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if self.actions is not None and self.actions.looks_at_volumes:
            options = self.policy.options.model_copy(update={"claims_on_any_node": True})
            self.policy = replace(self.policy, options=options)

    def seen(self) -> Site:
        """Return the cluster as it is now."""
        return read(self._snapshot(), self.policy.options.gpu_label)

    def look(self) -> Load:
        """Return the load of the cluster now."""
        if self.actions is not None:
            self.actions.wait_until_seen()
        site = self.seen()
        held = self.actions.held(site) if self.actions is not None else {}
        launches = self.actions.launches if self.actions is not None else None
        load: Load = self.corrected(load_of(site, self.policy.options, self.policy.ours, held, launches))
        return load

    def prepared(self, load: Load, cap: Cap, report: Report) -> Load:
        """Bind pods whose gang is on nodes already; `load` no longer counts those that have to wait."""
        gangs: dict[str, list[Binding]] = {}
        for one in load.due:
            gangs.setdefault(job_key(one.pod), []).append(one)
        for name, bindings in gangs.items():
            why = cap.unknown or load.within(self.budget.cap().soon_w, bindings)
            if not why and self.actions is not None:
                try:
                    _, refused = self.actions.start(name, tuple(bindings))
                    report.notes += [f"{name} is not complete: {refused}"] if refused else []
                except JournalError as error:
                    why = str(error)
            if why:
                load.stuck[name] = why
                load.give_back(bindings)
            else:
                report.joined |= {one.pod.key: one.node for one in bindings}
        return load

    def round_of(self, load: Load, clock: Clock) -> Round:
        """The cluster and its jobs, as a session is told of them."""
        return round_of(load, None if self.actions is None else self.actions.aside(), clock)

    def decided(self, round: Round, cap_w: Mapping[str, float], report: Report) -> Plan | None:
        """Return the plan that the session decides and that can be done; None where there is no decision."""
        for left in reversed(range(_ATTEMPTS + 1)):
            if (decision := self.solve(round, report)) is None:
                return None
            plan = plan_of(round, decision)
            if not left or not self._mended(plan, round, cap_w, last=left == 1):
                break
        starts, roomless = arranged(plan, round.load)
        report.note_not_stopped(round.guarded)
        plan = replace(plan, starts=starts)
        waiting = queued(plan, round, cap_w)
        report.note_not_stopped(not_for_others(round.load) if waiting or roomless else {})
        return replace(plan, reasons=waiting | plan.reasons | roomless)

    def _mended(self, plan: Plan, round: Round, cap_w: Mapping[str, float], *, last: bool) -> bool:
        """Tell the session what of a plan cannot be done; True if there is any, so that it decides again.

        The `last` time, tell it of all that might fail.
        """
        if guarded := self.refused(plan.stops, round.load):
            round.guarded.update(guarded)
            self._pin(guarded, round)
            self.tell(round, cap_w)
            return True
        if plan.moved:
            # What would be moved is pinned; the last time, so is all that goes on.
            held = [job["name"] for job in round.jobs if "current" in job and job["name"] not in plan.stops]
            self._pin(held if last else plan.moved, round)
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
        round.left_out.update(dict.fromkeys(out, Reason("others go first", "order")) | roomless)
        return True

    def _pin(self, names: Collection[str], round: Round) -> None:
        """Let jobs go on where they are."""
        for job in round.jobs:
            if job["name"] in names:
                job["preemptible"] = False
        self.session.upsert([{"name": name, "preemptible": False} for name in names])

    def refused(self, stops: Mapping[str, str], load: Load) -> dict[str, str]:
        """Jobs whose eviction would be refused, and why."""
        if self.actions is None:
            return {}
        return {name: why for name in stops if (why := self.actions.guarded(load.ours[name]))}

    def stop_job(self, name: str, why: str, load: Load) -> str:
        """Evict the pods of a job; '' or why not."""
        return str(self.actions.stop(load.ours[name], why))

    def start_job(self, start: Start, load: Load, cap_w: Mapping[str, float], report: Report) -> str:
        """Bind the pods of a job if all have room within the caps; '' or why not. Refused pods are noted."""
        bindings, why = load.placed(start)
        bound = list[Binding]()
        try:
            if why := why or load.within(cap_w, bindings):
                return why
            bound, refused = self.actions.start(start.name, bindings)
        finally:
            load.give_back(one for one in bindings if one not in bound)
        if refused:
            report.notes.append(f"{start.name} was not started as a whole: {refused}")
        if bound:
            report.started[start.name] = str(replace(start, bindings=bindings))
            load.ours[start.name] = start.job
            load.waiting.pop(start.name, None)
        return ""

    def give_back(self) -> dict[str, str]:
        """Take what we wrote off all pods; return these, each with why that was refused or ''."""
        found: dict[str, str] = self.actions.give_back(self.seen().pods.values())
        return found

    def listeners(self, load: Load, waiting: Collection[str]) -> Iterator[tuple[str, str, KubePod]]:
        """Yield the pods of jobs that wait, each as whom to tell why; the oldest first."""
        jobs = load.late | load.waiting
        pods = [(name, pod) for name, job in jobs.items() for pod in job.pods]
        pods = [(name, pod) for name, pod in pods if name in waiting or pod.key in waiting]
        for name, pod in sorted(pods, key=lambda pair: pair[1].created_s):
            yield pod.uid, pod.key if pod.key in waiting else name, pod

    def end_round(self, load: Load, report: Report) -> None:
        """Publish the decision on pods that wait."""
        self.actions.end_round(load.late | load.waiting, {**report.waiting, **report.postponed})


def is_marked(pod: KubePod) -> bool:
    """True if a pod has a label or an annotation of ours."""
    return any(name.startswith(PREFIX) for name in (*pod.labels, *pod.annotations))
