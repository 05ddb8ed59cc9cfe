"""Actions through the default scheduler: we publish the node of a pod, and the scheduler binds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from wattsched.adapters.kubernetes.actions import Actions
from wattsched.adapters.kubernetes.extender import UNSEEN, Extender, Opinion
from wattsched.adapters.kubernetes.load import Binding
from wattsched.adapters.kubernetes.options import KubeJob


@dataclass
class Announcing(Actions):
    """Actions that bind nothing themselves.

    A pod that has a node is annotated with how it starts. That tells a restart of ours, and an agent on the
    node, as much as a binding does, and the scheduler looks again at a pod that it had put aside.

    Parameters
    ----------
    extender : Extender
    """

    extender: Extender = field(kw_only=True)
    _places: dict[str, Opinion] = field(default_factory=dict)

    def start(self, name: str, bindings: tuple[Binding, ...]) -> tuple[list[Binding], str]:
        """Let the pods of a job pass; none does before all have places."""
        places = {one.pod.uid: Opinion(node=one.node) for one in bindings}
        # Before they are annotated: the scheduler asks at once.
        self.extender.change(places)
        done, refused = super().start(name, bindings)
        passing = {one.pod.uid for one in done}
        self.extender.change({uid: UNSEEN for uid in places if uid not in passing})
        self._places |= {uid: place for uid, place in places.items() if uid in passing}
        return done, refused

    def end_round(self, waiting: Mapping[str, KubeJob], why: Mapping[str, str]) -> None:
        """Publish what the round says of every pod."""
        waits = {
            pod.uid: Opinion(why=why.get(job.name, "others go first"))
            for job in waiting.values()
            for pod in job.pods
        }
        self.extender.publish(waits | self._places)
        self._places = {}

    def _bind(self, binding: Binding) -> None:
        pod, annotations = binding.pod, binding.launch.annotations()
        if any(pod.annotations.get(name) != value for name, value in annotations.items()):
            self.api.annotate(pod.namespace, pod.name, pod.uid, annotations)
