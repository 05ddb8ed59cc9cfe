"""Snapshots of the API, saved and read again: nodes and pods as ``kubectl`` prints them, without secrets."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wattsched.instances.errors import InputError
from wattsched.instances.io import read_json, write_atomically

Snapshot = dict[str, Any]
"""``time`` in seconds since 1970, and objects of the API: ``nodes`` and ``pods``."""

_KEPT = {
    "metadata": ("name", "namespace", "uid", "labels", "creationTimestamp", "deletionTimestamp"),
    "spec": (
        "nodeName",
        "schedulerName",
        "nodeSelector",
        "affinity",
        "tolerations",
        "topologySpreadConstraints",
        "schedulingGates",
        "overhead",
        "activeDeadlineSeconds",
        "unschedulable",
        "taints",
    ),
    "status": ("phase", "startTime", "allocatable", "capacity"),
}
"""Fields of objects that snapshots in files keep: nothing that could be secret."""


def load(path: str | Path) -> Snapshot:
    """Read a saved snapshot, or what ``kubectl get nodes,pods -A -o json`` printed.

    Raises
    ------
    InputError
        Where the file is none.
    """
    document = read_json(path)
    items = document.get("items") if isinstance(document, dict) else None
    if not isinstance(items, list) or not all(isinstance(one, dict) for one in items):
        raise InputError(
            ["is no list of nodes and pods as 'kubectl get nodes,pods -A -o json' prints"], str(path)
        )
    time_s = document.get("time", time.time())
    if isinstance(time_s, bool) or not isinstance(time_s, int | float):
        raise InputError(["time: must be seconds since 1970"], str(path))
    kinds = {kind: [one for one in items if one.get("kind") == kind] for kind in ("Node", "Pod")}
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
    kept = {part: _some(found.get(part) or {}, *names) for part, names in _KEPT.items()}
    metadata, spec, status = (found.get(part) or {} for part in _KEPT)
    annotations = metadata.get("annotations") or {}
    if own := [name for name in annotations if name.startswith("wattsched.io/")]:
        kept["metadata"]["annotations"] = _some(annotations, *own)
    for name in ("containers", "initContainers"):
        if spec.get(name):
            kept["spec"][name] = [
                _some(one, "name", "resources", "restartPolicy") | _host_ports(one) for one in spec[name]
            ]
    kinds = ("persistentVolumeClaim", "ephemeral")
    volumes = spec.get("volumes") or []
    volumes = [{kind: {} for kind in kinds if one.get(kind) is not None} for one in volumes]
    if any(volumes):
        kept["spec"]["volumes"] = volumes
    if ready := [one for one in status.get("conditions") or [] if one.get("type") == "Ready"]:
        kept["status"]["conditions"] = [_some(one, "type", "status") for one in ready]
    return kept


def _host_ports(container: Mapping[str, Any]) -> dict[str, Any]:
    ports = [port for port in container.get("ports") or [] if port.get("hostPort")]
    return {"ports": [_some(port, "hostPort", "protocol") for port in ports]} if ports else {}


def _some(found: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return those fields of an object that are not empty."""
    return {name: value for name in names if (value := found.get(name)) not in (None, {}, [])}
