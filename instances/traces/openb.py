"""Node and task lists of Alibaba's GPU cluster trace of 2023 ("openb").

The nodes (``openb_node_list_*.csv``) make a cluster, or with the tasks (``openb_pod_list_*.csv``) the tables
of the placement problem. A user's own lists have the same columns; `gpu_spec` may be absent.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TaskTable
from wattsched.reading.tables import Row, rows_of
from wattsched.topology.cluster import Cluster, GpuType, Node

COLUMNS = ("sn", "cpu_milli", "gpu", "model")
NODE_COLUMNS = (*COLUMNS, "memory_mib")
TASK_COLUMNS = ("cpu_milli", "memory_mib", "num_gpu", "gpu_milli")
MOST_GPUS = 64
"""GPUs of one node at most: a typing error should not ask for gigabytes."""

_A10 = GpuType(idle_power_w=30.0, max_power_w=150.0, profile="A40", speed_factor=0.83, power_factor=150 / 300)
"""Its speed against the A40 that stands in for it is 31.2 to 37.4 peak FP32 TFLOPS (data sheets)."""

GPU_TYPES = {
    "T4": GpuType(idle_power_w=10.0, max_power_w=70.0),
    "P100": GpuType(idle_power_w=25.0, max_power_w=250.0),
    "V100M16": GpuType(idle_power_w=30.0, max_power_w=300.0, profile="V100", memory_gib=16.0),
    "V100M32": GpuType(idle_power_w=30.0, max_power_w=300.0, profile="V100", memory_gib=32.0),
    "A10": _A10,
    "G2": _A10,
    "G3": GpuType(idle_power_w=50.0, max_power_w=400.0, profile="A100"),
}
"""Idle and full watts of PWR (Lettich et al., CCGrid 2025), where G2 counts as an A10 and G3 as an A100.

An A10 has no profile: the A40's stands in, its watts and power limits scaled to 150 of its 300 W.
"""

CPU_IDLE_W, CPU_FULL_W, CPU_CORES = 15.0, 120.0, 16
"""One CPU package, Intel Xeon E5-2682 v4, which the PWR study assumes for every node; 2 vCPUs per core."""


def read_openb(path: str | Path, *, cpu_load: float = 0.0) -> Cluster:
    """Read the nodes that have GPUs; the trace knows no racks, so the cluster is flat.

    Parameters
    ----------
    cpu_load : float
        Share of the CPU packages that draw their full watts, 0 to 1; it sets the nodes' base power.
    """
    if not 0 <= cpu_load <= 1:
        raise ValueError(f"cpu_load: must be from 0 to 1, got {cpu_load}")
    package_w = CPU_IDLE_W + cpu_load * (CPU_FULL_W - CPU_IDLE_W)
    nodes = []
    for row, name, gpus in _with_gpus(path, COLUMNS, 1_000_000):
        model = row.text("model")
        if model not in GPU_TYPES:
            raise row.fault("model", f"'{model}' is not known, only {', '.join(GPU_TYPES)} are")
        cores = math.ceil(row.count("cpu_milli") / 1000 / 2)
        base_power_w = package_w * math.ceil(cores / CPU_CORES)
        nodes.append(Node(name=name, gpu_type=model, gpus=gpus, base_power_w=base_power_w))
    used = {model: kind for model, kind in GPU_TYPES.items() if any(n.gpu_type == model for n in nodes)}
    return Cluster(name="openb", gpu_types=used, nodes=nodes)


def read_nodes(path: str | Path) -> NodeTable:
    """Read the nodes that have GPUs, as the studies of this trace; without any it is a ValueError."""
    names: list[str] = []
    numbers: list[tuple[int, int, int, int]] = []
    models: dict[str, int] = {}
    for row, name, gpus in _with_gpus(path, NODE_COLUMNS, MOST_GPUS):
        model = models.setdefault(row.text("model"), len(models))
        names.append(name)
        numbers.append((row.count("cpu_milli"), row.count("memory_mib"), gpus, model))
    cpu_milli, memory_mib, gpu, model_of = np.array(numbers, dtype=np.int64).T.copy()
    return NodeTable(tuple(names), cpu_milli, memory_mib, gpu, model_of, tuple(models))


def _with_gpus(path: str | Path, columns: tuple[str, ...], most: int) -> Iterator[tuple[Row, str, int]]:
    """Rows of nodes with GPUs, their names, and how many GPUs they have, of at most so many."""
    seen, found = set(), False
    for row in rows_of(path, columns):
        name, gpus = row.text("sn"), row.count("gpu", most=most)
        if name in seen:
            raise row.fault("sn", f"the node '{name}' occurs twice")
        seen.add(name)
        if gpus:
            found = True
            yield row, name, gpus
    if not found:
        raise ValueError(f"{path}: no node has a GPU")


def read_tasks(path: str | Path) -> TaskTable:
    """Read the tasks in the order of the file, which is the order of their arrival.

    GPU models are told apart by how they are spelled, as in FGD's artifact: the same models twice, or in
    another order, are a class of tasks of their own there (Weng et al., USENIX ATC 2023).
    """
    specs: dict[str, int] = {"": 0}
    numbers = []
    for row in rows_of(path, TASK_COLUMNS, ("gpu_spec",)):
        asked_gpus, asked_milli = _gpu_request(row)
        models = row.cells.get("gpu_spec", "").replace(" ", "").strip("|")
        spec = specs.setdefault(models if asked_gpus else "", len(specs))
        numbers.append((row.count("cpu_milli"), row.count("memory_mib"), asked_gpus, asked_milli, spec))
    if not numbers:
        raise ValueError(f"{path}: has no task")
    models_of = tuple(frozenset(models.split("|")) - {""} for models in specs)
    cpu_milli, memory_mib, gpus, gpu_milli, spec_of = np.array(numbers, dtype=np.int64).T.copy()
    return TaskTable(cpu_milli, memory_mib, gpus, gpu_milli, spec_of, models_of)


def _gpu_request(row: Row) -> tuple[int, int]:
    """GPUs that a task asks for, and thousandths of each: a part of one, or whole ones."""
    gpus, gpu_milli = row.count("num_gpu", most=MOST_GPUS), row.count("gpu_milli", most=WHOLE_GPU)
    if gpus == 0 and gpu_milli > 0:
        raise row.fault("gpu_milli", f"must be 0 where num_gpu is 0, got {gpu_milli}")
    if gpus > 0 and gpu_milli == 0:
        raise row.fault("gpu_milli", f"must be above 0 where num_gpu is {gpus}, got 0")
    if gpus > 1 and gpu_milli < WHOLE_GPU:
        raise row.fault("gpu_milli", f"must be {WHOLE_GPU} where num_gpu is {gpus}, got {gpu_milli}")
    return gpus, gpu_milli
