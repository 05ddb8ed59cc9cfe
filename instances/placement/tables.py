"""Nodes with CPU, memory and GPUs, the tasks that ask for them, and the tasks that a cluster usually sees.

Whole numbers throughout, as the public trace has them: thousandths of a vCPU, MiB, thousandths of a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from wattsched.topology.arrays import IntArray

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

    def take(self, index: IntArray) -> NodeTable:
        """Nodes at these positions, in this order."""
        columns = {name: getattr(self, name)[index] for name in ("cpu_milli", "memory_mib", "gpus", "model")}
        return NodeTable(names=tuple(self.names[n] for n in index), models=self.models, **columns)

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

    def with_equal_specs_merged(self) -> TaskTable:
        """The same tasks, with one entry of `specs` for models that were spelled in several ways."""
        number = {models: i for i, models in enumerate(dict.fromkeys(self.specs))}
        spec = np.array([number[models] for models in self.specs], dtype=np.int64)[self.spec]
        return replace(self, spec=spec, specs=tuple(number))

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
