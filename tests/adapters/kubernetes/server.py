"""A stand-in for an API server and its mirror: nodes of eight GPUs, and pods."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

PREFIX, GPU = "wattsched.io/", "nvidia.com/gpu"


def new_node(name: str, *, ready: bool = True, **room: str) -> dict[str, Any]:
    """A node of eight A100 and some other resources."""
    has = {GPU: "8", "pods": "110", **room}
    told = {"type": "Ready", "status": str(ready)}
    about = {"name": name, "uid": name, "labels": {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}}
    status = {"capacity": has, "allocatable": has, "conditions": [told]}
    return {"metadata": about, "spec": {}, "status": status}


def new_pod(
    name: str, gpus: int, namespace: str = "t", scheduler: str = "wattsched", **about: Any
) -> dict[str, Any]:
    """A pod that waits, its name its uid; ``about`` are other metadata."""
    container = {"name": "c", "resources": {"limits": {GPU: str(gpus)}}}
    metadata = {"name": name, "namespace": namespace, "uid": name, "labels": {}, "annotations": {}, **about}
    return {
        "metadata": metadata,
        "spec": {"schedulerName": scheduler, "containers": [container]},
        "status": {},
    }


def gpus_of(found: dict[str, Any], what: str = GPU) -> int:
    """How many GPUs a pod asks for, or how much of something else."""
    return int(found["spec"]["containers"][0]["resources"]["limits"].get(what, 0))


class Server:
    """Nodes and pods by name, and what an API server and its mirror do with them."""

    def __init__(self, *names: str, **room: str) -> None:
        self.nodes = {name: new_node(name, **room) for name in names}
        self.pods: dict[str, dict[str, Any]] = {}
        self.now_s = 1e9

    def look(self) -> dict[str, Any]:
        found = {"nodes": list(self.nodes.values()), "pods": list(self.pods.values())}
        return copy.deepcopy({"time": self.now_s, **found})

    def write_event(self, namespace: str, event: dict[str, Any]) -> None:
        """Events change nothing here."""

    def wait(self, seen: Callable[[Any], bool], timeout_s: float = 0.0) -> bool:
        return seen(self.pods)

    def used(self, what: str = GPU) -> Counter[str]:
        """How much of a resource pods have on each node."""
        found = Counter[str]()
        for one in self.pods.values():
            if where := one["spec"].get("nodeName"):
                found[where] += gpus_of(one, what)
        return found
