"""Small random placement windows."""

from __future__ import annotations

import numpy as np

from wattsched.instances.placement.instance import NodeTable, TargetWorkload, TaskTable, Window

MODELS = ("T4", "P100", "G2", "G3")
SPECS = (frozenset[str](), frozenset({"T4"}), frozenset({"P100", "G3"}))
KINDS = ((0, 0), (1, 230), (1, 460), (1, 470), (1, 540), (1, 1000), (1, 1000), (2, 1000), (3, 1000))


def random_tasks(rng: np.random.Generator, size: int) -> TaskTable:
    """Tasks of few kinds, so that some are equal; a task has some CPU, a GPU or both."""
    kind = np.array([KINDS[i] for i in rng.integers(len(KINDS), size=size)])
    spec = np.where((kind[:, 0] > 0) & (rng.random(size) < 0.2), rng.integers(1, len(SPECS), size), 0)
    return TaskTable(
        cpu_milli=rng.choice([1000, 3000, 8000, 12500, 31000], size=size),
        memory_mib=rng.choice([0, 1024, 8192], size=size),
        gpus=kind[:, 0],
        gpu_milli=kind[:, 1],
        spec=spec,
        specs=SPECS,
    )


def random_window(seed: int, most_tasks: int = 4, most_nodes: int = 3, most_gpus: int = 3) -> Window:
    """A window on nodes that are partly in use and often equal, with CPUs of several packages."""
    rng = np.random.default_rng(seed)
    count, size = rng.integers(1, most_nodes + 1), rng.integers(1, most_tasks + 1)
    # Nodes are copies of few different ones.
    copy = rng.integers(0, count, size=count)
    gpus = rng.integers(1, most_gpus + 1, size=count)[copy]
    cpu_milli = rng.choice([16000, 41000, 64000, 96000], size=count)[copy]
    memory_mib = np.full(count, 16384)
    nodes = NodeTable(
        names=tuple(f"n{i}" for i in range(count)),
        cpu_milli=cpu_milli,
        memory_mib=memory_mib,
        gpus=gpus,
        model=rng.integers(len(MODELS), size=count)[copy],
        models=MODELS,
    )
    left = rng.choice([0, 150, 460, 500, 770, 1000, 1000, 1000, 1000], size=(count, most_gpus))[copy]
    used = rng.choice([0.0, 0.0, 0.25, 0.5, 0.9], size=(2, count))[:, copy]
    classes = random_tasks(rng, int(rng.integers(1, 5)))
    return Window.of(
        nodes,
        TargetWorkload(classes, rng.integers(1, 10, size=len(classes))),
        random_tasks(rng, int(size)),
        cpu_free_milli=(cpu_milli * (1.0 - used[0])).astype(np.int64),
        memory_free_mib=(memory_mib * (1.0 - used[1])).astype(np.int64),
        gpu_free_milli=np.where(np.arange(most_gpus) < gpus[:, None], left, 0),
        alpha=float(rng.choice([0.0, 0.3, 0.7, 1.0])),
        power_ref_w=float(rng.choice([1.0, 250.0])),
        fragmentation_ref_milli=float(rng.choice([1.0, 1000.0])),
        reject_w_per_task=float(rng.choice([0.0, 20.0, 3000.0, 30000.0, 30000.0])),
        reject_w_per_gpu_milli=float(rng.choice([0.0, 0.1, 10.0, 50.0])),
    )
