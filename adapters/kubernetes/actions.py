"""Actions on pods: bind them, evict them, and report in events why they wait. All are idempotent.

The state is in the API server. A binding writes how the pod was started into the pod's own annotations, so
that one that was cut off is either seen as done, or simply repeated. The journal records actions begun.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, ClassVar

from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.adapters.kubernetes.launches import LAUNCH, WRITTEN, Launches
from wattsched.adapters.kubernetes.load import Binding
from wattsched.adapters.kubernetes.options import KubeJob
from wattsched.adapters.kubernetes.reading import KubePod, Site
from wattsched.adapters.kubernetes.snapshot import Mirror
from wattsched.serve.recorded import RecordedSession

_GONE, _CONFLICT, _NOT_NOW = 404, 409, 429
_SEEN_S = 5.0
"""Seconds within which the watch has to show what was done."""


def _event(pod: KubePod, reason: str) -> dict[str, Any]:
    """Event of the API that says why a pod waits."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    about = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return {
        "metadata": {"name": f"{pod.name[:230].rstrip('-.')}.{time.time_ns():x}", "namespace": pod.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
        "type": "Normal",
        "reason": "Waits",
        "message": f"waits: {reason}",
        "source": {"component": "wattsched"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


@dataclass
class Actions:
    """Actions on a real cluster; its mirror shows their effects after a moment.

    Attributes
    ----------
    looks_at_volumes : bool
        True if the component that binds pods checks their volumes.
    number : int
        Number of the round, which distinguishes attempts in the journal.
    """

    looks_at_volumes: ClassVar[bool] = False

    api: Api
    mirror: Mirror
    journal: RecordedSession
    launches: Launches = field(default_factory=Launches)
    number: int = 0
    # By uid: pods that were changed, which the watch has not shown yet.
    _unseen: dict[str, KubePod] = field(default_factory=dict)

    def start(self, name: str, bindings: tuple[Binding, ...]) -> tuple[list[Binding], str]:
        """Bind pods of a job; return the bindings, and which were refused and why, empty where all are bound.

        If the first one is refused none is bound; after that, all others are tried. No answer, so that the
        outcome is unknown, is a `KubernetesError`.
        """
        about = {
            "action": "start",
            "job": name,
            "pods": {one.pod.key: one.node for one in bindings},
            "launch": bindings[0].launch.model_dump(exclude_none=True, exclude={"uid"}),
        }
        bound, refused = list[Binding](), list[str]()
        with self.journal.acting(self._key(bindings[0].pod, "start"), about, starts=True) as found:
            for one in bindings:
                try:
                    self._bind(one)
                    bound.append(one)
                except KubernetesError as error:
                    if not error.certain:
                        raise
                    refused.append(f"{one.pod.key}: {error}")
                    if not bound:
                        break
            found["outcome"] = "; ".join(refused) or "done"
        return bound, "; ".join(refused)

    def _key(self, pod: KubePod, kind: str) -> str:
        return f"{pod.uid}-{kind}-round{self.number}-{time.time_ns()}"

    def _bind(self, binding: Binding) -> None:
        """Bind a pod, and annotate it with its sealed launch, in one step."""
        pod = binding.pod
        self._unseen[pod.uid] = pod
        try:
            launch = self.launches.sealed(binding.launch)
            self.api.bind(pod.namespace, pod.name, pod.uid, binding.host, launch.annotations())
        except KubernetesError as error:
            if error.certain:
                del self._unseen[pod.uid]
            raise

    def held(self, site: Site) -> Mapping[str, Binding]:
        """Return pods that count as bound before they are, by uid: none, as we bind them ourselves."""
        return {}

    def aside(self) -> Mapping[str, str]:
        """Return jobs that are excluded now, and why: none, as a refused binding is reported at once."""
        return {}

    def give_way(self, load: Any, cap_w: Mapping[str, float]) -> bool:
        """Withdraw pods that may start but no longer fit GPUs or caps; True if any was."""
        return False

    def end_round(self, waiting: Mapping[str, KubeJob], why: Mapping[str, str]) -> None:
        """Publish the decision on pods that wait: to nobody, as we bind them ourselves."""

    def write_reason(self, pod: KubePod, reason: str) -> bool:
        """Write an event that says why a pod waits; False where the API server did not answer."""
        try:
            self.api.write_event(pod.namespace, _event(pod, reason))
        except KubernetesError as error:
            return error.certain
        return True

    def guarded(self, job: KubeJob) -> str:
        """Return why a dry run refuses to evict a job as a whole; '' where it does not."""
        return "; ".join(refused for pod in job.pods if (refused := self._evict(pod, dry_run=True)))

    def stop(self, job: KubeJob, why: str) -> str:
        """Evict the pods of a job, all or none as far as a dry run can tell; '' or the refusals."""
        about = {"action": "stop", "job": job.name, "pods": [pod.key for pod in job.pods], "why": why}
        with self.journal.acting(self._key(job.pods[0], "stop"), about) as found:
            refused = self.guarded(job) if len(job.pods) > 1 else ""
            if not refused:
                refused = "; ".join(text for pod in job.pods if (text := self._evict(pod)))
            found["outcome"] = refused or "done"
        return refused

    def give_back(self, pods: Iterable[KubePod]) -> dict[str, str]:
        """Take what we wrote off pods, and return them, with why that was refused, '' where it was not."""
        found = dict[str, str]()
        for pod in pods:
            written = WRITTEN & pod.annotations.keys()
            if LAUNCH in written:
                with self.journal.acting(self._key(pod, "give back"), {"pod": pod.key}) as done:
                    try:
                        self.api.annotate(pod.namespace, pod.name, pod.uid, dict.fromkeys(written))
                        found[pod.key] = ""
                    except KubernetesError as error:
                        found[pod.key] = str(error)
                    done["outcome"] = found[pod.key] or "done"
        return found

    def _evict(self, pod: KubePod, *, dry_run: bool = False) -> str:
        """Evict a pod, or ask whether that would be done; '' or why not."""
        try:
            self.api.evict(pod.namespace, pod.name, pod.uid, dry_run=dry_run)
            if not dry_run:
                self._unseen[pod.uid] = pod
        except KubernetesError as error:
            if not error.certain:
                raise
            # It has gone by itself, or another one has its name.
            if error.status not in (_GONE, _CONFLICT):
                text = "a disruption budget forbids it now" if error.status == _NOT_NOW else str(error)
                return f"{pod.key}: {text}"
        return ""

    def wait_until_seen(self) -> None:
        """Wait until the watch shows what was done; a `KubernetesError` where it does not."""
        for uid, pod in list(self._unseen.items()):
            if not self.mirror.wait(partial(_is_changed, uid), _SEEN_S):
                found = self.api.pod(pod.namespace, pod.name)
                if found is not None and found["metadata"]["uid"] == uid and _is_changed(uid, {uid: found}):
                    why = f": {fault}" if (fault := self.mirror.fault) else ""
                    raise KubernetesError(f"the watch lags behind what was done{why}")
                # It was not done, or another pod has its name: the watch will tell.
            del self._unseen[uid]


def _is_changed(uid: str, pods: Mapping[str, Any]) -> bool:
    """True if a pod of the API's pods, by uid, is bound, deleted, or gone."""
    found = pods.get(uid)
    return found is None or bool(found["spec"].get("nodeName") or found["metadata"].get("deletionTimestamp"))
