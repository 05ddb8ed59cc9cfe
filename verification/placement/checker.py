"""Checks the placements of a window and recomputes what they cost, from the two of them alone."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from wattsched.instances.placement.instance import REJECTED, WHOLE_GPU, Placements, Window


@dataclass(frozen=True)
class PlacementReport:
    """What a decision is.

    Attributes
    ----------
    faults : tuple of str
        Why the decision is impossible; the numbers mean nothing then.
    power_w, fragmentation_milli : float
        Change of the cluster's power and fragmentation.
    rejected : int
        Tasks that are placed nowhere.
    refused : int
        Those of them that would have fitted on some node as it was.
    objective : float
        The window's objective.
    """

    faults: tuple[str, ...]
    power_w: float
    fragmentation_milli: float
    rejected: int
    refused: int
    objective: float


def check_placements(window: Window, placements: Placements) -> PlacementReport:
    """Check a decision and recompute its objective, one node after the other."""
    faults = _shape_faults(window, placements)
    if faults:
        return PlacementReport(tuple(faults), math.nan, math.nan, 0, 0, math.nan)
    tasks_of: dict[int, list[int]] = {}
    for task, node in enumerate(placements.node.tolist()):
        tasks_of.setdefault(node, []).append(task)
    rejected = tasks_of.pop(REJECTED, [])
    power_w = fragmentation_milli = 0.0
    for node, hosted in sorted(tasks_of.items()):
        before = _Node(window, node)
        after = _Node(window, node)
        for task in hosted:
            faults += after.host(task, placements.gpus[task].nonzero()[0].tolist())
        power_w += after.power_w() - before.power_w()
        fragmentation_milli += after.fragmentation_milli() - before.fragmentation_milli()
    refused = [task for task in rejected if _fits_somewhere(window, task)]
    objective = (
        window.alpha * power_w / window.power_ref_w
        + (1.0 - window.alpha) * fragmentation_milli / window.fragmentation_ref_milli
        + math.fsum(window.rejection_w[task] for task in refused) / window.power_ref_w
    )
    return PlacementReport(
        tuple(faults), power_w, fragmentation_milli, len(rejected), len(refused), objective
    )


def _shape_faults(window: Window, placements: Placements) -> list[str]:
    tasks, nodes = len(window.tasks), len(window.nodes)
    if placements.node.shape != (tasks,) or placements.gpus.shape[:1] != (tasks,):
        return [f"the window has {tasks} tasks, the decision {len(placements.node)}"]
    if placements.gpus[placements.rejected].any():
        return ["a rejected task has GPUs"]
    outside = [n for n in placements.node.tolist() if n != REJECTED and not 0 <= n < nodes]
    return [f"there is no node at position {outside[0]}"] if outside else []


class _Node:
    """A node while tasks come onto it."""

    def __init__(self, window: Window, position: int) -> None:
        self._window, self._position = window, position
        nodes = window.nodes
        self._name, self._model = nodes.names[position], nodes.models[nodes.model[position]]
        self._cpu_milli = int(window.cpu_free_milli[position])
        self._memory_mib = int(window.memory_free_mib[position])
        self._gpus = window.gpu_free_milli[position, : nodes.gpus[position]].tolist()

    def host(self, task: int, gpus: list[int]) -> Iterable[str]:
        """Take a task, and tell what is wrong with that."""
        tasks, told = self._window.tasks, f"task {task} on node '{self._name}'"
        cpu_milli, memory_mib = int(tasks.cpu_milli[task]), int(tasks.memory_mib[task])
        count, milli = int(tasks.gpus[task]), int(tasks.gpu_milli[task])
        models = tasks.specs[tasks.spec[task]]
        if count and models and self._model not in models:
            yield f"{told}: it may not use the GPU model {self._model}"
        if len(gpus) != count:
            yield f"{told}: it asks for {count} GPUs and has {len(gpus)}"
        if any(gpu >= len(self._gpus) for gpu in gpus):
            yield f"{told}: the node has only {len(self._gpus)} GPUs"
            return
        self._cpu_milli -= cpu_milli
        self._memory_mib -= memory_mib
        for gpu in gpus:
            self._gpus[gpu] -= milli
        if self._cpu_milli < 0:
            yield f"{told}: the CPU is {-self._cpu_milli} thousandths of a vCPU short"
        if self._memory_mib < 0:
            yield f"{told}: the memory is {-self._memory_mib} MiB short"
        for gpu in gpus:
            if self._gpus[gpu] < 0:
                yield f"{told}: GPU {gpu} is {-self._gpus[gpu]} thousandths short"

    def power_w(self) -> float:
        """Power of GPUs, full when anything is on them, and of CPU packages, by whole busy cores."""
        power, at = self._window.power, self._position
        watts = 0
        for free in self._gpus:
            watts += int(power.gpu_idle_w[at] if free == WHOLE_GPU else power.gpu_full_w[at])
        cores = math.ceil(int(self._window.nodes.cpu_milli[at]) / 2000)
        busy = cores - self._cpu_milli // 2000
        packages = math.ceil(cores / int(power.package_cores[at]))
        active = math.ceil(busy / int(power.package_cores[at]))
        watts += active * int(power.package_full_w[at]) + (packages - active) * int(power.package_idle_w[at])
        return float(watts)

    def fragmentation_milli(self) -> float:
        """Free GPU that the classes of the target workload cannot use, weighted by their shares."""
        target = self._window.target
        everything = sum(self._gpus)
        total = 0
        for cls, weight in enumerate(target.count.tolist()):
            classes = target.classes
            count, milli = int(classes.gpus[cls]), int(classes.gpu_milli[cls])
            models = classes.specs[classes.spec[cls]]
            runs = count > 0 and (not models or self._model in models)
            runs = runs and self._cpu_milli >= int(classes.cpu_milli[cls])
            runs = runs and sum(free >= milli for free in self._gpus) >= count
            total += weight * (sum(free for free in self._gpus if free < milli) if runs else everything)
        return total / int(target.count.sum())


def _fits_somewhere(window: Window, task: int) -> bool:
    """Whether a task fits on some node of the window as it is, alone."""
    tasks, nodes = window.tasks, window.nodes
    count, milli = int(tasks.gpus[task]), int(tasks.gpu_milli[task])
    models = tasks.specs[tasks.spec[task]]
    for node in range(len(nodes)):
        if window.cpu_free_milli[node] < tasks.cpu_milli[task]:
            continue
        if window.memory_free_mib[node] < tasks.memory_mib[task]:
            continue
        if count and models and nodes.models[nodes.model[node]] not in models:
            continue
        free = window.gpu_free_milli[node, : nodes.gpus[node]].tolist()
        if sum(milli <= one for one in free) >= count:
            return True
    return False
