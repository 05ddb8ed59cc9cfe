"""Room on nodes for more than GPUs: CPU, memory, places for pods, and what else they offer.

The engine knows GPUs and watts. A job for which there are GPUs and not the rest takes no part in its
decision, so that nothing is kept for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattsched.adapters.kubernetes.load import Load
from wattsched.adapters.kubernetes.options import KubeJob
from wattsched.adapters.kubernetes.reading import KubeNode, KubePod
from wattsched.instances.errors import InputError


@dataclass
class Room:
    """Room for pods on nodes by pool; answers are kept, so the load must not change.

    Parameters
    ----------
    load : Load
    """

    load: Load
    _nodes: dict[str, list[KubeNode]] = field(default_factory=lambda: defaultdict(list))
    _known: dict[Hashable, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.load.site.nodes.values():
            if node.ready:
                self._nodes[self.load.pools.of_node[node.name]].append(node)

    def fits(self, job: KubeJob, pool: str) -> bool:
        """True if the nodes of a pool have room for all pods of a job, each kind of them on its own."""
        return all(self._holds(pod, count, pool, pod.needs) for pod, count in _kinds(job))

    def scarce(self, job: KubeJob, pool: str) -> set[str]:
        """Return the resources that a job lacks on a pool's nodes, though they have GPUs enough for it."""
        found = set[str]()
        for pod, count in _kinds(job):
            if self._holds(pod, count, pool, ()) and not self._holds(pod, count, pool, pod.needs):
                alone = [what for what in pod.needs if not self._holds(pod, count, pool, [what])]
                found.update(alone or pod.needs)
        return found

    def _holds(self, pod: KubePod, count: int, pool: str, what: Collection[str]) -> bool:
        """True if so many pods like one have room, by their GPUs and some other resources."""
        asked = (pool, pod.gpus, count, tuple((name, pod.needs[name]) for name in sorted(what)))
        if asked not in self._known:
            left = count
            for node in self._nodes[pool]:
                left -= self.load.copies(pod, node, what)
                if left <= 0:
                    break
            self._known[asked] = left <= 0
        return self._known[asked]


def _kinds(job: KubeJob) -> list[tuple[KubePod, int]]:
    """A pod of every kind, by what they ask for, and how many there are."""
    counts = Counter(tuple(sorted(pod.needs.items())) for pod in job.pods)
    samples = {tuple(sorted(pod.needs.items())): pod for pod in job.pods}
    return [(samples[needs], count) for needs, count in counts.items()]


def with_room(job: KubeJob, table: Mapping[str, list[Any]], empty: Room, now: Room) -> dict[str, list[Any]]:
    """Rows of a table in pools where the pods of a job have room for all that they ask for.

    Parameters
    ----------
    empty, now : Room
        Of nodes without pods, and without those that are leaving or could be stopped.

    Raises
    ------
    InputError
        With what is scarce, where there is none.
    """
    pools = sorted(set(table["pool"]))
    never = {pool: empty.scarce(job, pool) for pool in pools}
    scarce = {pool: never[pool] or now.scarce(job, pool) for pool in pools}
    rows = [i for i, pool in enumerate(table["pool"]) if not scarce[pool]]
    if not rows:
        told = ", ".join(sorted(set.union(*scarce.values())))
        raise InputError(
            [f"asks for more than nodes have: {told}" if all(never.values()) else f"waits for room: {told}"]
        )
    return {name: [column[i] for i in rows] for name, column in table.items()}
