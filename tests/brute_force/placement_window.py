"""Optimum of a small placement window by trying every node and GPU of every task, with scalars only.

Shares nothing with the package but the values of a window: the power of a node, its fragments
and the objective are worked out here once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from math import ceil, inf

from wattsched.instances.placement.instance import Window

IDLE_AND_FULL_W = {"T4": (10, 70), "P100": (25, 250), "G2": (30, 150), "G3": (50, 400)}
PACKAGE_IDLE_W, PACKAGE_FULL_W, PACKAGE_VCPUS = 15, 120, 32


@dataclass(frozen=True)
class Task:
    """What a task asks for."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: frozenset[str]


@dataclass(frozen=True)
class Node:
    """What is free on a node."""

    model: str
    vcpus: float
    cpu: int
    memory: int
    gpus: tuple[int, ...]

    def ways(self, task: Task) -> Iterator[Node]:
        """The node after the task has come, for every choice of GPUs."""
        if task.cpu > self.cpu or task.memory > self.memory:
            return
        if task.gpus and task.models and self.model not in task.models:
            return
        roomy = [g for g, free in enumerate(self.gpus) if free >= task.milli]
        for chosen in combinations(roomy, task.gpus):
            gpus = tuple(free - task.milli * (g in chosen) for g, free in enumerate(self.gpus))
            yield replace(self, cpu=self.cpu - task.cpu, memory=self.memory - task.memory, gpus=gpus)

    def power_w(self) -> int:
        """Watts of GPUs and packages."""
        idle, full = IDLE_AND_FULL_W[self.model]
        cores = ceil(self.vcpus / 2)
        free_cores = self.cpu // 2000
        packages = ceil(cores * 2 / PACKAGE_VCPUS)
        active = ceil((cores - free_cores) * 2 / PACKAGE_VCPUS)
        cpu_w = active * PACKAGE_FULL_W + (packages - active) * PACKAGE_IDLE_W
        return cpu_w + sum(idle if free == 1000 else full for free in self.gpus)

    def fragments(self, task: Task) -> int:
        """Free GPU that is of no use to tasks like this one."""
        usable = [free for free in self.gpus if free >= task.milli]
        fits = task.gpus > 0 and self.cpu >= task.cpu and len(usable) >= task.gpus
        if not fits or (task.models and self.model not in task.models):
            return sum(self.gpus)
        return sum(self.gpus) - sum(usable)


def tasks_of(window: Window) -> list[Task]:
    """The window's tasks."""
    t = window.tasks
    rows = zip(t.cpu_milli, t.memory_mib, t.gpus, t.gpu_milli, t.spec, strict=True)
    return [Task(*map(int, row[:4]), models=t.specs[row[4]]) for row in rows]


def nodes_of(window: Window) -> list[Node]:
    """The window's nodes as they are now."""
    n = window.nodes
    return [
        Node(
            n.models[n.model[i]],
            int(n.cpu_milli[i]) / 1000,
            int(window.cpu_free_milli[i]),
            int(window.memory_free_mib[i]),
            tuple(map(int, window.gpu_free_milli[i, : n.gpus[i]])),
        )
        for i in range(len(n))
    ]


def optimum(window: Window, tie_break: float) -> float:
    """Least objective, ties and all."""
    c = window.target.classes
    rows = zip(c.cpu_milli, c.memory_mib, c.gpus, c.gpu_milli, c.spec, strict=True)
    classes = [Task(*map(int, row[:4]), models=c.specs[row[4]]) for row in rows]
    weights = [int(count) / int(window.target.count.sum()) for count in window.target.count]
    nodes, tasks = nodes_of(window), tasks_of(window)
    per_w = window.alpha / window.power_ref_w
    per_milli = (1 - window.alpha) / window.fragmentation_ref_milli
    tie = tie_break * min(v for v in (per_w, per_milli) if v > 0) / len(tasks)
    fits = [any(True for node in nodes for _way in node.ways(task)) for task in tasks]
    known: dict[Node, float] = {}

    def worth(node: Node) -> float:
        if node not in known:
            milli = sum(w * node.fragments(task) for w, task in zip(weights, classes, strict=True))
            known[node] = per_w * node.power_w() + per_milli * milli
        return known[node]

    def rejection(task: Task) -> float:
        assert window.reject_w_per_task is not None
        assert window.reject_w_per_gpu_milli is not None
        watts = window.reject_w_per_task + window.reject_w_per_gpu_milli * task.gpus * task.milli
        return watts / window.power_ref_w

    def best(task: int, now: tuple[Node, ...], so_far: float) -> float:
        if task == len(tasks):
            changed = [i for i in range(len(now)) if now[i] != nodes[i]]
            ties = sum(tie * (i + 1) / len(nodes) for i in changed)
            return so_far + ties + sum(worth(now[i]) - worth(nodes[i]) for i in changed)
        least = inf
        for i, node in enumerate(now):
            for way in node.ways(tasks[task]):
                least = min(least, best(task + 1, (*now[:i], way, *now[i + 1 :]), so_far))
        cost = rejection(tasks[task]) if fits[task] else 0.0
        return min(least, best(task + 1, now, so_far + cost))

    return best(0, tuple(nodes), 0.0)
