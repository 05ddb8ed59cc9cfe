"""Nodes that are equal in everything but their name, and requests that are equal to all of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from wattsched.formulations.placement.fragmentation import allowed
from wattsched.instances.placement.tables import NodeTable, TaskTable
from wattsched.perfmodels.node_power import NodePower, node_power
from wattsched.topology.arrays import BoolArray, IntArray


@dataclass(frozen=True)
class NodeTypes:
    """Distinct nodes of a cluster.

    Parameters
    ----------
    nodes : NodeTable
        One node of each of the K types.
    power : NodePower
        Power of these nodes.
    count : (K,) int
        Nodes of each type.
    """

    nodes: NodeTable
    power: NodePower
    count: IntArray

    def __len__(self) -> int:
        return len(self.count)

    def type_of(self, nodes: NodeTable, power: NodePower) -> IntArray:
        """Type of each of some of these nodes, shape (N,)."""
        types = {row: k for k, row in enumerate(map(tuple, _rows(self.nodes, self.power).tolist()))}
        return np.array([types[row] for row in map(tuple, _rows(nodes, power).tolist())], dtype=np.int64)

    def most_power_w(self) -> float:
        """Watts of the cluster when everything is busy."""
        nothing = np.zeros(len(self), dtype=np.int64)
        return float(self.count @ self.power.node_w(nothing, nothing))

    def admits(self, profiles: TaskTable) -> BoolArray:
        """Return the mask of types that can run each of M tasks on an empty node, shape (K, M)."""
        nodes = self.nodes
        admits = allowed(profiles, nodes.models)[:, nodes.model].T | (profiles.gpus == 0)
        for capacity, request in (
            (nodes.cpu_milli, profiles.cpu_milli),
            (nodes.memory_mib, profiles.memory_mib),
            (nodes.gpus, profiles.gpus),
        ):
            admits &= request <= capacity[:, None]
        return np.asarray(admits)


def node_types(nodes: NodeTable, power: NodePower | None = None) -> NodeTypes:
    """Group nodes by capacity, GPU model and power.

    Without their power it is that of `perfmodels.node_power`; ValueError if that of a GPU model is unknown.
    """
    if power is None:
        power = node_power(nodes.cpu_milli, nodes.gpus, [nodes.models[m] for m in nodes.model])
    _types, first, count = np.unique(_rows(nodes, power), axis=0, return_index=True, return_counts=True)
    return NodeTypes(nodes.take(first), power.take(first), count.astype(np.int64))


def _rows(nodes: NodeTable, power: NodePower) -> IntArray:
    """Return the properties in which nodes differ, one row each; `power` counts their GPUs."""
    of_power = (getattr(power, field.name) for field in fields(power))
    return np.stack([nodes.cpu_milli, nodes.memory_mib, nodes.model, *of_power], axis=1)


def profile_classes(types: NodeTypes, requests: TaskTable) -> tuple[TaskTable, IntArray]:
    """Merge requests that differ in memory alone and fit onto the same node types.

    A class asks for the least memory of its requests: what fits, still does. Also says of which class each
    request is, shape (R,).
    """
    requested = (requests.cpu_milli, requests.gpus, requests.gpu_milli, requests.spec)
    rows = np.stack([*requested, *types.admits(requests)], axis=1)
    _rows, first, class_of = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    class_of = class_of.reshape(-1).astype(np.int64)
    memory_mib = requests.memory_mib[first]
    np.minimum.at(memory_mib, class_of, requests.memory_mib)
    return replace(requests.take(first.astype(np.int64)), memory_mib=memory_mib), class_of
