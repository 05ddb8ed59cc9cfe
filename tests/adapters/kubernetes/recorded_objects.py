"""Objects of the API as kubectl prints them: nodes, pods, and workloads of Kueue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from wattsched.adapters.kubernetes.trace import GROUPS

BEGIN_S, NOW_S = 1_800_000_000, 1_800_010_000
KEYS = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
LABELS = {"nvidia": "nvidia.com/gpu.product", "amd": "amd.com/gpu.product-name"}


def time_of(offset_s: int) -> str:
    return datetime.fromtimestamp(BEGIN_S + offset_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str, product: str, gpus: int = 8, vendor: str = "nvidia") -> dict[str, Any]:
    status = {"capacity": {KEYS[vendor]: str(gpus)}, "allocatable": {KEYS[vendor]: str(gpus)}}
    status |= {"conditions": [{"type": "Ready", "status": "True"}]}
    labels = {LABELS[vendor]: product, "topology.kubernetes.io/rack": f"r{name[-1]}"}
    return {"kind": "Node", "metadata": {"name": name, "labels": labels}, "status": status}


def container(gpus: int, vendor: str = "nvidia") -> dict[str, Any]:
    return {"name": "main", "resources": {"limits": {KEYS[vendor]: str(gpus)} if gpus else {}}}


def pod(
    name: str, gpus: int, start_s: int | None, end_s: int | None, group: str = "", vendor: str = "nvidia"
) -> dict[str, Any]:
    labels = {GROUPS[-1]: group} if group else {}
    status: dict[str, Any] = {"phase": "Pending"}
    if start_s is not None:
        status = {"phase": "Running", "startTime": time_of(start_s), "containerStatuses": [{"state": {}}]}
    if end_s is not None:
        ended = {"terminated": {"finishedAt": time_of(end_s)}}
        status |= {"phase": "Succeeded", "containerStatuses": [{"state": ended}]}
    spec = {"containers": [container(gpus, vendor)]} | ({} if start_s is None else {"nodeName": "n1"})
    metadata = {"name": name, "namespace": "team", "labels": labels, "creationTimestamp": time_of(0)}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def owned(document: dict[str, Any], kind: str, name: str) -> dict[str, Any]:
    owner = {"kind": kind, "name": name, "uid": f"{kind}-{name}", "controller": True}
    return {**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}}


def condition(kind: str, offset_s: int, reason: str = "") -> dict[str, Any]:
    return {"type": kind, "status": "True", "reason": reason, "lastTransitionTime": time_of(offset_s)}


def workload(name: str, sets: list[tuple[str, int, int]], conditions: Any, **status: Any) -> dict[str, Any]:
    """A workload of Kueue with sets of pods: name, count, and GPUs of each pod."""
    made = [
        {"name": of, "count": number, "template": {"spec": {"containers": [container(gpus)]}}}
        for of, number, gpus in sets
    ]
    return {
        "kind": "Workload",
        "metadata": {"name": name, "namespace": "team", "creationTimestamp": time_of(0)},
        "spec": {"queueName": "lq", "podSets": made},
        "status": {"conditions": conditions, **status},
    }


def cut(document: dict[str, Any], **numbers: int) -> dict[str, Any]:
    """A node or pod with so many GPUs by resource: whole ones as `gpu`, slices as `s1g_10gb`."""
    named = {f"nvidia.com/{'gpu' if name == 'gpu' else f'mig-{name[1:]}'}": n for name, n in numbers.items()}
    texts = {name.replace("_", "."): str(number) for name, number in named.items()}
    if document["kind"] == "Node":
        return {**document, "status": {**document["status"], "capacity": texts, "allocatable": texts}}
    return {**document, "spec": {**document["spec"], "containers": [{"resources": {"limits": texts}}]}}


def made(document: dict[str, Any], uid: str, offset_s: int = 0, version: int | None = None) -> dict[str, Any]:
    told = {"uid": uid, "creationTimestamp": time_of(offset_s)}
    told |= {} if version is None else {"resourceVersion": str(version)}
    return {**document, "metadata": {**document["metadata"], **told}}
