"""A placement window by trying every node and GPU of every task, with scalars only.

Shares nothing with the package but the fields of an instance: the power of a node, its fragments and the
objective are worked out here once more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import combinations
from math import ceil, inf

from wattsched.instances.placement.instance import PlacementInstance, TaskClass
from wattsched.instances.placement.instance import Task as FileTask
from wattsched.instances.placement.tables import TargetWorkload

IDLE_AND_FULL_W = {"T4": (10, 70), "P100": (25, 250), "G2": (30, 150), "G3": (50, 400), None: (0, 0)}
PACKAGES = {"E5-2682 v4": (15, 120, 16), "8163": (20, 165, 24)}
"""Idle and full watts, and cores, where a file does not say otherwise."""


@dataclass(frozen=True)
class Request:
    """What a task asks for."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: frozenset[str]

    @classmethod
    def of(cls, asked: FileTask | TaskClass) -> Request:
        memory = asked.memory_mib if isinstance(asked, FileTask) else 0
        return cls(asked.cpu_milli, memory, asked.gpus, asked.gpu_milli, frozenset(asked.gpu_types))


@dataclass(frozen=True)
class Node:
    """What is free on a node.

    `gpu_w` and `package` are the watts without work and with any, and the cores of a package.
    """

    model: str | None
    gpu_w: tuple[int, int]
    package: tuple[int, int, int]
    capacity: int
    cpu: int
    memory: int
    gpus: tuple[int, ...]

    def ways(self, task: Request) -> Iterator[tuple[tuple[int, ...], Node]]:
        """Every choice of GPUs for a task, and the node after it has come."""
        if task.cpu > self.cpu or task.memory > self.memory:
            return
        if task.gpus and task.models and self.model not in task.models:
            return
        roomy = [g for g, free in enumerate(self.gpus) if free >= task.milli]
        for chosen in combinations(roomy, task.gpus):
            gpus = tuple(free - task.milli * (g in chosen) for g, free in enumerate(self.gpus))
            yield chosen, replace(self, cpu=self.cpu - task.cpu, memory=self.memory - task.memory, gpus=gpus)

    def power_w(self) -> int:
        """Watts of GPUs and packages."""
        idle, full = self.gpu_w
        package_idle, package_full, package_cores = self.package
        cores = ceil(self.capacity / 2000)
        packages = ceil(cores / package_cores)
        active = ceil((cores - self.cpu // 2000) / package_cores)
        cpu_w = active * package_full + (packages - active) * package_idle
        return cpu_w + sum(idle if free == 1000 else full for free in self.gpus)

    def fragments(self, usual: Request) -> int:
        """Free GPU that is of no use to tasks like this one."""
        usable = [free for free in self.gpus if free >= usual.milli]
        fits = usual.gpus > 0 and self.cpu >= usual.cpu and len(usable) >= usual.gpus
        if not fits or (usual.models and self.model not in usual.models):
            return sum(self.gpus)
        return sum(self.gpus) - sum(usable)


def nodes_of(instance: PlacementInstance) -> tuple[Node, ...]:
    """The nodes as they are now."""
    own_gpus = {name: (of.idle_power_w, of.full_power_w) for name, of in instance.gpu_types.items()}
    own_cpus = {n: (of.idle_power_w, of.full_power_w, of.cores) for n, of in instance.cpu_types.items()}
    made = []
    for node in instance.nodes:
        used = [*node.used_gpu_milli, *[0] * node.gpus][: node.gpus]
        cpu, memory = node.cpu_milli - node.used_cpu_milli, node.memory_mib - node.used_memory_mib
        gpus = tuple(1000 - milli for milli in used)
        watts = {**IDLE_AND_FULL_W, **own_gpus}[node.gpu_type]
        package = {**PACKAGES, **own_cpus}[node.cpu_type]
        made.append(Node(node.gpu_type, watts, package, node.cpu_milli, cpu, memory, gpus))
    return tuple(made)


def waiting_rates_w(instance: PlacementInstance) -> tuple[Fraction, Fraction]:
    """Watts per task that waits, and per GPU that it asks for; by default more than a node can save."""
    most = Fraction(0)
    for node in nodes_of(instance):
        packages = ceil(ceil(node.capacity / 2000) / node.package[2])
        change = Fraction(0)
        if instance.objective != "fragmentation":
            change += len(node.gpus) * (node.gpu_w[1] - node.gpu_w[0])
            change += packages * (node.package[1] - node.package[0])
        if instance.objective != "power":
            change += len(node.gpus) * Fraction(instance.fragmentation_w_per_gpu)
        most = max(most, change)
    per_task, per_gpu = instance.waiting_w, instance.waiting_w_per_gpu
    return (
        1 + most if per_task is None else Fraction(per_task),
        10 * (1 + most) if per_gpu is None else Fraction(per_gpu),
    )


def optimum(instance: PlacementInstance) -> Fraction:
    """Least objective of any decision."""
    usual = [(Request.of(each), each.count) for each in instance.workload or ()]
    usual = usual or [(Request.of(task), 1) for task in instance.tasks]
    tasks, nodes = [Request.of(task) for task in instance.tasks], nodes_of(instance)
    per_w = Fraction(0 if instance.objective == "fragmentation" else 1)
    per_gpu = {
        "power": Fraction(0),
        "fragmentation": Fraction(1),
        "power-fragmentation": Fraction(instance.fragmentation_w_per_gpu),
    }[instance.objective]

    @cache
    def worth(node: Node) -> Fraction:
        milli = sum((count * node.fragments(asked) for asked, count in usual), start=0)
        count = sum(count for _asked, count in usual)
        return per_w * node.power_w() + per_gpu * Fraction(milli, 1000 * max(1, count))

    per_task, rate = waiting_rates_w(instance)
    unit = (
        Fraction(instance.fragmentation_w_per_gpu) if instance.objective == "fragmentation" else Fraction(1)
    )
    waiting = [
        (per_task + rate * Fraction(task.gpus * task.milli, 1000)) / unit
        if any(True for node in nodes for _way in node.ways(task))
        else Fraction(0)
        for task in tasks
    ]

    def best(task: int, now: tuple[Node, ...]) -> Fraction | float:
        if task == len(tasks):
            return sum((worth(a) - worth(b) for a, b in zip(now, nodes, strict=True)), start=Fraction(0))
        least: Fraction | float = waiting[task] + best(task + 1, now)
        for i, node in enumerate(now):
            met: set[Node] = set()
            for _gpus, way in node.ways(tasks[task]):
                alike = replace(way, gpus=tuple(sorted(way.gpus)))
                if alike in met:
                    continue
                met.add(alike)
                least = min(least, best(task + 1, (*now[:i], way, *now[i + 1 :])))
        return least

    found = best(0, nodes)
    assert found < inf
    return Fraction(found)


def fragments(target: TargetWorkload, model: str, cpu_free: int, gpu_free: Sequence[int]) -> Fraction:
    """Fragmentation of a node in thousandths of a GPU, task class by task class."""
    classes, node = target.classes, Node(model, (0, 0), (0, 0, 1), 0, cpu_free, 0, tuple(gpu_free))
    total = Fraction(0)
    for m in range(len(target)):
        specs = classes.specs[classes.spec[m]]
        usual = Request(int(classes.cpu_milli[m]), 0, int(classes.gpus[m]), int(classes.gpu_milli[m]), specs)
        total += Fraction(int(target.count[m]), int(target.count.sum())) * node.fragments(usual)
    return total
