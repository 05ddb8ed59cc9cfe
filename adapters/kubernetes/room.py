"""Whether nodes have what pods ask for besides GPUs: CPU, memory, places for pods, and what else they offer.

The engine knows GPUs and watts. A job for which there are GPUs and not the rest takes no part in its
decision, so that nothing is kept for it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from wattsched.adapters.kubernetes.load import Load
from wattsched.adapters.kubernetes.options import KubeJob
from wattsched.adapters.kubernetes.reading import KubeNode, KubePod
from wattsched.instances.errors import InputError

_Alike = tuple[str, int, tuple[tuple[str, float], ...]]
"""Pool, GPUs and other needs of pods that find room where others like them do."""


@dataclass
class Room:
    """What pods find on nodes by pool; answers are kept, so the load must not change.

    Parameters
    ----------
    load : Load
    """

    load: Load
    _nodes: dict[str, list[KubeNode]] = field(default_factory=lambda: defaultdict(list))
    _known: dict[tuple[_Alike, int], tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.load.site.nodes.values():
            if node.ready:
                self._nodes[self.load.pools.of_node[node.name]].append(node)

    def scarce(self, job: KubeJob, pool: str) -> set[str]:
        """What a job lacks on the nodes of a pool, though they have GPUs enough for it."""
        needs = Counter((pool, pod.gpus, tuple(sorted(pod.needs.items()))) for pod in job.pods)
        samples = {(pool, pod.gpus, tuple(sorted(pod.needs.items()))): pod for pod in job.pods}
        found = set[str]()
        for alike, count in needs.items():
            if (alike, count) not in self._known:
                self._known[alike, count] = self._scarce(samples[alike], count, pool)
            found.update(self._known[alike, count])
        return found

    def _scarce(self, pod: KubePod, count: int, pool: str) -> tuple[str, ...]:
        if not self._holds(pod, count, pool, ()) or self._holds(pod, count, pool, pod.needs):
            return ()
        alone = [what for what in pod.needs if not self._holds(pod, count, pool, [what])]
        return tuple(alone or sorted(pod.needs))

    def _holds(self, pod: KubePod, count: int, pool: str, what: Iterable[str]) -> bool:
        """Whether so many pods like one have room, by their GPUs and some other resources."""
        for node in self._nodes[pool]:
            if count <= 0:
                break
            count -= self.load.copies(pod, node, what)
        return count <= 0


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
