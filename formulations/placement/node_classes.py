"""Nodes in the same state collapse into classes: a window's tasks cannot tell them apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from wattsched.formulations.placement.hosting import NodeStates
from wattsched.instances.placement.instance import Window
from wattsched.topology.arrays import IntArray


@dataclass(frozen=True)
class NodeClasses:
    """Classes of nodes that are equal now.

    Attributes
    ----------
    states : NodeStates
        State of each of C classes.
    members : (N,) int
        Positions of nodes, those of a class together and in order.
    start : (C + 1,) int
        Class c has the members ``start[c]`` to ``start[c + 1]``.
    """

    states: NodeStates
    members: IntArray
    start: IntArray

    @property
    def count(self) -> IntArray:
        """Nodes of each class, shape (C,)."""
        return np.diff(self.start)

    def nodes(self, cls: int) -> IntArray:
        """Positions of the nodes of a class, in order."""
        return self.members[self.start[cls] : self.start[cls + 1]]

    def take(self, index: IntArray) -> NodeClasses:
        """Classes at these positions."""
        size = self.count[index]
        start = np.concatenate([[0], np.cumsum(size)]).astype(np.int64)
        within = np.arange(start[-1]) - np.repeat(start[:-1], size)
        members = self.members[np.repeat(self.start[index], size) + within]
        return NodeClasses(self.states.take(index), members, start)


def node_classes(window: Window) -> NodeClasses:
    """Collapse the nodes of a window, the classes in the order of their first node."""
    # Memory counts only as far as the window's tasks could use it.
    memory_mib = np.minimum(window.memory_free_mib, window.tasks.memory_mib.sum())
    gpu_milli = np.sort(window.gpu_free_milli, axis=1)
    power, nodes = window.power, window.nodes
    state = [
        nodes.model,
        nodes.gpus,
        power.gpu_idle_w,
        power.gpu_full_w,
        power.cores,
        power.package_cores,
        power.package_idle_w,
        power.package_full_w,
        window.cpu_free_milli,
        memory_mib,
        *gpu_milli.T,
    ]
    order = np.lexsort(state)  # stable: the nodes of a class stay in order
    rows = np.stack(state, axis=1)[order]
    new = np.ones(len(order), dtype=bool)
    new[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    start = np.append(np.flatnonzero(new), len(order))
    first = order[start[:-1]]
    states = NodeStates(first, window.cpu_free_milli[first], memory_mib[first], gpu_milli[first])
    return NodeClasses(states, order, start).take(np.argsort(first))
