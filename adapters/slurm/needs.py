"""Needs of jobs besides GPUs: names, features, CPUs and memory of nodes, and the nodes that have them.

The engine knows GPUs and watts. A job that no node has all this for takes no part in its decision, so that
nothing is kept for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil

from wattsched.adapters.slurm.inventory import SlurmNode
from wattsched.instances.errors import InputError

_FEATURES = re.compile(r"[\w.:+-]+(&[\w.:+-]+)*|[\w.:+-]+(\|[\w.:+-]+)*")


@dataclass(frozen=True)
class Needs:
    """Needs of a job on each of its nodes.

    Attributes
    ----------
    nodes, excluded : frozenset of str
        It has to have all of these (``--nodelist``; empty: any), and none of those.
    features : str
        Such as ``a&b`` or ``a|b``.
    cpus, memory_mib : float
        In all, over all nodes.
    cpus_each, cpus_gpu, memory_each_mib, memory_cpu_mib, memory_gpu_mib : float
        At least on each node; for each GPU and CPU.
    exclusive : bool
        It has nodes for itself.
    """

    nodes: frozenset[str] = frozenset()
    excluded: frozenset[str] = frozenset()
    features: str = ""
    cpus: float = 1
    cpus_each: float = 1
    cpus_gpu: float = 0
    memory_each_mib: float = 0
    memory_cpu_mib: float = 0
    memory_gpu_mib: float = 0
    exclusive: bool = False

    def cpus_on(self, node: SlurmNode, nodes: int, gpus: int) -> float:
        """CPUs on one of so many nodes, with so many GPUs on each."""
        if self.exclusive:
            return node.cpus
        return max(self.cpus_each, ceil(self.cpus / nodes), self.cpus_gpu * gpus)

    def memory_mib_on(self, node: SlurmNode, nodes: int, gpus: int) -> float:
        """Memory on one of so many nodes."""
        by_cpu = self.memory_cpu_mib * self.cpus_on(node, nodes, gpus)
        return max(self.memory_each_mib, by_cpu, self.memory_gpu_mib * gpus)

    def lacks(self, node: SlurmNode, nodes: int, gpus: int) -> list[str]:
        """Return the needs of a job that a node does not meet, even if it were empty."""
        checks = {
            "--nodelist": not self.nodes or node.name in self.nodes,
            "--exclude": node.name not in self.excluded,
            f"--constraint={self.features}": self._features_are_on(node),
            "CPUs": self.cpus_on(node, nodes, gpus) <= node.cpus,
            "memory": self.memory_mib_on(node, nodes, gpus) <= node.memory_mib,
        }
        return [what for what, there in checks.items() if not there]

    def allowed(self, nodes: Iterable[SlurmNode], count: int, gpus: int) -> frozenset[str]:
        """Nodes that have what it asks for, as one of `count` with so many GPUs on each."""
        if self.features and not _FEATURES.fullmatch(self.features):
            raise InputError(
                [f"--constraint={self.features}: only names with either & or | between are looked at"]
            )
        lacks = {node.name: self.lacks(node, count, gpus) for node in nodes}
        if found := frozenset(name for name, lacking in lacks.items() if not lacking):
            return found
        least = min(map(len, lacks.values()), default=0)
        told = sorted({what for lacking in lacks.values() if len(lacking) == least for what in lacking})
        raise InputError([f"asks for what no node with GPUs in its partitions has: {', '.join(told)}"])

    def _features_are_on(self, node: SlurmNode) -> bool:
        if "|" in self.features:
            return bool(node.features & set(self.features.split("|")))
        return set(filter(None, self.features.split("&"))) <= node.features
