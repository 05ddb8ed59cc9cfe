"""Kinds of nodes: nodes that are equal in everything but their name."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

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
    of_node : (N,) int
        Type of each node of the cluster.
    """

    nodes: NodeTable
    power: NodePower
    count: IntArray
    of_node: IntArray

    def __len__(self) -> int:
        return len(self.count)

    def most_power_w(self) -> float:
        """Watts of the cluster when everything is busy."""
        nothing = np.zeros(len(self), dtype=np.int64)
        return float(self.count @ self.power.node_w(nothing, nothing))

    def admits(self, profiles: TaskTable) -> BoolArray:
        """Which types can run each of M tasks when nothing else is on the node, shape (K, M)."""
        nodes = self.nodes
        allowed = np.array([[not s or model in s for s in profiles.specs] for model in nodes.models])
        admits = allowed[nodes.model][:, profiles.spec] | (profiles.gpus == 0)
        for capacity, request in (
            (nodes.cpu_milli, profiles.cpu_milli),
            (nodes.memory_mib, profiles.memory_mib),
            (nodes.gpus, profiles.gpus),
        ):
            admits &= request <= capacity[:, None]
        return np.asarray(admits)


def node_types(nodes: NodeTable, power: NodePower | None = None) -> NodeTypes:
    """Group nodes by capacity, GPU model and power.

    Parameters
    ----------
    nodes : NodeTable
    power : NodePower, optional
        Power of the nodes; by `wattsched.perfmodels.node_power.node_power` without it.

    Raises
    ------
    ValueError
        If the power of a GPU model is unknown.
    """
    if power is None:
        power = node_power(nodes.cpu_milli, nodes.gpus, [nodes.models[m] for m in nodes.model])
    columns = {f.name: getattr(power, f.name) for f in fields(power)}
    rows = np.stack([nodes.cpu_milli, nodes.memory_mib, nodes.model, *columns.values()], axis=1)
    _types, first, of_node, count = np.unique(
        rows, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    one_each = replace(
        nodes,
        names=tuple(nodes.names[n] for n in first),
        **{name: getattr(nodes, name)[first] for name in ("cpu_milli", "memory_mib", "gpus", "model")},
    )
    return NodeTypes(
        nodes=one_each,
        power=NodePower(**{name: column[first] for name, column in columns.items()}),
        count=count.astype(np.int64),
        of_node=of_node.reshape(-1).astype(np.int64),
    )
