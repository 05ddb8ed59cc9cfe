"""Small random placement windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from wattsched.instances.placement.instance import OBJECTIVES, Node, PlacementInstance, Task, TaskClass

TYPES = ("T4", "P100", "G2", "G3")
ALLOWED = ([], ["T4"], ["P100", "G3"])
KINDS = ((0, 1000), (1, 230), (1, 460), (1, 470), (1, 540), (1, 1000), (1, 1000), (2, 1000), (3, 1000))


def random_requests(rng: np.random.Generator, size: int) -> list[dict[str, Any]]:
    """Requests of few kinds, so that some are equal, with some CPU, a GPU or both."""
    made = []
    for _ in range(size):
        gpus, gpu_milli = KINDS[rng.integers(len(KINDS))]
        allowed = ALLOWED[rng.integers(1, len(ALLOWED))] if gpus and rng.random() < 0.2 else []
        cpu_milli = int(rng.choice([1000, 3000, 8000, 12500, 31000]))
        made.append({"cpu_milli": cpu_milli, "gpus": gpus, "gpu_milli": gpu_milli, "gpu_types": allowed})
    return made


def random_tasks(rng: np.random.Generator, size: int) -> list[Task]:
    """Tasks of a window."""
    requests = random_requests(rng, size)
    memory = rng.choice([0, 1024, 8192], size=size).tolist()
    return [Task(name=f"t{i}", memory_mib=memory[i], **asked) for i, asked in enumerate(requests)]


def random_window(
    seed: int, most_tasks: int = 4, most_nodes: int = 3, most_gpus: int = 3
) -> PlacementInstance:
    """A window on nodes that are partly in use and often equal, with CPUs of several packages."""
    rng = np.random.default_rng(seed)
    count, size = int(rng.integers(1, most_nodes + 1)), int(rng.integers(1, most_tasks + 1))
    kinds = [_random_node(rng, most_gpus) for _ in range(count)]
    # Nodes are copies of few different ones.
    nodes = [Node(name=f"n{i}", **kinds[rng.integers(count)]) for i in range(count)]
    classes = random_requests(rng, int(rng.integers(1, 5)))
    return PlacementInstance(
        name=f"window-{seed}",
        problem="placement",
        objective=str(rng.choice(list(OBJECTIVES))),
        fragmentation_w_per_gpu=float(rng.choice([1.0, 100.0, 1000.0, 4000.0])),
        waiting_w=float(rng.choice([0.0, 20.0, 3000.0, 30000.0, 30000.0])),
        waiting_w_per_gpu=float(rng.choice([0.0, 100.0, 10000.0, 50000.0])),
        nodes=nodes,
        workload=[TaskClass(count=int(rng.integers(1, 10)), **asked) for asked in classes],
        tasks=random_tasks(rng, size),
    )


def _random_node(rng: np.random.Generator, most_gpus: int) -> dict[str, Any]:
    gpus, cpu_milli = int(rng.integers(0, most_gpus + 1)), int(rng.choice([16000, 41000, 64000, 96000]))
    part = rng.choice([0.0, 0.0, 0.25, 0.5, 0.9], size=2)
    left = rng.choice([0, 150, 460, 500, 770, 1000, 1000, 1000, 1000], size=gpus)
    return {
        "cpu_milli": cpu_milli,
        "memory_mib": 16384,
        "gpus": gpus,
        "gpu_type": str(rng.choice(TYPES)) if gpus else None,
        "cpu_type": str(rng.choice(["E5-2682 v4", "8163"])),
        "used_cpu_milli": int(cpu_milli * part[0]),
        "used_memory_mib": int(16384 * part[1]),
        "used_gpu_milli": (1000 - left).tolist(),
    }
