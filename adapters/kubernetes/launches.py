"""Settings with which we started pods: annotated, sealed and remembered, so that nobody else changes them.

A pod's annotations can be written by whoever may change the pod. So each launch is sealed with a key that
only we have, and one that is gone or forged later changes nothing while we run.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from secrets import token_bytes
from typing import Any

from pydantic import Field

from wattsched.adapters.kubernetes.reading import PREFIX, KubePod
from wattsched.adapters.options import Launched
from wattsched.instances.errors import InputError, validated
from wattsched.instances.io import write_atomically
from wattsched.instances.sizing.option_rows import SETTINGS
from wattsched.reading.inputs import open_file
from wattsched.serve.permissions import FILE, keep_private
from wattsched.topology.fields import Count, Name, Positive

LAUNCH = f"{PREFIX}launch"
"""Annotation that we bind a pod with: how it was started, all that a restart of ours needs to know."""

_KEY_BYTES = 32


def annotation(field: str) -> str:
    """Annotation of a field: ``wattsched.io/remaining-work`` for ``remaining_work``."""
    return PREFIX + field.replace("_", "-")


# Settings are annotations of their own, too, for containers; agents on nodes read the launch.
WRITTEN = {LAUNCH, *map(annotation, SETTINGS)}
"""Annotations of ours on pods that were started."""


class Launch(Launched):
    """Settings with which we started a pod.

    Attributes
    ----------
    uid : str
        Of the pod, as another one may have its name later.
    gpus, power_w
        Of the pod; of its gang it has an equal part.
    rate : float
        Of its job.
    gang : dict of str to int
        Pods of its gang by node, as they were to be bound.
    node : str
        Where another scheduler was told to bind it.
    node_seal : str, optional
        By which an agent on the node knows that we wrote the settings of its GPUs.
    seal : str
        By which we know that we wrote it, see `Launches`.
    """

    uid: str
    rate: Positive = 1.0
    gang: dict[Name, Count] | None = None
    node: Name | None = None
    node_seal: str | None = None
    seal: str = Field("", pattern="^[0-9a-f]*$")

    def annotations(self) -> dict[str, str]:
        """Annotations to bind with."""
        settings = {annotation(name): f"{value:g}" for name, value in self.settings.items()}
        return {LAUNCH: json.dumps(self.model_dump(exclude_none=True)), **settings}


def key_beside(journal: str | Path) -> bytes:
    """Read the key of a journal, ``JOURNAL-key``, which is made for its owner alone where it is not there."""
    path = Path(f"{journal}-key")
    try:
        if os.path.lexists(path):
            keep_private(path)
        else:
            write_atomically(path, token_bytes(_KEY_BYTES), mode=FILE)
        return key_in(path)
    except OSError as error:
        raise InputError([f"cannot be used: {(error.strerror or str(error)).lower()}"], str(path)) from None


def key_in(path: str | Path) -> bytes:
    """Read the key in a file."""
    with open_file(path) as file:
        key = file.read()
    if len(key) != _KEY_BYTES:
        raise InputError([f"must have {_KEY_BYTES} bytes, has {len(key)}"], str(path))
    return key


class Launches:
    """Launches of pods by uid, each as we wrote it; without a key every launch is believed, as in shadow.

    Agents on nodes have the `node_key` alone: it seals no watts, so that nobody on a node can forge these.
    """

    def __init__(self, key: bytes | None = None, node_key: bytes | None = None) -> None:
        self._key, self._node_key, self._known = key, node_key, dict[str, Launch]()

    def sealed(self, launch: Launch) -> Launch:
        """Seal a launch that is to be written, and remember it."""
        for_node = launch.model_dump(include={"uid", "frequency_mhz", "power_limit_w"}, exclude_none=True)
        launch = launch.model_copy(update={"node_seal": _hmac(self._node_key, for_node) or None})
        sealed = launch.model_copy(update={"seal": self._seal(launch)})
        self._known[launch.uid] = sealed
        return sealed

    def of(self, pod: KubePod) -> Launch | None:
        """Return how we started a pod, or announced its start; None where we did not."""
        launch = self._known.get(pod.uid) or self._stated(pod)
        if launch is None or launch.gpus != pod.gpus or (not pod.node and launch.node is None):
            return None
        self._known[pod.uid] = launch
        return launch

    def forget(self, present: Collection[str]) -> None:
        """Forget all but the pods with these uids."""
        self._known = {uid: launch for uid, launch in self._known.items() if uid in present}

    def _stated(self, pod: KubePod) -> Launch | None:
        """Launch that a pod's annotation states; None unless we sealed it for this pod."""
        try:
            launch = validated(Launch, json.loads(pod.annotations.get(LAUNCH, "null")))
        except (ValueError, RecursionError, InputError):
            return None
        own = self._key is None or hmac.compare_digest(launch.seal, self._seal(launch))
        return launch if own and launch.uid == pod.uid else None

    def _seal(self, launch: Launch) -> str:
        """HMAC of a launch by our key."""
        return _hmac(self._key, launch.model_dump(exclude_none=True, exclude={"seal"}))


def _hmac(key: bytes | None, document: Mapping[str, Any]) -> str:
    """HMAC of a document by a key, in hexadecimal; empty without a key."""
    said = json.dumps(document, sort_keys=True).encode()
    return "" if key is None else hmac.new(key, said, hashlib.sha256).hexdigest()
