"""Clusters and task lists written down by hand."""

from __future__ import annotations

import numpy as np

from wattsched.formulations.placement.state import ClusterState, PolicyContext, Request
from wattsched.instances.placement.tables import NodeTable, TargetWorkload, TaskTable, target_workload
from wattsched.perfmodels.node_power import node_power

ANY = frozenset[str]()


def nodes_of(*rows: tuple[int, int, str]) -> NodeTable:
    """Nodes of so many vCPUs, GPUs and such a model, with plenty of memory."""
    models = tuple(dict.fromkeys(model for _, _, model in rows))
    return NodeTable(
        names=tuple(f"n{i}" for i in range(len(rows))),
        cpu_milli=np.array([1000 * vcpus for vcpus, _, _ in rows]),
        memory_mib=np.full(len(rows), 1_000_000),
        gpus=np.array([gpus for _, gpus, _ in rows]),
        model=np.array([models.index(model) for _, _, model in rows]),
        models=models,
    )


def tasks_of(*requests: Request) -> TaskTable:
    """Task list of these requests."""
    specs = tuple(dict.fromkeys([ANY, *(request.models for request in requests)]))
    rows = [(*request[:4], specs.index(request.models)) for request in requests]
    return TaskTable(*np.array(rows, dtype=np.int64).T.copy(), specs=specs)


def context_of(nodes: NodeTable, target: TargetWorkload | None = None, seed: int = 1) -> PolicyContext:
    """PolicyContext with the power tables of the models."""
    power = node_power(nodes.cpu_milli, nodes.gpus, [nodes.models[model] for model in nodes.model])
    return PolicyContext(nodes, power, target or target_workload(tasks_of(share(500), whole(1))), seed)


def share(gpu_milli: int, vcpus: float = 1, models: frozenset[str] = ANY) -> Request:
    """Request of a share of a GPU."""
    return Request(round(1000 * vcpus), 1, 1, gpu_milli, models)


def whole(gpus: int, vcpus: float = 1, models: frozenset[str] = ANY) -> Request:
    """Request of whole GPUs, or of none."""
    return Request(round(1000 * vcpus), 1, gpus, 1000 if gpus else 0, models)


def state_with(
    nodes: NodeTable, free: dict[int, list[int]], cpu_free: dict[int, float] | None = None
) -> ClusterState:
    """State in which the GPUs and vCPUs of some nodes are partly used."""
    state = ClusterState(nodes)
    for node, milli in free.items():
        state.gpu_free_milli[node, : len(milli)] = milli
    for node, vcpus in (cpu_free or {}).items():
        state.cpu_free_milli[node] = round(1000 * vcpus)
    return state
