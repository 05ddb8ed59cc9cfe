"""Actions through the default scheduler: we publish the node of a pod, and the scheduler binds it.

An announced pod reserves its GPUs and watts until it is bound, as the scheduler may bind it at any moment. An
announcement is withdrawn if the scheduler does not bind the pod in time, or if its node or its watts are
gone. The reservation lasts a while longer if the scheduler has just read it, and may be about to bind.
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
    """A pod that the scheduler may bind; once withdrawn, only if it read the announcement before."""

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

    A pod that has a node is annotated with how it starts. A restart of ours, and an agent on the node, read
    from that as much as from a binding, and the scheduler tries a pod again that it had put aside.

    Parameters
    ----------
    extender : Extender
    patience_s : float
        Time that the scheduler has to bind a pod.
    binding_s : float
        Longest time from the scheduler's last call about a pod to its binding.
    """

    looks_at_volumes = True
    extender: Extender = field(kw_only=True)
    patience_s: float = field(default=60.0, kw_only=True)
    binding_s: float = field(default=30.0, kw_only=True)
    _announced: dict[str, Announcement] = field(default_factory=dict)
    # Jobs that let others go first, and until when by the extender's clock.
    _aside: dict[str, float] = field(default_factory=dict)
    _adopted: bool = False

    def held(self, site: Site) -> dict[str, Binding]:
        """Return the pods that the scheduler might still bind, and where; they count as bound."""
        if not self._adopted:
            self._adopt(site)
        waiting = {uid for uid, pod in site.pods.items() if pod.waiting}
        self._announced = {uid: one for uid, one in self._announced.items() if uid in waiting}
        self._let_others_first()
        self._withdraw({one.job for one in self._announced.values() if self._is_over(one, site)})
        return {uid: one.binding for uid, one in self._announced.items()}

    def aside(self) -> dict[str, str]:
        """Return the jobs that the scheduler failed to bind in time: others go first for a while."""
        now_s = self.extender.clock()
        self._aside = {name: until_s for name, until_s in self._aside.items() if until_s > now_s}
        return dict.fromkeys(self._aside, "the scheduler did not bind it where it was to go; others go first")

    def _let_others_first(self) -> None:
        """Put jobs aside whose pods the scheduler was told a node of, and did not bind in time."""
        now_s = self.extender.clock()
        for uid, one in self._announced.items():
            age_s = now_s - one.begun_s
            if not one.withdrawn and age_s > self.patience_s and self.extender.told_node_ago_s(uid) <= age_s:
                self._aside[one.job] = now_s + self.binding_s + self.patience_s

    def give_way(self, load: Load, cap_w: Mapping[str, float]) -> bool:
        """Withdraw pods whose GPUs others took, and the newest that exceed the cap; True if any was."""
        nodes = load.site.nodes.values()
        full = {node.name for node in nodes if load.used[node.name] > node.gpus - node.broken}
        standing = [one for one in self._announced.values() if not one.withdrawn]
        names = {one.job for one in standing if one.binding.node in full}
        now_s = self.extender.clock()
        stoppable = list[Stoppable]()
        for one in standing:
            freed_w = load.by_cap(load.added_by_node([one.binding]))
            stoppable.append(Stoppable(one.job, freed_w, one.binding.launch.gpus, now_s - one.begun_s))
        names |= stops_to_fit(over_w(load.without_leaving.drawn_w, caps_w(load, cap_w)), stoppable).keys()
        self._withdraw(names)
        return bool(names)

    def start(self, name: str, bindings: tuple[Binding, ...]) -> tuple[list[Binding], str]:
        """Announce the nodes of a job's pods, all at once; return what was, and which was refused and why."""
        now_s = self.extender.clock()
        self._announced |= {one.pod.uid: Announcement(one, now_s) for one in bindings}
        # Before they are annotated, as the scheduler calls at once.
        self.extender.change({one.pod.uid: Opinion(node=one.host) for one in bindings})
        done = list[Binding]()
        try:
            done, refused = super().start(name, bindings)
            return done, refused
        finally:
            if len(done) < len(bindings):
                self._withdraw({name}, kept={one.pod.uid for one in done})

    def end_round(self, waiting: Mapping[str, KubeJob], why: Mapping[str, str]) -> None:
        """Publish the round's decision on every pod: its node or why it waits, by pod or else by job."""
        waits = {
            pod.uid: Opinion(why=why.get(pod.key) or why.get(job.name, "others go first"))
            for job in waiting.values()
            for pod in job.pods
        }
        places = {
            uid: LAPSED if one.withdrawn else Opinion(node=one.binding.host)
            for uid, one in self._announced.items()
        }
        self.extender.publish(waits | places)

    def _is_over(self, one: Announcement, site: Site) -> bool:
        """True if the announcement was withdrawn, its time is up, or its node takes no pod any more."""
        node = site.nodes.get(one.binding.node)
        late = self.extender.clock() - one.begun_s > self.patience_s
        return one.withdrawn or late or node is None or not node.ready

    def _withdraw(self, jobs: Collection[str], kept: Collection[str] = ()) -> None:
        """Refuse pods of jobs, but for those `kept`; release those that cannot be about to be bound."""
        withdrawn = {uid: one for uid, one in self._announced.items() if one.job in jobs and uid not in kept}
        self.extender.change(dict.fromkeys(withdrawn, UNSEEN))
        for uid, one in withdrawn.items():
            one.withdrawn = True
            # Read after the refusal took effect, so that no later call of the scheduler is missed.
            if self.extender.told_node_ago_s(uid) > self.binding_s:
                del self._announced[uid]

    def _adopt(self, site: Site) -> None:
        """Take over the announcements of an earlier process, as the scheduler might still follow them."""
        for uid, pod in site.pods.items():
            launch = self.launches.of(pod) if pod.waiting else None
            if launch is not None and launch.node is not None and launch.node in site.nodes:
                binding = Binding(pod, launch.node, launch)
                self._announced[uid] = Announcement(binding, self.extender.clock(), withdrawn=True)
                self.extender.note_told_node(uid)  # perhaps just before we began
        self._adopted = True

    def _bind(self, binding: Binding) -> None:
        """Annotate a pod with its sealed launch and node: it is the scheduler that binds it."""
        pod = binding.pod
        launch = binding.launch.model_copy(update={"node": binding.node})
        annotations = self.launches.sealed(launch).annotations()
        if any(pod.annotations.get(name) != value for name, value in annotations.items()):
            self.api.annotate(pod.namespace, pod.name, pod.uid, annotations)
