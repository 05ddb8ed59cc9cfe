"""The instance of `placement`: nodes as they are now, the tasks of a window, and what a cluster usually sees.

Whole numbers throughout, as Kubernetes and the public traces have them: thousandths of a vCPU, MiB,
thousandths of a GPU, watts. So nothing is lost in rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from wattsched.instances.errors import duplicates, refuse
from wattsched.instances.placement.tables import WHOLE_GPU
from wattsched.instances.sizing.instance import FORMAT
from wattsched.perfmodels.node_power import CPU_PACKAGES, GPU_POWER, UNIFORM_CPU, VCPU_PER_CORE
from wattsched.topology.fields import Count, Name, NonNegative, Positive, Strict

MOST = 2**40
MOST_GPUS = 64
"""Largest amount of CPU or memory, and most GPUs of a node: a typing error should not ask for gigabytes."""

Amount = Annotated[int, Field(ge=0, le=MOST)]
Gpus = Annotated[int, Field(ge=0, le=MOST_GPUS)]
Share = Annotated[int, Field(ge=1, le=WHOLE_GPU)]
Watts = Annotated[int, Field(ge=0, le=1_000_000)]

OBJECTIVES: dict[str, Literal["min", "max"]] = dict.fromkeys(
    ("power-fragmentation", "power", "fragmentation"), "min"
)
"""Objectives and their sense; `checker` says what each one is."""


class GpuType(Strict):
    """Watts of one GPU without work, and with any: the smallest share keeps all of it awake."""

    idle_power_w: Watts
    full_power_w: Watts

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.full_power_w < self.idle_power_w:
            raise ValueError(f"full_power_w {self.full_power_w} is below idle_power_w {self.idle_power_w}")
        return self


class CpuType(GpuType):
    """Watts of one CPU package, idle and fully used, and its physical cores, of two vCPUs each."""

    cores: Count


class Node(Strict):
    """A node and what is in use on it now.

    Attributes
    ----------
    cpu_milli, memory_mib, gpus : int
        Thousandths of a vCPU, MiB and GPUs that it has.
    gpu_type : str, optional
        For nodes with GPUs.
    cpu_type : str
        Of its packages; there are as many as the vCPUs need.
    used_cpu_milli, used_memory_mib : int
        In use.
    used_gpu_milli : list of int
        Thousandths in use of each GPU, of the first ones where the list is shorter.
    """

    name: Name
    cpu_milli: Amount
    memory_mib: Amount = MOST
    gpus: Gpus = 0
    gpu_type: Name | None = None
    cpu_type: Name = UNIFORM_CPU
    used_cpu_milli: Amount = 0
    used_memory_mib: Amount = 0
    used_gpu_milli: list[Annotated[int, Field(ge=0, le=WHOLE_GPU)]] = []

    @model_validator(mode="after")
    def _within(self) -> Self:
        """Refuse more use than there is, and GPUs without a type."""
        faults = [
            f"used_{name} {used} is above {name} {most}"
            for name in ("cpu_milli", "memory_mib")
            if (used := getattr(self, f"used_{name}")) > (most := getattr(self, name))
        ]
        if len(self.used_gpu_milli) > self.gpus:
            faults.append(f"used_gpu_milli has {len(self.used_gpu_milli)} entries for {self.gpus} GPUs")
        if self.gpus and self.gpu_type is None:
            faults.append(f"gpu_type is missing, it has {self.gpus} GPUs")
        refuse(f"node '{self.name}': {fault}" for fault in faults)
        return self

    @property
    def free_gpu_milli(self) -> list[int]:
        """Free thousandths of each GPU."""
        used = [*self.used_gpu_milli, *[0] * (self.gpus - len(self.used_gpu_milli))]
        return [WHOLE_GPU - milli for milli in used]


class Request(Strict):
    """Resources that a task requests.

    Attributes
    ----------
    cpu_milli : int
        Thousandths of a vCPU.
    gpus : int
        GPUs of one node.
    gpu_milli : int
        Thousandths of each of them; below 1000 only for a share of one GPU.
    gpu_types : list of str
        GPU types that will do; any if empty.
    """

    cpu_milli: Amount = 0
    gpus: Gpus = 0
    gpu_milli: Share = WHOLE_GPU
    gpu_types: list[Name] = []

    @model_validator(mode="after")
    def _share_of_one(self) -> Self:
        if self.gpus > 1 and self.gpu_milli < WHOLE_GPU:
            raise ValueError(f"gpu_milli must be {WHOLE_GPU} where gpus is {self.gpus}, got {self.gpu_milli}")
        return self

    @property
    def demand_gpus(self) -> float:
        """GPUs asked for, a share as a fraction."""
        return self.gpus * self.gpu_milli / WHOLE_GPU


class TaskClass(Request):
    """Tasks that a cluster usually sees; ``count`` says how often, in comparison with the other classes."""

    count: Count


class Task(Request):
    """A task of the window; earlier ones in the file have arrived earlier."""

    name: Name
    memory_mib: Amount = 0


class Budgets(Strict):
    """Limits on a decision.

    Attributes
    ----------
    objectives : dict of str to float
        Values of other objectives that it may have at most.
    """

    objectives: dict[Name, Annotated[float, Field(allow_inf_nan=False)]] = Field(default_factory=dict)


class PlacementInstance(Strict):
    """Tasks to place at once on the nodes as they are now.

    Attributes
    ----------
    fragmentation_w_per_gpu : float
        Watts that a GPU counts as which is free and of no use to the usual tasks.
    waiting_w, waiting_w_per_gpu : float, optional
        Watts that a task which waits counts as, and watts more for each GPU that it asks for. By default the
        first is more than a node's power and fragmentation can change by together, and the second ten times
        that. A task that fits on no node as it is now waits without cost.
    gpu_types, cpu_types : mappings
        Power by name, where it is not that of `perfmodels.node_power`.
    workload : list of TaskClass
        What fragmentation is measured by (default: the tasks of the window).
    nodes : list of Node
        Where two are equally good, the first wins.

    Raises
    ------
    pydantic.ValidationError
        With one entry per fault.
    """

    format: Literal["wattsched-instance/1"] = FORMAT
    name: Name = "instance"
    problem: Literal["placement"]
    objective: Name = "power-fragmentation"
    fragmentation_w_per_gpu: Positive = 1000.0
    waiting_w: NonNegative | None = None
    waiting_w_per_gpu: NonNegative | None = None
    gpu_types: dict[Name, GpuType] = Field(default_factory=dict)
    cpu_types: dict[Name, CpuType] = Field(default_factory=dict)
    budgets: Budgets = Budgets()
    workload: list[TaskClass] = Field(default_factory=list)
    nodes: Annotated[list[Node], Field(min_length=1)]
    tasks: list[Task]

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        refuse(contradictions(self))
        return self

    def gpu_type_of(self, node: Node) -> GpuType:
        """Power of each GPU of a node."""
        if node.gpu_type is None:
            return GpuType(idle_power_w=0, full_power_w=0)
        if node.gpu_type in self.gpu_types:
            return self.gpu_types[node.gpu_type]
        idle_w, full_w = GPU_POWER[node.gpu_type]
        return GpuType(idle_power_w=idle_w, full_power_w=full_w)

    def cpu_type_of(self, node: Node) -> CpuType:
        """Power of each CPU package of a node."""
        if node.cpu_type in self.cpu_types:
            return self.cpu_types[node.cpu_type]
        idle_w, full_w, cores = CPU_PACKAGES[node.cpu_type]
        return CpuType(idle_power_w=idle_w, full_power_w=full_w, cores=cores)

    def usual_tasks(self) -> list[TaskClass]:
        """Classes that fragmentation is measured by: the workload's, or the tasks' by their number."""
        if self.workload:
            return self.workload
        often = Counter((t.cpu_milli, t.gpus, t.gpu_milli, tuple(t.gpu_types)) for t in self.tasks)
        return [
            TaskClass(cpu_milli=cpu_milli, gpus=gpus, gpu_milli=gpu_milli, gpu_types=list(types), count=count)
            for (cpu_milli, gpus, gpu_milli, types), count in often.items()
        ] or [TaskClass(count=1)]

    def waiting_rates_w(self) -> tuple[float, float]:
        """Watts that a task which waits counts as, and watts more per GPU that it asks for."""
        per_task, per_gpu = self.waiting_w, self.waiting_w_per_gpu
        if per_task is None or per_gpu is None:
            # Nodes of one kind are alike.
            alike = {(node.gpu_type, node.gpus, node.cpu_type, node.cpu_milli): node for node in self.nodes}
            most = 1.0 + max(map(self._largest_change_w, alike.values()))
            per_task = most if per_task is None else per_task
            per_gpu = 10.0 * most if per_gpu is None else per_gpu
        return per_task, per_gpu

    def _largest_change_w(self, node: Node) -> float:
        """Most that the objective can change on a node, in watts, which fragments count as, too."""
        gpu, cpu = self.gpu_type_of(node), self.cpu_type_of(node)
        packages = -(-node.cpu_milli // (1000 * VCPU_PER_CORE * cpu.cores))
        change_w = 0.0
        if self.objective != "fragmentation":
            change_w += node.gpus * abs(gpu.full_power_w - gpu.idle_power_w)
            change_w += packages * abs(cpu.full_power_w - cpu.idle_power_w)
        if self.objective != "power":
            change_w += node.gpus * self.fragmentation_w_per_gpu
        return change_w


def contradictions(instance: PlacementInstance) -> Iterator[str]:
    """One line each: names that are given twice, and types of unknown power."""
    yield from duplicates("node", instance.nodes)
    yield from duplicates("task", instance.tasks)
    gpu_types = {node.gpu_type: node for node in reversed(instance.nodes) if node.gpu_type is not None}
    cpu_types = {node.cpu_type: node for node in reversed(instance.nodes)}
    for field, met, known in (
        ("gpu_types", gpu_types, {**GPU_POWER, **instance.gpu_types}),
        ("cpu_types", cpu_types, {**CPU_PACKAGES, **instance.cpu_types}),
    ):
        for name, node in met.items():
            if name not in known:
                yield (
                    f"node '{node.name}': the power of '{name}' is unknown, give it in {field} (known: "
                    f"{', '.join(known)})"
                )
