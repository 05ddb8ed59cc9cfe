"""Nodes and pods as the API server has them: asked for, kept current by watches, saved and read again."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from wattsched.adapters.kubernetes.api import Api, KubernetesError
from wattsched.adapters.kubernetes.objects import with_kinds
from wattsched.instances.errors import InputError, sourced
from wattsched.instances.io import read_json, write_atomically

Snapshot = dict[str, Any]
"""``time`` in seconds since 1970, and objects of the API: ``nodes`` and ``pods``."""

_LONGEST_PAUSE_S, _TIMEOUT_S = 3.0, 10.0
_GONE = 410

_KEPT = {
    "metadata": (
        *("name", "namespace", "uid", "resourceVersion", "labels", "creationTimestamp", "deletionTimestamp"),
        "ownerReferences",
    ),
    "spec": (
        *("nodeName", "schedulerName", "nodeSelector", "affinity", "tolerations", "schedulingGates"),
        *("topologySpreadConstraints", "overhead", "activeDeadlineSeconds", "unschedulable", "taints"),
        *("resources", "resourceClaims"),
    ),
    "status": ("phase", "startTime", "allocatable", "capacity"),
}
"""Fields of objects that snapshots in files keep: nothing that could be secret."""
_CONDITIONS = ("Ready", "PodScheduled", "DisruptionTarget")


def take(api: Api) -> Snapshot:
    """Ask for all that a round needs, once; no answer is a `KubernetesError`, never an empty cluster."""
    nodes, _ = api.listed(api.core.list_node)
    pods, _ = api.listed(api.core.list_pod_for_all_namespaces)
    return {"time": time.time(), "nodes": nodes, "pods": pods}


def load(path: str | Path) -> Snapshot:
    """Read a saved snapshot, or what ``kubectl get nodes,pods -A -o json`` printed."""
    document = read_json(path)
    with sourced(str(path)):
        items = with_kinds(document)
    time_s = document.get("time", time.time())
    if isinstance(time_s, bool) or not isinstance(time_s, int | float):
        raise InputError(["time: must be seconds since 1970"], str(path))
    kinds = {kind: [one for one in items if one["kind"] == kind] for kind in ("Node", "Pod")}
    return {"time": float(time_s), "nodes": kinds["Node"], "pods": kinds["Pod"]}


def save(path: str | Path, snapshot: Snapshot) -> None:
    """Write a snapshot in one step, without what is not looked at."""
    items = [
        {"apiVersion": "v1", "kind": kind, **_pruned(one)}
        for kind, found in (("Node", snapshot["nodes"]), ("Pod", snapshot["pods"]))
        for one in found
    ]
    document = {"apiVersion": "v1", "kind": "List", "time": snapshot["time"], "items": items}
    write_atomically(path, (json.dumps(document, indent=1) + "\n").encode())


def _pruned(found: Mapping[str, Any]) -> dict[str, Any]:
    """Node or pod of the API with no more than is looked at: nothing that could be secret."""
    kept = {part: _some(found.get(part) or {}, *names) for part, names in _KEPT.items()}
    metadata, spec, status = (found.get(part) or {} for part in _KEPT)
    annotations = metadata.get("annotations") or {}
    if own := [name for name in annotations if name.startswith("wattsched.io/")]:
        kept["metadata"]["annotations"] = _some(annotations, *own)
    for name in ("containers", "initContainers"):
        if spec.get(name):
            fields = ("name", "resources", "restartPolicy")
            kept["spec"][name] = [_some(one, *fields) | _host_ports(one) for one in spec[name]]
    kinds = ("persistentVolumeClaim", "ephemeral")
    volumes = spec.get("volumes") or []
    volumes = [{kind: {} for kind in kinds if one.get(kind) is not None} for one in volumes]
    if any(volumes):
        kept["spec"]["volumes"] = volumes
    if known := [one for one in status.get("conditions") or [] if one.get("type") in _CONDITIONS]:
        kept["status"]["conditions"] = [_some(one, "type", "status", "lastTransitionTime") for one in known]
    return kept


def _host_ports(container: Mapping[str, Any]) -> dict[str, Any]:
    ports = [port for port in container.get("ports") or [] if port.get("hostPort")]
    return {"ports": [_some(port, "hostPort", "protocol") for port in ports]} if ports else {}


def _some(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return those fields of an object that are not empty."""
    return {name: value for name in names if (value := found.get(name)) not in (None, {}, [])}


@dataclass
class Watched:
    """Objects of one kind, by uid: listed once, then watched; listed anew where the watch is too old (410).

    The version is that of the last event; `error` says why the watch does not stand now.
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
                # A version too old is mended at once by a list, but not again and again.
                pause_s = 0.0 if gone and not pause_s else min(_LONGEST_PAUSE_S, 2 * pause_s + 0.1)

    def _list(self) -> None:
        found, version = self.api.listed(self.method)
        with self.changed:
            self.objects = {one["metadata"]["uid"]: one for one in found}
            self.version = version

    def _apply(self, event: Mapping[str, Any]) -> None:
        """Change the objects by an event; an empty one says that the watch stands."""
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
    """Nodes and pods, each with a thread that watches them."""

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
        """Return the nodes and pods that there are now, as soon as both watches stand."""
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
