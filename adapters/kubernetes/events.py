"""Events of pods that wait, where ``kubectl describe pod`` shows them: the reason of each, when it is new."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.adapters.kubernetes.options import KubeJob
from wattsched.adapters.kubernetes.reading import KubePod

_MOST, _AGAIN_S = 20, 60.0
"""Events of a round at most, as they take its time, and seconds until another reason of the same pod."""
_LONGEST = 1000
"""Characters of a message; the API takes 1024."""


@dataclass
class Events:
    """What pods were told of why they wait.

    Parameters
    ----------
    api : Api
    """

    api: Api
    _told: dict[str, tuple[str, float]] = field(default_factory=dict)

    def tell(self, waiting: Mapping[str, KubeJob], why: Mapping[str, str]) -> None:
        """Write events of jobs that have another reason to wait than was told; refused ones are left out."""
        pods = {pod.uid: (pod, why[name]) for name, job in waiting.items() if name in why for pod in job.pods}
        self._told = {uid: told for uid, told in self._told.items() if uid in pods}
        now_s, left = time.monotonic(), _MOST
        for uid, (pod, reason) in pods.items():
            before, then_s = self._told.get(uid, ("", -_AGAIN_S))
            if not left or reason == before or now_s < then_s + _AGAIN_S:
                continue
            left -= 1
            try:
                self.api.write_event(pod.namespace, _event(pod, reason))
            except KubernetesError as error:
                if not error.certain:
                    return
            self._told[uid] = reason, now_s


def _event(pod: KubePod, reason: str) -> dict[str, Any]:
    moment = datetime.now(UTC)
    told = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return {
        "metadata": {"name": f"{pod.name[:230].rstrip('-.')}.{time.time_ns():x}", "namespace": pod.namespace},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": pod.namespace,
            "name": pod.name,
            "uid": pod.uid,
        },
        "type": "Normal",
        "reason": "Waits",
        "message": f"waits, {reason}"[:_LONGEST],
        "source": {"component": "wattsched"},
        "firstTimestamp": told,
        "lastTimestamp": told,
        "count": 1,
    }
