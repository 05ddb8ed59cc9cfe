"""Small random clusters, task lists and windows of the placement problem."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from wattsched.instances.placement.instance import OBJECTIVES, PlacementInstance
from wattsched.instances.placement.tables import WHOLE_GPU, NodeTable, TaskTable

MODELS = ("T4", "G2", "P100")
SPECS = (frozenset[str](), frozenset({"T4"}), frozenset({"G2", "P100"}), frozenset({"A10"}))

_asked = st.one_of(
    st.just((0, 0)),
    st.tuples(st.just(1), st.sampled_from([1, 100, 250, 500, 501, 999, WHOLE_GPU])),
    st.tuples(st.sampled_from([2, 3, 4, 8]), st.just(WHOLE_GPU)),
)


@st.composite
def task_tables(draw: st.DrawFn, least: int = 1, most: int = 30) -> TaskTable:
    """Tasks of few distinct kinds, so that some of them repeat."""
    task = st.tuples(
        st.sampled_from([0, 1000, 2000, 3500, 8000]), st.sampled_from([0, 10, 50]), _asked, st.integers(0, 3)
    )
    tasks = draw(st.lists(task, min_size=least, max_size=most))
    rows = [(cpu, memory, gpus, each, spec if gpus else 0) for cpu, memory, (gpus, each), spec in tasks]
    return TaskTable(*np.array(rows, dtype=np.int64).T.copy(), specs=SPECS)


@st.composite
def node_tables(draw: st.DrawFn, most: int = 8) -> NodeTable:
    """Up to eight nodes of up to eight GPUs."""
    node = st.tuples(
        st.sampled_from([0, 4000, 9000, 16000, 100_000]),
        st.sampled_from([0, 60, 200]),
        st.sampled_from([1, 2, 4, 8]),
        st.integers(0, len(MODELS) - 1),
    )
    nodes = draw(st.lists(node, min_size=1, max_size=most))
    names = tuple(f"n{i}" for i in range(len(nodes)))
    return NodeTable(names, *np.array(nodes, dtype=np.int64).T.copy(), models=MODELS)


OWN_GPU_TYPES = {"flat": (40, 40), "T4": (9, 71)}
OWN_CPU_TYPES = {"small": (0, 33, 3), "flat": (50, 50, 1)}


def _requests() -> st.SearchStrategy[dict[str, Any]]:
    """CPU, GPUs or both, some of them awkward: a vCPU more than a package, a thousandth more than is left."""
    kinds = [(0, 1000), (1, 1), (1, 333), (1, 500), (1, 501), (1, 999), (1, 1000), (2, 1000), (3, 1000)]
    return st.builds(
        lambda cpu, kind, types: {
            "cpu_milli": cpu,
            "gpus": kind[0],
            "gpu_milli": kind[1],
            "gpu_types": types,
        },
        st.sampled_from([0, 1, 999, 1000, 4000, 12_500, 32_001]),
        st.sampled_from(kinds),
        st.sampled_from([[], [], ["T4"], ["flat", "G3"], ["unheard-of"]]),
    )


@st.composite
def _nodes(draw: st.DrawFn) -> dict[str, Any]:
    gpus, cpu_milli = draw(st.integers(0, 3)), draw(st.sampled_from([0, 1999, 8000, 33_000, 64_000]))
    memory_mib = draw(st.sampled_from([0, 1024, 4096]))
    used = st.sampled_from([0, 0, 1, 499, 500, 501, 999, 1000])
    return {
        "cpu_milli": cpu_milli,
        "memory_mib": memory_mib,
        "gpus": gpus,
        "gpu_type": draw(st.sampled_from(["T4", "G3", "flat", *[None] * (not gpus)])),
        "cpu_type": draw(st.sampled_from(["E5-2682 v4", "8163", "small", "flat"])),
        "used_cpu_milli": draw(st.sampled_from([0, 0, min(cpu_milli, 3001), cpu_milli])),
        "used_memory_mib": draw(st.sampled_from([0, 0, memory_mib // 2])),
        "used_gpu_milli": draw(st.lists(used, max_size=gpus)),
    }


@st.composite
def windows(draw: st.DrawFn) -> PlacementInstance:
    """Tiny windows: up to three nodes, some of them equal, and up to three tasks."""
    kinds = draw(st.lists(_nodes(), min_size=1, max_size=2))
    nodes = draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=3))
    asked = st.tuples(_requests(), st.sampled_from([0, 0, 700, 1025]))
    tasks = draw(st.lists(asked, max_size=3))
    usual = draw(st.lists(st.tuples(_requests(), st.integers(1, 7)), max_size=3))
    rates = st.sampled_from([None, None, 0.0, 0.1, 130.0, 1e4])
    return PlacementInstance.model_validate(
        {
            "problem": "placement",
            "objective": draw(st.sampled_from(list(OBJECTIVES))),
            "fragmentation_w_per_gpu": draw(st.sampled_from([0.1, 1 / 3, 250.0, 1000.0])),
            "waiting_w": draw(rates),
            "waiting_w_per_gpu": draw(rates),
            "gpu_types": {
                name: {"idle_power_w": idle, "full_power_w": full}
                for name, (idle, full) in OWN_GPU_TYPES.items()
            },
            "cpu_types": {
                name: {"idle_power_w": idle, "full_power_w": full, "cores": cores}
                for name, (idle, full, cores) in OWN_CPU_TYPES.items()
            },
            "workload": [{**request, "count": count} for request, count in usual],
            "nodes": [{"name": f"n{i}", **node} for i, node in enumerate(nodes)],
            "tasks": [
                {"name": f"t{i}", "memory_mib": memory_mib, **request}
                for i, (request, memory_mib) in enumerate(tasks)
            ],
        }
    )
