"""Pools of interchangeable nodes, divided by what waiting jobs ask of nodes, without harm to other jobs.

The engine places a job on nodes of one pool. A job that may have some nodes of a pool only needs a pool of
its own, and each division may take the room of a job that needs several nodes at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

MOST_CUTS = 256
"""Divisions that are looked at in a round, those of the jobs that have waited longest."""


@dataclass(frozen=True)
class Claim:
    """Nodes that a waiting job may have.

    Attributes
    ----------
    hosts : frozenset of str
        These nodes.
    since_s : float
        When it was submitted, in seconds since 1970.
    nodes : int
        Nodes that it needs at once.
    gpus : int
        GPUs that it needs on each of them at least.
    full : frozenset of str
        Nodes where it lacks something else now.
    """

    hosts: frozenset[str]
    since_s: float = 0.0
    nodes: int = 1
    gpus: int = 1
    full: frozenset[str] = frozenset()

    def able(self, free: Mapping[str, int] | None) -> set[str]:
        """Nodes on which it has room now, by the free GPUs of each node; without these all are free."""
        return {node for node in self.hosts - self.full if free is None or free.get(node, 0) >= self.gpus}


def divided(
    pools: Mapping[str, str],
    claims: Iterable[Claim],
    *,
    together: Collection[frozenset[str]] = (),
    apart: Iterable[frozenset[str]] = (),
    free: Mapping[str, int] | None = None,
) -> dict[str, str]:
    """Divide pools so that jobs which may have some of their nodes only get pools of their own.

    A division that leaves a job of several nodes without room is made only for a job that has waited longer
    and has room now; otherwise the job with fewer nodes to choose from waits.

    Parameters
    ----------
    pools : mapping of str to str
        Pool of each node.
    claims : iterable of Claim
        Of jobs that can run, and no others.
    together : collection of frozenset of str
        Nodes of each running job, which are never divided.
    apart : iterable of frozenset of str
        Nodes that administrators set apart, as by a reservation; divided first.
    free : mapping of str to int, optional
        Free GPUs of each node that takes jobs, those about to be free among them; without it all are free.

    Returns
    -------
    dict of str to str
        Pool of each node; the parts of a divided pool are called ``POOL/part1``, ``POOL/part2``.
    """
    # Sets of nodes are integers with a bit for each node.
    bit = {node: 1 << i for i, node in enumerate(pools)}

    def mask(nodes: Iterable[str]) -> int:
        return sum(bit[node] for node in nodes if node in bit)

    running = [mask(nodes) for nodes in together]
    parts = [mask(node for node in pools if pools[node] == pool) for pool in dict.fromkeys(pools.values())]
    for nodes in dict.fromkeys(apart):
        parts = _cut(parts, mask(nodes), running) or parts
    claims = sorted(claims, key=lambda claim: claim.since_s)
    # Jobs of several nodes: the nodes with GPUs enough, and how many it needs -> since when one waits.
    wide: dict[tuple[int, int], float] = {}
    for claim in claims:
        if claim.nodes > 1:
            wide.setdefault((mask(claim.able(free)), claim.nodes), claim.since_s)
    # Only what has room before counts as harmed.
    wide = {key: since_s for key, since_s in wide.items() if _has_room(*key, parts)}
    # Nodes that jobs ask for -> since when one waits, and whether one of these nodes has room now.
    cuts: dict[int, tuple[float, bool]] = {}
    for claim in claims:
        since_s, known = cuts.get(key := mask(claim.hosts), (claim.since_s, False))
        cuts[key] = since_s, known or bool(claim.able(free))
    for hosts, (since_s, ready) in islice(cuts.items(), MOST_CUTS):
        after = _cut(parts, hosts, running)
        harmed = [wide[key] for key in wide if after is not None and not _has_room(*key, after)]
        if after is not None and all(ready and since_s < other_s for other_s in harmed):
            parts = after
    return _named(pools, [[node for node in pools if bit[node] & part] for part in parts])


def _cut(parts: list[int], hosts: int, running: list[int]) -> list[int] | None:
    """Parts, sets of nodes as bits, divided by `hosts`; None if that divides no part, or a running job."""
    if any(one & hosts and one & ~hosts for one in running):
        return None
    if not any(part & hosts and part & ~hosts for part in parts):
        return None
    return [piece for part in parts for piece in (part & hosts, part & ~hosts) if piece]


def _has_room(hosts: int, nodes: int, parts: list[int]) -> bool:
    """Return whether one part holds at least so many (`nodes`) of the nodes `hosts`."""
    return any((part & hosts).bit_count() >= nodes for part in parts)


def _named(pools: Mapping[str, str], parts: list[list[str]]) -> dict[str, str]:
    """Pool of each node, with the number of its part where its pool has several."""
    by_pool: dict[str, list[list[str]]] = {}
    for part in parts:
        by_pool.setdefault(pools[part[0]], []).append(part)
    return {
        node: pool if len(own) == 1 else f"{pool}/part{i}"
        for pool, own in by_pool.items()
        for i, part in enumerate(sorted(own, key=lambda nodes: list(pools).index(nodes[0])), start=1)
        for node in part
    }
