r"""Checking a decision of `placement` against its instance, from the file's numbers alone.

Nothing is shared with formulations and solvers, nor with the arrays that they read. With the changes
:math:`\Delta P` (W) of power and :math:`\Delta F` (GPUs) of fragmentation that the placed tasks cause, and R
(W) for the waiting tasks that would have fitted on some node as it was, the objectives are

.. math::
    \Delta P + k\,\Delta F + R, \quad \Delta P + R, \quad \Delta F + R / k

for `power-fragmentation`, `power` and `fragmentation`, where k is ``fragmentation_w_per_gpu``.

A GPU draws its full power as soon as the smallest part of it is in use, and a CPU package as soon as one of
its cores is (PWR: Lettich et al., CCGrid 2025). The fragments of a node are its free GPU that the usual tasks
could not use, in the mean over them (FGD: Weng et al., USENIX ATC 2023).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeVar

from wattsched.instances.placement.decision import PlacedTask, PlacementDecision
from wattsched.instances.placement.instance import Node, PlacementInstance, Request, Task, TaskClass
from wattsched.topology.arrays import FloatArray
from wattsched.verification.report import TOLERANCE, Report, exceeds

WHOLE = 1000
AmountT = TypeVar("AmountT", float, FloatArray)


def check(instance: PlacementInstance, decision: PlacementDecision) -> Report:
    """Check a decision against an instance without faults.

    The totals are ``power_w`` and ``fragmentation_gpus`` (of all nodes afterwards), ``added_power_w``,
    ``added_fragmentation_gpus``, ``placed_tasks``, ``placed_gpus``, ``waiting_tasks`` and, of them,
    ``unplaceable_tasks``, which fit on no node as it is now, and values of objectives that are limited,
    such as ``objective:power``. There is no objective where there are faults.
    """
    faults = list(_pairing_faults(instance, decision))
    tasks = {task.name: task for task in instance.tasks}
    usual = instance.usual_tasks()
    nodes = {node.name: NodeState.of(instance, node, usual) for node in instance.nodes}
    before_w, before_gpus = _totals_of(nodes)
    for placed in decision.placed:
        if placed.task in tasks and placed.node in nodes:
            state = nodes[placed.node]
            faults += _why_not(state, tasks[placed.task], placed)
            nodes[placed.node] = state.with_task(tasks[placed.task], placed.gpus)
    after_w, after_gpus = _totals_of(nodes)
    added_w, added_gpus = after_w - before_w, after_gpus - before_gpus
    waiting = [tasks[name] for name in decision.waiting if name in tasks]
    refused = [task for task in waiting if fits_somewhere(instance, task)]
    placed_gpus = (tasks[one.task].demand_gpus for one in decision.placed if one.task in tasks)
    totals = {
        "power_w": after_w,
        "added_power_w": added_w,
        "fragmentation_gpus": after_gpus,
        "added_fragmentation_gpus": added_gpus,
        "placed_tasks": len(decision.placed),
        "placed_gpus": math.fsum(placed_gpus),
        "waiting_tasks": len(waiting),
        "unplaceable_tasks": len(waiting) - len(refused),
    }

    def value(of: PlacementInstance) -> float:
        """Return the objective of an instance with another one."""
        return worth(of, added_w, added_gpus, math.fsum(waiting_w(of, task) for task in refused))

    for name, limit in instance.budgets.objectives.items():
        reached = value(instance.model_copy(update={"objective": name}))
        totals[f"objective:{name}"] = reached
        if exceeds(reached, limit, TOLERANCE):
            told = f"'{name}' is {reached:.9g}, it must be {limit:.9g} at most"
            faults.append(f"budgets.objectives: {told}")
    objective = None if faults else value(instance)
    size = max(before_w, after_w)
    size += max(1.0, instance.fragmentation_w_per_gpu) * max(before_gpus, after_gpus)
    return Report(faults, objective, totals, size)


def worth(
    instance: PlacementInstance, power_w: AmountT, fragmentation_gpus: AmountT, other_w: float
) -> AmountT:
    """Objective, in W or for `fragmentation` in GPUs, of changes of both and of other watts (`waiting_w`)."""
    if instance.objective == "fragmentation":
        return fragmentation_gpus + other_w / instance.fragmentation_w_per_gpu
    if instance.objective == "power":
        return power_w + other_w
    return power_w + instance.fragmentation_w_per_gpu * fragmentation_gpus + other_w


def waiting_w(instance: PlacementInstance, task: Task) -> float:
    """Watts that a waiting task adds to the objective if it would have fitted on some node."""
    per_task, per_gpu = instance.waiting_rates_w()
    return per_task + per_gpu * task.demand_gpus


def fits_somewhere(instance: PlacementInstance, task: Task) -> bool:
    """True if a task fits on some node as it is now, alone."""
    return any(NodeState.of(instance, node, []).has_room(task) for node in instance.nodes)


def _pairing_faults(instance: PlacementInstance, decision: PlacementDecision) -> Iterator[str]:
    """Yield a fault for every task that is not placed or waits, just once, and for unknown names."""
    nodes = {node.name for node in instance.nodes}
    tasks = {task.name for task in instance.tasks}
    placed = Counter(one.task for one in decision.placed)
    waiting = Counter(decision.waiting)
    for name in sorted((placed | waiting).keys() - tasks):
        yield f"task '{name}' is not in the instance"
    for name in sorted({one.node for one in decision.placed} - nodes):
        yield f"node '{name}' is not in the instance"
    for task in instance.tasks:
        on, off = placed[task.name], waiting[task.name]
        if on > 1:
            yield f"task '{task.name}' is placed {on} times"
        if off > 1:
            yield f"task '{task.name}' waits {off} times"
        if on and off:
            yield f"task '{task.name}' is placed and waits"
        if not on and not off:
            yield f"task '{task.name}' is neither placed nor waits"


@dataclass(frozen=True)
class NodeState:
    """A node while tasks come onto it.

    Attributes
    ----------
    instance : PlacementInstance
    node : Node
    usual : list of TaskClass
        What fragments are measured by.
    cpu_milli, memory_mib, gpus : int, int, tuple of int
        Free thousandths of a vCPU, MiB, and free thousandths of each GPU.
    """

    instance: PlacementInstance
    node: Node
    usual: list[TaskClass]
    cpu_milli: int
    memory_mib: int
    gpus: tuple[int, ...]

    @classmethod
    def of(cls, instance: PlacementInstance, node: Node, usual: list[TaskClass]) -> NodeState:
        """The node as it is now."""
        cpu_milli, memory_mib = node.cpu_milli - node.used_cpu_milli, node.memory_mib - node.used_memory_mib
        return cls(instance, node, usual, cpu_milli, memory_mib, tuple(node.free_gpu_milli))

    @property
    def kind(self) -> tuple[object, ...]:
        """Equal for states that draw as much and have as many fragments."""
        node = self.node
        return node.gpu_type, node.cpu_type, node.cpu_milli, self.cpu_milli, tuple(sorted(self.gpus))

    def with_task(self, task: Task, gpus: list[int]) -> NodeState:
        """The node with one more task on GPUs of these numbers, whether that is possible or not."""
        left = [free - task.gpu_milli * (gpu in gpus) for gpu, free in enumerate(self.gpus)]
        return replace(
            self,
            cpu_milli=self.cpu_milli - task.cpu_milli,
            memory_mib=self.memory_mib - task.memory_mib,
            gpus=tuple(left),
        )

    def admits(self, request: Request) -> bool:
        """True if the request accepts the node's GPU type."""
        return not request.gpus or not request.gpu_types or self.node.gpu_type in request.gpu_types

    def has_room(self, task: Task) -> bool:
        """True if a task fits on the node."""
        enough = sum(free >= task.gpu_milli for free in self.gpus) >= task.gpus
        return enough and self.admits(task) and self._fits_cpu(task) and self.memory_mib >= task.memory_mib

    def _fits_cpu(self, request: Request) -> bool:
        return self.cpu_milli >= request.cpu_milli

    def power_w(self) -> int:
        """Power of GPUs, full when anything is on them, and of CPU packages, by whole busy cores."""
        gpu, cpu = self.instance.gpu_type_of(self.node), self.instance.cpu_type_of(self.node)
        idle = sum(free == WHOLE for free in self.gpus)
        # A core is two vCPUs.
        cores = math.ceil(self.node.cpu_milli / 2000)
        busy = cores - self.cpu_milli // 2000
        packages, active = math.ceil(cores / cpu.cores), math.ceil(busy / cpu.cores)
        cpu_w = active * cpu.full_power_w + (packages - active) * cpu.idle_power_w
        return idle * gpu.idle_power_w + (len(self.gpus) - idle) * gpu.full_power_w + cpu_w

    def fragmentation_gpus(self) -> float:
        """Free GPUs that the usual tasks cannot use, in the mean over these tasks."""
        everything, total, tasks = sum(self.gpus), 0, 0
        for usual in self.usual:
            milli = usual.gpu_milli
            runs = usual.gpus > 0 and self.admits(usual) and self._fits_cpu(usual)
            runs = runs and sum(free >= milli for free in self.gpus) >= usual.gpus
            total += usual.count * (sum(free for free in self.gpus if free < milli) if runs else everything)
            tasks += usual.count
        return total / (WHOLE * tasks)


def _totals_of(nodes: dict[str, NodeState]) -> tuple[float, float]:
    """Return the watts and the fragmented GPUs of all nodes, computed once for equal ones."""
    count = Counter(state.kind for state in nodes.values())
    example = {state.kind: state for state in nodes.values()}
    power_w = sum(n * example[kind].power_w() for kind, n in count.items())
    return float(power_w), math.fsum(n * example[kind].fragmentation_gpus() for kind, n in count.items())


def _why_not(state: NodeState, task: Task, placed: PlacedTask) -> Iterator[str]:
    """Yield the reasons why a task cannot go onto a node."""
    this = f"task '{task.name}' on node '{state.node.name}'"
    if not state.admits(task):
        yield f"{this}: it may not use the GPU type '{state.node.gpu_type}'"
    if len(set(placed.gpus)) != len(placed.gpus):
        yield f"{this}: a GPU is named twice"
    if len(placed.gpus) != task.gpus:
        yield f"{this}: it asks for {task.gpus} GPUs and has {len(placed.gpus)}"
    if any(gpu >= len(state.gpus) for gpu in placed.gpus):
        yield f"{this}: the node has only {len(state.gpus)} GPUs"
    after = state.with_task(task, placed.gpus)
    if after.cpu_milli < 0:
        yield f"{this}: the CPU is {-after.cpu_milli} thousandths of a vCPU short"
    if after.memory_mib < 0:
        yield f"{this}: the memory is {-after.memory_mib} MiB short"
    for gpu in sorted(set(placed.gpus)):
        if gpu < len(state.gpus) and after.gpus[gpu] < 0:
            yield f"{this}: GPU {gpu} is {-after.gpus[gpu]} thousandths short"
