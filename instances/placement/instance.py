"""Tables of the placement problem: nodes with CPU, memory and GPUs, and the tasks that ask for them.

Whole numbers throughout, as the public trace has them: thousandths of a vCPU, MiB, thousandths of a GPU.

Target workload: the classes of tasks that a cluster usually sees, with their shares.

A placement window: tasks that arrived together, and the nodes as they are now.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from wattsched.perfmodels.node_power import NodePower, node_power
from wattsched.topology.arrays import BoolArray, FloatArray, IntArray

WHOLE_GPU = 1000
"""Thousandths of a GPU in one GPU."""


@dataclass(frozen=True)
class NodeTable:
    """Nodes of a cluster, one entry of every array per node.

    Parameters
    ----------
    names : tuple of str
        Unique names.
    cpu_milli, memory_mib, gpus : (N,) int
        Capacity: thousandths of a vCPU, MiB, number of GPUs.
    model : (N,) int
        GPU model of each node, an index into `models`.
    models : tuple of str
        Names of the GPU models.
    """

    names: tuple[str, ...]
    cpu_milli: IntArray
    memory_mib: IntArray
    gpus: IntArray
    model: IntArray
    models: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.names)

    @property
    def gpu_capacity_milli(self) -> int:
        """Thousandths of a GPU in the whole cluster."""
        return int(self.gpus.sum()) * WHOLE_GPU


@dataclass(frozen=True)
class TaskTable:
    """Tasks in the order of their arrival, one entry of every array per task.

    Parameters
    ----------
    cpu_milli, memory_mib : (T,) int
        Thousandths of a vCPU and MiB asked for.
    gpus : (T,) int
        Number of GPUs asked for: 0, 1 or more whole ones.
    gpu_milli : (T,) int
        Thousandths asked of each of these GPUs: 0 without GPU, below 1000 only for a share of one GPU.
    spec : (T,) int
        GPU models allowed, an index into `specs`.
    specs : tuple of frozenset of str
        Sets of allowed models; the first is empty and stands for any model.
    """

    cpu_milli: IntArray
    memory_mib: IntArray
    gpus: IntArray
    gpu_milli: IntArray
    spec: IntArray
    specs: tuple[frozenset[str], ...] = (frozenset(),)

    def __len__(self) -> int:
        return len(self.cpu_milli)

    @property
    def demand_milli(self) -> IntArray:
        """Thousandths of a GPU asked for by each task, shape (T,)."""
        return self.gpus * self.gpu_milli

    def take(self, index: IntArray) -> TaskTable:
        """Tasks at these positions, in this order; positions may repeat."""
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "specs"}
        return TaskTable(**columns, specs=self.specs)

    @cached_property
    def profiles(self) -> tuple[TaskTable, IntArray]:
        """Distinct requests and, for each task, which of them it makes, shape (T,)."""
        rows = np.stack([self.cpu_milli, self.memory_mib, self.gpus, self.gpu_milli, self.spec], axis=1)
        _distinct, first, profile = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return self.take(np.asarray(first, dtype=np.int64)), np.asarray(profile, dtype=np.int64).reshape(-1)


COVERAGE_PCT = 95


@dataclass(frozen=True)
class TargetWorkload:
    """Classes of tasks, the most frequent first.

    Parameters
    ----------
    classes : TaskTable
        One entry per class. Its memory is the rounded mean of the tasks of the class and tells none apart.
    count : (M,) int
        Tasks of each class in the list that the classes come from.
    """

    classes: TaskTable
    count: IntArray

    def __len__(self) -> int:
        return len(self.count)

    @property
    def share(self) -> FloatArray:
        """Share of each class among the tasks of all classes, shape (M,); the sum is 1."""
        return self.count / int(self.count.sum())


def target_workload(tasks: TaskTable, coverage_pct: int = COVERAGE_PCT) -> TargetWorkload:
    """Most frequent classes that together cover at least this much of the tasks.

    Tasks are of one class if they ask for the same CPU, the same GPUs and the same GPU models; ones without a
    GPU count too. Classes that are equally frequent come in the order of their first task. These are the
    "typical pods" of FGD (Weng et al., USENIX ATC 2023).

    Parameters
    ----------
    tasks : TaskTable
        The list as it was recorded, at least one task.
    coverage_pct : int
        Percent of the tasks to cover.
    """
    asked = np.stack([tasks.cpu_milli, tasks.gpus, tasks.gpu_milli, tasks.spec], axis=1)
    _classes, first, kind, count = np.unique(
        asked, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    memory = np.bincount(kind.reshape(-1), weights=tasks.memory_mib) / count
    order = np.lexsort((first, -count))
    covered = np.cumsum(count[order])
    kept = order[: 1 + np.searchsorted(100 * covered, coverage_pct * len(tasks))]
    classes = replace(tasks.take(first[kept]), memory_mib=np.rint(memory[kept]).astype(np.int64))
    return TargetWorkload(classes, count[kept].astype(np.int64))


REJECTED = -1
"""Node of a task that is placed nowhere."""

_PER_GPU = 10.0
"""By default, a whole GPU rejected costs this many times what any task does."""


@dataclass(frozen=True)
class Window:
    r"""Tasks to place at once on the nodes' current state, and what counts.

    To minimise, over the changes :math:`\Delta P` of power and :math:`\Delta F` of fragmentation of all nodes
    and the rejected tasks :math:`Q`, among those that fit on some node as it is now:

    .. math::
        \alpha\,\frac{\Delta P}{P_{ref}} + (1 - \alpha)\,\frac{\Delta F}{F_{ref}}
        + \sum_{t \in Q} \frac{w + v\,d_t}{P_{ref}}

    Tasks that fit on no node are rejected without cost: no decision can change that.

    Parameters
    ----------
    nodes : NodeTable
        N nodes; where two are equally good, the first wins.
    power : NodePower
        Of the same nodes.
    target : TargetWorkload
        Classes of tasks that fragmentation is measured by.
    cpu_free_milli, memory_free_mib : (N,) int
        Free thousandths of a vCPU, and MiB.
    gpu_free_milli : (N, G) int
        Free thousandths of each GPU, 0 beyond the node's last.
    tasks : TaskTable
        The tasks of the window, in the order of their arrival.
    alpha : float
        Weight of power, from 0 to 1; the rest is the weight of fragmentation.
    power_ref_w, fragmentation_ref_milli : float
        Units in which power (W) and fragmentation (thousandths of a GPU) count as 1.
    reject_w_per_task, reject_w_per_gpu_milli : float, optional
        w and v: watts that rejecting a task counts as, and watts for each thousandth of a GPU that it asked
        for. By default w is more than one node's power and fragmentation can change by together, and a whole
        GPU counts ten times as much.

    Raises
    ------
    ValueError
        Where the arrays do not belong together or a value is out of its range.
    """

    nodes: NodeTable
    power: NodePower
    target: TargetWorkload
    cpu_free_milli: IntArray
    memory_free_mib: IntArray
    gpu_free_milli: IntArray
    tasks: TaskTable
    alpha: float = 0.5
    power_ref_w: float = 1.0
    fragmentation_ref_milli: float = 1.0
    reject_w_per_task: float | None = None
    reject_w_per_gpu_milli: float | None = None

    def __post_init__(self) -> None:
        count = len(self.nodes)
        if len(self.tasks) == 0:
            raise ValueError("a window needs at least one task")
        if not 0.0 <= self.alpha <= 1.0:
            raise ValueError(f"alpha must be from 0 to 1, got {self.alpha}")
        for name in ("power_ref_w", "fragmentation_ref_milli"):
            if not 0.0 < getattr(self, name) < np.inf:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("reject_w_per_task", "reject_w_per_gpu_milli"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value < np.inf:
                raise ValueError(f"{name} must be 0 or more, got {value}")
        for name in ("cpu_free_milli", "memory_free_mib"):
            if getattr(self, name).shape != (count,):
                raise ValueError(f"{name} must have one entry for each of the {count} nodes")
        self._check_room()
        many = self.tasks.gpus > 1
        if np.any(self.tasks.gpu_milli[many] != WHOLE_GPU):
            raise ValueError("gpu_milli must be 1000 for tasks of several GPUs")

    def _check_room(self) -> None:
        gpu = self.gpu_free_milli
        if gpu.ndim != 2 or len(gpu) != len(self.nodes) or gpu.shape[1] < self.nodes.gpus.max(initial=0):
            raise ValueError("gpu_free_milli must have one row per node and a column for each of its GPUs")
        missing = np.arange(gpu.shape[1]) >= self.nodes.gpus[:, None]
        if np.any(gpu[missing] != 0) or gpu.min(initial=0) < 0 or gpu.max(initial=0) > WHOLE_GPU:
            raise ValueError(
                "gpu_free_milli must be from 0 to 1000, and 0 for GPUs that a node does not have"
            )
        for name, most in (("cpu", self.nodes.cpu_milli), ("memory", self.nodes.memory_mib)):
            free = self.cpu_free_milli if name == "cpu" else self.memory_free_mib
            if np.any(free < 0) or np.any(free > most):
                raise ValueError(f"a node's free {name} must be from 0 to what the node has")

    @classmethod
    def of(
        cls, nodes: NodeTable, target: TargetWorkload, tasks: TaskTable, **values: float | IntArray
    ) -> Window:
        """Window on empty nodes with the CPUs of PWR's experiments; `values` set other fields."""
        gpus = np.arange(nodes.gpus.max(initial=0)) < nodes.gpus[:, None]
        given = {
            "power": node_power(nodes.cpu_milli, nodes.gpus, [nodes.models[m] for m in nodes.model]),
            "cpu_free_milli": nodes.cpu_milli,
            "memory_free_mib": nodes.memory_mib,
            "gpu_free_milli": np.where(gpus, WHOLE_GPU, 0),
        }
        return cls(nodes=nodes, target=target, tasks=tasks, **(given | values))  # type: ignore[arg-type]  # any field may be given

    @cached_property
    def allowed(self) -> BoolArray:
        """Whether each set of GPU models that tasks name includes each model, shape (specs, models)."""
        named = [[not spec or model in spec for model in self.nodes.models] for spec in self.tasks.specs]
        return np.array(named, dtype=bool).reshape(len(self.tasks.specs), len(self.nodes.models))

    @cached_property
    def rejection_w(self) -> FloatArray:
        """Watts that rejecting each task counts as, shape (T,)."""
        per_task, per_milli = self.reject_w_per_task, self.reject_w_per_gpu_milli
        if per_task is None or per_milli is None:
            most = 1.0 + self._largest_change_w()
            per_task = most if per_task is None else per_task
            per_milli = most * _PER_GPU / WHOLE_GPU if per_milli is None else per_milli
        return np.asarray(per_task + per_milli * self.tasks.demand_milli, dtype=np.float64)

    def _largest_change_w(self) -> float:
        """Most that the objective can change on one node, in watts."""
        power = self.power
        range_w = power.gpus * (power.gpu_full_w - power.gpu_idle_w)
        range_w = range_w + power.packages * (power.package_full_w - power.package_idle_w)
        watts_per_milli = self.power_ref_w / self.fragmentation_ref_milli
        fragments_w = WHOLE_GPU * watts_per_milli * self.nodes.gpus
        return float(np.max(self.alpha * range_w + (1.0 - self.alpha) * fragments_w, initial=0.0))


@dataclass(frozen=True)
class Placements:
    """Node and GPUs of every task of a window.

    Parameters
    ----------
    node : (T,) int
        Position of the node, `REJECTED` for none.
    gpus : (T, G) bool
        GPUs of that node that the task uses.
    """

    node: IntArray
    gpus: BoolArray

    @property
    def rejected(self) -> IntArray:
        """Positions of the tasks that are placed nowhere."""
        return np.flatnonzero(self.node == REJECTED)

    @classmethod
    def none(cls, tasks: int, gpus: int) -> Placements:
        """Decision that rejects all tasks; nodes have so many GPUs at most."""
        return cls(np.full(tasks, REJECTED), np.zeros((tasks, gpus), dtype=bool))
