"""Nodes and pods as the API server has them, kept current by watches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.adapters.kubernetes.snapshot import Snapshot

_LONGEST_PAUSE_S, _TIMEOUT_S = 3.0, 10.0
_GONE = 410


@dataclass
class Watched:
    """Objects of one kind: listed once, then watched; listed anew where the watch is too old (410).

    Attributes
    ----------
    objects : dict of str to dict
        By uid.
    version : str
        Of the last event; empty where all have to be listed.
    error : KubernetesError, optional
        Why the watch does not stand now.
    """

    api: Api
    method: Callable[..., Any]
    changed: threading.Condition
    objects: dict[str, Any] = field(default_factory=dict)
    version: str = ""
    error: KubernetesError | None = field(
        default_factory=lambda: KubernetesError("the API server has not answered yet")
    )

    def follow(self, stop: threading.Event) -> None:
        """List, and watch, until `stop` is set."""
        pause_s = 0.0
        while not stop.wait(pause_s):
            try:
                if not self.version:
                    self._list()
                for event in self.api.watched(self.method, self.version):
                    self._apply(event)
                    if stop.is_set():
                        return
                pause_s = 0.0
            except KubernetesError as error:
                gone = error.status == _GONE
                with self.changed:
                    self.version = "" if gone else self.version
                    self.error = error
                    self.changed.notify_all()
                pause_s = 0.0 if gone and not pause_s else min(_LONGEST_PAUSE_S, 2 * pause_s + 0.1)

    def _list(self) -> None:
        found, version = self.api.listed(self.method)
        with self.changed:
            self.objects = {one["metadata"]["uid"]: one for one in found}
            self.version = version

    def _apply(self, event: Mapping[str, Any]) -> None:
        kind, found = event.get("type"), event.get("object") or {}
        with self.changed:
            self.error = None
            if kind == "DELETED":
                self.objects.pop(found["metadata"]["uid"], None)
            elif kind in ("ADDED", "MODIFIED"):
                self.objects[found["metadata"]["uid"]] = found
            if found:
                self.version = found["metadata"]["resourceVersion"]
            self.changed.notify_all()


class Mirror:
    """Nodes and pods, each with a thread that watches them.

    Parameters
    ----------
    api : Api
    """

    def __init__(self, api: Api) -> None:
        self._changed, self._stop = threading.Condition(), threading.Event()
        self.nodes = Watched(api, api.core.list_node, self._changed)
        self.pods = Watched(api, api.core.list_pod_for_all_namespaces, self._changed)
        self._api = api
        self._threads = [
            threading.Thread(target=one.follow, args=(self._stop,), daemon=True)
            for one in (self.nodes, self.pods)
        ]
        for thread in self._threads:
            thread.start()

    def snapshot(self, timeout_s: float = _TIMEOUT_S) -> Snapshot:
        """Return the nodes and pods that there are now, as soon as both watches stand.

        Raises
        ------
        KubernetesError
            Where they do not in time; what was there before is not believed then.
        """
        if not self.wait(lambda _: True, timeout_s):
            raise self.fault or KubernetesError("the API server does not answer")
        with self._changed:
            nodes, pods = list(self.nodes.objects.values()), list(self.pods.objects.values())
        return {"time": time.time(), "nodes": nodes, "pods": pods}

    def wait(self, seen: Callable[[Mapping[str, Any]], bool], timeout_s: float = _TIMEOUT_S) -> bool:
        """Wait until the watches stand and the pods, by uid, are as a function says; whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self.fault is None and seen(self.pods.objects), timeout_s)

    def close(self) -> None:
        """End the watches, and their threads: one that still waits when the interpreter ends aborts it."""
        self._stop.set()
        self._api.end_watches()
        for thread in self._threads:
            thread.join()

    @property
    def fault(self) -> KubernetesError | None:
        """Fault for which a watch does not stand now; None where both do."""
        return self.nodes.error or self.pods.error
