"""Node and task lists of Alibaba's GPU cluster trace of 2023 ("openb") for the placement problem.

A user's own lists have the same columns; `gpu_spec` may be absent.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from wattsched.instances.tasks import WHOLE_GPU, NodeTable, TaskTable
from wattsched.instances.traces.rows import Row, rows_of

NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
TASK_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MOST_GPUS = 64
"""GPUs of one node at most: a typing error should not ask for gigabytes."""
MOST = 2**40
"""Largest CPU or memory number of a cell, far above any machine, so that sums stay exact."""


def read_nodes(path: str | Path) -> NodeTable:
    """Read the nodes that have GPUs (the studies of this trace simulate only these).

    Raises
    ------
    ValueError
        With the line and column of a malformed cell, or when no node has a GPU.
    OSError
        When the file cannot be read.
    """
    names: list[str] = []
    numbers: list[tuple[int, int, int, int]] = []
    models: dict[str, int] = {}
    seen: set[str] = set()
    for row in rows_of(path, NODE_COLUMNS):
        name, gpus = row.text("sn"), _count(row, "gpu", MOST_GPUS)
        if name in seen:
            raise row.fault("sn", f"the node '{name}' occurs twice")
        seen.add(name)
        if gpus == 0:
            continue
        model = models.setdefault(row.text("model"), len(models))
        names.append(name)
        numbers.append((_count(row, "cpu_milli", MOST), _count(row, "memory_mib", MOST), gpus, model))
    if not names:
        raise ValueError(f"{path}: no node has a GPU")
    cpu_milli, memory_mib, gpu, model_of = np.array(numbers, dtype=np.int64).T.copy()
    return NodeTable(tuple(names), cpu_milli, memory_mib, gpu, model_of, tuple(models))


def read_tasks(path: str | Path) -> TaskTable:
    """Read the tasks in the order of the file, which is the order of their arrival.

    Raises
    ------
    ValueError
        With the line and column of a malformed cell, or when the file has no task.
    OSError
        When the file cannot be read.
    """
    specs: dict[frozenset[str], int] = {frozenset(): 0}
    numbers = []
    for row in rows_of(path, TASK_COLUMNS):
        asked = _gpu_request(row)
        models = frozenset(row.cells.get("gpu_spec", "").replace(" ", "").split("|")) - {""}
        spec = specs.setdefault(models if asked[0] else frozenset(), len(specs))
        numbers.append((_count(row, "cpu_milli", MOST), _count(row, "memory_mib", MOST), *asked, spec))
    if not numbers:
        raise ValueError(f"{path}: has no task")
    cpu_milli, memory_mib, gpus, gpu_milli, spec = np.array(numbers, dtype=np.int64).T.copy()
    return TaskTable(cpu_milli, memory_mib, gpus, gpu_milli, spec, tuple(specs))


def _gpu_request(row: Row) -> tuple[int, int]:
    gpus, gpu_milli = _count(row, "num_gpu", MOST_GPUS), _count(row, "gpu_milli", WHOLE_GPU)
    if gpus == 0 and gpu_milli > 0:
        raise row.fault("gpu_milli", f"must be 0 where num_gpu is 0, got {gpu_milli}")
    if gpus > 0 and gpu_milli == 0:
        raise row.fault("gpu_milli", f"must be above 0 where num_gpu is {gpus}, got 0")
    if gpus > 1 and gpu_milli < WHOLE_GPU:
        raise row.fault("gpu_milli", f"must be {WHOLE_GPU} where num_gpu is {gpus}, got {gpu_milli}")
    return gpus, gpu_milli


def _count(row: Row, column: str, most: int) -> int:
    value = row.count(column)
    if value > most:
        raise row.fault(column, f"must be at most {most}, got {value}")
    return value
