"""Nodes of Alibaba's GPU cluster trace of 2023 ("openb"): ``openb_node_list_*.csv``."""

from __future__ import annotations

import math
from pathlib import Path

from wattsched.instances.traces.rows import rows_of
from wattsched.topology.cluster import Cluster, GpuType, Node

COLUMNS = ("sn", "cpu_milli", "gpu", "model")

_A10_SPEED = 0.83
"""Speed of an A10 against the A40 that stands in for it: 31.2 to 37.4 peak FP32 TFLOPS (data sheets)."""

GPU_TYPES = {
    "T4": GpuType(idle_power_w=10.0, max_power_w=70.0),
    "P100": GpuType(idle_power_w=25.0, max_power_w=250.0),
    "V100M16": GpuType(idle_power_w=30.0, max_power_w=300.0, profile="V100", memory_gib=16.0),
    "V100M32": GpuType(idle_power_w=30.0, max_power_w=300.0, profile="V100", memory_gib=32.0),
    "A10": GpuType(
        idle_power_w=30.0, max_power_w=150.0, profile="A40", speed_factor=_A10_SPEED, power_factor=150 / 300
    ),
    "G2": GpuType(
        idle_power_w=30.0, max_power_w=150.0, profile="A40", speed_factor=_A10_SPEED, power_factor=150 / 300
    ),
    "G3": GpuType(idle_power_w=50.0, max_power_w=400.0, profile="A100"),
}
"""Idle and full watts of the PWR study (`systems.md` 3.2); G2 counts as an A10 and G3 as an A100 there.

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

    Raises
    ------
    ValueError
        With the line and column of a malformed cell, or for an unknown GPU model.
    OSError
        When the file cannot be read.
    """
    if not 0 <= cpu_load <= 1:
        raise ValueError(f"cpu_load: must be from 0 to 1, got {cpu_load}")
    package_w = CPU_IDLE_W + cpu_load * (CPU_FULL_W - CPU_IDLE_W)
    nodes, names = [], set()
    for row in rows_of(path, COLUMNS):
        name, gpus = row.text("sn"), row.count("gpu")
        if name in names:
            raise row.fault("sn", f"the node '{name}' occurs twice")
        names.add(name)
        if gpus == 0:
            continue
        model = row.text("model")
        if model not in GPU_TYPES:
            raise row.fault("model", f"'{model}' is not known, only {', '.join(GPU_TYPES)} are")
        cores = math.ceil(row.count("cpu_milli") / 1000 / 2)
        base_power_w = package_w * math.ceil(cores / CPU_CORES)
        nodes.append(Node(name=name, gpu_type=model, gpus=gpus, base_power_w=base_power_w))
    if not nodes:
        raise ValueError(f"{path}: no node has a GPU")
    used = {model: kind for model, kind in GPU_TYPES.items() if any(n.gpu_type == model for n in nodes)}
    return Cluster(name="openb", gpu_types=used, nodes=nodes)
