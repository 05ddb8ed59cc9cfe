"""Actions through the default scheduler: we publish the node of a pod, and the scheduler binds it.

A pod that was announced a node is held there until it is bound: the scheduler may bind it at any moment, so
its GPUs and watts go to nobody else. An announcement is withdrawn where it is not followed for long, or where
its node or its watts are gone; what the scheduler was told shortly before still counts for a while, as it may
be about to bind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from wattsched.adapters.kubernetes.actions import Actions
from wattsched.adapters.kubernetes.extender import UNSEEN, Extender, Opinion
from wattsched.adapters.kubernetes.load import Binding, Load
from wattsched.adapters.kubernetes.options import KubeJob, job_key
from wattsched.adapters.kubernetes.reading import Site
from wattsched.adapters.overdraw import Stoppable, caps_w, over_w, stops_to_fit

LAPSED = Opinion(why="it was not bound where it was to go, and is decided anew")
"""Opinion on a pod whose announcement was withdrawn, while the scheduler might still follow it."""


@dataclass
class Announcement:
    """A pod that the scheduler may bind; where it is withdrawn, only if it was told so before."""

    binding: Binding
    begun_s: float
    withdrawn: bool = False

    @property
    def job(self) -> str:
        """Name of the job."""
        return job_key(self.binding.pod)


@dataclass
class Announcing(Actions):
    """Actions that bind nothing themselves.

    A pod that has a node is annotated with how it starts. That tells a restart of ours, and an agent on the
    node, as much as a binding does, and the scheduler looks again at a pod that it had put aside.

    Parameters
    ----------
    extender : Extender
    patience_s : float
        So long the scheduler has to bind a pod.
    binding_s : float
        So long a binding may take after the last question.
    """

    looks_at_volumes = True
    extender: Extender = field(kw_only=True)
    patience_s: float = field(default=60.0, kw_only=True)
    binding_s: float = field(default=30.0, kw_only=True)
    _announced: dict[str, Announcement] = field(default_factory=dict)
    _aside: dict[str, float] = field(default_factory=dict)
    _adopted: bool = False

    def held(self, site: Site) -> dict[str, Binding]:
        """Pods that are not bound and that the scheduler might bind, and where; they count as bound."""
        if not self._adopted:
            self._adopt(site)
        waiting = {uid for uid, pod in site.pods.items() if pod.waiting}
        self._announced = {uid: one for uid, one in self._announced.items() if uid in waiting}
        self._put_aside()
        self._withdraw({one.job for one in self._announced.values() if self._is_over(one, site)})
        return {uid: one.binding for uid, one in self._announced.items()}

    def aside(self) -> dict[str, str]:
        """Jobs that the scheduler did not bind where it was told to: others go first for a while."""
        now_s = self.extender.clock()
        self._aside = {name: until_s for name, until_s in self._aside.items() if until_s > now_s}
        return dict.fromkeys(self._aside, "the scheduler did not bind it where it was to go; others go first")

    def _put_aside(self) -> None:
        now_s = self.extender.clock()
        for uid, one in self._announced.items():
            had_s = now_s - one.begun_s
            if not one.withdrawn and had_s > self.patience_s and self.extender.passed_ago_s(uid) <= had_s:
                self._aside[one.job] = now_s + self.binding_s + self.patience_s

    def give_way(self, load: Load, cap_w: float) -> bool:
        """Withdraw what others took the GPUs of, and the newest for which there are no watts; whether any."""
        full = {
            node.name for node in load.site.nodes.values() if load.used[node.name] > node.gpus - node.broken
        }
        standing = [one for one in self._announced.values() if not one.withdrawn]
        names = {one.job for one in standing if one.binding.node in full}
        now_s = self.extender.clock()
        mine = list[Stoppable]()
        for one in standing:
            freed_w = load.by_cap(load.added_by_node([one.binding]))
            mine.append(Stoppable(one.job, freed_w, one.binding.launch.gpus, now_s - one.begun_s))
        names |= stops_to_fit(over_w(load.begun.drawn_w, caps_w(load, cap_w)), mine).keys()
        self._withdraw(names)
        return bool(names)

    def start(self, name: str, bindings: tuple[Binding, ...]) -> tuple[list[Binding], str]:
        """Let the pods of a job pass; none does before all have places."""
        now_s = self.extender.clock()
        self._announced |= {one.pod.uid: Announcement(one, now_s) for one in bindings}
        # Before they are annotated: the scheduler asks at once.
        self.extender.change({one.pod.uid: Opinion(node=one.node) for one in bindings})
        done = list[Binding]()
        try:
            done, refused = super().start(name, bindings)
            return done, refused
        finally:
            if len(done) < len(bindings):
                self._withdraw({name}, {one.pod.uid for one in done})

    def end_round(self, waiting: Mapping[str, KubeJob], why: Mapping[str, str]) -> None:
        """Publish what the round says of every pod."""
        waits = {
            pod.uid: Opinion(why=why.get(pod.key) or why.get(job.name, "others go first"))
            for job in waiting.values()
            for pod in job.pods
        }
        places = {
            uid: LAPSED if one.withdrawn else Opinion(node=one.binding.node)
            for uid, one in self._announced.items()
        }
        self.extender.publish(waits | places)
        super().end_round(waiting, why)

    def _is_over(self, one: Announcement, site: Site) -> bool:
        """True if the announcement was withdrawn, its time is up, or its node takes no pod any more."""
        node = site.nodes.get(one.binding.node)
        late = self.extender.clock() - one.begun_s > self.patience_s
        return one.withdrawn or late or node is None or not node.ready

    def _withdraw(self, jobs: Collection[str], but: Collection[str] = ()) -> None:
        """Refuse the pods of jobs from now on, and hold those no longer that nobody is about to bind."""
        withdrawn = {uid: one for uid, one in self._announced.items() if one.job in jobs and uid not in but}
        self.extender.change(dict.fromkeys(withdrawn, UNSEEN))
        for uid, one in withdrawn.items():
            one.withdrawn = True
            # Asked after it was refused: who was told before that is known.
            if self.extender.passed_ago_s(uid) > self.binding_s:
                del self._announced[uid]

    def _adopt(self, site: Site) -> None:
        """Hold what a process before this one announced, as long as the scheduler might still follow it."""
        for uid, pod in site.pods.items():
            launch = self.launches.of(pod) if pod.waiting else None
            if launch is not None and launch.node is not None and launch.node in site.nodes:
                binding = Binding(pod, launch.node, launch)
                self._announced[uid] = Announcement(binding, self.extender.clock(), withdrawn=True)
                self.extender.note_passed(uid)
        self._adopted = True

    def _bind(self, binding: Binding) -> None:
        pod = binding.pod
        launch = binding.launch.model_copy(update={"node": binding.node})
        annotations = self.launches.sealed(launch).annotations()
        if any(pod.annotations.get(name) != value for name, value in annotations.items()):
            self.api.annotate(pod.namespace, pod.name, pod.uid, annotations)
