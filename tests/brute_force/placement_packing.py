"""All ways to pack a few tasks onto a few nodes, and all patterns of a small node, written with scalars.

Shares nothing with the package but the tables of nodes and tasks: what fits, which GPUs are busy and what
that draws is worked out here once more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

from wattsched.instances.placement.tables import NodeTable, TaskTable

GPU_W = {"T4": (10, 70), "P100": (25, 250), "G2": (30, 150)}
PACKAGE_W, PACKAGE_CORES = (15, 120), 16

Node = tuple[int, int, tuple[int, ...]]
"""Free CPU, free memory, free thousandths of each GPU, the least first."""


@dataclass(frozen=True)
class Task:
    cpu: int
    memory: int
    gpus: int
    milli: int
    models: frozenset[str]


@dataclass(frozen=True)
class Packing:
    """Which tasks are on the cluster, and what it draws."""

    accepted: tuple[bool, ...]
    power_w: int


def tasks_of(table: TaskTable) -> list[Task]:
    return [
        Task(
            int(table.cpu_milli[t]),
            int(table.memory_mib[t]),
            int(table.gpus[t]),
            int(table.gpu_milli[t]),
            table.specs[table.spec[t]],
        )
        for t in range(len(table))
    ]


def power_w(cpu: int, free_cpu: int, gpus: tuple[int, ...], model: str) -> int:
    """Watts of a node: packages of 16 cores, two vCPUs each; a GPU of which any part is in use is busy."""
    cores = -(-cpu // 2000)
    packages = -(-cores // PACKAGE_CORES)
    active = -(-(cores - free_cpu // 2000) // PACKAGE_CORES)
    idle_w, full_w = PACKAGE_W
    gpu_idle_w, gpu_full_w = GPU_W[model]
    watts = idle_w * (packages - active) + full_w * active
    return watts + sum(gpu_idle_w if free == 1000 else gpu_full_w for free in gpus)


def hosting(node: Node, task: Task, model: str) -> Iterator[Node]:
    """The node after it has taken the task, in every way that makes a difference."""
    cpu, memory, gpus = node
    if task.cpu > cpu or task.memory > memory:
        return
    left = (cpu - task.cpu, memory - task.memory)
    if task.gpus == 0:
        yield (*left, gpus)
    elif task.models and model not in task.models:
        return
    elif task.milli == 1000:
        if gpus.count(1000) >= task.gpus:
            rest = list(gpus)
            for _gpu in range(task.gpus):
                rest.remove(1000)
            yield (*left, tuple(sorted([*rest, *[0] * task.gpus])))
    else:
        for free in sorted(set(gpus)):
            if free >= task.milli:
                rest = list(gpus)
                rest.remove(free)
                yield (*left, tuple(sorted([*rest, free - task.milli])))


def packings(nodes: NodeTable, tasks: TaskTable) -> set[Packing]:
    """Every set of tasks that fits onto the nodes together, with every power at which it does."""
    names = [nodes.models[model] for model in nodes.model]
    empty = tuple(
        (int(nodes.cpu_milli[n]), int(nodes.memory_mib[n]), (1000,) * int(nodes.gpus[n]))
        for n in range(len(nodes))
    )
    states: set[tuple[tuple[bool, ...], tuple[Node, ...]]] = {((), empty)}
    for task in tasks_of(tasks):
        after = set()
        for accepted, cluster in states:
            after.add(((*accepted, False), cluster))
            for n, node in enumerate(cluster):
                for new in hosting(node, task, names[n]):
                    after.add(((*accepted, True), (*cluster[:n], new, *cluster[n + 1 :])))
        states = after
    return {
        Packing(
            accepted,
            sum(
                power_w(int(nodes.cpu_milli[n]), cpu, gpus, names[n])
                for n, (cpu, _memory, gpus) in enumerate(cluster)
            ),
        )
        for accepted, cluster in states
    }


def patterns(nodes: NodeTable, n: int, profiles: TaskTable) -> set[tuple[tuple[int, ...], int]]:
    """Every multiset of profiles that fits onto node n, memory aside, with every power at which it does."""
    model = nodes.models[nodes.model[n]]
    capacity = int(nodes.cpu_milli[n])
    room = int(nodes.memory_mib[n])
    tasks = [task for task in tasks_of(profiles)]
    found = {((0,) * len(tasks), (capacity, 0, (1000,) * int(nodes.gpus[n])))}
    border = set(found)
    while border:
        after = set()
        for (counts, (cpu, _memory, gpus)), (m, task) in product(border, enumerate(tasks)):
            if task.memory <= room:
                for new in hosting((cpu, task.memory, gpus), task, model):
                    after.add(((*counts[:m], counts[m] + 1, *counts[m + 1 :]), (new[0], 0, new[2])))
        border = after - found
        found |= border
    return {(counts, power_w(capacity, cpu, gpus, model)) for counts, (cpu, _memory, gpus) in found}
