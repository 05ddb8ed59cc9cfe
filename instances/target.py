"""Target workload: the classes of tasks that a cluster usually sees, with their shares."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from wattsched.instances.tasks import Integers, TaskTable

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
    count: Integers

    def __len__(self) -> int:
        return len(self.count)

    @property
    def share(self) -> NDArray[np.float64]:
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
