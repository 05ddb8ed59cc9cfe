"""The `placement` family: a window of tasks on unlike nodes that are partly in use."""

from __future__ import annotations

from typing import Any

import numpy as np

from wattsched.instances.clusters import numbered
from wattsched.instances.errors import require_range
from wattsched.instances.placement.instance import Node, PlacementInstance, Task, TaskClass
from wattsched.instances.placement.tables import WHOLE_GPU

NODES = (
    ("G2", 8, 96_000, 393_216, 0.45),
    ("T4", 2, 104_000, 524_288, 0.32),
    ("P100", 2, 16_000, 122_880, 0.13),
    ("V100M32", 4, 48_000, 376_832, 0.06),
    ("G3", 8, 128_000, 786_432, 0.04),
)
"""GPU type, GPUs, thousandths of a vCPU, MiB, and share of the nodes: near Alibaba's cluster of 2023."""

USUAL = (
    (3_152, 5_600, 1, 810, 105),
    (11_300, 48_917, 1, 1000, 147),
    (3_152, 5_600, 1, 1000, 47),
    (11_908, 47_104, 1, 470, 75),
    (12_500, 57_389, 0, 1000, 37),
    (12_000, 21_803, 1, 1000, 52),
    (32_000, 49_234, 0, 1000, 29),
    (11_908, 47_104, 1, 650, 24),
    (4_000, 21_737, 1, 320, 23),
    (8_000, 29_595, 0, 1000, 19),
    (4_000, 27_390, 1, 230, 12),
    (16_000, 64_000, 2, 1000, 3),
    (48_000, 200_000, 4, 1000, 2),
    (88_000, 380_000, 8, 1000, 4),
)
"""Thousandths of a vCPU, MiB, GPUs, thousandths of each, and how often in 1,000 tasks: near its task list."""

FREE_PER_ASKED = 2.0
"""Free GPUs for each that the window asks for, where the number of GPUs is not given."""
TRIALS = 20
"""Tasks that fit nowhere, one after the other, after which nodes are left with less than their load."""


def placement_window(
    *,
    jobs: int,
    gpus: int | None = None,
    seed: int = 0,
    load: float = 0.5,
    constrained: float = 0.1,
    fragmentation_w_per_gpu: float = 1000.0,
) -> PlacementInstance:
    """Tasks with and without GPU, many of them for a share of one, on unlike nodes that are partly in use.

    Parameters
    ----------
    gpus : int, optional
        GPUs of the nodes, at least (default: twice what the window asks for is free).
    load : float
        Part of the GPUs, 0 to below 1, that earlier tasks use.
    constrained : float
        Part of the tasks with GPUs, 0 to 1, that name the GPU types that will do.
    fragmentation_w_per_gpu : float
        Watts that a free GPU counts as which is of no use to the usual tasks.

    Raises
    ------
    ValueError
        For a value out of range.
    """
    require_range(0 <= load < 1, "load", "at least 0 and below 1", load)
    require_range(0 <= constrained <= 1, "constrained", "from 0 to 1", constrained)
    fragment_w = fragmentation_w_per_gpu
    require_range(0 < fragment_w <= 1e12, "fragmentation_w_per_gpu", "above 0", fragment_w)
    rng = np.random.default_rng(seed)
    kinds = _kinds(rng, jobs)
    if gpus is None:
        asked_milli = sum(count * milli for _, _, count, milli, _ in map(USUAL.__getitem__, kinds))
        gpus = int(np.ceil(FREE_PER_ASKED * asked_milli / WHOLE_GPU / (1 - load)))
    nodes = _nodes(rng, max(1, gpus), load)
    return PlacementInstance(
        problem="placement",
        name=f"placement-{jobs}-{seed}",
        fragmentation_w_per_gpu=fragmentation_w_per_gpu,
        workload=[
            TaskClass(cpu_milli=cpu_milli, gpus=count, gpu_milli=gpu_milli, count=often)
            for cpu_milli, _memory_mib, count, gpu_milli, often in USUAL
        ],
        nodes=nodes,
        tasks=_tasks(rng, kinds, sorted({str(node.gpu_type) for node in nodes}), constrained),
    )


def _tasks(rng: np.random.Generator, kinds: list[int], types: list[str], constrained: float) -> list[Task]:
    """Tasks of these kinds, a part of which name two GPU types."""
    made = []
    for name, kind in zip(numbered("t", len(kinds)), kinds, strict=True):
        cpu_milli, memory_mib, gpus, gpu_milli, _often = USUAL[kind]
        some = rng.choice(types, size=min(2, len(types)), replace=False).tolist()
        made.append(
            Task(
                name=name,
                cpu_milli=cpu_milli,
                memory_mib=memory_mib,
                gpus=gpus,
                gpu_milli=gpu_milli,
                gpu_types=sorted(some) if rng.random() < constrained and gpus else [],
            )
        )
    return made


def _kinds(rng: np.random.Generator, count: int) -> list[int]:
    """Draw rows of `USUAL`, as often as these are there."""
    until = np.cumsum([often for *_rest, often in USUAL])
    kinds: list[int] = np.searchsorted(until, rng.integers(until[-1], size=count), side="right").tolist()
    return kinds


def _nodes(rng: np.random.Generator, gpus: int, load: float) -> list[Node]:
    """Nodes until there are so many GPUs, after tasks came to nodes at random until the load is reached."""
    share = np.array([share for *_rest, share in NODES])
    kinds: list[int] = []
    while (there := sum(count for _, count, *_ in map(NODES.__getitem__, kinds))) < gpus:
        kinds += rng.choice(len(NODES), size=max(1, (gpus - there) // 8), p=share / share.sum()).tolist()
    nodes = [_empty(kind) for kind in kinds]
    wanted, failed = int(load * WHOLE_GPU * there), 0
    while wanted > 0 and failed < TRIALS:
        taken = _take(nodes[rng.integers(len(nodes))], _kinds(rng, 1)[0])
        wanted, failed = wanted - (taken or 0), failed + 1 if taken is None else 0
    for node in nodes:
        if not any(node["used_gpu_milli"]):
            node["used_gpu_milli"] = []
    return [Node(name=name, **node) for name, node in zip(numbered("n", len(nodes)), nodes, strict=True)]


def _empty(kind: int) -> dict[str, Any]:
    """Fields of a node of a row of `NODES`, without any task."""
    gpu_type, gpus, cpu_milli, memory_mib, _share = NODES[kind]
    has = {"cpu_milli": cpu_milli, "memory_mib": memory_mib, "gpus": gpus, "gpu_type": gpu_type}
    return {**has, "used_cpu_milli": 0, "used_memory_mib": 0, "used_gpu_milli": [0] * gpus}


def _take(node: dict[str, Any], kind: int) -> int | None:
    """Thousandths of a GPU that a task takes, on the fullest GPUs with room; None if it does not fit."""
    cpu_milli, memory_mib, count, gpu_milli, _often = USUAL[kind]
    used = node["used_gpu_milli"]
    roomy = sorted((-milli, gpu) for gpu, milli in enumerate(used) if milli + gpu_milli <= WHOLE_GPU)
    cpu_milli, memory_mib = node["used_cpu_milli"] + cpu_milli, node["used_memory_mib"] + memory_mib
    if len(roomy) < count or cpu_milli > node["cpu_milli"] or memory_mib > node["memory_mib"]:
        return None
    node |= {"used_cpu_milli": cpu_milli, "used_memory_mib": memory_mib}
    for _used, gpu in roomy[:count]:
        used[gpu] += gpu_milli
    return count * gpu_milli
