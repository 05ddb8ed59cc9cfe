"""Tables of the placement problem: nodes with CPU, memory and GPUs, and the tasks that ask for them.

Whole numbers throughout, as the public trace has them: thousandths of a vCPU, MiB, thousandths of a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]

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
    cpu_milli: Integers
    memory_mib: Integers
    gpus: Integers
    model: Integers
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

    cpu_milli: Integers
    memory_mib: Integers
    gpus: Integers
    gpu_milli: Integers
    spec: Integers
    specs: tuple[frozenset[str], ...] = (frozenset(),)

    def __len__(self) -> int:
        return len(self.cpu_milli)

    @property
    def demand_milli(self) -> Integers:
        """Thousandths of a GPU asked for by each task, shape (T,)."""
        return self.gpus * self.gpu_milli

    def take(self, index: Integers) -> TaskTable:
        """Tasks at these positions, in this order; positions may repeat."""
        columns = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "specs"}
        return TaskTable(**columns, specs=self.specs)

    @cached_property
    def profiles(self) -> tuple[TaskTable, Integers]:
        """Distinct requests and, for each task, which of them it makes, shape (T,)."""
        rows = np.stack([self.cpu_milli, self.memory_mib, self.gpus, self.gpu_milli, self.spec], axis=1)
        _distinct, first, profile = np.unique(rows, axis=0, return_index=True, return_inverse=True)
        return self.take(np.asarray(first, dtype=np.int64)), np.asarray(profile, dtype=np.int64).reshape(-1)
